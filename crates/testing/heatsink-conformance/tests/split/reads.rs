//! Reads while a value is moved: they are answered before whoever moves it goes on.
//!
//! The mover stops at the moment in question, and is not told to go on before the replies are
//! there. A read that waited for it would be told so after five seconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, Reply, eventually};

use crate::hand::Mover;

/// A value of each type that can be split, a write of it, and reads.
struct Sample {
    key: &'static str,
    fill: &'static str,
    write: &'static str,
    /// Answered by the shards while it is split.
    shared: &'static [&'static str],
    /// The key has to be whole for them.
    whole: &'static [&'static str],
}

const SAMPLES: [Sample; 6] = [
    Sample {
        key: "{k}set",
        fill: "SADD {k}set a b c d e f",
        write: "SADD {k}set z",
        shared: &[
            "TTL {k}set",
            "SCARD {k}set",
            "SISMEMBER {k}set a",
            "SMISMEMBER {k}set a x",
            "SMEMBERS {k}set",
        ],
        // The marker is a string.
        whole: &["STRLEN {k}set", "GET {k}set", "GETRANGE {k}set 0 3", "SORT_RO {k}set ALPHA"],
    },
    Sample {
        key: "{k}counter",
        fill: "SET {k}counter 41 EX 100000",
        write: "INCR {k}counter",
        shared: &["GET {k}counter", "STRLEN {k}counter"],
        // The marker is a list.
        whole: &["LLEN {k}counter", "LRANGE {k}counter 0 -1", "GETRANGE {k}counter 0 0"],
    },
    Sample {
        key: "{k}hash",
        fill: "HSET {k}hash f 1 g 2 h 3",
        write: "HSET {k}hash i 4",
        shared: &["HGET {k}hash f", "HLEN {k}hash", "HMGET {k}hash f x h", "HGETALL {k}hash"],
        whole: &["STRLEN {k}hash", "BITCOUNT {k}hash"],
    },
    Sample {
        key: "{k}zset",
        fill: "ZADD {k}zset 1 a 1 b 1 c 2 d 3 e 3 f",
        write: "ZADD {k}zset 4 g",
        shared: &[
            "PTTL {k}zset",
            "ZCARD {k}zset",
            "ZRANK {k}zset c",
            "ZREVRANK {k}zset e",
            "ZRANK {k}zset x",
            "ZRANGE {k}zset 0 -1 WITHSCORES",
            "ZSCORE {k}zset d",
        ],
        whole: &["GETBIT {k}zset 1", "ZDIFF 1 {k}zset"],
    },
    Sample {
        key: "{k}list",
        fill: "RPUSH {k}list a b c d e",
        write: "RPUSH {k}list z",
        shared: &["LLEN {k}list", "LRANGE {k}list 1 3", "LINDEX {k}list -1"],
        whole: &["STRLEN {k}list", "LPOS {k}list c", "SORT_RO {k}list ALPHA"],
    },
    Sample {
        key: "{k}hll",
        fill: "PFADD {k}hll a b c d e",
        write: "PFADD {k}hll z",
        shared: &["PFCOUNT {k}hll"],
        whole: &["LLEN {k}hll", "STRLEN {k}hll"],
    },
];

/// Reads of any key.
const SHARED: [&str; 2] = ["TYPE key", "EXISTS key"];
const WHOLE: [&str; 9] = [
    "DUMP key",
    "OBJECT ENCODING key",
    "MEMORY USAGE key",
    "TOUCH key",
    "MGET {k}other key",
    "MGET other key {k}other",
    "EXISTS key key missing",
    "SINTERCARD 2 {k}plain key",
    "EVAL_RO script 1 key",
];
const SCRIPT: &str = "return redis.call('TYPE', KEYS[1])";

fn rig() -> ClusterRig {
    Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(2).start()
}

/// A client, by its protocol.
fn client_of(rig: &ClusterRig, protocol: &str) -> RawClient {
    let mut client = rig.client();
    assert!(!client.command(&["HELLO", protocol]).is_error());
    client
}

fn run(client: &mut RawClient, command: &str) -> Reply {
    let words = command.split(' ').map(|word| if word == "script" { SCRIPT } else { word });
    client.command(&words.collect::<Vec<_>>())
}

/// What has no order is put into one.
fn ordered(command: &str, reply: &Reply) -> String {
    let mut text = format!("{reply:?}");
    if ["SMEMBERS", "HGETALL"].iter().any(|name| command.starts_with(name)) {
        let mut parts: Vec<_> = match reply {
            Reply::Array(_) | Reply::Set(_) if command.starts_with('S') => {
                reply.items().iter().map(|item| format!("{item:?}")).collect()
            }
            _ => reply.pairs().iter().map(|pair| format!("{pair:?}")).collect(),
        };
        parts.sort();
        text = format!("{parts:?}");
    }
    text
}

fn reads(client: &mut RawClient, commands: &[String]) -> Vec<(String, String)> {
    let read = |command: &String| (command.clone(), ordered(command, &run(client, command)));
    commands.iter().map(read).collect()
}

