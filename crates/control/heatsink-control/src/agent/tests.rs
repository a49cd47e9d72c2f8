//! What a proxy tells, and what its data plane gets.

use std::sync::Arc;
use std::time::Duration;

use heatsink_detect::heat::KeyHeat;
use heatsink_detect::report::Report;

use super::{Agent, Tick};
use crate::entry::{Entry, Mitigation, Origin, Phase, SplitRecord, Status};
use crate::member::Member;
use crate::policy::{Mode, Policies, Rights, Rule};
use crate::registry::{Change, Registry, Snapshot, What};
use crate::settings::Settings;
use crate::value::ValueKind;
use crate::wire;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Bench {
    now: Duration,
    agent: Agent,
    registry: Registry,
    proxies: usize,
    store_is_up: bool,
}

impl Bench {
    fn new(proxies: usize, policies: Policies) -> Self {
        let mut settings = Settings::default();
        settings.detect.hold_seconds = 5;
        let mut registry = Registry::new();
        registry.begin_snapshot();
        let incarnation = b"one".to_vec();
        registry.on_snapshot(at(0), Snapshot { incarnation, ..Snapshot::default() });
        let agent = Agent::new(at(0), "p0", 1, settings, Arc::new(policies));
        Self { now: at(0), agent, registry, proxies, store_is_up: true }
    }

    fn tick(&mut self, keys: &[(&str, f64)]) -> Tick {
        self.now += at(50);
        if self.store_is_up {
            self.agent.on_store_ok(self.now);
            let member = |n| Member { id: format!("p{n}"), proxy: true, aggregator: n == 0 };
            let members: Vec<Member> = (0..self.proxies).map(member).collect();
            self.agent.on_members(self.now, &members);
        }
        let heat = |&(key, reads): &(&str, f64)| KeyHeat {
            key: key.into(),
            reads_per_second: reads,
            ..KeyHeat::default()
        };
        let mut keys: Vec<KeyHeat> = keys.iter().map(heat).collect();
        keys.sort_by(|a, b| b.reads_per_second.total_cmp(&a.reads_per_second));
        let report = Report { keys, ..Report::default() };
        self.agent.tick(self.now, &report, &|_| ValueKind::String, &mut self.registry)
    }

    /// The keys of the report of a tick; `None` if there was no report.
    fn told(&mut self, keys: &[(&str, f64)]) -> Option<Vec<String>> {
        let bytes = self.tick(keys).report?;
        let report = wire::Report::decode(&bytes).expect("just written");
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        Some(report.keys.iter().map(|record| text(record.key)).collect())
    }

    fn put(&mut self, key: &str, mitigation: Mitigation, origin: Origin, ttl: Option<Duration>) {
        let entry = Entry {
            mitigation,
            split_factor: 1,
            ttl_seconds: None,
            origin,
            status: Status::Active,
            reason: String::new(),
            dry_run: false,
            frequency: 0.0,
            reads_per_second: 0.0,
            writes_per_second: 0.0,
            detected_at_ms: 0,
            split: (mitigation == Mitigation::Split).then(moved),
            pause: None,
        };
        let what = What::Put { entry, remaining: ttl };
        let version = self.registry.version() + 1;
        self.registry.on_change(self.now, Change { version, key: key.into(), what });
    }

    fn hot(&self) -> Vec<(String, Mitigation, Origin, bool)> {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let keys = &self.agent.hot().keys;
        keys.iter().map(|hot| (text(&hot.key), hot.mitigation, hot.origin, hot.dry_run)).collect()
    }
}

/// A value that is in two shards.
fn moved() -> SplitRecord {
    SplitRecord {
        id: "id".to_owned(),
        kind: "set".to_owned(),
        tags: vec!["a".to_owned(), "b".to_owned()],
        expires: false,
        phase: Phase::Split,
        mover: String::new(),
        ends_at_ms: None,
        removal: None,
    }
}

#[test]
fn the_floor_is_this_proxy_s_share() {
    let mut bench = Bench::new(4, Policies::default());
    bench.tick(&[]);
    let told = bench.told(&[("a", 249.0), ("b", 250.0)]);
    assert_eq!(told, Some(vec!["b".into()]));
}

