//! One table of cases, and what is said of them.

use heatsink_detect::heat::{HeatKind, KeyHeat};

use super::{Case, Decision, Settings, decide};
use crate::entry::Mitigation::{self, Coalesce, Copies, LocalCache, ReplicaReads, Split};
use crate::policy::{Effective, Mode, Rights};
use crate::value::ValueKind::{self, Counter, Hash, List, String, Unknown};

const NO_RIGHTS: Rights =
    Rights { replica_reads: false, whole_traffic: false, hot_threshold: None };
const WHOLE: Rights = Rights { whole_traffic: true, ..NO_RIGHTS };
const REPLICAS: Rights = Rights { replica_reads: true, ..NO_RIGHTS };

/// Reads/s, writes/s, bytes a request, what it holds, what it may get; what comes out.
type Row = (f64, f64, f64, ValueKind, Mode, Rights, Mitigation, u32);

fn heat(reads: f64, writes: f64, bytes: f64) -> KeyHeat {
    KeyHeat {
        reads_per_second: reads,
        writes_per_second: writes,
        bytes_per_second: bytes,
        ..KeyHeat::default()
    }
}

fn decided(heat: &KeyHeat, value: ValueKind, mode: Mode, rights: Rights) -> Option<Decision> {
    let policy = Effective { mode, rights, rule: None, own: false };
    let case = Case { heat, value, proxies: 2, kind: HeatKind::Rate, threshold: 5000.0, policy };
    decide(&case, &Settings::default())
}

#[test]
fn the_table() {
    use Mode::{Coherent, Exact, Observe, Relaxed};
    const MIB: f64 = 1_048_576.0;
    #[rustfmt::skip]
    let table: &[Row] = &[
        // reads, writes, bytes a request, value, mode, rights -> mitigation, factor
        (9e3, 0.0, 100.0, String, Coherent, NO_RIGHTS, LocalCache, 1),
        (9e3, 0.0, 100.0, Unknown, Relaxed, NO_RIGHTS, LocalCache, 1),
        (8e3, 2e3, 100.0, Counter, Coherent, NO_RIGHTS, LocalCache, 1),
        (79e2, 21e2, 100.0, Counter, Coherent, NO_RIGHTS, Coalesce, 1),
        (6e3, 4e3, 100.0, String, Coherent, NO_RIGHTS, LocalCache, 1),
        (6e3, 4e3, 2.0 * MIB, String, Coherent, NO_RIGHTS, Coalesce, 1),
        (5e3, 5e3, 100.0, String, Coherent, NO_RIGHTS, Coalesce, 1),
        (0.0, 9e3, 10.0, Counter, Coherent, WHOLE, Coalesce, 1),
        (0.0, 5e4, 10.0, Counter, Coherent, WHOLE, Coalesce, 1),
        (0.0, 50_001.0, 10.0, Counter, Coherent, WHOLE, Split, 2),
        (0.0, 201e3, 10.0, Hash, Coherent, WHOLE, Split, 8),
        (1e6, 201e3, 10.0, Hash, Coherent, WHOLE, Split, 8),
        (0.0, 1e9, 10.0, Hash, Coherent, WHOLE, Split, 64),
        (0.0, 201e3, 10.0, Counter, Coherent, NO_RIGHTS, Coalesce, 1),
        (0.0, 201e3, 10.0, List, Coherent, WHOLE, Coalesce, 1),
        (9e5, 6e4, 10.0, String, Coherent, WHOLE, LocalCache, 1),
        (9e3, 0.0, 70e3, String, Coherent, WHOLE, Copies, 1),
        (9e3, 0.0, 70e3, String, Coherent, REPLICAS, ReplicaReads, 1),
        (9e3, 0.0, 70e3, String, Coherent, NO_RIGHTS, LocalCache, 1),
        (9e3, 0.0, 2.0 * MIB, String, Coherent, NO_RIGHTS, Coalesce, 1),
        (9e3, 0.0, 100.0, String, Exact, WHOLE, Coalesce, 1),
        (0.0, 201e3, 10.0, Counter, Exact, WHOLE, Coalesce, 1),
        (9e3, 0.0, 100.0, String, Observe, NO_RIGHTS, LocalCache, 1),
        (0.0, 201e3, 10.0, Counter, Observe, WHOLE, Split, 8),
    ];
    for &(reads, writes, mean, value, mode, rights, mitigation, factor) in table {
        let heat = heat(reads, writes, mean * (reads + writes));
        let decision = decided(&heat, value, mode, rights).expect("not off");
        let row = format!("{reads} {writes} {mean} {value:?} {mode} {rights:?}: {decision:?}");
        assert_eq!((decision.mitigation, decision.split_factor), (mitigation, factor), "{row}");
        assert_eq!(decision.dry_run, mode == Observe, "{row}");
        assert!(mode == Observe || mode.allows(mitigation), "{row}");
    }
    assert_eq!(decided(&heat(9e9, 0.0, 0.0), String, Mode::Off, WHOLE), None);
}

