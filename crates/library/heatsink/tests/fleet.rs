//! Applications in a fleet: counts that are added up, an operator's word, with and without a proxy.

#![cfg(feature = "fleet")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{MS, S};
use heatsink::detect::config::Settings as Detect;
use heatsink::{Cache, Fleet, Local, Source};
use heatsink_control::entry::{Entry, Mitigation, Origin, Status};
use heatsink_control::wire;
use heatsink_coordination::{Expects, Put, PutOutcome, Settings, Store as Coordination};
use heatsink_testkit::{RedisServer, eventually};

/// A process with a cache that keeps hot keys only.
struct Member {
    runtime: tokio::runtime::Runtime,
    cache: Cache<u32, u32>,
    is_over: Arc<AtomicBool>,
}

impl Member {
    fn join(url: &str, detect: &Detect) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let cache = runtime.block_on(async {
            let fleet = Fleet::builder(url).detect(detect.clone()).join().unwrap();
            let builder = Cache::builder("items").redis(url).ttl(S(60)).local(Local::hot());
            builder.fleet(&fleet).build().await.unwrap()
        });
        Self { runtime, cache, is_over: Arc::default() }
    }

    fn ask(&self, key: u32) -> Source {
        let get = self.cache.get(&key).load(move |_| async move { Ok::<_, String>(key) });
        self.runtime.block_on(get).unwrap().source()
    }

    fn is_kept(&self, key: u32) -> bool {
        self.ask(key);
        self.cache.peek(&key).is_some()
    }

    /// So many a second, until it is over.
    fn ask_steadily(&self, key: u32, per_second: u32) {
        let (cache, is_over) = (self.cache.clone(), Arc::clone(&self.is_over));
        self.runtime.spawn(async move {
            let mut pace = tokio::time::interval(MS(10));
            while !is_over.load(Ordering::SeqCst) {
                pace.tick().await;
                for _ in 0..per_second / 100 {
                    let load = move |_| async move { Ok::<_, String>(key) };
                    drop(cache.get(&key).load(load).await);
                }
            }
        });
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

const PATIENCE: Duration = Duration::from_secs(15);

#[test]
fn a_key_that_is_hot_only_in_the_sum_is_kept_by_all_and_forgotten_when_it_cools() {
    let server = RedisServer::start();
    let detect = Detect { hot_threshold: 500, hold_seconds: 1, ..Detect::default() };
    let (one, two) = (Member::join(&server.url(), &detect), Member::join(&server.url(), &detect));
    for member in [&one, &two] {
        assert!(!member.is_kept(1));
        // On its own this is not enough.
        member.ask_steadily(1, 400);
    }
    eventually(PATIENCE, || one.is_kept(1) && two.is_kept(1));
    assert!(!one.is_kept(2) && !two.is_kept(2));
    assert_eq!(one.cache.hot_keys()[0].0, b"items:1");
    one.is_over.store(true, Ordering::SeqCst);
    two.is_over.store(true, Ordering::SeqCst);
    eventually(S(20), || one.cache.hot_keys().is_empty() && two.cache.hot_keys().is_empty());
}

#[test]
fn what_an_operator_promotes_is_kept_and_what_is_removed_is_not() {
    let server = RedisServer::start();
    let member = Member::join(&server.url(), &Detect::default());
    assert!(!member.is_kept(7));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = server.url().parse().unwrap();
    let store = runtime.block_on(async {
        Coordination::redis(&url, None, Settings::new("default").unwrap()).unwrap()
    });
    // As the admin API of a proxy writes it.
    let entry = Entry {
        mitigation: Mitigation::LocalCache,
        split_factor: 1,
        ttl_seconds: None,
        origin: Origin::Manual,
        status: Status::Active,
        reason: "promoted".to_owned(),
        dry_run: false,
        frequency: 0.0,
        reads_per_second: 0.0,
        writes_per_second: 0.0,
        detected_at_ms: 0,
        split: None,
        pause: None,
    };
    let put = Put { body: wire::encode_entry(&entry), expects: Expects::Any, ..Put::default() };
    let outcome = runtime.block_on(store.put(b"items:7", put)).unwrap();
    assert!(matches!(outcome, PutOutcome::Applied { .. }));
    eventually(PATIENCE, || member.is_kept(7));
    assert_eq!(member.ask(7), Source::Local);

    runtime.block_on(store.remove(b"items:7", Expects::Any, None)).unwrap();
    eventually(PATIENCE, || {
        member.runtime.block_on(member.cache.invalidate(&7)).unwrap();
        !member.is_kept(7)
    });
}
