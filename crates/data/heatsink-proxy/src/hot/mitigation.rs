//! The interface that all mitigations share, and the order in which they are asked.
//!
//! | mitigation | what it does |
//! |---|---|
//! | [`CopiedWrites`] | spreads reads over copies of a value on several nodes, and removes those before a write |
//! | [`Splits`] | sends requests to the shards of a split key, or has them wait while its value is moved |
//! | [`Reads`] | answers reads from the local cache, or by one read for all who wait |
//! | [`Combining`] | sends writes of many clients as one |
//!
//! Called by: the room of hot keys, which knows the keys and shares what several mitigations need: the
//! numbers of what is under way, what was sent to servers ([`Inquiry`]), which requests count as writes.
//! Invariant: a request is offered to the mitigations in one order, and to none behind the one that
//! takes it. What no mitigation takes goes on, and counts as a write of the hot keys that it may touch.
//!
//! To add a mitigation: a file or folder beside this one with its state, which is a field of the room;
//! its place in [`offer`]; if it asks servers by itself, a purpose of tickets or a kind of [`Inquiry`].
//! What says that a key is to be treated by it is [`crate::hot_keys`].

use crate::cluster::scatter_gather::{Asker, Ending, Questions};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::hot::combining::Combining;
use crate::hot::copies::{self, CopiedWrites};
use crate::hot::reads::Reads;
use crate::hot::splitting::{self, Splits};
use crate::hot::{Incoming, Mitigated, Mitigations};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream::ticket::{Purpose, Ticket};

/// What a mitigation does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The mitigation has answered it, sent it, or gathered it with others.
    Served,
    /// It has to wait, and is offered again.
    Waiting,
    /// The next mitigation is asked.
    Pass,
    /// No other mitigation is asked: it goes on as if the key were not hot.
    Cold,
}

impl From<Flow> for Verdict {
    fn from(flow: Flow) -> Self {
        match flow {
            Flow::Taken => Self::Served,
            Flow::Wait => Self::Waiting,
        }
    }
}

impl From<Option<Flow>> for Verdict {
    fn from(flow: Option<Flow>) -> Self {
        flow.map_or(Self::Pass, Self::from)
    }
}

/// What became of something that a mitigation has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply<'a> {
    /// It was answered; `redirected` if not by the server that it was sent to.
    Frame { frame: &'a [u8], redirected: bool },
    /// It will not be answered, for this reason.
    Lost(&'a [u8]),
}

/// All answers to a question to several servers, and who waits for what is made of them.
#[derive(Debug)]
pub(super) struct Answers<Inquiry> {
    pub(super) inquiry: Inquiry,
    pub(super) asker: Asker,
    /// What is remembered of the request.
    pub(super) mark: Mark,
    pub(super) replies: Vec<Vec<u8>>,
}

/// What every mitigation answers. Its state is a part of the room's; what it does to clients and
/// servers, it does by the relay.
pub(super) trait Mitigation {
    /// What it remembers of a question to several servers.
    type Inquiry;

    /// A request that touches hot keys.
    fn on_request(hot: &mut Mitigations, relay: &mut Relay, incoming: Incoming<'_>) -> Verdict;

    /// What it has sent with this ticket is answered, or will not be.
    fn on_reply(_: &mut Mitigations, _: &mut Relay, _: Ticket, _: Reply<'_>) {}

    /// All servers that it has asked have answered.
    fn on_answers(_: &mut Mitigations, _: &mut Relay, _: Answers<Self::Inquiry>) {}

    /// A server, or another Heatsink, tells that a key has changed; without one, that any may have.
    fn on_invalidation(_: &mut Mitigations, _: Option<&[u8]>) {}

    /// Some time has passed.
    fn on_tick(_: &mut Mitigations, _: &mut Relay) {}
}

/// Offers a request to each mitigation.
#[inline]
pub(super) fn offer(hot: &mut Mitigations, relay: &mut Relay, incoming: Incoming<'_>) -> Verdict {
    // First the mitigations that know where the value is: it is read and written only there.
    match CopiedWrites::on_request(hot, relay, incoming) {
        Verdict::Pass => {}
        verdict => return verdict,
    }
    match Splits::on_request(hot, relay, incoming) {
        Verdict::Pass => {}
        verdict => return verdict,
    }
    match Reads::on_request(hot, relay, incoming) {
        Verdict::Pass => Combining::on_request(hot, relay, incoming),
        verdict => verdict,
    }
}

/// Tells each mitigation that some time has passed.
pub(super) fn tick(hot: &mut Mitigations, relay: &mut Relay) {
    Reads::on_tick(hot, relay);
    Combining::on_tick(hot, relay);
    Splits::on_tick(hot, relay);
    CopiedWrites::on_tick(hot, relay);
}

/// What was asked of several servers, and by it, who makes what of the answers.
#[derive(Debug)]
pub(super) enum Inquiry {
    Splitting(splitting::Inquiry),
    Copies(copies::Inquiry),
}

impl Mitigations {
    /// A request that touches hot keys.
    pub(crate) fn mitigate(&mut self, relay: &mut Relay, incoming: Incoming<'_>) -> Mitigated {
        self.settle(relay, incoming.key);
        match offer(self, relay, incoming) {
            Verdict::Served => Mitigated::Done(Flow::Taken),
            Verdict::Waiting => Mitigated::Done(Flow::Wait),
            Verdict::Cold => Mitigated::Cold,
            Verdict::Pass if relay.cluster.view.is_some() => self.write_clustered(relay, incoming),
            Verdict::Pass => self.mark_write(relay, incoming),
        }
    }

    /// What a client has touched apart is forgotten once all of it is answered.
    fn settle(&mut self, relay: &mut Relay, key: ClientKey) {
        let now = relay.now;
        let Some(client) = relay.clients.get(key) else { return };
        if client.hot.apart && client.is_drained() {
            let tokens = client.hot.end_apart(now, &relay.world.clock);
            self.forget_touched(relay, tokens);
        }
    }

    /// Asks several nodes along a pool, each its question.
    pub(super) fn ask(
        &mut self,
        relay: &mut Relay,
        pool: usize,
        asker: Asker,
        questions: &Questions,
        inquiry: Inquiry,
        mark: Mark,
    ) {
        let id = self.inquiries.insert(inquiry) as u32;
        relay.routing().ask_several(pool, asker, questions, Ending::Mitigation(id), mark);
    }

    /// What a mitigation has sent is answered, or will not be.
    pub(crate) fn on_reply(&mut self, relay: &mut Relay, ticket: Ticket, reply: Reply<'_>) {
        match ticket.purpose {
            Purpose::Combined(_) => Combining::on_reply(self, relay, ticket, reply),
            _ => Reads::on_reply(self, relay, ticket, reply),
        }
    }

    /// All servers that a mitigation has asked have answered.
    pub(crate) fn on_answers(
        &mut self,
        relay: &mut Relay,
        id: u32,
        asker: Asker,
        mark: Mark,
        replies: Vec<Vec<u8>>,
    ) {
        let Some(inquiry) = self.inquiries.try_remove(id as usize) else { return };
        match inquiry {
            Inquiry::Splitting(inquiry) => {
                Splits::on_answers(self, relay, Answers { inquiry, asker, mark, replies });
            }
            Inquiry::Copies(inquiry) => {
                CopiedWrites::on_answers(self, relay, Answers { inquiry, asker, mark, replies });
            }
        }
    }

    /// A key has changed, or any may have.
    pub(super) fn on_invalidation(&mut self, key: Option<&[u8]>) {
        Reads::on_invalidation(self, key);
    }
}
