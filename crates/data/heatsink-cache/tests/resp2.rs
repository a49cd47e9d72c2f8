//! Every command of the table, asked of a real server in both protocols: the converted reply
//! is the one that the server gives in RESP2, byte for byte.

use std::collections::BTreeSet;

use heatsink_cache::commands::cacheable;
use heatsink_testkit::{RawClient, RedisServer, Reply, encode};

/// Keys of every type; `none` does not exist.
const DATA: &[&str] = &[
    "SET string hello",
    "SET number 42",
    "SET empty-string ''",
    "SETBIT bits 9 1",
    "SETBIT zeros 20 0",
    "HSET hash f1 v1 f2 22 f3 ''",
    "HSET one-field f v",
    "SADD set a b c",
    "SADD integers 3 1 2",
    "RPUSH list a b c b a",
    "ZADD zset 1 a 2.5 b -3 c 1e300 d inf e -inf f 0.1 g 3.0000000000000004 h 17179869184 i",
    "ZADD lex 0 a 0 b 0 c",
    "XADD stream 1-1 f v",
    "XADD stream 1-2 f v g w",
    "XADD stream 2-1 f ''",
];

const KEYS: &[&str] = &[
    "none",
    "string",
    "number",
    "empty-string",
    "bits",
    "zeros",
    "hash",
    "one-field",
    "set",
    "integers",
    "list",
    "zset",
    "lex",
    "stream",
];

/// Every command, with `K` for the key; each is asked of every key, so of wrong types, too.
const COMMANDS: &[&str] = &[
    "GET K",
    "STRLEN K",
    "GETRANGE K 0 -1",
    "GETRANGE K 1 2",
    "GETRANGE K 9 2",
    "SUBSTR K 0 1",
    "EXISTS K",
    "MGET K",
    "TYPE K",
    "GETBIT K 9",
    "GETBIT K 100",
    "BITCOUNT K",
    "BITCOUNT K 0 0",
    "BITPOS K 1",
    "BITPOS K 0",
    "HGET K f1",
    "HGET K f3",
    "HGET K x",
    "HMGET K f1 x f2",
    "HMGET K x",
    "HGETALL K",
    "HLEN K",
    "HEXISTS K f1",
    "HEXISTS K x",
    "HKEYS K",
    "HVALS K",
    "HSTRLEN K f1",
    "SMEMBERS K",
    "SISMEMBER K a",
    "SISMEMBER K x",
    "SMISMEMBER K a x 1",
    "SCARD K",
    "LRANGE K 0 -1",
    "LRANGE K 1 2",
    "LRANGE K 9 10",
    "LLEN K",
    "LINDEX K 0",
    "LINDEX K 99",
    "LPOS K b",
    "LPOS K x",
    "LPOS K b COUNT 0",
    "LPOS K x COUNT 0",
    "LPOS K b RANK -1",
    "ZSCORE K a",
    "ZSCORE K b",
    "ZSCORE K c",
    "ZSCORE K d",
    "ZSCORE K e",
    "ZSCORE K f",
    "ZSCORE K g",
    "ZSCORE K h",
    "ZSCORE K i",
    "ZSCORE K x",
    "ZMSCORE K a x g e",
    "ZCARD K",
    "ZCOUNT K -inf +inf",
    "ZCOUNT K (1 3",
    "ZLEXCOUNT K - +",
    "ZLEXCOUNT K [a (c",
    "ZRANGE K 0 -1",
    "ZRANGE K 0 1 REV",
    "ZRANGE K 0 -1 WITHSCORES",
    "ZRANGE K 9 99 WITHSCORES",
    "ZRANGE K 1 3 BYSCORE LIMIT 0 1",
    "ZRANGE K 1 3 BYSCORE WITHSCORES",
    "ZRANGE K - + BYLEX",
    "ZREVRANGE K 0 -1",
    "ZREVRANGE K 0 2 withscores",
    "ZRANGEBYSCORE K -inf +inf",
    "ZRANGEBYSCORE K -inf +inf WITHSCORES LIMIT 1 2",
    "ZRANGEBYSCORE K 50 60 WITHSCORES",
    "ZREVRANGEBYSCORE K +inf -inf",
    "ZREVRANGEBYSCORE K +inf -inf WITHSCORES",
    "ZRANGEBYLEX K - +",
    "ZRANGEBYLEX K [b + LIMIT 0 1",
    "ZREVRANGEBYLEX K + -",
    "ZRANK K a",
    "ZRANK K x",
    "ZREVRANK K a",
    "ZREVRANK K x",
    "XLEN K",
    "XRANGE K - +",
    "XRANGE K - + COUNT 1",
    "XRANGE K - + COUNT 0",
    "XRANGE K 5 6",
    "XREVRANGE K + -",
    "XREVRANGE K + - COUNT 0",
];

fn words(command: &str, key: &str) -> Vec<String> {
    let word = |word: &str| match word {
        "K" => key.to_owned(),
        "''" => String::new(),
        other => other.to_owned(),
    };
    command.split(' ').map(word).collect()
}

fn frame(client: &mut RawClient, args: &[String]) -> Vec<u8> {
    client.send_raw(&encode(args));
    client.read_frame()
}

#[test]
fn converted_replies_are_those_of_the_server() {
    let server = RedisServer::start();
    let (mut resp2, mut resp3) = (server.client(), server.client());
    resp3.command(&["HELLO", "3"]);
    for command in DATA {
        let reply = resp2.command(&words(command, ""));
        assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
    }
    let mut kinds = BTreeSet::new();
    let mut compared = 0;
    for command in COMMANDS {
        let mut good = 0;
        for key in KEYS {
            let args = words(command, key);
            let cacheable = cacheable(&args).unwrap_or_else(|| panic!("{command}: not known"));
            let (wanted, given) = (frame(&mut resp2, &args), frame(&mut resp3, &args));
            let converted = cacheable.to_resp2(&given);
            assert_eq!(
                converted.as_deref().map(<[u8]>::escape_ascii).map(|text| text.to_string()),
                Some(wanted.escape_ascii().to_string()),
                "{command} of {key}; in RESP3: {}",
                given.escape_ascii()
            );
            good += usize::from(given[0] != b'-');
            kinds.insert(given[0]);
            compared += 1;
        }
        assert!(good >= 2, "{command} gave nothing but errors");
    }
    assert_eq!(compared, COMMANDS.len() * KEYS.len());
    // All types of RESP3 that the converter knows were seen.
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), b"$%*+,-:_~");
}

#[test]
fn every_command_of_the_table_was_asked() {
    // Every command that the server calls read-only and that the table knows.
    let server = RedisServer::start();
    let Reply::Array(names) =
        server.client().command(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", "read"])
    else {
        panic!("a list of names");
    };
    let asked: BTreeSet<&str> = COMMANDS.iter().map(|c| c.split(' ').next().unwrap()).collect();
    let mut known = 0;
    for name in names {
        let Reply::Bulk(name) = name else { panic!("a name: {name:?}") };
        let name = String::from_utf8(name).unwrap().to_uppercase();
        if cacheable(&[name.as_str(), "key"]).is_some() {
            assert!(asked.contains(name.as_str()), "{name} is cached but was not asked");
            known += 1;
        }
    }
    assert_eq!(known, asked.len(), "every command asked is one that the server calls a read");
}
