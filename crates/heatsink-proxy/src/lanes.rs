//! Lanes: the upstream connections that clients of one user, database and protocol share.
//!
//! Called by: `forward` and `session` for the shared link, `own_link` for links of a
//! client's own.
//! Bound: one shared link per lane and worker, at most [`MAX_SPARE`] spare ones; a lane
//! nobody uses is given up after [`LANE_IDLE`].
//! Invariant: clients of different users never share a link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use heatsink_upstream::Login;
use heatsink_upstream::error::LinkError;
use heatsink_upstream::link::{Link, Waiter};

use crate::connection::ClientKey;
use crate::worker::{Worker, link_token};

/// Spare connections kept for the next client that needs one of its own.
const MAX_SPARE: usize = 32;
/// Lanes of a worker: different users, databases and protocols at once.
const MAX_LANES: usize = 1024;
/// A lane without clients is kept this long.
const LANE_IDLE: Duration = Duration::from_secs(30);
/// After a failed attempt to connect, requests are refused without a new one this long.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Who waits for a reply on a shared link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) client: ClientKey,
    pub(crate) purpose: Purpose,
}

/// What a reply on a shared link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The client gets it as it is.
    Forward,
    /// It decides about the client's [`crate::session::Session`].
    Session,
    /// The server's command table.
    Commands,
}

impl Waiter for Ticket {
    fn wants_whole(&self) -> bool {
        self.purpose != Purpose::Forward
    }
}

/// Who uses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// All clients of its lane.
    Lane,
    /// One client.
    Client(ClientKey),
    /// Nobody at the moment.
    Spare,
}

/// A link and its place in the worker.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub(crate) struct Upstream {
    pub(crate) link: Link<Ticket>,
    pub(crate) lane: usize,
    pub(crate) owner: Owner,
    pub(crate) generation: u32,
    pub(crate) dirty: bool,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    announced_ready: bool,
    /// The server has closed its side; what it sent before may still be unread.
    pub(crate) hung_up: bool,
    /// The name the server knows the connection by, on a link for one client.
    pub(crate) name: Vec<u8>,
}

/// One user, database and protocol.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) login: Login,
    pub(crate) link: Option<usize>,
    pub(crate) spare: Vec<usize>,
    pub(crate) clients: usize,
    idle_since: Instant,
    /// When and why the last attempt to connect failed.
    failed: Option<(Instant, String)>,
    /// Clients that are not read from until the shared link has taken what is queued.
    pub(crate) throttled: Vec<ClientKey>,
    /// The server wants these clients to authenticate first.
    pub(crate) needs_auth: bool,
}

impl Worker {
    /// The lane for a login, made if there is none; `None` if there are too many.
    pub(crate) fn lane_for(&mut self, login: &Login) -> Option<usize> {
        if let Some((slot, _)) = self.lanes.iter().find(|(_, lane)| lane.login == *login) {
            return Some(slot);
        }
        if self.lanes.len() >= MAX_LANES {
            let unused =
                |(slot, lane): &(usize, &Lane)| *slot != self.base_lane && lane.clients == 0;
            let oldest =
                self.lanes.iter().filter(unused).min_by_key(|(_, lane)| lane.idle_since)?.0;
            self.drop_lane(oldest);
        }
        Some(self.lanes.insert(Lane {
            login: login.clone(),
            link: None,
            spare: Vec::new(),
            clients: 0,
            idle_since: self.now,
            failed: None,
            throttled: Vec::new(),
            needs_auth: false,
        }))
    }

    /// A client joins a lane.
    pub(crate) fn enter_lane(&mut self, lane: usize) {
        self.lanes[lane].clients += 1;
    }

    /// A client leaves a lane.
    pub(crate) fn leave_lane(&mut self, lane: usize) {
        self.lanes[lane].clients -= 1;
        self.lanes[lane].idle_since = self.now;
    }

    /// The shared link of a lane, opened if it is not there; else why there is none.
    #[inline]
    pub(crate) fn lane_link(&mut self, lane: usize) -> Result<usize, String> {
        match self.lanes[lane].link {
            Some(link) => Ok(link),
            None => self.open_lane_link(lane),
        }
    }

