//! What is served from the cache, and when it is not.

use std::time::Duration;

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RedisServer, Reply, encode, eventually};

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A Heatsink for which these keys are hot.
pub(crate) fn rig(keys: &[&str], workers: usize) -> Rig {
    let rig = Rig::new(workers);
    make_hot(&rig, keys);
    rig
}

pub(crate) fn make_hot(rig: &Rig, keys: &[&str]) {
    rig.heatsink().heat(keys, Treatment::COHERENT);
}

fn gets(rig: &Rig) -> u64 {
    rig.server().commandstats().get("get").map_or(0, |stats| stats.calls)
}

/// Reads until a read is answered without the server.
pub(crate) fn warm(rig: &Rig, key: &str) {
    let mut client = rig.client();
    eventually(SOON, || {
        let before = gets(rig);
        client.command(&["GET", key]);
        gets(rig) == before
    });
}

#[test]
fn reads_are_answered_here_and_writes_are_seen() {
    let rig = rig(&["k"], 1);
    let mut client = rig.client();
    assert_eq!(client.command(&["SET", "k", "1"]), Reply::ok());
    warm(&rig, "k");
    let before = gets(&rig);
    for _ in 0..1000 {
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("1"));
    }
    assert!(gets(&rig) - before <= 2, "{} reads reached the server", gets(&rig) - before);
    // One's own write is seen at once.
    for value in 2..200 {
        assert_eq!(client.command(&["SET", "k", &value.to_string()]), Reply::ok());
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk(value.to_string()));
    }
    // In a pipeline as well.
    let pair = |value: usize| [encode(&["SET", "k", &value.to_string()]), encode(&["GET", "k"])];
    let pipeline: Vec<u8> = (0..200).flat_map(pair).flatten().collect();
    client.send_raw(&pipeline);
    for value in 0..200 {
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(client.read_reply(), Reply::bulk(value.to_string()));
    }
    // Somebody else's soon.
    warm(&rig, "k");
    rig.server().client().command(&["SET", "k", "new"]);
    eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("new"));
}

#[test]
fn whatever_changes_a_key_is_seen_by_whoever_did_it() {
    let rig = rig(&["k", "h", "s"], 1);
    let mut client = rig.client();
    for round in 0..20 {
        let value = round.to_string();
        let changes: [&[&str]; 8] = [
            &["SET", "k", &value],
            &["APPEND", "k", "x"],
            &["DEL", "k"],
            &["MSET", "k", &value, "other", "1"],
            &["EVAL", "return redis.call('set', KEYS[1], ARGV[1])", "1", "k", &value],
            &["RENAME", "k", "moved"],
            &["COPY", "moved", "k"],
            &["FLUSHALL"],
        ];
        let mut direct = rig.server().client();
        for change in changes {
            client.command(&["GET", "k"]);
            client.command(change);
            assert_eq!(client.command(&["GET", "k"]), direct.command(&["GET", "k"]), "{change:?}");
        }
        client.command(&["GET", "k"]);
        client.command(&["MULTI"]);
        client.command(&["SET", "k", &value]);
        client.command(&["EXEC"]);
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk(&value));
        client.command(&["HSET", "h", "f", &value]);
        assert_eq!(client.command(&["HGETALL", "h"]), direct.command(&["HGETALL", "h"]));
        assert_eq!(client.command(&["HGETALL", "h"]), direct.command(&["HGETALL", "h"]));
    }
}

#[test]
fn both_protocols_get_what_the_server_would_have_said() {
    let rig = rig(&["s", "h", "z", "l", "n"], 1);
    let mut direct = rig.server().client();
    direct.command(&["SADD", "s", "a"]);
    direct.command(&["HSET", "h", "f", "v", "g", "w"]);
    direct.command(&["ZADD", "z", "1.5", "a", "2", "b"]);
    direct.command(&["RPUSH", "l", "a", "b"]);
    for protocol in ["2", "3"] {
        let (mut client, mut direct) = (rig.client(), rig.server().client());
        client.command(&["HELLO", protocol]);
        direct.command(&["HELLO", protocol]);
        let reads: [&[&str]; 9] = [
            &["SMEMBERS", "s"],
            &["HGETALL", "h"],
            &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
            &["ZSCORE", "z", "a"],
            &["LRANGE", "l", "0", "-1"],
            &["GET", "n"],
            &["HGET", "h", "none"],
            &["GET", "s"],
            &["TYPE", "z"],
        ];
        for read in reads {
            direct.send(read);
            let wanted = direct.read_frame();
            for _ in 0..3 {
                client.send(read);
                assert_eq!(client.read_frame(), wanted, "{read:?} with protocol {protocol}");
            }
        }
    }
}