impl Sample {
    fn shared(&self) -> Vec<String> {
        let any = SHARED.iter().map(|read| read.replace("key", self.key));
        any.chain(self.shared.iter().map(|&read| read.to_owned())).collect()
    }

    fn whole(&self) -> Vec<String> {
        let any = WHOLE.iter().map(|read| read.replace("key", self.key));
        any.chain(self.whole.iter().map(|&read| read.to_owned())).collect()
    }

    /// All of them, whole keys or not.
    fn reads(&self) -> Vec<String> {
        [self.shared(), self.whole()].concat()
    }
}

fn fill(client: &mut RawClient) {
    for sample in &SAMPLES {
        assert!(!run(client, sample.fill).is_error());
    }
    for command in ["SET {k}other 1", "SET other 2", "SADD {k}plain a b"] {
        assert!(!run(client, command).is_error());
    }
}

/// Nothing that reads a key waits while it is about to be split; whatever writes does.
#[test]
fn nothing_that_reads_waits_while_a_key_freezes() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    fill(&mut rig.client());
    for protocol in ["2", "3"] {
        let mut reader = client_of(&rig, protocol);
        for sample in &SAMPLES {
            let plain = reads(&mut reader, &sample.reads());
            mover.freeze(sample.key.as_bytes());
            let mut writer = rig.client();
            writer.send(&sample.write.split(' ').collect::<Vec<_>>());
            assert_eq!(reads(&mut reader, &sample.reads()), plain);
            assert!(writer.try_read_frame(Duration::from_millis(20)).expect("no error").is_none());
            mover.release(sample.key.as_bytes());
            assert!(!writer.read_reply().is_error());
        }
    }
    assert_eq!(mover.forced(), 0);
}

/// The marker is there, and nobody has said that the key is split.
#[test]
fn reads_are_answered_between_the_commit_and_the_word_of_it() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    fill(&mut rig.client());
    for protocol in ["2", "3"] {
        let mut reader = client_of(&rig, protocol);
        for sample in &SAMPLES {
            let key = sample.key.as_bytes();
            let plain = reads(&mut reader, &sample.shared());
            mover.freeze(key);
            mover.commit(key);
            assert_eq!(reads(&mut reader, &sample.shared()), plain);
            mover.tell_split(key);
            assert_eq!(reads(&mut reader, &sample.shared()), plain);
            mover.drain(key, 2);
            assert_eq!(reads(&mut reader, &sample.shared()), plain);
            mover.make_whole_unheard(key);
            mover.release(key);
            assert_eq!(reads(&mut reader, &sample.shared()), plain);
        }
    }
    assert_eq!(mover.forced(), 0);
}

/// Nobody has told the proxy that the split is over already, or will not be.
#[test]
fn a_split_that_is_over_unheard_does_not_stop_reads() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut reader = rig.client();
    fill(&mut reader);
    let encodes = |command: &String| {
        // It is another value of the same contents.
        ["OBJECT", "DUMP", "MEMORY"].iter().any(|name| command.starts_with(name))
            || command.contains("{k}hll")
                && (command.starts_with("STRLEN") || command.starts_with("MGET"))
    };
    for sample in &SAMPLES {
        let key = sample.key.as_bytes();
        let mut commands = sample.reads();
        commands.retain(|command| !encodes(command));
        let plain = reads(&mut reader, &commands);
        mover.freeze(key);
        mover.commit(key);
        mover.make_whole_unheard(key);
        assert_eq!(reads(&mut reader, &commands), plain);
        mover.release(key);
        mover.freeze(key);
        mover.forbid(key);
        assert_eq!(reads(&mut reader, &commands), plain);
        mover.release(key);
    }
    assert_eq!(mover.forced(), 0);
}

/// What needs the whole key waits for it, and is not overtaken by what its client sends behind.
#[test]
fn what_needs_the_whole_key_waits_for_it() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    fill(&mut client);
    let key = b"{k}counter";
    let requests = [
        (&["MGET", "{k}other", "{k}counter"][..], Reply::bulks(["1", "41"])),
        (&["GETRANGE", "{k}counter", "0", "0"], Reply::bulk("4")),
    ];
    for (request, expected) in requests {
        mover.freeze(key);
        mover.commit(key);
        client.send(request);
        client.send(&["SET", "{k}other", "later"]);
        assert!(client.try_read_frame(Duration::from_millis(100)).expect("no error").is_none());
        let forced = mover.forced();
        mover.tell_split(key);
        assert_eq!(client.read_reply(), expected);
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(mover.forced(), forced + 1);
        client.command(&["SET", "{k}other", "1"]);
    }
}

