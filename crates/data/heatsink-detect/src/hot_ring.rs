//! The hot ring: which keys are touched most, by name, without a lock.
//!
//! Called by: anything that wants raw keys with counts; many threads may share a ring.
//! Bound: `node_cap` keys a generation (twice that with sampling), two generations at
//! most; 128 bytes a key with the default window, plus keys longer than 40 bytes.
//! Invariant: within a generation a key has one node at most, and a touch is counted in
//! it exactly once.
//!
//! # What it does
//!
//! [`HotRing::touch`] counts, [`HotRing::frequency`] looks, [`HotRing::touch_and_clamp`]
//! counts up to a limit, [`HotRing::top_n`] and [`HotRing::keys_above`] name the hot keys.
//! Time is an argument (`now_ms`, from any clock that does not run backwards), so
//! whatever a ring answers can be replayed. Threads whose clocks differ a little are
//! fine: a touch that comes late counts in its own period, or in the newer one that has
//! taken its place.
//!
//! ```
//! use heatsink_detect::hot_ring::{HotRing, HotRingConfig};
//!
//! let ring = HotRing::new(&HotRingConfig::reads(), 0)?;
//! for _ in 0..3 {
//!     ring.touch(b"user:1", 0);
//! }
//! ring.touch(b"user:2", 0);
//!
//! assert_eq!(ring.frequency(b"user:1", 0), 3);
//! assert_eq!(&*ring.top_n(1, 0)[0].key, b"user:1");
//! assert_eq!(ring.keys_above(2, 0).len(), 1);
//!
//! // The default window is two seconds long; then the touches are forgotten.
//! assert_eq!(ring.frequency(b"user:1", 1_999), 3);
//! assert_eq!(ring.frequency(b"user:1", 2_000), 0);
//! # Ok::<(), heatsink_detect::hot_ring::ConfigError>(())
//! ```
//!
//! # How the lists stay short
//!
//! All keys are in one linked list, ordered by (tag, key), where the tag is the hash with
//! its bits reversed. A bucket is an entrance into that list. Two things keep the way from
//! an entrance to a key short, however many keys there are:
//!
//! - **The table grows.** When there are more keys than buckets, the buckets double.
//!   Because of the reversed bits no node moves: the new entrances are put into the list
//!   where the old buckets split, each when it is first needed. A list is about one node
//!   long at any size, 4096 buckets are only where it begins.
//! - **Admission**, when [`HotRingConfig::admission`] is set: a key gets a node only after
//!   some touches within a short period, estimated by a small sketch. The keys touched
//!   once and never again, which are most keys, then cost no node at all. The count of an
//!   admitted key begins with the touch that admitted it, so it is never too high.
//!
//! # What is lock-free
//!
//! Nodes live in a slab and are named by index; they are added by compare-and-swap and
//! never removed, so there is nothing to reclaim and no unsafe code. Readers never wait.
//! Inserting a key may have to allocate (a chunk of 1024 nodes, or more buckets) and other
//! *inserting* threads then wait for that allocation. Old keys disappear by rotation:
//! the active generation becomes the warm one, the previous warm one is dropped whole
//! once the last reader has left it. Touching a key that has a node allocates nothing.

mod aging;
mod brief;
mod buckets;
mod config;
mod filter;
mod generation;
mod link;
mod period;
mod report;
mod rings;
mod slab;
mod sync;

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::{
    fmt,
    hash::{BuildHasher, Hasher},
};

use foldhash::quality::FixedState;

use self::{
    aging::{Aging, Period},
    filter::Filter,
    generation::{Generation, Limits},
    report::Pass,
    sync::{Arc, Mutex, Swap},
};
pub use self::{
    config::{Admission, ConfigError, Decay, HotRingConfig, Rotation, Window},
    report::HotKey,
    rings::HotRings,
};

/// What [`HotRing::touch_and_clamp`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clamped {
    /// The count of the key, with this touch in it unless it was limited.
    pub count: u64,
    /// The key was at the limit and the touch was not counted.
    pub limited: bool,
}

