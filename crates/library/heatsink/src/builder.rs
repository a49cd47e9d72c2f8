//! What can be set, with its defaults.
//!
//! Called by: the application, once a cache.
//! Invariant: what [`Builder::build`] accepts runs without a panic; every wait has a bound.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use heatsink_cache::stampede::freshness::{LONGEST, Policy};

use crate::cache::Cache;
use crate::clock::Clock;
use crate::error::BuildError;
use crate::heat::Heat;
use crate::inner::{Inner, Parts, Weigher};
use crate::local::Local;
use crate::observer::Observer;
use crate::sync::Spawner;

/// What a caller is told when the shared tier cannot be asked, or another process has been loading
/// the key for longer than [`Builder::lease_wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// It loads by itself: one load of the key a process, and a bounded number in all.
    #[default]
    Load,
    /// It gets the value that this process still has, within its stale windows, even though nobody
    /// can say whether it was deleted meanwhile; without one, it loads.
    Stale,
    /// It gets [`Error::Unavailable`](crate::Error::Unavailable).
    Fail,
}

/// How one cache behaves.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) local: Local,
    pub(crate) local_ttl: Option<Duration>,
    pub(crate) soft_timeout: Option<Duration>,
    pub(crate) hard_timeout: Duration,
    pub(crate) load_timeout: Duration,
    pub(crate) retry_pause: Duration,
    pub(crate) max_concurrent_loads: usize,
    pub(crate) max_flights: usize,
    pub(crate) fallback: Fallback,
    pub(crate) lease: Duration,
    pub(crate) lease_wait: Duration,
    pub(crate) max_value_bytes: usize,
    pub(crate) refresh_hot: bool,
    pub(crate) detector: Option<heatsink_detect::config::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy {
                negative_ttl: Duration::from_secs(5),
                ..Policy::fresh_for(Duration::from_secs(300))
            },
            local: Local::default(),
            local_ttl: None,
            soft_timeout: None,
            hard_timeout: Duration::from_secs(10),
            load_timeout: Duration::from_secs(30),
            retry_pause: Duration::from_secs(1),
            max_concurrent_loads: 64,
            max_flights: 10_000,
            fallback: Fallback::default(),
            lease: Duration::from_secs(5),
            lease_wait: Duration::from_secs(10),
            max_value_bytes: 1 << 20,
            refresh_hot: true,
            detector: Some(heatsink_detect::config::Settings::default()),
        }
    }
}

