use std::collections::HashMap;
use std::time::Duration;

use super::*;

const SHAPE: Shape = Shape { keys: 1_000, exponent: 1.0, write_share: 0.2, seed: 42 };
const SECOND: Duration = Duration::from_secs(1);

fn operations(workload: &Workload, connection: u32, count: usize, at: Duration) -> Vec<Operation> {
    let mut stream = workload.stream(connection);
    (0..count).map(|_| stream.next(at)).collect()
}

fn viral(from: Duration) -> Workload {
    Workload::new(SHAPE, vec![Phase { from, heat: Heat::Item(900), share: 0.5 }]).unwrap()
}

#[test]
fn a_seed_and_a_connection_give_a_sequence() {
    let workload = Workload::new(SHAPE, Vec::new()).unwrap();
    let one = operations(&workload, 5, 500, SECOND);
    assert_eq!(operations(&workload, 5, 500, SECOND), one);
    assert_ne!(operations(&workload, 6, 500, SECOND), one);
    let other = Workload::new(Shape { seed: 43, ..SHAPE }, Vec::new()).unwrap();
    assert_ne!(operations(&other, 5, 500, SECOND), one);
}

/// A recorded run can be repeated with a later version: the first operations are spelled out.
#[test]
fn the_sequence_stays_the_same_between_versions() {
    let workload = Workload::new(SHAPE, Vec::new()).unwrap();
    let shown: Vec<String> = operations(&workload, 0, 6, SECOND)
        .iter()
        .map(|operation| {
            let name = String::from_utf8(operation.key.name("")).unwrap();
            format!("{:?} {name}", operation.action)
        })
        .collect();
    assert_eq!(shown, EXPECTED);
}

const EXPECTED: [&str; 6] = [
    "Write item:656",
    "Write item:10",
    "Write item:0",
    "Write item:7",
    "Read item:52",
    "Read item:728",
];

#[test]
fn a_phase_changes_nothing_but_its_own_time() {
    let (early, late) = (viral(SECOND), viral(SECOND * 2));
    let times: Vec<Duration> = (0..3_000).map(Duration::from_millis).collect();
    let play = |workload: &Workload| {
        let mut stream = workload.stream(1);
        times.iter().map(|at| stream.next(*at)).collect::<Vec<_>>()
    };
    let (early, late) = (play(&early), play(&late));
    for (at, (one, other)) in times.iter().zip(early.iter().zip(&late)) {
        let between = (SECOND..SECOND * 2).contains(at);
        assert!(one == other || between, "at {at:?}");
    }
    assert_ne!(early, late);
}

#[test]
fn the_law_of_zipf_holds() {
    let workload = Workload::new(SHAPE, Vec::new()).unwrap();
    let count = 200_000;
    let mut seen: HashMap<KeyId, f64> = HashMap::new();
    for operation in operations(&workload, 0, count, SECOND) {
        *seen.entry(operation.key).or_default() += 1.0;
    }
    let harmonic: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
    for rank in [1, 2, 3, 10, 100] {
        let expected = count as f64 / f64::from(rank) / harmonic;
        let found = seen[&KeyId::Item(rank - 1)];
        let deviation = 5.0 * expected.sqrt();
        assert!((found - expected).abs() < deviation, "rank {rank}: {found}, not {expected}");
    }
    assert!(seen.keys().all(|key| matches!(key, KeyId::Item(number) if *number < 1_000)));
}

#[test]
fn shares_are_kept() {
    let share = |workload: &Workload, at, wanted: fn(&Operation) -> bool| {
        let operations = operations(workload, 2, 50_000, at);
        operations.iter().filter(|operation| wanted(operation)).count() as f64 / 50_000.0
    };
    let near = |found: f64, expected: f64| {
        assert!((found - expected).abs() < 0.015, "{found}, not {expected}");
    };
    let is_900: fn(&Operation) -> bool = |operation| operation.key == KeyId::Item(900);
    near(share(&viral(SECOND), Duration::ZERO, is_900), 0.0);
    near(share(&viral(SECOND), SECOND, is_900), 0.5);
    near(share(&viral(SECOND), SECOND, |operation| operation.action == Action::Write), 0.2);

    let hot = |heat| Workload::new(SHAPE, vec![Phase { from: SECOND, heat, share: 0.8 }]).unwrap();
    let counts = |operation: &Operation| operation.action == Action::Count;
    near(share(&hot(Heat::Counter(2)), SECOND, counts), 0.72);
    let second = |operation: &Operation| operation.key == KeyId::Counter(1);
    near(share(&hot(Heat::Counter(2)), SECOND, second), 0.4);
    near(share(&hot(Heat::Sale(5)), SECOND, |operation| operation.key == KeyId::Stock), 0.24);
    near(share(&hot(Heat::Expiring), SECOND, |operation| operation.key == KeyId::Expiring), 0.8);
}

#[test]
fn cold_items_are_cold_and_differ() {
    let items: Vec<u32> = (0..6).map(|number| SHAPE.cold_item(number)).collect();
    assert!(items.iter().all(|item| (500..1_000).contains(item)), "{items:?}");
    let mut distinct = items.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), items.len());
    assert_eq!(Shape { keys: 1, ..SHAPE }.cold_item(3), 0);
}

#[test]
fn impossible_shapes_are_refused() {
    assert!(Workload::new(Shape { keys: 0, ..SHAPE }, Vec::new()).is_err());
    assert!(Workload::new(Shape { exponent: -1.0, ..SHAPE }, Vec::new()).is_err());
    assert!(Workload::new(Shape { write_share: 1.1, ..SHAPE }, Vec::new()).is_err());
    let uniform = Workload::new(Shape { exponent: 0.0, ..SHAPE }, Vec::new());
    assert!(uniform.is_ok(), "an exponent of 0 is the uniform law");
}
