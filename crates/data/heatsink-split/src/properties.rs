//! What holds for all input: no bytes make a plan or a merge fall over, every part is a request
//! about its shard, and what is moved there comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use heatsink_resp::encode;
use heatsink_resp::value::Value;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::layout::{Kind, Layout, Names};
use crate::moving;
use crate::plan::{Context, Merged, Part, Plan, merge, plan, under_name};

const COMMANDS: &[&str] = &[
    "GET",
    "INCRBY",
    "DECR",
    "STRLEN",
    "EXISTS",
    "TYPE",
    "SADD",
    "SREM",
    "SMISMEMBER",
    "SMEMBERS",
    "HSET",
    "HMSET",
    "HMGET",
    "HGETALL",
    "HDEL",
    "ZADD",
    "ZMSCORE",
    "ZREM",
    "ZRANGE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGEBYLEX",
    "ZRANK",
    "ZREVRANK",
    "ZCOUNT",
    "RPUSH",
    "LPUSH",
    "LRANGE",
    "LINDEX",
    "PFADD",
    "PFCOUNT",
];

fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "0",
        "-1",
        "5",
        "LIMIT",
        "WITHSCORES",
        "REV",
        "BYSCORE",
        "BYLEX",
        "NX",
        "INCR",
        "x",
        "[a",
        "9223372036854775807",
        "-9223372036854775808",
    ]);
    prop_oneof![3 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..20)]
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "$-1\r\n",
        "_\r\n",
        ":3\r\n",
        ":9223372036854775807\r\n",
        ":-9223372036854775808\r\n",
        "$1\r\n7\r\n",
        ",1.5\r\n",
        "$3\r\ninf\r\n",
        "*0\r\n",
        "*1\r\n$1\r\na\r\n",
        "*-1\r\n",
        "*2\r\n$1\r\na\r\n$1\r\n1\r\n",
        "*1\r\n*2\r\n$1\r\na\r\n,2\r\n",
        "~1\r\n$1\r\nb\r\n",
        "*1\r\n$9\r\n12345678a\r\n",
        "%1\r\n$1\r\na\r\n$1\r\nb\r\n",
        "+OK\r\n",
        "#t\r\n",
    ]);
    prop_oneof![
        6 => known.prop_map(|frame| frame.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..30),
    ]
}

/// The arguments of a request.
fn args_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let request = Value::decode(bytes).expect("a request");
    request.array().iter().map(|arg| arg.text().expect("an argument").to_vec()).collect()
}

/// A request, and where its arguments stand.
fn encoded(args: &[&[u8]]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut bytes = Vec::new();
    encode::header(&mut bytes, b'*', args.len());
    let span = |arg: &&[u8]| {
        encode::bulk(&mut bytes, arg);
        let end = bytes.len() - 2;
        end - arg.len()..end
    };
    let spans = args.iter().map(span).collect();
    (bytes, spans)
}

fn check_parts(layout: &Layout, parts: &[Part]) {
    for part in parts {
        assert_eq!(args_of(&part.bytes)[1], layout.name(part.shard, Names::Live));
    }
}

