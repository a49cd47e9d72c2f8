//! What mitigations have asked servers, until the answers are there.
//!
//! Called by: the mitigations, which ask; the event loop, with the answers.
//! Bound: one for each request of a client that a mitigation serves by asking, and one for each batch
//! of increments and each refused command.

use crate::cluster::scatter_gather::{Asker, Ending, Questions};
use crate::hot::Mitigations;
use crate::hot::copies::{CopiedWrite, CopyRead};
use crate::hot::splitting::{Collected, Fenced, FrozenRead};
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream::pools::{Purpose, Ticket};

/// What was asked, and by it, what is made of the answers.
#[derive(Debug)]
pub(super) enum Inquiry {
    /// The shards of a split key.
    Collected(Collected),
    /// Keys which are about to be split, or how far that is.
    Frozen(FrozenRead),
    /// What stands at the key of a command that was refused, with the refusal.
    Fenced(Fenced, Vec<u8>),
    /// A copy.
    CopyRead(CopyRead),
    /// A key whose copy is gone.
    KeyRead,
    /// A key that has copies, to write it; or its copies, to remove them.
    CopiedWrite(CopiedWrite),
}

impl Mitigations {
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
        relay.ask_several(pool, asker, questions, Ending::Mitigation(id), mark);
    }

    /// All that were asked have answered.
    pub(crate) fn answered(
        &mut self,
        relay: &mut Relay,
        id: u32,
        asker: Asker,
        mark: Mark,
        replies: Vec<Vec<u8>>,
    ) {
        let Some(inquiry) = self.inquiries.try_remove(id as usize) else { return };
        match inquiry {
            Inquiry::Collected(collected) => self.collected(relay, asker, collected, mark, replies),
            Inquiry::Frozen(read) => self.frozen_read(relay, asker, read, mark, &replies),
            Inquiry::Fenced(fenced, error) => self.fence_seen(relay, fenced, &error, &replies),
            Inquiry::CopyRead(read) => self.copy_read(relay, asker, read, mark, &replies[0]),
            Inquiry::KeyRead => relay.key_read(asker, mark, &replies[0]),
            Inquiry::CopiedWrite(write) => self.copied_write(relay, asker, write, mark, &replies),
        }
    }

    /// A read or a write of a mitigation will not be answered.
    pub(crate) fn unanswered(&mut self, relay: &mut Relay, ticket: Ticket, error: &[u8]) {
        match ticket.purpose {
            Purpose::Fill(fill) => {
                relay.end_redirect(ticket);
                if self.may_read_as_usual(fill) {
                    self.fill_as_usual(relay, fill, error);
                } else {
                    self.fill_failed(relay, fill, error);
                }
            }
            Purpose::FillFields(fill) | Purpose::FillTtl(fill) => self.fill_ttl_failed(fill),
            Purpose::Combined(batch) => {
                relay.end_redirect(ticket);
                self.batch_lost(relay, batch, error);
            }
            _ => {}
        }
    }
}
