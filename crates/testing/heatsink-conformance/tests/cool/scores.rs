//! Increments of scores and of numbers with a point: combined where that cannot be noticed.
//!
//! A burst of one client is one batch: it arrives in one turn of the event loop.

use heatsink_conformance::{ClusterRig, Heatsink, Rig};
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, key_slot};

use crate::combining::{Counting, count_up, increments, killed_in_between};

const ZINCRBY: &str = "ZINCRBY";
const INCRBYFLOAT: &str = "INCRBYFLOAT";

/// Values before the increments; the last is of another type.
const STARTS: [&str; 13] = [
    "",
    "5",
    "-5",
    "0",
    "-0",
    "0.5",
    "1e-20",
    "999999999999999",
    "1e15",
    "1e16",
    "inf",
    "-inf",
    "wrong",
];
/// Whole numbers, which are combined, and one that takes a batch to its limit.
const WHOLE: [&str; 7] = ["1", "2", "3", "0", "7", "1000000000000000", "4"];
/// What goes alone or is refused, between others.
const MIXED: [&str; 14] = [
    "1",
    "1",
    "-3",
    "0.1",
    "2",
    "inf",
    "-inf",
    "1",
    "nan",
    "abc",
    "1e3",
    "1",
    "1000000000000001",
    "-1",
];

fn command<'a>(name: &'a str, key: &'a str, by: &'a str) -> Vec<&'a str> {
    if name == ZINCRBY { vec![name, key, by, "m"] } else { vec![name, key, by] }
}

/// The replies to a burst, as they are on the wire.
fn burst(client: &mut RawClient, name: &str, key: &str, numbers: &[&str]) -> Vec<String> {
    let requests: Vec<u8> = numbers.iter().flat_map(|by| encode(&command(name, key, by))).collect();
    client.send_raw(&requests);
    let frame = |_| String::from_utf8_lossy(&client.read_frame()).into_owned();
    numbers.iter().map(frame).collect()
}

fn prepare(client: &mut RawClient, name: &str, key: &str, start: &str) {
    client.command(&["DEL", key]);
    let reply = match (name, start) {
        (_, "") => return,
        (_, "wrong") => client.command(&["RPUSH", key, "x"]),
        (ZINCRBY, score) => client.command(&["ZADD", key, score, "m"]),
        (_, text) => client.command(&["SET", key, text]),
    };
    assert!(!reply.is_error(), "{reply}");
}

/// Each key has its own memory of what was refused.
fn keys() -> Vec<String> {
    (0..STARTS.len()).map(|number| format!("hot:{number}")).collect()
}

#[test]
fn every_reply_is_that_of_a_plain_server_to_the_byte() {
    for protocol in ["2", "3"] {
        for name in [ZINCRBY, INCRBYFLOAT] {
            let rig = Rig::new(1);
            let keys = keys();
            rig.heatsink().heat(&keys, Treatment::EXACT);
            let (mut client, mut plain) = (rig.client(), rig.server().client());
            for connection in [&mut client, &mut plain] {
                connection.command(&["HELLO", protocol]);
            }
            for numbers in [&WHOLE[..], &MIXED] {
                for (start, key) in STARTS.iter().zip(&keys) {
                    prepare(&mut plain, name, key, start);
                    prepare(&mut plain, name, "plain", start);
                    let told = burst(&mut client, name, key, numbers);
                    let wanted = burst(&mut plain, name, "plain", numbers);
                    assert_eq!(told, wanted, "{name} from {start:?}, RESP{protocol}");
                    let dumped = |key: &str, plain: &mut RawClient| match name {
                        ZINCRBY => plain.command(&["ZSCORE", key, "m"]),
                        _ => plain.command(&["GET", key]),
                    };
                    let (left, right) = (dumped(key, &mut plain), dumped("plain", &mut plain));
                    assert_eq!(left, right, "{name} from {start:?} leaves something else");
                }
            }
            assert!(rig.server().calls("eval") > 0, "{name}: nothing was combined");
        }
    }
}

#[test]
fn a_burst_is_one_script_and_a_lone_one_is_none() {
    for name in [ZINCRBY, INCRBYFLOAT] {
        let rig = Rig::new(1);
        rig.heatsink().heat(&["k"], Treatment::EXACT);
        let mut client = rig.client();
        client.command(&command(name, "k", "1"));
        assert_eq!(rig.server().calls("eval"), 0);
        let replies = burst(&mut client, name, "k", &["1"; 40]);
        assert_eq!(replies[39], "$2\r\n41\r\n");
        let evals = rig.server().calls("eval");
        assert!((1..=4).contains(&evals), "{evals} scripts for one burst");
        let writes = rig.server().calls(&name.to_lowercase());
        assert!(writes <= 1 + 8, "{writes} of 41 were carried out one by one");
    }
}

/// A value that is no whole number is found out once; then increments go the ordinary way.
#[test]
fn what_is_refused_is_not_tried_again_and_again() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["z"], Treatment::EXACT);
    let mut client = rig.client();
    rig.server().client().command(&["ZADD", "z", "0.5", "m"]);
    for round in 0..20 {
        let replies = burst(&mut client, ZINCRBY, "z", &["1"; 10]);
        let last = format!("{}.5", round * 10 + 10);
        assert_eq!(replies[9], format!("${}\r\n{last}\r\n", last.len()));
    }
    // A burst may be cut in two on its way here.
    assert!(rig.server().calls("eval") <= 2, "{}", rig.server().calls("eval"));
    assert_eq!(rig.server().client().command(&["ZSCORE", "z", "m"]), Reply::bulk("200.5"));
}

