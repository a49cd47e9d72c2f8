//! Many keys with one query.
//!
//! Called by: the application, through [`Cache::get_many`].
//! Bound: as for single keys; each key that is not here is a flight.
//! Invariant: each key is loaded by one flight of this process, whether its callers asked for it
//! alone or among others. Those that this call leads are looked up together and loaded with one
//! query; one that another process is loading is waited for by itself, and does not hold up the rest.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_cache::stampede::freshness::LONGEST;
use tracing::Instrument;

use crate::cache::{Cache, Options, is_stale};
use crate::clock::Ms;
use crate::counters::Count;
use crate::entry::{Entry, Source};
use crate::error::{Error, Failure};
use crate::fence::NO_LINK;
use crate::flight::{Begun, Outcome};
use crate::fly::{Job, Landing, course, judge, keep_alone};
use crate::inner::Inner;
use crate::load::{Loader, caught};
use crate::loaded::Loaded;
use crate::record::Record;
use crate::sync::timeout_at;

/// A question for many keys; see [`Cache::get_many`].
#[must_use = "nothing is asked before `load`"]
pub struct GetMany<'a, K, V> {
    cache: &'a Cache<K, V>,
    keys: &'a [K],
    hard_timeout: Option<Duration>,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Asks for many keys; [`GetMany::load`] says where to get those that are not here.
    pub fn get_many<'a>(&'a self, keys: &'a [K]) -> GetMany<'a, K, V> {
        GetMany { cache: self, keys, hard_timeout: None }
    }
}

/// A batch loader that flights share.
type Batch<K, V> = Arc<
    dyn Fn(Vec<K>) -> std::pin::Pin<Box<dyn Future<Output = Result<HashMap<K, V>, Failure>> + Send>>
        + Send
        + Sync,
>;

impl<K, V> GetMany<'_, K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// As [`Builder::hard_timeout`](crate::Builder::hard_timeout).
    pub fn hard_timeout(mut self, timeout: Duration) -> Self {
        self.hard_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Gives the values; those that are not here are asked of `loader` in one call. A key that is
    /// neither in its answer nor in this one is absent, and kept as such.
    ///
    /// The loader is called once as a rule, also for values that are past their time to live; again,
    /// with a key by itself, if another process that was loading the key did not bring it. Stale
    /// values are served only if the loader fails. Refreshes ahead of the expiry are left to
    /// [`get`](Cache::get).
    ///
    /// If one key fails, so does the call; what was loaded for the others is kept.
    pub async fn load<F, Fut, E>(self, loader: F) -> Result<HashMap<K, Entry<V>>, Error<E>>
    where
        F: Fn(Vec<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<HashMap<K, V>, E>> + Send + 'static,
        E: Send + Sync + 'static,
    {
        let batch: Batch<K, V> = Arc::new(move |keys| {
            let loading = loader(keys);
            Box::pin(async move { loading.await.map_err(|error| Failure::Load(Arc::new(error))) })
        });
        self.answer(batch).await.map_err(Failure::typed)
    }

    async fn answer(self, batch: Batch<K, V>) -> Result<HashMap<K, Entry<V>>, Failure> {
        let inner = self.cache.inner();
        let now = inner.clock.now();
        let mut answers = HashMap::with_capacity(self.keys.len());
        let mut waits = Vec::new();
        let mut led = Vec::new();
        let mut seen = HashSet::with_capacity(self.keys.len());
        for key in self.keys.iter().filter(|key| seen.insert(*key)) {
            let known = inner.look(key, now);
            if let Some(record) = &known
                && now < record.local_until
                && record.age(now) < record.life.fresh_for
            {
                inner.counters.hit();
                inner.seen(key, record, now);
                answers.extend(entry(key, record, Source::Local, now));
                continue;
            }
            inner.count_look(key, known.is_none(), now);
            match inner.flights.begin(key, &inner.fences, inner.stripe(key), now) {
                Begun::Joined(flight) => waits.push((key, Some(flight), false, known)),
                Begun::Leads(flight) => {
                    led.push(Landing::new(inner, key, &flight));
                    waits.push((key, Some(flight), true, known));
                }
                // The other keys are loaded all the same: callers may have joined their flights.
                Begun::Refused => waits.push((key, None, false, known)),
            }
        }
        if !led.is_empty() {
            let span = tracing::debug_span!("load", cache = inner.name, keys = led.len());
            inner.runtime.spawn(fly_together(Arc::clone(inner), led, batch).instrument(span));
        }
        let hard = self.hard_timeout.unwrap_or(inner.settings.hard_timeout);
        let deadline = Instant::now() + hard;
        let mut failed = None;
        let mut unanswered = Unanswered { inner, keys: waits.len() };
        for (key, flight, leads, known) in waits {
            let outcome = match flight {
                Some(flight) => timeout_at(deadline.into(), flight.last())
                    .await
                    .unwrap_or(Outcome::Failed(Failure::Timeout)),
                None => Outcome::Failed(Failure::Overloaded),
            };
            let now = inner.clock.now();
            unanswered.keys -= 1;
            match outcome {
                Outcome::Value(record, source) | Outcome::Instead(record, source, _) => {
                    let is_stale = is_stale(&record, source, now);
                    let source = if leads { source } else { Source::Joined };
                    match source {
                        _ if is_stale => inner.count(Count::Stale),
                        Source::Loaded => inner.count(Count::Loaded),
                        Source::Shared => inner.count(Count::Shared),
                        Source::Local => inner.counters.hit(),
                        Source::Joined => inner.count(Count::Joined),
                    }
                    answers.extend(entry(key, &record, source, now));
                }
                Outcome::Failed(failure) => {
                    let is_kept = |record: &Arc<Record<V>>| {
                        inner.fences.holds(record.fence(), now)
                            && record.age(now) < record.life.kept_for()
                    };
                    if let Some(stale) = known.filter(is_kept) {
                        inner.count(Count::Stale);
                        answers.extend(entry(key, &stale, Source::Local, now));
                    } else {
                        inner.count(Count::Failed);
                        failed = Some(failure);
                    }
                }
            }
        }
        failed.map_or(Ok(answers), Err)
    }
}

/// Sees to it that keys are counted also if the caller gives up.
struct Unanswered<'a, K, V> {
    inner: &'a Inner<K, V>,
    keys: usize,
}