#[test]
fn a_lost_server_ends_what_is_cached() {
    let mut rig = rig(&["k"], 1);
    let mut client = rig.client();
    client.command(&["SET", "k", "1"]);
    warm(&rig, "k");
    rig.server_mut().kill();
    eventually(SOON, || client.command(&["GET", "k"]).is_error());
}

#[test]
fn a_silent_server_ends_what_is_cached_within_a_second() {
    let mut rig = rig(&["k"], 1);
    let mut client = rig.client();
    client.command(&["SET", "k", "1"]);
    warm(&rig, "k");
    rig.server_mut().pause();
    std::thread::sleep(Duration::from_millis(1100));
    // Nothing is served; it waits for the server.
    client.send(&["GET", "k"]);
    assert_eq!(client.try_read_frame(Duration::from_millis(300)).ok().flatten(), None);
    rig.server_mut().resume();
    // What comes is the value, or word of the lost link.
    client.read_reply();
    eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("1"));
}

/// The question whether a link is there leaves at once, also if nothing else happens: how long
/// the answer takes bounds how old a read may be.
#[test]
fn the_delay_of_invalidations_is_that_of_the_link() {
    let rig = rig(&["k"], 1);
    warm(&rig, "k");
    let handle = rig.heatsink().proxy().handle();
    eventually(SOON, || handle.invalidation_delay().is_some_and(|delay| !delay.is_zero()));
    // Told once a second by a worker that has nothing else to do: one of five has to be short.
    let mut samples = Vec::new();
    while samples.len() < 5 && !samples.iter().any(|delay| *delay < Duration::from_millis(10)) {
        std::thread::sleep(Duration::from_millis(1100));
        samples.push(handle.invalidation_delay().unwrap_or(Duration::MAX));
    }
    assert!(samples.iter().any(|delay| *delay < Duration::from_millis(10)), "{samples:?}");
}

#[test]
fn keys_that_cool_down_are_passed_on_again() {
    let rig = rig(&["k"], 1);
    let mut client = rig.client();
    client.command(&["SET", "k", "1"]);
    warm(&rig, "k");
    let tracking = || rig.server().client().command(&["CLIENT", "LIST"]).text().contains("flags=t");
    assert!(tracking());
    make_hot(&rig, &[]);
    eventually(SOON, || !tracking());
    eventually(SOON, || {
        let before = gets(&rig);
        client.command(&["GET", "k"]);
        gets(&rig) > before
    });
    make_hot(&rig, &["k"]);
    warm(&rig, "k");
}

/// A read that waits for a server which does not answer waits as long as any other request, or, where
/// that is allowed, gets what was read before.
#[test]
fn a_read_that_waits_too_long_is_answered_or_gets_the_old_value() {
    let wait = Duration::from_millis(300);
    for treatment in [Treatment::EXACT, Treatment::COHERENT, Treatment::RELAXED] {
        let mut rig = Rig::with(RedisServer::builder(), |config| {
            config.workers = 1;
            config.live.coalesce.max_wait = wait;
        });
        rig.heatsink().heat(&["k"], treatment);
        let (mut client, mut other) = (rig.client(), rig.client());
        assert_eq!(client.command(&["SET", "k", "old"]), Reply::ok());
        assert_eq!(rig.client().command(&["GET", "k"]), Reply::bulk("old"));
        // What is cached goes by a write, word of which is there before the answer to what is asked later.
        assert_eq!(rig.server().client().command(&["SET", "k", "old"]), Reply::ok());
        assert_eq!(rig.client().command(&["GET", "cold"]), Reply::Null);
        rig.server_mut().pause();
        other.send(&["APPEND", "k", "x"]);
        let mut reader = rig.client();
        reader.send(&["GET", "k"]);
        let told = reader.try_read_frame(wait * 4).expect("a connection");
        let old = treatment.stale_if_late.then(|| b"$3\r\nold\r\n".to_vec());
        assert_eq!(told, old, "{treatment:?}");
        rig.server_mut().resume();
        assert_eq!(other.read_reply(), Reply::Integer(4));
        if told.is_none() {
            let reply = reader.read_reply();
            assert!([Reply::bulk("old"), Reply::bulk("oldx")].contains(&reply), "{reply}");
        }
        eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("oldx"));
    }
}

