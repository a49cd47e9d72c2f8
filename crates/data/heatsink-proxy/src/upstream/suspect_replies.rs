//! What is thought of replies before they come.
//!
//! Called by: `replies`, with each reply of a link of which there are doubts.
//! Bound: one for each request that the link has not answered; of a large reply that was replayed,
//! `limits.max_output_bytes` are kept.

use std::collections::VecDeque;

use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;

/// A request whose reply is kept from its client, so that it can be sent again: which one, for whoever
/// keeps it (see [`crate::cluster::replay`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replayed {
    pub(crate) replay: u32,
    pub(crate) member: u32,
}

/// What is thought of a reply that is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspect {
    /// It is to a write that it acknowledges in vain.
    pub(crate) in_vain: bool,
    pub(crate) replayed: Option<Replayed>,
}

/// What is thought of the replies that are still to come on a link, in their order. Of those behind
/// the last there is no doubt.
#[derive(Debug, Default)]
pub(crate) struct SuspectReplies {
    queue: VecDeque<Suspect>,
    /// What has come so far of a large reply that was replayed.
    pub(crate) part: Vec<u8>,
}

impl SuspectReplies {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Of the next reply.
    pub(crate) fn next(&self) -> Suspect {
        self.get(0)
    }

    pub(crate) fn get(&self, at: usize) -> Suspect {
        self.queue.get(at).copied().unwrap_or_default()
    }

    /// Of the reply behind the next `at`, to be changed.
    pub(crate) fn at(&mut self, at: usize) -> &mut Suspect {
        self.queue.resize(self.queue.len().max(at + 1), Suspect::default());
        &mut self.queue[at]
    }

    /// A piece of a large reply that was replayed has come.
    pub(crate) fn keep_part(&mut self, client: ClientKey, bytes: &[u8], clients: &mut Clients) {
        if clients.get_ref(client).is_none() {
            return;
        }
        self.part.extend_from_slice(bytes);
        if self.part.len() as u64 > clients.max_output_bytes {
            clients.overflown.push(client);
        }
    }

    /// The next reply is here.
    pub(crate) fn pop(&mut self) -> Suspect {
        self.queue.pop_front().unwrap_or_default()
    }
}
