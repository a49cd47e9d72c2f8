//! One generation of the ring: every key once, in one list ordered by (tag, key).
//!
//! Called by: `hot_ring`, which holds an active generation and at times a warm one.
//! Bound: `Limits::nodes` keys; lists of about one node a bucket (see `buckets`).
//! Invariant: an entry that is in the list stays where it is in the order, so whoever
//! holds a place in the list can go on from there.
//!
//! Two threads that insert the same key at once:
//!
//! ```text
//! 1. A and B find the same gap: P -> S, and neither sees the key
//! 2. A takes slot 7, B takes slot 8; both write the key and `next = S`
//! 3. A swaps P's link from S to 7
//! 4. B's swap from S to 8 fails, since P's link is 7 now
//! 5. B goes on from P, finds the key in 7 and counts there; slot 8 stays empty
//! ```
//!
//! Without removal a link never returns to an earlier value, so step 4 cannot be fooled.

use std::cmp::Ordering as Order;

use super::{
    buckets::Buckets,
    link::{Link, Target, tag_of_bucket, tag_of_hash},
    slab::{Cells, Slab},
    sync::{AtomicU32, Ordering, fence},
};

/// How large a generation may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Keys admitted without further question.
    pub(super) nodes: u32,
    /// Beyond `nodes`, keys in the sample are admitted up to this many.
    pub(super) nodes_sampled: u32,
    /// Bits of the number of buckets at the start.
    pub(super) bucket_bits: u32,
    /// Counters of each key beside the one in its node.
    pub(super) cells_per_node: usize,
}

/// Where a key would have to be inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    before: Target,
    seen: Link,
}

/// All keys that were touched since the generation began.
#[derive(Debug)]
pub(super) struct Generation {
    buckets: Buckets,
    slab: Slab,
    /// Keys in the list, and those being inserted at this moment.
    live: AtomicU32,
    limits: Limits,
}

impl Generation {
    pub(super) fn new(limits: Limits) -> Self {
        // Room for as many lost races again as there may be keys. A race is lost only
        // over a key that is new, so in practice a handful are.
        let slots = limits.nodes_sampled.saturating_mul(2).saturating_add(64);
        let bits_max = limits.nodes_sampled.next_power_of_two().ilog2();
        Self {
            buckets: Buckets::new(limits.bucket_bits, bits_max.max(limits.bucket_bits)),
            slab: Slab::new(slots, limits.cells_per_node),
            live: AtomicU32::new(0),
            limits,
        }
    }

    /// Keys held.
    pub(super) fn len(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Buckets at present.
    pub(super) fn bucket_count(&self) -> usize {
        1 << self.buckets.bits()
    }

    /// Bytes allocated, without keys that are too long for their nodes.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.buckets.allocated_bytes() + self.slab.allocated_bytes()
    }

