//! A key is split in the database of the upstream's URL. The same name in another database is
//! another key, and a command that reaches from there into this one finds the key whole.

use heatsink_conformance::{Heatsink, Rig};
use heatsink_testkit::{RawClient, RedisServer, Reply};

use crate::hand::Mover;

/// What makes a key of each type, and what is asked of the same name in another database.
const TYPES: [(&[&str], &[&[&str]]); 6] = [
    (
        &["SET", "key", "5"],
        &[&["INCR", "key"], &["INCRBY", "key", "4"], &["GET", "key"], &["SET", "key", "7"]],
    ),
    (&["SADD", "key", "a", "b"], &[&["SADD", "key", "c"], &["SCARD", "key"], &["SMEMBERS", "key"]]),
    (&["HSET", "key", "a", "1"], &[&["HSET", "key", "b", "2"], &["HGETALL", "key"]]),
    (
        &["ZADD", "key", "1", "a"],
        &[&["ZADD", "key", "2", "b"], &["ZINCRBY", "key", "1", "b"], &["ZRANGE", "key", "0", "-1"]],
    ),
    (&["RPUSH", "key", "a"], &[&["RPUSH", "key", "b"], &["LRANGE", "key", "0", "-1"]]),
    (&["PFADD", "key", "a", "b"], &[&["PFADD", "key", "c"], &["PFCOUNT", "key"]]),
];

/// The same in each of these ways.
const WAYS: [&[&[&str]]; 4] = [
    &[&["TYPE", "key"], &["EXISTS", "key"], &["TTL", "key"], &["DEL", "key"]],
    &[&["MULTI"], &["INCR", "key"], &["GET", "key"], &["EXEC"], &["DEL", "key"]],
    &[&["EVAL", "return redis.call('incrby', KEYS[1], 3)", "1", "key"], &["UNLINK", "key"]],
    &[&["WATCH", "key"], &["SET", "key", "1"], &["UNWATCH"], &["MSET", "key", "2", "k", "1"]],
];

fn select(client: &mut RawClient, database: &str) {
    assert_eq!(client.command(&["SELECT", database]), Reply::ok());
}

#[test]
fn a_key_of_the_same_name_in_another_database_is_another_key() {
    let (rig, plain) = (Rig::new(1), RedisServer::builder().start());
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let (mut client, mut other) = (rig.client(), rig.client());
    let (mut wanted, mut direct) = (plain.client(), rig.server().client());
    select(&mut other, "1");
    select(&mut direct, "1");
    for (make, commands) in TYPES {
        client.command(&["DEL", "key"]);
        assert!(!client.command(make).is_error());
        assert!(mover.split(b"key", 4));
        let forced = mover.forced();
        for command in commands.iter().chain(WAYS.iter().flat_map(|way| way.iter())) {
            assert_eq!(other.command(command), wanted.command(command), "{command:?} {make:?}");
        }
        assert_eq!(other.command(&["DBSIZE"]), Reply::Integer(2), "{make:?}");
        assert_eq!(direct.command(&["DBSIZE"]), Reply::Integer(2), "shards: {make:?}");
        for client in [&mut other, &mut wanted] {
            assert_eq!(client.command(&["FLUSHDB"]), Reply::ok());
        }
        assert!(mover.is_split(b"key") && mover.forced() == forced, "{make:?}");
        assert_eq!(client.command(&["EXISTS", "key"]), Reply::Integer(1), "{make:?}");
    }
}

/// What is sent from database 1 while `key`, of database 0, is split.
const REACHING: [&[&[&str]]; 12] = [
    &[&["SWAPDB", "0", "1"]],
    &[&["SWAPDB", "1", "0"]],
    &[&["FLUSHALL"]],
    &[&["COPY", "key", "key", "DB", "0", "REPLACE"]],
    &[&["COPY", "key", "key", "db", "0"]],
    &[&["MOVE", "key", "0"]],
    &[&["MULTI"], &["INCR", "n"], &["SWAPDB", "0", "1"], &["EXEC"]],
    &[&["MULTI"], &["COPY", "key", "key", "DB", "0", "REPLACE"], &["EXEC"]],
    &[&["WATCH", "n"], &["MULTI"], &["FLUSHALL"], &["EXEC"]],
    &[&["EVAL", "return redis.call('flushall')", "0"]],
    &[&["EVAL", "return redis.call('swapdb', 0, 1)", "0"]],
    &[&["MULTI"], &["EVAL", "return redis.call('flushall')", "0"], &["EXEC"]],
];

#[test]
fn a_command_that_reaches_into_the_database_finds_its_keys_whole() {
    for commands in REACHING {
        let (rig, plain) = (Rig::new(1), RedisServer::builder().start());
        let mover = Mover::new(&rig.heatsink().proxy().handle());
        let mut clients = [rig.client(), plain.client()];
        for client in &mut clients {
            client.command(&["SADD", "key", "a", "b"]);
            client.command(&["SET", "other", "1"]);
            select(client, "1");
            client.command(&["SADD", "key", "z"]);
        }
        assert!(mover.split(b"key", 4));
        for command in commands {
            let [got, wanted] = clients.each_mut().map(|client| client.command(command));
            assert_eq!(got, wanted, "{command:?}");
        }
        assert!(!mover.is_split(b"key") && mover.forced() == 1, "{commands:?}");
        for database in ["0", "1"] {
            for command in [&["SMEMBERS", "key"][..], &["GET", "other"], &["EXISTS", "key"]] {
                let [got, wanted] = clients.each_mut().map(|client| {
                    select(client, database);
                    let reply = client.command(command);
                    if let Reply::Array(mut items) = reply {
                        items.sort_by_key(|item| format!("{item:?}"));
                        return Reply::Array(items);
                    }
                    reply
                });
                assert_eq!(got, wanted, "{commands:?}, then {command:?} in {database}");
            }
        }
    }
}

/// A transaction is held up when it is executed, too: the key may have been split since it was
/// queued.
#[test]
fn a_transaction_that_reaches_into_the_database_waits_for_keys_that_were_split_meanwhile() {
    let rig = Rig::new(1);
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let (mut client, mut other) = (rig.client(), rig.client());
    client.command(&["SADD", "key", "a", "b"]);
    select(&mut other, "1");
    assert_eq!(other.command(&["MULTI"]), Reply::ok());
    assert_eq!(other.command(&["SWAPDB", "0", "1"]), Reply::Simple("QUEUED".into()));
    assert!(mover.split(b"key", 4));
    assert_eq!(other.command(&["EXEC"]), Reply::Array(vec![Reply::ok()]));
    assert!(!mover.is_split(b"key"));
    assert_eq!(other.command(&["SCARD", "key"]), Reply::Integer(2));
}

#[test]
fn the_database_whose_keys_are_split_is_that_of_the_url() {
    let server = RedisServer::builder().start();
    let url = format!("redis://127.0.0.1:{}/3", server.port());
    let heatsink = Heatsink::before_url(&url, |config| config.workers = 1);
    let mover = Mover::new(&heatsink.proxy().handle());
    let (mut client, mut other, mut direct) =
        (heatsink.client(), heatsink.client(), server.client());
    client.command(&["SET", "counter", "5"]);
    assert!(mover.split(b"counter", 4));
    assert_eq!(client.command(&["INCR", "counter"]), Reply::Integer(6));
    select(&mut other, "0");
    assert_eq!(other.command(&["INCR", "counter"]), Reply::Integer(1));
    assert_eq!(direct.command(&["DBSIZE"]), Reply::Integer(1), "no shards in another database");
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("6"));
    assert_eq!(mover.forced(), 0);
}
