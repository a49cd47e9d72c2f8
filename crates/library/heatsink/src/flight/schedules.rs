//! Schedules of flights, writes and words from the server, explored one by one:
//! `cargo test -p heatsink --features shuttle --lib schedules`. A failing schedule is printed, and
//! replayed with `shuttle::replay`.

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use super::{Begun, Flights};
use crate::fence::{Fence, Fences, NO_LINK};

const SCHEDULES: usize = 20_000;

/// A database of one number, a memory with one place, and what stands between them.
struct World {
    truth: AtomicU64,
    memory: Mutex<Option<(u64, Fence)>>,
    fences: Fences,
    flights: Flights<u8, ()>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            truth: AtomicU64::new(0),
            memory: Mutex::new(None),
            fences: Fences::of_one_process(),
            flights: Flights::new(10),
        })
    }

    fn stripe(&self) -> u32 {
        self.fences.stripe(&1_u8)
    }

    fn cached(&self) -> Option<u64> {
        let (value, fence) = (*self.memory.lock().unwrap())?;
        self.fences.holds(fence, 0).then_some(value)
    }

    /// What a `get` of a process with a shared tier does: the memory, else a read behind a fence.
    fn read_fenced(&self) -> u64 {
        self.cached().unwrap_or_else(|| {
            let fence = self.fences.take(self.stripe(), NO_LINK);
            let value = self.truth.load(Ordering::SeqCst);
            *self.memory.lock().unwrap() = Some((value, fence));
            value
        })
    }

    /// What it does without one: as the leader of a flight. Nothing, if it joined.
    fn lead(&self) -> Option<u64> {
        let Begun::Leads(flight) = self.flights.begin(&1, &self.fences, self.stripe()) else {
            return None;
        };
        let fence = self.fences.take(self.stripe(), NO_LINK);
        flight.begin_read(fence.epoch);
        let value = self.truth.load(Ordering::SeqCst);
        self.flights.keep(&flight, || *self.memory.lock().unwrap() = Some((value, fence)));
        self.flights.end(&1, &flight);
        Some(value)
    }
}

#[test]
fn what_was_read_before_a_change_is_never_served_after_it() {
    let run = || {
        let world = World::new();
        let reader = Arc::clone(&world);
        let reader = thread::spawn(move || reader.read_fenced());
        let other = Arc::clone(&world);
        let other = thread::spawn(move || other.read_fenced());
        world.truth.store(1, Ordering::SeqCst);
        world.fences.advance(world.stripe());
        // The change is known here.
        assert_eq!(world.read_fenced(), 1);
        reader.join().unwrap();
        other.join().unwrap();
        assert_ne!(world.cached(), Some(0));
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn a_put_is_neither_overwritten_by_a_load_from_before_nor_missed_by_a_get_from_after() {
    let run = || {
        let world = World::new();
        let loader = Arc::clone(&world);
        let loader = thread::spawn(move || loader.lead());
        world.truth.store(1, Ordering::SeqCst);
        let fence = world.fences.take(world.stripe(), NO_LINK);
        let put = || *world.memory.lock().unwrap() = Some((1, fence));
        world.flights.change(&1, world.stripe(), put);
        assert_eq!(world.cached(), Some(1));
        // Who asks now leads a flight of their own: they never join the one from before.
        if let Some(value) = world.lead() {
            assert_eq!(value, 1);
        }
        loader.join().unwrap();
        assert_eq!(world.cached(), Some(1));
        assert_eq!(world.flights.under_way(), 0);
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn one_of_those_who_come_together_leads() {
    let run = || {
        let world = World::new();
        let leaders: Vec<_> = (0..3)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    match world.flights.begin(&1, &world.fences, world.stripe()) {
                        Begun::Leads(flight) => Some(flight),
                        Begun::Joined(_) | Begun::Refused => None,
                    }
                })
            })
            .collect();
        let leaders: Vec<_> =
            leaders.into_iter().filter_map(|leader| leader.join().unwrap()).collect();
        assert_eq!(leaders.len(), 1);
        world.flights.end(&1, &leaders[0]);
        assert_eq!(world.flights.under_way(), 0);
    };
    shuttle::check_random(run, SCHEDULES);
}
