//! The names of a split key's shards, and which of them a member belongs to.
//!
//! Invariant: every process of every release comes to the same shard for the same member.

use std::fmt;
use std::ops::Range;

use heatsink_cluster::slot;
use heatsink_resp::encode;

/// What a split key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A string that is a whole number; shards add up.
    Counter,
    /// A set; members by their hash.
    Set,
    /// A hash; fields by their hash.
    Hash,
    /// A sorted set; members by their hash.
    SortedSet,
    /// A list; elements anywhere, with a stamp that orders them.
    List,
    /// A `HyperLogLog`; registers by their number.
    HyperLogLog,
}

impl Kind {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::Counter, Self::Set, Self::Hash, Self::SortedSet, Self::List, Self::HyperLogLog];

    /// The name in manifests and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Set => "set",
            Self::Hash => "hash",
            Self::SortedSet => "sorted_set",
            Self::List => "list",
            Self::HyperLogLog => "hyperloglog",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The server's name of the type.
    pub fn server_type(self) -> &'static str {
        match self {
            Self::Counter | Self::HyperLogLog => "string",
            Self::Set => "set",
            Self::Hash => "hash",
            Self::SortedSet => "zset",
            Self::List => "list",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which of a shard's two names is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The one that is written to.
    Live,
    /// The one that it has once it is sealed.
    Sealed,
}

/// The name of a copy of a key.
pub fn copy_name(tag: &str, id: &str, index: usize) -> Vec<u8> {
    format!("heatsink:{{{tag}}}:{id}:copy{index}").into_bytes()
}

/// The name of the lock under which a copy is filled, in the slot of the copy.
pub fn lock_name(copy: &[u8]) -> Vec<u8> {
    [copy, b":lock"].concat()
}

/// The name under which those who write a key say so to whoever fills a copy.
pub fn writers_name(copy: &[u8]) -> Vec<u8> {
    [copy, b":writers"].concat()
}

/// Where the parts of a split key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Never used again.
    pub id: String,
    /// What the key holds.
    pub kind: Kind,
    /// It has a time to live, so that it must not become empty unnoticed.
    pub expires: bool,
    shards: Vec<Shard>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shard {
    slot: u16,
    live: Vec<u8>,
    /// The same as an argument of a request, without the line's end behind it.
    live_bulk: Vec<u8>,
    sealed: Vec<u8>,
}

impl Layout {
    /// A shard for each tag.
    pub fn new<T: AsRef<str>>(id: &str, kind: Kind, expires: bool, tags: &[T]) -> Self {
        let shard = |(index, tag): (usize, &T)| {
            let live = format!("heatsink:{{{}}}:{id}:{index}", tag.as_ref()).into_bytes();
            let sealed = [&live[..], b":sealed"].concat();
            let mut live_bulk = Vec::new();
            encode::header(&mut live_bulk, b'$', live.len());
            live_bulk.extend_from_slice(&live);
            Shard { slot: slot::of_key(&live), live, live_bulk, sealed }
        };
        let shards = tags.iter().enumerate().map(shard).collect();
        Self { id: id.to_owned(), kind, expires, shards }
    }

    /// How many shards there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether there are none, which makes it useless.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// The name of a shard.
    #[inline]
    pub fn name(&self, shard: usize, names: Names) -> &[u8] {
        let shard = &self.shards[shard];
        match names {
            Names::Live => &shard.live,
            Names::Sealed => &shard.sealed,
        }
    }

    /// The name of the guard of a shard, in its slot: it is there from before the split is committed
    /// until after its end, and tells a shard that is empty from one that was lost.
    pub fn guard(&self, shard: usize) -> Vec<u8> {
        [&self.shards[shard].live[..], b":guard"].concat()
    }

    /// Appends a request under the name of a shard. The key is its first argument behind the
    /// command; `args` tells where they stand.
    #[inline]
    pub fn rename(&self, shard: usize, request: &[u8], args: &[Range<usize>], out: &mut Vec<u8>) {
        let [command, key, ..] = args else { return };
        out.extend_from_slice(&request[..command.end + 2]);
        out.extend_from_slice(&self.shards[shard].live_bulk);
        out.extend_from_slice(&request[key.end..]);
    }

    /// The hash tag of a shard.
    pub fn tag(&self, shard: usize) -> &str {
        let live = std::str::from_utf8(&self.shards[shard].live).unwrap_or_default();
        let (_, behind) = live.split_once('{').unwrap_or_default();
        behind.split_once('}').unwrap_or_default().0
    }

    /// The slot of both names of a shard.
    #[inline]
    pub fn slot(&self, shard: usize) -> u16 {
        self.shards[shard].slot
    }

    /// Which shard a member or a field belongs to.
    #[inline]
    pub fn shard_of(&self, member: &[u8]) -> usize {
        share(hash(member), self.shards.len())
    }
}

/// Eight bytes at a time: what came so far and they are multiplied by a large odd number, and the
/// two halves of the product laid over each other, so that every bit reaches every other.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let first = 0x243f_6a88_85a3_08d3 ^ bytes.len() as u64;
    let hash = words.iter().fold(first, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte));
    mix(mix(hash ^ last))
}

#[inline]
fn mix(number: u64) -> u64 {
    let product = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// Which of `count` a hash belongs to, by its upper half.
#[inline]
pub(crate) fn share(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stay_where_every_release_looks_for_them() {
        let layout = Layout::new("i", Kind::Set, false, &["0"; 16]);
        let members: [&[u8]; 6] = [b"", b"a", b"b", b"user:1", b"user:2", b"\xff\0"];
        assert_eq!(members.map(|member| layout.shard_of(member)), [7, 5, 6, 15, 11, 11]);
    }

    #[test]
    fn a_shard_has_the_tag_that_it_was_given() {
        let tags = ["3iv", "0", "zz"];
        let layout = Layout::new("19f2c1a77d0-5e884898", Kind::Set, false, &tags);
        assert_eq!([0, 1, 2].map(|shard| layout.tag(shard)), tags);
        assert_eq!(slot::of_key(&layout.guard(1)), layout.slot(1));
    }

    #[test]
    fn members_are_spread_evenly() {
        for shards in [2, 3, 8, 16] {
            let layout = Layout::new("i", Kind::Set, false, &vec!["0"; shards]);
            let mut members = vec![0_usize; shards];
            for at in 0..10_000 {
                members[layout.shard_of(format!("user:{at}").as_bytes())] += 1;
            }
            let even = 10_000 / shards;
            assert!(members.iter().all(|count| count.abs_diff(even) < even / 5), "{members:?}");
        }
    }
}
