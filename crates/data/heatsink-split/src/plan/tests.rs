use heatsink_testkit::encode;

use super::*;

fn layout(kind: Kind, expires: bool) -> Layout {
    Layout::new("i", kind, expires, &["0", "1", "2", "3"])
}

fn context(layout: &Layout) -> Context<'_> {
    Context { layout, names: Names::Live, resp3: false, turn: 6, stamp: 1000 }
}

fn planned(layout: &Layout, request: &str) -> Plan {
    let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    plan(&context(layout), &args)
}

fn parts(layout: &Layout, request: &str) -> Vec<Part> {
    let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    match planned(layout, request) {
        Plan::One(shard) => vec![under_name(&context(layout), shard, &args)],
        Plan::Many { parts, .. } => parts,
        Plan::Answer(_) | Plan::Whole => Vec::new(),
    }
}

#[test]
fn a_counter_is_raised_in_one_shard_and_read_in_the_others() {
    let layout = layout(Kind::Counter, false);
    let Plan::Many { parts, merge: how } = planned(&layout, "decrby k 5") else { panic!() };
    for (shard, part) in parts.iter().enumerate() {
        let name = format!("heatsink:{{{shard}}}:i:{shard}");
        let bytes = match shard {
            2 => encode(&["INCRBY", &name, "-5"]),
            _ => encode(&["GET", &name]),
        };
        assert_eq!(*part, Part { shard, bytes });
    }
    let replies =
        [&b"$2\r\n10\r\n"[..], b"$-1\r\n", b":-5\r\n", b"$1\r\n2\r\n"].map(<[u8]>::to_vec);
    assert_eq!(merge(&context(&layout), how, &replies), Merged::Reply(b":7\r\n".to_vec()));
}

#[test]
fn a_key_without_a_time_to_live_has_none_if_there_is_anything_in_it() {
    let replies = |sizes: [u8; 4]| sizes.map(|size| format!(":{size}\r\n").into_bytes());
    for kind in [Kind::Set, Kind::Hash, Kind::SortedSet, Kind::List] {
        let endless = layout(kind, false);
        for request in ["TTL k", "pttl k"] {
            for (sizes, reply) in [([0, 0, 3, 0], ":-1\r\n"), ([0; 4], ":-2\r\n")] {
                let Plan::Many { merge: how, .. } = planned(&endless, request) else { panic!() };
                let merged = merge(&context(&endless), how, &replies(sizes));
                assert_eq!(merged, Merged::Reply(reply.as_bytes().to_vec()), "{kind} {request}");
            }
            // It is with the marker.
            assert_eq!(planned(&layout(kind, true), request), Plan::Whole, "{kind} {request}");
        }
        assert_eq!(planned(&endless, "TTL k k"), Plan::Whole);
    }
}

#[test]
fn large_steps_and_sums_are_not_for_split_counters() {
    let layout = layout(Kind::Counter, false);
    for request in [
        "INCRBY k 1099511627777",
        "DECRBY k -1099511627777",
        "DECRBY k -9223372036854775808",
        "INCRBY k 01",
        "INCRBY k x",
        "INCRBY k",
        "INCR k 1",
        "GET k k",
        "GETSET k 1",
        "EXISTS k k",
    ] {
        assert_eq!(planned(&layout, request), Plan::Whole, "{request}");
    }
    assert!(matches!(planned(&layout, "INCRBY k 1099511627776"), Plan::Many { .. }));
    let (half, one) = (b"$19\r\n2305843009213693952\r\n".to_vec(), b":1\r\n".to_vec());
    assert!(!counter_is_near_overflow(&[half.clone(), half.clone()]));
    assert!(counter_is_near_overflow(&[half.clone(), half, one]));
}

