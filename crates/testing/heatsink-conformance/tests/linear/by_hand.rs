//! The checker finds what it is there to find, and nothing else: histories by hand.

use fastrand::Rng;
use heatsink_testkit::{RedisServer, Reply, seed_from};

use crate::history::{History, Recorded, Verdict};
use crate::model::Command;
use crate::workload::{Mix, Workload};

/// An operation on the one key there is.
fn unknown(connection: usize, called: u64, command: Command) -> Recorded {
    Recorded { connection, keys: 0..1, command, called, answer: None }
}

fn answered(connection: usize, times: [u64; 2], command: Command, reply: Reply) -> Recorded {
    let answer = Some((times[1], reply));
    Recorded { answer, ..unknown(connection, times[0], command) }
}

fn set(connection: usize, times: [u64; 2], value: &str) -> Recorded {
    answered(connection, times, Command::Set(value.to_owned()), Reply::ok())
}

fn get(connection: usize, times: [u64; 2], value: &str) -> Recorded {
    answered(connection, times, Command::Get, Reply::bulk(value))
}

fn incr(connection: usize, times: [u64; 2], number: i64) -> Recorded {
    answered(connection, times, Command::Incr, Reply::Integer(number))
}

fn verdict(operations: impl Into<Vec<Recorded>>) -> Verdict {
    History { operations: operations.into() }.verdict()
}

#[test]
fn a_stale_read_is_found() {
    let history = |called| {
        let last = get(2, [called, called + 3], "old");
        [set(0, [0, 1], "old"), set(0, [2, 5], "new"), get(1, [3, 8], "new"), last]
    };
    assert_eq!(verdict(history(4)), Verdict::Linearizable);
    assert_eq!(verdict(history(6)), Verdict::Violated);
}

#[test]
fn a_read_that_goes_back_is_found() {
    // The write is out all the time.
    let write = set(0, [2, 20], "new");
    let history = |first, second| {
        [set(0, [0, 1], "old"), write.clone(), get(1, [3, 4], first), get(2, [5, 6], second)]
    };
    assert_eq!(verdict(history("old", "new")), Verdict::Linearizable);
    assert_eq!(verdict(history("new", "old")), Verdict::Violated);
}

#[test]
fn a_lost_update_is_found() {
    let more = answered(1, [1, 3], Command::IncrBy(2), Reply::Integer(3));
    let history = |last| [incr(0, [0, 2], 1), more.clone(), get(2, [4, 5], last)];
    assert_eq!(verdict(history("3")), Verdict::Linearizable);
    assert_eq!(verdict(history("2")), Verdict::Violated);
}

#[test]
fn a_number_given_twice_is_found() {
    let history = |number| [incr(0, [0, 4], 1), incr(1, [1, 3], number)];
    assert_eq!(verdict(history(2)), Verdict::Linearizable);
    assert_eq!(verdict(history(1)), Verdict::Violated);
}

#[test]
fn requests_of_one_connection_that_change_places_are_found() {
    // Both are out at once.
    let history = |connection| [incr(0, [0, 4], 2), incr(connection, [1, 5], 1)];
    assert_eq!(verdict(history(1)), Verdict::Linearizable);
    assert_eq!(verdict(history(0)), Verdict::Violated);
}

#[test]
fn what_is_unknown_may_happen_once_late_or_never() {
    let history = |replies: [i64; 3]| {
        let [first, second, third] = replies;
        let known = [incr(1, [1, 2], first), incr(1, [3, 4], second), incr(1, [5, 6], third)];
        [vec![unknown(0, 0, Command::Incr)], known.to_vec()].concat()
    };
    for possible in [[1, 2, 3], [2, 3, 4], [1, 3, 4], [1, 2, 4]] {
        assert_eq!(verdict(history(possible)), Verdict::Linearizable, "{possible:?}");
    }
    for impossible in [[3, 4, 5], [2, 3, 5], [2, 2, 3]] {
        assert_eq!(verdict(history(impossible)), Verdict::Violated, "{impossible:?}");
    }
    let early = [incr(1, [0, 1], 2), unknown(0, 2, Command::Incr)];
    assert_eq!(verdict(early), Verdict::Violated);
    let while_out = [incr(1, [0, 2], 2), unknown(0, 1, Command::Incr)];
    assert_eq!(verdict(while_out), Verdict::Linearizable);
}

