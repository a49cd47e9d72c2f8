//! An upstream connection of a client's own, for state that cannot be shared: transactions,
//! subscriptions, blocking commands, requests too large to hold.
//!
//! Called by: `intake` with the client's requests, `clients` with the server's frames.
//! Bound: one per client, and before a cluster one for each other node of which it has sharded
//! channels, or is told of events. It goes back to the spares of its pool as soon as the state has ended.
//! Invariant: `expected` has an entry for each request that was sent and is not answered, in order. From
//! it and the replies follows when the state has ended.

mod keyspace_events;
pub(crate) mod redirects;
mod sharded_channels;
mod turns;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_resp::command::{Role, Subscription, SubscriptionKind};
use heatsink_resp::value::Value;
use heatsink_upstream::Protocol;

use crate::observe::{Answer, Mark, QueuedKeys, Upload, is_nothing};
use crate::reserved::names;
use crate::session::dedicated::keyspace_events::Everywhere;
use crate::session::dedicated::sharded_channels::{Aside, Side};
use crate::session::login_queue::Tried;
use crate::upstream::monitor::{self, Sockets};
use crate::upstream::nodes::NodeId;

/// What the next reply on the connection answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A command that leaves no trace.
    Plain,
    /// A command that may take for ever.
    Blocking,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    /// That many confirmations, or as many as there are subscriptions of that kind.
    Subscription {
        subscription: Subscription,
        left: Confirmations,
    },
    /// `CLIENT TRACKING`: the id of the client that its changes are redirected to, 0 if they are not;
    /// `None` if it is switched off.
    Tracking {
        redirect: Option<i64>,
    },
    /// `CLIENT TRACKINGINFO`, in which the id of another client may stand.
    TrackingInfo,
    /// Another command after which the server remembers something until the connection ends.
    Pinning,
    /// `AUTH`, `HELLO` or `SELECT` on this connection alone, the protocol that it asks for, and the login.
    Stray {
        protocol: Option<Protocol>,
        tried: Option<Tried>,
    },
    Monitor,
    /// A command that is not in the table: if the server carries it out, its effect on the connection is
    /// unknown.
    Unknown,
    /// A request that Heatsink sends by itself.
    Unasked,
    /// A request that Heatsink sends by itself before a `WAIT`, which waits for writes of its own
    /// connection only; see `wait_command`.
    Writing,
}

impl Expected {
    /// A request that the client did not send.
    fn is_unasked(self) -> bool {
        matches!(self, Self::Unasked | Self::Writing)
    }
}

/// How many confirmations of a subscription are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmations {
    Exactly(usize),
    /// `UNSUBSCRIBE` without arguments; known when the first confirmation comes.
    All,
}

/// The transaction of a connection, as far as the server has confirmed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transaction {
    #[default]
    None,
    /// Keys are watched.
    Watching,
    /// Commands are queued.
    Queueing,
}

