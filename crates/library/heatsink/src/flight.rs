//! Flights: one load serves every caller of this process that wants the key.
//!
//! A flight is a task of its own. Callers that give up do not end it, and what it finds is kept all
//! the same. Its result, or its error, reaches every caller that waits for it, once.
//!
//! Called by: `cache`, to join or lead; `fly`, the task.
//! Bound: [`Flights::begin`] refuses beyond a number of keys; each flight has a deadline.
//! Invariant: nobody joins a flight whose answer may be older than their own question. A flight
//! knows the epoch of its key from before its read; when the key was written since, the next caller
//! leads a new one:
//!
//! ```text
//! A: get    leads flight 1, reads old
//! B:                                   put new, returns
//! C: get                               flight 1 is from before the put: leads flight 2, reads new
//! A: gets old                          (asked before the put: either is right)
//! ```

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use crate::clock::Ms;
use crate::entry::Source;
use crate::error::Failure;
use crate::fence::Fences;
use crate::record::Record;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, step};

const SHARDS: usize = 16;

/// How a flight ended.
pub(crate) enum Outcome<V> {
    Value(Arc<Record<V>>, Source),
    /// An older value, because the load failed. Who wants no such thing is told of the failure.
    Instead(Arc<Record<V>>, Source, Failure),
    Failed(Failure),
}

impl<V> Clone for Outcome<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Value(record, source) => Self::Value(Arc::clone(record), *source),
            Self::Instead(record, source, failure) => {
                Self::Instead(Arc::clone(record), *source, failure.clone())
            }
            Self::Failed(failure) => Self::Failed(failure.clone()),
        }
    }
}

/// One load that is under way.
pub(crate) struct Flight<V> {
    pub(crate) stripe: u32,
    epoch: AtomicU64,
    /// What those get who take the first thing there is: a stale value comes before the fresh one.
    first: OnceLock<Outcome<V>>,
    /// What came after that, before the flight has ended.
    second: OnceLock<Outcome<V>>,
    last: OnceLock<Outcome<V>>,
    /// What will do for those whose patience ends before the flight does.
    spare: OnceLock<Arc<Record<V>>>,
    changed: Notify,
    /// The key was written meanwhile: nobody joins, and nothing is kept.
    is_detached: AtomicBool,
    /// From then on nobody joins: the value that it refreshes is gone, and it is late.
    joined_until: AtomicU64,
}

impl<V> Flight<V> {
    fn new(stripe: u32, epoch: u64) -> Self {
        Self {
            stripe,
            epoch: AtomicU64::new(epoch),
            first: OnceLock::new(),
            second: OnceLock::new(),
            last: OnceLock::new(),
            spare: OnceLock::new(),
            changed: Notify::new(),
            is_detached: AtomicBool::new(false),
            joined_until: AtomicU64::new(Ms::MAX),
        }
    }

    /// It is a refresh that has so much time.
    pub(crate) fn is_due_by(&self, then: Ms) {
        self.joined_until.store(then, Ordering::Relaxed);
    }

    /// Who joins from now on is answered by a read that begins after this.
    pub(crate) fn begin_read(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Who joins may still be given the answer, if nothing but an own write has happened.
    pub(crate) fn renew(&self, before: u64, after: u64) {
        let _ = self.epoch.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn answer_first(&self, outcome: Outcome<V>) {
        step();
        if let Err(outcome) = self.first.set(outcome) {
            let _ = self.second.set(outcome);
        }
        step();
        self.changed.notify_waiters();
    }

    pub(crate) fn finish(&self, outcome: Outcome<V>) {
        step();
        let _ = self.last.set(outcome.clone());
        let _ = self.first.set(outcome);
        step();
        self.changed.notify_waiters();
    }

    /// An old value is there, for when the load fails or takes too long.
    pub(crate) fn spare(&self, record: Option<Arc<Record<V>>>) {
        if let Some(record) = record {
            let _ = self.spare.set(record);
        }
    }

    /// The old value that there is.
    pub(crate) fn instead(&self) -> Option<Arc<Record<V>>> {
        self.spare.get().cloned()
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.first.get().is_some()
    }

    /// The first thing there is, or what came after it by now.
    pub(crate) async fn first(&self) -> Outcome<V> {
        self.wait(|| self.second.get().or_else(|| self.first.get())).await
    }

    /// What it comes to in the end.
    pub(crate) async fn last(&self) -> Outcome<V> {
        self.wait(|| self.last.get()).await
    }

    async fn wait<'a>(&'a self, slot: impl Fn() -> Option<&'a Outcome<V>>) -> Outcome<V> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so that an answer between the two is not missed.
            changed.as_mut().enable();
            step();
            if let Some(outcome) = slot() {
                return outcome.clone();
            }
            changed.await;
        }
    }
}

