//! Schedules of callers, loads and changes of the whole cache, explored one after the other:
//! `cargo test -p heatsink --features shuttle --lib schedules`. A failing schedule is printed, and
//! replayed with `shuttle::replay`.
//!
//! Bound: random schedules, [`SCHEDULES`] for each property; no time passes in one unless the clock
//! is moved.

use std::task::Poll;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::{Cache, Clock, Error};

const SCHEDULES: usize = 3000;

const TTL: Duration = Duration::from_secs(60);

/// A database of one number, and a cache before it.
#[derive(Clone)]
struct World {
    truth: Arc<AtomicU64>,
    cache: Cache<u8, u64>,
    clock: Clock,
}

impl World {
    fn new() -> Self {
        let clock = Clock::manual();
        let builder = Cache::builder("world").ttl(TTL).stale(TTL).detector(None);
        let cache = block_on(builder.clock(clock.clone()).build()).expect("a cache");
        Self { truth: Arc::new(AtomicU64::new(0)), cache, clock }
    }

    fn get(&self) -> Result<u64, Error<u64>> {
        let truth = Arc::clone(&self.truth);
        let load = move |_| async move {
            let value = truth.load(Ordering::SeqCst);
            // The answer is on its way.
            shuttle::future::yield_now().await;
            if value == FAILS { Err(value) } else { Ok(value) }
        };
        block_on(self.cache.get(&1).load(load)).map(|entry| *entry)
    }

    fn spawn<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let world = self.clone();
        thread::spawn(move || what(&world))
    }

    fn is_settled(&self) {
        while self.cache.loading() > 0 {
            thread::yield_now();
        }
    }
}

/// A query for this fails.
const FAILS: u64 = u64::MAX;

pub(crate) fn explore(run: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    // The future of a load needs more than the default.
    config.stack_size = 1 << 19;
    shuttle::Runner::new(RandomScheduler::new(SCHEDULES), config).run(run);
}

#[test]
fn nobody_who_asks_after_an_invalidation_gets_what_was_there_before() {
    explore(|| {
        let world = World::new();
        let readers = [world.spawn(World::get), world.spawn(World::get)];
        world.truth.store(1, Ordering::SeqCst);
        block_on(world.cache.invalidate(&1)).unwrap();
        assert_eq!(world.get().unwrap(), 1);
        for reader in readers {
            reader.join().unwrap().unwrap();
        }
        world.is_settled();
        // Nor did a load from before put it back.
        assert!(world.cache.peek(&1).is_none_or(|entry| *entry == 1));
        assert_eq!(world.get().unwrap(), 1);
        assert_eq!(world.cache.counts().gets(), 4);
    });
}

#[test]
fn a_put_is_neither_overwritten_by_a_load_from_before_nor_missed_by_a_get_from_after() {
    explore(|| {
        let world = World::new();
        let readers = [world.spawn(World::get), world.spawn(World::get)];
        world.truth.store(1, Ordering::SeqCst);
        block_on(world.cache.put(&1, 1)).unwrap();
        assert_eq!(world.get().unwrap(), 1);
        for reader in readers {
            reader.join().unwrap().unwrap();
        }
        world.is_settled();
        assert_eq!(*world.cache.peek(&1).expect("it was put"), 1);
    });
}

#[test]
fn a_memory_that_is_cleared_keeps_nothing_from_before() {
    explore(|| {
        let world = World::new();
        let reader = world.spawn(World::get);
        world.truth.store(1, Ordering::SeqCst);
        world.cache.clear_local();
        assert_eq!(world.get().unwrap(), 1);
        reader.join().unwrap().unwrap();
        world.is_settled();
        assert_eq!(world.get().unwrap(), 1);
    });
}

#[test]
fn callers_of_one_key_are_one_load_and_counted_once_each() {
    explore(|| {
        let world = World::new();
        let readers = [world.spawn(World::get), world.spawn(World::get), world.spawn(World::get)];
        for reader in readers {
            assert_eq!(reader.join().unwrap().unwrap(), 0);
        }
        world.is_settled();
        let counts = world.cache.counts();
        assert_eq!((counts.loads, counts.loaded, counts.gets()), (1, 1, 3), "{counts:?}");
    });
}

#[test]
fn a_failure_reaches_all_who_wait_and_the_next_one_loads() {
    explore(|| {
        let world = World::new();
        world.truth.store(FAILS, Ordering::SeqCst);
        let readers = [world.spawn(World::get), world.spawn(World::get)];
        for reader in readers {
            assert!(matches!(reader.join().unwrap(), Err(Error::Load(_))));
        }
        world.truth.store(2, Ordering::SeqCst);
        world.is_settled();
        assert_eq!(world.get().unwrap(), 2);
        let counts = world.cache.counts();
        assert_eq!((counts.failed, counts.gets()), (2, 3));
        assert_eq!(counts.loads, counts.loads_failed + 1);
    });
}

#[test]
fn a_caller_that_gives_up_takes_nothing_from_the_others() {
    explore(|| {
        let world = World::new();
        let fickle = world.spawn(|world| {
            let truth = Arc::clone(&world.truth);
            let load = move |_| async move { Ok::<_, u64>(truth.load(Ordering::SeqCst)) };
            let mut get = Box::pin(world.cache.get(&1).load(load));
            // Looks once, and goes.
            block_on(std::future::poll_fn(|cx| Poll::Ready(get.as_mut().poll(cx).is_ready())))
        });
        let reader = world.spawn(World::get);
        assert_eq!(reader.join().unwrap().unwrap(), 0);
        let was_ready = fickle.join().unwrap();
        world.is_settled();
        assert_eq!(*world.cache.peek(&1).expect("it was kept"), 0);
        let counts = world.cache.counts();
        assert_eq!((counts.loads, counts.gets(), counts.abandoned), (1, 2, u64::from(!was_ready)));
    });
}

#[test]
fn a_value_that_grows_stale_is_refreshed_once() {
    explore(|| {
        let world = World::new();
        world.get().unwrap();
        world.is_settled();
        world.truth.store(1, Ordering::SeqCst);
        world.clock.advance(TTL);
        let readers = [world.spawn(World::get), world.spawn(World::get), world.spawn(World::get)];
        for reader in readers {
            reader.join().unwrap().unwrap();
        }
        world.is_settled();
        assert_eq!(world.get().unwrap(), 1);
        let counts = world.cache.counts();
        assert_eq!((counts.loads, counts.refreshes, counts.gets()), (2, 1, 5), "{counts:?}");
    });
}

#[test]
fn many_and_single_callers_share_loads() {
    explore(|| {
        let world = World::new();
        let single = world.spawn(World::get);
        let many = world.spawn(|world| {
            let truth = Arc::clone(&world.truth);
            let load = move |keys: Vec<u8>| {
                let value = truth.load(Ordering::SeqCst);
                async move { Ok::<_, u64>(keys.into_iter().map(|key| (key, value)).collect()) }
            };
            let found = block_on(world.cache.get_many(&[1, 2]).load(load)).unwrap();
            found.len()
        });
        assert_eq!(single.join().unwrap().unwrap(), 0);
        assert_eq!(many.join().unwrap(), 2);
        world.is_settled();
        let counts = world.cache.counts();
        assert!(counts.loads <= 2 && counts.gets() == 3, "{counts:?}");
        assert_eq!((world.cache.loading(), world.cache.local_len()), (0, 2));
    });
}
