//! A node does not execute a request because it is another's to execute, or because the time
//! is not right: the request goes there, or is tried again.
//!
//! Bound: [`MAX_HOPS`] nodes and `timeouts.cluster_retry_ms`; then the client gets the node's
//! error.
//! Invariant: of two requests of one client for one slot, the later is not executed first; see
//! [`crate::cluster`].

use std::time::{Duration, Instant};

use heatsink_cluster::redirect::{self, Redirect};
use heatsink_cluster::topology::NodeAddress;
use heatsink_upstream::address::Endpoint;

use crate::clients::{Clients, error_line};
use crate::connection::ClientKey;
use crate::lanes::{Purpose, Ticket};
use crate::nodes::NodeId;
use crate::worker::Worker;

/// Nodes that a request is sent to, one after the other.
const MAX_HOPS: u32 = 16;
/// Time between two attempts.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A request that is not where it was first sent.
#[derive(Debug, Default)]
pub(crate) struct Detour {
    hops: u32,
    /// When it is no longer tried again, once it has been.
    until: Option<Instant>,
}

/// A request that is to be tried again.
#[derive(Debug)]
pub(crate) enum Later {
    /// On a shared link.
    Shared { at: Instant, lane: usize, ticket: Ticket, request: Vec<u8> },
    /// On the client's own connection.
    Own { at: Instant, client: ClientKey },
}

impl Later {
    pub(crate) fn at(&self) -> Instant {
        match self {
            Self::Shared { at, .. } | Self::Own { at, .. } => *at,
        }
    }
}

impl Clients {
    /// The reply that `ticket` waits for will come from elsewhere, and those behind it must not
    /// pass it.
    pub(crate) fn detour(&mut self, ticket: Ticket) -> Ticket {
        if ticket.purpose != Purpose::Forward {
            return ticket;
        }
        match self.get(ticket.client) {
            Some(client) => {
                let purpose = Purpose::Detour(client.order.hole(ticket.seq));
                Ticket { purpose, ..ticket }
            }
            // It has gone; what it wrote before is executed all the same.
            None => Ticket::internal(Purpose::Ignored),
        }
    }
}

impl Worker {
    /// A node has not executed a request; `ticket` waits for its reply.
    pub(crate) fn go_elsewhere(
        &mut self,
        link: Option<usize>,
        lane: usize,
        from: NodeId,
        ticket: Ticket,
        request: Vec<u8>,
        error: &[u8],
    ) {
        let hops = self.note_hop(ticket);
        let Some(redirect) = redirect::parse(error).filter(|_| hops <= MAX_HOPS) else {
            self.conclude(ticket, error);
            return;
        };
        match redirect {
            Redirect::Moved { host, port, .. } => {
                let to = self.named_node(from, host, port);
                self.resend(lane, to, ticket, &request, false);
                self.want_topology();
            }
            Redirect::Ask { host, port, .. } => {
                let to = self.named_node(from, host, port);
                self.resend(lane, to, ticket, &request, true);
            }
            Redirect::Loading | Redirect::MasterDown if self.is_replica(from) => {
                if let Some(view) = &mut self.cluster {
                    view.sick.push((from, self.now + Duration::from_secs(1)));
                }
                let slot = self.slot_of_request(&request);
                let to = slot.map_or(from, |slot| self.primary_of(slot, ticket.client));
                self.resend(lane, to, ticket, &request, false);
            }
            Redirect::TryAgain
            | Redirect::ClusterDown
            | Redirect::Loading
            | Redirect::MasterDown => {
                self.want_topology();
                if self.may_try_again(link, ticket, &request) {
                    let at = self.now + RETRY_PAUSE;
                    self.later.push(Later::Shared { at, lane, ticket, request });
                    self.next_tick = self.next_tick.min(at);
                } else {
                    self.conclude(ticket, error);
                }
            }
        }
    }

    /// The node that another one has named.
    pub(crate) fn named_node(&mut self, from: NodeId, host: &str, port: u16) -> NodeId {
        let host = match (host, self.endpoint(from)) {
            ("", Endpoint::Tcp { host, .. }) => host,
            _ => host.to_owned(),
        };
        self.shared.nodes.id_of(&NodeAddress { host, port })
    }

    fn note_hop(&mut self, ticket: Ticket) -> u32 {
        if ticket.client == ClientKey::NOBODY {
            // Nobody waits for it; one more node is tried, and that is it.
            return 1;
        }
        let detour = self.detours.entry(ticket).or_default();
        detour.hops += 1;
        detour.hops
    }