/// Builds a [`Cache`].
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`ttl`](Self::ttl) | 5 min | how long a value is fresh |
/// | [`negative_ttl`](Self::negative_ttl) | 5 s | how long "there is no such thing" is believed |
/// | [`stale`](Self::stale) | off | served behind its freshness while a refresh runs |
/// | [`stale_if_error`](Self::stale_if_error) | off | served when a load has failed |
/// | [`early`](Self::early) | off | refreshed by chance before it expires (XFetch) |
/// | [`jitter`](Self::jitter) | off | share of the time to live taken off by chance |
/// | [`soft_timeout`](Self::soft_timeout) | at once | how long a caller waits before it takes the stale value |
/// | [`hard_timeout`](Self::hard_timeout) | 10 s | how long a caller waits at all |
/// | [`load_timeout`](Self::load_timeout) | 30 s | how long a loader may run |
/// | [`max_concurrent_loads`](Self::max_concurrent_loads) | 64 | loaders of this cache that run at once |
/// | [`local`](Self::local) | 10 000 entries, 64 MiB | what is kept in this process |
pub struct Builder<K, V> {
    name: String,
    settings: Settings,
    clock: Clock,
    observer: Option<Arc<dyn Observer>>,
    weigher: Option<Weigher<K, V>>,
    #[cfg(feature = "redis")]
    shared: Option<crate::shared::Plan<K, V>>,
    #[cfg(feature = "fleet")]
    fleet: Option<crate::Fleet>,
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            settings: Settings::default(),
            clock: Clock::system(),
            observer: None,
            weigher: None,
            #[cfg(feature = "redis")]
            shared: None,
            #[cfg(feature = "fleet")]
            fleet: None,
        }
    }

    /// How long a value is fresh. A loader can say otherwise ([`Loaded::ttl`](crate::Loaded::ttl)).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.policy.ttl = ttl;
        self
    }

    /// How long a loader's "there is no such thing" is believed; zero: it is asked each time.
    #[must_use]
    pub fn negative_ttl(mut self, ttl: Duration) -> Self {
        self.settings.policy.negative_ttl = ttl;
        self
    }

    /// Serves a value for so long behind its freshness, while one refresh runs.
    #[must_use]
    pub fn stale(mut self, window: Duration) -> Self {
        self.settings.policy.stale = window;
        self
    }

    /// Serves a value for so long behind its freshness when a load has failed or timed out.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.settings.policy.stale_if_error = window;
        self
    }

    /// Refreshes values by chance before they expire, the more likely the nearer the expiry and the
    /// longer they take to load; `beta` is the weight, usually 1.
    #[must_use]
    pub fn early(mut self, beta: f64) -> Self {
        self.settings.policy.early = Some(beta);
        self
    }

    /// Takes up to this share off each time to live, by chance, so that what was stored together
    /// does not expire together.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.settings.policy.jitter = share;
        self
    }

    /// How long a caller waits for a refresh before it takes the stale value. Without it callers
    /// take the stale value at once.
    #[must_use]
    pub fn soft_timeout(mut self, timeout: Duration) -> Self {
        self.settings.soft_timeout = Some(timeout);
        self
    }

    /// How long a caller waits at all. The load goes on without it.
    #[must_use]
    pub fn hard_timeout(mut self, timeout: Duration) -> Self {
        self.settings.hard_timeout = timeout.min(LONGEST);
        self.settings.lease_wait = timeout.min(LONGEST);
        self
    }

    /// How long a loader may run before it is given up. A refresh in the background is given up
    /// when the value that it is to replace is gone, so that those who come then do not wait for
    /// it; but it gets four times what the last load took, and 100 ms at least.
    #[must_use]
    pub fn load_timeout(mut self, timeout: Duration) -> Self {
        self.settings.load_timeout = timeout.min(LONGEST);
        self
    }

    /// How long a failed refresh is not tried again in this process, and the old value served from
    /// its memory; 1 s.
    #[must_use]
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.settings.retry_pause = pause;
        self
    }

    /// How many loaders of this cache run at once in this process; others wait their turn.
    #[must_use]
    pub fn max_concurrent_loads(mut self, loads: usize) -> Self {
        self.settings.max_concurrent_loads = loads;
        self
    }

    /// How many keys may be on their way at once in this process; for others callers get
    /// [`Error::Overloaded`](crate::Error::Overloaded), or a stale value.
    #[must_use]
    pub fn max_flights(mut self, flights: usize) -> Self {
        self.settings.max_flights = flights;
        self
    }

    /// What is kept in this process's memory.
    #[must_use]
    pub fn local(mut self, local: Local) -> Self {
        self.settings.local = local;
        self
    }

    /// How many bytes an entry counts in a bound by bytes.
    #[must_use]
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Arc::new(weigher));
        self
    }

    /// Whether hot keys are refreshed before they expire, as long as they are hot. On by default.
    #[must_use]
    pub fn refresh_hot(mut self, yes: bool) -> Self {
        self.settings.refresh_hot = yes;
        self
    }

    /// Settings of the detector of hot keys, which takes 2.3 MiB; `None`: no detector, and no key is
    /// hot.
    #[must_use]
    pub fn detector(mut self, settings: Option<heatsink_detect::config::Settings>) -> Self {
        self.settings.detector = settings;
        self
    }

    /// Counts in a fleet, and does about hot keys what the fleet decides; its settings are used
    /// for the detector.
    #[cfg(feature = "fleet")]
    #[must_use]
    pub fn fleet(mut self, fleet: &crate::Fleet) -> Self {
        self.fleet = Some(fleet.clone());
        self
    }

    /// Who is told what happens.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Another clock than the system's, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the cache, on the tokio runtime that this is called on. With a shared tier it waits
    /// up to a second for the first connection; if there is none by then, the cache works without.
    pub async fn build(self) -> Result<Cache<K, V>, BuildError> {
        let runtime = Spawner::here().ok_or(BuildError::NoRuntime)?;
        validate(&self.name, &self.settings)?;
        #[cfg(feature = "redis")]
        let shared = match self.shared {
            Some(plan) => Some(plan.open(&self.name, &self.clock).await?),
            None => None,
        };
        let own = || {
            let settings = self.settings.detector.as_ref()?;
            Some(Heat::ticking(settings, &self.clock, &runtime))
        };
        #[cfg(feature = "fleet")]
        let heat = match &self.fleet {
            Some(fleet) => Some(Heat::of_fleet(fleet, &self.clock)),
            None => own(),
        };
        #[cfg(not(feature = "fleet"))]
        let heat = own();
        Ok(Cache::new(Inner::new(Parts {
            name: self.name,
            settings: self.settings,
            clock: self.clock,
            runtime,
            observer: self.observer,
            weigher: self.weigher,
            heat,
            #[cfg(feature = "redis")]
            shared,
        })))
    }
}

