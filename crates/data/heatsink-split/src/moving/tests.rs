use heatsink_testkit::encode;

use super::*;

fn layout(kind: Kind) -> Layout {
    Layout::new("i", kind, false, &["0", "1", "2"])
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::bulk(&mut out, bytes);
    out
}

#[test]
fn fences_are_told_from_everything_else() {
    for kind in Kind::ALL {
        let written = write_fence(*kind, b"k", "7");
        let list = kind.server_type() == "string";
        let reply = if list {
            assert_eq!(written, encode(&["RPUSH", "k", "heatsink:split", "7"]));
            encode(&["heatsink:split", "7"])
        } else {
            assert_eq!(written, encode(&["SET", "k", "heatsink:split 7"]));
            bulk(b"heatsink:split 7")
        };
        assert!(is_fence(&reply, "7"));
        assert_eq!(id_of_fence(&reply).as_deref(), Some("7"));
        for other in ["", "6", "77", "7 "] {
            assert!(!is_fence(&reply, other), "{other:?}");
        }
    }
    for reply in
        [&b"-WRONGTYPE heatsink:split 7\r\n"[..], b"$-1\r\n", b"*0\r\n", b"", b"$1\r\n7\r\n"]
    {
        assert!(!is_fence(reply, "7"), "{}", reply.escape_ascii());
        assert_eq!(id_of_fence(reply), None, "{}", reply.escape_ascii());
    }
}

#[test]
fn a_changed_fence_is_told_from_another_value() {
    let id = "19f2c1a77d0-5e884898";
    let list = |elements: &[&str]| fence(&encode(elements), id);
    assert_eq!(list(&["heatsink:split", id]), Fence::Intact);
    for changed in [
        &["heatsink:split", id, "x"][..],
        &["x", "heatsink:split", id],
        &["heatsink:split"],
        &[id],
        &["x", id],
        &["heatsink:split", "x", "y"],
        &["heatsink:split", "heatsink:split"],
    ] {
        assert_eq!(list(changed), Fence::Damaged, "{changed:?}");
    }
    let another = || Fence::Another(b"1-2".to_vec());
    assert_eq!(list(&["heatsink:split", "1-2"]), another());
    assert_eq!(list(&["x", "y"]), Fence::Missing);
    let string = |text: &str| fence(&bulk(text.as_bytes()), id);
    assert_eq!(string(&format!("heatsink:split {id}")), Fence::Intact);
    for changed in [
        &format!("heatsink:split {id}x"),
        &format!("HEATSINK:split {id}"),
        &format!("x{id}\0\0x"),
        "heatsink:split",
        "heatsink:split ",
        "heatsink:splitx",
        // In two places, so that neither word nor id is left.
        "xeatsink:split 19f2c1a77d0-5e88489x",
    ] {
        assert_eq!(string(changed), Fence::Damaged, "{changed:?}");
    }
    assert_eq!(string("heatsink:split 1-2"), another());
    for text in ["", "x", "heatsink", "19f2c1a77d0-5e88489", "xxxxxxxxxxxxxxxxxx2c1a77d0-5e88489x"]
    {
        assert_eq!(string(text), Fence::Missing, "{text:?}");
    }
    for reply in [&b"-WRONGTYPE x\r\n"[..], b"$-1\r\n", b"*0\r\n", b"*-1\r\n", b"", b":1\r\n"] {
        assert_eq!(fence(reply, id), Fence::Missing, "{}", reply.escape_ascii());
    }
}

#[test]
fn sizes_are_those_that_the_server_counts() {
    let pairs = encode(&["a", "1", "b", "2"]);
    for (kind, reply, size) in [
        (Kind::Set, &pairs[..], 4),
        (Kind::List, &pairs, 4),
        (Kind::Hash, &pairs, 2),
        (Kind::SortedSet, &pairs, 2),
        (Kind::Set, b"*0\r\n", 0),
        (Kind::Counter, b"$3\r\n-41\r\n", 3),
        (Kind::HyperLogLog, b"$-1\r\n", 0),
    ] {
        assert_eq!(size_of(kind, reply), Ok(size), "{kind}");
    }
    assert!(size_of(Kind::Set, b"-WRONGTYPE no\r\n").is_err());
}

#[test]
fn a_guard_says_what_was_sealed() {
    assert_eq!(Guard::Open.write(b"g"), encode(&["SET", "g", "open"]));
    assert_eq!(Guard::Sealed(7).write(b"g"), encode(&["SET", "g", "sealed 7"]));
    assert_eq!(Guard::read(&bulk(b"open")), Some(Guard::Open));
    assert_eq!(Guard::read(&bulk(b"sealed 7")), Some(Guard::Sealed(7)));
    for other in [&b"$-1\r\n"[..], b"$6\r\nsealed\r\n", b"$8\r\nsealed x\r\n", b"-ERR\r\n"] {
        assert_eq!(Guard::read(other), None, "{}", other.escape_ascii());
    }
}

