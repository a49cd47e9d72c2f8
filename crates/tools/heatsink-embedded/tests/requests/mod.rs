//! Random requests, from templates: `{x}` is filled in, `[a|b|]` is a choice.

/// A request and how its replies may be compared.
pub(crate) struct Request {
    pub(crate) args: Vec<Vec<u8>>,
    /// The order of the reply is the server's own business.
    pub(crate) is_unordered: bool,
}

pub(crate) struct Requests {
    rng: fastrand::Rng,
}

/// Requests in which one argument is sometimes left out or doubled, to see the errors.
const ORDERED: &[&str] = &[
    // Strings.
    "GET {s}",
    "SET {s} {v}",
    "SET {s} {v} [NX|XX|GET|KEEPTTL|NX GET|XX GET|NX XX|EXAT {at}|PXAT {atms}|EX 0|EX x]",
    "SET {s} {v} [NX|XX|] [EXAT {at}|KEEPTTL|] [GET|]",
    "GETEX {s} [PERSIST|EXAT {at}|PXAT {atms}|EXAT 1|EX 0|KEEPTTL|]",
    "GETDEL {s}",
    "GETSET {s} {v}",
    "SETNX {s} {v}",
    "MGET {s} {s} {k}",
    "MSET {s} {v} {s} {v}",
    "MSETNX {s} {v} {s} {v}",
    "APPEND {s} {v}",
    "STRLEN {s}",
    "GETRANGE {s} {i} {i}",
    "SETRANGE {s} {i} {v}",
    "INCR {s}",
    "DECR {s}",
    "INCRBY {s} {i}",
    "DECRBY {s} {i}",
    "INCRBYFLOAT {o} {q}",
    "SET {o} {q}",
    "INCRBY {o} {n}",
    "SET {s} {i}",
    "SETEX {s} 0 {v}",
    "PSETEX {s} x {v}",
    // Keys.
    "DEL {k} {k}",
    "UNLINK {k}",
    "EXISTS {k} {k} {k}",
    "TOUCH {k} {k}",
    "TYPE {k}",
    "RENAME {s} {s}",
    "RENAMENX {z} {z}",
    "RENAME {k} {k}",
    "EXPIREAT {k} {at} [NX|XX|GT|LT|XX GT|NX XX|GT LT|BAD|]",
    "PEXPIREAT {k} {atms} [NX|XX|GT|LT|]",
    "EXPIRE {k} [-1|0|x|9223372036854775807]",
    "PEXPIRE {k} [-1|9223372036854775807]",
    "EXPIRETIME {k}",
    "PEXPIRETIME {k}",
    "PERSIST {k}",
    "DBSIZE",
    // Hashes.
    "HSET {h} {f} {v} {f} {v}",
    "HSET {h} {f} {i}",
    "HMSET {h} {f} {v} {f} {v}",
    "HSETNX {h} {f} {v}",
    "HGET {h} {f}",
    "HMGET {h} {f} {f}",
    "HGETALL {h}",
    "HKEYS {h}",
    "HVALS {h}",
    "HLEN {h}",
    "HSTRLEN {h} {f}",
    "HEXISTS {h} {f}",
    "HDEL {h} {f} {f}",
    "HINCRBY {h} {f} {i}",
    "HINCRBYFLOAT {h} {g} {q}",
    "HSET {h} {g} {q}",
    "HINCRBY {h} {g} {n}",
    "HSCAN {h} 0 [COUNT 5|MATCH f*|COUNT 0|COUNT x|BAD 1|]",
    "HSCAN {h} x",
    // Lists.
    "LPUSH {l} {v} {v}",
    "RPUSH {l} {v} {v} {v}",
    "LPUSHX {l} {v}",
    "RPUSHX {l} {v}",
    "LPOP {l} [{i}|]",
    "RPOP {l} [{i}|]",
    "LMOVE {l} {l} [LEFT|RIGHT] [LEFT|RIGHT|BAD]",
    "RPOPLPUSH {l} {l}",
    "LLEN {l}",
    "LINDEX {l} {i}",
    "LSET {l} {i} {v}",
    "LRANGE {l} {i} {i}",
    "LTRIM {l} {i} {i}",
    "LREM {l} {i} {v}",
    "LINSERT {l} [BEFORE|AFTER|BAD] {v} {v}",
    // Sets.
    "SADD {t} {m} {m} {m}",
    "SREM {t} {m} {m}",
    "SISMEMBER {t} {m}",
    "SMISMEMBER {t} {m} {m}",
    "SCARD {t}",
    "SMOVE {t} {t} {m}",
    "SINTERSTORE {t} {t} {t}",
    "SUNIONSTORE {t} {t} {t}",
    "SDIFFSTORE {t} {t} {t} {t}",
    // Sorted sets.
    "ZADD {z} {d} {m} {d} {m}",
    "ZADD {z} [NX|XX|GT|LT|CH|INCR|NX XX|GT LT|XX CH|GT INCR|] {d} {m}",
    "ZADD {z} [NX|XX|] [GT|LT|] [CH|] {d} {m} {d} {m}",
    "ZINCRBY {z} {d} {m}",
    "ZSCORE {z} {m}",
    "ZMSCORE {z} {m} {m}",
    "ZCARD {z}",
    "ZRANK {z} {m}",
    "ZREVRANK {z} {m}",
    "ZREM {z} {m} {m}",
    "ZPOPMIN {z} [{i}|]",
    "ZPOPMAX {z} [2|]",
    "ZCOUNT {z} {r} {r}",
    "ZRANGE {z} {i} {i} [WITHSCORES|REV|REV WITHSCORES|LIMIT 0 1|BAD|]",
    "ZRANGE {z} {r} {r} BYSCORE [REV|] [LIMIT {i} {i}|] [WITHSCORES|]",
    "ZREVRANGE {z} {i} {i} [WITHSCORES|LIMIT 0 1|]",
    "ZRANGEBYSCORE {z} {r} {r} [WITHSCORES|] [LIMIT {i} {i}|LIMIT 1|]",
    "ZREVRANGEBYSCORE {z} {r} {r} [WITHSCORES|] [LIMIT {i} {i}|]",
    "ZREMRANGEBYRANK {z} {i} {i}",
    "ZREMRANGEBYSCORE {z} {r} {r}",
    "ZSCAN {z} 0 [MATCH m1*|]",
    // HyperLogLog.
    "PFADD {p} {v} {v} {v}",
    "PFADD {p}",
    "PFCOUNT {p} {p}",
    "PFMERGE {p} {p} {p}",
    "PFCOUNT {h}",
    // Transactions.
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH {k}",
    "UNWATCH",
    // The connection.
    "PING [{v}|]",
    "ECHO {v}",
    "SELECT 0",
    "NOSUCHCOMMAND {v} {v}",
];

