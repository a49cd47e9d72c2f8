//! What is written can be read, and nothing that is read can do harm.

use heatsink_detect::heat::KeyHeat;
use proptest::prelude::*;

use super::{
    Counts, KeyRecord, MAX_KEY_BYTES, MAX_KEYS, MAX_WATCH_BYTES, Report, VERSION, WireError,
    decode_entry, decode_watch, encode_entry, encode_watch,
};
use crate::entry::{Entry, Mitigation, Origin, Status};
use crate::value::ValueKind;

fn counts() -> impl Strategy<Value = Counts> {
    prop::array::uniform7(any::<u64>()).prop_map(|n| Counts {
        reads: n[0],
        writes: n[1],
        error: n[2],
        absorbed: n[3],
        bytes: n[4],
        misses: n[5],
        writes_in_flight: n[6],
    })
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

proptest! {
    #[test]
    fn a_report_comes_back(
        member in ".{0,16}",
        numbers in any::<(u64, u64, u64, u64)>(),
        keys in prop::collection::vec((key(), 0_u8..9, counts()), 0..20),
    ) {
        let (boot, sequence, reads_per_second, writes_per_second) = numbers;
        let report = Report {
            member: &member,
            boot,
            sequence,
            reads_per_second,
            writes_per_second,
            keys: keys
                .iter()
                .map(|(key, value, counts)| KeyRecord {
                    key,
                    value: ValueKind::from_byte(*value),
                    counts: *counts,
                })
                .collect(),
        };
        let bytes = report.encode();
        prop_assert_eq!(Report::decode(&bytes), Ok(report));
        for end in 0..bytes.len() {
            prop_assert!(Report::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn garbage_is_refused_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        kind in 1_u8..3,
    ) {
        let _ = Report::decode(&bytes);
        let _ = decode_watch(&bytes);
        let _ = decode_entry(&bytes);
        if bytes.len() > 2 {
            bytes[..2].copy_from_slice(&[VERSION, kind]);
            let _ = Report::decode(&bytes);
            let _ = decode_watch(&bytes);
        }
    }

    #[test]
    fn a_flipped_byte_is_read_or_refused(place in any::<prop::sample::Index>(), byte: u8) {
        let counts = Counts { reads: 400, bytes: 40_000, ..Counts::default() };
        let keys = vec![KeyRecord { key: b"user:1", value: ValueKind::Hash, counts }; 5];
        let mut bytes = Report { member: "a", keys, ..Report::default() }.encode();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(report) = Report::decode(&bytes) {
            prop_assert!(report.keys.len() <= 5);
        }
    }

    #[test]
    fn a_watch_list_comes_back(keys in prop::collection::vec(key(), 0..50)) {
        let bytes = encode_watch(&keys);
        let read = decode_watch(&bytes).expect("just written");
        prop_assert_eq!(read, keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = Report { member: "a", ..Report::default() }.encode();
    bytes[0] = 9;
    let error = Report::decode(&bytes).expect_err("version 9");
    assert_eq!(error, WireError::Version(9));
    assert!(error.to_string().contains("version 9, this release reads version 1"), "{error}");
    let watch = encode_watch(&[b"a"]);
    assert_eq!(Report::decode(&watch), Err(WireError::Kind(2)));
}

#[test]
fn a_claim_of_many_keys_allocates_nothing() {
    let mut bytes = vec![VERSION, 1, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0xff; 9]);
    bytes.push(1);
    assert_eq!(Report::decode(&bytes), Err(WireError::TooLarge));
    let mut bytes = vec![VERSION, 1, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0xff, 0x1f]);
    assert_eq!(Report::decode(&bytes), Err(WireError::Short));
}

#[test]
fn what_is_beyond_the_bounds_is_left_out() {
    let long = vec![b'x'; MAX_KEY_BYTES + 1];
    let record = |key| KeyRecord { key, value: ValueKind::Unknown, counts: Counts::default() };
    let mut keys = vec![record(&long[..])];
    keys.extend((0..=MAX_KEYS).map(|_| record(b"k")));
    let bytes = Report { member: "a", keys, ..Report::default() }.encode();
    let read = Report::decode(&bytes).expect("within the bounds");
    assert_eq!(read.keys.len(), MAX_KEYS);
    assert!(read.keys.iter().all(|record| record.key == b"k"));
}

#[test]
fn bounds_stay_bounds() {
    let heat = KeyHeat {
        reads_per_second: 10.2,
        writes_per_second: 5.5,
        error_per_second: 3.0,
        bytes_per_second: 99.9,
        misses_per_second: 1.9,
        ..KeyHeat::default()
    };
    let counts = Counts::from_heat(&heat);
    assert_eq!((counts.reads, counts.writes, counts.bytes, counts.misses), (11, 6, 99, 1));
    assert!(counts.heat().certain_per_second() <= heat.certain_per_second());
    let strange = KeyHeat { reads_per_second: f64::NAN, ..heat };
    assert_eq!(Counts::from_heat(&strange).reads, 0);
    let endless = KeyHeat { reads_per_second: f64::INFINITY, ..KeyHeat::default() };
    assert_eq!(Counts::from_heat(&endless).reads, u64::MAX);
}

#[test]
fn an_entry_comes_back_and_unknown_fields_are_passed_over() {
    let entry = Entry {
        mitigation: Mitigation::Split,
        split_factor: 8,
        ttl_seconds: Some(60),
        origin: Origin::Manual,
        status: Status::Active,
        reason: "by hand".into(),
        dry_run: false,
        frequency: 12.5,
        reads_per_second: 12.0,
        writes_per_second: 0.5,
        detected_at_ms: 1,
        split: None,
        pause: None,
    };
    let bytes = encode_entry(&entry);
    assert_eq!(decode_entry(&bytes), Ok(entry.clone()));
    let newer = String::from_utf8(bytes).expect("JSON").replacen('{', "{\"later\":1,", 1);
    assert_eq!(decode_entry(newer.as_bytes()), Ok(entry));
    assert!(matches!(decode_entry(b"{}"), Err(WireError::Entry(_))));
}

#[test]
fn the_size_of_a_record_is_known_before_it_is_written() {
    let key = vec![b'k'; 300];
    for number in [0, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
        let counts = Counts { reads: number, bytes: number, ..Counts::default() };
        let record = KeyRecord { key: &key, value: ValueKind::Unknown, counts };
        let with = Report { member: "m", keys: vec![record], ..Report::default() };
        let without = Report { member: "m", ..Report::default() };
        let bytes = with.encode().len() - without.encode().len();
        assert_eq!(record.encoded_bytes(), bytes, "{number}");
    }
    let largest = u64::MAX;
    let head = Report {
        member: "m",
        boot: largest,
        sequence: largest,
        reads_per_second: largest,
        writes_per_second: largest,
        keys: Vec::new(),
    };
    assert!(head.encode().len() <= Report::head_bytes("m"));
}

#[test]
fn a_watch_list_is_bounded_in_bytes() {
    let keys: Vec<Vec<u8>> = (0..128).map(|n| vec![n; 60_000]).collect();
    let message = encode_watch(&keys);
    assert!(message.len() <= MAX_WATCH_BYTES, "{}", message.len());
    assert_eq!(decode_watch(&message).expect("just written"), keys[..8]);
}