type Shard<K, V> = HashMap<K, Arc<Flight<V>>, RandomState>;

/// The flights of one cache.
pub(crate) struct Flights<K, V> {
    shards: Box<[Mutex<Shard<K, V>>]>,
    most: usize,
    under_way: AtomicU64,
}

/// What became of the wish to load a key.
pub(crate) enum Begun<V> {
    /// Somebody does so already.
    Joined(Arc<Flight<V>>),
    /// The caller has to run this one.
    Leads(Arc<Flight<V>>),
    /// There are too many flights.
    Refused,
}

impl<K: Hash + Eq, V> Flights<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::default())).collect();
        Self { shards, most, under_way: AtomicU64::new(0) }
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Joins the flight of the key if its answer will be good enough, else leads a new one.
    pub(crate) fn begin<Q>(&self, key: &Q, fences: &Fences, stripe: u32, now: Ms) -> Begun<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut shard = self.shard(stripe);
        let epoch = fences.epoch(stripe);
        if let Some(flight) = shard.get(key)
            && flight.epoch.load(Ordering::Acquire) == epoch
            && now < flight.joined_until.load(Ordering::Relaxed)
        {
            return Begun::Joined(Arc::clone(flight));
        }
        if self.under_way.load(Ordering::Relaxed) >= self.most as u64 {
            return Begun::Refused;
        }
        let flight = Arc::new(Flight::new(stripe, epoch));
        self.under_way.fetch_add(1, Ordering::Relaxed);
        if let Some(older) = shard.insert(key.to_owned(), Arc::clone(&flight)) {
            // What it still brings is older than what this one will.
            older.is_detached.store(true, Ordering::Relaxed);
        }
        Begun::Leads(flight)
    }

    /// A key is written in this process. With the flights locked the flight of the key is detached,
    /// and `write` is done: neither can come between the other's two steps.
    ///
    /// ```text
    /// flight                       put
    ///   loaded old
    ///                              detaches the flight, keeps new
    ///   is detached: keeps nothing
    /// ```
    pub(crate) fn change<Q>(&self, key: &Q, stripe: u32, write: impl FnOnce())
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut shard = self.shard(stripe);
        if let Some(flight) = shard.remove(key) {
            flight.is_detached.store(true, Ordering::Relaxed);
        }
        write();
    }

    /// Does `keep` unless the key was written since the flight began.
    pub(crate) fn keep(&self, flight: &Flight<V>, keep: impl FnOnce()) {
        let _shard = self.shard(flight.stripe);
        if !flight.is_detached.load(Ordering::Relaxed) {
            keep();
        }
    }

    /// The flight is over; the next caller leads a new one.
    pub(crate) fn end<Q>(&self, key: &Q, flight: &Arc<Flight<V>>)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut shard = self.shard(flight.stripe);
        if shard.get(key).is_some_and(|current| Arc::ptr_eq(current, flight)) {
            shard.remove(key);
        }
        drop(shard);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    fn shard(&self, stripe: u32) -> impl std::ops::DerefMut<Target = Shard<K, V>> {
        let shard = &self.shards[stripe as usize % SHARDS];
        shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
