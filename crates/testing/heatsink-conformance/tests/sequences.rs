//! Fixed sequences of commands, each to a plain server and through Heatsink to another.

use heatsink_conformance::Rig;
use heatsink_conformance::differential::difference;
use heatsink_testkit::RedisServer;

/// Compares all of them and names every one that differs.
fn agree(sequences: &[&[&str]]) {
    let (plain, rig) = (RedisServer::start(), Rig::new(2));
    let found: Vec<String> = sequences
        .iter()
        .filter_map(|sequence| difference(plain.addr(), rig.addr(), sequence))
        .collect();
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}

/// The same of two plain servers: what differs there is not Heatsink's fault.
fn agree_without(sequences: &[&[&str]]) {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    for sequence in sequences {
        assert_eq!(difference(one.addr(), other.addr(), sequence), None);
    }
}

/// A client's name belongs to the client, wherever its commands run.
const NAMES: &[&[&str]] = &[
    &["CLIENT GETNAME", "CLIENT SETNAME abc", "CLIENT GETNAME"],
    &["HELLO 3 SETNAME abc", "CLIENT GETNAME"],
    &["WATCH a", "CLIENT GETNAME"],
    &["MULTI", "CLIENT GETNAME", "EXEC"],
    &["CLIENT SETNAME abc", "MULTI", "CLIENT GETNAME", "EXEC"],
    &["CLIENT SETNAME abc", "MULTI", "CLIENT SETNAME def", "EXEC", "CLIENT GETNAME"],
    &["CLIENT SETNAME abc", "MULTI", "CLIENT SETNAME def", "DISCARD", "CLIENT GETNAME"],
    &["CLIENT SETNAME abc", "MULTI", "CLIENT SETNAME def", "NOPE", "EXEC", "CLIENT GETNAME"],
    &["CLIENT SETNAME abc", "MULTI", "CLIENT SETNAME", "EXEC", "CLIENT GETNAME"],
    &["MULTI", "CLIENT SETNAME def", "EXEC", "MULTI", "CLIENT GETNAME", "EXEC"],
    &["CLIENT NO-EVICT ON", "CLIENT GETNAME"],
    &["CLIENT SETNAME abc", "CLIENT NO-EVICT ON", "CLIENT GETNAME"],
    &["CLIENT NO-EVICT ON", "HELLO 3 SETNAME abc", "CLIENT GETNAME"],
    &["CLIENT SETNAME abc", "BLPOP none 0.01", "CLIENT GETNAME", "RESET", "CLIENT GETNAME"],
    &["SUBSCRIBE a", "RESET", "CLIENT GETNAME"],
];

/// The server hangs up, whatever state the connection is in.
const ENDINGS: &[&[&str]] = &[
    &["QUIT"],
    &["QUIT x"],
    &["QUIT\r\n"],
    &["WATCH a", "QUIT"],
    &["MULTI", "QUIT\r\n"],
    &["MULTI", "*x\r\n"],
    &["SUBSCRIBE a", "QUIT"],
    &["SUBSCRIBE a", "QUIT\r\n"],
    &["MONITOR", "QUIT"],
    &["BLPOP none 0.01", "*x\r\n"],
    &["CLIENT NO-EVICT ON", "QUIT"],
    &["CLIENT NO-EVICT ON", "QUIT\r\n"],
    &["CLIENT NO-EVICT ON", "*x\r\n"],
    &["CLIENT REPLY OFF", "CLIENT REPLY ON", "QUIT\r\n"],
    &["HELLO 3", "CLIENT TRACKING ON", "QUIT\r\n"],
    &["GET a", "SET \"unbalanced\r\n"],
];