/// How much a ring holds at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Keys in the active generation.
    pub active_nodes: usize,
    /// Keys in the warm generation.
    pub warm_nodes: usize,
    /// Buckets of the active generation.
    pub buckets: usize,
    /// Bytes of nodes, counters, buckets and filter; keys over 40 bytes come on top.
    pub allocated_bytes: usize,
}

/// The two generations, replaced together.
#[derive(Debug)]
struct Pair {
    active: Arc<Generation>,
    warm: Option<Arc<Generation>>,
    /// The rotation period that `active` belongs to.
    rotation: u64,
}

/// Where the generations are.
#[derive(Debug)]
enum Generations {
    /// The pair of a ring that never rotates.
    Fixed(Pair),
    /// A pair that rotation replaces.
    Rotating(Swap<Pair>),
}

/// A bounded counter of touches by key; see the [module](self) for the whole picture.
pub struct HotRing {
    generations: Generations,
    /// Held by the thread that rotates; nobody waits for it but [`HotRing::rotate`].
    rotating: Mutex<()>,
    filter: Option<Filter>,
    aging: Aging,
    limits: Limits,
    hasher: FixedState,
    sample_mask: u64,
    rotate_every_ms: Option<u64>,
}

impl HotRing {
    /// An empty ring; the first rotation period is the one that `now_ms` lies in.
    pub fn new(config: &HotRingConfig, now_ms: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let aging = Aging::of(config);
        let nodes = config.node_cap as u32;
        let limits = Limits {
            nodes,
            nodes_sampled: if config.sample_bits == 0 { nodes } else { nodes * 2 },
            bucket_bits: config.buckets.ilog2(),
            cells_per_node: aging.cells(),
        };
        let seed = config
            .seed
            .unwrap_or_else(|| std::collections::hash_map::RandomState::new().hash_one(0));
        let rotate_every_ms = match config.rotation {
            Rotation::Every(every_ms) => Some(every_ms),
            Rotation::Off | Rotation::OnCall => None,
        };
        let pair = Pair {
            active: Arc::new(Generation::new(limits)),
            warm: None,
            rotation: rotate_every_ms.map_or(0, |every_ms| now_ms / every_ms),
        };
        Ok(Self {
            generations: match config.rotation {
                Rotation::Off => Generations::Fixed(pair),
                Rotation::OnCall | Rotation::Every(_) => Generations::Rotating(Swap::new(pair)),
            },
            rotating: Mutex::new(()),
            filter: config.admission.map(Filter::new),
            aging,
            limits,
            hasher: FixedState::with_seed(seed),
            sample_mask: (1 << config.sample_bits) - 1,
            rotate_every_ms,
        })
    }

    /// Counts a touch and returns the key's count, as [`HotRing::frequency`] would.
    ///
    /// A key that has no node gets one, unless the ring is full or the admission filter
    /// has not seen it often enough; then the touch is not counted.
    pub fn touch(&self, key: &[u8], now_ms: u64) -> u64 {
        self.count_touch(key, now_ms, u64::MAX).count
    }

    /// Counts a touch unless the key's count is at `limit` already.
    ///
    /// Threads that do this at once never exceed the limit within one slot of the window;
    /// where two slots meet, threads whose clocks differ may exceed it by one each. A key
    /// that the ring cannot hold is never limited.
    ///
    /// ```
    /// use heatsink_detect::hot_ring::{Clamped, HotRing, HotRingConfig};
    ///
    /// let ring = HotRing::new(&HotRingConfig::writes(), 0)?;
    /// assert_eq!(ring.touch_and_clamp(b"stock:9", 2, 0), Clamped { count: 1, limited: false });
    /// assert_eq!(ring.touch_and_clamp(b"stock:9", 2, 0), Clamped { count: 2, limited: false });
    /// assert_eq!(ring.touch_and_clamp(b"stock:9", 2, 0), Clamped { count: 2, limited: true });
    /// // The first two touches leave the window, and there is room again.
    /// assert!(!ring.touch_and_clamp(b"stock:9", 2, 600).limited);
    /// # Ok::<(), heatsink_detect::hot_ring::ConfigError>(())
    /// ```
    pub fn touch_and_clamp(&self, key: &[u8], limit: u64, now_ms: u64) -> Clamped {
        self.count_touch(key, now_ms, limit)
    }