#[test]
fn registered_and_watched_keys_are_told_whatever_their_count() {
    let mut bench = Bench::new(4, Policies::default());
    bench.put("registered", Mitigation::LocalCache, Origin::Auto, None);
    bench.agent.on_watch(at(0), &[b"watched"]);
    let keys = [("registered", 3.0), ("watched", 2.0), ("other", 4.0)];
    assert_eq!(bench.told(&keys), Some(vec!["registered".into(), "watched".into()]));
    // The wish to watch ends by itself.
    bench.now = at(3000);
    assert_eq!(bench.told(&keys), Some(vec!["registered".into()]));
}

#[test]
fn silence_is_told_once_and_then_each_second() {
    let mut bench = Bench::new(1, Policies::default());
    assert_eq!(bench.told(&[]), Some(vec![]), "the first");
    let empty = (0..40).filter(|_| bench.told(&[]).is_some()).count();
    assert_eq!(empty, 2);
    assert!(bench.told(&[("a", 5000.0)]).is_some());
    assert_eq!(bench.told(&[]), Some(vec![]), "at once after one with keys");
    assert_eq!(bench.told(&[]), None);
}

#[test]
fn a_report_is_bounded_and_keeps_what_was_asked_for() {
    let names: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
    let mut keys: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 2000.0)).collect();
    keys.push(("registered", 1.0));
    let mut bench = Bench::new(1, Policies::default());
    bench.put("registered", Mitigation::LocalCache, Origin::Auto, None);
    let told = bench.told(&keys).expect("a report");
    assert_eq!(told.len(), 257);
    assert_eq!(told[0], "registered");
}

#[test]
fn rules_lower_the_floor_and_silence_keys() {
    let rule = |pattern: &str, mode, hot_threshold| Rule {
        pattern: pattern.into(),
        mode,
        rights: Rights { hot_threshold, ..Rights::default() },
    };
    let rules = vec![rule("off*", Mode::Off, None), rule("low*", Mode::Coherent, Some(100))];
    let mut bench = Bench::new(2, Policies::new(rules).expect("few"));
    bench.tick(&[]);
    let keys = [("off", 9000.0), ("low", 50.0), ("lower", 49.0), ("plain", 50.0)];
    assert_eq!(bench.told(&keys), Some(vec!["low".into()]));
}

#[test]
fn the_set_has_a_version_that_changes_only_with_it() {
    let mut bench = Bench::new(1, Policies::default());
    assert_eq!(bench.tick(&[]).hot, None);
    bench.put("a", Mitigation::LocalCache, Origin::Auto, Some(at(9000)));
    let set = bench.agent.refresh(bench.now, &bench.registry).expect("changed");
    assert_eq!((set.version, set.keys.len()), (1, 1));
    assert_eq!(bench.tick(&[]).hot, None);
    bench.registry.renewed(bench.now, b"a", 1, at(60_000));
    bench.registry.desync();
    assert_eq!(bench.tick(&[]).hot, None);
    assert!(bench.agent.hot().get(b"a").is_some() && bench.agent.hot().get(b"b").is_none());
}

#[test]
fn entries_are_cut_down_to_what_the_policies_allow() {
    let rule = |pattern: &str, mode| Rule { pattern: pattern.into(), mode, ..Rule::default() };
    let rules =
        vec![rule("off*", Mode::Off), rule("seen*", Mode::Observe), rule("exact*", Mode::Exact)];
    let mut bench = Bench::new(1, Policies::new(rules).expect("few"));
    for key in ["off", "seen", "exact", "free"] {
        bench.put(key, Mitigation::LocalCache, Origin::Auto, None);
    }
    bench.put("off-split", Mitigation::Split, Origin::Manual, None);
    bench.tick(&[]);
    let auto = Origin::Auto;
    let expected = [
        ("exact".into(), Mitigation::Coalesce, auto, false),
        ("free".into(), Mitigation::LocalCache, auto, false),
        ("off-split".into(), Mitigation::Split, Origin::Manual, false),
        ("seen".into(), Mitigation::LocalCache, auto, true),
    ];
    assert_eq!(bench.hot(), expected);
    bench.agent.apply(Settings::default(), Arc::default());
    assert_eq!(bench.tick(&[]).hot.expect("other policies").keys.len(), 5);
}

