//! What the handles of one cache share.
//!
//! Called by: `cache`, `fly`.
//! Invariant: dropping the last handle ends the cache; flights that are under way end by themselves.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use heatsink_cache::stampede::freshness::{Freshness, Life};
use tokio::sync::Semaphore;

use crate::builder::Settings;
use crate::clock::{Clock, Ms, whole_ms};
use crate::counters::{Count, Counters};
use crate::error::Failure;
use crate::fence::{Fence, Fences, NO_EPOCH, NO_LINK};
use crate::flight::Flights;
use crate::heat::Heat;
use crate::local::LocalTier;
use crate::observer::{Event, Observer};
use crate::record::{Payload, Record, Version};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Spawner};

pub(crate) type Weigher<K, V> = Arc<dyn Fn(&K, &V) -> u64 + Send + Sync>;

pub(crate) struct Inner<K, V> {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) runtime: Spawner,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    weigher: Option<Weigher<K, V>>,
    pub(crate) fences: Arc<Fences>,
    pub(crate) local: LocalTier<K, V>,
    pub(crate) flights: Flights<K, V>,
    pub(crate) turns: Semaphore,
    pub(crate) counters: Counters,
    pub(crate) heat: Option<Arc<Heat>>,
    /// Looks at a record that are told to the detector together; none without one.
    pub(crate) batch: u32,
    #[cfg(feature = "redis")]
    pub(crate) shared: Option<crate::shared::Shared<K, V>>,
}

/// What a cache is built of.
pub(crate) struct Parts<K, V> {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) runtime: Spawner,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) weigher: Option<Weigher<K, V>>,
    pub(crate) heat: Option<Arc<Heat>>,
    #[cfg(feature = "redis")]
    pub(crate) shared: Option<crate::shared::Shared<K, V>>,
}

/// What a record is made of, beside the value.
pub(crate) struct Making {
    pub(crate) born: Ms,
    pub(crate) life: Life,
    pub(crate) fence: Option<Fence>,
    pub(crate) stripe: u32,
    pub(crate) link: u16,
    /// The longest it may be served from this process.
    pub(crate) local_until: Ms,
    pub(crate) version: Version,
    /// What it takes in the shared tier.
    pub(crate) bytes: usize,
}

