//! What becomes of a command on a split key.
//!
//! Called by: the data plane, for each command whose only key is split.
//! Bound: a command becomes at most two requests a shard and round; only the ranks of sorted
//! sets take more than two rounds, and a number that grows with the logarithm of the key.
//! Invariant: what is not understood to the last argument is [`Plan::Whole`], so that the server
//! says on the plain key what is wrong with it.

mod counter;
mod cut;
mod hash;
mod hyperloglog;
mod list;
mod request;
mod set;
mod sorted_set;
mod whole;

use heatsink_cluster::frame::is_error;
use heatsink_cluster::join::{self, Join};

use crate::layout::{Kind, Layout, Names};

pub(crate) use counter::VALUE_MAX as COUNTER_MAX;
pub use counter::is_near_overflow as counter_is_near_overflow;

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
    /// It goes to one shard as it is but for the key's name ([`under_name`], or
    /// [`Layout::rename`]); that shard's reply is the reply.
    One(usize),
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
pub struct Merge(How);

impl Merge {
    /// The first reply is the reply.
    pub fn first() -> Self {
        Self(How::Join(Join::First))
    }

    /// It may take more than one round.
    pub fn asks_again(&self) -> bool {
        matches!(self.0, How::Rank(_))
    }
}

#[derive(Clone, Debug, PartialEq)]
enum How {
    /// As the replies of several nodes.
    Join(Join),
    /// The sum of a counter's shards.
    Counter(counter::Shape),
    /// A part of a list.
    List(list::Wanted),
    /// The count of a `HyperLogLog`.
    Estimate,
    /// A range of a sorted set.
    Range(sorted_set::range::Range),
    /// A member's place in a sorted set.
    Rank(sorted_set::rank::Rank),
    /// Whether there is anything, from the sizes of the shards.
    Exists,
    /// That there is no time to live, or no key, from the sizes of the shards.
    NoTtl,
    /// The server's name of the type, or `none`, from the sizes of the shards.
    Type(Kind),
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

/// Longest name of a command that is known here.
const NAME_BYTES: usize = 20;

/// What becomes of a command; its first key is the split one, and the only key.
pub fn plan(context: &Context<'_>, args: &[&[u8]]) -> Plan {
    let [name, _key, ..] = args else { return Plan::Whole };
    let mut upper = [0; NAME_BYTES];
    let Some(upper) = upper.get_mut(..name.len()) else { return Plan::Whole };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let plan = match context.layout.kind {
        _ if context.layout.is_empty() => None,
        Kind::Counter => counter::plan(context, upper, args),
        Kind::Set => set::plan(context, upper, args),
        Kind::Hash => hash::plan(context, upper, args),
        Kind::SortedSet => sorted_set::plan(context, upper, args),
        Kind::List => list::plan(context, upper, args),
        Kind::HyperLogLog => hyperloglog::plan(context, upper, args),
    };
    plan.unwrap_or(Plan::Whole)
}

/// A command as it is, under the name of a shard.
pub fn under_name(context: &Context<'_>, shard: usize, args: &[&[u8]]) -> Part {
    request::part(context, shard, args[0], args[2..].iter().copied())
}

/// Merges the replies to the parts of a plan, in their order. An error among them is the reply,
/// the first if there are several.
pub fn merge(context: &Context<'_>, merge: Merge, replies: &[Vec<u8>]) -> Merged {
    if let Some(error) = replies.iter().find(|reply| is_error(reply)) {
        return Merged::Reply(error.clone());
    }
    let reply = match merge.0 {
        How::Rank(rank) => match sorted_set::rank::merge(context, rank, replies) {
            Some(merged) => return merged,
            None => None,
        },
        How::Join(how) => Some(join::join(&how, replies)),
        How::Counter(shape) => counter::merge(shape, replies),
        How::List(wanted) => list::merge(context, wanted, replies),
        How::Estimate => hyperloglog::merge(replies),
        How::Range(range) => sorted_set::range::merge(context, range, replies),
        How::Exists => whole::exists(replies),
        How::NoTtl => whole::no_ttl(replies),
        How::Type(kind) => whole::type_name(kind, replies),
    };
    Merged::Reply(reply.unwrap_or_else(|| UNMERGEABLE.to_vec()))
}

/// What a shard answers to no such command.
const UNMERGEABLE: &[u8] = b"-ERR the replies of the shards do not fit together\r\n";

#[cfg(test)]
mod tests;
