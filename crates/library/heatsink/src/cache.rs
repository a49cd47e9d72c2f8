//! The cache as applications see it.
//!
//! Called by: the application.
//! Invariant: a `get` is answered with the best there is: the fresh value, else a stale one within
//! its window, else what a flight brings within the hard timeout.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use heatsink_cache::stampede::freshness::Freshness;
use tokio::time::timeout;

use crate::builder::Builder;
use crate::clock::Ms;
use crate::counters::{Count, Counts};
use crate::entry::{Entry, Source};
use crate::error::{Error, Failure, Unconfirmed};
use crate::fence::NO_LINK;
use crate::flight::{Begun, Flight, Outcome};
use crate::fly::{Job, Landing, fly};
use crate::inner::{Inner, Making, ahead_of};
use crate::load::Loader;
use crate::loaded::{Context, Found, LoadResult};
use crate::observer::Event;
use crate::record::{Payload, Record, Version};

/// A cache of values of type `V` under keys of type `K`; a handle that is cheap to clone.
///
/// See the [front page](crate) for an example and for what is promised.
pub struct Cache<K, V> {
    inner: Arc<Inner<K, V>>,
}

impl<K, V> Clone for Cache<K, V> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Begins to build a cache. The name stands before its keys in the shared tier, and in logs and
    /// metrics.
    pub fn builder(name: impl Into<String>) -> Builder<K, V> {
        Builder::new(name.into())
    }

    pub(crate) fn new(inner: Inner<K, V>) -> Self {
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner<K, V>> {
        &self.inner
    }

    /// Asks for a key; [`Get::load`] says where to get it if it is not here.
    #[inline]
    pub fn get<'a, Q>(&'a self, key: &'a Q) -> Get<'a, K, V, Q>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        Get { cache: self, key, options: Options::default() }
    }

    /// What this process has of the key, fresh or within its stale window, without asking anybody.
    pub fn peek<Q>(&self, key: &Q) -> Option<Entry<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let now = self.inner.clock.now();
        let (record, is_due) = self.inner.look(key, now)?;
        let age = record.age(now);
        let is_served = !is_due && age < record.life.stale_for;
        if is_served { Entry::new(record, Source::Local, now) } else { None }
    }

    /// Puts a value, here and in the shared tier. Loads that are under way will not overwrite it.
    ///
    /// The change goes on if the caller gives up. With a shared tier the value is fetched from
    /// there by the next `get`, which costs it a round trip.
    pub async fn put(&self, key: &K, value: V) -> Result<(), Unconfirmed> {
        let inner = &self.inner;
        inner.count(Count::Invalidations);
        #[cfg(feature = "redis")]
        if inner.shared.is_some() {
            return crate::fly::put_shared(inner, key.clone(), value).await;
        }
        let stripe = inner.stripe(key);
        let fence = inner.fences.take(stripe, NO_LINK);
        let life = inner.settings.policy.life(None, Duration::ZERO, fastrand::f64());
        let now = inner.clock.now();
        let record = inner.record(
            key,
            Payload::Value(value),
            &Making {
                born: now,
                life,
                fence: Some(fence),
                stripe,
                link: NO_LINK,
                local_until: Ms::MAX,
                version: Version::default(),
                bytes: 0,
            },
        );
        inner.flights.change(key, stripe, || inner.keep(key, &Arc::new(record), now));
        Ok(())
    }

    /// Deletes a key, here and in the shared tier. When this has returned `Ok`, this process does
    /// not serve what was there before, and neither does another one a moment later; loads that
    /// began before are not kept, by nobody.
    ///
    /// To be called *after* the change of the database is committed: a load that reads the database
    /// between the two would bring the old value back.
    pub async fn invalidate<Q>(&self, key: &Q) -> Result<(), Unconfirmed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let inner = &self.inner;
        inner.count(Count::Invalidations);
        #[cfg(feature = "redis")]
        if inner.shared.is_some() {
            return crate::fly::invalidate_shared(inner, key.to_owned()).await;
        }
        inner.flights.change(key, inner.stripe(key), || inner.local.remove(key));
        Ok(())
    }

    /// Forgets everything that this process keeps. The shared tier is left alone.
    pub fn clear_local(&self) {
        self.inner.fences.advance_all();
        self.inner.local.clear();
    }

    /// What the cache has done so far.
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    /// Entries in this process's memory; some of them may be out of date.
    pub fn local_len(&self) -> usize {
        self.inner.local.len()
    }

    /// Keys that are being looked up or loaded at this moment.
    pub fn loading(&self) -> u64 {
        self.inner.flights.under_way()
    }

    /// The name it was built with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The detector's hottest keys with their requests per second, by the names they have in the
    /// shared tier; without one by a hash. Empty without a detector.
    pub fn hot_keys(&self) -> Vec<(Vec<u8>, f64)> {
        let now = self.inner.clock.now();
        self.inner.heat.as_ref().map_or_else(Vec::new, |heat| heat.hottest(now))
    }

    /// The state of the shared tier in words; `None` without one.
    #[cfg(feature = "redis")]
    pub fn shared_state(&self) -> Option<crate::StoreState> {
        self.inner.shared.as_ref().map(crate::shared::Shared::state)
    }
}

