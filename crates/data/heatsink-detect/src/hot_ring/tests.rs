//! The ring against a plain map that says what each operation means.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::{
    Admission, Clamped, Decay, HotKey, HotRing, HotRingConfig, HotRings, Rotation, Window,
};

/// Keys of a generation, each with its count by period.
type Counts = BTreeMap<Vec<u8>, BTreeMap<u64, u64>>;

/// What a ring is, without any of how it does it.
struct Model {
    config: HotRingConfig,
    sampled: HashSet<Vec<u8>>,
    active: Counts,
    warm: Counts,
    rotation: u64,
}

impl Model {
    fn new(config: HotRingConfig, ring: &HotRing, keys: &[Vec<u8>], now_ms: u64) -> Self {
        let rotation =
            if let Rotation::Every(every_ms) = config.rotation { now_ms / every_ms } else { 0 };
        let sampled = keys.iter().filter(|key| ring.is_sampled(key)).cloned().collect();
        Self { config, sampled, active: Counts::new(), warm: Counts::new(), rotation }
    }

    fn period(&self, now_ms: u64) -> u64 {
        match (self.config.window, self.config.decay) {
            (Some(window), _) => now_ms / u64::from(window.slot_ms),
            (None, Some(decay)) => now_ms / u64::from(decay.interval_ms),
            (None, None) => 0,
        }
    }

    fn count_in(&self, counts: &Counts, key: &[u8], now_ms: u64) -> u64 {
        let Some(periods) = counts.get(key) else { return 0 };
        let now = self.period(now_ms);
        match (self.config.window, self.config.decay) {
            (Some(window), _) => periods
                .range((now + 1).saturating_sub(u64::from(window.slots))..)
                .map(|p| p.1)
                .sum(),
            // Interval by interval, as if a sweep came at the end of each.
            (None, Some(decay)) => {
                let first = *periods.keys().next().expect("a key has a touch");
                (first..=now).fold(0, |count, period| {
                    let aged = if period == first { 0 } else { count >> decay.shift };
                    aged + periods.get(&period).copied().unwrap_or(0)
                })
            }
            (None, None) => periods.values().sum(),
        }
    }

    fn rotate(&mut self) {
        self.warm = std::mem::take(&mut self.active);
    }

    fn advance(&mut self, now_ms: u64) {
        if let Rotation::Every(every_ms) = self.config.rotation {
            let rotation = now_ms / every_ms;
            for _ in 0..(rotation - self.rotation).min(2) {
                self.rotate();
            }
            self.rotation = rotation;
        }
    }

    fn frequency(&self, key: &[u8], now_ms: u64) -> u64 {
        self.count_in(&self.active, key, now_ms).max(self.count_in(&self.warm, key, now_ms))
    }

    fn has_room(&self, key: &[u8]) -> bool {
        let held = self.active.len();
        self.active.contains_key(key)
            || held < self.config.node_cap
            || (self.sampled.contains(key) && held < 2 * self.config.node_cap)
    }

    fn touch(&mut self, key: &[u8], limit: u64, now_ms: u64) -> Clamped {
        let count = self.frequency(key, now_ms);
        let limited = count >= limit;
        // At the limit in the active generation alone, the key has its node already.
        if limited {
            return Clamped { count, limited };
        }
        if self.has_room(key) {
            let period = self.period(now_ms);
            *self.active.entry(key.to_vec()).or_default().entry(period).or_default() += 1;
        }
        Clamped { count: self.frequency(key, now_ms), limited }
    }

    fn all(&self, now_ms: u64) -> Vec<HotKey> {
        let keys: HashSet<_> = self.active.keys().chain(self.warm.keys()).collect();
        let mut all: Vec<HotKey> = keys
            .into_iter()
            .map(|key| HotKey {
                key: key.as_slice().into(),
                count: self.count_in(&self.active, key, now_ms)
                    + self.count_in(&self.warm, key, now_ms),
            })
            .filter(|hot| hot.count > 0)
            .collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        all
    }
}

#[derive(Clone, Debug)]
enum Step {
    Touch(usize),
    Clamp(usize, u64),
    Frequency(usize),
    Top(usize),
    Above(u64),
    Rotate,
    Pass(u64),
}

fn step(keys: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..keys).prop_map(Step::Touch),
        // Two keys that are touched more than fifteen times in a slot.
        8 => (0..2_usize).prop_map(Step::Touch),
        4 => (0..keys, 0..6_u64).prop_map(|(key, limit)| Step::Clamp(key, limit)),
        2 => (0..keys).prop_map(Step::Frequency),
        1 => (0..8_usize).prop_map(Step::Top),
        1 => (0..5_u64).prop_map(Step::Above),
        1 => Just(Step::Rotate),
        3 => (1..60_u64).prop_map(Step::Pass),
    ]
}

