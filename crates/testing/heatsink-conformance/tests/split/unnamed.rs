//! Commands that touch split keys which they do not name, or name among their options: they find
//! them whole.

use heatsink_conformance::{Heatsink, Rig};
use heatsink_testkit::{RawClient, RedisServer, Reply};

use crate::hand::Mover;

/// Split before each of [`CASES`].
const SPLIT: [&str; 4] = ["list", "w_1", "h_1", "scores"];

/// What is sent, and which of the keys are whole afterwards.
const CASES: [(&[&[&str]], &[&str]); 20] = [
    (&[&["SORT", "source", "ALPHA", "STORE", "list"]], &["list"]),
    (&[&["SORT", "source", "STORE", "none", "ALPHA", "STORE", "list"]], &["list"]),
    (&[&["SORT", "ids", "BY", "w_*", "GET", "#", "GET", "w_*"]], &["w_1"]),
    (&[&["SORT", "ids", "BY", "nosort", "GET", "h_*->f"]], &["h_1"]),
    (&[&["SORT_RO", "ids", "BY", "w_*", "DESC"]], &["w_1"]),
    (&[&["SORT", "ids", "BY", "x_*"]], &[]),
    (&[&["SORT", "ids", "DESC"]], &[]),
    (&[&["MULTI"], &["SORT", "ids", "BY", "w_*"], &["EXEC"]], &SPLIT),
    (&[&["EVAL", "return redis.call('incr', 'w_1')", "0"]], &SPLIT),
    (&[&["EVAL_RO", "return redis.call('hget', 'h_1', 'f')", "0"]], &SPLIT),
    (
        &[&["MULTI"], &["EVAL", "return redis.call('lrange', 'list', 0, -1)", "0"], &["EXEC"]],
        &SPLIT,
    ),
    (&[&["EVAL", "return redis.call('incr', KEYS[1])", "1", "n"]], &[]),
    (
        &[&["GEORADIUS", "places", "0", "0", "9", "km", "STORE", "x", "STORE", "scores"]],
        &["scores"],
    ),
    (&[&["GEORADIUSBYMEMBER", "places", "p", "9", "km", "STOREDIST", "scores"]], &["scores"]),
    (&[&["NOSUCH", "thing"]], &SPLIT),
    (&[&["SCAN", "0", "COUNT", "1000", "TYPE", "none"]], &SPLIT),
    (&[&["SCAN", "0", "MATCH", "type", "COUNT", "1000"]], &[]),
    (&[&["FUNCTION", "LIST"], &["FUNCTION", "FLUSH"]], &[]),
    (&[&["KEYS", "source"], &["PUBLISH", "w_1", "m"]], &[]),
    (
        &[&["MIGRATE", "127.0.0.1", "PORT", "", "0", "5000", "COPY", "KEYS", "n", "keys", "w_1"]],
        &["w_1"],
    ),
];

fn fill(client: &mut RawClient) {
    let commands: [&[&str]; 9] = [
        &["FLUSHALL"],
        &["RPUSH", "list", "a", "b"],
        &["SET", "w_1", "30"],
        &["SET", "w_2", "20"],
        &["HSET", "h_1", "f", "v"],
        &["ZADD", "scores", "1", "a", "2", "b"],
        &["RPUSH", "ids", "1", "2"],
        &["RPUSH", "source", "y", "x"],
        &["GEOADD", "places", "0", "0", "p"],
    ];
    for command in commands {
        assert!(!client.command(command).is_error(), "{command:?}");
    }
    client.command(&["MSET", "n", "1", "keys", "2"]);
}

#[test]
fn keys_that_a_command_touches_without_a_word_are_whole() {
    let (rig, plain) = (Rig::new(1), RedisServer::builder().start());
    let target = RedisServer::builder().start();
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let (mut client, mut wanted) = (rig.client(), plain.client());
    for (commands, whole) in CASES {
        fill(&mut client);
        fill(&mut wanted);
        for key in SPLIT {
            assert!(mover.split(key.as_bytes(), 3), "{key}");
        }
        for command in commands {
            let port = target.port().to_string();
            let word =
                |word: &&str| if *word == "PORT" { port.clone() } else { (*word).to_owned() };
            let command: Vec<String> = command.iter().map(word).collect();
            let got = client.command(&command);
            target.client().command(&["FLUSHALL"]);
            assert_eq!(got, wanted.command(&command), "{command:?}");
        }
        for key in SPLIT {
            let is_whole = whole.contains(&key);
            assert_eq!(mover.is_split(key.as_bytes()), !is_whole, "{key} after {commands:?}");
        }
        // What is written now is there when all is whole.
        for command in
            [&["RPUSH", "list", "c"][..], &["INCR", "w_1"], &["ZADD", "scores", "3", "c"]]
        {
            assert_eq!(client.command(command), wanted.command(command), "{commands:?}");
        }
        for key in SPLIT {
            mover.make_whole(key.as_bytes());
        }
        let reads: [&[&str]; 4] = [
            &["LRANGE", "list", "0", "-1"],
            &["GET", "w_1"],
            &["HGETALL", "h_1"],
            &["ZRANGE", "scores", "0", "-1"],
        ];
        for read in reads {
            assert_eq!(client.command(read), wanted.command(read), "{read:?} after {commands:?}");
        }
    }
}

