//! Places that threads have to themselves, so that one can count without an atomic addition.
//!
//! ```text
//! thread A                    thread B
//!   takes place 3
//!   counts: load, store
//!   ends, gives 3 back
//!                             takes place 3, under the lock under which A gave it back:
//!                             sees all that A counted, and goes on from there
//! ```
//!
//! Called by: `counters`, at every hit.
//! Bound: [`PLACES`] threads at once have one; further ones share a counter.
//! Invariant: a place belongs to one living thread at most.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

pub(super) const PLACES: usize = 64;

/// Where a thread counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Where nobody else does.
    Own(usize),
    /// With the others that found no place, or are ending.
    Shared,
}

const UNKNOWN: usize = usize::MAX;
const SHARED: usize = PLACES;

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(UNKNOWN) };
    static TENURE: Tenure = Tenure(take());
}

static TAKEN: Mutex<[bool; PLACES]> = Mutex::new([false; PLACES]);

/// Gives the place back when the thread ends.
struct Tenure(usize);

impl Drop for Tenure {
    fn drop(&mut self) {
        // Whatever this thread still counts, in destructors that come later, it counts with others.
        MINE.set(SHARED);
        if self.0 < PLACES {
            TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[self.0] = false;
        }
    }
}

fn take() -> usize {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = taken.iter().position(|taken| !taken) else { return SHARED };
    taken[place] = true;
    place
}

/// The calling thread's place.
#[inline]
pub(super) fn mine() -> Place {
    // There the threads of a schedule are all one thread of the system.
    if cfg!(feature = "shuttle") {
        return Place::Shared;
    }
    match MINE.get() {
        place if place < PLACES => Place::Own(place),
        SHARED => Place::Shared,
        _ => settle(),
    }
}

#[cold]
fn settle() -> Place {
    // None: the thread is ending.
    let place = TENURE.try_with(|tenure| tenure.0).unwrap_or(SHARED);
    MINE.set(place);
    mine()
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Barrier;

    use super::*;

    // The test's own thread takes no part: other tests of the process run beside this one.
    #[test]
    fn living_threads_have_places_of_their_own_and_dead_ones_none() {
        let many = 2 * PLACES;
        for _ in 0..3 {
            let all_there = Barrier::new(many);
            let mut places: Vec<_> = std::thread::scope(|scope| {
                let ask = || {
                    let place = mine();
                    all_there.wait();
                    assert_eq!(mine(), place);
                    place
                };
                let threads: Vec<_> = (0..many).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            places.retain(|place| *place != Place::Shared);
            let own = places.len();
            places.sort_unstable_by_key(|place| match place {
                Place::Own(place) => *place,
                Place::Shared => UNKNOWN,
            });
            places.dedup();
            assert_eq!(places.len(), own, "two threads at one place");
            assert!(own > PLACES / 2, "{own}: places are given back");
        }
    }

    #[test]
    fn what_a_thread_counts_while_it_ends_it_counts_with_others() {
        /// Looks once more in its destructor; that of what was used first comes last.
        struct Late(std::sync::mpsc::Sender<Place>);
        impl Drop for Late {
            fn drop(&mut self) {
                let _ = self.0.send(mine());
            }
        }
        thread_local! {
            static LATE: Cell<Option<Late>> = const { Cell::new(None) };
        }
        let (sender, late) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            LATE.set(Some(Late(sender)));
            mine();
        });
        thread.join().unwrap();
        assert_eq!(late.recv(), Ok(Place::Shared));
    }
}