fn config() -> impl Strategy<Value = HotRingConfig> {
    let window = (1..20_u32, 1..40_u32).prop_map(|(slots, slot_ms)| Window { slots, slot_ms });
    let decay = (1..40_u32, 1..4_u32).prop_map(|(interval_ms, shift)| Decay { interval_ms, shift });
    let rotation = prop_oneof![
        Just(Rotation::Off),
        Just(Rotation::OnCall),
        (1..200_u64).prop_map(Rotation::Every)
    ];
    (
        0..4_u32,
        proptest::option::of(window),
        proptest::option::of(decay),
        prop_oneof![1..12_usize, Just(1000)],
        0..3_u32,
        rotation,
        any::<u64>(),
    )
        .prop_map(|(bits, window, decay, node_cap, sample_bits, rotation, seed)| {
            HotRingConfig {
                buckets: 1 << bits,
                window,
                decay,
                node_cap,
                sample_bits,
                rotation,
                admission: None,
                seed: Some(seed),
            }
        })
}

/// Keys of every length around the sizes at which their storage changes.
fn key(at: usize) -> Vec<u8> {
    let mut key = at.to_string().into_bytes();
    key.resize([key.len(), 7, 8, 9, 16, 33, 40, 41, 120][at % 9].max(key.len()), 0);
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_operation_does_what_the_model_does(
        config in config(),
        origin_ms in prop_oneof![Just(0), 0..1_u64 << 45],
        steps in proptest::collection::vec(step(40), 1..300),
    ) {
        let keys: Vec<Vec<u8>> = (0..40).map(key).collect();
        let ring = HotRing::new(&config, origin_ms).expect("valid settings");
        let mut model = Model::new(config, &ring, &keys, origin_ms);
        let mut now_ms = origin_ms;
        for step in steps {
            match step {
                Step::Touch(key) => {
                    let expected = model.touch(&keys[key], u64::MAX, now_ms).count;
                    prop_assert_eq!(ring.touch(&keys[key], now_ms), expected);
                }
                Step::Clamp(key, limit) => {
                    let expected = model.touch(&keys[key], limit, now_ms);
                    prop_assert_eq!(ring.touch_and_clamp(&keys[key], limit, now_ms), expected);
                }
                Step::Frequency(key) => {
                    let expected = model.frequency(&keys[key], now_ms);
                    prop_assert_eq!(ring.frequency(&keys[key], now_ms), expected);
                }
                Step::Top(n) => {
                    let mut expected = model.all(now_ms);
                    expected.truncate(n);
                    prop_assert_eq!(ring.top_n(n, now_ms), expected);
                }
                Step::Above(threshold) => {
                    let mut expected = model.all(now_ms);
                    expected.retain(|hot| hot.count >= threshold);
                    prop_assert_eq!(ring.keys_above(threshold, now_ms), expected);
                }
                Step::Rotate => {
                    if ring.rotate() {
                        model.rotate();
                    }
                }
                Step::Pass(ms) => {
                    now_ms += ms;
                    model.advance(now_ms);
                }
            }
        }
        prop_assert_eq!(ring.keys_above(0, now_ms), model.all(now_ms));
        prop_assert_eq!(ring.usage().active_nodes, model.active.len());
    }
}

fn ring(config: HotRingConfig) -> HotRing {
    HotRing::new(&config, 0).expect("valid settings")
}

#[test]
fn the_table_grows_with_the_keys_and_loses_none() {
    let ring = ring(HotRingConfig { buckets: 4, ..HotRingConfig::reads() });
    for round in 1..=2 {
        for at in 0..20_000_u32 {
            assert_eq!(ring.touch(&at.to_be_bytes(), 0), round);
        }
    }
    let usage = ring.usage();
    assert_eq!(usage.active_nodes, 20_000);
    assert_eq!(usage.buckets, 32_768);
    assert_eq!(ring.keys_above(2, 0).len(), 20_000);
}

#[test]
fn at_the_cap_the_sample_goes_on_and_ends_at_twice_the_cap() {
    let config =
        HotRingConfig { node_cap: 100, sample_bits: 3, seed: Some(7), ..HotRingConfig::reads() };
    let ring = ring(config);
    let mut tracked = 0;
    for at in 0..10_000_u32 {
        let key = at.to_be_bytes();
        let before = tracked;
        tracked += u32::from(ring.touch(&key, 0) > 0);
        if (100..200).contains(&before) {
            assert_eq!(tracked > before, ring.is_sampled(&key));
        }
    }
    assert_eq!(tracked, 200);
    assert_eq!(ring.usage().active_nodes, 200);
    let sampled = (0..10_000_u32).filter(|at| ring.is_sampled(&at.to_be_bytes())).count();
    assert!((1_000..1_500).contains(&sampled), "one in eight of 10 000, not {sampled}");
}

