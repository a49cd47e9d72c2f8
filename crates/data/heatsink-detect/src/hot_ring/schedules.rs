//! The ring under explored thread schedules.
//!
//! `cargo test -p heatsink-detect --features shuttle --lib hot_ring::schedules`
//!
//! A schedule that fails is printed; `HEATSINK_SCHEDULE=<it>` with the name of the test
//! replays exactly that one, and `HEATSINK_SEED=<n>` explores other schedules.

use std::{env, sync::Arc};

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

use super::{
    HotKey, HotRing, HotRingConfig, Rotation, Window,
    generation::{Generation, Limits},
};

const SCHEDULES: usize = 2_000;
const SEED: u64 = 4;

fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    if let Ok(schedule) = env::var("HEATSINK_SCHEDULE") {
        // It is printed over several lines.
        let schedule: String = schedule.split_whitespace().collect();
        return shuttle::replay(test, &schedule);
    }
    let seed = env::var("HEATSINK_SEED").map_or(SEED, |seed| seed.parse().expect("a number"));
    let random = RandomScheduler::new_from_seed(seed, SCHEDULES);
    Runner::new(random, Config::new()).run(test.clone());
    let few_switches = PctScheduler::new_from_seed(seed, 3, SCHEDULES);
    Runner::new(few_switches, Config::new()).run(test);
}

type Work = Box<dyn FnOnce(&HotRing) + Send>;

fn touch(key: &'static [u8], now_ms: u64) -> Work {
    Box::new(move |ring| {
        ring.touch(key, now_ms);
    })
}

/// Small enough for every border to be met: one bucket that doubles at each second key.
fn config() -> HotRingConfig {
    HotRingConfig {
        buckets: 1,
        node_cap: 16,
        window: Some(Window { slots: 2, slot_ms: 100 }),
        seed: Some(1),
        ..HotRingConfig::reads()
    }
}

fn ring(config: HotRingConfig) -> Arc<HotRing> {
    Arc::new(HotRing::new(&config, 0).expect("valid settings"))
}

