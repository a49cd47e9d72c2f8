//! The slab: nodes and their counters, in chunks that are never moved or freed.
//!
//! Called by: `generation`.
//! Bound: `slots` nodes; a chunk is allocated when its first slot is taken.
//! Invariant: a slot's key is written before the slot is published in a list and never
//! again, so whoever found the slot through a list may read it without synchronisation.
//!
//! A key of up to 48 bytes lies inside its node, so that comparing it touches one cache
//! line; the counters of the node lie together in the next one.

use super::{
    link::Link,
    sync::{AtomicU32, AtomicU64, OnceLock, Ordering},
};

/// Nodes per chunk.
const CHUNK_NODES: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = if cfg!(feature = "shuttle") { 2 } else { 10 };
/// Words of a key that lie inside its node.
const INLINE_WORDS: usize = 6;
/// Bytes of a key that lie inside its node.
const INLINE_BYTES: usize = INLINE_WORDS * 8;
/// Counter cells in one cache line.
const LINE_CELLS: usize = 8;

/// One key. Sixty-four bytes: a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Node {
    tag: AtomicU64,
    next: AtomicU32,
    key_len: AtomicU32,
    key: [AtomicU64; INLINE_WORDS],
}

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    fn empty() -> Self {
        Self {
            tag: AtomicU64::new(0),
            next: AtomicU32::new(Link::END.0),
            key_len: AtomicU32::new(0),
            key: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// The place of the node's key in the list.
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    /// What comes after the node.
    pub(super) fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// Eight counters: a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_CELLS]);

impl Line {
    fn empty() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn read(&self) -> [u64; LINE_CELLS] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

/// A key and its first counters side by side: one page to look up, not two.
#[derive(Debug)]
struct Slot {
    node: Node,
    line: Line,
}

/// The counters of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'a> {
    line: &'a Line,
    more: &'a [Line],
}

impl Cells<'_> {
    /// The first of the counters.
    pub(super) fn first(&self) -> &AtomicU64 {
        &self.line.0[0]
    }

    /// The sum of what `worth` makes of each counter.
    pub(super) fn sum(&self, worth: impl Fn(u64) -> u64) -> u64 {
        let of_more = self.more.iter().map(|line| line.read().map(&worth).iter().sum::<u64>());
        self.line.read().map(&worth).iter().sum::<u64>() + of_more.sum::<u64>()
    }

    /// The counter for a number, modulo how many there are; what was read there; and the
    /// sum of what `worth` makes of the others.
    pub(super) fn one_and_others(
        &self,
        number: u32,
        worth: impl Fn(u64) -> u64,
    ) -> (&AtomicU64, u64, u64) {
        // One line and the more are a power of two together.
        let at = (number as usize / LINE_CELLS) & self.more.len();
        let line = if at == 0 { self.line } else { &self.more[at - 1] };
        let in_line = number as usize % LINE_CELLS;
        // Each counter is read once, so that the one and the others belong together.
        let words = line.read();
        let worths = words.map(&worth);
        let mut others = worths.iter().sum::<u64>() - worths[in_line];
        if !self.more.is_empty() {
            let lines = std::iter::once(self.line).chain(self.more);
            for (_, other) in lines.enumerate().filter(|&(place, _)| place != at) {
                others += other.read().map(&worth).iter().sum::<u64>();
            }
        }
        (&line.0[in_line], words[in_line], others)
    }
}

/// A key that does not fit in its node, once it is written.
type LongKey = OnceLock<Box<[u8]>>;

#[derive(Debug)]
struct Chunk {
    slots: Box<[Slot]>,
    /// Further counters of each node, when one line is not enough.
    more: Box<[Line]>,
    /// Keys that do not fit in their nodes; absent until there is one.
    long_keys: OnceLock<Box<[LongKey]>>,
}

/// Nodes by index.
#[derive(Debug)]
pub(super) struct Slab {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Slots handed out, including those that lost a race and hold nothing.
    taken: AtomicU32,
    slots: u32,
    more_per_node: usize,
}

impl Slab {
    /// A slab of `slots` nodes with at least `cells_per_node` counters each.
    pub(super) fn new(slots: u32, cells_per_node: usize) -> Self {
        let lines = cells_per_node.next_power_of_two().div_ceil(LINE_CELLS);
        let chunks = (slots as usize).div_ceil(CHUNK_NODES);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            taken: AtomicU32::new(0),
            slots,
            more_per_node: lines - 1,
        }
    }

    /// Takes a slot for a key and writes the key into it; nothing when all are taken.
    ///
    /// The slot is the caller's alone until the caller publishes it.
    pub(super) fn take(&self, tag: u64, key: &[u8]) -> Option<u32> {
        let index = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                (taken < self.slots).then_some(taken + 1)
            })
            .ok()?;
        let chunk = self.chunks[index as usize >> CHUNK_BITS].get_or_init(|| self.chunk());
        let slot = index as usize & (CHUNK_NODES - 1);
        let node = &chunk.slots[slot].node;
        node.tag.store(tag, Ordering::Relaxed);
        node.key_len.store(key.len() as u32, Ordering::Relaxed);
        if key.len() <= INLINE_BYTES {
            for (held, word) in node.key.iter().zip(words_of(key)) {
                held.store(word, Ordering::Relaxed);
            }
        } else {
            let long_keys =
                chunk.long_keys.get_or_init(|| (0..CHUNK_NODES).map(|_| OnceLock::new()).collect());
            let fresh = long_keys[slot].set(key.into()).is_ok();
            debug_assert!(fresh, "a slot is taken once");
        }
        Some(index)
    }

    fn chunk(&self) -> Chunk {
        let slot = |_| Slot { node: Node::empty(), line: Line::empty() };
        Chunk {
            slots: (0..CHUNK_NODES).map(slot).collect(),
            more: (0..CHUNK_NODES * self.more_per_node).map(|_| Line::empty()).collect(),
            long_keys: OnceLock::new(),
        }
    }

    fn chunk_of(&self, index: u32) -> &Chunk {
        self.chunks[index as usize >> CHUNK_BITS].get().expect("the chunk of a slot that was taken")
    }

    /// The node in a slot that was taken.
    pub(super) fn node(&self, index: u32) -> &Node {
        &self.chunk_of(index).slots[index as usize & (CHUNK_NODES - 1)].node
    }

    /// The counters of the node.
    pub(super) fn cells(&self, index: u32) -> Cells<'_> {
        let chunk = self.chunk_of(index);
        let slot = index as usize & (CHUNK_NODES - 1);
        let more = slot * self.more_per_node;
        Cells { line: &chunk.slots[slot].line, more: &chunk.more[more..more + self.more_per_node] }
    }

    /// Whether the slot holds exactly this key.
    pub(super) fn holds(&self, index: u32, key: &[u8]) -> bool {
        let node = self.node(index);
        if node.key_len.load(Ordering::Relaxed) as usize != key.len() {
            return false;
        }
        if key.len() > INLINE_BYTES {
            return self.long_key(index) == key;
        }
        // All six words without a branch: where a key differs cannot be predicted.
        let difference =
            node.key.iter().zip(words_of(key)).fold(0, |difference, (held, word)| {
                difference | (held.load(Ordering::Relaxed) ^ word)
            });
        difference == 0
    }

    /// Copies the slot's key to `into`, replacing what was there.
    pub(super) fn copy_key(&self, index: u32, into: &mut Vec<u8>) {
        into.clear();
        let node = self.node(index);
        let len = node.key_len.load(Ordering::Relaxed) as usize;
        if len > INLINE_BYTES {
            into.extend_from_slice(self.long_key(index));
            return;
        }
        let words = node.key.each_ref().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        if len < 8 {
            into.extend_from_slice(&words[0][..len]);
            return;
        }
        into.resize(len, 0);
        let (places, count) = word_places(len);
        for (word, &place) in words.iter().zip(&places[..count]) {
            into[place..place + 8].copy_from_slice(word);
        }
    }

    fn long_key(&self, index: u32) -> &[u8] {
        self.chunk_of(index)
            .long_keys
            .get()
            .and_then(|keys| keys[index as usize & (CHUNK_NODES - 1)].get())
            .expect("a long key is written before its slot is published")
    }

    /// Bytes of the chunks allocated so far, without long keys.
    pub(super) fn allocated_bytes(&self) -> usize {
        let per_chunk = CHUNK_NODES * (size_of::<Slot>() + self.more_per_node * size_of::<Line>());
        let allocated = self.chunks.iter().filter(|c| c.get().is_some()).count();
        allocated * per_chunk + self.chunks.len() * size_of::<OnceLock<Chunk>>()
    }
}

