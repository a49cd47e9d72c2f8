//! Schedules of readers of the shared tier, writers and words from the server; see
//! `schedules`.

use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use super::{Core, Store, Watch};
use crate::fence::Fence;
use crate::schedules::explore;

/// A store of one number that is reached in no time, and a memory with one place before it.
struct World {
    stored: AtomicU64,
    memory: Mutex<Option<(u64, Fence)>>,
    core: Arc<Core>,
}

impl World {
    fn new() -> Arc<Self> {
        let core = Store::builder("redis://127.0.0.1:1").core().expect("a URL");
        Arc::new(Self { stored: AtomicU64::new(0), memory: Mutex::new(None), core })
    }

    fn cached(&self) -> Option<u64> {
        let (value, fence) = (*self.memory.lock().unwrap())?;
        self.core.fences.holds(fence, 0).then_some(value)
    }

    /// The memory, else a look behind a fence.
    fn read(&self) -> u64 {
        self.cached().unwrap_or_else(|| {
            let fence = self.core.fences.take(self.core.stripe(b"k"), crate::fence::NO_LINK);
            let value = self.stored.load(Ordering::SeqCst);
            *self.memory.lock().unwrap() = Some((value, fence));
            value
        })
    }
}

#[test]
fn what_was_read_before_a_change_is_never_served_after_it() {
    let run = || {
        let world = World::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.read())
            })
            .collect();
        world.stored.store(1, Ordering::SeqCst);
        world.core.key_changed(b"k");
        // The change is known here.
        assert_eq!(world.read(), 1);
        for reader in readers {
            reader.join().unwrap();
        }
        assert_ne!(world.cached(), Some(0));
    };
    explore(run);
}

/// A waiter that missed the word would never return, which is found as a deadlock.
#[test]
fn who_waits_for_a_change_is_woken_by_it_whenever_it_comes() {
    let run = || {
        let world = World::new();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let watch = Watch::new(&world.core, b"k");
                    loop {
                        let epoch = watch.epoch();
                        if world.stored.load(Ordering::SeqCst) == 2 {
                            return;
                        }
                        block_on(watch.changed_since(epoch));
                    }
                })
            })
            .collect();
        for value in 1..=2 {
            world.stored.store(value, Ordering::SeqCst);
            world.core.key_changed(b"k");
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(world.core.watchers.len(), 0);
    };
    explore(run);
}
