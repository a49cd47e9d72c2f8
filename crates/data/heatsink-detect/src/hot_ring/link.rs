//! Links: what a list entry points to, in 32 bits.
//!
//! Called by: `buckets` and `generation`.
//! Bound: 2^29 buckets and 2^30 - 2 nodes.
//! Invariant: only the head of a bucket ever carries the `PENDING` mark.
//!
//! A list runs through two kinds of entries: nodes, which hold a key, and bucket heads,
//! which mark where a bucket begins. Both are named by an index, so that a link is a
//! plain integer and no pointer can dangle.

/// Set on links to bucket heads.
const HEAD: u32 = 1 << 31;
/// Set on the link *of* a bucket head that cannot be used as an entrance yet.
const PENDING: u32 = 1 << 30;
/// The end of the list.
const NIL: u32 = PENDING - 1;
/// A bucket head that nobody has begun to link.
const UNSET: u32 = u32::MAX;

/// The most buckets a table may have.
pub(super) const BUCKETS_MAX: usize = 1 << 29;
/// The most nodes a slab may have.
pub(super) const NODES_MAX: usize = NIL as usize - 1;

/// The stored form of "what comes next".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(pub(super) u32);

/// The meaning of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// Nothing comes next.
    End,
    /// The head of a bucket.
    Head(u32),
    /// A node that holds a key.
    Node(u32),
}

impl Link {
    /// The link of a bucket head that nobody has begun to link.
    pub(super) const UNSET: Self = Self(UNSET);
    /// The link of a bucket head that one thread is about to link.
    pub(super) const CLAIMED: Self = Self(NIL | PENDING);
    /// The end of the list.
    pub(super) const END: Self = Self(NIL);

    pub(super) const fn head(bucket: u32) -> Self {
        Self(bucket | HEAD)
    }

    pub(super) const fn node(index: u32) -> Self {
        Self(index)
    }

    /// Whether a search may begin at the bucket head that holds this link.
    pub(super) const fn is_entrance(self) -> bool {
        self.0 & PENDING == 0
    }

    /// This link marked as belonging to a head that is not an entrance yet.
    pub(super) const fn pending(self) -> Self {
        Self(self.0 | PENDING)
    }

    /// The mask that, and-ed to a link, makes its head an entrance.
    pub(super) const ENTRANCE_MASK: u32 = !PENDING;

    /// `next`, with the mark that this link carries.
    pub(super) const fn replaced_by(self, next: Self) -> Self {
        Self(next.0 | (self.0 & PENDING))
    }

    pub(super) const fn target(self) -> Target {
        let plain = self.0 & !PENDING;
        if plain & HEAD != 0 {
            Target::Head(plain & !HEAD)
        } else if plain == NIL {
            Target::End
        } else {
            Target::Node(plain)
        }
    }
}

/// The place of a key in the list: the bits of its hash in reverse, and odd.
///
/// Reversed, because then a bucket of 2^k splits in two of 2^(k+1) without any node
/// changing its place; odd, so that a key never ties with a bucket head.
pub(super) const fn tag_of_hash(hash: u64) -> u64 {
    hash.reverse_bits() | 1
}

/// The place of a bucket's head in the list: before every key of that bucket.
pub(super) const fn tag_of_bucket(bucket: u32) -> u64 {
    (bucket.reverse_bits() as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_means_what_it_was_made_from() {
        assert_eq!(Link::END.target(), Target::End);
        assert_eq!(Link::node(7).target(), Target::Node(7));
        assert_eq!(Link::head(7).target(), Target::Head(7));
        assert_eq!(Link::head(7).pending().target(), Target::Head(7));
        assert_eq!(Link::END.pending(), Link::CLAIMED);
        assert!(!Link::UNSET.is_entrance());
        assert!(!Link::CLAIMED.is_entrance());
        assert_eq!(Link::CLAIMED.replaced_by(Link::node(3)), Link::node(3).pending());
        assert_eq!(Link::END.replaced_by(Link::node(3)), Link::node(3));
    }

    #[test]
    fn a_key_lies_after_its_own_head_and_before_the_next_at_every_size() {
        let hash = 0x1234_5678_9abc_def5_u64;
        for bits in 1..29 {
            let bucket = (hash & ((1 << bits) - 1)) as u32;
            let width = 1_u64 << (64 - bits);
            let head = tag_of_bucket(bucket);
            assert!(head < tag_of_hash(hash));
            assert!(tag_of_hash(hash) - head < width);
        }
    }
}
