//! Random requests for each type: those that shards answer, some that they cannot, and some that
//! are wrong.

use fastrand::Rng;
use heatsink_split::Kind;

use crate::split_key::KEY;

/// A request, its key in place.
pub(crate) struct Requests {
    pub(crate) kind: Kind,
    pub(crate) rng: Rng,
    /// All members of a sorted set have one score, as commands by name want it.
    pub(crate) one_score: bool,
}

impl Requests {
    pub(crate) fn next(&mut self) -> Vec<Vec<u8>> {
        let text = match self.kind {
            Kind::Counter => self.counter(),
            Kind::Set => self.set(),
            Kind::Hash => self.hash(),
            Kind::SortedSet => self.sorted_set(),
            Kind::List => self.list(),
            Kind::HyperLogLog => self.hyperloglog(),
        };
        self.filled(text)
    }

    /// Words become arguments: `K` the key, `M` a member, `M*` several, `V` a value, `V*` several,
    /// `P*` fields with values, `S` a score, `S*` scores with members, `I` an index, `B` a bound
    /// by score, `L` a bound by name, `E*` elements of a `HyperLogLog`.
    fn filled(&mut self, text: &str) -> Vec<Vec<u8>> {
        let mut args = Vec::new();
        for word in text.split(' ') {
            let several = self.rng.usize(1..6);
            match word {
                "K" => args.push(KEY.to_vec()),
                "M" => args.push(self.member()),
                "M*" => args.extend((0..several).map(|_| self.member())),
                "V" => args.push(self.value()),
                "V*" => args.extend((0..several).map(|_| self.value())),
                "P*" => (0..several).for_each(|_| args.extend([self.member(), self.value()])),
                "S" => args.push(self.score()),
                "S*" => (0..several).for_each(|_| args.extend([self.score(), self.member()])),
                "I" => args.push(self.index()),
                "B" => args.push(self.bound()),
                "L" => args.push(self.bound_by_name()),
                "E*" => {
                    let count = self.pick(&[1, 1, 1, 2, 3, 10, 100]);
                    args.extend(
                        (0..count).map(|_| format!("e{}", self.rng.u32(..20_000)).into_bytes()),
                    );
                }
                word => args.push(word.as_bytes().to_vec()),
            }
        }
        args
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(..all.len())]
    }

    fn member(&mut self) -> Vec<u8> {
        match self.rng.u8(..40) {
            0 => Vec::new(),
            1 => b"\xff\r\n\0".to_vec(),
            2 => b"\r\n$1\r\n".to_vec(),
            _ if self.one_score => format!("m{}", self.rng.u16(..700)).into_bytes(),
            _ => format!("m{}", self.rng.u8(..60)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.rng.u8(..10) {
            0 => Vec::new(),
            1 => b"\r\nx".to_vec(),
            2 => vec![b'v'; self.rng.usize(..300)],
            _ => self.rng.i16(..).to_string().into_bytes(),
        }
    }

    fn score(&mut self) -> Vec<u8> {
        if self.one_score {
            return b"0".to_vec();
        }
        match self.rng.u8(..30) {
            0 => b"inf".to_vec(),
            1 => b"-INF".to_vec(),
            2 => b"0.1".to_vec(),
            3 => b"-0".to_vec(),
            4 => b"1e300".to_vec(),
            5 => b"+17.25e-3".to_vec(),
            6 => self.rng.f64().to_string().into_bytes(),
            _ => self.rng.i8(-4..5).to_string().into_bytes(),
        }
    }

    fn bound(&mut self) -> Vec<u8> {
        match self.rng.u8(..12) {
            0 | 1 => b"-inf".to_vec(),
            2 | 3 => b"+inf".to_vec(),
            4 => b"no".to_vec(),
            _ => [self.pick(&[&b""[..], b"("]), &self.score()].concat(),
        }
    }

    fn bound_by_name(&mut self) -> Vec<u8> {
        match self.rng.u8(..12) {
            0..3 => b"-".to_vec(),
            3..6 => b"+".to_vec(),
            6 => b"no".to_vec(),
            _ => [self.pick(&[&b"["[..], b"("]), &self.member()].concat(),
        }
    }

    fn index(&mut self) -> Vec<u8> {
        match self.rng.u8(..30) {
            0 => b"-9223372036854775808".to_vec(),
            1 => b"9223372036854775807".to_vec(),
            2 => b"x".to_vec(),
            3..8 => b"-1".to_vec(),
            8..14 => b"0".to_vec(),
            _ => self.rng.i8(-40..40).to_string().into_bytes(),
        }
    }

    fn counter(&mut self) -> &'static str {
        // Whatever a counter has become, it is soon one again.
        if self.rng.u8(..20) == 0 {
            return self.pick(&[
                "SET K 5",
                "SET K -77",
                "GETSET K 10",
                "SET K 4611686018427387904",
            ]);
        }
        if self.rng.u8(..40) == 0 {
            return self.pick(&[
                "SET K 9223372036854775800",
                "SET K 01",
                "APPEND K 3",
                "INCRBYFLOAT K 1.5",
                "DEL K",
                "INCRBY K x",
                "INCRBY K 2000000000000",
                "GET K K",
                "PERSIST K",
                "SADD K M",
                "GETRANGE K 0 1",
            ]);
        }
        self.pick(&[
            "GET K",
            "get K",
            "INCR K",
            "incr K",
            "DECR K",
            "INCRBY K 7",
            "DECRBY K 12",
            "STRLEN K",
            "INCRBY K -3",
            "INCRBY K 1099511627776",
            "DECRBY K 1099511627776",
            "EXISTS K",
            "TYPE K",
        ])
    }

    fn set(&mut self) -> &'static str {
        if self.rng.u8(..40) == 0 {
            return self.pick(&[
                "DEL K",
                "SADD K",
                "SISMEMBER K",
                "SMEMBERS K K",
                "GET K",
                "INCR K",
                "EXISTS K K",
                "SREM K",
                "SSCAN K 0 COUNT 100000 MATCH none",
                "ZADD K 1 a",
                "TTL K",
            ]);
        }
        self.pick(&[
            "SADD K M*",
            "sadd K M",
            "SADD K M* M*",
            "SREM K M*",
            "SREM K M",
            "SISMEMBER K M",
            "SMISMEMBER K M*",
            "SCARD K",
            "SMEMBERS K",
            "EXISTS K",
            "TYPE K",
        ])
    }

    fn hash(&mut self) -> &'static str {
        if self.rng.u8(..40) == 0 {
            return self.pick(&[
                "DEL K",
                "HSET K M",
                "HSET K P* M",
                "HMSET K M",
                "HGET K",
                "GET K",
                "HKEYS K K",
                "HINCRBY K M",
                "HLEN",
                "HDEL K",
                "HSCAN K 0 COUNT 100000 MATCH none",
            ]);
        }
        self.pick(&[
            "HSET K P*",
            "hset K P*",
            "HMSET K P*",
            "HSETNX K M V",
            "HGET K M",
            "HMGET K M*",
            "HDEL K M*",
            "HEXISTS K M",
            "HSTRLEN K M",
            "HINCRBY K M 5",
            "HINCRBY K M x",
            "HINCRBYFLOAT K M 0.1",
            "HLEN K",
            "HGETALL K",
            "HKEYS K",
            "HVALS K",
            "EXISTS K",
            "TYPE K",
        ])
    }

    fn sorted_set(&mut self) -> &'static str {
        if self.rng.u8(..40) == 0 {
            return self.pick(&[
                "DEL K",
                "ZADD K 1",
                "ZADD K NX XX S M",
                "ZADD K GT LT S M",
                "ZADD K NX GT S M",
                "ZADD K INCR S M S M",
                "ZADD K S* x M",
                "ZADD K S* 1e400 M",
                "ZADD K S* nan M",
                "ZRANGE K 0 1 LIMIT 0 1",
                "ZRANGE K 0",
                "ZRANGE K 0 1 BYLEX WITHSCORES",
                "GET K",
                "ZRANGE K 0 1 REV REV",
                "ZRANGEBYSCORE K 0 1 REV",
                "ZRANGEBYSCORE K 0 5 LIMIT -1 4",
                "ZRANGEBYSCORE K 0 1 LIMIT 0",
                "ZREVRANGE K 0 1 BYSCORE",
                "ZADD K NX",
                "ZSCORE K",
                "ZRANGEBYSCORE K 0 5 LIMIT x 4",
                "ZRANGEBYLEX K - + WITHSCORES",
                "ZPOPMIN K",
                "ZRANK K",
            ]);
        }
        if self.one_score && self.rng.u8(..3) == 0 {
            return self.pick(&[
                "ZRANGEBYLEX K L L",
                "ZREVRANGEBYLEX K L L",
                "ZRANGE K L L BYLEX",
                "ZLEXCOUNT K L L",
                "ZRANGE K L L BYLEX REV",
                "ZRANGEBYLEX K - + LIMIT 3 9",
                "ZREVRANGEBYLEX K + L LIMIT 0 4",
                "ZRANGE K L + LIMIT 2 5 BYLEX",
                "ZRANGE K + - BYLEX REV LIMIT 200 20",
                "ZADD K S* S* S*",
            ]);
        }
        if self.rng.u8(..3) == 0 && !self.one_score {
            return self.pick(&[
                "ZADD K CH S*",
                "ZADD K XX S*",
                "ZADD K NX CH S*",
                "ZADD K GT S*",
                "ZADD K lt ch S*",
                "ZADD K INCR S M",
                "ZADD K XX INCR S M",
                "ZADD K XX GT CH S*",
                "ZINCRBY K S M",
                "ZADD K INCR NX S M",
                "ZADD K x M",
                "ZINCRBY K x M",
                "ZINCRBY K S M",
            ]);
        }
        self.pick(&[
            "ZADD K S*",
            "ZADD K S*",
            "ZADD K S M",
            "ZREM K M*",
            "ZREM K M",
            "ZSCORE K M",
            "ZMSCORE K M*",
            "ZCARD K",
            "ZCOUNT K B B",
            "ZRANK K M",
            "ZREVRANK K M",
            "ZRANK K M",
            "ZREVRANK K M",
            "ZRANGE K I I",
            "ZRANGE K I I WITHSCORES",
            "ZRANGE K I I REV",
            "ZREVRANGE K I I",
            "ZRANGE K I I REV withscores",
            "ZREVRANGE K I I WITHSCORES",
            "ZRANGEBYSCORE K B B",
            "ZRANGEBYSCORE K B B WITHSCORES",
            "ZRANGEBYSCORE K B +inf LIMIT 2 4 WITHSCORES",
            "ZRANGEBYSCORE K -inf +inf LIMIT 0 0",
            "ZRANGEBYSCORE K B B LIMIT 3 -1",
            "ZREVRANGEBYSCORE K B B",
            "ZREVRANGEBYSCORE K +inf B WITHSCORES LIMIT 1 6",
            "ZRANGE K B B BYSCORE",
            "ZRANGE K B B BYSCORE WITHSCORES",
            "ZRANGE K B B REV BYSCORE",
            "ZRANGE K -inf +inf BYSCORE LIMIT 7 3",
            "ZRANGE K +inf B BYSCORE REV LIMIT 0 5 WITHSCORES",
            "ZRANGE K -inf +inf BYSCORE LIMIT 9223372036854775807 5",
            "EXISTS K",
            "TYPE K",
        ])
    }

    fn list(&mut self) -> &'static str {
        if self.rng.u8(..25) == 0 {
            return self.pick(&[
                "DEL K",
                "LPOP K",
                "RPOP K",
                "LTRIM K 5 40",
                "LTRIM K 1 30",
                "LSET K 0 V",
                "LREM K 1 V",
                "RPUSHX K V",
                "LPUSHX K V",
                "LLEN K K",
                "RPUSH K",
                "LINDEX K",
                "GET K",
                "LPOS K V",
            ]);
        }
        self.pick(&[
            "RPUSH K V*",
            "LPUSH K V*",
            "rpush K V",
            "lpush K V",
            "LLEN K",
            "LRANGE K I I",
            "LRANGE K 0 -1",
            "LINDEX K I",
            "LINDEX K I",
            "EXISTS K",
            "TYPE K",
        ])
    }

    fn hyperloglog(&mut self) -> &'static str {
        if self.rng.u8(..60) == 0 {
            return self.pick(&[
                "DEL K",
                "PFMERGE K",
                "PFCOUNT",
                "SADD K M",
                "PFMERGE K other",
                "INCR K",
            ]);
        }
        self.pick(&["PFADD K E*", "pfadd K E*", "PFADD K", "PFCOUNT K", "EXISTS K", "TYPE K"])
    }
}
