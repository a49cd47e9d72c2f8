//! Each key of each request is counted once.

use heatsink_detect::config::Settings;
use heatsink_proxy::config::{Live, Rule};
use heatsink_testkit::{RawClient, Reply, encode};

use crate::rig::Counted;

fn expect(counted: &mut Counted, wanted: &[(&str, u64, u64)]) {
    let total = wanted.iter().map(|(_, reads, writes)| reads + writes).sum();
    let counts = counted.counts(total);
    for (key, reads, writes) in wanted {
        assert_eq!(counts.get(*key), Some(&(*reads, *writes)), "{key} in {counts:?}");
    }
    assert_eq!(counts.len(), wanted.len(), "{counts:?}");
}

fn single_and_several(mut counted: Counted) {
    let mut client = counted.client();
    client.command(&["SET", "a", "1"]);
    for _ in 0..5 {
        client.command(&["GET", "a"]);
    }
    client.command(&["MGET", "a", "b", "c", "b"]);
    client.command(&["MSET", "b", "1", "c", "2"]);
    client.command(&["DEL", "x", "y"]);
    client.command(&["EVAL", "return redis.call('get', KEYS[1])", "1", "a"]);
    client.command(&["HSET", "h", "f", "v"]);
    client.command(&["PING"]);
    client.command(&["PUBLISH", "channel", "m"]);
    client.command(&["OBJECT", "ENCODING", "a"]);
    expect(
        &mut counted,
        &[("a", 7, 2), ("b", 1, 1), ("c", 1, 1), ("x", 0, 1), ("y", 0, 1), ("h", 0, 1)],
    );
}

#[test]
fn single_and_several_keys_before_a_server() {
    single_and_several(Counted::before_server(|_| ()));
}

#[test]
fn single_and_several_keys_before_a_cluster() {
    single_and_several(Counted::before_cluster());
}

fn transactions(mut counted: Counted) {
    let mut client = counted.client();
    client.command(&["MULTI"]);
    client.command(&["INCR", "t"]);
    client.command(&["GET", "t"]);
    client.command(&["DISCARD"]);
    client.command(&["MULTI"]);
    client.command(&["INCR", "t"]);
    client.command(&["GET", "t"]);
    // Nothing of it is counted before it is executed.
    expect(&mut counted, &[]);
    client.command(&["EXEC"]);
    expect(&mut counted, &[("t", 1, 1)]);
    client.command(&["GET", "t"]);
    expect(&mut counted, &[("t", 2, 1)]);
}

#[test]
fn a_transaction_counts_when_it_is_executed() {
    transactions(Counted::before_server(|_| ()));
}

#[test]
fn a_transaction_on_a_cluster_counts_when_it_is_executed() {
    transactions(Counted::before_cluster());
}

#[test]
fn a_pipelined_transaction_counts_if_the_server_executed_it() {
    let mut counted = Counted::before_server(|_| ());
    let mut client = counted.client();
    let mut all = |words: &[&[&str]]| {
        client.send_raw(&words.iter().map(|words| encode(words)).collect::<Vec<_>>().concat());
        words.iter().map(|_| client.read_reply()).collect::<Vec<_>>()
    };
    all(&[&["MULTI"], &["INCR", "dropped"], &["DISCARD"]]);
    all(&[&["MULTI"], &["INCR", "done"], &["GET", "done"], &["EXEC"]]);
    expect(&mut counted, &[("done", 1, 1)]);
    // One behind the other, and an `EXEC` that belongs to none.
    let replies = all(&[
        &["MULTI"],
        &["INCR", "dropped"],
        &["DISCARD"],
        &["EXEC"],
        &["MULTI"],
        &["INCR", "done"],
        &["EXEC"],
        &["INCR", "alone"],
        &["MULTI"],
        &["INCR", "refused"],
        &["NOSUCH"],
        &["EXEC"],
        &["GET", "alone"],
    ]);
    assert!(replies[3].is_error() && replies[11].is_error(), "{replies:?}");
    assert!(!replies[6].is_error(), "{replies:?}");
    expect(&mut counted, &[("done", 1, 2), ("alone", 1, 1)]);
    // A watched key was touched: null, and nothing was executed.
    all(&[&["WATCH", "done"], &["SET", "done", "5"]]);
    let replies = all(&[&["MULTI"], &["INCR", "aborted"], &["EXEC"]]);
    assert_eq!(replies[2], Reply::Null, "{replies:?}");
    expect(&mut counted, &[("done", 1, 3), ("alone", 1, 1)]);
}

#[test]
fn pipelines_of_several_workers_add_up() {
    let mut counted = Counted::before_server(|config| config.workers = 2);
    let mut clients: Vec<_> = (0..4).map(|_| counted.client()).collect();
    let pipeline = [encode(&["GET", "k"]), encode(&["INCR", "k"])].concat().repeat(500);
    for client in &mut clients {
        client.send_raw(&pipeline);
    }
    for client in &mut clients {
        for _ in 0..1000 {
            client.read_frame();
        }
    }
    expect(&mut counted, &[("k", 2000, 2000)]);
}

