//! The sample against exact counts; what happens when there is no room.

use super::{SAMPLE_ONE_IN, Truth, TruthReading, is_sampled};
use crate::key::KeyHasher;

fn sampled(wanted: usize) -> Vec<u64> {
    let hasher = KeyHasher::with_seed(3);
    (0_u64..)
        .map(|number| hasher.key(&number.to_le_bytes()).hash())
        .filter(|hash| is_sampled(*hash))
        .take(wanted)
        .collect()
}

#[test]
fn about_one_key_in_1024_is_sampled() {
    let hasher = KeyHasher::with_seed(3);
    let count = (0..1_000_000_u64)
        .filter(|number| is_sampled(hasher.key(&number.to_le_bytes()).hash()))
        .count() as f64;
    let expected = 1_000_000.0 / SAMPLE_ONE_IN as f64;
    assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{count} of a million");
}

#[test]
fn counts_are_exact_over_the_window() {
    let hashes = sampled(2);
    let mut truth = Truth::new(8, 4);
    truth.record(hashes[0]);
    truth.rotate(1);
    truth.record(hashes[0]);
    truth.record(hashes[1]);
    assert_eq!(truth.count(hashes[0]), Some(2));
    truth.rotate(3);
    assert_eq!(truth.count(hashes[0]), Some(2));
    truth.rotate(1);
    assert_eq!((truth.count(hashes[0]), truth.count(hashes[1])), (Some(1), Some(1)));
    truth.rotate(3);
    assert_eq!((truth.count(hashes[0]), truth.count(hashes[1])), (None, None));
}

#[test]
fn a_place_is_used_again_without_what_was_there() {
    let hashes = sampled(3);
    let mut truth = Truth::new(1, 3);
    truth.record(hashes[0]);
    truth.rotate(4);
    truth.rotate(3);
    truth.record(hashes[1]);
    assert_eq!(truth.count(hashes[1]), Some(1));
    for _ in 0..3 {
        truth.rotate(1);
        assert_eq!(truth.count(hashes[1]), Some(1));
    }
}

#[test]
fn the_reading_is_the_difference_to_the_estimates() {
    let hashes = sampled(2);
    let mut truth = Truth::new(8, 4);
    for _ in 0..4 {
        truth.record(hashes[0]);
    }
    truth.record(hashes[1]);
    let mut reading = truth.read(|hash| if hash == hashes[0] { 6 } else { 1 });
    assert_eq!((reading.keys, reading.requests, reading.estimated), (2, 5, 7));
    assert_eq!((reading.max_excess, reading.underestimates), (2, 0));
    assert_eq!(reading.mean_relative_error(), Some(0.25));
    assert_eq!(reading.mean_excess(), Some(1.0));
    reading.merge(&reading.clone());
    assert_eq!((reading.keys, reading.mean_relative_error()), (4, Some(0.25)));
    assert_eq!(truth.read(|_| 0).underestimates, 2, "a fault of the sketch shows");
    assert_eq!(TruthReading::default().mean_relative_error(), None);
}

#[test]
fn without_room_there_is_no_reading_until_it_would_be_right() {
    let hashes = sampled(2);
    let mut truth = Truth::new(1, 4);
    truth.record(hashes[0]);
    truth.record(hashes[1]);
    for _ in 0..4 {
        truth.rotate(1);
        truth.record(hashes[0]);
        assert_eq!((truth.read(|_| 9).keys, truth.read(|_| 9).unsure), (0, 1));
    }
    truth.rotate(1);
    assert_eq!((truth.read(|_| 9).keys, truth.read(|_| 9).unsure), (1, 0));
}
