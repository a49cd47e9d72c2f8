//! Large requests and hot keys: whoever takes his time over one keeps nothing from others, and
//! nobody sees an older value than what he wrote.

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, Reply, encode, eventually};

use crate::served::{SOON, make_hot, rig, warm};

/// More than a request may have before it is passed on in pieces.
const LARGE: usize = 300 << 10;

fn set(key: &str, value: &str) -> Vec<u8> {
    encode(&["SET", key, value])
}

fn is_served(rig: &Rig, client: &mut RawClient, wanted: &Reply) {
    let before = rig.server().calls("get");
    for _ in 0..200 {
        assert_eq!(client.command(&["GET", "k"]), *wanted);
    }
    let asked = rig.server().calls("get") - before;
    assert!(asked <= 20, "{asked} of 200 reads reached the server");
}

#[test]
fn an_unfinished_request_keeps_no_key_from_being_cached() {
    let large = "x".repeat(2 * LARGE);
    let unfinished = [
        set("other", &large),
        set("k", &large),
        encode(&["MSET", "other", &large, "k", "1"]),
        encode(&["EVAL", "return 1", "1", "other", &large]),
    ];
    for bytes in unfinished {
        let rig = rig(&["k"], 1);
        let (mut client, mut idle) = (rig.client(), rig.client());
        client.command(&["SET", "k", "v"]);
        warm(&rig, "k");
        idle.send_raw(&bytes[..LARGE]);
        is_served(&rig, &mut client, &Reply::bulk("v"));
        // A key that becomes hot while it is there.
        make_hot(&rig, &["k", "late"]);
        warm(&rig, "late");
        // It is carried out when its end comes.
        idle.send_raw(&bytes[LARGE..]);
        assert!(!idle.read_reply().is_error());
        let wanted = rig.server().client().command(&["GET", "k"]);
        assert!(idle.command(&["GET", "k"]) == wanted);
        eventually(SOON, || client.command(&["GET", "k"]) == wanted);
    }
}

#[test]
fn a_large_write_is_seen_by_whoever_sent_it() {
    let rig = rig(&["k"], 1);
    let (mut client, mut reader) = (rig.client(), rig.client());
    client.command(&["SET", "k", "v"]);
    for round in 0..6 {
        warm(&rig, "k");
        let value = round.to_string().repeat(LARGE);
        let several = encode(&["MSET", "large", &value, "k", &round.to_string()]);
        let script = "return redis.call('set', KEYS[1], ARGV[1])";
        let script = encode(&["EVAL", script, "1", "k", &value]);
        let writes = [set("k", &value), several, encode(&["APPEND", "k", &value]), script];
        for write in writes {
            reader.command(&["GET", "k"]);
            client.send_raw(&[write, encode(&["GET", "k"])].concat());
            assert!(!client.read_reply().is_error());
            let got = client.read_reply();
            assert!(got == rig.server().client().command(&["GET", "k"]), "round {round}");
        }
        client.command(&["SET", "k", "v"]);
    }
}