/// Where the words of a key of 8 to 48 bytes begin, and how many of them there are.
///
/// The last ones overlap those before, so that a few fixed shapes serve every length and
/// no loop has to find out where a key ends.
const fn word_places(len: usize) -> ([usize; INLINE_WORDS], usize) {
    match len {
        8..=16 => ([0, len - 8, 0, 0, 0, 0], 2),
        17..=32 => ([0, 8, len - 16, len - 8, 0, 0], 4),
        _ => ([0, 8, 16, 24, len - 16, len - 8], 6),
    }
}

/// A key of up to 48 bytes as words at `word_places`, zero where there are none.
///
/// Two keys of the same length are equal if and only if their words are.
fn words_of(key: &[u8]) -> [u64; INLINE_WORDS] {
    let pair = |bytes: [u8; 16]| {
        let both = u128::from_le_bytes(bytes);
        [both as u64, (both >> 64) as u64]
    };
    if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk())
        && key.len() > 16
    {
        let (first, last) = (pair(*first), pair(*last));
        match key[16..].first_chunk() {
            Some(second) if key.len() > 32 => {
                let second = pair(*second);
                [first[0], first[1], second[0], second[1], last[0], last[1]]
            }
            _ => [first[0], first[1], last[0], last[1], 0, 0],
        }
    } else if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        [u64::from_le_bytes(*first), u64::from_le_bytes(*last), 0, 0, 0, 0]
    } else {
        let word = key.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte));
        [word, 0, 0, 0, 0, 0]
    }
}
