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
use crate::load::{Loader, caught};
use crate::loaded::{Context, Loaded, What};
use crate::observer::Event;
use crate::record::{Payload, Record, Version};
use crate::sync::timeout_at;

/// What a flight is to do.
#[expect(clippy::struct_excessive_bools, reason = "they say what a caller wants, and combine")]
pub(crate) struct Job<V> {
    pub(crate) loader: Loader<V>,
    pub(crate) ttl: Option<Duration>,
    /// What this process has of the key.
    pub(crate) known: Option<Arc<Record<V>>>,
    /// Whether it is to be replaced, however good it still is.
    pub(crate) refreshes: bool,
    /// Whether that is before its time to live is over.
    pub(crate) is_early: bool,
    /// Whether callers are served the old value meanwhile.
    pub(crate) is_background: bool,
    /// Whether what the shared tier has is not good enough.
    pub(crate) anew: bool,
    /// Whether the caller does not take what is stale, or in the case of `anew` what was there.
    pub(crate) insists: bool,
}

impl<V> Job<V> {
    pub(crate) fn new(loader: Loader<V>, options: Options, known: Option<Arc<Record<V>>>) -> Self {
        Self {
            loader,
            ttl: options.ttl,
            known,
            refreshes: false,
            is_early: false,
            is_background: false,
            anew: options.anew,
            insists: options.insists(),
        }
    }

    /// To replace what is known while callers are served that.
    pub(crate) fn in_background(mut self, is_early: bool) -> Self {
        self.refreshes = true;
        self.is_early = is_early;
        self.is_background = true;
        self
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
    let limit = limit(inner, &job);
    let deadline = Instant::now() + limit.unwrap_or(inner.settings.load_timeout);
    let refreshed = job.known.clone().filter(|_| job.refreshes);
    let course = course(inner, &landing.key, &landing.flight, job, deadline);
    let outcome = match timeout_at(deadline.into(), caught(course)).await {
        Ok(Ok(outcome)) => outcome,
        // Not the loader's, which is caught there: of a codec, say.
        Ok(Err(panic)) => Outcome::Failed(panic),
        Err(_) => Outcome::Failed(Failure::Timeout),
    };
    let outcome = match outcome {
        Outcome::Failed(Failure::Timeout) if limit.is_some() => Outcome::Failed(Failure::Overdue),
        outcome => outcome,
    };
    if let Outcome::Failed(failure) | Outcome::Instead(.., failure) = &outcome {
        // Nobody tries again at once: those who come now are served the old value.
        if let Some(record) = refreshed {
            record.postpone_retry(inner.clock.now() + whole_ms(inner.pause()));
        }
        inner.log_failure(failure, limit.is_some());
    }
    landing.land(outcome);
}

/// A refresh in the background is given up when the value that it is to replace is gone: who comes
/// then loads by themselves. One that began shortly before gets the time that it is likely to need.
fn limit<K, V>(inner: &Inner<K, V>, job: &Job<V>) -> Option<Duration> {
    let record = job.known.as_ref().filter(|_| job.is_background)?;
    Some(time_to_refresh(inner, record).min(inner.settings.load_timeout))
}

/// How long a refresh of a record may take before others no longer wait for it.
pub(crate) fn time_to_refresh<K, V>(inner: &Inner<K, V>, record: &Record<V>) -> Duration {
    let left = record.life.kept_for().saturating_sub(record.age(inner.clock.now()));
    left.max((record.life.cost * 4).max(LEAST_TO_REFRESH))
}

const LEAST_TO_REFRESH: Duration = Duration::from_millis(100);

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

/// Loads without a shared tier, and keeps what comes for so long in this process. First it looks again:
///
/// ```text
/// one                         other
///   leads a flight            finds nothing
///   loads, keeps, lands
///                             leads a flight: it is there by now
/// ```
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
    if !job.refreshes
        && !job.insists
        && let Some(record) = inner.look_again(key)
    {
        return Outcome::Value(record, Source::Local);
    }
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
    let Job { loader, ttl, is_background, is_early, .. } = job;
    let is_current =
        |record: &&Arc<Record<V>>| inner.fences.holds(record.fence(), inner.clock.now());
    let stale = stale.filter(is_current);
    let context = Context { stale: stale.cloned(), deadline, token };
    let begun = || {
        inner.count(Count::Loads);
        if is_background {
            inner.count(Count::Refreshes);
        }
        if is_background && is_early {
            inner.count(Count::EarlyRefreshes);
        }
    };
    let Some((end, cost)) = loader.run(&inner.turns, begun, context).await else {
        return Err(Failure::Timeout);
    };
    let failure = end.as_ref().err().map(Failure::kind);
    inner.tell(Event::Loaded { cost, refresh: is_background, failure });
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
        let outcome = self.outcome.take().unwrap_or_else(|| {
            Outcome::Failed(if std::thread::panicking() {
                Failure::Panicked("beside the loader".into())
            } else {
                Failure::Closed
            })
        });
        self.flight.finish(outcome);
    }
}