    /// The touches of a key that still count: the larger of the two generations' counts.
    ///
    /// Zero for a key that has no node. Reads only, whatever the time.
    pub fn frequency(&self, key: &[u8], now_ms: u64) -> u64 {
        let hash = self.hash(key);
        let now = self.aging.period(now_ms);
        self.with_pair(|pair| {
            let (active, warm) = self.visible(pair, now_ms);
            let of = |keys: &Generation| self.count_in(keys, hash, key, now);
            active.map_or(0, of).max(warm.map_or(0, of))
        })
    }

    /// The `n` hottest keys, the hottest first; equals in the order of their keys.
    ///
    /// Counts are the sums over both generations. Two passes over the counters of all keys,
    /// which takes about 20 ns a key.
    pub fn top_n(&self, n: usize, now_ms: u64) -> Vec<HotKey> {
        self.pass(now_ms, |pass| pass.top_n(n))
    }

    /// Every key with a count of at least `threshold`, the hottest first.
    ///
    /// Counts are the sums over both generations. One pass over the counters of all keys. A
    /// threshold of zero gives the same as one: keys without a count are not reported.
    pub fn keys_above(&self, threshold: u64, now_ms: u64) -> Vec<HotKey> {
        self.pass(now_ms, |pass| pass.keys_above(threshold))
    }

    /// Whether a key is one of those still admitted when the ring is at its cap.
    ///
    /// Always the same keys for the same seed; none with `sample_bits` of zero.
    pub fn is_sampled(&self, key: &[u8]) -> bool {
        self.in_sample(self.hash(key))
    }

    /// Makes the active generation the warm one and begins an empty one, at once.
    ///
    /// Does nothing and returns false when the rotation is off.
    ///
    /// ```
    /// use heatsink_detect::hot_ring::{HotRing, HotRingConfig, Rotation};
    ///
    /// let config = HotRingConfig { rotation: Rotation::OnCall, ..HotRingConfig::reads() };
    /// let ring = HotRing::new(&config, 0)?;
    /// ring.touch(b"a", 0);
    /// ring.touch(b"a", 0);
    /// ring.rotate();
    /// ring.touch(b"a", 0);
    /// assert_eq!(ring.frequency(b"a", 0), 2); // the larger
    /// assert_eq!(ring.top_n(1, 0)[0].count, 3); // the sum
    /// ring.rotate();
    /// assert_eq!(ring.frequency(b"a", 0), 1);
    /// # Ok::<(), heatsink_detect::hot_ring::ConfigError>(())
    /// ```
    pub fn rotate(&self) -> bool {
        let Generations::Rotating(swap) = &self.generations else {
            return false;
        };
        let _guard = self.rotating.lock().expect("no panic under this lock");
        let pair = Arc::clone(&swap.load());
        self.begin_generation(swap, Some(Arc::clone(&pair.active)), pair.rotation);
        true
    }

    /// How much the ring holds.
    pub fn usage(&self) -> Usage {
        self.with_pair(|pair| {
            let warm = pair.warm.as_ref();
            Usage {
                active_nodes: pair.active.len() as usize,
                warm_nodes: warm.map_or(0, |keys| keys.len() as usize),
                buckets: pair.active.bucket_count(),
                allocated_bytes: pair.active.allocated_bytes()
                    + warm.map_or(0, |keys| keys.allocated_bytes())
                    + self.filter.as_ref().map_or(0, Filter::allocated_bytes),
            }
        })
    }

    fn with_pair<R>(&self, run: impl FnOnce(&Pair) -> R) -> R {
        match &self.generations {
            Generations::Fixed(pair) => run(pair),
            Generations::Rotating(swap) => run(&swap.load()),
        }
    }

    /// The pair as it is at `now_ms`, rotated if that is due.
    fn with_pair_at<R>(&self, now_ms: u64, run: impl FnOnce(&Pair) -> R) -> R {
        match &self.generations {
            Generations::Fixed(pair) => run(pair),
            Generations::Rotating(swap) => {
                let pair = swap.load();
                if self.rotations_due(&pair, now_ms).1 == 0 {
                    return run(&pair);
                }
                drop(pair);
                self.rotate_to(swap, now_ms);
                run(&swap.load())
            }
        }
    }