/// What a connection is in the middle of.
const STATES: &[&[&str]] = &[
    &["WATCH a", "CLIENT GETNAME", "SET x 1"],
    &["WATCH a", "CLIENT KILL ID 999999999", "SET x 1"],
    &["MULTI", "EXEC", "WATCH a", "CLIENT GETNAME", "SET x 1"],
    &["MULTI", "HELLO 3", "EXEC", "GET none"],
    &["MULTI", "HELLO 3", "DISCARD", "CLIENT GETNAME"],
    &["MULTI", "HELLO 3", "HGETALL none", "EXEC", "CLIENT GETNAME", "HGETALL none"],
    &["MULTI", "SELECT 3", "SET k v", "EXEC", "GET k", "SELECT 0", "GET k"],
    &["SELECT 3", "WATCH a", "SELECT 2", "MULTI", "SET k2 1", "EXEC", "RESET", "GET k2"],
    &["CLIENT REPLY SKIP", "MULTI", "SET a 1", "EXEC", "PING"],
    &["CLIENT REPLY OFF", "SUBSCRIBE q", "CLIENT REPLY ON"],
    &["CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING"],
    &["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "SET a 1", "GET a"],
    &["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "SET a 1", "GET a", "CLIENT REPLY ON", "GET a"],
    &["CLIENT REPLY OFF", "GET a", "RESET", "PING"],
    &["CLIENT REPLY SKIP", "BLPOP none 0.01", "PING"],
    &["CLIENT REPLY NONE", "CLIENT REPLY", "PING"],
    &["WATCH a", "CLIENT REPLY SKIP", "MULTI", "SET a 1", "EXEC", "PING"],
    &[
        "CLIENT NO-EVICT ON",
        "AUTH default any",
        "SELECT 2",
        "SET k v",
        "GET k",
        "SELECT 0",
        "GET k",
    ],
    &["CLIENT NO-EVICT ON", "HELLO 3", "HGETALL none", "CLIENT GETNAME", "HELLO 2", "GET none"],
    &["WATCH a", "AUTH nobody x", "SELECT 99", "MULTI", "SET x 1", "EXEC", "GET x"],
    &["MONITOR x", "READONLY", "PING"],
    &["MULTI", "MULTI", "WATCH a", "EXEC"],
    &["MULTI", "NOPE", "EXEC", "EXEC"],
    &["MULTI", "BLPOP none 0", "EXEC", "PING"],
    &["SUBSCRIBE a", "GET x", "PING", "PING hey", "SUBSCRIBE b", "UNSUBSCRIBE a b", "GET x"],
    &["PSUBSCRIBE a", "HELLO 3", "RESET", "GET x"],
    &["HELLO 3", "SUBSCRIBE a", "GET x", "HELLO 2", "GET x", "UNSUBSCRIBE", "GET x"],
    &["MONITOR", "RESET", "GET x"],
    &["CLIENT TRACKING ON", "GET x", "CLIENT TRACKING OFF", "GET x"],
    &["SELECT 1", "AUTH nobody x", "SELECT 99", "SET only1 x", "GET only1"],
    &["SELECT 1", "BLPOP none 0.01", "SET only1 y", "SELECT 0", "GET only1"],
];

/// What the server refuses.
const ERRORS: &[&[&str]] = &[
    &["AUTH", "AUTH a b c", "AUTH wrong", "AUTH nobody x", "AUTH default any", "ACL WHOAMI"],
    &["HELLO 3 AUTH a", "HELLO 3 FOO", "HELLO 99", "HELLO x", "HELLO 2 AUTH default any"],
    &["SELECT", "SELECT 1 2", "SELECT abc", "SELECT 99", "SELECT -1"],
    &["RESET x", "PING a b", "ECHO"],
    &["MULTI x", "MULTI", "EXEC x", "EXEC"],
    &["EXEC", "MULTI", "DISCARD x", "DISCARD"],
    &["DISCARD", "EXEC", "UNWATCH x", "WATCH"],
    &["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "SUBSCRIBE", "PSUBSCRIBE"],
    &["BLPOP a -1", "BLPOP a x", "BLPOP a", "XREAD BLOCK x STREAMS s 0", "XREAD BLOCK"],
    &["CLIENT KILL 1.2.3.4:5", "CLIENT KILL ID abc", "CLIENT KILL TYPE foo", "CLIENT KILL a b"],
    &["CLIENT LIST TYPE foo", "CLIENT LIST ID x", "CLIENT PAUSE x", "CLIENT UNBLOCK x"],
    &["CLIENT SETNAME", "CLIENT ID x", "CLIENT GETNAME x", "CLIENT INFO x", "CLIENT NOPE"],
    &["CLIENT TRACKING ON REDIRECT 99999999", "CLIENT CACHING YES", "CLIENT TRACKING"],
    &["READONLY", "ASKING", "READWRITE", "CLUSTER SLOTS", "CLUSTER KEYSLOT a"],
    &["SCRIPT KILL", "FUNCTION KILL", "DEBUG JMAP", "SHUTDOWN NOWAY", "WAITAOF 0 0 1"],
];

/// Where a request ends.
const FRAMING: &[&[&str]] = &[
    &["\r\n\r\nPING\r\n", "*0\r\nPING\r\n", "*-1\r\nPING\n"],
    &["*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "*1\r\n$0\r\n\r\n"],
    &["*2\r\n$4\r\nECHO\r\n$-1\r\n"],
    &["*1\r\n:1\r\n"],
    &["*2147483648\r\n"],
    &["*1\r\n$536870913\r\n"],
];

#[test]
fn names() {
    agree(NAMES);
}

#[test]
fn names_of_plain_servers() {
    agree_without(NAMES);
}

#[test]
fn endings() {
    agree(ENDINGS);
}

#[test]
fn endings_of_plain_servers() {
    agree_without(ENDINGS);
}

#[test]
fn states() {
    agree(STATES);
}

#[test]
fn states_of_plain_servers() {
    agree_without(STATES);
}

#[test]
fn errors() {
    agree(ERRORS);
}

#[test]
fn errors_of_plain_servers() {
    agree_without(ERRORS);
}

/// From version 9 on Valkey takes what follows a quote as part of the argument.
const QUOTES: &[&[&str]] = &[&["PING \"a\"b\r\n"]];

#[test]
fn quotes() {
    if !RedisServer::start().is_valkey() {
        agree(QUOTES);
    }
}

#[test]
fn framing() {
    agree(FRAMING);
}

#[test]
fn framing_of_plain_servers() {
    agree_without(FRAMING);
}