/// What one call wants otherwise than the cache's settings say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) ttl: Option<Duration>,
    soft_timeout: Option<Duration>,
    hard_timeout: Option<Duration>,
    no_stale: bool,
    pub(crate) anew: bool,
}

/// A question to the cache; see [`Cache::get`].
#[must_use = "nothing is asked before `load`"]
pub struct Get<'a, K, V, Q: ?Sized = K> {
    cache: &'a Cache<K, V>,
    key: &'a Q,
    options: Options,
}

impl<K, V, Q> Get<'_, K, V, Q>
where
    K: Hash + Eq + Clone + Send + Sync + Borrow<Q> + 'static,
    V: Send + Sync + 'static,
    Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
{
    /// What this call's loader brings is fresh for so long.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// As [`Builder::soft_timeout`].
    pub fn soft_timeout(mut self, timeout: Duration) -> Self {
        self.options.soft_timeout = Some(timeout);
        self
    }

    /// As [`Builder::hard_timeout`].
    pub fn hard_timeout(mut self, timeout: Duration) -> Self {
        self.options.hard_timeout = Some(timeout);
        self
    }

    /// Rather waits, or fails, than take a stale value.
    pub fn no_stale(mut self) -> Self {
        self.options.no_stale = true;
        self
    }

    /// Has the value loaded anew, and waits for that, or for a load that is under way; others go on
    /// being served.
    pub fn anew(mut self) -> Self {
        self.options.anew = true;
        self
    }

    /// Gives the value; if it is not here, `loader` is run to get it, unless somebody runs theirs
    /// already.
    ///
    /// The load is a task of its own: if this caller gives up, it goes on and is kept all the same.
    /// That is why the loader owns what it needs. It returns a `V`, an `Option<V>` or a
    /// [`Loaded<V>`](crate::Loaded), and so does this.
    pub async fn load<F, Fut, R, E>(self, loader: F) -> Result<R::Output, Error<E>>
    where
        F: FnOnce(Context<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: LoadResult<V>,
        E: Send + Sync + 'static,
    {
        let inner = &*self.cache.inner;
        let now = inner.clock.now();
        if let Some(record) = inner.local.get(self.key)
            && now < record.quiet_until
            && inner.fences.holds(record.fence(), now)
            && !self.options.anew
        {
            inner.counters.hit();
            self.seen(&record, now);
            return output::<V, R, E>(record, Source::Local, now);
        }
        // Boxed, so that the future of a hit is small.
        let (record, source) = Box::pin(self.slowly(Loader::new::<F, Fut, R, E>(loader)))
            .await
            .map_err(Failure::typed)?;
        output::<V, R, E>(record, source, self.cache.inner.clock.now())
    }

    /// Counts a look for the detector, in batches: a hit should not have to hash the key's name.
    #[inline]
    fn seen(&self, record: &Record<V>, now: Ms) {
        let batch = self.cache.inner.batch;
        if batch > 0 {
            // Never set back: of threads that count at once, each batch is told by exactly one.
            let looks = record.looks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if looks & (batch - 1) == 0 {
                self.count_looks(batch, now);
            }
        }
    }

    #[cold]
    fn count_looks(&self, looks: u32, now: Ms) {
        self.cache.inner.count_looks(self.key, looks, false, now);
    }

    async fn slowly(&self, loader: Loader<V>) -> Result<(Arc<Record<V>>, Source), Failure> {
        let inner = &self.cache.inner;
        let mut ticket = Ticket { inner, begun: Instant::now(), is_settled: false };
        let answer = self.answer(&mut ticket, loader).await;
        ticket.settle(&answer);
        match answer {
            Answer::Value(record, source, _) => Ok((record, source)),
            Answer::Failed(failure) => Err(failure),
        }
    }

    async fn answer(&self, _ticket: &mut Ticket<'_, K, V>, loader: Loader<V>) -> Answer<V> {
        let inner = &self.cache.inner;
        let now = inner.clock.now();
        let found = inner.look(self.key, now);
        let is_here = matches!(&found, Some((_, false)));
        inner.count_looks(self.key, 1, found.is_none(), now);
        let known = found.map(|(record, _)| record);
        let soft = self.options.soft_timeout.or(inner.settings.soft_timeout);
        let mut job = Job::new(loader, self.options, known.clone());
        if let Some(record) = known.as_ref().filter(|_| is_here) {
            let freshness = inner.freshness(record, now);
            match freshness {
                _ if self.options.anew => {
                    job.refreshes = true;
                }
                Freshness::Fresh => {
                    let ahead = || ahead_of(record.born, &record.life, record.local_until);
                    if inner.refreshes_hot()
                        && now >= ahead()
                        && inner.is_hot(self.key)
                        && record.claim_retry(now, inner.pause())
                    {
                        // Before the local copy is too old, the shared tier is asked; only before
                        // the value itself is, it is loaded.
                        job.refreshes = record.local_until >= fresh_until(record);
                        job.is_early = job.refreshes;
                        self.in_background(job);
                    }
                    return Answer::Value(Arc::clone(record), Source::Local, false);
                }
                Freshness::Early => {
                    if record.claim_retry(now, inner.pause()) {
                        job.refreshes = true;
                        job.is_early = true;
                        self.in_background(job);
                    }
                    return Answer::Value(Arc::clone(record), Source::Local, false);
                }
                Freshness::Stale if self.options.no_stale => job.refreshes = true,
                Freshness::Stale => {
                    job.refreshes = true;
                    match soft {
                        None => {
                            if record.claim_retry(now, inner.pause()) {
                                self.in_background(job);
                            }
                        }
                        Some(soft) => {
                            if let Some(fresh) = self.within_soft(soft, job).await {
                                return fresh;
                            }
                        }
                    }
                    return Answer::Value(Arc::clone(record), Source::Local, true);
                }
                Freshness::OnError if self.options.no_stale => {}
                Freshness::OnError => {
                    if !record.is_retry_due(now) {
                        return Answer::Value(Arc::clone(record), Source::Local, true);
                    }
                }
                Freshness::Gone => {}
            }
        }
        let hard = self.options.hard_timeout.unwrap_or(inner.settings.hard_timeout);
        self.wait(hard, job, known).await
    }

    /// Joins or leads the flight of the key, and waits for what it brings.
    async fn wait(&self, hard: Duration, job: Job<V>, known: Option<Arc<Record<V>>>) -> Answer<V> {
        let inner = &self.cache.inner;
        let stripe = inner.stripe(self.key);
        let wants_last = self.options.anew || self.options.no_stale;
        let (flight, leads) = match inner.flights.begin(self.key, &inner.fences, stripe) {
            Begun::Joined(flight) => (flight, false),
            Begun::Leads(flight) => {
                self.take_off(&flight, job);
                (flight, true)
            }
            Begun::Refused => return self.instead(known, Failure::Overloaded),
        };
        let waiting = async {
            let outcome = if wants_last { flight.last().await } else { flight.first().await };
            match outcome {
                // A stale first answer that has grown too old since.
                Outcome::Value(record, _) if self.is_gone(&record) => flight.last().await,
                outcome => outcome,
            }
        };
        match timeout(hard, waiting).await {
            Ok(Outcome::Value(record, source)) => {
                let source = if leads { source } else { Source::Joined };
                let is_stale = record.age(inner.clock.now()) >= record.life.fresh_for
                    && !record.life.fresh_for.is_zero()
                    && source != Source::Loaded;
                Answer::Value(record, source, is_stale)
            }
            Ok(Outcome::Failed(failure)) => self.instead(known, failure),
            Err(_) => self.instead(known, Failure::Timeout),
        }
    }

    fn is_gone(&self, record: &Record<V>) -> bool {
        let kept = record.life.kept_for();
        !kept.is_zero() && record.age(self.cache.inner.clock.now()) >= kept
    }

    /// A stale value instead of a failure, where the policy allows it and nobody deleted it.
    fn instead(&self, known: Option<Arc<Record<V>>>, failure: Failure) -> Answer<V> {
        let inner = &self.cache.inner;
        let now = inner.clock.now();
        match known {
            Some(record)
                if !self.options.no_stale
                    && inner.fences.holds(record.fence(), now)
                    && record.age(now) < record.life.kept_for() =>
            {
                record.postpone_retry(now + crate::clock::whole_ms(inner.pause()));
                let is_stale = record.age(now) >= record.life.fresh_for;
                Answer::Value(record, Source::Local, is_stale)
            }
            _ => Answer::Failed(failure),
        }
    }

    /// What a refresh brings within the soft timeout.
    async fn within_soft(&self, soft: Duration, job: Job<V>) -> Option<Answer<V>> {
        let inner = &self.cache.inner;
        let stripe = inner.stripe(self.key);
        let (flight, leads) = match inner.flights.begin(self.key, &inner.fences, stripe) {
            Begun::Joined(flight) => (flight, false),
            Begun::Leads(flight) => {
                self.take_off(&flight, job);
                (flight, true)
            }
            Begun::Refused => return None,
        };
        match timeout(soft, flight.last()).await {
            Ok(Outcome::Value(record, source)) => {
                let source = if leads { source } else { Source::Joined };
                let is_stale = record.age(inner.clock.now()) >= record.life.fresh_for;
                Some(Answer::Value(record, source, is_stale))
            }
            Ok(Outcome::Failed(_)) | Err(_) => None,
        }
    }

    fn take_off(&self, flight: &Arc<Flight<V>>, job: Job<V>) {
        let inner = &self.cache.inner;
        let landing = Landing::new(inner, &self.key.to_owned(), flight);
        inner.runtime.spawn(fly(landing, job));
    }

    fn in_background(&self, job: Job<V>) {
        let inner = &self.cache.inner;
        let stripe = inner.stripe(self.key);
        if let Begun::Leads(flight) = inner.flights.begin(self.key, &inner.fences, stripe) {
            self.take_off(&flight, job);
        }
    }
}

fn fresh_until<V>(record: &Record<V>) -> Ms {
    record.born.saturating_add(crate::clock::whole_ms(record.life.fresh_for))
}

#[inline]
fn output<V, R: LoadResult<V>, E>(
    record: Arc<Record<V>>,
    source: Source,
    now: Ms,
) -> Result<R::Output, Error<E>> {
    R::output(Found { record, source, now }).ok_or(Error::Absent)
}

enum Answer<V> {
    /// With whether it is past its time to live.
    Value(Arc<Record<V>>, Source, bool),
    Failed(Failure),
}

/// Sees to it that a caller is counted once, also if it gives up.
struct Ticket<'a, K, V> {
    inner: &'a Inner<K, V>,
    begun: Instant,
    is_settled: bool,
}

impl<K, V> Ticket<'_, K, V> {
    fn settle(&mut self, answer: &Answer<V>) {
        self.is_settled = true;
        let counters = &self.inner.counters;
        let (source, stale) = match answer {
            Answer::Value(_, source, stale) => {
                match source {
                    _ if *stale => counters.add(Count::Stale),
                    Source::Local => counters.hit(),
                    Source::Shared => counters.add(Count::Shared),
                    Source::Loaded => counters.add(Count::Loaded),
                    Source::Joined => counters.add(Count::Joined),
                }
                (Some(*source), *stale)
            }
            Answer::Failed(_) => {
                counters.add(Count::Failed);
                (None, false)
            }
        };
        if let Some(observer) = &self.inner.observer
            && source != Some(Source::Local)
        {
            let waited = self.begun.elapsed();
            observer.on(&self.inner.name, Event::Answered { source, waited, stale });
        }
    }
}

impl<K, V> Drop for Ticket<'_, K, V> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.inner.counters.add(Count::Abandoned);
        }
    }
}