    fn open_lane_link(&mut self, lane: usize) -> Result<usize, String> {
        if let Some((at, why)) = &self.lanes[lane].failed
            && self.now.saturating_duration_since(*at) < RETRY_AFTER
        {
            return Err(why.clone());
        }
        let link = self.open_link(lane, Owner::Lane).map_err(|error| self.unavailable(&error))?;
        self.lanes[lane].link = Some(link);
        Ok(link)
    }

    /// A link for one client: a spare one, or a new one.
    pub(crate) fn take_link(&mut self, lane: usize, client: ClientKey) -> Result<usize, String> {
        while let Some(slot) = self.lanes[lane].spare.pop() {
            if let Some(upstream) = self.links.get_mut(slot) {
                upstream.owner = Owner::Client(client);
                return Ok(slot);
            }
        }
        if let Some((at, why)) = &self.lanes[lane].failed
            && self.now.saturating_duration_since(*at) < RETRY_AFTER
        {
            return Err(why.clone());
        }
        self.open_link(lane, Owner::Client(client)).map_err(|error| self.unavailable(&error))
    }

    /// Gives a link back that no client needs any more and that carries no state.
    pub(crate) fn spare_link(&mut self, slot: usize) {
        let Some(upstream) = self.links.get_mut(slot) else { return };
        let lane = &mut self.lanes[upstream.lane];
        if lane.spare.len() < MAX_SPARE {
            upstream.owner = Owner::Spare;
            lane.spare.push(slot);
        } else {
            self.drop_link(slot);
        }
    }

    /// Closes a link; whoever waited on it has been seen to.
    pub(crate) fn drop_link(&mut self, slot: usize) {
        if let Some(mut upstream) = self.links.try_remove(slot) {
            upstream.link.deregister(&self.registry);
            let lane = &mut self.lanes[upstream.lane];
            lane.spare.retain(|spare| *spare != slot);
            if lane.link == Some(slot) {
                lane.link = None;
            }
        }
    }

    fn open_link(&mut self, lane: usize, owner: Owner) -> Result<usize, LinkError> {
        self.next_generation = self.next_generation.wrapping_add(1);
        let generation = self.next_generation;
        let entry = self.links.vacant_entry();
        let slot = entry.key();
        let login = &self.lanes[lane].login;
        let token = link_token(slot, generation);
        let name = (owner == Owner::Lane).then_some("heatsink");
        let link = Link::connect(&self.shared.dialer, login, name, &self.registry, token, self.now);
        match link {
            Ok(link) => {
                let upstream = Upstream {
                    link,
                    lane,
                    owner,
                    generation,
                    dirty: false,
                    readable: false,
                    announced_ready: false,
                    hung_up: false,
                    name: Vec::new(),
                };
                entry.insert(upstream);
                Ok(slot)
            }
            Err(error) => {
                self.note_failure(lane, &error, None);
                Err(error)
            }
        }
    }

    fn note_failure(&mut self, lane: usize, error: &LinkError, address: Option<SocketAddr>) {
        if !matches!(error, LinkError::Refused(_))
            && let Some(address) = address
        {
            self.shared.dialer.failed(address);
        }
        let why = self.unavailable(error);
        if self.lanes[lane].failed.is_none() {
            tracing::warn!("{}", &why["ERR heatsink: ".len()..]);
        }
        self.lanes[lane].failed = Some((self.now, why));
    }

    /// What clients are told when the upstream cannot be reached.
    pub(crate) fn unavailable(&self, error: &LinkError) -> String {
        format!("ERR heatsink: upstream {} unavailable: {error}", self.shared.dialer.endpoint())
    }

    /// Called when a link has read something: the first time it is ready, see to what waits
    /// for that.
    pub(crate) fn note_ready(&mut self, slot: usize) {
        let Some(upstream) = self.links.get_mut(slot) else { return };
        if upstream.announced_ready || !upstream.link.is_ready() {
            return;
        }
        upstream.announced_ready = true;
        // Clients that were stopped because too much waited for this are resumed by a flush.
        if !upstream.dirty {
            upstream.dirty = true;
            self.dirty_links.push(slot);
        }
        let (lane, owner) = (upstream.lane, upstream.owner);
        let needs_auth = upstream.link.needs_auth();
        let id = upstream.link.connection_id();
        if self.lanes[lane].failed.take().is_some() {
            tracing::warn!("upstream {} is back", self.shared.dialer.endpoint());
        }
        self.lanes[lane].needs_auth = needs_auth;
        match owner {
            Owner::Lane if !needs_auth => self.ask_commands(slot),
            Owner::Client(key) => {
                if let Some(client) = self.clients.get(key) {
                    client.card.set_upstream_id(id);
                }
            }
            Owner::Lane | Owner::Spare => {}
        }
    }