/// The state of a dedicated connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub(crate) struct Dedicated {
    /// The link's slot.
    pub(crate) link: usize,
    pub(crate) node: NodeId,
    pub(crate) expected: VecDeque<Expected>,
    /// What is remembered of the plain requests among them.
    pub(crate) marks: VecDeque<Mark>,
    /// The last request was just sent, and its mark is not in the list yet.
    pub(crate) unmarked: bool,
    /// Whether commands will be queued once all requests are answered, if none of them fails.
    will_queue: bool,
    /// The keys of the transactions whose `EXEC` is under way.
    pub(crate) executing: VecDeque<Option<Box<QueuedKeys>>>,
    /// The keys of the transactions that were executed, until they are counted.
    pub(crate) executed: Vec<QueuedKeys>,
    /// The large request that is being passed on, if its keys are counted.
    pub(crate) upload: Option<Upload>,
    /// The reply that is coming: its mark, its bytes so far, and whether it says that there is no value.
    answering: Option<Answer>,
    /// What the server has said of a login, until that is noted: whether it was accepted.
    pub(in crate::session) login_told: Option<(Tried, bool)>,
    /// Replies that have come, until they are counted.
    pub(crate) answers: Vec<Answer>,
    /// On a cluster, the request under way: it may have to be sent elsewhere.
    pub(crate) current: Vec<u8>,
    /// Nodes the request under way has been sent to after the first.
    pub(crate) hops: u32,
    /// Until when the request under way is tried again, if it was tried again before.
    pub(crate) retry_until: Option<Instant>,
    /// Why a command of a transaction was refused when it was sent again to another node.
    pub(crate) refused: Option<Vec<u8>>,
    /// The slot of the keys that are watched.
    pub(crate) slot: Option<u16>,
    pub(crate) transaction: Transaction,
    channels: usize,
    patterns: usize,
    /// Sharded channels, on all of its connections.
    shards: usize,
    shards_here: usize,
    /// Connections to other nodes, for sharded channels.
    sides: Vec<Side>,
    /// Channels and patterns that are listened to at all nodes.
    everywhere: Everywhere,
    /// The connection that the request under way was sent on; none if it was sent on several.
    asked: Option<usize>,
    /// What the client is told in place of the frame that came.
    pub(crate) rewritten: Option<Vec<u8>>,
    /// Why the request before the next `WAIT` failed, so that the `WAIT` would wait for nothing.
    unwritten: Option<Vec<u8>>,
    pub(crate) protocol: Protocol,
    /// The server tells of every command that it gets, and which of its connections are ours.
    monitors: bool,
    pub(crate) sockets: Option<Arc<Sockets>>,
    /// The server remembers something of the connection: it is the client's until it leaves.
    pub(crate) pinned: bool,
    /// The server remembers that the client tracks keys, until it has confirmed that tracking is off.
    tracks: bool,
    /// The server tells it of changes, or the client with this id.
    pub(crate) tracking: Option<i64>,
    /// The client has left, and the server was told so; see [`crate::runtime::leaving`].
    pub(crate) shut: bool,
    /// Since when its client, which has left, waits for a blocking command, if what follows needs the
    /// connection.
    pub(crate) blocks_left: Option<Instant>,
    /// A large request is being passed on piece by piece.
    pub(crate) uploading: bool,
    /// The only key of the last one that was.
    pub(crate) upload_key: Vec<u8>,
    /// It has another user, database or protocol than its pool, or an unknown command may have left state
    /// behind: it is the client's until it leaves.
    pub(crate) strayed: bool,
    /// The name that the transaction gives the client if the server agrees, and has given it; and
    /// the protocol that it asks for.
    pub(crate) naming: Option<Vec<u8>>,
    queued_protocol: Option<Protocol>,
    pub(crate) named: Option<Vec<u8>>,
    /// Whom the frame under way is for.
    passing: Pass,
    /// Part of a frame has been passed on, and its end has not come yet.
    pub(crate) within_frame: bool,
    /// The connection that it is of.
    within_link: usize,
}

/// What to do with the bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    ToClient,
    /// To the client, but not as the answer to a request.
    Message,
    Drop,
}

impl Dedicated {
    pub(crate) fn new(link: usize, node: NodeId, protocol: Protocol) -> Self {
        Self {
            link,
            node,
            expected: VecDeque::new(),
            marks: VecDeque::new(),
            unmarked: false,
            will_queue: false,
            executing: VecDeque::new(),
            executed: Vec::new(),
            upload: None,
            answering: None,
            login_told: None,
            answers: Vec::new(),
            current: Vec::new(),
            hops: 0,
            retry_until: None,
            refused: None,
            slot: None,
            transaction: Transaction::None,
            channels: 0,
            patterns: 0,
            shards: 0,
            shards_here: 0,
            sides: Vec::new(),
            everywhere: Everywhere::default(),
            asked: Some(link),
            rewritten: None,
            unwritten: None,
            protocol,
            monitors: false,
            sockets: None,
            pinned: false,
            tracks: false,
            tracking: None,
            shut: false,
            blocks_left: None,
            uploading: false,
            upload_key: Vec::new(),
            strayed: false,
            naming: None,
            queued_protocol: None,
            named: None,
            passing: Pass::ToClient,
            within_frame: false,
            within_link: link,
        }
    }

    /// No state is left and nothing is waited for: the connection can serve others.
    pub(crate) fn is_releasable(&self) -> bool {
        self.is_drained()
            && self.transaction == Transaction::None
            && !self.is_subscriber()
            && !(self.is_pinned() || self.uploading || self.strayed || self.monitors)
    }

    /// Whether later requests may need the connection, once all that were sent on it are answered.
    pub(crate) fn keeps_state(&self) -> bool {
        let leaves_some = |expected: &Expected| {
            !matches!(expected, Expected::Plain | Expected::Blocking) && !expected.is_unasked()
        };
        self.transaction != Transaction::None
            || self.is_subscriber()
            || self.is_pinned()
            || self.strayed
            || self.expected.iter().any(leaves_some)
    }