impl<K, V> Drop for Unanswered<'_, K, V> {
    fn drop(&mut self) {
        for _ in 0..self.keys {
            self.inner.counters.add(Count::Abandoned);
        }
    }
}

fn entry<K: Clone, V>(
    key: &K,
    record: &Arc<Record<V>>,
    source: Source,
    now: Ms,
) -> Option<(K, Entry<V>)> {
    Some((key.clone(), Entry::new(Arc::clone(record), source, now)?))
}

/// The task of the keys that one call leads. Each of its steps has a bound of its own, so it has one.
async fn fly_together<K, V>(inner: Arc<Inner<K, V>>, led: Vec<Landing<K, V>>, batch: Batch<K, V>)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    if let Err(panic) = caught(together(&inner, led, &batch)).await {
        // Of a codec or a key, say: the loader's is caught before. Those who wait were told.
        inner.log_failure(&panic, false);
    }
}

async fn together<K, V>(inner: &Arc<Inner<K, V>>, led: Vec<Landing<K, V>>, batch: &Batch<K, V>)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    #[cfg(feature = "redis")]
    let led = match &inner.shared {
        Some(shared) => match together::shared(inner, shared, led, batch).await {
            Some(led) => led,
            None => return,
        },
        None => led,
    };
    let mut absent = Vec::with_capacity(led.len());
    for landing in led {
        // As for a single key: another flight may have brought it before this one began.
        match inner.look_again(&landing.key) {
            Some(record) => landing.land(Outcome::Value(record, Source::Local)),
            None => absent.push(landing),
        }
    }
    let led = absent;
    if led.is_empty() {
        return;
    }
    let fences: Vec<_> = led
        .iter()
        .map(|landing| {
            let fence = inner.fences.take(landing.flight.stripe, NO_LINK);
            landing.flight.begin_read(fence.epoch);
            fence
        })
        .collect();
    let (mut values, cost) = match run(inner, &led, batch).await {
        Ok(loaded) => loaded,
        Err(failure) => {
            for landing in led {
                landing.land(Outcome::Failed(failure.clone()));
            }
            return;
        }
    };
    for (landing, fence) in led.into_iter().zip(fences) {
        let loaded = values.remove(&landing.key).map_or_else(Loaded::absent, Loaded::new);
        let judged = judge(inner, loaded, None, cost, None);
        let Landing { key, flight, .. } = &landing;
        let keep_for = inner.keep_alone_for();
        let outcome = keep_alone(inner, key, flight, judged, Some(fence), keep_for);
        landing.land(outcome);
    }
}

