//! A split key beside a plain one on a real server: the same commands, the same replies, byte for
//! byte, while the key is made whole and split again by every command that wants it whole.
//!
//! What has no order (`SMEMBERS`, `HGETALL`, …) is compared as sorted elements.
//! `HEATSINK_SPLIT_STEPS` makes the runs longer, `HEATSINK_SPLIT_SEED` is another seed or `random`.

#[path = "differential/requests.rs"]
mod requests;
#[path = "differential/split_key.rs"]
mod split_key;

use fastrand::Rng;
use heatsink_resp::value::Value;
use heatsink_split::layout::Names;
use heatsink_split::plan::{Context, Plan};
use heatsink_split::{Kind, Layout, moving, plan};
use heatsink_testkit::{RedisServer, encode, seed_from};

use requests::Requests;
use split_key::{KEY, SplitKey, connect, shown};

fn steps() -> usize {
    std::env::var("HEATSINK_SPLIT_STEPS").map_or(3000, |steps| steps.parse().expect("a number"))
}

fn run(kind: Kind, one_score: bool) {
    let seed = seed_from("HEATSINK_SPLIT_SEED", 7);
    for resp3 in [false, true] {
        let server = RedisServer::start();
        let plain_server = RedisServer::start();
        let rng = Rng::with_seed(seed);
        let mut requests = Requests { kind, rng: rng.clone(), one_score };
        let mut split = SplitKey::new(&server, kind, resp3, rng);
        let mut plain = connect(&plain_server, resp3);
        // One that a merge may take in.
        for client in [&mut plain, &mut server.client()] {
            client.command(&["PFADD", "other", "a", "b", "e1"]);
        }
        let steps = steps();
        for step in 0..steps {
            let request = requests.next();
            let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            plain.send(&args);
            let expected = plain.read_frame();
            let answered = split.ask(&args);
            assert!(
                comparable(&request[0], &answered) == comparable(&request[0], &expected),
                "step {step}, RESP{}: {}\nplain: {}\nsplit: {}",
                2 + u8::from(resp3),
                shown(&request),
                expected.escape_ascii(),
                answered.escape_ascii(),
            );
        }
        let (splits, answered) = (split.splits, split.answered);
        assert!(splits >= steps / 200 && answered >= steps / 2, "{splits} {answered}");
    }
}

/// A reply without the order that has no meaning.
fn comparable(command: &[u8], frame: &[u8]) -> Vec<String> {
    let whole = vec![frame.escape_ascii().to_string()];
    let command = command.to_ascii_uppercase();
    if !matches!(&command[..], b"SMEMBERS" | b"HGETALL" | b"HKEYS" | b"HVALS") || frame[0] == b'-' {
        return whole;
    }
    let mut elements: Vec<String> = match Value::decode(frame).expect("a reply") {
        Value::Array(flat) if command == b"HGETALL" => {
            flat.chunks(2).map(|pair| format!("{pair:?}")).collect()
        }
        Value::Array(elements) => elements.iter().map(|element| format!("{element:?}")).collect(),
        Value::Map(pairs) => pairs.iter().map(|pair| format!("{pair:?}")).collect(),
        _ => return whole,
    };
    elements.sort();
    elements.push(char::from(frame[0]).to_string());
    elements
}

#[test]
fn counters() {
    run(Kind::Counter, false);
}

#[test]
fn sets() {
    run(Kind::Set, false);
}

#[test]
fn hashes() {
    run(Kind::Hash, false);
}

#[test]
fn sorted_sets() {
    run(Kind::SortedSet, false);
}

#[test]
fn sorted_sets_of_one_score() {
    run(Kind::SortedSet, true);
}

#[test]
fn every_rank_among_many_members_of_one_score() {
    let server = RedisServer::start();
    let members: Vec<String> = (0..600).map(|at| format!("{at:03}")).collect();
    let mut split = SplitKey::new(&server, Kind::SortedSet, false, Rng::with_seed(1));
    let mut args = vec![&b"ZADD"[..], KEY];
    for member in &members {
        args.extend([&b"-2.5"[..], member.as_bytes()]);
    }
    split.ask(&args);
    for _ in 0..4 {
        for (rank, member) in members.iter().enumerate() {
            let forward = split.ask(&[b"ZRANK", KEY, member.as_bytes()]);
            assert_eq!(forward, format!(":{rank}\r\n").into_bytes(), "{member}");
            let backward = split.ask(&[b"ZREVRANK", KEY, member.as_bytes()]);
            assert_eq!(backward, format!(":{}\r\n", 599 - rank).into_bytes(), "{member}");
        }
        // Whole, and split again by another factor.
        split.ask(&[b"PERSIST", KEY]);
    }
    assert_eq!(split.splits, 5);
}

#[test]
fn lists() {
    run(Kind::List, false);
}

#[test]
fn hyperloglogs() {
    run(Kind::HyperLogLog, false);
}