/// A transaction is looked at when it is executed, too: keys may have been split since its commands
/// were queued.
#[test]
fn a_transaction_finds_keys_whole_that_were_split_behind_its_commands() {
    let rig = Rig::new(1);
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let (mut client, mut other) = (rig.client(), rig.client());
    let queued: [&[&str]; 2] =
        [&["EVAL", "return redis.call('incr', 'w_1')", "0"], &["SORT", "ids", "GET", "w_*"]];
    for command in queued {
        fill(&mut client);
        assert_eq!(other.command(&["MULTI"]), Reply::ok());
        assert_eq!(other.command(command), Reply::Simple("QUEUED".into()));
        assert!(mover.split(b"w_1", 3));
        let reply = other.command(&["EXEC"]);
        assert!(!mover.is_split(b"w_1") && !reply.items()[0].is_error(), "{command:?}: {reply}");
    }
}

/// The names that a scan of one type tells, on how many pages it may take.
fn scan(client: &mut RawClient, of_type: &str) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = client.command(&["SCAN", &cursor, "TYPE", of_type]);
        names.extend(page.items()[1].items().iter().map(Reply::text));
        cursor = page.items()[0].text();
        if cursor == "0" {
            names.retain(|name| !name.starts_with("heatsink:"));
            names.sort();
            names.dedup();
            return names;
        }
    }
}

#[test]
fn a_scan_tells_the_types_that_clients_know() {
    let (rig, plain) = (Rig::new(1), RedisServer::builder().start());
    let mover = Mover::new(&rig.heatsink().proxy().handle());
    let (mut client, mut wanted) = (rig.client(), plain.client());
    fill(&mut client);
    fill(&mut wanted);
    for of_type in ["string", "list", "hash", "zset", "set"] {
        for key in SPLIT {
            mover.split(key.as_bytes(), 3);
        }
        assert_eq!(scan(&mut client, of_type), scan(&mut wanted, of_type), "{of_type}");
    }
}

/// Before a cluster a script without keys is executed by one node, and finds the keys of that node.
#[test]
fn keys_are_whole_before_a_cluster_too() {
    let rig = Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(1).start();
    let mover = Mover::new(&rig.heatsink.proxy().handle());
    let mut client = rig.client();
    client.command(&["RPUSH", "{t}list", "a"]);
    client.command(&["RPUSH", "{t}source", "y", "x"]);
    assert!(mover.split(b"{t}list", 3));
    let stored = client.command(&["SORT", "{t}source", "ALPHA", "STORE", "{t}list"]);
    assert_eq!((stored, mover.is_split(b"{t}list")), (Reply::Integer(2), false));
    let reply = client.command(&["LRANGE", "{t}list", "0", "-1"]);
    assert_eq!(reply, Reply::bulks(["x", "y"]));
    let reply = client.command(&["SORT", "{t}source", "ALPHA", "STORE", "elsewhere"]);
    assert!(reply.error().starts_with("CROSSSLOT"), "{reply}");
    let script = "return redis.call('llen', '{t}list')";
    for command in [&["EVAL", script, "0"][..], &["NOSUCH"]] {
        assert!(mover.split(b"{t}list", 3));
        client.command(command);
        assert!(!mover.is_split(b"{t}list"), "{command:?}");
    }
}

/// What the server refuses to everybody who has not given its password moves nothing.
#[test]
fn who_has_not_logged_in_ends_no_split() {
    let rig =
        Rig::one_server().servers(|server| server.arg("requirepass", "secret")).workers(1).start();
    let heatsink = Heatsink::before_url(&format!("redis://{}", rig.server().addr()), |_| {});
    let mover = Mover::new(&heatsink.proxy().handle());
    mover.log_in("secret");
    let mut client = heatsink.client();
    assert_eq!(client.command(&["AUTH", "secret"]), Reply::ok());
    assert_eq!(client.command(&["SADD", "key", "a", "b"]), Reply::Integer(2));
    assert!(mover.split(b"key", 4));
    let mut stranger = heatsink.client();
    let commands: [&[&str]; 8] = [
        &["NOSUCH", "thing"],
        &["FLUSHALL"],
        &["SWAPDB", "0", "1"],
        &["EVAL", "return 1", "0"],
        &["SUNION", "key", "other"],
        &["LPOP", "key"],
        &["CLIENT", "TRACKING", "ON"],
        &["MULTI"],
    ];
    for command in commands {
        let refused = stranger.command(command);
        assert!(refused.is_error(), "{command:?}: {refused}");
        assert!(mover.is_split(b"key") && mover.forced() == 0, "{command:?}");
    }
    assert_eq!(stranger.command(&["AUTH", "secret"]), Reply::ok());
    assert_eq!(stranger.command(&["SCARD", "key"]), Reply::Integer(2));
}