proptest! {
    #[test]
    fn nothing_makes_a_plan_or_its_merge_fall_over(
        kind in prop::sample::select(Kind::ALL),
        shards in 1..6_usize,
        (resp3, turn, stamp) in any::<(bool, usize, u64)>(),
        command in prop::sample::select(COMMANDS),
        rest in vec(word(), 0..8),
        rounds in vec(vec(frame(), 16), 4),
    ) {
        let tags: Vec<String> = (0..shards).map(|tag| tag.to_string()).collect();
        let layout = Layout::new("i", kind, false, &tags);
        let context = Context { layout: &layout, names: Names::Live, resp3, turn, stamp };
        let mut args = vec![command.as_bytes(), b"k"];
        args.extend(rest.iter().map(Vec::as_slice));
        match plan(&context, &args) {
            Plan::One(shard) => {
                let part = under_name(&context, shard, &args);
                check_parts(&layout, std::slice::from_ref(&part));
                let request = encoded(&args);
                let mut renamed = Vec::new();
                layout.rename(shard, &request.0, &request.1, &mut renamed);
                prop_assert_eq!(renamed, part.bytes);
            }
            Plan::Answer(reply) => prop_assert!(Value::decode(&reply).is_ok()),
            Plan::Whole => {}
            Plan::Many { parts, merge: how } => {
                let (mut parts, mut how) = (parts, how);
                for replies in rounds {
                    check_parts(&layout, &parts);
                    let replies: Vec<_> = replies.into_iter().cycle().take(parts.len()).collect();
                    match merge(&context, how, &replies) {
                        Merged::Reply(_) => break,
                        Merged::More { parts: more, merge } => (parts, how) = (more, merge),
                    }
                }
            }
        }
    }

    #[test]
    fn each_member_is_in_one_part_with_what_belongs_to_it(
        fields in vec((vec(any::<u8>(), 0..5), vec(any::<u8>(), 0..5)), 1..40),
        shards in 1..9_usize,
    ) {
        let tags: Vec<String> = (0..shards).map(|tag| tag.to_string()).collect();
        let layout = Layout::new("i", Kind::Hash, false, &tags);
        let context = Context { layout: &layout, names: Names::Live, resp3: false, turn: 0, stamp: 0 };
        let mut args = vec![&b"HSET"[..], b"k"];
        for (field, value) in &fields {
            args.extend([&field[..], value]);
        }
        let parts = match plan(&context, &args) {
            Plan::One(shard) => vec![under_name(&context, shard, &args)],
            Plan::Many { parts, .. } => parts,
            other => panic!("{other:?}"),
        };
        check_parts(&layout, &parts);
        let mut sent = 0;
        let mut stored = BTreeMap::new();
        for part in &parts {
            for pair in args_of(&part.bytes)[2..].chunks(2) {
                prop_assert_eq!(layout.shard_of(&pair[0]), part.shard);
                stored.insert(pair[0].clone(), pair[1].clone());
                sent += 1;
            }
        }
        // Of a field that is named twice, the last value stands, as with one command.
        prop_assert_eq!(sent, fields.len());
        prop_assert_eq!(stored, fields.into_iter().collect());
    }

    #[test]
    fn what_is_moved_into_shards_comes_back(
        kind in prop::sample::select(vec![Kind::Set, Kind::Hash, Kind::SortedSet, Kind::List]),
        members in prop::collection::btree_set(vec(any::<u8>(), 0..6), 1..200),
        shards in 1..9_usize,
        stamp in 0..1_u64 << 62,
    ) {
        let tags: Vec<String> = (0..shards).map(|tag| tag.to_string()).collect();
        let layout = Layout::new("i", kind, false, &tags);
        let paired = matches!(kind, Kind::Hash | Kind::SortedSet);
        let mut elements = Vec::new();
        for (at, member) in members.iter().enumerate() {
            elements.push(member.clone());
            elements.extend(paired.then(|| at.to_string().into_bytes()));
        }
        let requests = moving::fill_shards(&layout, &array(&elements), stamp).expect("fit");
        let mut held = vec![Vec::new(); shards];
        for request in requests {
            let args = args_of(&request);
            let named = |shard: &usize| layout.name(*shard, Names::Live) == args[1];
            let shard = (0..shards).find(named).expect("a shard");
            held[shard].extend(stored(kind, &args[2..]));
        }
        let replies: Vec<Vec<u8>> = held.iter().map(|elements| array(elements)).collect();
        let mut whole = Vec::new();
        for request in moving::build_whole(&layout, &replies, b"w").expect("fit") {
            whole.extend(stored(kind, &args_of(&request)[2..]));
        }
        if kind == Kind::List {
            prop_assert_eq!(whole, elements);
        } else {
            let step = 1 + usize::from(paired);
            let whole: BTreeSet<_> = whole.chunks(step).collect();
            prop_assert_eq!(whole, elements.chunks(step).collect());
        }
    }
}

/// What a server would show of what was written.
fn stored(kind: Kind, written: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut shown = written.to_vec();
    if kind == Kind::SortedSet {
        shown.chunks_mut(2).for_each(<[_]>::reverse);
    }
    shown
}

fn array(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, elements);
    out
}
