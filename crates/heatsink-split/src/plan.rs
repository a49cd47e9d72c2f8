//! What becomes of a command on a split key.

use crate::layout::{Layout, Names};

/// What a plan depends on besides the command.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Where the parts are.
    pub layout: &'a Layout,
    /// By which names they are asked.
    pub names: Names,
    /// The client speaks RESP3, and so do the replies.
    pub resp3: bool,
    /// Differs from call to call: which shard takes what may go to any.
    pub turn: usize,
    /// Grows from call to call, also from one process to the next: the stamp of list elements.
    pub stamp: u64,
}

/// A request for one shard, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which shard.
    pub shard: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What becomes of a command.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// It goes to one shard, whose reply is the reply.
    One(Part),
    /// It goes to several shards; their replies, in the order of the parts, are merged.
    Many {
        /// What is asked.
        parts: Vec<Part>,
        /// What is made of the answers.
        merge: Merge,
    },
    /// The reply is known.
    Answer(Vec<u8>),
    /// The key has to be made whole first.
    Whole,
}

/// How replies become one.
#[derive(Clone, Debug, PartialEq)]
pub enum Merge {
    /// The sum of the numbers.
    Sum,
}

impl Merge {
    /// The first reply is the reply.
    pub fn first() -> Self {
        Self::Sum
    }

    /// It may take more than one round.
    pub fn asks_again(&self) -> bool {
        false
    }
}

/// What came of merging.
#[derive(Debug, PartialEq)]
pub enum Merged {
    /// The reply.
    Reply(Vec<u8>),
    /// There is more to ask; nothing else of the client is sent before it is answered.
    More {
        /// What is asked.
        parts: Vec<Part>,
        /// What is made of the answers.
        merge: Merge,
    },
}

/// What becomes of a command; its first key is the split one, and the only key.
pub fn plan(context: &Context<'_>, args: &[&[u8]]) -> Plan {
    let _ = (context, args);
    Plan::Whole
}

/// Merges the replies to the parts of a plan, in their order.
pub fn merge(context: &Context<'_>, merge: Merge, replies: &[Vec<u8>]) -> Merged {
    let _ = (context, merge);
    Merged::Reply(replies.first().cloned().unwrap_or_default())
}
