//! What a touch of the hot ring costs, and what it allocates.
//!
//! Called by: `detect`.
//! Bound: the stream and the rounds of the effort; a ring of as many nodes as there are keys.
//! Invariant: everybody keeps the same sliding window, of eight slots of 250 ms, for each key.

use std::hint::black_box;
use std::sync::Mutex;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use heatsink_detect::hot_ring::{Admission, HotRing, HotRingConfig, Rotation};
use heatsink_detect::key::KeyHasher;

use super::rivals::{Map, MapWindow, with_entry};
use super::stream::{Stream, Streams};
use super::timing::{Contender, CpuTime, Each, Pace, Spread, ns_per_request};
use super::{Effort, allocations};
use crate::section::{Goal, Section};

const EVERY_KEY_GOAL_NS: f64 = 150.0;
const FILTERED_GOAL_NS: f64 = 40.0;
const TOP: usize = 10;

/// A million touches a second, five times what the detector is measured with.
fn pace(effort: &Effort) -> Pace {
    Pace {
        block_requests: effort.block_requests,
        block_ms: 10,
        // Long rounds, because each begins with what the others left in the caches.
        round_blocks: effort.round_blocks * 2,
        rounds: effort.rounds.div_ceil(2),
        // After the first, every key of the stream is known; the second finds the buckets that
        // the last keys brought.
        warm_passes: 2,
    }
}

fn every_key(effort: &Effort) -> HotRingConfig {
    HotRingConfig { node_cap: effort.keys, ..HotRingConfig::reads() }
}

fn filtered() -> HotRingConfig {
    HotRingConfig { admission: Some(Admission::default()), ..HotRingConfig::reads() }
}

/// Touches on the Zipf stream, one thread.
pub(crate) fn touches(effort: &Effort, streams: &Streams) -> Section {
    let received = of_stream(effort, &streams.received);
    let scattered = of_stream(effort, &streams.scattered);
    let mut section = Section::new(
        "Touch of the hot ring, sliding window of 8 x 250 ms, Zipf 0.99, one thread",
        "ns a touch",
        &["median", "least", "keys held", "scattered: median", "least"],
    );
    section.notes.push(format!(
        "{} keys, as above; a million touches a second in the stream's own time",
        effort.keys
    ));
    let judged = effort.judges_times;
    section.goals = vec![
        Goal::of_time(
            "touch, every key",
            received[1].spread.median,
            EVERY_KEY_GOAL_NS,
            "ns",
            judged,
        ),
        Goal::of_time(
            "touch behind the filter",
            received[2].spread.median,
            FILTERED_GOAL_NS,
            "ns",
            judged,
        ),
    ];
    for (received, scattered) in received.into_iter().zip(scattered) {
        let cells = received.spread.cells().into_iter().chain([received.held]);
        section.row(received.name, cells.chain(scattered.spread.cells()));
    }
    section.goals.push(allocations(effort, &streams.received));
    section
}

/// One contender's figures.
struct Touches {
    name: String,
    spread: Spread,
    held: String,
}

/// The second of the contenders tracks every key, the third is behind the filter.
fn of_stream(effort: &Effort, stream: &Stream) -> Vec<Touches> {
    let ring = |config: &HotRingConfig| HotRing::new(config, 0).expect("valid settings");
    let rotating = HotRingConfig { rotation: Rotation::Every(1_500), ..filtered() };
    let rings = [ring(&every_key(effort)), ring(&filtered()), ring(&rotating)];
    let hasher = KeyHasher::random();
    let mut floor = Each::new("(only read and hash the key)", |key: &[u8], _| {
        black_box(hasher.key(key).hash());
    });
    let touch = |ring| {
        let ring: &HotRing = ring;
        move |key: &[u8], now_ms| {
            black_box(ring.touch(key, now_ms));
        }
    };
    let mut all = Each::new("hot ring, every key tracked", touch(&rings[0]));
    let mut some = Each::new("hot ring behind the admission filter", touch(&rings[1]));
    let mut both = Each::new("the same, rotating every 1.5 s", touch(&rings[2]));
    let map = Mutex::new(Map::<MapWindow>::default());
    let mut locked = Each::new("hashbrown map behind a mutex, every key", |key: &[u8], now_ms| {
        let mut map = map.lock().expect("no panic under this lock");
        black_box(with_entry(&mut map, key, |window| window.touch(now_ms)));
    });
    let shards = DashMap::<Box<[u8]>, MapWindow, RandomState>::default();
    let mut sharded = Each::new("dashmap, every key", |key: &[u8], now_ms| {
        if let Some(mut window) = shards.get_mut(key) {
            black_box(window.touch(now_ms));
        } else {
            black_box(shards.entry(key.into()).or_default().touch(now_ms));
        }
    });
    let contenders: &mut [&mut dyn Contender] =
        &mut [&mut floor, &mut all, &mut some, &mut both, &mut locked, &mut sharded];
    let spreads = ns_per_request(stream, pace(effort), contenders);
    let names: Vec<String> = contenders.iter().map(|contender| contender.name()).collect();
    let mut held = vec!["-".to_owned()];
    held.extend(rings.iter().map(|ring| ring.usage().active_nodes.to_string()));
    held.push(map.into_inner().expect("no panic under this lock").len().to_string());
    held.push(shards.len().to_string());
    let touches = names.into_iter().zip(spreads).zip(held);
    touches.map(|((name, spread), held)| Touches { name, spread, held }).collect()
}