    /// The reply has come at last.
    pub(crate) fn end_detour(&mut self, ticket: Ticket) {
        if let Some(detour) = self.detours.remove(&ticket)
            && detour.until.is_some()
            && let Some(client) = self.clients.get(ticket.client)
        {
            client.retrying -= 1;
            if client.retrying == 0 {
                self.clients.resume.push(ticket.client);
            }
        }
    }

    fn resend(&mut self, lane: usize, to: NodeId, ticket: Ticket, request: &[u8], asking: bool) {
        if self.lanes.get(lane).is_none() || to == NodeId::NONE {
            self.conclude(ticket, &error_line("ERR heatsink: the node cannot be reached"));
            return;
        }
        match self.lane_link(lane, to) {
            Ok(link) => {
                if asking {
                    let ignored = Ticket::internal(Purpose::Ignored);
                    self.push_to_link(link, b"*1\r\n$6\r\nASKING\r\n", ignored, 1);
                }
                self.push_to_link(link, request, ticket, 1);
            }
            Err(why) => self.conclude(ticket, &error_line(&why)),
        }
    }

    /// A request may be tried again if none of the same client for the same slot was sent
    /// behind it, which would then be executed before it; and not for ever.
    fn may_try_again(&mut self, link: Option<usize>, ticket: Ticket, request: &[u8]) -> bool {
        let slot = self.slot_of_request(request);
        let overtaken = link.and_then(|slot| self.links.get(slot)).is_some_and(|upstream| {
            upstream.link.unanswered().any(|(behind, request)| {
                behind.client == ticket.client && self.slot_of_request(request) == slot
            })
        });
        let until = self.now + self.live.timeouts.cluster_retry;
        let Some(client) = self.clients.get(ticket.client) else { return false };
        let Some(detour) = self.detours.get_mut(&ticket) else { return false };
        if detour.until.is_none() {
            if overtaken {
                return false;
            }
            detour.until = Some(until);
            client.retrying += 1;
        }
        // Trying again is not going further.
        detour.hops = 0;
        detour.until.is_some_and(|until| self.now < until)
    }

    /// The reads that a replica has not answered. A primary has them too.
    pub(crate) fn unanswered_reads(&self, slot: usize) -> Vec<(Ticket, Vec<u8>)> {
        let Some(upstream) = self.links.get(slot).filter(|upstream| upstream.replica) else {
            return Vec::new();
        };
        let unanswered = upstream.link.unanswered();
        unanswered.map(|(ticket, request)| (ticket, request.to_vec())).collect()
    }

    /// A replica is lost: what it was asked is asked of its primary. What is no read, since
    /// the node was more than a replica meanwhile, may have been executed and is not repeated.
    pub(crate) fn read_elsewhere(&mut self, lane: usize, requests: Vec<(Ticket, Vec<u8>)>) {
        for (ticket, request) in requests {
            let slot = self.slot_of_request(&request).filter(|_| self.is_read(&request));
            match slot {
                Some(slot) if !matches!(ticket.purpose, Purpose::Part { .. }) => {
                    let ticket = self.clients.detour(ticket);
                    let to = self.primary_of(slot, ticket.client);
                    self.resend(lane, to, ticket, &request, false);
                }
                _ if ticket.purpose == Purpose::Topology => self.forget_topology_question(),
                _ if ticket.purpose == Purpose::Commands => self.forget_commands(),
                _ => {
                    let text = "ERR heatsink: upstream replica lost; \
                                it is unknown whether the command was executed";
                    self.conclude(ticket, &error_line(text));
                }
            }
        }
    }

    /// Tries again what is due.
    pub(crate) fn try_later(&mut self) {
        let now = self.now;
        let mut index = 0;
        while index < self.later.len() {
            if self.later[index].at() > now {
                index += 1;
                continue;
            }
            match self.later.remove(index) {
                Later::Shared { lane, ticket, request, .. } => {
                    let slot = self.slot_of_request(&request);
                    let to = slot.map_or_else(
                        || self.home(ticket.client),
                        |slot| self.primary_of(slot, ticket.client),
                    );
                    self.resend(lane, to, ticket, &request, false);
                }
                Later::Own { client, .. } => self.replay_own(client, None, false),
            }
        }
    }
}