/// With few at once a script costs the server more than it saves.
#[test]
fn where_few_come_at_once_most_go_the_ordinary_way() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["z"], Treatment::EXACT);
    let mut client = rig.client();
    for round in 1..=400_u32 {
        let replies = burst(&mut client, ZINCRBY, "z", &["1"; 2]);
        let last = (round * 2).to_string();
        assert_eq!(replies[1], format!("${}\r\n{last}\r\n", last.len()));
    }
    let evals = rig.server().calls("eval");
    println!("{evals} scripts for 400 pairs");
    assert!((1..200).contains(&evals), "{evals}");
}

#[test]
fn who_may_run_no_scripts_is_served_all_the_same() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["z", "n"], Treatment::EXACT);
    let mut admin = rig.server().client();
    for (user, rights) in
        [("plain", "-eval"), ("narrow", "-zscore"), ("blind", "-get"), ("none", "-zincrby")]
    {
        let rule = ["ACL", "SETUSER", user, "on", ">pw", "~*", "+@all", rights];
        assert_eq!(admin.command(&rule), Reply::ok());
        let mut client = rig.client();
        assert_eq!(client.command(&["AUTH", user, "pw"]), Reply::ok());
        let mut plain = rig.server().client();
        assert_eq!(plain.command(&["AUTH", user, "pw"]), Reply::ok());
        for (name, key, direct) in [(ZINCRBY, "z", "pz"), (INCRBYFLOAT, "n", "pn")] {
            for _ in 0..2 {
                let told = burst(&mut client, name, key, &["2"; 10]);
                assert_eq!(told, burst(&mut plain, name, direct, &["2"; 10]), "{user}: {name}");
            }
        }
    }
}

/// What a client sends behind an increment of its own sees it, whatever it is.
#[test]
fn a_clients_own_order_is_kept() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["n", "z"], Treatment::COHERENT);
    let mut client = rig.client();
    for _ in 0..50 {
        let burst: [(&[&str], &str); 11] = [
            (&["SET", "n", "5"], "OK"),
            (&["INCRBYFLOAT", "n", "2"], "7"),
            (&["INCRBYFLOAT", "n", "1"], "8"),
            (&["INCR", "n"], "9"),
            (&["INCRBYFLOAT", "n", "0.5"], "9.5"),
            (&["GET", "n"], "9.5"),
            (&["ZADD", "z", "1", "m"], ""),
            (&["ZINCRBY", "z", "2", "m"], "3"),
            (&["ZINCRBY", "z", "-4", "m"], "-1"),
            (&["ZINCRBY", "z", "10", "m"], "9"),
            (&["ZSCORE", "z", "m"], "9"),
        ];
        client.send_raw(&burst.map(|(words, _)| encode(words)).concat());
        for (words, wanted) in burst {
            let reply = client.read_reply();
            let text =
                if let Reply::Integer(number) = reply { number.to_string() } else { reply.text() };
            assert!(wanted.is_empty() || text == wanted, "{words:?}: {text}");
        }
    }
}

#[test]
fn replies_of_many_are_all_numbers_and_respect_time() {
    for words in [&[ZINCRBY, "counter", "1", "m"][..], &[INCRBYFLOAT, "counter", "1"]] {
        let server = RedisServer::start();
        let proxies: Vec<Heatsink> = (0..2)
            .map(|_| Heatsink::before_url(&server.url(), |config| config.workers = 1))
            .collect();
        for heatsink in &proxies {
            heatsink.heat(&["counter"], Treatment::EXACT);
        }
        let total = increments() / 2;
        let counting = Counting { words, total };
        count_up(&proxies.iter().map(Heatsink::addr).collect::<Vec<_>>(), counting).check(total);
        // How many meet depends on the machine; where few do, they are not combined.
        let (upstream, evals) = (server.calls(&words[0].to_lowercase()), server.calls("eval"));
        println!("{total} by {}, {upstream} of them by the server", words[0]);
        assert!(evals > 0 && upstream < total, "{evals} scripts, {upstream} of {total}");
    }
}

#[test]
fn a_server_that_is_killed_loses_no_acknowledged_increment() {
    killed_in_between(&[INCRBYFLOAT, "counter", "1"]);
}

/// The script goes where the key is, also if that has changed.
#[test]
fn before_a_cluster_a_script_follows_its_key() {
    let rig = ClusterRig::new(1);
    rig.heatsink.heat(&["z"], Treatment::EXACT);
    let mut client = rig.client();
    let mut sum = 0;
    let mut add_up = |client: &mut RawClient| {
        for frame in burst(client, ZINCRBY, "z", &["1"; 20]) {
            sum += 1;
            let text = sum.to_string();
            assert_eq!(frame, format!("${}\r\n{text}\r\n", text.len()));
        }
    };
    let slot = key_slot("z");
    let from = rig.cluster.owner_of(slot);
    add_up(&mut client);
    assert!(rig.cluster.calls(from, "eval") >= 1);
    let to = rig.cluster.primaries().into_iter().find(|node| *node != from).expect("another");
    rig.cluster.begin_move_slot(slot, to);
    rig.cluster.migrate_keys(slot, to);
    add_up(&mut client);
    assert!(rig.cluster.calls(to, "eval") >= 1, "asked where the key is now");
    rig.cluster.finish_move_slot(slot, to);
    add_up(&mut client);
}
