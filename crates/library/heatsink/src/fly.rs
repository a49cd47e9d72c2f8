//! The task of a flight: from the wish for a key to the value, kept where it belongs.
//!
//! Called by: `cache`, which spawns it.
//! Bound: every flight has a deadline, after which it is given up and its callers are told.
//! Invariant: what a flight keeps is fenced by the epoch from before its read, so nothing that was
//! written or deleted meanwhile comes back.

#[cfg(feature = "redis")]
pub(crate) mod shared;

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_cache::stampede::freshness::Life;
use tokio::time::timeout_at;

#[cfg(feature = "redis")]
pub(crate) use shared::{invalidate_shared, put_shared};

use crate::cache::Options;
use crate::clock::{Ms, whole_ms};
use crate::counters::Count;
use crate::entry::Source;
use crate::error::Failure;
use crate::fence::{Fence, NO_LINK};
use crate::flight::{Flight, Outcome};
use crate::inner::{Inner, Making};
use crate::load::Loader;
use crate::loaded::{Context, Loaded, What};
use crate::observer::Event;
use crate::record::{Payload, Record, Version};

/// What a flight is to do.
pub(crate) struct Job<V> {
    pub(crate) loader: Loader<V>,
    pub(crate) ttl: Option<Duration>,
    /// What this process has of the key.
    pub(crate) known: Option<Arc<Record<V>>>,
    /// Whether it is to be replaced, however good it still is.
    pub(crate) refreshes: bool,
    /// Whether that is before its time to live is over.
    pub(crate) is_early: bool,
    /// Whether what the shared tier has is not good enough.
    pub(crate) anew: bool,
}

impl<V> Job<V> {
    pub(crate) fn new(loader: Loader<V>, options: Options, known: Option<Arc<Record<V>>>) -> Self {
        Self {
            loader,
            ttl: options.ttl,
            known,
            refreshes: false,
            is_early: false,
            anew: options.anew,
        }
    }
}

/// What was loaded, before it is a record.
pub(crate) struct Judged<V> {
    payload: Payload<V>,
    life: Life,
    no_store: bool,
}

/// Runs a flight to its end. The landing is made before the task is: one that is never run, because
/// the runtime is gone, ends the flight, too.
pub(crate) async fn fly<K, V>(landing: Landing<K, V>, job: Job<V>)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let inner = &landing.inner;
    let deadline = Instant::now() + limit(inner, &job);
    let refreshed = job.known.clone().filter(|_| job.refreshes);
    let course = course(inner, &landing.key, &landing.flight, job, deadline);
    let outcome = match timeout_at(deadline.into(), course).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Failed(Failure::Timeout),
    };
    if let Outcome::Failed(failure) = &outcome {
        // Nobody tries again at once: those who come now are served the old value.
        if let Some(record) = refreshed {
            record.postpone_retry(inner.clock.now() + whole_ms(inner.pause()));
        }
        tracing::debug!(cache = inner.name, failure = failure.kind(), "a load failed");
    }
    landing.land(outcome);
}

/// A refresh that hangs is given up when the value that it is to replace is gone, so that others
/// can load it; but it gets the hard timeout in any case.
fn limit<K, V>(inner: &Inner<K, V>, job: &Job<V>) -> Duration {
    let settings = &inner.settings;
    let most = settings.load_timeout;
    match &job.known {
        Some(record) if job.refreshes => {
            let left = record.life.kept_for().saturating_sub(record.age(inner.clock.now()));
            left.max(settings.hard_timeout).min(most)
        }
        _ => most,
    }
}

pub(crate) async fn course<K, V>(
    inner: &Arc<Inner<K, V>>,
    key: &K,
    flight: &Flight<V>,
    job: Job<V>,
    deadline: Instant,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    #[cfg(feature = "redis")]
    if let Some(shared) = &inner.shared {
        return shared::course(inner, shared, key, flight, job, deadline).await;
    }
    let fence = inner.fences.take(flight.stripe, NO_LINK);
    flight.begin_read(fence.epoch);
    alone(inner, key, flight, job, deadline, Some(fence), Ms::MAX).await
}

/// Loads without a shared tier, and keeps what comes for so long in this process.
async fn alone<K, V>(
    inner: &Arc<Inner<K, V>>,
    key: &K,
    flight: &Flight<V>,
    job: Job<V>,
    deadline: Instant,
    fence: Option<Fence>,
    keep_for: Ms,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let stale = job.known.clone();
    let result = match run(inner, job, stale.as_ref(), deadline, None).await {
        Ok(result) => result,
        Err(failure) => return Outcome::Failed(failure),
    };
    keep_alone(inner, key, flight, result, fence, keep_for)
}