#[test]
fn strings_tell_what_they_are() {
    assert_eq!(kind_of_string(b"-12"), Some(Kind::Counter));
    assert_eq!(kind_of_string(b"9223372036854775807"), Some(Kind::Counter));
    for text in [&b"01"[..], b"1.5", b"", b" 1", b"9223372036854775808", b"HYLL"] {
        assert_eq!(kind_of_string(text), None);
    }
}

#[test]
fn a_counter_is_in_the_first_shard_and_the_others_exist() {
    let layout = layout(Kind::Counter);
    let requests = fill_shards(&layout, &bulk(b"-41"), 0).expect("a counter");
    let expected = ["-41", "0", "0"].iter().enumerate().map(|(shard, value)| {
        let name = format!("heatsink:{{{shard}}}:i:{shard}");
        encode(&["SET", &name, value])
    });
    assert_eq!(requests, expected.collect::<Vec<_>>());
    let replies = [bulk(b"-41"), bulk(b"50"), b"$-1\r\n".to_vec()];
    let whole = build_whole(&layout, &replies, b"w").expect("numbers");
    assert_eq!(whole, [encode(&["SET", "w", "9"])]);
    let largest = bulk(b"9223372036854775807");
    assert!(build_whole(&layout, &[largest.clone(), bulk(b"1"), bulk(b"0")], b"w").is_err());
    assert!(fill_shards(&layout, &largest, 0).is_err());
    assert!(fill_shards(&layout, &bulk(b"4611686018427387904"), 0).is_ok());
    assert!(fill_shards(&layout, &bulk(b"4611686018427387905"), 0).is_err());
}

#[test]
fn what_is_not_there_cannot_be_split_and_nothing_is_left_of_it() {
    for kind in Kind::ALL {
        let layout = layout(*kind);
        let nothing = if kind.server_type() == "string" { &b"$-1\r\n"[..] } else { b"*0\r\n" };
        assert!(fill_shards(&layout, nothing, 0).is_err(), "{kind}");
        assert_eq!(build_whole(&layout, &vec![nothing.to_vec(); 3], b"w"), Ok(Vec::new()));
        assert!(build_whole(&layout, &vec![nothing.to_vec(); 2], b"w").is_err());
        let refused = Unfit("the server answered WRONGTYPE no".to_owned());
        let error = b"-WRONGTYPE no\r\n".to_vec();
        assert_eq!(fill_shards(&layout, &error, 0), Err(refused.clone()));
        assert_eq!(build_whole(&layout, &vec![error; 3], b"w"), Err(refused));
    }
}

#[test]
fn requests_are_bounded_in_members_and_bytes() {
    let layout = Layout::new("i", Kind::Set, false, &["0"]);
    let short: Vec<String> = (0..1300).map(|at| at.to_string()).collect();
    let requests = fill_shards(&layout, &encode(&short), 0).expect("a set");
    assert_eq!(requests.len(), 3);
    assert!(requests[0].starts_with(b"*514\r\n") && requests[2].starts_with(b"*278\r\n"));
    let long: Vec<String> = (0..50).map(|at| format!("{at:05000}")).collect();
    let requests = fill_shards(&layout, &encode(&long), 0).expect("a set");
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| request.len() <= 64 * 1024));
    let huge = encode(&["a".repeat(100_000), "b".repeat(100_000)]);
    assert_eq!(fill_shards(&layout, &huge, 0).expect("a set").len(), 2);
}

#[test]
fn a_list_is_stamped_in_its_order_and_rebuilt_from_shards_in_any() {
    let layout = layout(Kind::List);
    let elements = ["a", "b", "c", "d", "e"];
    let requests = fill_shards(&layout, &encode(&elements), 7).expect("a list");
    assert_eq!(requests.len(), 3);
    let stamped = |number: u64, value: &str| {
        [&(number ^ 1 << 63).to_be_bytes()[..], value.as_bytes()].concat()
    };
    let first = [b"RPUSH".to_vec(), b"heatsink:{0}:i:0".to_vec(), stamped(7, "a"), stamped(8, "b")];
    assert_eq!(requests[0], encode(&first));
    let replies = [
        encode(&[stamped(9, "c"), stamped(3, "first")]),
        encode::<&str>(&[]),
        encode(&[stamped(4_u64.wrapping_neg(), "left"), stamped(8, "b")]),
    ];
    let whole = build_whole(&layout, &replies, b"w").expect("stamped");
    assert_eq!(whole, [encode(&["RPUSH", "w", "left", "first", "b", "c"])]);
    let short = vec![encode(&["abc"]), encode::<&str>(&[]), encode::<&str>(&[])];
    assert!(build_whole(&layout, &short, b"w").is_err());
}
