//! The cache as applications see it.
//!
//! Called by: the application.
//! Invariant: a `get` is answered with the best there is: the fresh value, else a stale one within
//! its window, else what a flight brings within the hard timeout.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_cache::stampede::freshness::{Freshness, LONGEST};
use tracing::Instrument;

use crate::builder::Builder;
use crate::clock::{Ms, whole_ms};
use crate::counters::{Count, Counts};
use crate::entry::{Entry, Source};
use crate::error::{Error, Failure, Unconfirmed};
use crate::fence::NO_LINK;
use crate::flight::{Begun, Flight, Outcome};
use crate::fly::{Job, Landing, fly, time_to_refresh};
use crate::inner::{Inner, Making};
use crate::load::Loader;
use crate::loaded::{Context, Found, LoadResult};
use crate::observer::Event;
use crate::record::{Payload, Record, Version};
use crate::sync::{consume_budget, timeout, timeout_at};

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
        let record = self.inner.look(key, now)?;
        let age = record.age(now);
        let is_served = now < record.local_until && age < record.life.stale_for;
        if is_served { Entry::new(record, Source::Local, now) } else { None }
    }

    /// Puts a value, here and in the shared tier. Loads that are under way will not overwrite it.
    ///
    /// The change goes on if the caller gives up. With a shared tier it takes two round trips, so
    /// that it brings nothing back however late it arrives, and the next `get` fetches the value
    /// from there. A value over [`Builder::max_value_bytes`] deletes what was there, and is not kept.
    pub async fn put<Q>(&self, key: &Q, value: V) -> Result<(), Unconfirmed>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let inner = &self.inner;
        inner.count(Count::Invalidations);
        #[cfg(feature = "redis")]
        if inner.shared.is_some() {
            return crate::fly::put_shared(inner, key.to_owned(), value).await;
        }
        let stripe = inner.stripe(key);
        let fence = inner.fences.take(stripe, NO_LINK);
        let life = inner.settings.policy.life(None, Duration::ZERO, fastrand::f64());
        let now = inner.clock.now();
        let owned = key.to_owned();
        let record = inner.record(
            &owned,
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
        inner.flights.change(key, stripe, || inner.keep(&owned, &Arc::new(record), now));
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

impl Options {
    /// Whether the caller does not take whatever there is.
    pub(crate) fn insists(self) -> bool {
        self.no_stale || self.anew
    }
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
        self.options.hard_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Rather waits, or fails, than take a stale value.
    pub fn no_stale(mut self) -> Self {
        self.options.no_stale = true;
        self
    }

    /// Has the value loaded anew, and waits for that, or for a load that is under way; others go on
    /// being served. If the load fails, so does this: the caller knows what was there before.
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
        let mut known = None;
        if let Some(record) = inner.look(self.key, now) {
            if now < record.quiet_until && !self.options.anew {
                inner.counters.hit();
                inner.seen(self.key, &record, now);
                return output::<V, R, E>(record, Source::Local, now);
            }
            known = Some(record);
        }
        let waiting = match self.at_once(known, loader, now) {
            Ok(record) => return output::<V, R, E>(record, Source::Local, now),
            // Boxed, so that the future of a hit is small.
            Err((known, loader)) => {
                Box::pin(self.slowly(known, Loader::new::<F, Fut, R, E>(loader)))
            }
        };
        let (record, source) = waiting.await.map_err(Failure::typed)?;
        output::<V, R, E>(record, source, inner.clock.now())
    }

    /// Serves what may be served without waiting, and sees to it that it is replaced if that is
    /// due. Allocates only for a load that it begins.
    #[inline(never)]
    fn at_once<F, Fut, R, E>(
        &self,
        known: Option<Arc<Record<V>>>,
        loader: F,
        now: Ms,
    ) -> Result<Arc<Record<V>>, NotAtOnce<V, F>>
    where
        F: FnOnce(Context<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: LoadResult<V>,
        E: Send + Sync + 'static,
    {
        let inner = &self.cache.inner;
        let Some(record) = known else { return Err((None, loader)) };
        if now >= record.local_until || self.options.anew {
            return Err((Some(record), loader));
        }
        let freshness = inner.freshness(&record, || inner.is_hot_here(self.key, &record), now);
        let job = |loader| {
            let loader = Loader::new::<F, Fut, R, E>(loader);
            Job::new(
                loader,
                Options { ttl: self.options.ttl, ..Options::default() },
                Some(Arc::clone(&record)),
            )
        };
        match freshness {
            Freshness::Fresh => {
                // Of a hot key the shared tier is asked before the copy here is too old.
                if now >= record.renew_at
                    && inner.is_hot_here(self.key, &record)
                    && record.claim_retry(now, inner.pause())
                {
                    self.in_background(job(loader), now);
                }
                inner.counters.hit();
            }
            Freshness::Early => {
                if record.claim_retry(now, inner.pause()) {
                    self.in_background(job(loader).in_background(true), now);
                }
                inner.counters.hit();
            }
            // Nobody waits for a refresh that is not tried again yet.
            Freshness::Stale
                if !self.options.no_stale
                    && (self.soft().is_none() || !record.is_retry_due(now)) =>
            {
                if record.claim_retry(now, inner.pause()) {
                    self.in_background(job(loader).in_background(false), now);
                }
                inner.count(Count::Stale);
            }
            Freshness::OnError if !self.options.no_stale && !record.is_retry_due(now) => {
                inner.count(Count::Stale);
            }
            Freshness::Stale | Freshness::OnError | Freshness::Gone => {
                return Err((Some(record), loader));
            }
        }
        inner.seen(self.key, &record, now);
        Ok(record)
    }

    fn soft(&self) -> Option<Duration> {
        self.options.soft_timeout.or(self.cache.inner.settings.soft_timeout)
    }

    async fn slowly(
        &self,
        known: Option<Arc<Record<V>>>,
        loader: Loader<V>,
    ) -> Result<(Arc<Record<V>>, Source), Failure> {
        let inner = &self.cache.inner;
        let mut ticket = Ticket { inner, begun: Instant::now(), is_settled: false };
        // A flight may have its answer already and still have something to do: who asks again and
        // again lets it.
        consume_budget().await;
        let answer = self.answer(known, loader).await;
        ticket.settle(&answer);
        match answer {
            Answer::Value(record, source, _) => Ok((record, source)),
            Answer::Failed(failure) => Err(failure),
        }
    }

    async fn answer(&self, known: Option<Arc<Record<V>>>, loader: Loader<V>) -> Answer<V> {
        let inner = &self.cache.inner;
        let now = inner.clock.now();
        inner.count_look(self.key, known.is_none(), now);
        let mut job = Job::new(loader, self.options, known.clone());
        if let Some(record) = known.as_ref().filter(|record| now < record.local_until) {
            let is_stale =
                (record.life.fresh_for..record.life.stale_for).contains(&record.age(now));
            job.refreshes = is_stale || self.options.anew;
            if let Some(soft) = self.soft()
                && is_stale
                && !self.options.insists()
            {
                let job = job.in_background(false);
                let fresh = self.within_soft(soft, job, now).await;
                let stale = || Answer::Value(Arc::clone(record), Source::Local, true);
                return fresh.unwrap_or_else(stale);
            }
        }
        self.wait(job, known).await
    }

    /// Joins or leads the flight of the key, and waits for what it brings.
    async fn wait(&self, job: Job<V>, known: Option<Arc<Record<V>>>) -> Answer<V> {
        let inner = &self.cache.inner;
        let hard = self.options.hard_timeout.unwrap_or(inner.settings.hard_timeout);
        let deadline = Instant::now() + hard;
        let stripe = inner.stripe(self.key);
        let mut job = Some(job);
        loop {
            let now = inner.clock.now();
            let (flight, leads) = match inner.flights.begin(self.key, &inner.fences, stripe, now) {
                Begun::Joined(flight) => (flight, false),
                Begun::Leads(flight) => {
                    // Who has led is answered below.
                    let Some(job) = job.take() else { return self.instead(known, Failure::Closed) };
                    self.take_off(&flight, job);
                    (flight, true)
                }
                Begun::Refused => return self.instead(known, Failure::Overloaded),
            };
            let Ok(outcome) = timeout_at(deadline.into(), self.outcome(&flight)).await else {
                return self.instead(flight.instead().or(known), Failure::Timeout);
            };
            match outcome {
                Outcome::Value(record, source) => {
                    let is_stale = is_stale(&record, source, inner.clock.now());
                    let is_refused = (self.options.no_stale && is_stale)
                        || (self.options.anew && source != Source::Loaded);
                    if !is_refused || (leads && !is_stale) {
                        let source = if leads { source } else { Source::Joined };
                        return Answer::Value(record, source, is_stale);
                    }
                    if leads {
                        return Answer::Failed(Failure::Timeout);
                    }
                }
                Outcome::Instead(record, source, failure) => {
                    if !self.options.insists() {
                        let source = if leads { source } else { Source::Joined };
                        let is_stale = record.age(inner.clock.now()) >= record.life.fresh_for;
                        return Answer::Value(record, source, is_stale);
                    }
                    // Others that joined a load which failed do not try once more each. But this
                    // one may have been served something without any load.
                    if leads || !matches!(failure, Failure::Unavailable(_)) {
                        return Answer::Failed(failure);
                    }
                }
                Outcome::Failed(Failure::Overdue) if !leads => {}
                Outcome::Failed(failure) => return self.instead(known, failure),
            }
            // It was another caller's flight, and its end is nothing for this one.
        }
    }

    /// What a flight comes to for this caller.
    async fn outcome(&self, flight: &Flight<V>) -> Outcome<V> {
        if self.options.insists() {
            return flight.last().await;
        }
        match flight.first().await {
            // A stale first answer that has grown too old since.
            Outcome::Value(record, _) if self.is_gone(&record) => flight.last().await,
            outcome => outcome,
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
        let within = |record: &Record<V>| {
            let life = &record.life;
            let most = if self.options.no_stale { life.fresh_for } else { life.kept_for() };
            !self.options.anew && record.age(now) < most
        };
        match known {
            Some(record) if within(&record) && inner.fences.holds(record.fence(), now) => {
                inner.rest(&self.key.to_owned(), &record, now);
                let is_stale = record.age(now) >= record.life.fresh_for;
                Answer::Value(record, Source::Local, is_stale)
            }
            _ => Answer::Failed(failure),
        }
    }

    /// What a refresh brings within the soft timeout.
    async fn within_soft(&self, soft: Duration, job: Job<V>, now: Ms) -> Option<Answer<V>> {
        let inner = &self.cache.inner;
        let stripe = inner.stripe(self.key);
        let (flight, leads) = match inner.flights.begin(self.key, &inner.fences, stripe, now) {
            Begun::Joined(flight) => (flight, false),
            Begun::Leads(flight) => {
                self.take_off(&flight, job);
                (flight, true)
            }
            Begun::Refused => return None,
        };
        let hard = self.options.hard_timeout.unwrap_or(inner.settings.hard_timeout);
        match timeout(soft.min(hard), flight.last()).await {
            Ok(Outcome::Value(record, source)) => {
                let source = if leads { source } else { Source::Joined };
                let is_stale = record.age(inner.clock.now()) >= record.life.fresh_for;
                Some(Answer::Value(record, source, is_stale))
            }
            Ok(Outcome::Instead(..) | Outcome::Failed(_)) | Err(_) => None,
        }
    }

    fn take_off(&self, flight: &Arc<Flight<V>>, job: Job<V>) {
        let inner = &self.cache.inner;
        let landing = Landing::new(inner, &self.key.to_owned(), flight);
        let refresh = job.is_background;
        // What a loader traces is found under the request that caused it, or beside it.
        let span = if refresh {
            let span = tracing::debug_span!(parent: None, "load", cache = inner.name, refresh);
            span.follows_from(tracing::Span::current());
            span
        } else {
            tracing::debug_span!("load", cache = inner.name, refresh)
        };
        if let Some(record) = job.known.as_ref().filter(|_| refresh) {
            let most = time_to_refresh(inner, record).min(inner.settings.load_timeout);
            flight.is_due_by(inner.clock.now().saturating_add(whole_ms(most)));
        }
        inner.runtime.spawn(fly(landing, job).instrument(span));
    }

    #[cold]
    fn in_background(&self, job: Job<V>, now: Ms) {
        let inner = &self.cache.inner;
        let stripe = inner.stripe(self.key);
        if let Begun::Leads(flight) = inner.flights.begin(self.key, &inner.fences, stripe, now) {
            self.take_off(&flight, job);
        }
    }
}

/// What is known of a key, and the loader that was not used.
type NotAtOnce<V, F> = (Option<Arc<Record<V>>>, F);

/// Whether a value is past its time to live. One that was just loaded is not, however short that is.
pub(crate) fn is_stale<V>(record: &Record<V>, source: Source, now: Ms) -> bool {
    record.age(now) >= record.life.fresh_for
        && !record.life.fresh_for.is_zero()
        && source != Source::Loaded
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