/// Runs the loader for these keys when its turn has come.
async fn run<K, V>(
    inner: &Arc<Inner<K, V>>,
    led: &[Landing<K, V>],
    batch: &Batch<K, V>,
) -> Result<(HashMap<K, V>, Duration), Failure>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let keys: Vec<K> = led.iter().map(|landing| landing.key.clone()).collect();
    let batch = Arc::clone(batch);
    let found = Arc::new(std::sync::Mutex::new(None));
    let take = Arc::clone(&found);
    // As any load: in its turn, timed, with its panic caught. What it found is too much for one.
    let loader = Loader::<V>::of(move |_| async move {
        let values = batch(keys).await?;
        *take.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(values);
        Ok(Loaded::absent())
    });
    let context = crate::loaded::Context {
        stale: None,
        deadline: Instant::now() + inner.settings.load_timeout,
        token: None,
    };
    let begun = || inner.count(Count::Loads);
    let Some((end, cost)) = loader.run(&inner.turns, begun, context).await else {
        return Err(Failure::Timeout);
    };
    let failure = end.as_ref().err().map(Failure::kind);
    inner.tell(crate::observer::Event::Loaded { cost, refresh: false, failure });
    if let Err(failure) = end {
        inner.count(Count::LoadsFailed);
        return Err(failure);
    }
    let values = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    Ok((values.unwrap_or_default(), cost))
}

/// The flight of one key among others that goes its own way.
async fn fly_by_itself<K, V>(inner: Arc<Inner<K, V>>, landing: Landing<K, V>, batch: Batch<K, V>)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let key = landing.key.clone();
    let loader = Loader::of(move |_| async move {
        let mut values = batch(vec![key.clone()]).await?;
        Ok(values.remove(&key).map_or_else(Loaded::absent, Loaded::new))
    });
    let deadline = Instant::now() + inner.settings.load_timeout;
    let job = Job::new(loader, Options::default(), None);
    let course = course(&inner, &landing.key, &landing.flight, job, deadline);
    let outcome = timeout_at(deadline.into(), course).await;
    landing.land(outcome.unwrap_or(Outcome::Failed(Failure::Timeout)));
}

#[cfg(feature = "redis")]
mod together {
    use futures_util::future::join_all;
    use heatsink_cache::stampede::freshness::Freshness;
    use heatsink_cache::stampede::lease::Seen;

    use super::{
        Arc, Batch, Hash, Inner, Landing, Loaded, Outcome, Source, fly_by_itself, judge, run,
    };
    use crate::envelope;
    use crate::fly::shared::{Lease, interpret, renewed_while, store, trouble};
    use crate::record::{Record, Version};
    use crate::shared::Shared;
    use crate::store::Down;

    /// What one key of a batch comes to.
    enum Place<V> {
        /// It is loaded here, in place of what begins so, which may be an older value.
        Ours(Lease, Vec<u8>, Option<Arc<Record<V>>>),
        Here(Arc<Record<V>>),
        /// Another process loads it.
        Elsewhere,
        OutOfReach,
    }

