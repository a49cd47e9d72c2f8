//! The bucket heads: entrances into the one ordered list, twice as many when it grows.
//!
//! Called by: `generation`.
//! Bound: `4 * 2^bits_max` bytes; each doubling allocates once.
//! Invariant: the number of buckets grows only after the heads for it exist, so a
//! reader that saw the number finds the heads.

use super::{
    link::{Link, tag_of_bucket},
    sync::{AtomicU32, OnceLock, Ordering},
};

/// The growing table of heads.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The heads that exist from the start, all of them linked.
    base: Box<[AtomicU32]>,
    /// One segment a doubling: segment `i` doubles a table of `base.len() << i`.
    segments: Box<[OnceLock<Box<[AtomicU32]>>]>,
    bits: AtomicU32,
    base_bits: u32,
}

impl Buckets {
    /// `2^base_bits` heads linked in the order of their tags, growing to `2^bits_max`.
    pub(super) fn new(base_bits: u32, bits_max: u32) -> Self {
        let count = 1_u32 << base_bits;
        // In the order of tags the bucket at place `i` has the reversed bits of `i`.
        let reversed = |place: u32| {
            if base_bits == 0 { 0 } else { place.reverse_bits() >> (32 - base_bits) }
        };
        let base = (0..count)
            .map(|bucket| {
                let place = reversed(bucket) + 1;
                let next = if place == count { Link::END } else { Link::head(reversed(place)) };
                AtomicU32::new(next.0)
            })
            .collect();
        Self {
            base,
            segments: (base_bits..bits_max).map(|_| OnceLock::new()).collect(),
            bits: AtomicU32::new(base_bits),
            base_bits,
        }
    }

    /// How many buckets there are, as a power of two.
    pub(super) fn bits(&self) -> u32 {
        self.bits.load(Ordering::Acquire)
    }

    /// The head of a bucket that is, or was just, within the number of buckets.
    pub(super) fn head(&self, bucket: u32) -> &AtomicU32 {
        if let Some(head) = self.base.get(bucket as usize) {
            return head;
        }
        let top = bucket.ilog2();
        let segment = self.segments[(top - self.base_bits) as usize]
            .get()
            .expect("heads exist before they are counted");
        &segment[(bucket - (1 << top)) as usize]
    }

    /// The bucket of `hash`, and the nearest bucket before it that is an entrance.
    pub(super) fn entrance(&self, hash: u64) -> (u32, u32) {
        let bucket = (hash & ((1 << self.bits()) - 1)) as u32;
        let mut at = bucket;
        // Ends at the latest in the base, whose heads are linked from the start.
        while !Link(self.head(at).load(Ordering::Acquire)).is_entrance() {
            at &= !(1 << at.ilog2());
        }
        debug_assert!(tag_of_bucket(at) <= tag_of_bucket(bucket));
        (bucket, at)
    }

    /// Doubles the buckets when `nodes` have outgrown them.
    pub(super) fn grow_for(&self, nodes: u32) {
        let bits = self.bits();
        if nodes <= 1 << bits {
            return;
        }
        let Some(segment) = self.segments.get((bits - self.base_bits) as usize) else {
            return;
        };
        segment
            .get_or_init(|| (0..1_usize << bits).map(|_| AtomicU32::new(Link::UNSET.0)).collect());
        // Another thread may have doubled it meanwhile; once is enough.
        let _ = self.bits.compare_exchange(bits, bits + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Bytes of the heads allocated so far.
    pub(super) fn allocated_bytes(&self) -> usize {
        let grown: usize =
            self.segments.iter().filter_map(|segment| segment.get().map(|heads| heads.len())).sum();
        (self.base.len() + grown) * size_of::<AtomicU32>()
    }
}