impl<K, V> Inner<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(crate) fn new(parts: Parts<K, V>) -> Self {
        let Parts { name, settings, clock, runtime, observer, weigher, heat, .. } = parts;
        #[cfg(feature = "redis")]
        let shared = parts.shared;
        let own_fences = || Arc::new(Fences::of_one_process());
        #[cfg(feature = "redis")]
        let fences = shared.as_ref().map_or_else(own_fences, crate::shared::Shared::fences);
        #[cfg(not(feature = "redis"))]
        let fences = own_fences();
        Self {
            local: LocalTier::new(settings.local),
            flights: Flights::new(settings.max_flights),
            turns: Semaphore::new(settings.max_concurrent_loads.min(Semaphore::MAX_PERMITS)),
            counters: Counters::default(),
            batch: heat.as_ref().map_or(0, |heat| heat.batch()),
            heat,
            fences,
            name,
            settings,
            clock,
            runtime,
            observer,
            weigher,
            #[cfg(feature = "redis")]
            shared,
        }
    }

    /// The stripe of the fences that a key falls into.
    pub(crate) fn stripe<Q>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return shared.stripe(&key.to_owned());
        }
        self.fences.stripe(key)
    }

    /// The record of a key, if nothing has happened to the key since.
    #[inline]
    pub(crate) fn look<Q>(&self, key: &Q, now: Ms) -> Option<Arc<Record<V>>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let record = self.local.get(key)?;
        self.fences.holds(record.fence(), now).then_some(record)
    }

    /// What there is by now, if it is fresh.
    pub(crate) fn look_again(&self, key: &K) -> Option<Arc<Record<V>>> {
        let now = self.clock.now();
        let is_fresh = |record: &Arc<Record<V>>| {
            now < record.local_until && record.age(now) < record.life.fresh_for
        };
        self.look(key, now).filter(is_fresh)
    }

    /// What a value is good for. One of a hot key is refreshed before it expires, as if it had
    /// been drawn.
    pub(crate) fn freshness(
        &self,
        record: &Record<V>,
        is_hot: impl Fn() -> bool,
        now: Ms,
    ) -> Freshness {
        match record.freshness(now, self.settings.policy.early) {
            Freshness::Fresh
                if self.refreshes_hot()
                    && now >= refresh_at(record.born, &record.life)
                    && is_hot() =>
            {
                Freshness::Early
            }
            freshness => freshness,
        }
    }

    pub(crate) fn record(&self, key: &K, payload: Payload<V>, making: &Making) -> Record<V> {
        let Making { born, life, fence, stripe, link, local_until, version, bytes } = *making;
        let kept_until = born.saturating_add(whole_ms(life.kept_for()));
        let local_until = local_until.min(kept_until);
        let name = self.name_of(key);
        let own =
            (size_of::<Record<V>>() + bytes + name.as_ref().map_or(0, |name| name.len())) as u64;
        let renew_at = self.renew_at(local_until);
        let mut record = Record {
            payload,
            quiet_until: self.quiet_until(born, &life, local_until.min(renew_at)),
            stripe,
            link,
            epoch: AtomicU64::new(fence.map_or(NO_EPOCH, |fence| fence.epoch)),
            born,
            local_until,
            renew_at,
            name,
            life,
            weight: 0,
            version,
            looks: AtomicU32::new(0),
            retry_at: AtomicU64::new(0),
        };
        let weighed = match (&self.weigher, record.value()) {
            (Some(weigher), Some(value)) => weigher(key, value),
            _ => own,
        };
        record.weight = self.local.weight(weighed.max(own));
        record
    }

    /// Until when a look at the record has nothing to decide.
    fn quiet_until(&self, born: Ms, life: &Life, copy_until: Ms) -> Ms {
        let quiet = born.saturating_add(whole_ms(life.quiet_for(self.settings.policy.early)));
        let quiet = quiet.min(copy_until);
        if self.refreshes_hot() { quiet.min(refresh_at(born, life)) } else { quiet }
    }

    /// When the copy of a hot key is renewed: a tenth of its time in this process before its end.
    fn renew_at(&self, local_until: Ms) -> Ms {
        if self.is_shared() && self.refreshes_hot() {
            let now = self.clock.now();
            local_until - local_until.saturating_sub(now) / 10
        } else {
            Ms::MAX
        }
    }

    #[cfg(feature = "redis")]
    fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    #[cfg(not(feature = "redis"))]
    fn is_shared(&self) -> bool {
        false
    }

    /// What a key is called in the shared tier.
    #[cfg(feature = "redis")]
    fn name_of(&self, key: &K) -> Option<Box<[u8]>> {
        self.shared.as_ref().map(|shared| shared.key(key).into_boxed_slice())
    }

    #[cfg(not(feature = "redis"))]
    fn name_of(&self, _: &K) -> Option<Box<[u8]>> {
        None
    }

    pub(crate) fn refreshes_hot(&self) -> bool {
        self.settings.refresh_hot && self.heat.is_some()
    }

    /// Puts a record where others find it, if it is to be kept in this process.
    pub(crate) fn keep(&self, key: &K, record: &Arc<Record<V>>, now: Ms) {
        // What has been overtaken would only take the place of what is newer.
        let is_current = self.fences.holds(record.fence(), now);
        if !self.local.is_on() || now >= record.local_until || !is_current {
            return;
        }
        if self.local.hot_only && !self.is_hot(key) {
            return;
        }
        self.local.insert(key.clone(), Arc::clone(record));
    }

    /// An old value was served because a load failed or took too long. None is tried again for a
    /// pause, and for so long the value stays here, also if the shared tier was to be asked again.
    pub(crate) fn rest(&self, key: &K, record: &Arc<Record<V>>, now: Ms) {
        let until = now.saturating_add(whole_ms(self.pause()));
        record.postpone_retry(until);
        if record.link == NO_LINK {
            return;
        }
        let local_ttl = self.settings.local_ttl.unwrap_or(Duration::MAX);
        let local_until = until.min(now.saturating_add(whole_ms(local_ttl)));
        if record.local_until < local_until {
            self.keep(key, &Arc::new(record.again(local_until)), now);
        } else {
            self.keep(key, record, now);
        }
    }

    pub(crate) fn is_hot<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Some(heat) = self.heat.as_ref().filter(|heat| heat.is_any_hot()) else { return false };
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return heat.is_hot(&shared.key(&key.to_owned()));
        }
        heat.is_hot(&heat.name_of(key))
    }

    /// Whether the key of a record is hot, without making its name again.
    pub(crate) fn is_hot_here<Q>(&self, key: &Q, record: &Record<V>) -> bool
    where
        Q: Hash + ?Sized,
    {
        let Some(heat) = self.heat.as_ref().filter(|heat| heat.is_any_hot()) else { return false };
        match &record.name {
            Some(name) => heat.is_hot(name),
            None => heat.is_hot(&heat.name_of(key)),
        }
    }

    /// Counts a look that found a record; the detector is told in batches.
    #[inline]
    pub(crate) fn seen<Q>(&self, key: &Q, record: &Record<V>, now: Ms)
    where
        Q: Hash + ?Sized,
    {
        if self.batch > 0 {
            // Never set back: of threads that count at once, each batch is told by exactly one.
            let looks = record.looks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if looks & (self.batch - 1) == 0 {
                self.tell_looks(key, record, now);
            }
        }
    }

    #[cold]
    fn tell_looks<Q>(&self, key: &Q, record: &Record<V>, now: Ms)
    where
        Q: Hash + ?Sized,
    {
        let Some(heat) = &self.heat else { return };
        match &record.name {
            Some(name) => heat.count(name, self.batch, false, now),
            None => heat.count(&heat.name_of(key), self.batch, false, now),
        }
    }

    /// Tells the detector of a look that found nothing to serve, by what the key is called in the
    /// shared tier, or by its hash where there is none.
    pub(crate) fn count_look<Q>(&self, key: &Q, is_miss: bool, now: Ms)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Some(heat) = &self.heat else { return };
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return heat.count(&shared.key(&key.to_owned()), 1, is_miss, now);
        }
        heat.count(&heat.name_of(key), 1, is_miss, now);
    }

    /// How long this process keeps what it loaded without the shared tier: as long as that may be
    /// silent, or for ever if there is none.
    pub(crate) fn keep_alone_for(&self) -> Ms {
        #[cfg(feature = "redis")]
        if let Some(shared) = &self.shared {
            return whole_ms(shared.core().silence());
        }
        Ms::MAX
    }

    /// The caller is told of a failure, so that is for those who look closely; but nobody waits for
    /// a refresh.
    pub(crate) fn log_failure(&self, failure: &Failure, is_refresh: bool) {
        let (cache, kind) = (&self.name, failure.kind());
        match failure {
            Failure::Panicked(words) => tracing::error!(cache, %words, "a load panicked"),
            _ if is_refresh => tracing::info!(cache, kind, "a refresh failed"),
            _ => tracing::debug!(cache, kind, "a load failed"),
        }
    }

    pub(crate) fn tell(&self, event: Event<'_>) {
        if let Some(observer) = &self.observer {
            observer.on(&self.name, event);
        }
    }

    pub(crate) fn count(&self, count: Count) {
        self.counters.add(count);
    }

    /// How long a record may be served from this process when it was loaded without the shared
    /// tier knowing.
    pub(crate) fn pause(&self) -> Duration {
        self.settings.retry_pause
    }
}

/// When a hot key's value is to be replaced: a tenth of its life before the end, and time enough
/// to load it twice.
pub(crate) fn refresh_at(born: Ms, life: &Life) -> Ms {
    let whole = whole_ms(life.fresh_for);
    let lead = (whole / 10).max(whole_ms(life.cost * 2)).min(whole / 2);
    born.saturating_add(whole - lead)
}