/// Keeps what was loaded in this process, for so long at most.
pub(crate) fn keep_alone<K, V>(
    inner: &Inner<K, V>,
    key: &K,
    flight: &Flight<V>,
    judged: Judged<V>,
    fence: Option<Fence>,
    keep_for: Ms,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let now = inner.clock.now();
    let record = Arc::new(inner.record(
        key,
        judged.payload,
        &Making {
            born: now,
            life: judged.life,
            fence,
            stripe: flight.stripe,
            link: NO_LINK,
            local_until: now.saturating_add(keep_for),
            version: Version::default(),
            bytes: 0,
        },
    ));
    if !judged.no_store && fence.is_some() {
        inner.flights.keep(flight, || inner.keep(key, &record, now));
    }
    Outcome::Value(record, Source::Loaded)
}

/// Runs the loader when its turn has come.
async fn run<K, V>(
    inner: &Arc<Inner<K, V>>,
    job: Job<V>,
    stale: Option<&Arc<Record<V>>>,
    deadline: Instant,
    token: Option<u128>,
) -> Result<Judged<V>, Failure>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let Job { loader, ttl, refreshes, is_early, .. } = job;
    let is_current =
        |record: &&Arc<Record<V>>| inner.fences.holds(record.fence(), inner.clock.now());
    let stale = stale.filter(is_current);
    let context = Context { stale: stale.cloned(), deadline, token };
    let begun = || {
        inner.count(Count::Loads);
        if refreshes {
            inner.count(Count::Refreshes);
        }
        if is_early {
            inner.count(Count::EarlyRefreshes);
        }
    };
    let (end, cost) = loader.run(&inner.turns, begun, context).await;
    let failure = end.as_ref().err().map(Failure::kind);
    inner.tell(Event::Loaded { cost, refresh: refreshes, failure });
    match end {
        Ok(loaded) => Ok(judge(inner, loaded, ttl, cost, stale)),
        Err(failure) => {
            inner.count(Count::LoadsFailed);
            Err(failure)
        }
    }
}

/// What a loader's result is good for.
pub(crate) fn judge<K, V>(
    inner: &Inner<K, V>,
    loaded: Loaded<V>,
    ttl: Option<Duration>,
    cost: Duration,
    stale: Option<&Arc<Record<V>>>,
) -> Judged<V> {
    let policy = &inner.settings.policy;
    let draw = fastrand::f64();
    let said = loaded.ttl.or(ttl);
    let absent = || policy.absent_life(loaded.ttl, cost, draw);
    let (payload, life, is_nothing) = match (loaded.what, stale) {
        (What::Value(value), _) => (Payload::Value(value), policy.life(said, cost, draw), false),
        (What::NotModified, Some(record)) => match record.same() {
            Payload::Absent => (Payload::Absent, absent(), false),
            same => (same, policy.life(said, cost, draw), false),
        },
        (What::NotModified, None) => (Payload::Absent, absent(), true),
        (What::Absent, _) => (Payload::Absent, absent(), false),
    };
    let no_store = loaded.no_store || is_nothing || life.kept_for().is_zero();
    Judged { payload, life, no_store }
}

/// Ends a flight however it ends: a task that is dropped with its runtime leaves nobody waiting.
pub(crate) struct Landing<K: Hash + Eq, V> {
    inner: Arc<Inner<K, V>>,
    pub(crate) key: K,
    pub(crate) flight: Arc<Flight<V>>,
    outcome: Option<Outcome<V>>,
}

impl<K: Hash + Eq + Clone, V> Landing<K, V> {
    pub(crate) fn new(inner: &Arc<Inner<K, V>>, key: &K, flight: &Arc<Flight<V>>) -> Self {
        let (inner, flight) = (Arc::clone(inner), Arc::clone(flight));
        Self { inner, key: key.clone(), flight, outcome: None }
    }
}

impl<K: Hash + Eq, V> Landing<K, V> {
    pub(crate) fn land(mut self, outcome: Outcome<V>) {
        self.outcome = Some(outcome);
    }
}

impl<K: Hash + Eq, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        // In this order: who comes between the two leads a flight of their own, and is not told of
        // an error from before they asked.
        self.inner.flights.end(&self.key, &self.flight);
        let outcome = self.outcome.take().unwrap_or(Outcome::Failed(Failure::Closed));
        self.flight.finish(outcome);
    }
}