const UNORDERED: &[&str] = &[
    "SMEMBERS {t}",
    "SPOP {t} [1000|-1|x]",
    "SRANDMEMBER {t} [1000|0|x]",
    "SINTER {t} {t}",
    "SUNION {t} {t} {k}",
    "SDIFF {t} {t}",
    "KEYS {v}*",
    "KEYS [sh]*",
    "SSCAN {t} 0 COUNT 1000 [MATCH m1*|]",
    "SCAN 0 COUNT 1000 [MATCH z*|TYPE hash|TYPE nosuch|]",
];

/// Connection-level requests whose replies do not depend on the server's history.
pub(crate) const CONNECTION_REQUESTS: &[&str] = &[
    "PING",
    "PING a b",
    "CLIENT",
    "CLIENT NOSUCH",
    "CLIENT GETNAME",
    "CLIENT GETNAME x",
    "CLIENT SETNAME me",
    "CLIENT GETNAME",
    "CLIENT SETNAME \u{e9}",
    "CLIENT CACHING YES",
    "CLIENT TRACKING MAYBE",
    "CLIENT TRACKING ON BAD",
    "CLIENT TRACKING ON REDIRECT 999999",
    "CLIENT TRACKING ON REDIRECT x",
    "CLIENT TRACKING ON OPTIN OPTOUT",
    "CLIENT TRACKING ON OPTIN BCAST",
    "CLIENT TRACKING ON PREFIX a",
    "CLIENT TRACKING ON OPTIN NOLOOP",
    "CLIENT TRACKING ON OPTOUT",
    "CLIENT TRACKING ON BCAST",
    "CLIENT CACHING NO",
    "CLIENT CACHING MAYBE",
    "CLIENT CACHING YES",
    "CLIENT TRACKING OFF",
    "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
    "CLIENT TRACKING ON BCAST PREFIX a PREFIX b",
    "CLIENT TRACKING OFF",
    "CLIENT KILL ID x",
    "CLIENT KILL ID 999999",
    "CLIENT KILL 1.2.3.4:5",
    "CLIENT LIST TYPE nosuch",
    "CLIENT LIST ID x",
    "HELLO 4",
    "HELLO x",
    "HELLO 3 BAD",
    "HELLO 3 AUTH nobody x",
    "HELLO 3 AUTH default",
    "AUTH x",
    "AUTH default anything",
    "AUTH nobody x",
    "AUTH a b c",
    "SELECT 16",
    "SELECT x",
    "SELECT 3",
    "SELECT 0",
    "FLUSHDB BAD",
    "FLUSHDB ASYNC",
    "FLUSHALL SYNC",
    "CONFIG",
    "CONFIG GET databases",
    "CONFIG GET nosuch",
    "CONFIG GET proto-max-bulk-len",
    "EXEC",
    "DISCARD",
    "MULTI",
    "MULTI",
    "WATCH k",
    "NOSUCH",
    "SET k v",
    "EXEC",
    "MULTI",
    "GET",
    "EXEC",
    "MULTI",
    "SET k v",
    "INCR k",
    "GET k",
    "EXEC",
    "WATCH k",
    "SET k w",
    "MULTI",
    "GET k",
    "EXEC",
    "PUBLISH c m",
    "PUBSUB CHANNELS",
    "PUBSUB NUMSUB a b",
    "PUBSUB NUMPAT",
    "PUBSUB NOSUCH",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE p",
    "SUBSCRIBE c",
    "PSUBSCRIBE p*",
    "PING",
    "PING x",
    "GET k",
    "PUBSUB CHANNELS",
    "PUNSUBSCRIBE",
    "UNSUBSCRIBE c",
    "RESET",
    "PING",
    "NOSUCHCOMMAND",
];

