//! A proxy that is behind: it believes in a split, and some shards are sealed already. Each test
//! stops the mover there, and draws what the proxy is up to in `hot/splitting/gather.rs`.

use std::time::Duration;

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, Reply, encode};

use crate::hand::Mover;

const SHARDS: usize = 4;
/// Whoever is answered is answered by then.
const SOON: Duration = Duration::from_secs(10);
/// Whoever waits has no reply by then.
const A_WHILE: Duration = Duration::from_millis(100);

/// A key of each type that can be split, and reads that ask all of its shards.
const SAMPLES: [(&str, &str, &[&str]); 6] = [
    ("set", "SADD set a b c d e f g h", &["SCARD set", "EXISTS set", "TYPE set"]),
    ("counter", "SET counter 41", &["GET counter", "STRLEN counter"]),
    ("hash", "HSET hash f 1 g 2 h 3 i 4 j 5", &["HLEN hash", "HMGET hash f g h i j k l m n"]),
    (
        "zset",
        "ZADD zset 1 a 1 b 1 c 2 d 3 e 3 f",
        &["ZRANK zset c", "ZREVRANK zset b", "ZRANGE zset 0 -1 WITHSCORES", "ZCARD zset"],
    ),
    ("list", "RPUSH list a b c d e", &["LRANGE list 0 -1", "LINDEX list -1", "LLEN list"]),
    ("hll", "PFADD hll a b c d e", &["PFCOUNT hll"]),
];

/// With one worker, so that what may go to any shard goes to each in turn.
fn rig() -> ClusterRig {
    Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(1).start()
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn waits(client: &mut RawClient) -> bool {
    client.try_read_frame(A_WHILE).expect("no error").is_none()
}

/// Ends the split of a key, and tells the proxy.
fn end(mover: &Mover, key: &str) {
    mover.make_whole_unheard(key.as_bytes());
    mover.release(key.as_bytes());
}

/// Asks everything while one shard of each key is sealed; the replies come when the proxy has
/// heard of the end.
fn ask_while_one_is_sealed(mover: &Mover, client: impl Fn() -> RawClient, protocol: &str) {
    for (key, fill, reads) in SAMPLES {
        let connect = || {
            let mut client = client();
            client.set_timeout(SOON);
            assert!(!client.command(&["HELLO", protocol]).is_error());
            client
        };
        let mut writer = connect();
        writer.command(&["DEL", key]);
        writer.command(&words(fill));
        let expected: Vec<Reply> = reads.iter().map(|read| writer.command(&words(read))).collect();
        assert!(mover.split(key.as_bytes(), SHARDS));
        mover.seal_unheard(key.as_bytes(), 1..2);
        let mut clients: Vec<RawClient> = reads.iter().map(|_| connect()).collect();
        for (client, read) in clients.iter_mut().zip(reads) {
            client.send(&words(read));
        }
        for (client, read) in clients.iter_mut().zip(reads) {
            assert!(waits(client), "{read} in {protocol}");
        }
        end(mover, key);
        for ((client, read), expected) in clients.iter_mut().zip(reads).zip(expected) {
            assert_eq!(client.read_reply(), expected, "{read} in {protocol}");
        }
    }
}

#[test]
fn reads_that_one_shard_refuses_are_asked_of_the_whole_key() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    for protocol in ["2", "3"] {
        ask_while_one_is_sealed(&mover, || rig.client(), protocol);
    }
}

#[test]
fn the_same_before_one_server() {
    let rig = Rig::new(1);
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    ask_while_one_is_sealed(&mover, || rig.client(), "3");
}

/// Nobody waits for ever.
#[test]
fn a_read_whose_split_does_not_end_is_told_so() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.set_timeout(SOON);
    client.command(&["SADD", "set", "a", "b"]);
    assert!(mover.split(b"set", SHARDS));
    mover.seal_unheard(b"set", 0..SHARDS);
    client.send(&["SCARD", "set"]);
    assert!(waits(&mut client));
    assert!(client.read_reply().error().starts_with("TRYAGAIN"));
    // It goes on with the next.
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".to_owned()));
    end(&mover, "set");
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(2));
}

/// What was sent behind a read and carried out is not in its reply: the read is not asked again.
#[test]
fn a_read_does_not_tell_of_what_was_sent_behind_it() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.set_timeout(SOON);
    client.command(&["SADD", "set", "a", "b", "c"]);
    assert!(mover.split(b"set", SHARDS));
    mover.seal_unheard(b"set", 1..2);
    let mut clients: Vec<RawClient> = (0..16).map(|_| rig.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.set_timeout(SOON);
        let member = number.to_string();
        client
            .send_raw(&[encode(&["SMEMBERS", "set"]), encode(&["SADD", "set", &member])].concat());
        let members = client.read_reply();
        assert!(members.error().starts_with("TRYAGAIN"), "{members:?}");
    }
    let is_there = |client: &mut RawClient| client.try_read_frame(A_WHILE).expect("no error");
    let early = clients.iter_mut().filter_map(is_there).count();
    assert!((1..16).contains(&early), "{early} of 16");
    end(&mover, "set");
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(3 + 16));
}