/// What two rings allocate when only keys are touched that they know: the first knows all keys
/// of the stream, the second those that it reports.
fn allocations(effort: &Effort, stream: &Stream) -> Goal {
    let all = HotRing::new(&every_key(effort), 0).expect("valid settings");
    let some = HotRing::new(&filtered(), 0).expect("valid settings");
    let pass = |ring: &HotRing, from_ms| {
        for (block, now_ms) in stream.blocks(effort.block_requests).zip((from_ms..).step_by(10)) {
            block.for_each(|key| _ = ring.touch(key, now_ms));
        }
    };
    pass(&all, 0);
    let mut bytes = allocations::during(|| pass(&all, 100_000));
    pass(&some, 0);
    let known = some.keys_above(1, 1_000);
    bytes += allocations::during(|| known.iter().for_each(|hot| _ = some.touch(&hot.key, 2_000)));
    Goal {
        what: "allocated by touches of known keys",
        limit: "0 bytes".to_owned(),
        figure: format!("{bytes} bytes in {} touches", stream.len() + known.len()),
        reached: Some(bytes == 0 && !known.is_empty()),
    }
}

/// What it costs to ask a large ring for its hottest keys.
pub(crate) fn reports(effort: &Effort, stream: &Stream) -> Section {
    let config = HotRingConfig { rotation: Rotation::OnCall, ..every_key(effort) };
    let mut section = Section::new(
        "Reports of the hot ring, every key tracked",
        "ms a report",
        &["median", "least", "keys"],
    );
    let ring = HotRing::new(&config, 0).expect("valid settings");
    let mut map = Map::<MapWindow>::default();
    let pass = |touch: &mut dyn FnMut(&[u8])| {
        stream.blocks(effort.block_requests).flatten().for_each(touch);
    };
    // The whole stream in one moment: every key counts when the report is made.
    pass(&mut |key| _ = ring.touch(key, 0));
    pass(&mut |key| _ = with_entry(&mut map, key, |window| window.touch(0)));
    let keys = |ring: &HotRing| ring.usage().active_nodes + ring.usage().warm_nodes;
    let rounds = effort.rounds.div_ceil(2);
    let above = ring.top_n(1, 0).first().map_or(1, |hottest| hottest.count / 10);
    let mut push = |name: &str, keys: usize, report: &dyn Fn() -> usize| {
        let ms = |_| {
            let started = CpuTime::start();
            black_box(report());
            started.ns() / 1e6
        };
        let spread = Spread::of((0..rounds).map(ms).collect());
        section.row(name, spread.cells().into_iter().chain([keys.to_string()]));
    };
    push("`top_n(10)`", keys(&ring), &|| ring.top_n(TOP, 0).len());
    push("`keys_above` a tenth of the hottest", keys(&ring), &|| ring.keys_above(above, 0).len());
    push("hashbrown map, its ten hottest", map.len(), &|| {
        let mut all: Vec<(u64, &[u8])> =
            map.iter().map(|(key, window)| (window.count(0), &key[..])).collect();
        let (hottest, ..) = all.select_nth_unstable_by(TOP - 1, |a, b| b.cmp(a));
        hottest.len()
    });
    ring.rotate();
    pass(&mut |key| _ = ring.touch(key, 0));
    push("`top_n(10)`, two generations", keys(&ring), &|| ring.top_n(TOP, 0).len());
    push("`keys_above`, two generations", keys(&ring), &|| ring.keys_above(above, 0).len());
    section
}