    async fn place<K, V>(
        inner: &Arc<Inner<K, V>>,
        shared: &Shared<K, V>,
        landing: &Landing<K, V>,
    ) -> Place<V>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        match try_place(inner, shared, landing).await {
            Ok(place) => place,
            Err(down) => {
                trouble(inner, &down);
                Place::OutOfReach
            }
        }
    }

    async fn try_place<K, V>(
        inner: &Arc<Inner<K, V>>,
        shared: &Shared<K, V>,
        landing: &Landing<K, V>,
    ) -> Result<Place<V>, Down>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let (core, key, flight) = (shared.core(), &landing.key, &landing.flight);
        let name = shared.key(key);
        flight.begin_read(core.fences.epoch(flight.stripe));
        let sight = interpret(inner, shared, key, core.look(&name).await?);
        match (sight.seen, sight.record) {
            (Seen::Value(Freshness::Fresh | Freshness::Early), Some(record)) => {
                Ok(Place::Here(record))
            }
            (Seen::Lease(_), _) => Ok(Place::Elsewhere),
            (Seen::Nothing, _) => {
                let marker = envelope::lease(Version(fastrand::u128(..).to_be_bytes()));
                let is_ours = core.claim(&name, &marker, inner.settings.lease).await?;
                Ok(if is_ours {
                    let lease = Lease::new(inner, core, name, marker);
                    Place::Ours(lease, marker.to_vec(), None)
                } else {
                    Place::Elsewhere
                })
            }
            (Seen::Value(_) | Seen::Foreign, _) => {
                let beside = shared.refresh_key(key);
                let Some(lease) = Lease::beside(inner, core, &beside).await? else {
                    return Ok(Place::Elsewhere);
                };
                // Somebody may have replaced it before the lease was ours.
                flight.begin_read(core.fences.epoch(flight.stripe));
                let again = interpret(inner, shared, key, core.look(&name).await?);
                Ok(match (again.seen, again.record) {
                    (Seen::Nothing, _) => Place::Elsewhere,
                    (_, older) if again.head == sight.head => Place::Ours(lease, again.head, older),
                    (Seen::Value(Freshness::Fresh | Freshness::Early), Some(record)) => {
                        Place::Here(record)
                    }
                    _ => Place::Elsewhere,
                })
            }
        }
    }

    /// Answers what the shared tier has, and loads what it has not under a lease for each key. Gives
    /// back what has to be loaded without it.
    pub(super) async fn shared<K, V>(
        inner: &Arc<Inner<K, V>>,
        shared: &Shared<K, V>,
        led: Vec<Landing<K, V>>,
        batch: &Batch<K, V>,
    ) -> Option<Vec<Landing<K, V>>>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let places = join_all(led.iter().map(|landing| place(inner, shared, landing))).await;
        let (mut ours, mut leases, mut seen, mut alone) = (vec![], vec![], vec![], vec![]);
        for (landing, place) in led.into_iter().zip(places) {
            match place {
                Place::Ours(lease, head, older) => {
                    ours.push(landing);
                    leases.push(lease);
                    seen.push((head, older));
                }
                Place::Here(record) => {
                    inner.keep(&landing.key, &record, inner.clock.now());
                    landing.land(Outcome::Value(record, Source::Shared));
                }
                Place::Elsewhere => {
                    let flight = fly_by_itself(Arc::clone(inner), landing, Arc::clone(batch));
                    inner.runtime.spawn(flight);
                }
                Place::OutOfReach => alone.push(landing),
            }
        }
        if !ours.is_empty() {
            match renewed_while(&leases, run(inner, &ours, batch)).await {
                Ok((mut values, cost)) => {
                    let stores = ours.into_iter().zip(leases).zip(&seen).map(
                        |((landing, lease), (head, _))| {
                            let loaded = values
                                .remove(&landing.key)
                                .map_or_else(Loaded::absent, Loaded::new);
                            let judged = judge(inner, loaded, None, cost, None);
                            async move {
                                let Landing { key, flight, .. } = &landing;
                                let stored = store(inner, shared, key, flight, lease, head, judged);
                                let outcome = stored.await;
                                landing.land(outcome);
                            }
                        },
                    );
                    join_all(stores).await;
                }
                Err(failure) => {
                    let now = inner.clock.now();
                    for (landing, (_, older)) in ours.into_iter().zip(seen) {
                        let usable = older.filter(|record| {
                            inner.fences.holds(record.fence(), now)
                                && record.age(now) < record.life.kept_for()
                        });
                        landing.land(match usable {
                            Some(older) => Outcome::Instead(older, Source::Shared, failure.clone()),
                            None => Outcome::Failed(failure.clone()),
                        });
                    }
                }
            }
        }
        if alone.is_empty() {
            return None;
        }
        if inner.settings.fallback == crate::Fallback::Fail {
            for landing in alone {
                let words = "the shared tier cannot be asked".into();
                landing.land(Outcome::Failed(crate::error::Failure::Unavailable(words)));
            }
            return None;
        }
        Some(alone)
    }
}
