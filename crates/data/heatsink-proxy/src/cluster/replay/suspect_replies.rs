//! What is thought of replies before they come.
//!
//! Called by: `replies`, with each reply of a link of which there are doubts.
//! Bound: one for each request that the link has not answered; of a large reply that was recalled,
//! `limits.max_output_bytes` are kept.

use std::collections::VecDeque;

use crate::downstream::clients::Clients;
use crate::cluster::replay::Recalled;
use crate::downstream::connection::ClientKey;

/// What is thought of a reply that is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    /// It is to a write that it acknowledges in vain.
    pub(crate) in_vain: bool,
    pub(crate) recalled: Option<Recalled>,
}

/// What is thought of the replies that are still to come on a link, in their order. Of those behind
/// the last there is no doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    queue: VecDeque<Doubt>,
    /// What has come so far of a large reply that was recalled.
    pub(crate) part: Vec<u8>,
}

impl Doubts {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Of the next reply.
    pub(crate) fn next(&self) -> Doubt {
        self.get(0)
    }

    pub(super) fn get(&self, at: usize) -> Doubt {
        self.queue.get(at).copied().unwrap_or_default()
    }

    /// Of the reply behind the next `at`, to be changed.
    pub(crate) fn at(&mut self, at: usize) -> &mut Doubt {
        self.queue.resize(self.queue.len().max(at + 1), Doubt::default());
        &mut self.queue[at]
    }

    /// A piece of a large reply that was recalled has come.
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
    pub(crate) fn pop(&mut self) -> Doubt {
        self.queue.pop_front().unwrap_or_default()
    }
}