#[test]
fn counts_of_every_size_are_those_of_the_server() {
    let (server, plain_server) = (RedisServer::start(), RedisServer::start());
    let mut plain = plain_server.client();
    let mut split = SplitKey::new(&server, Kind::HyperLogLog, false, Rng::with_seed(1));
    let mut added = 0;
    for size in (0..18).map(|power| 1 << power) {
        while added < size {
            let batch = (size - added).min(2000);
            let elements: Vec<String> = (added..added + batch).map(|at| at.to_string()).collect();
            let mut args = vec![&b"PFADD"[..], KEY];
            args.extend(elements.iter().map(String::as_bytes));
            plain.send(&args);
            assert_eq!(split.ask(&args), plain.read_frame());
            added += batch;
        }
        plain.send(&[b"PFCOUNT", KEY]);
        assert_eq!(split.ask(&[b"PFCOUNT", KEY]), plain.read_frame(), "{size}");
        // Whole, and split again by another factor.
        split.ask(&[b"PTTL", KEY]);
    }
    assert_eq!(split.splits, 19);
}

#[test]
fn large_values_there_and_back() {
    let server = RedisServer::start();
    let mut client = server.client();
    for kind in Kind::ALL {
        fill(&mut client, *kind);
        let read = moving::read_whole(*kind, KEY);
        client.send_raw(&read);
        let whole = client.read_frame();
        let layout = Layout::new(kind.name(), *kind, false, &["0", "1", "2", "3", "4", "5", "6"]);
        let mut send = |request: &[u8]| {
            client.send_raw(request);
            let reply = client.read_frame();
            assert_ne!(reply[0], b'-', "{kind}: {}", reply.escape_ascii());
            reply
        };
        for request in moving::fill_shards(&layout, &whole, 1).expect("fit") {
            assert!(request.len() <= 64 * 1024, "{kind}: {}", request.len());
            send(&request);
        }
        let reads = moving::read_shards(&layout, Names::Live);
        let replies: Vec<Vec<u8>> = reads.iter().map(|read| send(read)).collect();
        for request in moving::build_whole(&layout, &replies, b"built").expect("fit") {
            assert!(request.len() <= 64 * 1024, "{kind}: {}", request.len());
            send(&request);
        }
        let count = |key: &str| encode(&["PFCOUNT", key]);
        if *kind == Kind::HyperLogLog {
            let built = send(&count("built"));
            assert_eq!(built, send(&encode(&[b"PFCOUNT", KEY])));
            assert_ne!(built, b":0\r\n");
        } else {
            let command = if *kind == Kind::Hash { &b"HGETALL"[..] } else { b"SMEMBERS" };
            let command = if matches!(kind, Kind::Set | Kind::Hash) { command } else { b"" };
            let built = send(&moving::read_whole(*kind, b"built"));
            assert_eq!(comparable(command, &built), comparable(command, &whole), "{kind}");
        }
        send(&encode(&["FLUSHALL"]));
    }
}

/// A value of thousands of members, some of them long.
fn fill(client: &mut heatsink_testkit::RawClient, kind: Kind) {
    let long = "x".repeat(20_000);
    let member =
        |at: usize| if at.is_multiple_of(500) { format!("{at}{long}") } else { format!("m{at}") };
    for at in 0..5000 {
        let member = member(at);
        let number = (at as f64 / 7.0).to_string();
        let request = match kind {
            Kind::Counter => encode(&[b"INCRBY", KEY, b"-1000000007"]),
            Kind::Set => encode(&[b"SADD", KEY, member.as_bytes()]),
            Kind::Hash => encode(&[b"HSET", KEY, member.as_bytes(), number.as_bytes()]),
            Kind::SortedSet => encode(&[b"ZADD", KEY, number.as_bytes(), member.as_bytes()]),
            Kind::List => encode(&[b"LPUSH", KEY, member.as_bytes()]),
            Kind::HyperLogLog => encode(&[b"PFADD", KEY, member.as_bytes()]),
        };
        client.send_raw(&request);
        assert_eq!(client.read_frame()[0], b':');
    }
}

#[test]
fn a_fence_refuses_every_part_of_every_plan() {
    let server = RedisServer::start();
    for kind in Kind::ALL {
        let layout = Layout::new(kind.name(), *kind, false, &["a", "b", "c"]);
        let mut client = server.client();
        for shard in 0..layout.len() {
            let name = layout.name(shard, Names::Live);
            client.send_raw(&moving::write_fence(*kind, name, "fenced"));
            assert_ne!(client.read_frame()[0], b'-');
            client.send_raw(&moving::read_fence(*kind, name));
            let reply = client.read_frame();
            assert!(moving::is_fence(&reply, "fenced") && !moving::is_fence(&reply, "other"));
            client.send_raw(&moving::read_fence(other(*kind), name));
            assert!(!moving::is_fence(&client.read_frame(), "fenced"));
        }
        let mut requests = Requests { kind: *kind, rng: Rng::with_seed(3), one_score: false };
        let mut refused = 0;
        for turn in 0..500 {
            let request = requests.next();
            let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            let context =
                Context { layout: &layout, names: Names::Live, resp3: false, turn, stamp: 1 };
            let parts = match plan::plan(&context, &args) {
                Plan::One(shard) => vec![plan::under_name(&context, shard, &args)],
                Plan::Many { parts, .. } => parts,
                Plan::Answer(_) | Plan::Whole => continue,
            };
            for part in parts {
                client.send_raw(&part.bytes);
                let reply = client.read_frame();
                assert_eq!(reply[0], b'-', "{}", shown(&request));
                refused += usize::from(reply.starts_with(b"-WRONGTYPE "));
            }
        }
        assert!(refused > 400, "{kind}: {refused}");
    }
}

/// A kind whose fences are of another type.
fn other(kind: Kind) -> Kind {
    if kind.server_type() == "string" { Kind::Set } else { Kind::Counter }
}