#[test]
fn reasons_have_words_and_numbers() {
    let reason = |heat: &KeyHeat, value, mode, rights| {
        decided(heat, value, mode, rights).expect("not off").reason
    };
    assert_eq!(
        reason(&heat(48_190.0, 21.0, 0.0), String, Mode::Coherent, NO_RIGHTS),
        "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads"
    );
    assert_eq!(
        reason(&heat(0.0, 201_000.0, 0.0), Counter, Mode::Coherent, NO_RIGHTS),
        "201 000 req/s over 2 proxies, threshold 5 000; 0 % reads; 201 000 writes/s, one node \
         takes about 50 000; a manual promote to split would help"
    );
    let observed = reason(&heat(9000.0, 0.0, 0.0), String, Mode::Observe, NO_RIGHTS);
    assert!(observed.ends_with("100 % reads; mode observe: nothing is done"), "{observed}");
    let exact = reason(&heat(9000.0, 0.0, 0.0), String, Mode::Exact, NO_RIGHTS);
    assert!(exact.ends_with("mode exact allows no other"), "{exact}");
}

#[test]
fn other_heat_is_told_in_its_own_unit() {
    let heat = KeyHeat { misses_per_second: 812.0, ..heat(900.0, 0.0, 0.0) };
    let policy = Effective { mode: Mode::Coherent, rights: NO_RIGHTS, rule: None, own: false };
    let case = Case {
        heat: &heat,
        value: Unknown,
        proxies: 1,
        kind: HeatKind::MissStorm,
        threshold: 500.0,
        policy,
    };
    let decision = decide(&case, &Settings::default()).expect("not off");
    assert_eq!(decision.reason, "812 misses/s over 1 proxy, threshold 500; 900 req/s, 100 % reads");
    let contended = KeyHeat { writes_in_flight: 24, ..heat.clone() };
    let case = Case { kind: HeatKind::WriteContention, heat: &contended, ..case };
    let decision = decide(&case, &Settings::default()).expect("not off");
    assert!(decision.reason.starts_with("24 writes in flight over 1 proxy"), "{decision:?}");
}

#[test]
fn what_is_not_available_is_a_dry_run_that_says_so() {
    let settings = Settings { available: [Coalesce].into_iter().collect(), ..Settings::default() };
    let policy = Effective { mode: Mode::Coherent, rights: NO_RIGHTS, rule: None, own: false };
    for (heat, mitigation, dry_run) in
        [(heat(9e3, 0.0, 0.0), LocalCache, true), (heat(0.0, 9e3, 0.0), Coalesce, false)]
    {
        let kind = HeatKind::Rate;
        let case =
            Case { heat: &heat, value: Counter, proxies: 1, kind, threshold: 5000.0, policy };
        let decision = decide(&case, &settings).expect("not off");
        assert_eq!((decision.mitigation, decision.dry_run), (mitigation, dry_run));
        let said = decision.reason.ends_with("; this version does not act on it");
        assert_eq!(said, dry_run, "{}", decision.reason);
    }
}