    /// Whether its client, which has left, has waited for a blocking command for longer than `patience`.
    pub(crate) fn is_out_of_patience(&mut self, now: Instant, patience: Duration) -> bool {
        now >= *self.blocks_left.get_or_insert(now) + patience
    }

    /// The server remembers something of the connection.
    pub(in crate::session) fn is_pinned(&self) -> bool {
        self.pinned || self.tracks
    }

    /// The client is in contact with the server by names of keys that nobody here sees.
    pub(crate) fn hides_keys(&self) -> bool {
        let hides = |expected: &Expected| {
            matches!(expected, Expected::Tracking { .. } | Expected::Stray { .. })
        };
        self.strayed || self.tracking.is_some() || self.expected.iter().any(hides)
    }

    /// Every request sent so far has been answered, to the last byte.
    pub(crate) fn is_drained(&self) -> bool {
        self.expected.is_empty() && !self.within_frame
    }

    pub(crate) fn is_subscriber(&self) -> bool {
        self.channels + self.patterns + self.shards > 0
    }

    /// Subscribed on RESP2, where little but subscribing is allowed.
    pub(crate) fn is_confined(&self) -> bool {
        self.is_subscriber() && self.protocol == Protocol::Resp2
    }

    /// Whether commands that need no state may go along shared links: no transaction is open, and the client
    /// is not confined to subscribing.
    pub(crate) fn is_free_beside(&self) -> bool {
        self.transaction != Transaction::Queueing && !self.is_confined()
    }

    /// A request was sent that is answered with this.
    pub(crate) fn sent(&mut self, expected: Expected) {
        // Forgets what was foreseen for requests that are all answered by now.
        self.will_queue = self.will_queue();
        self.expected.push_back(expected);
        self.unmarked = true;
        match expected {
            Expected::Plain => self.marks.push_back(Mark::Nothing),
            Expected::Multi => self.will_queue = true,
            Expected::Exec => {
                self.will_queue = false;
                self.executing.push_back(None);
            }
            Expected::Discard => self.will_queue = false,
            _ => {}
        }
    }

    /// Whether a request that is sent now will be queued, as far as can be known before earlier requests are
    /// answered.
    pub(crate) fn will_queue(&self) -> bool {
        if self.expected.is_empty() {
            self.transaction == Transaction::Queueing
        } else {
            self.will_queue
        }
    }

    /// Something that may take for ever is being waited for.
    pub(crate) fn is_blocking(&self) -> bool {
        self.expected.contains(&Expected::Blocking)
    }

    /// The first request that is not answered may take for ever.
    pub(crate) fn begins_blocking(&self) -> bool {
        let mut asked = self.expected.iter().filter(|expected| !expected.is_unasked());
        asked.next() == Some(&Expected::Blocking)
    }

    /// Whether a reply is owed that a healthy server gives at once. Requests behind a blocking command do
    /// not count: they are executed when that has ended, however late.
    pub(crate) fn awaits_prompt_answer(&self) -> bool {
        !(self.is_drained() || self.only_blocks() || self.uploading)
    }

    /// All that is being waited for is one thing that may take for ever.
    fn only_blocks(&self) -> bool {
        let mut asked = self.expected.iter().filter(|expected| !expected.is_unasked());
        asked.next() == Some(&Expected::Blocking) && asked.next().is_none()
    }

    /// What a request of that role is answered with; `arg_count` includes the name.
    pub(crate) fn expect(role: Option<Role>, arg_count: usize) -> Expected {
        match role {
            None => Expected::Unknown,
            Some(Role::Blocking | Role::BlockingOption | Role::Wait) => Expected::Blocking,
            Some(Role::Multi) => Expected::Multi,
            Some(Role::Exec) => Expected::Exec,
            Some(Role::Discard) => Expected::Discard,
            Some(Role::Watch) => Expected::Watch,
            Some(Role::Unwatch) => Expected::Unwatch,
            Some(Role::Subscription(subscription)) => {
                let left = match arg_count {
                    0 | 1 => Confirmations::All,
                    count => Confirmations::Exactly(count - 1),
                };
                Expected::Subscription { subscription, left }
            }
            Some(_) => Expected::Plain,
        }
    }

    /// Takes a frame from the server, or a piece of one, and says whom it is for.
    pub(crate) fn on_frame(&mut self, link: usize, bytes: &[u8], begins: bool, ends: bool) -> Pass {
        if begins {
            self.passing = self.begin_frame(link, bytes);
        }
        self.measure(bytes.len(), ends);
        self.within_frame = !ends;
        self.within_link = link;
        self.passing
    }