/// ```text
/// 1. B reads v1, which is kept             2. A writes or deletes the key, and is told so
/// 3. the server stands still               4. B reads: v1, which is allowed
/// 5. A reads: not v1, neither then nor when the server goes on
/// ```
#[test]
fn whoever_wrote_a_key_is_never_given_what_was_there_before() {
    let wait = Duration::from_millis(50);
    let mut rig = Rig::with(RedisServer::builder(), |config| {
        config.workers = 1;
        config.live.coalesce.max_wait = wait;
    });
    rig.heatsink().heat(&["k"], Treatment::RELAXED);
    let script = "return redis.call('set', KEYS[1], 'new')";
    let multi = [encode(&["MULTI"]), encode(&["SET", "k", "new"]), encode(&["EXEC"])].concat();
    let changes = [
        encode(&["SET", "k", "new"]),
        encode(&["DEL", "k"]),
        encode(&["SETEX", "k", "100", "new"]),
        encode(&["MSET", "k", "new", "other", "x"]),
        encode(&["EVAL", script, "1", "k"]),
        encode(&["FLUSHALL"]),
        multi,
    ];
    for change in changes {
        let (mut writer, mut reader) = (rig.client(), rig.client());
        assert_eq!(reader.command(&["SET", "k", "old"]), Reply::ok());
        for client in [&mut reader, &mut rig.client()] {
            assert_eq!(client.command(&["GET", "k"]), Reply::bulk("old"));
        }
        writer.send_raw(&change);
        let replies = if change.starts_with(&encode(&["MULTI"])) { 3 } else { 1 };
        for _ in 0..replies {
            assert!(!writer.read_reply().is_error());
        }
        let mut bystander = rig.client();
        rig.server_mut().pause();
        writer.send(&["GET", "k"]);
        bystander.send(&["GET", "k"]);
        let name = String::from_utf8_lossy(&change).replace("\r\n", " ");
        assert_eq!(bystander.read_reply(), Reply::bulk("old"), "{name}");
        let told = writer.try_read_frame(2 * wait).expect("a connection");
        assert_ne!(told.as_deref(), Some(&b"$3\r\nold\r\n"[..]), "{name}");
        rig.server_mut().resume();
        let told = told.unwrap_or_else(|| writer.read_frame());
        assert_ne!(told, b"$3\r\nold\r\n", "{name}");
        let wanted = rig.server().client().command(&["GET", "k"]);
        eventually(SOON, || {
            let now = writer.command(&["GET", "k"]);
            assert_ne!(now, Reply::bulk("old"), "{name}");
            now == wanted
        });
    }
}

/// Inline requests, transactions and scripts are decided about one by one; what stands behind
/// them in a pipeline sees what they did.
#[test]
fn before_a_cluster_a_pipeline_sees_its_own_writes() {
    let rig = ClusterRig::new(1);
    rig.heatsink.heat(&["k"], Treatment::COHERENT);
    let mut client = rig.client();
    let get = encode(&["GET", "k"]);
    for round in 0..300 {
        let value = round.to_string();
        let script = "return redis.call('set', KEYS[1], ARGV[1])";
        let writes = [
            format!("SET k {value}\r\n").into_bytes(),
            [encode(&["MULTI"]), encode(&["APPEND", "k", "x"]), encode(&["EXEC"])].concat(),
            encode(&["EVAL", script, "1", "k", &value]),
            encode(&["MSET", "k", &value, "other", "y"]),
            encode(&["APPEND", "k", "z"]),
        ];
        let pipeline: Vec<u8> =
            writes.iter().flat_map(|write| [&write[..], &get].concat()).collect();
        client.send_raw(&pipeline);
        let appended = format!("{value}x");
        for (replies, wanted) in
            [(1, &value), (3, &appended), (1, &value), (1, &value), (1, &format!("{value}z"))]
        {
            for _ in 0..replies {
                assert!(!client.read_reply().is_error());
            }
            assert_eq!(client.read_reply(), Reply::bulk(wanted));
        }
    }
}
