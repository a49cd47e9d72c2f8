//! Fields of hashes that end by themselves (Redis 7.4, Valkey 9): what is cached does not show them
//! any longer than the server does.

use std::time::Duration;

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, RedisServer, Reply, eventually};

use super::served::{SOON, make_hot};

const READS: [(&[&str], bool); 7] = [
    (&["HGETALL", "h"], true),
    (&["HKEYS", "h"], true),
    (&["HMGET", "h", "f", "g"], true),
    (&["HGET", "h", "f"], true),
    (&["HEXISTS", "h", "f"], true),
    (&["HSTRLEN", "h", "f"], true),
    // Does not say of which fields.
    (&["HVALS", "h"], false),
];

/// A server that removes nothing by itself, and so says nothing of what has ended; none if it does not
/// know of fields that end.
fn rig_with_fields() -> Option<Rig> {
    let server = RedisServer::builder().arg("enable-debug-command", "yes");
    let rig = Rig::with(server, |config| config.workers = 1);
    if !rig.server().knows("HPEXPIRE") {
        eprintln!("SKIPPED: the redis-server in PATH does not know HPEXPIRE (Redis 7.4, Valkey 9)");
        return None;
    }
    let off = rig.server().client().command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    assert_eq!(off, Reply::ok());
    make_hot(&rig, &["h"]);
    Some(rig)
}

/// Reads until a read is answered without the server.
fn warm(rig: &Rig, client: &mut RawClient, read: &[&str]) {
    eventually(SOON, || {
        let before = rig.server().calls(&read[0].to_lowercase());
        client.command(read);
        rig.server().calls(&read[0].to_lowercase()) == before
    });
}

#[test]
fn what_is_cached_of_a_hash_does_not_outlive_a_field() {
    for protocol in ["2", "3"] {
        let Some(rig) = rig_with_fields() else { return };
        let (mut client, mut direct) = (rig.client(), rig.server().client());
        client.command(&["HELLO", protocol]);
        direct.command(&["HELLO", protocol]);
        for (read, is_cached) in READS {
            direct.command(&["HSET", "h", "f", "v", "g", "w"]);
            let life = ["HPEXPIRE", "h", "800", "FIELDS", "1", "f"];
            assert_eq!(direct.command(&life), Reply::Array(vec![Reply::Integer(1)]));
            let whole = direct.command(read);
            eventually(SOON, || client.command(read) == whole);
            if is_cached {
                warm(&rig, &mut client, read);
            }
            // Until the server does not show it any more.
            eventually(SOON, || {
                client.command(read);
                direct.command(&["HEXISTS", "h", "f"]) == Reply::Integer(0)
            });
            assert_eq!(client.command(read), direct.command(read), "{read:?}, RESP{protocol}");
        }
    }
}

#[test]
fn a_hash_whose_fields_stay_is_cached_as_ever() {
    let Some(rig) = rig_with_fields() else { return };
    let (mut client, mut direct) = (rig.client(), rig.server().client());
    let fields: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    let mut fill = vec!["HSET", "h"];
    fill.extend(fields.iter().map(String::as_str));
    direct.command(&fill);
    for read in [&["HGETALL", "h"][..], &["HKEYS", "h"], &["HGET", "h", "0"], &["HLEN", "h"]] {
        warm(&rig, &mut client, read);
        let asked = rig.server().calls("hpttl");
        for _ in 0..100 {
            assert_eq!(client.command(read), direct.command(read));
        }
        let asked = rig.server().calls("hpttl") - asked;
        assert!(asked <= 3, "{read:?}: asked {asked} times when fields end");
    }
    // What is given an end later is seen to end.
    warm(&rig, &mut client, &["HGET", "h", "0"]);
    direct.command(&["HPEXPIRE", "h", "300", "FIELDS", "1", "0"]);
    eventually(Duration::from_secs(10), || direct.command(&["HEXISTS", "h", "0"]).integer() == 0);
    for read in [&["HGET", "h", "0"][..], &["HGETALL", "h"]] {
        assert_eq!(client.command(read), direct.command(read));
    }
}