#[test]
fn the_filter_admits_at_its_count_and_the_warm_generation_vouches() {
    let admission = Admission { at_least: 3, period_ms: 100, columns: 1024 };
    let ring = ring(HotRingConfig {
        admission: Some(admission),
        rotation: Rotation::OnCall,
        seed: Some(1),
        ..HotRingConfig::reads()
    });
    assert_eq!([0, 99, 100, 101].map(|now_ms| ring.touch(b"a", now_ms)), [0; 4]);
    assert_eq!(ring.usage().active_nodes, 0);
    assert_eq!(ring.touch(b"a", 102), 1);
    assert_eq!(ring.touch(b"a", 103), 2);
    ring.rotate();
    ring.touch(b"a", 104);
    assert_eq!(ring.top_n(1, 104)[0].count, 3);
    assert_eq!(ring.touch(b"b", 104), 0);
}

#[test]
fn the_filter_keeps_a_scan_out() {
    let config = HotRingConfig { admission: Some(Admission::default()), ..HotRingConfig::reads() };
    let ring = ring(config);
    for at in 0..100_000_u64 {
        ring.touch(&at.to_be_bytes(), at / 400);
        ring.touch(b"hot", at / 400);
    }
    // A key that shares both cells with the hot one may slip through, but with its own count.
    assert!(ring.usage().active_nodes <= 3);
    assert_eq!(ring.frequency(b"hot", 250), 100_000 - 15);
    assert_eq!(ring.keys_above(2, 250).len(), 1);
}

#[test]
fn a_late_touch_counts_in_the_period_that_took_its_cell() {
    let window = Some(Window { slots: 2, slot_ms: 10 });
    let windowed = ring(HotRingConfig { window, ..HotRingConfig::reads() });
    windowed.touch(b"a", 105);
    // The cell of this period belongs to the one above, eight later.
    assert_eq!(windowed.touch(b"a", 25), 2);
    assert_eq!(windowed.frequency(b"a", 119), 2);
    assert_eq!(windowed.frequency(b"a", 120), 0);

    let decay = Some(Decay { interval_ms: 10, shift: 1 });
    let decaying = ring(HotRingConfig { window: None, decay, ..HotRingConfig::reads() });
    decaying.touch(b"a", 40);
    assert_eq!(decaying.touch(b"a", 5), 2);
    assert_eq!(decaying.frequency(b"a", 50), 1);
}

#[test]
fn times_beyond_32_bits_of_periods_work() {
    let ring = HotRing::new(&HotRingConfig::writes(), 0).expect("valid settings");
    let edge_ms = 100 * (1_u64 << 32);
    ring.touch(b"a", edge_ms - 1);
    assert_eq!(ring.touch(b"a", edge_ms), 2);
    assert_eq!(ring.frequency(b"a", edge_ms + 499), 2);
    assert_eq!(ring.frequency(b"a", edge_ms + 500), 1);
}

#[test]
fn a_quiet_ring_forgets_without_being_touched() {
    let config =
        HotRingConfig { window: None, rotation: Rotation::Every(100), ..HotRingConfig::reads() };
    let ring = ring(config);
    ring.touch(b"a", 0);
    assert_eq!(ring.frequency(b"a", 199), 1);
    assert_eq!(ring.frequency(b"a", 200), 0);
    assert!(ring.top_n(1, 200).is_empty());
    assert_eq!(ring.usage().active_nodes + ring.usage().warm_nodes, 0);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let reads = HotRingConfig::reads();
    let window = Some(Window { slots: 65, slot_ms: 1 });
    let decay = Some(Decay { interval_ms: 1, shift: 32 });
    let admission = Some(Admission { columns: 1000, ..Admission::default() });
    for (config, setting) in [
        (HotRingConfig { buckets: 1000, ..reads }, "buckets"),
        (HotRingConfig { node_cap: 0, ..reads }, "node_cap"),
        (HotRingConfig { sample_bits: 21, ..reads }, "sample_bits"),
        (HotRingConfig { window, ..reads }, "window"),
        (HotRingConfig { decay, ..reads }, "decay"),
        (HotRingConfig { rotation: Rotation::Every(0), ..reads }, "rotation"),
        (HotRingConfig { admission, ..reads }, "admission"),
    ] {
        let refused = HotRing::new(&config, 0).expect_err("refused");
        assert_eq!(refused.setting, setting);
        assert!(HotRings::new(&reads, &config, 0).is_err());
    }
}

#[test]
fn threads_lose_no_touch() {
    let ring = ring(HotRingConfig { buckets: 1, ..HotRingConfig::reads() });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for at in 0..20_000_u32 {
                    ring.touch(&(at % 5_000).to_be_bytes(), 0);
                }
            });
        }
    });
    let keys = ring.keys_above(1, 0);
    assert_eq!(keys.len(), 5_000);
    assert!(keys.iter().all(|hot| hot.count == 16));
    assert_eq!(ring.usage().active_nodes, 5_000);
}
