//! What is proposed, when, and how often.

use std::sync::Arc;
use std::time::Duration;

use super::{Aggregator, Intent, MAX_INTENTS};
use crate::entry::{Entry, Mitigation, Mitigations, Origin, Phase, Removal, SplitRecord};
use crate::member::Member;
use crate::policy::{Mode, Policies, Rights, Rule};
use crate::registry::{Change, Registry, Snapshot, What};
use crate::settings::Settings;
use crate::value::ValueKind;
use crate::wire::{Counts, KeyRecord, Report};

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.detect.hold_seconds = 5;
    settings
}

fn policies(rules: &[(&str, Mode, Rights)]) -> Arc<Policies> {
    let rule = |&(pattern, mode, rights): &(&str, Mode, Rights)| Rule {
        pattern: pattern.into(),
        mode,
        rights,
    };
    Arc::new(Policies::new(rules.iter().map(rule).collect()).expect("few rules"))
}

/// An aggregator with a registry that does what it asks for at once.
struct Bench {
    now: Duration,
    aggregator: Aggregator,
    registry: Registry,
    proxies: Vec<String>,
    sequence: u64,
}

impl Bench {
    fn new(proxies: usize, policies: Arc<Policies>) -> Self {
        let mut registry = Registry::new();
        registry.begin_snapshot();
        let incarnation = b"one".to_vec();
        registry.on_snapshot(at(0), Snapshot { incarnation, ..Snapshot::default() });
        Self {
            now: at(0),
            aggregator: Aggregator::new(at(0), settings(), policies),
            registry,
            proxies: (0..proxies).map(|number| format!("p{number}")).collect(),
            sequence: 0,
        }
    }

    /// A tick after every proxy has reported the same counts.
    fn tick(&mut self, keys: &[(&str, u64, u64)]) -> Vec<Intent> {
        self.now += at(50);
        self.sequence += 1;
        let member = |id: &String| Member { id: id.clone(), proxy: true, aggregator: true };
        let members: Vec<Member> = self.proxies.iter().map(member).collect();
        self.aggregator.on_members(self.now, &members);
        for id in &self.proxies {
            let keys = keys
                .iter()
                .map(|&(key, reads, writes)| KeyRecord {
                    key: key.as_bytes(),
                    value: ValueKind::Counter,
                    counts: Counts { reads, writes, ..Counts::default() },
                })
                .collect();
            let report =
                Report { member: id, boot: 1, sequence: self.sequence, keys, ..Report::default() };
            self.aggregator.on_report(self.now, &report);
        }
        self.aggregator.tick(self.now, &mut self.registry)
    }

    /// Applies intents as the store would.
    fn apply(&mut self, intents: &[Intent]) {
        for intent in intents {
            let version = self.registry.version() + 1;
            let (key, what) = match intent.clone() {
                Intent::Put { key, entry, ttl, .. } => (key, What::Put { entry, remaining: ttl }),
                Intent::Remove { key, .. } => (key, What::Removed { blocked_for: None }),
                Intent::Renew { key, expects_epoch, ttl } => {
                    self.registry.renewed(self.now, &key, expects_epoch, ttl);
                    continue;
                }
                Intent::Watch(_) => continue,
            };
            self.registry.on_change(self.now, Change { version, key, what });
        }
    }

    /// Ticks for so long, applying everything; what was asked for beside watch lists.
    fn run(&mut self, ms: u64, keys: &[(&str, u64, u64)]) -> Vec<Intent> {
        let mut all = Vec::new();
        for _ in 0..ms / 50 {
            let intents = self.tick(keys);
            self.apply(&intents);
            all.extend(intents.into_iter().filter(|one| !matches!(one, Intent::Watch(_))));
        }
        all
    }

    fn entry(&self, key: &str) -> &Entry {
        &self.registry.get(key.as_bytes()).expect("registered").entry
    }
}

