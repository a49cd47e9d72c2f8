//! The slab: nodes and their counters, in chunks that are never moved or freed.
//!
//! Called by: `generation`.
//! Bound: `slots` nodes; a chunk is allocated when its first slot is taken.
//! Invariant: a slot's key is written before the slot is published in a list and never
//! again, so whoever found the slot through a list may read it without synchronisation.
//!
//! A key of up to 40 bytes and the brief form of its counters lie inside its node, so that
//! touching a key that is seldom touched needs one cache line. The other counters lie in memory
//! of their own, which only keys that are touched more often bring into the caches.

use super::{
    link::Link,
    sync::{AtomicU32, AtomicU64, OnceLock, Ordering},
};

/// Nodes per chunk.
const CHUNK_NODES: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = if cfg!(feature = "shuttle") { 2 } else { 12 };
/// Words of a key that lie inside its node.
const INLINE_WORDS: usize = 5;
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
    /// The first counter.
    first: AtomicU64,
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
            first: AtomicU64::new(0),
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

/// The counters of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'a> {
    first: &'a AtomicU64,
    lines: &'a [Line],
}

impl<'a> Cells<'a> {
    /// The counter in the node.
    pub(super) fn first(&self) -> &'a AtomicU64 {
        self.first
    }

    /// The sum of what `worth` makes of each of the others.
    pub(super) fn sum(&self, worth: impl Fn(u64) -> u64) -> u64 {
        self.lines.iter().map(|line| line.read().map(&worth).iter().sum::<u64>()).sum()
    }

    /// The counter for a number, modulo how many there are beside the first; what was read
    /// there; and the sum of what `worth` makes of the others.
    pub(super) fn one_and_others(
        &self,
        number: u32,
        worth: impl Fn(u64) -> u64,
    ) -> (&'a AtomicU64, u64, u64) {
        // The lines are a power of two.
        let at = (number as usize / LINE_CELLS) & (self.lines.len() - 1);
        let line = &self.lines[at];
        let in_line = number as usize % LINE_CELLS;
        // Each counter is read once, so that the one and the others belong together.
        let words = line.read();
        let worths = words.map(&worth);
        let mut others = worths.iter().sum::<u64>() - worths[in_line];
        if self.lines.len() > 1 {
            for (_, other) in self.lines.iter().enumerate().filter(|&(place, _)| place != at) {
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
    nodes: Box<[Node]>,
    /// Further counters of each node.
    lines: Box<[Line]>,
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
    lines_per_node: usize,
}

impl Slab {
    /// A slab of `slots` nodes with at least `cells_per_node` counters each beside the first.
    pub(super) fn new(slots: u32, cells_per_node: usize) -> Self {
        let lines = cells_per_node.div_ceil(LINE_CELLS);
        let chunks = (slots as usize).div_ceil(CHUNK_NODES);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            taken: AtomicU32::new(0),
            slots,
            lines_per_node: if lines == 0 { 0 } else { lines.next_power_of_two() },
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
        let node = &chunk.nodes[slot];
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
        Chunk {
            nodes: (0..CHUNK_NODES).map(|_| Node::empty()).collect(),
            lines: (0..CHUNK_NODES * self.lines_per_node).map(|_| Line::empty()).collect(),
            long_keys: OnceLock::new(),
        }
    }

    fn chunk_of(&self, index: u32) -> &Chunk {
        self.chunks[index as usize >> CHUNK_BITS].get().expect("the chunk of a slot that was taken")
    }

    /// The node in a slot that was taken.
    pub(super) fn node(&self, index: u32) -> &Node {
        &self.chunk_of(index).nodes[index as usize & (CHUNK_NODES - 1)]
    }

    /// The counters of the node.
    pub(super) fn cells(&self, index: u32) -> Cells<'_> {
        let chunk = self.chunk_of(index);
        let slot = index as usize & (CHUNK_NODES - 1);
        self.cells_in(chunk, slot)
    }

    fn cells_in<'a>(&self, chunk: &'a Chunk, slot: usize) -> Cells<'a> {
        let lines = &chunk.lines[slot * self.lines_per_node..][..self.lines_per_node];
        Cells { first: &chunk.nodes[slot].first, lines }
    }

    /// Calls `visit` with the counters of every slot that was taken.
    pub(super) fn for_each<'a>(&'a self, mut visit: impl FnMut(u32, Cells<'a>)) {
        let taken = self.taken.load(Ordering::Relaxed) as usize;
        for (number, chunk) in self.chunks.iter().take(taken.div_ceil(CHUNK_NODES)).enumerate() {
            // Absent while the first to take a slot of it has not finished.
            let Some(chunk) = chunk.get() else { continue };
            let first = number * CHUNK_NODES;
            for slot in 0..CHUNK_NODES.min(taken - first) {
                visit((first + slot) as u32, self.cells_in(chunk, slot));
            }
        }
    }

    /// Whether the slot, whose node is given with it, holds exactly this key.
    #[inline]
    pub(super) fn holds(&self, node: &Node, index: u32, key: &[u8]) -> bool {
        if node.key_len.load(Ordering::Relaxed) as usize != key.len() {
            return false;
        }
        if key.len() > INLINE_BYTES {
            return self.long_key(index) == key;
        }
        // All five words without a branch: where a key differs cannot be predicted.
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
        let per_chunk = CHUNK_NODES * (size_of::<Node>() + self.lines_per_node * size_of::<Line>());
        let allocated = self.chunks.iter().filter(|c| c.get().is_some()).count();
        allocated * per_chunk + self.chunks.len() * size_of::<OnceLock<Chunk>>()
    }
}

/// Where the words of a key of 8 to 40 bytes begin, and how many of them there are.
///
/// The last ones overlap those before, so that a few fixed shapes serve every length and
/// no loop has to find out where a key ends.
const fn word_places(len: usize) -> ([usize; INLINE_WORDS], usize) {
    match len {
        8..=16 => ([0, len - 8, 0, 0, 0], 2),
        17..=32 => ([0, 8, len - 16, len - 8, 0], 4),
        _ => ([0, 8, 16, 24, len - 8], 5),
    }
}

/// A key of up to 40 bytes as words at `word_places`, zero where there are none.
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
                [first[0], first[1], second[0], second[1], last[1]]
            }
            _ => [first[0], first[1], last[0], last[1], 0],
        }
    } else if let (Some(first), Some(last)) = (key.first_chunk(), key.last_chunk()) {
        [u64::from_le_bytes(*first), u64::from_le_bytes(*last), 0, 0, 0]
    } else {
        let word = key.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte));
        [word, 0, 0, 0, 0]
    }
}