    /// Whether the server reports the commands that it gets on this connection (`MONITOR`).
    pub(in crate::session) fn is_monitor(&self) -> bool {
        self.monitors || self.expected.contains(&Expected::Monitor)
    }

    fn measure(&mut self, bytes: usize, ends: bool) {
        if let Some(answer) = &mut self.answering {
            answer.bytes += bytes as u64;
            if ends {
                self.answers.extend(self.answering.take());
            }
        }
    }

    /// The next frame answers a request of the client's.
    pub(crate) fn awaits_answer(&self) -> bool {
        !self.within_frame && self.expected.front().is_some_and(|expected| !expected.is_unasked())
    }

    /// It is the end of a transaction that is waited for.
    pub(crate) fn awaits_exec(&self) -> bool {
        self.expected.contains(&Expected::Exec)
    }

    /// The request under way is answered with a frame that did not come from the server.
    pub(crate) fn answer(&mut self, frame: &[u8]) {
        self.begin_frame(self.asked.unwrap_or(self.link), frame);
    }

    fn begin_frame(&mut self, link: usize, frame: &[u8]) -> Pass {
        if !self.sides.is_empty() {
            match self.on_side_frame(link, frame, first_word(frame)) {
                Aside::Client if names::is_message(frame) => return Pass::Drop,
                Aside::Client => return Pass::Message,
                Aside::Nobody => return Pass::Drop,
                Aside::Dedicated => {}
            }
        }
        if self.monitors
            && let Some(line) = monitor::Line::of(frame)
        {
            let ours = self.sockets.as_ref().is_some_and(|sockets| sockets.said(&line));
            return if ours { Pass::Drop } else { Pass::Message };
        }
        let is_push = frame.first() == Some(&b'>');
        if is_push || self.is_confined() || self.expects_confirmation() {
            match first_word(frame) {
                // Not an answer to anything. On RESP2 only a subscriber can get one.
                Some(b"message" | b"pmessage" | b"smessage") if is_push || self.is_subscriber() => {
                    return if names::is_message(frame) { Pass::Drop } else { Pass::Message };
                }
                Some(
                    b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe" | b"ssubscribe"
                    | b"sunsubscribe",
                ) => {
                    self.confirmed(link, frame);
                    return Pass::Message;
                }
                _ if is_push => return Pass::Message,
                _ => {}
            }
        }
        if !self.is_asked(link) {
            return Pass::Drop;
        }
        let failed = frame.first() == Some(&b'-');
        let expected = self.expected.pop_front();
        if expected == Some(Expected::Exec)
            && let Some(keys) = self.executing.pop_front().flatten()
            && !failed
            && !is_nothing(frame)
        {
            self.executed.push(*keys);
        }
        match expected {
            Some(Expected::Plain) => {
                let mark = self.marks.pop_front().unwrap_or_default();
                if mark != Mark::Nothing {
                    self.answering = Some(Answer { mark, bytes: 0, miss: is_nothing(frame) });
                }
            }
            Some(Expected::Unasked) => return Pass::Drop,
            Some(Expected::Writing) => {
                self.unwritten = failed.then(|| frame.to_vec());
                return Pass::Drop;
            }
            Some(Expected::Blocking) => self.rewritten = self.unwritten.take(),
            Some(Expected::Tracking { redirect }) if !failed => {
                // Tracking counts as on while the command that ends it is queued: it may yet be discarded.
                self.tracks =
                    redirect.is_some() || self.tracks && self.transaction == Transaction::Queueing;
                self.tracking = redirect;
            }
            Some(Expected::Pinning) if !failed => self.pinned = true,
            Some(Expected::Stray { tried, .. }) if failed => {
                self.login_told = tried.map(|it| (it, false));
            }
            Some(Expected::Stray { protocol, tried }) => {
                self.strayed = true;
                self.login_told = tried.map(|it| (it, true));
                if self.transaction == Transaction::Queueing {
                    self.queued_protocol = protocol.or(self.queued_protocol);
                } else {
                    self.protocol = protocol.unwrap_or(self.protocol);
                }
            }
            Some(Expected::Monitor) if !failed => self.monitors = true,
            Some(Expected::TrackingInfo) => self.rewritten = self.with_redirect(frame),
            Some(Expected::Multi) if !failed => {
                self.transaction = Transaction::Queueing;
                self.naming = None;
            }
            Some(Expected::Exec | Expected::Discard) if !failed || discards(frame) => {
                self.transaction = Transaction::None;
                let (name, protocol) = (self.naming.take(), self.queued_protocol.take());
                if expected == Some(Expected::Exec) && !failed && !is_nothing(frame) {
                    self.named = name;
                    self.protocol = protocol.unwrap_or(self.protocol);
                }
            }
            Some(Expected::Watch) if !failed && self.transaction == Transaction::None => {
                self.transaction = Transaction::Watching;
            }
            Some(Expected::Unwatch) if !failed && self.transaction == Transaction::Watching => {
                self.transaction = Transaction::None;
            }
            Some(Expected::Unknown) => {
                let unknown = frame.starts_with(b"-ERR unknown command")
                    || frame.starts_with(b"-NOAUTH")
                    || frame.starts_with(b"-ERR heatsink: the embedded store does not support");
                let queued = self.transaction == Transaction::Queueing;
                if !unknown && !queued {
                    self.strayed = true;
                }
            }
            _ => {}
        }
        Pass::ToClient
    }