#[test]
fn repeated_members_stay_in_the_command_of_their_shard() {
    let layout = layout(Kind::Set, false);
    let request = "SADD k a b c d a b";
    let parts = parts(&layout, request);
    let count: usize = parts.iter().map(|part| part.bytes[1] as usize - usize::from(b'2')).sum();
    assert!(parts.len() > 1);
    assert_eq!(count, 6);
    for part in &parts {
        let name = String::from_utf8(layout.name(part.shard, Names::Live).to_vec()).expect("text");
        let own = "abcdab".chars().map(String::from);
        let own = own.filter(|member| layout.shard_of(member.as_bytes()) == part.shard);
        let args: Vec<String> = ["SADD".to_owned(), name].into_iter().chain(own).collect();
        assert_eq!(part.bytes, encode(&args));
    }
}

#[test]
fn what_could_empty_a_key_with_a_time_to_live_makes_it_whole() {
    for (kind, request) in
        [(Kind::Set, "SREM k a"), (Kind::Hash, "HDEL k a"), (Kind::SortedSet, "ZREM k a")]
    {
        assert_eq!(planned(&layout(kind, true), request), Plan::Whole);
        assert!(matches!(planned(&layout(kind, false), request), Plan::One(_)));
    }
}

#[test]
fn names_are_asked_as_the_context_says() {
    let layout = layout(Kind::Set, false);
    let sealed = Context { names: Names::Sealed, ..context(&layout) };
    let Plan::Many { parts, .. } = plan(&sealed, &[b"SCARD", b"k"]) else { panic!() };
    assert_eq!(parts[1].bytes, encode(&["SCARD", "heatsink:{1}:i:1:sealed"]));
}

#[test]
fn the_first_error_is_the_reply() {
    let layout = layout(Kind::Set, false);
    let Plan::Many { merge: how, .. } = planned(&layout, "SCARD k") else { panic!() };
    let replies = [&b":1\r\n"[..], b"-ERR a\r\n", b"-ERR b\r\n", b":1\r\n"].map(<[u8]>::to_vec);
    assert_eq!(merge(&context(&layout), how, &replies), Merged::Reply(b"-ERR a\r\n".to_vec()));
}

#[test]
fn whatever_is_malformed_or_unknown_makes_the_key_whole() {
    for (kind, requests) in [
        (
            Kind::Set,
            &["SADD k", "SISMEMBER k", "SISMEMBER k a b", "SPOP k", "SCARD k x", "GET k"][..],
        ),
        (
            Kind::Hash,
            &["HSET k a", "HSET k a b c", "HMSET k a", "HGET k", "HINCRBY k f", "HSCAN k 0"],
        ),
        (
            Kind::SortedSet,
            &[
                "ZADD k 1",
                "ZADD k NX XX 1 a",
                "ZADD k NX GT 1 a",
                "ZADD k GT LT 1 a",
                "ZADD k INCR 1 a 2 b",
                "ZADD k 1 a x b",
                "ZADD k 1 a 1e400 b",
                "ZRANGE k 0",
                "ZRANGE k 0 x",
                "ZRANGE k 0 1 LIMIT 0 1",
                "ZRANGE k 0 1 REV REV",
                "ZRANGE k - + BYLEX WITHSCORES",
                "ZRANGE k 0 1 BYSCORE BYLEX",
                "ZRANGE k 0 1 OTHER",
                "ZRANGEBYSCORE k 0 1 REV",
                "ZRANGEBYSCORE k 0 1 LIMIT 0",
                "ZRANGEBYSCORE k 0 1 LIMIT -1 1",
                "ZREVRANGE k 0 1 BYSCORE",
                "ZRANK k a WITHSCORE",
                "ZPOPMIN k",
            ],
        ),
        (
            Kind::List,
            &["RPUSH k", "RPUSHX k a", "LPUSHX k a", "LRANGE k 0 x", "LINDEX k", "LPOP k"],
        ),
        (Kind::HyperLogLog, &["PFADD", "PFCOUNT k k", "PFMERGE k", "GET k", "STRLEN k"]),
    ] {
        let layout = layout(kind, false);
        for request in requests {
            assert_eq!(planned(&layout, request), Plan::Whole, "{request}");
        }
        for request in
            ["EXPIRETIME k", "OBJECT ENCODING k", "DEL k", "A", "AVERYLONGNAMEOFACOMMAND k"]
        {
            assert_eq!(planned(&layout, request), Plan::Whole, "{request}");
        }
    }
}