fn puts(intents: &[Intent]) -> Vec<(&[u8], Mitigation, u64)> {
    intents
        .iter()
        .filter_map(|intent| match intent {
            Intent::Put { key, entry, expects_epoch, .. } => {
                Some((key.as_slice(), entry.mitigation, *expects_epoch))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn the_sum_decides_and_is_proposed_once() {
    let mut bench = Bench::new(2, Arc::default());
    assert!(bench.run(500, &[("k", 499, 0)]).is_empty());
    let intents = bench.tick(&[("k", 500, 0)]);
    assert_eq!(puts(&intents), [(b"k".as_slice(), Mitigation::LocalCache, 0)]);
    assert!(puts(&bench.tick(&[("k", 500, 0)])).is_empty(), "not at every tick");
    let later = bench.run(500, &[("k", 500, 0)]);
    assert_eq!(puts(&later).len(), 1, "once more, if nothing came of it");
    assert_eq!(bench.entry("k").origin, Origin::Auto);
}

#[test]
fn half_of_the_threshold_must_be_certain() {
    let mut bench = Bench::new(1, Arc::default());
    let mut uncertain = |error| {
        bench.now += at(50);
        bench.sequence += 1;
        let counts = Counts { reads: 1100, error, ..Counts::default() };
        let keys = vec![KeyRecord { key: b"k", value: ValueKind::Unknown, counts }];
        let sequence = bench.sequence;
        let report = Report { member: "p0", boot: 1, sequence, keys, ..Report::default() };
        bench.aggregator.on_report(bench.now, &report);
        bench.aggregator.tick(bench.now, &mut bench.registry).len()
    };
    assert_eq!(uncertain(601), 0);
    assert_eq!(uncertain(600), 1);
}

#[test]
fn nothing_is_proposed_before_the_registry_was_read() {
    let mut bench = Bench::new(1, Arc::default());
    bench.registry = Registry::new();
    assert!(bench.tick(&[("k", 9000, 0)]).is_empty());
}

#[test]
fn a_tick_proposes_a_bounded_number_largest_first() {
    let names: Vec<String> = (0..200).map(|number| format!("k{number:03}")).collect();
    let mut bench = Bench::new(1, Arc::default());
    let keys: Vec<(&str, u64, u64)> =
        names.iter().zip(1000..).map(|(name, reads)| (name.as_str(), reads, 0)).collect();
    let intents = bench.tick(&keys);
    assert_eq!(intents.len(), MAX_INTENTS);
    assert_eq!(puts(&intents)[0].0, b"k199");
    bench.apply(&intents);
    bench.run(300, &keys);
    assert_eq!(bench.registry.len(), 200);
}

#[test]
fn a_blocked_key_is_not_proposed() {
    let mut bench = Bench::new(1, Arc::default());
    bench.run(100, &[("k", 2000, 0)]);
    let what = What::Removed { blocked_for: Some(at(3000)) };
    let version = bench.registry.version() + 1;
    bench.registry.on_change(bench.now, Change { version, key: b"k".to_vec(), what });
    assert!(bench.run(2950, &[("k", 2000, 0)]).is_empty());
    assert_eq!(bench.run(100, &[("k", 2000, 0)]).len(), 1, "its time is over");
}

#[test]
fn a_full_registry_takes_no_more() {
    let mut bench = Bench::new(1, Arc::default());
    let few = Settings { registry_keys: 2, ..settings() };
    bench.aggregator.apply(bench.now, few, Arc::default());
    let keys = [("a", 2000, 0), ("b", 4000, 0), ("c", 3000, 0)];
    bench.run(500, &keys);
    assert!(bench.registry.get(b"b").is_some() && bench.registry.get(b"c").is_some());
    assert_eq!(bench.registry.len(), 2);
    assert_eq!(bench.aggregator.stats().left_out, 10);
    bench.run(6000, &[("a", 2000, 0), ("b", 4000, 0)]);
    assert!(bench.registry.get(b"a").is_some(), "one has cooled down");
}

#[test]
fn policies_decide_what_is_done() {
    let rights = Rights { hot_threshold: Some(50), ..Rights::default() };
    let rules = policies(&[
        ("off*", Mode::Off, Rights::default()),
        ("seen*", Mode::Observe, Rights::default()),
        ("exact*", Mode::Exact, Rights::default()),
        ("low*", Mode::Coherent, rights),
    ]);
    let mut bench = Bench::new(1, rules);
    let keys = [("off", 2000, 0), ("seen", 2000, 0), ("exact", 2000, 0), ("low", 50, 0)];
    bench.run(500, &keys);
    assert!(bench.registry.get(b"off").is_none());
    assert!(bench.entry("seen").dry_run && !bench.entry("exact").dry_run);
    assert_eq!(bench.entry("exact").mitigation, Mitigation::Coalesce);
    assert_eq!(bench.entry("low").mitigation, Mitigation::LocalCache);
    assert!(bench.entry("low").reason.contains("threshold 50;"), "{}", bench.entry("low").reason);
}

#[test]
fn nothing_is_decided_on_heatsinks_own_keys() {
    let rights = Rights { whole_traffic: true, ..Rights::default() };
    let mut bench = Bench::new(1, policies(&[("heatsink:*", Mode::Relaxed, rights)]));
    let keys = [
        ("heatsink:{default}:registry", 9000, 0),
        ("heatsink:{1f}:19a8-5e88:0", 0, 90_000),
        ("heatsink:load:1", 2000, 0),
    ];
    bench.run(500, &keys);
    assert_eq!(bench.registry.len(), 1);
    assert_eq!(bench.entry("heatsink:load:1").mitigation, Mitigation::LocalCache);
    // They are counted all the same.
    let live = bench.aggregator.live(b"heatsink:{default}:registry").expect("reported");
    assert!(live.heat.reads_per_second > 1000.0, "{live:?}");
}

#[test]
fn new_policies_change_what_they_forbid_at_once() {
    let mut bench = Bench::new(1, Arc::default());
    let keys = [("a", 2000, 0), ("b", 2000, 0), ("c", 2000, 0)];
    bench.run(200, &keys);
    let rules = policies(&[
        ("a", Mode::Off, Rights::default()),
        ("b", Mode::Exact, Rights::default()),
        ("c", Mode::Observe, Rights::default()),
    ]);
    bench.aggregator.apply(bench.now, settings(), rules);
    let intents = bench.run(100, &keys);
    assert_eq!(intents.len(), 3, "{intents:?}");
    assert!(bench.registry.get(b"a").is_none());
    assert_eq!(bench.entry("b").mitigation, Mitigation::Coalesce);
    assert!(bench.entry("c").dry_run);
}

#[test]
fn another_mix_changes_the_mitigation_after_the_hold_time() {
    let mut bench = Bench::new(1, Arc::default());
    bench.run(200, &[("k", 2000, 0)]);
    assert!(bench.run(4900, &[("k", 100, 2000)]).is_empty());
    // One tick of the old mix starts the time anew.
    assert!(bench.run(50, &[("k", 2000, 0)]).is_empty());
    assert!(bench.run(5000, &[("k", 100, 2000)]).is_empty());
    let intents = bench.run(100, &[("k", 100, 2000)]);
    assert_eq!(puts(&intents), [(b"k".as_slice(), Mitigation::Coalesce, 1)]);
}

#[test]
fn a_split_is_not_narrowed_for_a_rate_that_wavers() {
    let rights = Rights { whole_traffic: true, ..Rights::default() };
    let mut bench = Bench::new(1, policies(&[("*", Mode::Coherent, rights)]));
    bench.run(200, &[("k", 0, 150_000)]);
    assert_eq!(
        (bench.entry("k").mitigation, bench.entry("k").split_factor),
        (Mitigation::Split, 4)
    );
    assert!(puts(&bench.run(20_000, &[("k", 0, 60_000)])).is_empty());
    assert!(puts(&bench.run(20_000, &[("k", 0, 30_000)])).is_empty());
    bench.run(6000, &[("k", 0, 350_000)]);
    assert_eq!(bench.entry("k").split_factor, 8);
    bench.run(6000, &[("k", 0, 20_000)]);
    assert_eq!(bench.entry("k").mitigation, Mitigation::Coalesce);
}

/// Its record is all that leads to the value.
#[test]
fn a_key_whose_value_was_moved_is_drained_before_its_record_ends() {
    let rights = Rights { whole_traffic: true, ..Rights::default() };
    let mut bench = Bench::new(1, policies(&[("*", Mode::Coherent, rights)]));
    bench.run(100, &[("k", 0, 150_000)]);
    assert_eq!(bench.entry("k").mitigation, Mitigation::Split);
    let mut entry = bench.entry("k").clone();
    let tags = (0..entry.split_factor).map(|shard| shard.to_string()).collect();
    entry.split = Some(SplitRecord {
        id: "id".to_owned(),
        kind: "counter".to_owned(),
        tags,
        expires: false,
        phase: Phase::Split,
        mover: String::new(),
        ends_at_ms: None,
        removal: None,
    });
    let put = |entry: Entry| Intent::Put { key: b"k".to_vec(), entry, expects_epoch: 0, ttl: None };
    bench.apply(&[put(entry.clone())]);
    let asked = bench.run(40_000, &[]);
    let [Intent::Put { entry: drained, ttl: None, .. }] = asked.as_slice() else {
        panic!("one change, and not a removal: {asked:?}");
    };
    let split = drained.split.as_ref().expect("still there");
    assert_eq!((split.phase, split.removal), (Phase::Draining, Some(Removal { block_ms: 0 })));
    // Another decision does not lose it either, nor does it let it expire.
    bench.apply(&[put(entry)]);
    let asked = bench.run(40_000, &[("k", 900, 400)]);
    let [Intent::Put { entry: changed, ttl: None, .. }] = asked.as_slice() else {
        panic!("one change: {asked:?}");
    };
    assert_ne!(changed.mitigation, Mitigation::Split);
    let split = changed.split.as_ref().expect("still there");
    assert_eq!((split.phase, split.removal), (Phase::Draining, None));
}

#[test]
fn a_cold_key_is_retired_and_a_warm_one_renewed() {
    let mut bench = Bench::new(1, Arc::default());
    bench.run(200, &[("warm", 2000, 0), ("cold", 2000, 0)]);
    let intents = bench.run(40_000, &[("warm", 500, 0), ("cold", 499, 0)]);
    let renewed = |one: &&Intent| matches!(one, Intent::Renew { key, .. } if key == b"warm");
    let removed = |one: &&Intent| matches!(one, Intent::Remove { key, .. } if key == b"cold");
    assert_eq!(intents.iter().filter(renewed).count(), 1);
    assert_eq!(intents.iter().filter(removed).count(), 1);
    assert_eq!(intents.len(), 2, "{intents:?}");
}

#[test]
fn one_warm_tick_starts_the_hold_anew() {
    let mut bench = Bench::new(1, Arc::default());
    bench.run(200, &[("k", 2000, 0)]);
    for _ in 0..5 {
        assert!(bench.run(4500, &[("k", 499, 0)]).is_empty());
        assert!(bench.run(50, &[("k", 500, 0)]).is_empty());
    }
    assert_eq!(bench.run(5000, &[("k", 499, 0)]).len(), 1);
}

#[test]
fn the_hold_stands_still_while_a_proxy_is_not_heard() {
    let mut bench = Bench::new(2, Arc::default());
    bench.run(200, &[("k", 2000, 0)]);
    bench.run(2500, &[]);
    // A third proxy lives and is not heard.
    let silent = |bench: &mut Bench| {
        bench.now += at(50);
        bench.sequence += 1;
        let member = |id: &str| Member { id: id.into(), proxy: true, aggregator: false };
        bench.aggregator.on_members(bench.now, &[member("p0"), member("p1"), member("p2")]);
        for member in ["p0", "p1"] {
            let sequence = bench.sequence;
            let report = Report { member, boot: 1, sequence, ..Report::default() };
            bench.aggregator.on_report(bench.now, &report);
        }
        bench.aggregator.tick(bench.now, &mut bench.registry)
    };
    for _ in 0..400 {
        assert!(silent(&mut bench).iter().all(|one| !matches!(one, Intent::Remove { .. })));
    }
    assert!(bench.aggregator.stats().is_deaf);
    assert!(bench.run(2000, &[]).iter().all(|one| !matches!(one, Intent::Remove { .. })));
    assert_eq!(bench.run(600, &[]).len(), 1, "the rest of the hold time");
}

#[test]
fn a_full_watch_list_is_chosen_anew_once_a_second() {
    let names: Vec<String> = (0..300).map(|number| format!("k{number:03}")).collect();
    let keys = |shift: u64| -> Vec<(&str, u64, u64)> {
        names
            .iter()
            .enumerate()
            .map(|(n, name)| (name.as_str(), 300 + (n as u64 + shift) % 150, 0))
            .collect()
    };
    let mut bench = Bench::new(2, Arc::default());
    let mut lists = 0;
    for tick in 0..60 {
        for intent in bench.tick(&keys(tick * 7)) {
            let Intent::Watch(list) = intent else { panic!("{intent:?}") };
            assert_eq!(list.len(), 128);
            lists += 1;
        }
    }
    assert_eq!(lists, 3);
    let mut bench = Bench::new(2, Arc::default());
    assert_eq!(bench.tick(&[("a", 300, 0)]), [Intent::Watch(vec![b"a".to_vec()])]);
    assert_eq!(bench.tick(&[("a", 300, 0)]), []);
    let list = Intent::Watch(vec![b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(bench.tick(&[("a", 300, 0), ("b", 400, 0)]), [list], "a new one at once");
    assert_eq!(bench.aggregator.watched().count(), 2);
}

#[test]
fn a_rule_s_own_threshold_counts_for_the_watch_list() {
    let rights = |threshold| Rights { hot_threshold: Some(threshold), ..Rights::default() };
    let rules =
        policies(&[("low", Mode::Coherent, rights(100)), ("high", Mode::Coherent, rights(9000))]);
    let mut bench = Bench::new(2, rules.clone());
    let list = Intent::Watch(vec![b"low".to_vec()]);
    assert_eq!(bench.tick(&[("low", 25, 0), ("high", 2000, 0)]), [list]);
    let mut bench = Bench::new(2, rules.clone());
    let list = Intent::Watch(vec![b"high".to_vec()]);
    assert_eq!(bench.tick(&[("low", 24, 0), ("high", 2250, 0)]), [list]);
    let mut alone = Bench::new(1, rules);
    assert_eq!(alone.tick(&[("high", 5000, 0)]), [], "one proxy tells all there is");
}

#[test]
fn what_is_not_available_is_put_once_and_left_alone() {
    let mut bench = Bench::new(2, Arc::default());
    let mut without = settings();
    without.decision.available = Mitigations::NONE;
    bench.aggregator.apply(at(0), without, Arc::default());
    let keys = [("k", 4000, 0)];
    assert_eq!(puts(&bench.run(500, &keys)).len(), 1);
    assert!(bench.entry("k").dry_run);
    let (version, hold_ms) = (bench.registry.version(), 5000);
    assert!(puts(&bench.run(3 * hold_ms, &keys)).is_empty());
    assert_eq!(bench.registry.version(), version);
    // A release that acts on it takes over at once.
    bench.aggregator.apply(bench.now, settings(), Arc::default());
    assert_eq!(puts(&bench.run(500, &keys)).len(), 1);
    assert!(!bench.entry("k").dry_run);
}

#[test]
fn reports_of_slow_ticks_count_until_the_next_ones() {
    let mut slow = settings();
    assert_eq!(slow.report_life(), at(1500));
    slow.detect.tick_ms = 10_000;
    assert_eq!(slow.report_life(), at(30_000) + slow.detect.window() / 2);
    let mut bench = Bench::new(2, Arc::default());
    bench.aggregator.apply(at(0), slow, Arc::default());
    bench.tick(&[("k", 300, 0)]);
    bench.now += at(20_000);
    bench.aggregator.tick(bench.now, &mut bench.registry);
    assert_eq!(bench.aggregator.live(b"k").map(|live| live.proxies), Some(2));
    bench.now += at(20_000);
    bench.aggregator.tick(bench.now, &mut bench.registry);
    assert_eq!(bench.aggregator.live(b"k"), None);
}

#[test]
fn estimates_of_many_proxies_add_up_to_a_hot_key() {
    let mut bench = Bench::new(10, Arc::default());
    let report = |bench: &mut Bench, id: usize, reads, error| {
        let member = format!("p{id}");
        let counts = Counts { reads, error, ..Counts::default() };
        let keys = vec![KeyRecord { key: b"k", value: ValueKind::Unknown, counts }];
        let report = Report { member: &member, boot: 1, sequence: 9, keys, ..Report::default() };
        bench.aggregator.on_report(bench.now, &report);
    };
    bench.tick(&[]);
    report(&mut bench, 0, 800, 0);
    assert!(puts(&bench.aggregator.tick(bench.now, &mut bench.registry)).is_empty());
    for id in 1..10 {
        report(&mut bench, id, 24, 24);
    }
    let intents = bench.aggregator.tick(bench.now, &mut bench.registry);
    assert_eq!(puts(&intents), [(b"k".as_slice(), Mitigation::LocalCache, 0)]);
}
