//! The same random commands to a plain key and to one that is split, made whole, split again
//! with another factor and moved: the same replies.

use std::env;

use fastrand::Rng;
use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, seed_from};

use crate::hand::Mover;

/// Commands of each comparison in the usual run.
const STEPS: usize = 6_000;
const FACTORS: [usize; 5] = [2, 3, 4, 8, 16];

fn steps() -> usize {
    let steps = env::var("HEATSINK_SPLIT_STEPS").ok();
    steps.map_or(STEPS, |steps| steps.parse().expect("HEATSINK_SPLIT_STEPS is a number"))
}

/// What a type's commands are made of: words, of which `key` and single letters are replaced.
struct Type {
    name: &'static str,
    /// Tells the value of a string; of another type, the error.
    read: &'static str,
    /// One of these makes the key if it is gone.
    first: &'static [&'static str],
    /// Answered by the shards.
    often: &'static [&'static str],
    /// The key is made whole for them.
    seldom: &'static [&'static str],
}

const MEMBERS: usize = 40;
/// Commands that are sent in one piece, at most.
const BURST: usize = 16;
/// Among them are some about keys that nothing is done about, on all nodes.
const OTHERS: [&str; 3] = ["INCR plain", "GET plain", "APPEND plain n"];

const COUNTER: Type = Type {
    name: "counter",
    read: "GET",
    first: &["INCRBY key n"],
    often: &[
        "INCR key",
        "DECR key",
        "INCRBY key n",
        "DECRBY key n",
        "GET key",
        "STRLEN key",
        "EXISTS key",
        "TYPE key",
        "TTL key",
    ],
    seldom: &[
        "INCRBY key x",
        "INCR key key",
        "SET key n",
        "DEL key",
        "GETSET key n",
        "APPEND key 1",
        "INCRBYFLOAT key 1.5",
        "SADD key m",
        "INCRBY key 9000000000000000000",
        "SETRANGE key 0 7",
        "EXPIRE key 1000",
        "PERSIST key",
        "GETRANGE key 0 1",
        "RENAME key {key}other",
        "COPY key {key}other REPLACE",
        "SORT key",
    ],
};

const SET: Type = Type {
    name: "set",
    read: "GET",
    first: &["SADD key m m m m"],
    often: &[
        "SADD key m",
        "SADD key m m m",
        "SADD key m m m m m m",
        "SREM key m",
        "SREM key m m m",
        "SISMEMBER key m",
        "SMISMEMBER key m m m",
        "SCARD key",
        "SMEMBERS key",
        "EXISTS key",
        "TYPE key",
    ],
    seldom: &[
        "SADD key",
        "SISMEMBER key m m",
        "DEL key",
        "SPOP key 0",
        "SUNION key {key}other",
        "SMOVE key {key}other m",
        "GET key",
        "SINTERSTORE {key}other key key",
        "EXPIRE key 1000",
        "PERSIST key",
        "SORT key ALPHA",
        "OBJECT REFCOUNT key",
        "SDIFFSTORE key {key}other {key}other",
        "INCR key",
    ],
};

const HASH: Type = Type {
    name: "hash",
    read: "GET",
    first: &["HSET key m n m n"],
    often: &[
        "HSET key m n",
        "HSET key m n m n m n",
        "HMSET key m n m n",
        "HGET key m",
        "HMGET key m m m",
        "HDEL key m",
        "HDEL key m m",
        "HEXISTS key m",
        "HLEN key",
        "HGETALL key",
        "HKEYS key",
        "HVALS key",
        "HINCRBY key m n",
        "HINCRBYFLOAT key m 0.5",
        "HSETNX key m n",
        "HSTRLEN key m",
        "EXISTS key",
        "TYPE key",
    ],
    seldom: &[
        "HSET key m",
        "HINCRBY key m x",
        "DEL key",
        "EXPIRE key 1000",
        "PERSIST key",
        "GET key",
        "COPY key {key}other REPLACE",
        "RENAME key {key}other",
        "HRANDFIELD key 0",
    ],
};

const SORTED_SET: Type = Type {
    name: "sorted set",
    read: "GET",
    first: &["ZADD key n m n m n m"],
    often: &[
        "ZADD key n m",
        "ZADD key n m n m n m",
        "ZADD key NX n m",
        "ZADD key XX CH n m n m",
        "ZADD key GT CH n m",
        "ZADD key LT n m",
        "ZADD key INCR n m",
        "ZSCORE key m",
        "ZMSCORE key m m m",
        "ZINCRBY key n m",
        "ZREM key m",
        "ZREM key m m",
        "ZCARD key",
        "ZCOUNT key -inf n",
        "ZCOUNT key (n n",
        "ZRANGE key 0 -1",
        "ZRANGE key 0 -1 WITHSCORES",
        "ZRANGE key i j",
        "ZRANGE key i j REV WITHSCORES",
        "ZREVRANGE key i j",
        "ZRANGE key (n n BYSCORE",
        "ZRANGE key n n BYSCORE LIMIT i j",
        "ZRANGE key n n BYSCORE REV LIMIT i j WITHSCORES",
        "ZRANGEBYSCORE key -inf n",
        "ZRANGEBYSCORE key n +inf WITHSCORES LIMIT i j",
        "ZREVRANGEBYSCORE key n -inf LIMIT i j",
        "ZRANK key m",
        "ZREVRANK key m",
        "EXISTS key",
        "TYPE key",
    ],
    seldom: &[
        "ZADD key x m",
        "ZADD key NX XX n m",
        "DEL key",
        "ZPOPMIN key",
        "ZREMRANGEBYRANK key 0 1",
        "ZREMRANGEBYSCORE key n n",
        "ZUNIONSTORE {key}other 1 key",
        "EXPIRE key 1000",
        "PERSIST key",
        "GET key",
        "ZRANDMEMBER key 0",
    ],
};

