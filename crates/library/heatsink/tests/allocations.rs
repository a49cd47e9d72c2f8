//! A hit allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use heatsink::Cache;

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

#[tokio::test]
async fn a_hit_allocates_nothing_and_is_ready_at_once() {
    let cache = Cache::<String, Vec<u8>>::builder("hits").ttl(Duration::from_secs(3600));
    let cache = cache.build().await.unwrap();
    cache.put(&"key".to_owned(), vec![7; 100]).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut hit = || {
        let load = |_| async { Err::<Vec<u8>, ()>(()) };
        let get = pin!(cache.get("key").load(load));
        let Poll::Ready(Ok(value)) = get.poll(&mut cx) else { panic!("a hit") };
        assert_eq!(value.len(), 100);
    };
    hit();
    let before = ALLOCATIONS.get();
    // Less than a batch of the detector, which is counted under the key's name then.
    for _ in 0..40 {
        hit();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