/// A command in pieces that some shards have carried out is not carried out again.
#[test]
fn what_was_done_in_part_is_not_done_again() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(&["HSET", "hash", "x", "1"]);
    assert!(mover.split(b"hash", SHARDS));
    mover.seal_unheard(b"hash", 1..2);
    let fields: Vec<String> = (0..32).map(|number| number.to_string()).collect();
    let args = ["HSET", "hash"].into_iter().chain(fields.iter().flat_map(|f| [f.as_str(), "1"]));
    let reply = client.command(&args.collect::<Vec<_>>());
    assert!(reply.error().starts_with("ERR heatsink: the value of this key"), "{reply:?}");
    assert!(reply.error().ends_with("in part"), "{reply:?}");
    end(&mover, "hash");
    let left = client.command(&["HLEN", "hash"]).integer();
    assert!((2..33).contains(&left), "{left}");
}

/// One shard takes a push, or an increment, and the others are read for the reply.
#[test]
fn what_one_shard_takes_is_carried_out_once() {
    let all = 1 + SHARDS as i64;
    let samples = [
        ("RPUSH key a", "RPUSH key b", "LLEN key", Reply::Integer(all)),
        ("SET key 1", "INCR key", "GET key", Reply::bulk(all.to_string())),
    ];
    for (fill, write, count, counted) in samples {
        let rig = rig();
        let mover = Mover::new(&rig.heatsink.proxy().handle());
        let mut client = rig.client();
        client.command(&words(fill));
        assert!(mover.split(b"key", SHARDS));
        mover.seal_unheard(b"key", 1..2);
        let mut clients: Vec<RawClient> = (0..SHARDS).map(|_| rig.client()).collect();
        let mut waiting = Vec::new();
        for client in &mut clients {
            client.set_timeout(SOON);
            client.send(&words(write));
            match client.try_read_frame(A_WHILE).expect("no error") {
                // Done, though one shard could not be read.
                Some(reply) => assert!(reply.starts_with(b"-ERR heatsink: "), "{reply:?}"),
                // Refused by the shard that was to take it; increments wait behind such a one.
                None => waiting.push(client),
            }
        }
        assert!(!waiting.is_empty(), "{write}");
        end(&mover, "key");
        let mut counts: Vec<i64> =
            waiting.iter_mut().map(|client| client.read_reply().integer()).collect();
        counts.sort_unstable();
        let first = all + 1 - counts.len() as i64;
        assert_eq!(counts, (first..=all).collect::<Vec<_>>(), "{write}");
        assert_eq!(client.command(&words(count)), counted, "{write}");
    }
}

/// The proxy has heard that the split ends and not that it has ended. Its reads ask the sealed shards, which
/// still hold what the key held then.
///
/// ```text
/// 1. the proxy hears that the split ends
/// 2. the mover makes the key whole; the proxy does not hear of it
/// 3. somebody else writes the whole key
/// 4. a read through the proxy: not what the shards held at 2
/// ```
#[test]
fn a_read_does_not_tell_what_shards_held_before_the_key_was_whole_and_written() {
    type Reads<'a> = &'a [(&'a str, Reply)];
    let rig = Rig::new(1);
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let samples: [(&str, &str, &str, Reads<'_>); 3] = [
        ("set", "SADD set a b", "SADD set c", &[("SCARD set", Reply::Integer(3))]),
        ("counter", "SET counter 10", "INCRBY counter 5", &[("GET counter", Reply::bulk("15"))]),
        (
            "hash",
            "HSET hash f 1 g 2",
            "HSET hash f 3",
            &[("HGET hash f", Reply::bulk("3")), ("HLEN hash", Reply::Integer(2))],
        ),
    ];
    for (key, fill, write, reads) in samples {
        let mut direct = rig.server().client();
        direct.command(&words(fill));
        assert!(mover.split(key.as_bytes(), SHARDS));
        mover.drain(key.as_bytes(), 1);
        let whole_read = reads[reads.len() - 1].0;
        let mut client = rig.client();
        client.set_timeout(SOON);
        // While the marker stands the shards are the value, sealed or not.
        assert!(!client.command(&words(whole_read)).is_error());
        mover.make_whole_unheard(key.as_bytes());
        direct.command(&words(write));
        let mut clients: Vec<RawClient> = reads.iter().map(|_| rig.client()).collect();
        for (client, (read, _)) in clients.iter_mut().zip(reads) {
            client.set_timeout(SOON);
            client.send(&words(read));
        }
        for (client, (read, _)) in clients.iter_mut().zip(reads) {
            assert!(waits(client), "{read} is answered by sealed shards");
        }
        mover.release(key.as_bytes());
        for (client, (read, expected)) in clients.iter_mut().zip(reads) {
            assert_eq!(client.read_reply(), *expected, "{read}");
        }
        direct.command(&["DEL", key]);
    }
}