/// Rights are those on the key. A user who has none on permits and shards does not wait either, as
/// long as the value is at the key.
#[test]
fn users_with_rights_of_their_own_wait_for_shards_only() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut admin = rig.client();
    fill(&mut admin);
    for node in rig.cluster.nodes() {
        let user = ["ACL", "SETUSER", "ann", "on", ">pw", "~{k}*", "~other", "+@all", "-dump"];
        assert_eq!(node.client().command(&user), Reply::ok());
    }
    let mut ann = rig.client();
    assert_eq!(ann.command(&["AUTH", "ann", "pw"]), Reply::ok());
    let sample = &SAMPLES[0];
    let key = sample.key.as_bytes();
    let mut commands = sample.reads();
    // The other keys are not hers.
    commands.retain(|command| !command.contains("missing"));
    let plain = reads(&mut ann, &commands);
    assert!(ann.command(&["DUMP", sample.key]).error().starts_with("NOPERM"));
    mover.freeze(key);
    assert_eq!(reads(&mut ann, &commands), plain);
    mover.commit(key);
    assert!(ann.command(&["DUMP", sample.key]).error().starts_with("NOPERM"));
    ann.send(&["TYPE", sample.key]);
    assert!(ann.try_read_frame(Duration::from_millis(50)).expect("no error").is_none());
    assert_eq!(mover.forced(), 0);
    mover.tell_split(key);
    assert_eq!(ann.read_reply(), Reply::Simple("set".into()));
    assert_eq!(mover.forced(), 1);
}

/// Ranks take several rounds, in each of which a shard may be sealed or not.
#[test]
fn ranks_are_told_while_shards_are_sealed() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    // More members of one score than are read at once.
    let names: Vec<String> = (0..600).map(|number| format!("m{number:03}")).collect();
    let mut add = vec!["ZADD", "ranks"];
    add.extend(names.iter().flat_map(|name| ["5", name.as_str()]));
    assert_eq!(client.command(&add), Reply::Integer(600));
    assert!(mover.split(b"ranks", 4));
    for sealed in 0..=4 {
        mover.drain(b"ranks", sealed);
        for place in [0, 17, 300, 599] {
            let rank = client.command(&["ZRANK", "ranks", &names[place]]);
            assert_eq!(rank, Reply::Integer(place as i64), "{sealed}");
            let rank = client.command(&["ZREVRANK", "ranks", &names[place]]);
            assert_eq!(rank, Reply::Integer(599 - place as i64), "{sealed}");
        }
    }
    assert_eq!(mover.forced(), 0);
}

/// A value that does not change is read while it is moved all the time.
#[test]
fn reads_are_right_while_a_key_is_moved_all_the_time() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    fill(&mut rig.client());
    let sample = &SAMPLES[3];
    let plain = reads(&mut rig.client(), &sample.shared());
    let several = ["MGET {k}other {k}zset", "SINTERCARD 2 {k}plain {k}other", "STRLEN {k}zset"];
    let several = several.map(str::to_owned);
    let plain_several = reads(&mut rig.client(), &several);
    let over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = rig.client();
                while !over.load(Ordering::Acquire) {
                    assert_eq!(reads(&mut client, &sample.shared()), plain);
                    done.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        scope.spawn(|| {
            let mut client = rig.client();
            while !over.load(Ordering::Acquire) {
                assert_eq!(reads(&mut client, &several), plain_several);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut rounds = 0;
        // A command may have had it made whole, or have it made so: then it does not count.
        let split = |rounds: &mut usize| {
            *rounds += usize::from(mover.split(sample.key.as_bytes(), [2, 3, 8][*rounds % 3]));
            mover.make_whole(sample.key.as_bytes());
            *rounds >= 100 && done.load(Ordering::Acquire) >= 100
        };
        let until = Instant::now() + Duration::from_secs(60);
        while !split(&mut rounds) && Instant::now() < until {}
        over.store(true, Ordering::Release);
        assert!(rounds >= 100 && done.load(Ordering::Acquire) >= 100, "{rounds} rounds");
    });
}

/// The server refuses a wrong number of arguments before it looks at any key.
#[test]
fn a_wrong_number_of_arguments_leaves_a_key_split() {
    let rig = rig();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    fill(&mut client);
    // How many arguments a command takes, the servers tell.
    eventually(Duration::from_secs(10), || {
        (0..3).any(|node| rig.cluster.calls(node, "command") > 0)
    });
    assert!(mover.split(b"{k}set", 4));
    for command in [
        "SADD {k}set",
        "SCARD {k}set more",
        "GET {k}set more",
        "RENAME {k}set",
        "OBJECT ENCODING {k}set more",
        "SMOVE {k}set {k}plain",
        "MULTI",
        "SADD {k}set",
        "EXEC",
    ] {
        let reply = run(&mut client, command);
        match command {
            "MULTI" => assert_eq!(reply, Reply::ok()),
            "EXEC" => assert!(reply.error().starts_with("EXECABORT"), "{reply:?}"),
            _ => assert!(reply.error().contains("wrong number of arguments"), "{reply:?}"),
        }
    }
    assert!(mover.is_split(b"{k}set"));
    assert_eq!(mover.forced(), 0);
    assert_eq!(client.command(&["SCARD", "{k}set"]), Reply::Integer(6));
}
