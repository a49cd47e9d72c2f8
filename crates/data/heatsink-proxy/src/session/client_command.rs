//! `CLIENT`: about this client and its fellows, not about the connections they share.
//!
//! The server is asked first, with a harmless command of the same kind, so that a client
//! gets an answer from here only if its user may have one; see [`crate::session::switch`].

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use heatsink_cluster::join::Join;
use heatsink_resp::encode;
use heatsink_upstream::Protocol;

use crate::cluster::scatter_gather::{Ending, Targets};
use crate::downstream::clients::Clients;
use crate::downstream::connection::{ClientKey, Replies};
use crate::downstream::directory::ClientRecord;
use crate::downstream::request::{Flow, Request};
use crate::runtime::shared::Message;
use crate::session::Sessions;
use crate::session::client_tracking::redirect_at;
use crate::session::dedicated::Expected;
use crate::session::switch::{Session, is_valid_name};

/// No connection of the server has this id.
pub(crate) const NO_ID: &str = "9223372036854775807";

/// What a client is told once the server has agreed.
#[derive(Debug)]
pub(crate) enum Answer {
    Id,
    GetName,
    /// `CLIENT GETREDIR`
    Redirect(i64),
    SetName(Vec<u8>),
    Info,
    /// `CLIENT REPLY`
    Replies(Replies),
    List(Filter),
    /// What a cluster of one node would say.
    Bytes(Vec<u8>),
    /// By filters: the number closed. By address, the old form: `OK` or an error.
    Kill {
        filter: Filter,
        by_address: bool,
    },
}

/// Which clients are meant; every condition given must hold.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    ids: Option<Vec<u64>>,
    /// `normal` or `pubsub`; other types are never clients of ours.
    kind: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    addr: Option<SocketAddr>,
    local_addr: Option<SocketAddr>,
    /// Connected at least this long.
    min_age_seconds: u64,
    skip_me: bool,
}

impl Filter {
    fn matches(&self, record: &ClientRecord, me: u64, now: Instant) -> bool {
        let facts = record.facts();
        let kind: &[u8] = if facts.subscriber { b"pubsub" } else { b"normal" };
        self.ids.as_ref().is_none_or(|ids| ids.contains(&record.id))
            && self.kind.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.user.as_ref().is_none_or(|user| *user == facts.user)
            && self.addr.is_none_or(|addr| addr == record.addr)
            && self.local_addr.is_none_or(|addr| addr == record.local_addr)
            && now.saturating_duration_since(record.since).as_secs() >= self.min_age_seconds
            && !(self.skip_me && record.id == me)
    }

    /// `CLIENT LIST [TYPE t] [ID id …]`; `None` if the server would refuse it.
    fn of_list(request: Request<'_>) -> Option<Self> {
        let mut filter = Self::default();
        match request.len() {
            2 => Some(filter),
            4 if request.is(2, "type") => {
                filter.kind = Some(known_type(request.arg(3)?)?);
                Some(filter)
            }
            count if count >= 4 && request.is(2, "id") => {
                filter.ids = Some(request.args_from(3).map(parse).collect::<Option<_>>()?);
                Some(filter)
            }
            _ => None,
        }
    }

    /// `CLIENT KILL` with filters.
    fn of_kill(request: Request<'_>) -> Result<Self, Refusal> {
        let mut filter = Self { skip_me: true, ..Self::default() };
        if request.len() < 4 || !request.len().is_multiple_of(2) {
            return Err(Refusal::ByServer);
        }
        for at in (2..request.len()).step_by(2) {
            let value = request.arg(at + 1).unwrap_or_default();
            filter.add(&request.arg(at).unwrap_or_default().to_ascii_lowercase(), value)?;
        }
        Ok(filter)
    }

    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let bad = Refusal::ByServer;
        match name {
            b"id" => self.ids = Some(vec![parse(value).filter(|id| *id > 0).ok_or(bad)?]),
            b"type" => self.kind = Some(known_type(value).ok_or(bad)?),
            b"user" => self.user = Some(value.to_vec()),
            // No client has an address that is none.
            b"addr" => self.addr = Some(parse(value).unwrap_or(NOBODY)),
            b"laddr" => self.local_addr = Some(parse(value).unwrap_or(NOBODY)),
            b"maxage" => self.min_age_seconds = parse(value).ok_or(bad)?,
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => self.skip_me = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => self.skip_me = false,
            b"skipme" => return Err(bad),
            _ => return Err(Refusal::Unknown),
        }
        Ok(())
    }
}