#[test]
fn several_that_are_unknown_are_told_apart() {
    let new = |value: &str| Command::Set(value.to_owned());
    let begun = [unknown(0, 0, new("a")), unknown(1, 1, new("b")), unknown(2, 2, new("b"))];
    let history = |values: &[&str]| {
        let read = |(at, value): (usize, &&str)| {
            let called = 10 + 2 * at as u64;
            get(3, [called, called + 1], value)
        };
        [begun.to_vec(), values.iter().enumerate().map(read).collect()].concat()
    };
    for possible in [&["a", "b"][..], &["b", "a", "b"], &["b", "b", "a"], &["a", "a"]] {
        assert_eq!(verdict(history(possible)), Verdict::Linearizable, "{possible:?}");
    }
    for impossible in [&["a", "b", "a"][..], &["b", "a", "b", "a"], &["c"]] {
        assert_eq!(verdict(history(impossible)), Verdict::Violated, "{impossible:?}");
    }
}

#[test]
fn several_keys_are_seen_at_one_instant() {
    let history = |first: &str, second: &str| {
        let write = |key: usize, times| Recorded { keys: key..key + 1, ..set(0, times, "x") };
        let both = Reply::bulks([first, second]);
        let read = Recorded { keys: 0..2, ..answered(1, [4, 9], Command::MGet, both) };
        let all = Command::MSet("-".to_owned());
        let all = Recorded { keys: 0..2, ..answered(0, [0, 1], all, Reply::ok()) };
        [all, write(0, [2, 5]), write(1, [6, 7]), read]
    };
    for (first, second) in [("-", "-"), ("x", "-"), ("x", "x")] {
        assert_eq!(verdict(history(first, second)), Verdict::Linearizable);
    }
    assert_eq!(verdict(history("-", "x")), Verdict::Violated);
}

#[test]
fn errors_are_part_of_what_a_server_says() {
    let error = Reply::Error("ERR value is not an integer or out of range".into());
    let refused = answered(0, [2, 3], Command::Incr, error);
    let history = |value| [set(0, [0, 1], value), refused.clone(), get(0, [4, 5], value)];
    assert_eq!(verdict(history("text")), Verdict::Linearizable);
    assert_eq!(verdict(history("007")), Verdict::Linearizable);
    assert_eq!(verdict(history("7")), Verdict::Violated);
}

#[test]
fn the_first_impossible_reply_is_named() {
    let operations = vec![set(0, [0, 1], "a"), get(1, [2, 3], "b"), get(1, [4, 5], "a")];
    let why = History { operations }.check().expect_err("nobody wrote it");
    assert!(why.starts_with("no order explains the reply of [   2    3  c1   k0 GET"), "{why}");
}

/// The model answers what a real server does.
#[test]
fn the_model_is_a_server() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut rng = Rng::with_seed(seed_from("HEATSINK_LINEAR_SEED", 8));
    let server = RedisServer::start();
    let mut client = server.client();
    for mix in Mix::ANY {
        let workload = Workload { keys: NAMES.len(), ..Workload::random(&mut rng, &[mix]) };
        let mut values = NAMES.map(|_| None);
        client.command(&["FLUSHALL"]);
        for serial in 0..2000 {
            let (keys, command) = workload.request(&mut rng, serial);
            let wanted = client.command(&command.words(&NAMES[keys.clone()]));
            assert_eq!(command.execute(&mut values[keys]), wanted, "{command} with {mix:?}");
        }
    }
}