fn names(parts: &[Part]) -> Vec<String> {
    let text = parts.iter().map(|part| String::from_utf8_lossy(&part.bytes).into_owned());
    let words = text.map(|text| text.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect());
    words.map(|words: Vec<String>| [&words[..1], &words[2..]].concat().join(" ")).collect()
}

#[test]
fn shards_are_asked_for_no_more_of_a_range_than_may_be_wanted() {
    let layout = layout(Kind::SortedSet, false);
    for (request, asked) in [
        ("ZRANGE k 3 7", "ZRANGE 0 7 WITHSCORES"),
        ("ZRANGE k -3 -2", "ZRANGE -3 -1 WITHSCORES"),
        ("ZRANGE k 3 -2 REV", "ZRANGE 0 -1 REV WITHSCORES"),
        ("ZREVRANGE k 0 0", "ZREVRANGE 0 0 WITHSCORES"),
        ("ZRANGEBYSCORE k 1 (5 LIMIT 2 3", "ZRANGEBYSCORE 1 (5 LIMIT 0 5 WITHSCORES"),
        ("ZRANGEBYSCORE k 1 5 LIMIT 2 -1", "ZRANGEBYSCORE 1 5 LIMIT 0 -1 WITHSCORES"),
        ("zrange k [b [a BYLEX REV LIMIT 1 1", "ZRANGE [b [a BYLEX REV LIMIT 0 2"),
    ] {
        let parts = parts(&layout, request);
        assert_eq!(names(&parts), [asked; 4], "{request}");
    }
}

#[test]
fn a_push_goes_to_one_shard_with_stamps_that_follow_each_other() {
    let layout = layout(Kind::List, false);
    for (request, sign) in [("RPUSH k a b", 1), ("LPUSH k a b", -1)] {
        let parts = parts(&layout, request);
        let stamp = |number: i64| (number as u64 ^ 1 << 63).to_be_bytes();
        let pushed = [(stamp(1000 * sign), b"a"), (stamp(1001 * sign), b"b")];
        let pushed = pushed.map(|(stamp, value)| [&stamp[..], value].concat());
        let name = layout.name(2, Names::Live).to_vec();
        let [first, second] = pushed;
        assert_eq!(parts[2].bytes, encode(&[request[..5].into(), name, first, second]));
        let others = [0, 1, 3].map(|shard: usize| parts[shard].clone());
        assert_eq!(names(&others), ["LLEN"; 3]);
    }
    let room = vec![&b"x"[..]; (1 << 20) + 3];
    let mut args = room.clone();
    (args[0], args[1]) = (b"RPUSH", b"k");
    assert_eq!(plan(&context(&layout), &args), Plan::Whole);
}

#[test]
fn a_hyperloglog_that_is_told_nothing_does_not_change() {
    let layout = layout(Kind::HyperLogLog, false);
    assert_eq!(planned(&layout, "PFADD k"), Plan::Answer(b":0\r\n".to_vec()));
    assert_eq!(planned(&layout, "EXISTS k"), Plan::Answer(b":1\r\n".to_vec()));
    assert_eq!(planned(&layout, "TYPE k"), Plan::Answer(b"+string\r\n".to_vec()));
}

/// Shards of a hash are filled field by field, without their ends.
#[test]
fn what_gives_a_field_an_end_needs_the_hash_whole() {
    for request in [
        "HEXPIRE k 10 FIELDS 1 f",
        "HPEXPIRE k 10 FIELDS 1 f",
        "HEXPIREAT k 10 FIELDS 1 f",
        "HPEXPIREAT k 10 FIELDS 1 f",
        "HSETEX k EX 10 FIELDS 1 f v",
        "HGETEX k EX 10 FIELDS 1 f",
        "HGETDEL k FIELDS 1 f",
        "HPERSIST k FIELDS 1 f",
        "HTTL k FIELDS 1 f",
        "HPEXPIRETIME k FIELDS 1 f",
    ] {
        assert_eq!(planned(&layout(Kind::Hash, false), request), Plan::Whole, "{request}");
    }
}
