//! What the tests share: stores of each kind, each with a namespace of its own, and waits.

#![allow(dead_code)] // Each test program uses a part.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use heatsink_coordination::{
    Channel, Expects, Notice, Put, PutOutcome, Settings, Snapshot, Store, Subscription,
};
use heatsink_testkit::{RedisCluster, RedisServer, SentinelRig};
use heatsink_upstream::address::Url;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Settings with a namespace that no other test has.
pub(crate) fn settings() -> Settings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Settings::new(&format!("test-{number}")).expect("a namespace")
}

pub(crate) fn url(text: &str) -> Url {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn store_at(text: &str, settings: Settings) -> Store {
    Store::redis(&url(text), None, settings).expect("a store")
}

/// Where the semantics are tested. Servers are shared by the tests of a program and end with
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Memory,
    Server,
    Cluster,
    Sentinel,
}

impl Backend {
    /// Handles to one store, as many processes would have them.
    pub(crate) fn handles<const N: usize>(self, settings: &Settings) -> [Store; N] {
        if let Self::Memory = self {
            let store = Store::memory(settings.clone());
            return std::array::from_fn(|_| store.clone());
        }
        std::array::from_fn(|_| store_at(&self.url(), settings.clone()))
    }

    fn url(self) -> String {
        match self {
            Self::Memory => unreachable!("memory has no URL"),
            Self::Server => shared_server().url(),
            Self::Cluster => shared_cluster().seed_url(),
            Self::Sentinel => shared_sentinel().url(),
        }
    }
}

pub(crate) fn shared_server() -> MutexGuard<'static, RedisServer> {
    static SHARED: OnceLock<Mutex<RedisServer>> = OnceLock::new();
    lock(SHARED.get_or_init(|| Mutex::new(RedisServer::start())))
}

pub(crate) fn shared_cluster() -> MutexGuard<'static, RedisCluster> {
    static SHARED: OnceLock<Mutex<RedisCluster>> = OnceLock::new();
    lock(SHARED.get_or_init(|| Mutex::new(RedisCluster::start())))
}

pub(crate) fn shared_sentinel() -> MutexGuard<'static, SentinelRig> {
    static SHARED: OnceLock<Mutex<SentinelRig>> = OnceLock::new();
    lock(SHARED.get_or_init(|| Mutex::new(SentinelRig::start())))
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A put with nothing special.
pub(crate) fn body(text: impl AsRef<[u8]>) -> Put {
    Put { body: text.as_ref().to_vec(), ..Put::default() }
}

pub(crate) fn expecting(expects: Expects, text: impl AsRef<[u8]>) -> Put {
    Put { expects, ..body(text) }
}

#[track_caller]
pub(crate) fn applied(outcome: PutOutcome) -> u64 {
    match outcome {
        PutOutcome::Applied { version } => version,
        other => panic!("not applied: {other:?}"),
    }
}

/// The next notice, which has to come.
pub(crate) async fn next(subscription: &mut Subscription) -> Notice {
    let notice = tokio::time::timeout(PATIENCE, subscription.recv()).await;
    notice.expect("a notice in time").expect("the subscription goes on")
}

/// A subscription that has begun.
pub(crate) async fn listen(store: &Store, channels: &[Channel]) -> Subscription {
    let mut subscription = store.subscribe(channels);
    let first = next(&mut subscription).await;
    assert!(matches!(first, Notice::Connected { .. }), "{first:?}");
    subscription
}

/// Skips to the first notice that `wanted` has an answer for.
pub(crate) async fn skip_to<T>(
    subscription: &mut Subscription,
    mut wanted: impl FnMut(&Notice) -> Option<T>,
) -> T {
    loop {
        if let Some(found) = wanted(&next(subscription).await) {
            return found;
        }
    }
}

pub(crate) fn is_lost(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Lost { why } => Some(why.clone()),
        _ => None,
    }
}

pub(crate) fn is_connected(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Connected { server } => Some(server.clone()),
        _ => None,
    }
}

/// Asks until the answer is `Ok`, at the pace of the store; with a stopped clock, time flies.
pub(crate) async fn eventually<T, E: Debug>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(found) => return found,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "still {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The records of a snapshot by key: epoch and body.
pub(crate) fn contents(snapshot: &Snapshot) -> std::collections::BTreeMap<Vec<u8>, (u64, Vec<u8>)> {
    let entry = |record: &heatsink_coordination::Record| {
        (record.key.clone(), (record.epoch, record.body.clone()))
    };
    snapshot.records.iter().map(entry).collect()
}