    /// The counters of a key.
    pub(super) fn cells(&self, index: u32) -> Cells<'_> {
        self.slab.cells(index)
    }

    /// Copies the key of a node that has a count to `into`, replacing what was there; its tag.
    pub(super) fn copy_key(&self, index: u32, into: &mut Vec<u8>) -> u64 {
        // Whoever counted had found the node in the list, and released what it knew with the
        // count: the key is there.
        fence(Ordering::Acquire);
        self.slab.copy_key(index, into);
        self.slab.node(index).tag()
    }

    /// Calls `visit` with the counters of every node, in the order of memory; also of those
    /// that are not in the list, which have no counts.
    pub(super) fn for_each<'a>(&'a self, visit: impl FnMut(u32, Cells<'a>)) {
        self.slab.for_each(visit);
    }

    /// The node of a key whose tag is known. Writes nothing.
    pub(super) fn find_tag(&self, tag: u64, key: &[u8]) -> Option<u32> {
        // The highest bit of the hash is lost, but no bucket asks for it.
        self.find(tag.reverse_bits(), key)
    }

    /// The node of a key. Writes nothing.
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let (_, entrance) = self.buckets.entrance(hash);
        self.search(Target::Head(entrance), tag_of_hash(hash), key).ok()
    }

    /// The node of a key, or the gap where it belongs.
    pub(super) fn find_or_gap(&self, hash: u64, key: &[u8]) -> Result<u32, Gap> {
        let (bucket, entrance) = self.buckets.entrance(hash);
        if bucket != entrance {
            self.link_head(bucket, entrance);
        }
        // From the old entrance in any case: the new one may be another thread's work
        // that is not finished.
        self.search(Target::Head(entrance), tag_of_hash(hash), key)
    }

    /// Inserts a key for which `find_or_gap` found a gap; nothing when there is no room.
    ///
    /// `sampled` says whether the key belongs to the sample that goes beyond the cap.
    pub(super) fn insert(&self, hash: u64, key: &[u8], gap: Gap, sampled: bool) -> Option<u32> {
        let limit = if sampled { self.limits.nodes_sampled } else { self.limits.nodes };
        let live = self
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                (live < limit).then_some(live + 1)
            })
            .ok()?;
        let tag = tag_of_hash(hash);
        let Some(index) = self.slab.take(tag, key) else {
            self.live.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let mut gap = gap;
        loop {
            let node = self.slab.node(index);
            let next = Link(gap.seen.0 & Link::ENTRANCE_MASK);
            node.next().store(next.0, Ordering::Relaxed);
            if self.splice(gap, Link::node(index)) {
                self.buckets.grow_for(live + 1);
                return Some(index);
            }
            match self.search(gap.before, tag, key) {
                Ok(winner) => {
                    self.live.fetch_sub(1, Ordering::Relaxed);
                    return Some(winner);
                }
                Err(moved) => gap = moved,
            }
        }
    }

    /// The keys in order.
    #[cfg(all(test, feature = "shuttle"))]
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { generation: self, at: Target::Head(0) }
    }

    fn link_of(&self, entry: Target) -> &AtomicU32 {
        match entry {
            Target::Head(bucket) => self.buckets.head(bucket),
            Target::Node(index) => self.slab.node(index).next(),
            Target::End => unreachable!("nothing follows the end"),
        }
    }

    fn splice(&self, gap: Gap, new: Link) -> bool {
        self.link_of(gap.before)
            .compare_exchange(
                gap.seen.0,
                gap.seen.replaced_by(new).0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Walks from `before` to the key, or to the gap where it belongs.
    #[expect(clippy::inline_always, reason = "the inner loop of a touch; a call costs a tenth")]
    #[inline(always)]
    fn search(&self, mut before: Target, tag: u64, key: &[u8]) -> Result<u32, Gap> {
        loop {
            let seen = Link(self.link_of(before).load(Ordering::Acquire));
            let at = seen.target();
            let passes = match at {
                Target::End => false,
                Target::Head(bucket) => tag_of_bucket(bucket) < tag,
                Target::Node(index) => {
                    let node = self.slab.node(index);
                    match node.tag().cmp(&tag) {
                        Order::Less => true,
                        Order::Greater => false,
                        Order::Equal if self.slab.holds(node, index, key) => return Ok(index),
                        Order::Equal => self.key_is_less(index, key),
                    }
                }
            };
            if !passes {
                return Err(Gap { before, seen });
            }
            before = at;
        }
    }

    #[cold]
    fn key_is_less(&self, index: u32, key: &[u8]) -> bool {
        let mut held = Vec::new();
        self.slab.copy_key(index, &mut held);
        held.as_slice() < key
    }

    /// Links the head of `bucket`, starting from an entrance before it.
    ///
    /// One thread does it; the others use the entrance before it meanwhile:
    ///
    /// ```text
    /// 1. A claims the head (UNSET -> CLAIMED); B sees it is no entrance and passes by
    /// 2. A writes the head's link, still marked as pending, then splices the head in
    /// 3. B, on its way through the list, may insert right behind the head: its swap
    ///    keeps the mark
    /// 4. A takes the mark away, and B's node stays
    /// ```
    #[cold]
    fn link_head(&self, bucket: u32, entrance: u32) {
        let head = self.buckets.head(bucket);
        let claimed = head.compare_exchange(
            Link::UNSET.0,
            Link::CLAIMED.0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if claimed.is_err() {
            return;
        }
        let tag = tag_of_bucket(bucket);
        let mut from = Target::Head(entrance);
        loop {
            // No key has an even tag, so this always ends in a gap.
            let Err(gap) = self.search(from, tag, &[]) else {
                unreachable!("a key in the place of a head");
            };
            let next = Link(gap.seen.0 & Link::ENTRANCE_MASK);
            head.store(next.pending().0, Ordering::Release);
            if self.splice(gap, Link::head(bucket)) {
                head.fetch_and(Link::ENTRANCE_MASK, Ordering::AcqRel);
                return;
            }
            from = gap.before;
        }
    }
}

/// An iterator over the nodes of a generation in the order of (tag, key): tag and index.
#[cfg(all(test, feature = "shuttle"))]
#[derive(Debug)]
pub(super) struct Walk<'a> {
    generation: &'a Generation,
    at: Target,
}

#[cfg(all(test, feature = "shuttle"))]
impl Iterator for Walk<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at != Target::End {
            let link = self.generation.link_of(self.at).load(Ordering::Acquire);
            self.at = Link(link).target();
            if let Target::Node(index) = self.at {
                return Some((self.generation.slab.node(index).tag(), index));
            }
        }
        None
    }
}
