//! The caches that are measured, each used as its documentation says.
//!
//! Called by: `cache`.
//! Bound: each holds as many entries as it is told to.
//! Invariant: each gets the same keys and values, keeps the hasher and the policy that it comes
//! with, and is given a time to live of an hour where it knows one. Where a hit clones the value,
//! the value is an `Arc`, as the crate's documentation advises; where it hands out an entry, the
//! value is stored as it is.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cached::{ConcurrentCached, ShardedLruTtlCache};
use heatsink::Local;

const TTL: Duration = Duration::from_secs(3600);

/// Times that any cache ran its loader.
static LOADS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn loads() -> u64 {
    LOADS.load(Ordering::Relaxed)
}

/// What is cached.
pub(crate) struct Row([u8; 100]);

/// The loader: there at once.
fn load() -> Row {
    LOADS.fetch_add(1, Ordering::Relaxed);
    Row([7; 100])
}

impl Row {
    /// A value is read, not only looked up.
    fn read(&self) -> u8 {
        self.0[50]
    }
}

/// A cache with an asynchronous "get it, or load it".
pub(crate) trait Rival: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Whether it promises one load for callers at the same time, and a time to live.
    const SINGLE_FLIGHT: bool;
    const TTL: bool;

    fn build(entries: usize) -> impl Future<Output = Self> + Send;
    fn get(&self, key: &str) -> impl Future<Output = u8> + Send;
}

/// With its defaults: the detector of hot keys is on.
pub(crate) struct Heatsink(heatsink::Cache<String, Row>);

impl Rival for Heatsink {
    const NAME: &'static str = "heatsink";
    const SINGLE_FLIGHT: bool = true;
    const TTL: bool = true;

    async fn build(entries: usize) -> Self {
        let builder = heatsink::Cache::builder("bench").ttl(TTL).local(Local::entries(entries));
        Self(builder.build().await.expect("a cache"))
    }

    async fn get(&self, key: &str) -> u8 {
        let load = |_| async { Ok::<_, Infallible>(load()) };
        self.0.get(key).load(load).await.expect("a row").read()
    }
}

pub(crate) struct WithoutDetector(heatsink::Cache<String, Row>);

impl Rival for WithoutDetector {
    const NAME: &'static str = "heatsink, no detector";
    const SINGLE_FLIGHT: bool = true;
    const TTL: bool = true;

    async fn build(entries: usize) -> Self {
        let builder = heatsink::Cache::builder("bench").ttl(TTL).local(Local::entries(entries));
        Self(builder.detector(None).build().await.expect("a cache"))
    }

    async fn get(&self, key: &str) -> u8 {
        let load = |_| async { Ok::<_, Infallible>(load()) };
        self.0.get(key).load(load).await.expect("a row").read()
    }
}

pub(crate) struct Moka(moka::future::Cache<String, Arc<Row>>);

impl Rival for Moka {
    const NAME: &'static str = "moka";
    const SINGLE_FLIGHT: bool = true;
    const TTL: bool = true;

    async fn build(entries: usize) -> Self {
        let builder = moka::future::Cache::builder().max_capacity(entries as u64);
        Self(builder.time_to_live(TTL).build())
    }

    async fn get(&self, key: &str) -> u8 {
        self.0.get_with_by_ref(key, async { Arc::new(load()) }).await.read()
    }
}

pub(crate) struct Foyer(foyer_memory::Cache<String, Row>);

impl Rival for Foyer {
    const NAME: &'static str = "foyer (memory)";
    const SINGLE_FLIGHT: bool = true;
    const TTL: bool = false;

    async fn build(entries: usize) -> Self {
        Self(foyer_memory::CacheBuilder::new(entries).build())
    }

    async fn get(&self, key: &str) -> u8 {
        let load = || async { Ok::<_, Infallible>(load()) };
        self.0.get_or_fetch(key, load).await.expect("a row").read()
    }
}

pub(crate) struct Amalgam(amalgam::Cache<Arc<Row>>);

impl Rival for Amalgam {
    const NAME: &'static str = "amalgam-cache";
    const SINGLE_FLIGHT: bool = true;
    const TTL: bool = true;

    async fn build(entries: usize) -> Self {
        let builder = amalgam::Cache::builder().max_capacity(entries as u64);
        let builder = builder.default_options(amalgam::EntryOptions::new(TTL));
        Self(builder.try_build().expect("a cache"))
    }

    async fn get(&self, key: &str) -> u8 {
        let load = amalgam::source::factory(|cx: amalgam::FactoryContext<Arc<Row>>| async move {
            Ok::<_, amalgam::FactoryError>(cx.value(Arc::new(load())))
        });
        self.0.get_or_set(key, load).await.expect("a row").read()
    }
}

/// As its macro for `async fn` expands: a look, and a fill after the load.
pub(crate) struct Cached(ShardedLruTtlCache<String, Arc<Row>>);

impl Rival for Cached {
    const NAME: &'static str = "cached";
    const SINGLE_FLIGHT: bool = false;
    const TTL: bool = true;

    async fn build(entries: usize) -> Self {
        Self(ShardedLruTtlCache::new(entries, TTL))
    }

    async fn get(&self, key: &str) -> u8 {
        if let Some(row) = self.0.get(key) {
            return row.read();
        }
        let row = async { Arc::new(load()) }.await;
        let _ = self.0.cache_set(key.to_owned(), Arc::clone(&row));
        row.read()
    }
}

/// What Heatsink's local tier is built on.
pub(crate) struct QuickCache(quick_cache::sync::Cache<String, Arc<Row>>);

impl Rival for QuickCache {
    const NAME: &'static str = "quick_cache (bare)";
    const SINGLE_FLIGHT: bool = true;
    const TTL: bool = false;

    async fn build(entries: usize) -> Self {
        Self(quick_cache::sync::Cache::new(entries))
    }

    async fn get(&self, key: &str) -> u8 {
        let load = async { Ok::<_, Infallible>(Arc::new(load())) };
        let Ok(row) = self.0.get_or_insert_async(key, load).await;
        row.read()
    }
}