fn together(ring: &Arc<HotRing>, work: Vec<Work>) {
    let threads: Vec<_> = work
        .into_iter()
        .map(|work| {
            let ring = Arc::clone(ring);
            thread::spawn(move || work(&ring))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn one_key_from_many_threads_is_one_node() {
    explore(|| {
        let ring = ring(config());
        together(&ring, vec![touch(b"a", 0), touch(b"a", 0), touch(b"a", 0)]);
        let all = ring.keys_above(0, 0);
        assert_eq!((all.len(), all[0].count), (1, 3));
        assert_eq!(ring.frequency(b"a", 0), 3);
        assert_eq!(ring.usage().active_nodes, 1);
    });
}

#[test]
fn no_touch_is_lost_while_the_table_grows() {
    explore(|| {
        let ring = ring(config());
        let six = |from: u8| {
            Box::new(move |ring: &HotRing| {
                for at in 0..6 {
                    assert!(ring.touch(&[(from + at) % 6], 0) >= 1);
                }
            }) as Work
        };
        together(&ring, vec![six(0), six(3)]);
        assert!(ring.usage().buckets >= 4);
        assert_eq!(ring.usage().active_nodes, 6);
        let all = ring.keys_above(0, 0);
        assert_eq!(all.iter().map(|hot| hot.count).collect::<Vec<_>>(), [2; 6]);
        assert!((0..6).all(|at| ring.frequency(&[at], 0) == 2));
    });
}

#[test]
fn equal_tags_are_told_apart_and_kept_in_order() {
    explore(|| {
        let limits = Limits { nodes: 8, nodes_sampled: 8, bucket_bits: 0, cells_per_node: 1 };
        let keys = Arc::new(Generation::new(limits));
        let threads = ["ab", "ba"].map(|order| {
            let keys = Arc::clone(&keys);
            thread::spawn(move || {
                order.bytes().map(|key| insert(&keys, 5, &[key])).collect::<Vec<_>>()
            })
        });
        let [first, second] = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!([first[0], first[1]], [second[1], second[0]]);
        assert_ne!(first[0], first[1]);
        assert_eq!(keys.walk().map(|entry| entry.1).collect::<Vec<_>>(), first);
    });
}

fn insert(keys: &Generation, hash: u64, key: &[u8]) -> u32 {
    keys.find_or_gap(hash, key)
        .or_else(|gap| keys.insert(hash, key, gap, false).ok_or(()))
        .expect("there is room")
}

#[test]
fn the_cap_holds_against_all_threads() {
    explore(|| {
        let ring = ring(HotRingConfig { node_cap: 2, ..config() });
        together(&ring, vec![touch(b"a", 0), touch(b"b", 0), touch(b"c", 0)]);
        assert_eq!(ring.usage().active_nodes, 2);
        assert_eq!(ring.keys_above(0, 0).len(), 2);
    });
}

#[test]
fn the_clamp_is_exact_within_a_slot() {
    explore(|| {
        let ring = ring(config());
        ring.touch(b"a", 0);
        let passed = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let clamp = || {
            let passed = Arc::clone(&passed);
            Box::new(move |ring: &HotRing| {
                if !ring.touch_and_clamp(b"a", 3, 100).limited {
                    passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }) as Work
        };
        together(&ring, vec![clamp(), clamp(), clamp()]);
        assert_eq!(passed.load(std::sync::atomic::Ordering::Relaxed), 2);
        assert_eq!(ring.frequency(b"a", 100), 3);
    });
}

#[test]
fn a_new_slot_is_begun_once() {
    explore(|| {
        let ring = ring(config());
        ring.touch(b"a", 0);
        // Both find the cell of a slot that is out of the window.
        together(&ring, vec![touch(b"a", 200), touch(b"a", 200)]);
        assert_eq!(ring.frequency(b"a", 200), 2);
    });
}

#[test]
fn a_rotation_in_between_loses_no_touch() {
    explore(|| {
        let ring = ring(HotRingConfig { rotation: Rotation::OnCall, ..config() });
        ring.touch(b"a", 0);
        let both = || {
            Box::new(|ring: &HotRing| {
                ring.touch(b"a", 0);
                ring.touch(b"b", 0);
            }) as Work
        };
        together(&ring, vec![both(), both(), Box::new(|ring| assert!(ring.rotate()))]);
        // The sum over both generations is every touch there was.
        let counts: Vec<_> = ring.keys_above(0, 0).into_iter().map(|hot| hot.count).collect();
        assert_eq!(counts, [3, 2]);
    });
}

#[test]
fn a_due_rotation_happens_once() {
    explore(|| {
        let ring = ring(HotRingConfig { rotation: Rotation::Every(50), ..config() });
        ring.touch(b"a", 0);
        together(&ring, vec![touch(b"a", 50), touch(b"a", 50), touch(b"a", 50)]);
        // Rotated twice, the first touch would be gone.
        let all = ring.keys_above(0, 50);
        assert_eq!((all.len(), all[0].count), (1, 4));
    });
}

#[test]
fn readers_see_each_key_once_while_keys_come() {
    explore(|| {
        let ring = ring(config());
        let insert = Box::new(|ring: &HotRing| {
            for key in 0..4_u8 {
                ring.touch(&[key], 0);
            }
        });
        let read = Box::new(|ring: &HotRing| {
            let mut keys: Vec<_> = ring.keys_above(0, 0).into_iter().map(|hot| hot.key).collect();
            let seen = keys.len();
            keys.dedup();
            assert_eq!(keys.len(), seen);
            assert!(keys.iter().all(|key| ring.frequency(key, 0) == 1));
        });
        together(&ring, vec![insert, read]);
    });
}

#[test]
fn a_key_of_both_generations_is_reported_once_while_it_is_touched() {
    explore(|| {
        let ring = ring(HotRingConfig { rotation: Rotation::OnCall, ..config() });
        // Over half of the threshold in the warm generation; the active one gets there meanwhile.
        (0..3).for_each(|_| _ = ring.touch(b"a", 0));
        ring.rotate();
        ring.touch(b"a", 0);
        let read = |report: fn(&HotRing) -> Vec<HotKey>| {
            Box::new(move |ring: &HotRing| {
                let all = report(ring);
                assert_eq!(all.len(), 1);
                assert!((4..=6).contains(&all[0].count));
            }) as Work
        };
        let touch = Box::new(|ring: &HotRing| (0..2).for_each(|_| _ = ring.touch(b"a", 0)));
        let above = read(|ring| ring.keys_above(4, 0));
        together(&ring, vec![touch, above, read(|ring| ring.top_n(2, 0))]);
        assert_eq!(ring.top_n(1, 0)[0].count, 6);
    });
}
