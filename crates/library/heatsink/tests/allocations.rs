//! A hit allocates nothing: not for the detector, not near its end, not when it is stale.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use heatsink::{Cache, Clock};

const S: fn(u64) -> Duration = Duration::from_secs;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "to be an allocator is an unsafe trait")]
// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract. The
// counter has no destructor and no lazy start, so that it neither allocates nor is ever gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// What so many hits of a key allocate on this thread.
fn allocations_of(hits: u32, cache: &Cache<String, Vec<u8>>) -> u64 {
    let mut cx = Context::from_waker(Waker::noop());
    let mut hit = || {
        let load = |_| async { Err::<Vec<u8>, ()>(()) };
        let get = pin!(cache.get("key").load(load));
        let Poll::Ready(Ok(value)) = get.poll(&mut cx) else { panic!("a hit") };
        assert_eq!(value.len(), 100);
    };
    // The thread's place among the counters, once for the process.
    hit();
    let before = ALLOCATIONS.get();
    for _ in 0..hits {
        hit();
    }
    ALLOCATIONS.get() - before
}

/// Counts are told to the detector in batches of 64, so these are many, and the key is found hot.
const HITS: u32 = 100_000;

/// The detector's task has another thread.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn a_hit_allocates_nothing_with_the_detector_and_in_all_its_life() {
    let runtime = runtime();
    let clock = Clock::manual();
    let cache = runtime.block_on(async {
        let cache = Cache::<String, Vec<u8>>::builder("hits").ttl(S(3600)).early(1.0);
        let cache = cache.stale(S(60)).clock(clock.clone()).build().await.unwrap();
        cache.put(&"key".to_owned(), vec![7; 100]).await.unwrap();
        cache
    });
    for _ in 0..20 {
        assert_eq!(allocations_of(HITS / 20, &cache), 0);
        clock.advance(Duration::from_millis(50));
    }
    assert_eq!(cache.hot_keys().len(), 1);
    // Shortly before its end, when each hit decides whether it refreshes: one does, for all.
    clock.advance(S(3500));
    allocations_of(1, &cache);
    assert_eq!(allocations_of(HITS, &cache), 0);
    assert_eq!(cache.counts().gets(), u64::from(HITS) * 2 + 23);
}

#[test]
fn a_stale_hit_allocates_nothing_while_the_refresh_runs() {
    let runtime = runtime();
    let clock = Clock::manual();
    let cache = runtime.block_on(async {
        let cache = Cache::<String, Vec<u8>>::builder("hits").ttl(S(60)).stale(S(60));
        let cache = cache.clock(clock.clone()).build().await.unwrap();
        cache.put(&"key".to_owned(), vec![7; 100]).await.unwrap();
        cache
    });
    clock.advance(S(70));
    allocations_of(1, &cache);
    assert_eq!(allocations_of(HITS, &cache), 0);
    assert_eq!(cache.counts().stale_served, u64::from(HITS) + 3);
}

#[test]
#[cfg(feature = "redis")]
fn a_hit_in_memory_before_a_shared_tier_allocates_nothing() {
    let server = heatsink_testkit::RedisServer::start();
    let runtime = runtime();
    let cache = runtime.block_on(async {
        let store = heatsink::Store::connect(&server.url()).await.unwrap();
        let cache = Cache::<String, Vec<u8>>::builder("hits").ttl(S(3600));
        let cache = cache.store(store, heatsink::Bytes).build().await.unwrap();
        let load = |_| async { Ok::<_, ()>(vec![7; 100]) };
        drop(cache.get("key").load(load).await);
        cache
    });
    heatsink_testkit::eventually(S(10), || cache.peek("key").is_some());
    assert_eq!(allocations_of(HITS, &cache), 0);
    assert_eq!(cache.hot_keys()[0].0, b"hits:key");
}