impl Requests {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed) }
    }

    pub(crate) fn next_request(&mut self) -> Request {
        let is_unordered = self.rng.u8(..10) == 0;
        let templates = if is_unordered { UNORDERED } else { ORDERED };
        let template = templates[self.rng.usize(..templates.len())];
        let mut args = self.fill(template);
        // A slip now and then, where it cannot make a random reply of an ordered one.
        if !is_unordered && self.rng.u8(..25) == 0 {
            let at = self.rng.usize(..args.len());
            if self.rng.bool() && args.len() > 1 && at > 0 {
                args.remove(at);
            } else {
                args.push(args[at].clone());
            }
        }
        let is_unordered = is_unordered || args[0] == b"EXEC";
        Request { args, is_unordered }
    }

    fn fill(&mut self, template: &str) -> Vec<Vec<u8>> {
        let mut chosen = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('[') {
            let (choices, after) = after.split_once(']').expect("a closed choice");
            let choices: Vec<&str> = choices.split('|').collect();
            chosen += before;
            chosen += choices[self.rng.usize(..choices.len())];
            rest = after;
        }
        chosen += rest;
        chosen.split_ascii_whitespace().map(|word| self.word(word)).collect()
    }

    fn word(&mut self, word: &str) -> Vec<u8> {
        let Some((before, rest)) = word.split_once('{') else { return word.into() };
        let (name, after) = rest.split_once('}').expect("a closed name");
        let mut filled = before.as_bytes().to_vec();
        filled.extend(self.value(name));
        filled.extend(after.as_bytes());
        filled
    }

    fn pick(&mut self, choices: &[&str]) -> Vec<u8> {
        choices[self.rng.usize(..choices.len())].into()
    }

    fn value(&mut self, name: &str) -> Vec<u8> {
        let small = self.rng.u8(..8);
        match name {
            // A key of the wanted type, mostly.
            "s" | "h" | "l" | "t" | "z" | "p" => {
                let of_type = if name != "p" && self.rng.u8(..30) == 0 { "h" } else { name };
                format!("{of_type}{}", small % 4).into()
            }
            // Any key but those of HyperLogLog.
            "k" => {
                let of_type = self.pick(&["s", "h", "l", "t", "z"]);
                [of_type, (small % 4).to_string().into()].concat()
            }
            "f" => format!("f{small}").into(),
            // Fields and keys of float counters: large integers would show in what precision
            // the server adds.
            "g" => format!("g{}", small % 4).into(),
            "o" => format!("o{}", small % 4).into(),
            "m" => format!("m{}", self.rng.u8(..12)).into(),
            "v" => match small {
                0 => b"".to_vec(),
                1 => b"\x00\xff binary".to_vec(),
                2 => self.rng.i64(-5..100).to_string().into(),
                _ => self.pick(&["a", "b", "c", "hello", "a longer value with words in it"]),
            },
            "i" => match self.rng.u8(..40) {
                0 => self.pick(&["x", "", "1.5", "01", "+1", " 1", "99999999999999999999"]),
                1 => self.pick(&["9223372036854775807", "-9223372036854775808"]),
                _ => self.rng.i64(-4..6).to_string().into(),
            },
            "n" => self.rng.u8(..20).to_string().into(),
            // Quarters have no rounding error, in any precision.
            "q" => match self.rng.u8(..20) {
                0 => self.pick(&["x", "", "inf", "nan"]),
                _ => (f64::from(self.rng.i32(-40..40)) / 4.0).to_string().into(),
            },
            "d" => match self.rng.u8(..20) {
                0 => self.pick(&["x", "", "nan", "1e400"]),
                1 => self.pick(&["inf", "-inf", "+inf", "0.1", "1e20", "-0.000001", "3.14"]),
                _ => (f64::from(self.rng.i32(-16..16)) / 2.0).to_string().into(),
            },
            "r" => match self.rng.u8(..20) {
                0 => self.pick(&["x", "(", "(x"]),
                1..4 => self.pick(&["-inf", "+inf", "(inf"]),
                4..8 => format!("({}", self.rng.i32(-8..8)).into(),
                _ => self.rng.i32(-8..8).to_string().into(),
            },
            "at" => self.rng.i64(2_000_000_000..2_000_000_010).to_string().into(),
            "atms" => self.rng.i64(2_000_000_000_000..2_000_000_010_000).to_string().into(),
            _ => panic!("no such name: {name}"),
        }
    }
}