/// Members by their bytes, which is specified only while all have the same score.
const LEXICAL: Type = Type {
    name: "sorted set of one score",
    read: "GET",
    first: &["ZADD key 0 m 0 m 0 m"],
    often: &[
        "ZADD key 0 m",
        "ZADD key 0 m 0 m 0 m",
        "ZREM key m",
        "ZREM key m m",
        "ZCARD key",
        "ZLEXCOUNT key - +",
        "ZLEXCOUNT key [m (m",
        "ZRANGEBYLEX key - +",
        "ZRANGEBYLEX key [m (m LIMIT i j",
        "ZREVRANGEBYLEX key + [m",
        "ZRANGE key [m + BYLEX",
        "ZRANGE key (m [m BYLEX REV LIMIT i j",
        "ZRANK key m",
        "ZREVRANK key m",
        "ZRANGE key i j",
    ],
    seldom: &["DEL key", "ZREMRANGEBYLEX key [m (m", "ZPOPMAX key 2"],
};

const LIST: Type = Type {
    name: "list",
    read: "GET",
    first: &["RPUSH key m m m m"],
    often: &[
        "RPUSH key m",
        "RPUSH key m m m",
        "LPUSH key m",
        "LPUSH key m m m",
        "LRANGE key 0 -1",
        "LRANGE key i j",
        "LRANGE key -5 -2",
        "LLEN key",
        "LINDEX key i",
        "LINDEX key -1",
        "EXISTS key",
        "TYPE key",
    ],
    seldom: &[
        "LPUSH key",
        "DEL key",
        "LPOP key",
        "RPOP key 3",
        "LREM key 1 m",
        "LSET key 0 m",
        "LTRIM key 0 20",
        "LINSERT key BEFORE m m",
        "RPUSHX key m",
        "EXPIRE key 1000",
        "PERSIST key",
        "GET key",
        "LMOVE key {key}other LEFT RIGHT",
        "LPOS key m",
        "SORT key ALPHA LIMIT 0 3",
    ],
};

const HYPERLOGLOG: Type = Type {
    name: "HyperLogLog",
    read: "PFCOUNT",
    first: &["PFADD key m m m"],
    often: &[
        "PFADD key m",
        "PFADD key r",
        "PFADD key r r r r r",
        "PFADD key m m",
        "PFCOUNT key",
        "PFADD key",
        "EXISTS key",
        "TYPE key",
    ],
    seldom: &[
        "DEL key",
        "PFMERGE key {key}other",
        "PFCOUNT key {key}other",
        "EXPIRE key 1000",
        "PERSIST key",
        "SADD key m",
    ],
};

fn words(rng: &mut Rng, command: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| -> Vec<u8> {
        match word {
            "key" => b"{hot}key".to_vec(),
            "{key}other" => b"{hot}other".to_vec(),
            "m" => format!("member{}", rng.usize(..MEMBERS)).into_bytes(),
            "plain" => format!("plain{}", rng.usize(..9)).into_bytes(),
            "r" => format!("random{}", rng.u32(..)).into_bytes(),
            "n" => rng.i32(-20..100).to_string().into_bytes(),
            "i" => rng.i32(0..6).to_string().into_bytes(),
            "j" => rng.i32(-2..30).to_string().into_bytes(),
            "(n" => format!("({}", rng.i32(-20..100)).into_bytes(),
            "[m" => format!("[member{}", rng.usize(..MEMBERS)).into_bytes(),
            "(m" => format!("(member{}", rng.usize(..MEMBERS)).into_bytes(),
            other => other.as_bytes().to_vec(),
        }
    };
    let mut word = word;
    command.split(' ').map(&mut word).collect()
}

