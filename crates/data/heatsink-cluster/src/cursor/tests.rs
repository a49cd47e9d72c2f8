use heatsink_resp::value::Value;
use proptest::prelude::*;

use super::*;

#[test]
fn cursors_of_clients() {
    for (cursor, expected) in [
        (&b"0"[..], Some((0, 0))),
        (b"", Some((0, 0))),
        (b"000", Some((0, 0))),
        (b"1", Some((1, 0))),
        (b"1023", Some((1023, 0))),
        (b"1024", Some((0, 1))),
        (b"18446744073709551615", Some((1023, (1 << 54) - 1))),
        (b"18446744073709551616", None),
        (b"-1", None),
        (b"+1", None),
        (b" 1", None),
        (b"1x", None),
    ] {
        assert_eq!(unpack(cursor), expected, "{}", cursor.escape_ascii());
    }
}

#[test]
fn a_shard_that_is_done_hands_over() {
    assert_eq!(pack(0, 0, 3), Some(1));
    assert_eq!(pack(1, 0, 3), Some(2));
    assert_eq!(pack(2, 0, 3), Some(0));
    assert_eq!(pack(9, 0, 3), Some(0));
    assert_eq!(pack(0, 0, 1), Some(0));
    assert_eq!(pack(2, 5, 3), Some(5 << 10 | 2));
    assert_eq!(pack(0, 1 << 54, 3), None);
    assert_eq!(pack(1024, 1, 2000), None);
    assert_eq!(pack(1023, 0, 2000), None);
}

#[test]
fn replies_of_scan() {
    let rewritten = |frame: &[u8]| String::from_utf8(rewrite_reply(frame, 1, 3)).unwrap();
    assert_eq!(
        rewritten(b"*2\r\n$1\r\n5\r\n*1\r\n$1\r\na\r\n"),
        "*2\r\n$4\r\n5121\r\n*1\r\n$1\r\na\r\n"
    );
    assert_eq!(rewritten(b"*2\r\n$1\r\n0\r\n*0\r\n"), "*2\r\n$1\r\n2\r\n*0\r\n");
    assert_eq!(rewritten(b"-ERR syntax error\r\n"), "-ERR syntax error\r\n");
    let too_large = rewritten(b"*2\r\n$20\r\n18446744073709551615\r\n*0\r\n");
    assert_eq!(too_large.as_bytes(), TOO_LARGE);
}

/// A node that returns `page` keys a call; its cursor is the number of keys returned.
fn scan(keys: &[u32], cursor: u64, page: usize) -> Vec<u8> {
    let start = cursor as usize;
    let end = keys.len().min(start + page);
    let next = if end == keys.len() { 0 } else { end };
    let mut out = Vec::new();
    encode::header(&mut out, b'*', 2);
    encode::bulk(&mut out, next.to_string().as_bytes());
    encode::header(&mut out, b'*', end - start);
    for key in &keys[start..end] {
        encode::bulk(&mut out, key.to_string().as_bytes());
    }
    out
}

proptest! {
    #[test]
    fn a_scan_returns_every_key_of_every_shard_once(
        sizes in prop::collection::vec(0u32..20, 1..12),
        page in 1usize..7,
    ) {
        let mut next_key = 0;
        let shards: Vec<Vec<u32>> = sizes
            .iter()
            .map(|size| {
                next_key += size;
                (next_key - size..next_key).collect()
            })
            .collect();
        let mut cursor = b"0".to_vec();
        let mut seen = Vec::new();
        for _ in 0..1000 {
            let (shard, own) = unpack(&cursor).unwrap();
            let reply = rewrite_reply(&scan(&shards[shard], own, page), shard, shards.len());
            let reply = Value::decode(&reply).unwrap();
            for key in reply.array()[1].array() {
                let key = std::str::from_utf8(key.text().unwrap()).unwrap();
                seen.push(key.parse::<u32>().unwrap());
            }
            cursor = reply.array()[0].text().unwrap().to_vec();
            if cursor == b"0" {
                break;
            }
        }
        prop_assert_eq!(cursor, b"0");
        prop_assert!(seen.into_iter().eq(0..next_key));
    }

    #[test]
    fn what_was_packed_is_unpacked(shard in 0usize..1024, cursor in 1u64..1 << 54) {
        let packed = pack(shard, cursor, 1024).unwrap();
        prop_assert_eq!(unpack(packed.to_string().as_bytes()), Some((shard, cursor)));
    }

    #[test]
    fn any_reply_is_survived(mut frame: Vec<u8>, head in any::<bool>()) {
        if head {
            frame.splice(..0, *b"*2\r\n$");
        }
        rewrite_reply(&frame, 0, 2);
    }
}