    /// Ends a link that failed: everyone who waits is told, state that is lost is dealt with.
    pub(crate) fn lose_link(&mut self, slot: usize, error: &LinkError) {
        let Some(upstream) = self.links.get_mut(slot) else { return };
        let (lane, owner, address) = (upstream.lane, upstream.owner, upstream.link.address());
        let (part_sent, abandoned) = upstream.link.abandon();
        let abandoned: Vec<_> = abandoned.collect();
        self.drop_link(slot);
        if error.before_ready() {
            self.note_failure(lane, error, address);
        } else if owner == Owner::Lane {
            let endpoint = self.shared.dialer.endpoint();
            tracing::warn!(waiting = abandoned.len(), "upstream {endpoint} lost: {error}");
            self.forget_commands();
        }
        let mut text = self.unavailable(error);
        if !error.before_ready() {
            text.push_str("; it is unknown whether the command was executed");
        }
        // Half a reply cannot be mended: whatever follows would be taken for the rest of it.
        let cut = abandoned.first().filter(|_| part_sent).map(|(ticket, _)| ticket.client);
        if let Some(client) = cut {
            self.clients.close_after_replies(client);
        }
        for (ticket, count) in abandoned {
            match ticket.purpose {
                Purpose::Forward => {
                    if cut != Some(ticket.client) {
                        for _ in 0..count {
                            self.clients.error(ticket.client, &text);
                        }
                    }
                    self.clients.answered(ticket.client, count);
                }
                Purpose::Session => self.session_failed(ticket.client, error, &text),
                Purpose::Commands => self.forget_commands(),
            }
        }
        if let Owner::Client(key) = owner {
            self.own_link_lost(key, error, &text);
        }
        // The lane may have gone with the last that hoped for it.
        if let Some(lane) = self.lanes.get_mut(lane) {
            self.clients.resume.append(&mut lane.throttled);
        }
    }

    /// Links that take too long, and lanes and spare links nobody needs.
    pub(crate) fn look_after_lanes(&mut self) {
        let timeouts = self.shared.config.timeouts.clone();
        let overdue: Vec<_> = self
            .links
            .iter()
            .filter_map(|(slot, upstream)| {
                let owed = match upstream.owner {
                    Owner::Lane => upstream.link.waiting() > 0,
                    Owner::Client(key) => {
                        let own = self.clients.get_ref(key).and_then(|client| client.own.as_ref());
                        own.is_some_and(|own| own.awaits_prompt_answer())
                    }
                    Owner::Spare => false,
                };
                let silence = timeouts.silence.filter(|_| owed);
                let error = upstream.link.overdue(self.now, timeouts.connect, silence)?;
                Some((slot, error))
            })
            .collect();
        for (slot, error) in overdue {
            self.lose_link(slot, &error);
        }
        let unused: Vec<_> = self
            .lanes
            .iter()
            .filter(|(slot, lane)| {
                *slot != self.base_lane
                    && lane.clients == 0
                    && self.now.saturating_duration_since(lane.idle_since) >= LANE_IDLE
            })
            .map(|(slot, _)| slot)
            .collect();
        for lane in unused {
            self.drop_lane(lane);
        }
    }

    /// Gives a lane up that never came to life: nobody is in it and it has no connection.
    pub(crate) fn drop_lane_if_unused(&mut self, lane: usize) {
        if lane != self.base_lane
            && self.lanes[lane].clients == 0
            && self.lanes[lane].link.is_none()
        {
            self.drop_lane(lane);
        }
    }

    fn drop_lane(&mut self, lane: usize) {
        let of_lane =
            |(slot, upstream): (usize, &Upstream)| (upstream.lane == lane).then_some(slot);
        let links: Vec<_> = self.links.iter().filter_map(of_lane).collect();
        for link in links {
            self.drop_link(link);
        }
        self.lanes.remove(lane);
    }
}