fn validate(name: &str, settings: &Settings) -> Result<(), BuildError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let share = |value: f64| (0.0..=1.0).contains(&value);
    let faults = [
        (name.is_empty() || !name.bytes().all(is_plain), "name", "must be of A-Z a-z 0-9 - _ . /"),
        (settings.policy.ttl < MS, "ttl", "must be at least a millisecond"),
        (!share(settings.policy.jitter), "jitter", "must be 0 to 1"),
        (
            settings.policy.early.is_some_and(|beta| !(0.0..=1000.0).contains(&beta)),
            "early",
            "must be 0 to 1000",
        ),
        (settings.hard_timeout.is_zero(), "hard_timeout", "must be positive"),
        (settings.load_timeout.is_zero(), "load_timeout", "must be positive"),
        (settings.max_concurrent_loads == 0, "max_concurrent_loads", "must be positive"),
        (settings.max_flights == 0, "max_flights", "must be positive"),
        (settings.lease < 30 * MS, "lease", "must be at least 30 ms"),
    ];
    if let Some((_, name, range)) = faults.into_iter().find(|(wrong, ..)| *wrong) {
        return Err(BuildError::Setting(name, range));
    }
    if let Some(detector) = &settings.detector {
        detector.validate().map_err(|error| BuildError::Setting(error.setting, error.reason))?;
    }
    Ok(())
}

const MS: Duration = Duration::from_millis(1);

#[cfg(feature = "redis")]
mod shared {
    use std::hash::Hash;
    use std::time::Duration;

    use super::{Builder, Fallback, LONGEST};
    use crate::codec::Codec;
    use crate::key::Key;
    use crate::shared::Plan;
    use crate::store::Store;

    /// With a shared tier. Settings that are about it do nothing without one.
    impl<K, V> Builder<K, V>
    where
        K: Key + Hash + Eq + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        /// A shared tier at a URL as in `redis://[user:pass@]host[:port][/db]`,
        /// `redis+cluster://host[:port][,host[:port]...]` or
        /// `redis+sentinel://host[:port][,...]/name`, with `rediss` for TLS; values as JSON.
        #[cfg(feature = "json")]
        #[must_use]
        pub fn redis(self, url: impl Into<String>) -> Self
        where
            V: serde::Serialize + serde::de::DeserializeOwned,
        {
            self.redis_with(url, crate::codec::Json)
        }

        /// A shared tier at a URL, with another codec.
        #[must_use]
        pub fn redis_with(mut self, url: impl Into<String>, codec: impl Codec<V>) -> Self {
            self.shared = Some(Plan::at(url.into(), codec));
            self
        }

        /// A shared tier that several caches use: one connection a server for all of them.
        #[must_use]
        pub fn store(mut self, store: Store, codec: impl Codec<V>) -> Self {
            self.shared = Some(Plan::on(store, codec));
            self
        }

        /// How long a value is served from this process before the shared tier is asked again, at
        /// most; by default a fifth of its time to live. Changes are told at once, so this bounds
        /// only what is not told.
        #[must_use]
        pub fn local_ttl(mut self, ttl: Duration) -> Self {
            self.settings.local_ttl = Some(ttl);
            self
        }

        /// How long after the death of a process others wait before one of them loads what it was
        /// loading. A process that lives keeps its lease for as long as its loader runs.
        #[must_use]
        pub fn lease(mut self, lease: Duration) -> Self {
            self.settings.lease = lease.min(LONGEST);
            self
        }

        /// How long a caller waits for the load of another process before the
        /// [fallback](Self::fallback) decides; by default the hard timeout.
        #[must_use]
        pub fn lease_wait(mut self, wait: Duration) -> Self {
            self.settings.lease_wait = wait.min(LONGEST);
            self
        }

        /// What happens when the shared tier cannot be asked.
        #[must_use]
        pub fn fallback(mut self, fallback: Fallback) -> Self {
            self.settings.fallback = fallback;
            self
        }

        /// Larger values are kept by nobody, and loaded each time; 1 MiB by default.
        #[must_use]
        pub fn max_value_bytes(mut self, bytes: usize) -> Self {
            self.settings.max_value_bytes = bytes;
            self
        }
    }
}