/// Why a `CLIENT KILL` is not carried out.
enum Refusal {
    /// The server refuses it, in its own words.
    ByServer,
    /// A filter that is not known here. The server may know it, and close connections that
    /// clients share: it must not see it.
    Unknown,
}

/// An address that no client has.
const NOBODY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

pub(crate) fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn known_type(text: &[u8]) -> Option<Vec<u8>> {
    let lower = text.to_ascii_lowercase();
    matches!(lower.as_slice(), b"normal" | b"master" | b"replica" | b"slave" | b"pubsub")
        .then_some(lower)
}

fn command<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, args);
    bytes
}

/// A request that the server refuses as a syntax error.
fn no_kill() -> Vec<u8> {
    command(&["CLIENT", "KILL", "heatsink-unknown", "x"])
}

/// Subcommands that leave a connection as it is, or as every client of it wants it.
const SHARED: [&[u8]; 16] = [
    b"caching",
    b"getname",
    b"getredir",
    b"help",
    b"id",
    b"info",
    b"kill",
    b"list",
    b"no-evict",
    b"no-touch",
    b"reply",
    b"setinfo",
    b"setname",
    b"tracking",
    b"trackinginfo",
    b"unblock",
];

impl Sessions<'_> {
    /// A `CLIENT` subcommand of a client whose earlier requests are answered.
    pub(crate) fn client_command(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let sub = request.arg(1).unwrap_or_default().to_ascii_lowercase();
        let on = request.is(2, "on");
        if self.relay.cluster.view.is_some()
            && let Some(flow) = self.client_command_clustered(key, &sub, request)
        {
            return flow;
        }
        let strayed = self.relay.clients.get_ref(key).and_then(|client| client.dedicated.as_ref());
        if strayed.is_some_and(|dedicated| dedicated.strayed) && sub != b"reply" {
            return self.client_command_strayed(key, request);
        }
        match (sub.as_slice(), request.len()) {
            // Not as Heatsink spells its own words on such connections; see `monitor`.
            (b"id" | b"setname", _) if self.relay.clients.is_queueing(key) => {
                let args = request.args_from(2);
                let words: Vec<_> =
                    [&b"client"[..], sub.as_slice()].into_iter().chain(args).collect();
                let flow = self.plain(key, &command(&words));
                let name = request.arg(2).filter(|name| is_valid_name(name));
                if sub == b"setname"
                    && request.len() == 3
                    && let Some(name) = name
                    && let Some(dedicated) =
                        self.relay.clients.get(key).and_then(|one| one.dedicated.as_mut())
                {
                    dedicated.naming = Some(name.to_vec());
                }
                flow
            }
            (b"id", 2) => self.answer(key, request.bytes, Answer::Id),
            (b"getname", 2) => self.answer(key, request.bytes, Answer::GetName),
            (b"info", 2) => self.answer(key, request.bytes, Answer::Info),
            (b"setname", 3) => {
                let name = request.arg(2).unwrap_or_default();
                // An invalid name is the server's to refuse; a valid one is not for the
                // connection that others share, which keeps the name it has.
                let probe = if is_valid_name(name) {
                    command(&["CLIENT", "SETNAME", "heatsink"])
                } else {
                    request.bytes.to_vec()
                };
                self.answer(key, &probe, Answer::SetName(name.to_vec()))
            }
            (b"list", _) => match Filter::of_list(request) {
                Some(filter) => {
                    let probe = command(&["CLIENT", "LIST", "TYPE", "MASTER"]);
                    self.answer(key, &probe, Answer::List(filter))
                }
                None => self.plain(key, request.bytes),
            },
            (b"getredir", 2) => match self.relay.clients.tracking_of(key) {
                Some(redirect) => self.answer(key, request.bytes, Answer::Redirect(redirect)),
                None => self.plain(key, request.bytes),
            },
            (b"trackinginfo", 2) if self.relay.clients.tracking_of(key).is_some() => {
                self.pin(key, request.bytes, Expected::TrackingInfo)
            }
            // If it was queued, the server would carry it out, on connections that belong to other clients.
            (b"kill", _) if self.relay.clients.is_queueing(key) => {
                let bytes = self.harmless_kill(key, request);
                self.plain(key, &bytes)
            }
            (b"kill", 3) => {
                let addr = request.arg(2).and_then(parse).unwrap_or(NOBODY);
                let filter = Filter { addr: Some(addr), ..Filter::default() };
                self.kill(key, filter, true)
            }
            (b"kill", _) => match Filter::of_kill(request) {
                Ok(filter) => self.kill(key, filter, false),
                Err(Refusal::ByServer) => self.plain(key, request.bytes),
                Err(Refusal::Unknown) => self.plain(key, &no_kill()),
            },
            (b"unblock", 3 | 4) => {
                let bytes = self.with_upstream_id(request);
                self.plain(key, &bytes)
            }
            (b"tracking", _) if on => self.begin_tracking(key, request),
            (b"tracking", _) if self.relay.clients.has_dedicated(key) => {
                self.pin(key, request.bytes, Expected::Tracking { redirect: None })
            }
            (b"no-evict" | b"no-touch", 3) if on => self.pin(key, request.bytes, Expected::Pinning),
            (b"reply", 3) => {
                let replies = match request.arg(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
                    Some(b"on") => Replies::On,
                    Some(b"off") => Replies::Off,
                    Some(b"skip") => Replies::SkipNext,
                    _ => return self.plain(key, request.bytes),
                };
                let probe = command(&["CLIENT", "REPLY", "ON"]);
                self.answer(key, &probe, Answer::Replies(replies))
            }
            // If it waited for requests that it holds back itself, it would wait for ever.
            (b"pause" | b"unpause", _) => {
                let node = self.relay.home(key);
                self.send_dedicated(key, node, request.bytes, Expected::Plain)
            }
            _ if SHARED.contains(&sub.as_slice()) => self.plain(key, request.bytes),
            // Of a newer server: it may change the connection, which others must not feel.
            _ => self.pin(key, request.bytes, Expected::Pinning),
        }
    }

    /// `CLIENT` on a connection that has another user than its pool. The pool cannot be asked what this user
    /// may do, so the server answers on that connection. Ids of clients are Heatsink's, and replaced by the
    /// server's; `KILL` is made harmless, since the server's connections may be those of other clients.
    fn client_command_strayed(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let bytes = if request.is(1, "tracking")
            && let Some(at) = redirect_at(request)
        {
            // Its answer would have to wait for another client's connection.
            let mut args: Vec<_> = request.args_from(0).collect();
            args[at] = NO_ID.as_bytes();
            command(&args)
        } else if request.is(1, "unblock") {
            self.with_upstream_id(request)
        } else if request.is(1, "kill") {
            self.harmless_kill(key, request)
        } else {
            request.bytes.to_vec()
        };
        self.plain(key, &bytes)
    }

    /// Passed on like any other command, wherever the client's commands go.
    fn plain(&mut self, key: ClientKey, bytes: &[u8]) -> Flow {
        if self.relay.clients.has_dedicated(key) {
            let node = self.relay.home(key);
            return self.send_dedicated(key, node, bytes, Expected::Plain);
        }
        self.relay.routing().forward(key, bytes)
    }

    /// What is different if each client has to do with many servers.
    fn client_command_clustered(
        &mut self,
        key: ClientKey,
        sub: &[u8],
        request: Request<'_>,
    ) -> Option<Flow> {
        match sub {
            b"id" => return None,
            // They name or change connections to all nodes, and the transaction has one.
            _ if self.relay.clients.is_queueing(key) => self.end_dedicated_state(key),
            b"tracking" | b"no-evict" | b"no-touch" if request.is(2, "on") => {}
            b"unblock" if matches!(request.len(), 3 | 4) => {
                let id = request.arg(2).and_then(parse);
                let record = id.and_then(|id| self.relay.shared.directory.get(id));
                let node = record.and_then(|record| record.upstream_node());
                let node = node.unwrap_or_else(|| self.relay.home(key));
                let bytes = self.with_upstream_id(request);
                return Some(self.relay.routing().forward_to(key, node, &bytes));
            }
            b"pause" | b"unpause" => {
                if let Some(flow) = self.relay.routing().without_map(key) {
                    return Some(flow);
                }
                let targets = Targets::Apart { bytes: request.bytes, after_writes: false };
                return Some(self.relay.routing().fan_out(
                    key,
                    &targets,
                    Ending::Join(Join::AllSucceeded),
                ));
            }
            _ => return None,
        }
        let text = "ERR heatsink: not possible on a connection that leads to a whole cluster";
        self.relay.clients.error(key, text);
        Some(Flow::Taken)
    }

    fn kill(&mut self, key: ClientKey, filter: Filter, by_address: bool) -> Flow {
        let probe = self.kill_nobody(&filter);
        self.answer(key, &probe, Answer::Kill { filter, by_address })
    }

    fn answer(&mut self, key: ClientKey, probe: &[u8], answer: Answer) -> Flow {
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        let pool = client.pool;
        self.ask(key, pool, probe, Session::Answer(answer));
        Flow::Taken
    }

    /// The request with a client's id, its third word, replaced by the id that the server knows the
    /// client's dedicated connection by.
    pub(in crate::session) fn with_upstream_id(&self, request: Request<'_>) -> Vec<u8> {
        const AT: usize = 2;
        let id = request
            .arg(AT)
            .and_then(parse)
            .map(|id| self.relay.shared.directory.get(id).and_then(|record| record.upstream_id()));
        let Some(id) = id else { return request.bytes.to_vec() };
        let id = id.map_or_else(|| NO_ID.to_owned(), |id| id.to_string());
        let args: Vec<&[u8]> = request
            .args_from(0)
            .enumerate()
            .map(|(index, arg)| if index == AT { id.as_bytes() } else { arg })
            .collect();
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &args);
        bytes
    }

    /// A `CLIENT KILL` as the server may carry it out, without closing anything: it says that there
    /// is no such client if there is none here, and refuses it otherwise.
    fn harmless_kill(&self, key: ClientKey, request: Request<'_>) -> Vec<u8> {
        let me = self.relay.clients.get_ref(key).map_or(0, |client| client.record.id);
        let filter = match request.len() {
            3 => {
                let addr = request.arg(2).and_then(parse).unwrap_or(NOBODY);
                Ok(Filter { addr: Some(addr), ..Filter::default() })
            }
            _ => Filter::of_kill(request),
        };
        let now = self.relay.world.now();
        match filter {
            Err(Refusal::ByServer) => request.bytes.to_vec(),
            Ok(filter)
                if !self
                    .relay
                    .shared
                    .directory
                    .all()
                    .iter()
                    .any(|c| filter.matches(c, me, now)) =>
            {
                match request.len() {
                    3 => command(&["CLIENT", "KILL", &NOBODY.to_string()]),
                    _ => self.kill_nobody(&filter),
                }
            }
            Ok(_) | Err(Refusal::Unknown) => no_kill(),
        }
    }

    /// A `CLIENT KILL` that closes nothing. The server says if there is no such user, unless users
    /// are known here only.
    fn kill_nobody(&self, filter: &Filter) -> Vec<u8> {
        let mut args = vec![&b"CLIENT"[..], b"KILL", b"ID", NO_ID.as_bytes()];
        if let Some(user) = filter.user.as_ref().filter(|_| self.relay.shared.verifier.is_none()) {
            args.extend([&b"USER"[..], user]);
        }
        command(&args)
    }

    /// The server has agreed.
    pub(in crate::session) fn give_answer(&mut self, key: ClientKey, answer: Answer) {
        let Some(client) = self.relay.clients.get_ref(key) else { return };
        let record = std::sync::Arc::clone(&client.record);
        let dedicated = client.dedicated.as_ref().map(|dedicated| dedicated.protocol);
        let protocol = dedicated.unwrap_or(self.relay.upstream.pools[client.pool].login.protocol);
        let reply = match answer {
            Answer::Replies(replies) => {
                let is_off = client.replies == Replies::Off && replies == Replies::SkipNext;
                if !is_off {
                    self.relay.clients.set_replies(key, replies);
                }
                if replies == Replies::On { b"+OK\r\n".to_vec() } else { Vec::new() }
            }
            Answer::Bytes(bytes) => bytes,
            Answer::Redirect(id) => format!(":{id}\r\n").into_bytes(),
            Answer::Id => format!(":{}\r\n", record.id).into_bytes(),
            Answer::GetName => {
                let name = record.facts().name.clone();
                let mut reply = Vec::new();
                match (name.is_empty(), protocol) {
                    (true, Protocol::Resp2) => reply.extend_from_slice(b"$-1\r\n"),
                    (true, Protocol::Resp3) => reply.extend_from_slice(b"_\r\n"),
                    (false, _) => encode::bulk(&mut reply, &name),
                }
                reply
            }
            Answer::SetName(name) => {
                record.facts().name = name;
                self.name_dedicated(key);
                b"+OK\r\n".to_vec()
            }
            Answer::Info => verbatim(&record.line(self.relay.world.now()), protocol),
            Answer::List(filter) => {
                let now = self.relay.world.now();
                let records = self.relay.shared.directory.all();
                let lines: String = records
                    .iter()
                    .filter(|other| filter.matches(other, record.id, now))
                    .map(|other| other.line(now))
                    .collect();
                verbatim(&lines, protocol)
            }
            Answer::Kill { filter, by_address } => {
                let now = self.relay.world.now();
                let victims: Vec<_> = self
                    .relay
                    .shared
                    .directory
                    .all()
                    .into_iter()
                    .filter(|other| filter.matches(other, record.id, now))
                    .collect();
                for victim in &victims {
                    if victim.id == record.id {
                        // Gets its answer first.
                        self.relay.clients.close_after_replies(key);
                    } else {
                        self.relay.shared.mailboxes[victim.worker].send(Message::Kill(victim.key));
                    }
                }
                match (by_address, victims.len()) {
                    (true, 0) => b"-ERR No such client\r\n".to_vec(),
                    (true, _) => b"+OK\r\n".to_vec(),
                    (false, count) => format!(":{count}\r\n").into_bytes(),
                }
            }
        };
        self.relay.clients.reply(key, &reply);
    }
}

impl Clients {
    pub(in crate::session) fn has_dedicated(&self, key: ClientKey) -> bool {
        self.get_ref(key).is_some_and(|client| client.dedicated.is_some())
    }

    /// Where the client's changes are redirected to, if it tracks any.
    pub(in crate::session) fn tracking_of(&self, key: ClientKey) -> Option<i64> {
        self.get_ref(key)?.dedicated.as_ref()?.tracking
    }
}

fn verbatim(text: &str, protocol: Protocol) -> Vec<u8> {
    let mut reply = Vec::new();
    match protocol {
        Protocol::Resp2 => encode::bulk(&mut reply, text.as_bytes()),
        Protocol::Resp3 => {
            encode::header(&mut reply, b'=', text.len() + 4);
            reply.extend_from_slice(b"txt:");
            reply.extend_from_slice(text.as_bytes());
            reply.extend_from_slice(b"\r\n");
        }
    }
    reply
}