/// What has no order of its own is put in one; of a time to live only that it began not long ago.
fn ordered(command: &str, mut reply: Reply) -> Reply {
    let name = command.split(' ').next().unwrap_or_default();
    match (name, &mut reply) {
        ("SMEMBERS" | "HKEYS" | "SUNION", Reply::Array(items) | Reply::Set(items)) => {
            items.sort_by_key(|item| format!("{item:?}"));
        }
        ("HVALS", Reply::Array(items)) => items.sort_by_key(|item| format!("{item:?}")),
        ("HGETALL", Reply::Array(items)) => {
            let mut pairs: Vec<_> = items.chunks(2).map(<[Reply]>::to_vec).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            *items = pairs.concat();
        }
        ("HGETALL", Reply::Map(pairs)) => pairs.sort_by_key(|pair| format!("{pair:?}")),
        ("TTL", Reply::Integer(seconds @ 940..=1000)) => *seconds = 1000,
        _ => {}
    }
    reply
}

struct Sides {
    plain: RawClient,
    tested: RawClient,
}

impl Sides {
    fn both(&mut self, command: &[Vec<u8>]) -> (Reply, Reply) {
        self.plain.send(command);
        self.tested.send(command);
        (self.plain.read_reply(), self.tested.read_reply())
    }
}

fn compare(kind: &Type, resp3: bool) {
    let seed = seed_from("HEATSINK_SPLIT_SEED", 7 + u64::from(resp3));
    let mut rng = Rng::with_seed(seed);
    let server = RedisServer::start();
    let rig = Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(1).start();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut sides = Sides { plain: server.client(), tested: rig.client() };
    if resp3 {
        sides.plain.command(&["HELLO", "3"]);
        sides.tested.command(&["HELLO", "3"]);
    }
    let (mut splits, mut answered_split) = (0, 0);
    let mut burst: Vec<(&str, Vec<Vec<u8>>)> = Vec::new();
    let mut together = 1;
    for step in 0..steps() {
        match rng.u32(..400) {
            0..40 => splits += usize::from(mover.split(b"{hot}key", FACTORS[rng.usize(..5)])),
            40 => {
                mover.make_whole(b"{hot}key");
            }
            41 => {
                let shards = mover.shards(b"{hot}key");
                if let Some(name) = shards.get(rng.usize(..shards.len().max(1))) {
                    let slot = heatsink_cluster::slot::of_key(name);
                    rig.cluster.move_slot(slot, rng.usize(..3));
                }
            }
            _ => {}
        }
        let seldom = rng.u32(..150) == 0;
        let some = if seldom { kind.seldom } else { kind.often };
        let gone = step == 0 || rng.u32(..50) == 0;
        let some = if gone { kind.first } else { some };
        let command = some[rng.usize(..some.len())];
        burst.push((command, words(&mut rng, command)));
        if rng.u32(..4) == 0 {
            let other = OTHERS[rng.usize(..OTHERS.len())];
            burst.push((other, words(&mut rng, other)));
        }
        if burst.len() < together {
            continue;
        }
        together = if rng.bool() { 1 } else { rng.usize(2..=BURST) };
        answered_split += usize::from(mover.is_split(b"{hot}key")) * burst.len();
        for side in [&mut sides.plain, &mut sides.tested] {
            let bytes: Vec<u8> = burst.iter().flat_map(|(_, words)| encode(words)).collect();
            side.send_raw(&bytes);
        }
        for (command, words) in burst.drain(..) {
            let plain = ordered(command, sides.plain.read_reply());
            let tested = ordered(command, sides.tested.read_reply());
            let text: Vec<_> = words.iter().map(|w| String::from_utf8_lossy(w)).collect();
            assert_eq!(tested, plain, "step {step}, seed {seed}: {}", text.join(" "));
        }
    }
    mover.make_whole(b"{hot}key");
    for read in [kind.read, "SMEMBERS", "HGETALL", "LRANGE", "ZRANGE", "TYPE", "TTL"] {
        let command = match read {
            "LRANGE" | "ZRANGE" => format!("{read} key 0 -1"),
            _ => format!("{read} key"),
        };
        let (plain, tested) = sides.both(&words(&mut rng, &command));
        assert_eq!(ordered(&command, tested), ordered(&command, plain), "at the end: {command}");
    }
    let forced = mover.forced();
    println!(
        "{}: {} steps, {splits} splits, {forced} made whole for a command, {answered_split} commands \
         while split",
        kind.name,
        steps()
    );
    assert!(splits > 5 && forced > 2, "{splits} splits, {forced} forced");
    assert!(answered_split > steps() / 10, "{answered_split} commands while split");
}

macro_rules! compared {
    ($($name:ident, $name3:ident: $kind:ident;)+) => {
        $(
            #[test]
            fn $name() {
                compare(&$kind, false);
            }

            #[test]
            fn $name3() {
                compare(&$kind, true);
            }
        )+
    };
}

compared! {
    a_split_counter, a_split_counter_in_resp3: COUNTER;
    a_split_set, a_split_set_in_resp3: SET;
    a_split_hash, a_split_hash_in_resp3: HASH;
    a_split_sorted_set, a_split_sorted_set_in_resp3: SORTED_SET;
    a_lexical_sorted_set, a_lexical_sorted_set_in_resp3: LEXICAL;
    a_split_list, a_split_list_in_resp3: LIST;
    a_split_hyperloglog, a_split_hyperloglog_in_resp3: HYPERLOGLOG;
}
