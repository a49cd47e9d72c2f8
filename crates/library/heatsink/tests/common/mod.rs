//! Processes of a fleet, each with a runtime, a connection and a memory of its own.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod relay;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use heatsink::{Builder, Cache, Counts, Error, Source, Store, StoreBuilder, StoreState};
use heatsink_testkit::eventually;
use tokio::runtime::Runtime;

pub(crate) const S: fn(u64) -> Duration = Duration::from_secs;
pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

pub(crate) type Users = Cache<u32, String>;

/// Counts queries; each gives another text.
#[derive(Clone, Default)]
pub(crate) struct Database(Arc<AtomicU32>);

impl Database {
    pub(crate) async fn query(self, takes: Duration) -> Result<String, String> {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(takes).await;
        Ok(format!("row {number}"))
    }

    pub(crate) fn queries(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What would be a process of its own.
pub(crate) struct Process {
    runtime: Option<Runtime>,
    pub(crate) cache: Users,
    pub(crate) database: Database,
}

impl Process {
    pub(crate) fn start(url: &str, database: &Database) -> Self {
        Self::start_with(url, database, |builder| builder, |store| store)
    }

    pub(crate) fn start_with(
        url: &str,
        database: &Database,
        settings: impl FnOnce(Builder<u32, String>) -> Builder<u32, String>,
        store: impl FnOnce(StoreBuilder) -> StoreBuilder,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let cache = runtime.block_on(async {
            let store = store(Store::builder(url)).connect().await.expect("a store");
            let builder = Cache::builder("users").store(store, heatsink::Json);
            settings(builder.ttl(S(60))).build().await.expect("a cache")
        });
        Self { runtime: Some(runtime), cache, database: database.clone() }
    }

    pub(crate) fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it runs").block_on(what)
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        what: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.as_ref().expect("it runs").spawn(what)
    }

    /// A `get` of a key, with a query that takes so long if it is absent; and what it caused is
    /// stored when this returns.
    pub(crate) fn get(&self, key: u32, takes: Duration) -> (String, Source) {
        let answer = self.get_at_once(key, takes);
        self.settle();
        answer
    }

    pub(crate) fn get_at_once(&self, key: u32, takes: Duration) -> (String, Source) {
        let entry = self.run(get(&self.cache, &self.database, key, takes)).expect("a value");
        ((*entry).clone(), entry.source())
    }

    /// Callers are answered before what they caused is stored.
    pub(crate) fn settle(&self) {
        eventually(S(10), || self.cache.loading() == 0);
    }

    pub(crate) fn sleep(&self, time: Duration) {
        self.run(async { tokio::time::sleep(time).await });
    }

    pub(crate) fn counts(&self) -> Counts {
        self.cache.counts()
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.cache.shared_state(), Some(StoreState::Connected { .. }))
    }

    /// Ends it as a signal would: nothing is given back.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) async fn get(
    cache: &Users,
    database: &Database,
    key: u32,
    takes: Duration,
) -> Result<heatsink::Entry<String>, Error<String>> {
    let database = database.clone();
    cache.get(&key).load(move |_| database.query(takes)).await
}

/// Polls all of them in one task: all have asked before a load, which is a task of its own, can end
/// on the one thread of a [`Process`]. The outcomes come in the order in which they were there.
pub(crate) async fn all_at_once<T>(calls: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut outcomes = Vec::new();
    poll_fn(|cx| {
        calls.retain_mut(|call| match call.as_mut().poll(cx) {
            Poll::Ready(outcome) => {
                outcomes.push(outcome);
                false
            }
            Poll::Pending => true,
        });
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcomes
}