#[test]
fn alone_entries_end_by_their_time_unless_they_moved_data() {
    let mut bench = Bench::new(2, Policies::default());
    let life = Some(at(3000));
    bench.put("cold", Mitigation::LocalCache, Origin::Auto, life);
    bench.put("manual", Mitigation::LocalCache, Origin::Manual, life);
    bench.put("split", Mitigation::Split, Origin::Auto, life);
    bench.put("warm", Mitigation::LocalCache, Origin::Auto, life);
    let keys = [("warm", 300.0), ("manual", 300.0)];
    for _ in 0..100 {
        bench.tick(&keys);
    }
    assert_eq!(bench.hot().len(), 4, "with the fleet it is the store that ends them");
    bench.store_is_up = false;
    for _ in 0..30 {
        bench.tick(&keys);
    }
    assert!(bench.agent.is_degraded());
    let names: Vec<String> = bench.hot().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["split", "warm"]);
    // One that ended can be found again by this proxy's own count.
    bench.tick(&[("cold", 2000.0)]);
    let version = bench.agent.hot().version;
    assert!(bench.hot().contains(&("cold".into(), Mitigation::LocalCache, Origin::Local, false)));
    bench.tick(&[("cold", 2000.0)]);
    assert_eq!(bench.agent.hot().version, version, "and stays");
}

#[test]
fn words_say_since_when_and_why() {
    let mut bench = Bench::new(1, Policies::default());
    bench.tick(&[]);
    assert_eq!(bench.agent.readiness(bench.now).words, "ok");
    bench.agent.on_subscription(bench.now, false);
    bench.agent.on_store_error("connection refused");
    bench.tick(&[]);
    let readiness = bench.agent.readiness(bench.now + at(3150));
    assert!(readiness.is_degraded);
    assert_eq!(
        readiness.words,
        "degraded: the coordination store cannot be reached since 3.2 s: connection refused"
    );
    bench.agent.on_subscription(bench.now, true);
    bench.tick(&[]);
    assert_eq!(bench.agent.readiness(bench.now).words, "ok");
    bench.registry.desync();
    for _ in 0..22 {
        bench.tick(&[]);
    }
    let words = bench.agent.readiness(bench.now).words;
    assert!(words.starts_with("degraded: the registry of hot keys cannot be read"), "{words}");
}

#[test]
fn a_report_is_bounded_in_bytes_and_asked_for_keys_come_first() {
    let long = |n: usize| format!("{n:04}{}", "x".repeat(4000));
    let names: Vec<String> = (0..400).map(long).collect();
    let rate = |n: usize| 90_000.0 - n as f64;
    let mut keys: Vec<(&str, f64)> =
        names.iter().enumerate().map(|(n, name)| (name.as_str(), rate(n))).collect();
    let last = names[399].clone();
    keys.push(("watched", 1.0));
    let mut bench = Bench::new(1, Policies::default());
    bench.put(&last, Mitigation::LocalCache, Origin::Auto, None);
    bench.agent.on_watch(at(0), &[b"watched"]);
    let bytes = bench.tick(&keys).report.expect("a report");
    let most = Settings::default().report_bytes;
    assert!(bytes.len() <= most && bytes.len() > most - 4100, "{}", bytes.len());
    let told = bench.told(&keys).expect("a report");
    assert_eq!(told[..3], [last, "watched".into(), names[0].clone()]);
    let hottest = names[..told.len() - 2].iter();
    assert!(told[2..].iter().eq(hottest), "the hottest of the others");
}