    /// The reply to `CLIENT TRACKINGINFO` with Heatsink's id of the client that changes are
    /// redirected to.
    fn with_redirect(&self, frame: &[u8]) -> Option<Vec<u8>> {
        const FIELD: &[u8] = b"$8\r\nredirect\r\n:";
        let redirect = self.tracking.filter(|redirect| *redirect > 0)?;
        let start = frame.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
        let end = start + frame[start..].iter().position(|byte| *byte == b'\r')?;
        Some([&frame[..start], redirect.to_string().as_bytes(), &frame[end..]].concat())
    }

    fn expects_confirmation(&self) -> bool {
        matches!(self.expected.front(), Some(Expected::Subscription { .. }))
            && self.transaction != Transaction::Queueing
    }

    /// One channel was subscribed to or left. The confirmation tells how many subscriptions
    /// there are, channels and patterns together, sharded ones apart.
    fn confirmed(&mut self, link: usize, frame: &[u8]) {
        let total = Value::decode(frame).ok().and_then(|v| v.array().get(2)?.integer());
        let Some(total) = total.and_then(|n| usize::try_from(n).ok()) else {
            // No server writes a confirmation like this, since names are short (`decide`). It is not known
            // any more when the connection has no subscriptions, so it is the client's for good.
            self.pinned = true;
            self.expected.pop_front();
            return;
        };
        let asked = self.expected.front().filter(|_| self.is_asked(link)).copied();
        let Some(Expected::Subscription { subscription, left }) = asked else {
            // The server takes a subscription away by itself (a slot moved, a right revoked).
            if self.shards > 0 {
                self.count_shards(link, total, frame);
            }
            return;
        };
        let left = match left {
            Confirmations::Exactly(left) => left,
            Confirmations::All => match subscription.kind {
                SubscriptionKind::Channel => self.channels.max(1),
                SubscriptionKind::Pattern => self.patterns.max(1),
                SubscriptionKind::Shard => self.shards.max(1),
            },
        };
        match subscription.kind {
            SubscriptionKind::Channel => self.channels = total.saturating_sub(self.patterns),
            SubscriptionKind::Pattern => self.patterns = total.saturating_sub(self.channels),
            SubscriptionKind::Shard => self.count_shards(link, total, frame),
        }
        if left <= 1 {
            self.expected.pop_front();
        } else if let Some(front) = self.expected.front_mut() {
            let left = Confirmations::Exactly(left - 1);
            *front = Expected::Subscription { subscription, left };
        }
    }
}

/// Errors of `EXEC` behind which there is no transaction any more. Any other (no transaction,
/// wrong number of arguments) ends nothing.
fn discards(error: &[u8]) -> bool {
    let words: [&[u8]; 7] = [
        b"-EXECABORT",
        b"-CROSSSLOT",
        b"-CLUSTERDOWN",
        b"-TRYAGAIN",
        b"-MOVED",
        b"-ASK",
        b"-MASTERDOWN",
    ];
    words.iter().any(|words| error.starts_with(words))
}

/// The first element of an array, if it is a string: the kind of a pub/sub message.
fn first_word(frame: &[u8]) -> Option<&[u8]> {
    let [b'*' | b'>', rest @ ..] = frame else { return None };
    let line_end = rest.iter().take(8).position(|b| *b == b'\n')?;
    let rest = rest[line_end + 1..].strip_prefix(b"$")?;
    let line_end = rest.iter().take(4).position(|b| *b == b'\n')?;
    let len: usize = std::str::from_utf8(&rest[..line_end]).ok()?.trim_end().parse().ok()?;
    rest.get(line_end + 1..line_end + 1 + len)
}

#[cfg(test)]
mod tests;
