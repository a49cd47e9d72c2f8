//! The bounded table: who gets in, who has to go, what expires.

use super::{Claim, Table, Tally, WAYS, Weights};
use crate::heat::Kind;
use crate::key::{Key, KeyHasher};

const WEIGHTS: Weights = Weights { request: 0.01, byte: 0.001, miss: 0.02, write_in_flight: 0.1 };

fn key(name: &str) -> Key<'_> {
    KeyHasher::with_seed(1).key(name.as_bytes())
}

fn claim(carried: [u32; 2]) -> Claim {
    Claim { carried, credit: carried[0] + carried[1], ..Claim::default() }
}

fn record(table: &mut Table, name: &str, times: u32) {
    let place = table.find(key(name)).expect("named");
    for _ in 0..times {
        table.entry_mut(place).open.record(Kind::Read, 10, false, false);
    }
}

#[test]
fn a_full_set_gives_its_coolest_entry_to_a_hotter_key_only() {
    let mut table = Table::new(WAYS, 4, WEIGHTS);
    let names: Vec<String> = (0..WAYS).map(|number| format!("key:{number}")).collect();
    for (heat, name) in names.iter().enumerate() {
        table.admit(key(name), &claim([0, 0])).expect("there is room");
        record(&mut table, name, 10 * (heat as u32 + 1));
    }
    assert_eq!(table.admit(key("cool"), &claim([5, 0])), None);
    assert_eq!(table.iter_mut().count(), WAYS);
    assert!(table.admit(key("warm"), &claim([15, 0])).is_some());
    assert_eq!(table.find(key("key:0")), None, "the coolest went");
    assert!(table.find(key("warm")).is_some());
    assert_eq!(table.iter_mut().count(), WAYS);
}

#[test]
fn a_claim_that_is_only_noise_drives_nobody_out() {
    let mut table = Table::new(WAYS, 4, WEIGHTS);
    let names: Vec<String> = (0..WAYS).map(|number| format!("key:{number}")).collect();
    for name in &names {
        table.admit(key(name), &claim([0, 0])).expect("there is room");
        record(&mut table, name, 1);
    }
    let noise = Claim { carried: [5000, 0], credit: 0, ..Claim::default() };
    assert_eq!(table.admit(key("scanned"), &noise), None);
    let big = Claim { bytes: 100, ..noise };
    assert!(table.admit(key("big"), &big).is_some());
}

/// What is remembered of a set's coolest entry changes who is asked, never the answer.
#[test]
fn a_newcomer_fares_as_if_every_entry_were_looked_at() {
    let mut table = Table::new(2 * WAYS, 3, WEIGHTS);
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let (mut let_in, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let name = format!("key:{}", next(60));
        match (next(40), table.find(key(&name))) {
            (0, _) => table.rotate(next(3) as usize),
            (1, _) => {
                for (_, entry) in table.iter_mut() {
                    entry.in_flight_peak = entry.in_flight;
                }
            }
            (2, _) => {
                let request = if next(2) == 0 { 0.01 } else { 0.0001 };
                table.set_weights(Weights { request, ..WEIGHTS });
            }
            (3, Some(place)) => table.entry_mut(place).begin_write(),
            (_, Some(place)) => {
                table.entry_mut(place).open.record(Kind::Read, next(50), false, false);
            }
            (_, None) => {
                let credit = next(12) as u32;
                let claim = Claim { carried: [credit, 0], credit, ..Claim::default() };
                let mut plain = Table { floors: vec![0.0; table.floors.len()], ..table.clone() };
                let place = table.admit(key(&name), &claim);
                assert_eq!(place, plain.admit(key(&name), &claim), "{name}");
                *(if place.is_some() { &mut let_in } else { &mut refused }) += 1;
            }
        }
    }
    assert!(let_in > 1000 && refused > 1000, "{let_in} {refused}");
}

#[test]
fn entries_count_exactly_over_the_window_and_carry_for_as_long() {
    let mut table = Table::new(8, 4, WEIGHTS);
    let place = table.admit(key("a"), &claim([7, 2])).expect("there is room");
    record(&mut table, "a", 3);
    for _ in 0..4 {
        table.rotate(1);
        let entry = table.entry_mut(place);
        assert_eq!((entry.at_most(Kind::Read), entry.at_most(Kind::Write)), (10, 2));
        assert_eq!(entry.certain().requests, [3, 0]);
        assert!(entry.is_young());
    }
    table.rotate(1);
    let entry = table.entry_mut(place);
    assert_eq!((entry.at_most(Kind::Read), entry.certain()), (0, Tally::default()));
    assert!(!entry.is_young());
}

#[test]
fn after_a_pause_the_open_slot_and_what_it_carries_stay() {
    let mut table = Table::new(8, 4, WEIGHTS);
    let place = table.admit(key("a"), &claim([7, 0])).expect("there is room");
    record(&mut table, "a", 3);
    table.rotate(100);
    assert_eq!(table.entry_mut(place).at_most(Kind::Read), 10);
    table.rotate(3);
    assert_eq!(table.entry_mut(place).at_most(Kind::Read), 10);
    table.rotate(1);
    assert_eq!(table.entry_mut(place).at_most(Kind::Read), 0);
}

#[test]
fn a_successor_starts_from_nothing() {
    let mut table = Table::new(8, 4, WEIGHTS);
    let place = table.admit(key("a"), &claim([7, 0])).expect("there is room");
    record(&mut table, "a", 3);
    table.rotate(1);
    record(&mut table, "a", 3);
    let generation = table.entry_mut(place).generation;
    table.sweep(|_| false);
    assert_eq!(table.find(key("a")), None);
    let place = table.admit(key("bb"), &claim([0, 0])).expect("there is room");
    assert_ne!(table.entry_mut(place).generation, generation);
    assert_eq!(table.entry_mut(place).certain(), Tally::default());
    record(&mut table, "bb", 1);
    for _ in 0..4 {
        table.rotate(1);
        assert_eq!(table.entry_mut(place).certain().requests, [1, 0]);
    }
}
