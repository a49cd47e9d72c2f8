//! What is allocated: how often by a thread, and how much by the process that is still there.
//!
//! Called by: `cache`, around hits that should not allocate, and around a cache that fills.
//! Bound: one counter a thread, one for the process.
//! Invariant: the process's counter moves only inside [`kept_by`], so that threads do not wait
//! for each other in measurements of time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}
static COUNTS_BYTES: AtomicBool = AtomicBool::new(false);
static KEPT_BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, with a count of what it was asked for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(calls: u64, bytes: i64) {
    CALLS.set(CALLS.get() + calls);
    if COUNTS_BYTES.load(Ordering::Relaxed) {
        KEPT_BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[expect(unsafe_code, reason = "to be an allocator is an unsafe trait")]
// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract. The
// thread's counter has no destructor and no lazy start, so it neither allocates nor is ever gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(1, bytes as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How often this thread has allocated so far.
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

/// The bytes that were asked for while `work` ran and not given back by its end. What the
/// allocator itself adds to each block is not in it.
pub(crate) fn kept_by<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = KEPT_BYTES.load(Ordering::Relaxed);
    COUNTS_BYTES.store(true, Ordering::SeqCst);
    let result = work();
    COUNTS_BYTES.store(false, Ordering::SeqCst);
    (result, KEPT_BYTES.load(Ordering::Relaxed) - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_this_thread_are_counted() {
        let before = calls();
        let room = std::hint::black_box(Vec::<u8>::with_capacity(1000));
        assert_eq!(calls() - before, 1);
        drop(room);
        assert_eq!(calls() - before, 1);
    }
}