#[test]
fn a_watched_key_is_told_by_a_mere_estimate() {
    let mut bench = Bench::new(10, Policies::default());
    bench.agent.on_watch(at(0), &[b"guessed"]);
    assert_eq!(bench.agent.watched().collect::<Vec<_>>(), [b"guessed"]);
    bench.now = at(50);
    // From the sketches: all of it may be somebody else's, and a bit more.
    let heat = KeyHeat {
        key: b"guessed".to_vec(),
        reads_per_second: 24.0,
        error_per_second: 24.5,
        ..KeyHeat::default()
    };
    let report = Report { keys: vec![heat], ..Report::default() };
    let kind_of = |_: &[u8]| ValueKind::Unknown;
    let tick = bench.agent.tick(bench.now, &report, &kind_of, &mut bench.registry);
    let bytes = tick.report.expect("a report");
    let told = wire::Report::decode(&bytes).expect("just written");
    let counts = told.keys[0].counts;
    assert_eq!((counts.reads, counts.error), (24, 24), "possible, and nothing is certain");
}

#[test]
fn alone_nothing_is_done_about_heatsinks_own_keys() {
    let mut bench = Bench::new(1, Policies::default());
    // Of an older release, which did not refuse it.
    bench.put("heatsink:{a}:registry", Mitigation::LocalCache, Origin::Manual, None);
    bench.store_is_up = false;
    for _ in 0..60 {
        bench.tick(&[("heatsink:{a}:members", 9000.0), ("other", 9000.0)]);
    }
    let other = ("other".to_owned(), Mitigation::LocalCache, Origin::Local, false);
    assert_eq!(bench.hot(), [other]);
}

#[test]
fn alone_a_rule_s_own_threshold_counts() {
    let rule = |pattern: &str, hot_threshold| Rule {
        pattern: pattern.into(),
        mode: Mode::Coherent,
        rights: Rights { hot_threshold: Some(hot_threshold), ..Rights::default() },
    };
    let rules = vec![rule("low:*", 100), rule("high:*", 5000)];
    let mut bench = Bench::new(1, Policies::new(rules).expect("few rules"));
    bench.store_is_up = false;
    let keys = [("low:a", 150.0), ("low:b", 90.0), ("high:a", 2000.0), ("other", 900.0)];
    for _ in 0..60 {
        bench.tick(&keys);
    }
    let local = (Mitigation::LocalCache, Origin::Local, false);
    let expected = |name: &str| (name.to_owned(), local.0, local.1, local.2);
    assert_eq!(bench.hot(), [expected("low:a")]);
    for _ in 0..200 {
        bench.tick(&[("low:a", 60.0), ("other", 1000.0), ("high:a", 5000.0)]);
    }
    assert_eq!(bench.hot(), [expected("high:a"), expected("low:a"), expected("other")]);
    for _ in 0..120 {
        bench.tick(&[("low:a", 40.0), ("other", 1000.0), ("high:a", 2400.0)]);
    }
    assert_eq!(bench.hot(), [expected("other")]);
}

#[test]
fn an_old_list_of_members_names_no_aggregator() {
    let mut bench = Bench::new(1, Policies::default());
    bench.tick(&[]);
    // Heartbeats go through, as far as is known, but nobody says who is there.
    bench.store_is_up = false;
    for _ in 0..40 {
        bench.agent.on_store_ok(bench.now);
        bench.tick(&[]);
    }
    assert!(!bench.agent.is_degraded(), "not before the patience is over");
    bench.agent.on_store_ok(bench.now);
    bench.tick(&[]);
    let readiness = bench.agent.readiness(bench.now);
    assert!(readiness.is_degraded);
    let words = "degraded: it is not known whether an aggregator is alive since 2";
    assert!(readiness.words.starts_with(words), "{}", readiness.words);
    bench.store_is_up = true;
    bench.tick(&[]);
    assert!(!bench.agent.is_degraded());
}

#[test]
fn a_store_that_refuses_heartbeats_is_said_once() {
    let mut bench = Bench::new(1, Policies::default());
    bench.tick(&[]);
    bench.store_is_up = false;
    for _ in 0..22 {
        bench.agent.on_store_error("the coordination store cannot be reached: no route");
        bench.tick(&[]);
    }
    let words = bench.agent.readiness(bench.now).words;
    assert_eq!(words, "degraded: the coordination store cannot be reached since 1.1 s: no route");
}
