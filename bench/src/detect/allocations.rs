//! How many bytes a thread allocates.
//!
//! Called by: `detect::ring`, around touches that must not allocate.
//! Bound: one counter a thread.
//! Invariant: a thread's counter is written by that thread alone, so that measurements of
//! several threads are not slowed down by it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what it was asked for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "to be an allocator is an unsafe trait")]
// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract. The
// counter has no destructor and no lazy start, so that it neither allocates nor is ever gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get().wrapping_add(layout.size() as u64));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get().wrapping_add(layout.size() as u64));
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get().wrapping_add(bytes as u64));
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// What this thread allocates while `work` runs.
pub(crate) fn during(work: impl FnOnce()) -> u64 {
    let before = ALLOCATED_BYTES.get();
    work();
    ALLOCATED_BYTES.get().wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted_and_what_is_not_is_not() {
        assert_eq!(during(|| drop(std::hint::black_box(vec![1_u8; 1000]))), 1000);
        let mut room = Vec::with_capacity(10);
        assert_eq!(during(|| room.push(1)), 0);
        assert!(during(|| room.resize(11, 1)) >= 11);
    }
}