#[test]
fn a_request_that_waits_counts_once() {
    let mut counted = Counted::before_server(|_| ());
    let mut client = counted.client();
    // Behind a change of database everything waits, and is parsed again.
    let words = [encode(&["GET", "w"]), encode(&["SELECT", "1"]), encode(&["GET", "w"])].concat();
    client.send_raw(&words.repeat(20));
    for _ in 0..60 {
        client.read_frame();
    }
    expect(&mut counted, &[("w", 40, 0)]);
}

#[test]
fn blocking_inline_and_large_requests_count() {
    let mut counted = Counted::before_server(|_| ());
    let mut client = counted.client();
    client.send_raw(b"SET inline 1\r\n");
    assert_eq!(client.read_reply(), Reply::ok());
    client.command(&["RPUSH", "list", "x"]);
    client.command(&["BLPOP", "list", "1"]);
    assert_eq!(client.command(&["SET", "large", &"x".repeat(1 << 20)]), Reply::ok());
    expect(&mut counted, &[("inline", 0, 1), ("list", 0, 2), ("large", 0, 1)]);
}

#[test]
fn keys_that_are_asked_for_are_told_whatever_their_count() {
    let mut counted = Counted::with(&Settings::default(), |config| config.workers = 2);
    let mut clients: Vec<_> = (0..4).map(|_| counted.client()).collect();
    for client in &mut clients {
        for _ in 0..3 {
            client.command(&["GET", "watched"]);
        }
    }
    counted.until_asked(&["watched", "nobody"], |report| {
        let [watched] = report.keys.as_slice() else { return false };
        watched.key == b"watched"
            && watched.reads_per_second.round() as u64 == 12
            && watched.certain_per_second().abs() < 1e-6
    });
    assert_eq!(counted.report().keys, [], "nobody has given it a name");
}

#[test]
fn thresholds_that_are_reloaded_reach_the_workers() {
    let mut counted = Counted::with(&Settings::default(), |_| ());
    let mut client = counted.client();
    let value = "x".repeat(40_000);
    client.command(&["SET", "before", &value]);
    counted.until_asked(&["before"], |report| report.keys.len() == 1);
    assert_eq!(counted.report().keys, [], "40 kB are nothing");
    let detect = Settings { hot_bytes_per_second: 1_000_000, ..Settings::default() };
    counted.heatsink().proxy().reload(Live { detect: Some(detect), ..Live::default() });
    client.command(&["SET", "after", &value]);
    counted.until("after", |heat| heat.bytes_per_second >= 40_000.0);
}

#[test]
fn what_a_rule_switches_off_is_not_counted() {
    let rule = |pattern: &str, counted| Rule {
        pattern: pattern.as_bytes().into(),
        replica_reads: false,
        counted,
    };
    let rules = [rule("secret:public", true), rule("secret:*", false)];
    let mut counted = Counted::before_server(|config| config.live.policy = rules.into());
    let mut client = counted.client();
    client.command(&["MGET", "secret:a", "secret:public", "other"]);
    client.command(&["GET", "secret:a"]);
    expect(&mut counted, &[("secret:public", 1, 0), ("other", 1, 0)]);
    // And the other way round, while it runs.
    let live =
        Live { policy: [rule("secret:a", true)].into(), counts_others: false, ..Live::default() };
    counted.heatsink().proxy().reload(live);
    client.command(&["MGET", "secret:a", "secret:public", "other"]);
    expect(&mut counted, &[("secret:public", 1, 0), ("other", 1, 0), ("secret:a", 1, 0)]);
}

/// What Heatsink itself does to move values is nobody's heat.
#[test]
fn what_is_asked_from_within_is_not_counted() {
    for mut rig in [Counted::before_server(|_| ()), Counted::before_cluster()] {
        let within = rig.heatsink().proxy().handle().connect().expect("a connection within");
        let mut within = RawClient::over_stream(within);
        let large = "x".repeat(300 << 10);
        let commands = [
            &["SET", "own", "1"][..],
            &["GET", "own"],
            &["WATCH", "own"],
            &["GET", "own"],
            &["MULTI"],
            &["INCR", "own"],
            &["EXEC"],
            &["SET", "own", &large],
            &["GET", "own"],
            &["BLPOP", "none", "0.01"],
        ];
        for command in commands {
            let reply = within.command(command);
            assert!(!reply.is_error(), "{command:?}: {reply}");
        }
        assert_eq!(rig.client().command(&["GET", "theirs"]), Reply::Null);
        let counts = rig.counts(1);
        assert_eq!(counts.into_keys().collect::<Vec<_>>(), ["theirs"]);
    }
}
