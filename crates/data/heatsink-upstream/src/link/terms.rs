//! What a link is asked and what it tells.

use std::collections::VecDeque;

use crate::unanswered::Unanswered;

/// Whoever waits for a reply. Equal neighbours in the queue are kept as one entry.
pub trait Waiter: Copy + PartialEq {
    /// What is remembered of a request until it is answered, on a link that marks requests.
    type Mark: Copy + Default + std::fmt::Debug;

    /// The reply must be handed over in one piece, however large.
    fn wants_whole(&self) -> bool;
}

/// What a link is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub struct Use {
    /// Shared by clients: it has a name by which an operator knows it.
    pub shared: bool,
    /// Requests are kept until they are answered, so that they can be sent elsewhere.
    pub keeps_requests: bool,
    /// The node is a replica that is to be read from (`READONLY`).
    pub replica: bool,
    /// Requests carry marks, which come back with their replies.
    pub marks: bool,
    /// The server is to tell when keys change that were read with `CLIENT CACHING YES`.
    pub tracking: bool,
}

/// How replies are told apart on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each reply belongs to the next waiter; pushes belong to nobody.
    Replies,
    /// Each frame is handed over as it is; the owner knows what it answers.
    Frames,
}

/// What came from the server.
#[derive(Debug)]
pub enum Delivery<'a, W> {
    /// Whole replies for one waiter.
    Replies {
        /// Who waited.
        waiter: W,
        /// Where each of them ends.
        ends: &'a [usize],
        /// Their bytes; the first one's only from where the last [`Delivery::Part`] ended.
        bytes: &'a [u8],
    },
    /// A piece of a large reply that is not complete yet.
    Part {
        /// Who waits.
        waiter: W,
        /// The piece.
        bytes: &'a [u8],
    },
    /// An error by which a node of a cluster says that the request is for another one, or
    /// that it cannot be executed now, or that a value has another type, as that has which stands
    /// where one was moved from; only on a link that keeps requests.
    Elsewhere {
        /// Who waits; from now on for somebody else.
        waiter: W,
        /// The request, whole.
        request: &'a [u8],
        /// The error.
        error: &'a [u8],
        /// What was sent behind it and is not answered, or was not when this was.
        behind: Behind<'a, W>,
    },
    /// An out-of-band message (RESP3).
    Push(&'a [u8]),
    /// A frame, or a piece of one, on a link with [`Framing::Frames`].
    Frame {
        /// The bytes.
        bytes: &'a [u8],
        /// They begin a frame.
        begins: bool,
        /// They end a frame.
        ends: bool,
    },
}

/// Requests that are not answered, with whoever waits for them.
#[derive(Debug)]
pub struct Behind<'a, W> {
    pub(super) waiters: &'a VecDeque<Run<W>>,
    pub(super) requests: &'a Unanswered,
    /// How many at the front are not meant.
    pub(super) skipped: usize,
}

impl<'a, W: Waiter> Behind<'a, W> {
    /// Each of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (W, &'a [u8])> {
        let waiters = self.waiters.iter().flat_map(|run| (0..run.count).map(move |_| run.waiter));
        waiters.zip(self.requests.iter()).skip(self.skipped)
    }
}

/// What a call of [`super::Link::receive`] ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing more is there for now.
    Drained,
    /// There may be more; call again.
    More,
}

/// Requests of one waiter next to each other.
#[derive(Debug)]
pub(crate) struct Run<W> {
    pub(super) waiter: W,
    pub(super) count: u32,
}