    fn count_touch(&self, key: &[u8], now_ms: u64, limit: u64) -> Clamped {
        let hash = self.hash(key);
        self.with_pair_at(now_ms, |pair| self.count_touch_in(pair, hash, key, now_ms, limit))
    }

    fn count_touch_in(
        &self,
        pair: &Pair,
        hash: u64,
        key: &[u8],
        now_ms: u64,
        limit: u64,
    ) -> Clamped {
        let now = self.aging.period(now_ms);
        let warm_node = pair.warm.as_ref().and_then(|keys| keys.find(hash, key));
        let warm = match (&pair.warm, warm_node) {
            (Some(keys), Some(index)) => self.aging.count(keys.cells(index), now),
            _ => 0,
        };
        if warm >= limit {
            let active = self.count_in(&pair.active, hash, key, now);
            return Clamped { count: warm.max(active), limited: true };
        }
        let node = pair.active.find_or_gap(hash, key).or_else(|gap| {
            // A key that the warm generation knows has been admitted before.
            let admitted = warm_node.is_some()
                || self.filter.as_ref().is_none_or(|filter| filter.admits(hash, now_ms));
            if !admitted {
                return Err(gap);
            }
            pair.active.insert(hash, key, gap, self.in_sample(hash)).ok_or(gap)
        });
        let Ok(index) = node else {
            return Clamped { count: warm, limited: false };
        };
        let (count, limited) = self.aging.touch(pair.active.cells(index), now, limit);
        Clamped { count: count.max(warm), limited }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    fn in_sample(&self, hash: u64) -> bool {
        // The top bits, since the lowest choose the bucket.
        self.sample_mask != 0 && (hash >> 44) & self.sample_mask == 0
    }

    fn count_in(&self, keys: &Generation, hash: u64, key: &[u8], now: Period) -> u64 {
        keys.find(hash, key).map_or(0, |index| self.aging.count(keys.cells(index), now))
    }

    fn pass<R>(&self, now_ms: u64, report: impl FnOnce(&Pass<'_>) -> R) -> R {
        let now = self.aging.period(now_ms);
        self.with_pair_at(now_ms, |pair| {
            report(&Pass::new(self.aging, now, &pair.active, pair.warm.as_deref()))
        })
    }

    /// Rotation periods that have begun since the active generation did.
    fn rotations_due(&self, pair: &Pair, now_ms: u64) -> (u64, u64) {
        let rotation = self.rotate_every_ms.map_or(0, |every| now_ms / every);
        (rotation, rotation.saturating_sub(pair.rotation))
    }

    /// What the generations are at `now_ms`, even when nobody has rotated them yet.
    fn visible<'a>(
        &self,
        pair: &'a Pair,
        now_ms: u64,
    ) -> (Option<&'a Generation>, Option<&'a Generation>) {
        match self.rotations_due(pair, now_ms).1 {
            0 => (Some(&pair.active), pair.warm.as_deref()),
            1 => (None, Some(&pair.active)),
            _ => (None, None),
        }
    }

    #[cold]
    fn rotate_to(&self, swap: &Swap<Pair>, now_ms: u64) {
        // Whoever does not get the lock goes on with the generations there are: its touch
        // goes to the one that becomes warm, and is counted there.
        let Ok(_guard) = self.rotating.try_lock() else {
            return;
        };
        let pair = Arc::clone(&swap.load());
        let (rotation, due) = self.rotations_due(&pair, now_ms);
        match due {
            0 => {}
            1 => self.begin_generation(swap, Some(Arc::clone(&pair.active)), rotation),
            _ => self.begin_generation(swap, None, rotation),
        }
    }

    fn begin_generation(&self, swap: &Swap<Pair>, warm: Option<Arc<Generation>>, rotation: u64) {
        swap.store(Pair { active: Arc::new(Generation::new(self.limits)), warm, rotation });
    }
}

impl fmt::Debug for HotRing {
    /// How much it holds; the keys are [`HotRing::top_n`]'s to tell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotRing").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
