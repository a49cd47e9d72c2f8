//! Transactions that go wrong leave an ordinary connection, and nothing half done.

use std::time::Duration;

use heatsink_testkit::{Reply, encode, key_slot};

use crate::open::{OPEN, before_open, elsewhere, send_all};

/// More than what is queued on one connection at once elsewhere.
const LONG: usize = 9000;
const SOON: Duration = Duration::from_secs(10);
/// How often a client is at another node than it should be.
const ATTEMPTS: usize = 60;
/// For an answer that nothing has to be waited for.
const PROMPT: Duration = Duration::from_secs(2);

#[test]
fn a_transaction_across_slots_leaves_an_ordinary_connection() {
    let heatsink = before_open(|_| {});
    let a = OPEN.key_on(0, "across:a");
    let b = OPEN.key_on(0, "across:b");
    assert_ne!(key_slot(&a), key_slot(&b));
    let other = OPEN.key_on(1, "across");
    let mut client = heatsink.client();
    for _ in 0..3 {
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["SET", &a, "1"]).text(), "QUEUED");
        assert_eq!(client.command(&["SET", &b, "1"]).text(), "QUEUED");
        let done = client.command(&["EXEC"]);
        assert!(done.is_error() && done.error().starts_with("CROSSSLOT"), "{done}");
        assert_eq!(client.command(&["GET", &other]), Reply::Null);
        assert_eq!(client.command(&["MGET", &a, &b, &other]), Reply::Array(vec![Reply::Null; 3]));
        assert_eq!(client.command(&["PING"]).text(), "PONG");
        for end in ["EXEC", "DISCARD"] {
            let refused = client.command(&[end]);
            assert_eq!(refused.error(), format!("ERR {end} without MULTI"));
        }
        assert_eq!(client.command(&["GET", &other]), Reply::Null);
    }
}

#[test]
fn a_command_between_does_not_end_a_watch() {
    let heatsink = before_open(|_| {});
    let (mut client, mut other) = (heatsink.client(), heatsink.client());
    for node in 0..3 {
        for between in [&["SELECT", "0"][..], &["SELECT", "1"], &["AUTH", "wrong"], &["READONLY"]] {
            let key = OPEN.key_on(node, &between.join(":"));
            assert_eq!(client.command(&["WATCH", &key]), Reply::ok());
            client.command(between);
            assert_eq!(other.command(&["SET", &key, "theirs"]), Reply::ok());
            assert_eq!(client.command(&["MULTI"]), Reply::ok());
            let queued = client.command(&["SET", &key, "mine"]);
            let done = client.command(&["EXEC"]);
            let failed =
                done == Reply::Null || (done.is_error() && done.error().starts_with("EXECABORT"));
            assert!(failed, "{between:?}: {queued}, {done}");
            assert_eq!(other.command(&["GET", &key]), Reply::bulk("theirs"), "{between:?}");
        }
    }
}

#[test]
fn a_command_between_does_not_end_a_subscription() {
    let heatsink = before_open(|_| {});
    let (mut client, mut other) = (heatsink.client(), heatsink.client());
    assert!(!client.command(&["HELLO", "3"]).is_error());
    assert_eq!(client.command(&["SUBSCRIBE", "kept"]).items()[2].integer(), 1);
    for between in [&["SELECT", "0"][..], &["SELECT", "1"], &["READONLY"], &["PING"]] {
        client.command(between);
        other.command(&["PUBLISH", "kept", "news"]);
        let message = client.read_reply();
        assert_eq!(message.items()[2], Reply::bulk("news"), "{between:?}: {message}");
    }
}

#[test]
fn a_long_transaction_is_followed_or_fails_as_a_whole() {
    let heatsink = before_open(|_| {});
    for (name, before) in [("middle", LONG / 2), ("end", LONG - 1)] {
        let key = OPEN.key_on(0, name);
        let mut client = heatsink.client();
        client.set_timeout(SOON);
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        let increment = encode(&["INCR", &key]);
        client.send_raw(&increment.repeat(before));
        for n in 0..before {
            assert_eq!(client.read_reply().text(), "QUEUED", "{name}: {n}");
        }
        OPEN.move_slot(key_slot(&key), elsewhere(&key));
        let mut rest = increment.repeat(LONG - before);
        rest.extend(encode(&["EXEC"]));
        client.send_raw(&rest);
        for _ in before..LONG {
            client.read_reply();
        }
        let done = client.read_reply();
        let executed = match client.command(&["GET", &key]) {
            Reply::Null => 0,
            value => value.text().parse().expect("a number"),
        };
        if done.is_error() {
            assert_eq!(executed, 0, "{name}: {done}");
        } else {
            assert_eq!(done.items().len(), LONG, "{name}");
            assert_eq!(executed, LONG, "{name}");
        }
    }
}

/// It was not kept, so it cannot be sent again to the node that its first key turns out to be at.
#[test]
fn a_transaction_too_long_to_be_kept_fails_and_says_why() {
    // Together more than is kept.
    const COUNT: usize = 5;
    const LEN: usize = 14 << 20;
    let heatsink = before_open(|config| config.live.timeouts.silence = None);
    let long = "x".repeat(LEN);
    // What names no key goes to any node.
    let told = (0..ATTEMPTS).any(|_| {
        let key = OPEN.key_on(0, "long");
        let mut client = heatsink.client();
        client.set_timeout(SOON);
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        for _ in 0..COUNT {
            assert_eq!(client.command(&["ECHO", &long]).text(), "QUEUED");
        }
        let queued = client.command(&["INCR", &key]);
        if !queued.is_error() {
            assert_eq!(client.command(&["DISCARD"]), Reply::ok());
            return false;
        }
        let text = "ERR heatsink: the slot is at another node, and the transaction too long to be \
                    sent there";
        assert_eq!(queued.error(), text);
        assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
        assert_eq!(client.command(&["GET", &key]), Reply::Null);
        true
    });
    assert!(told, "it always began at the node of its key");
}

/// The connection that the transaction is on is that of the subscription, which stays where it is.
#[test]
fn a_subscribers_transaction_whose_slot_moves_fails_and_says_why() {
    let heatsink = before_open(|_| {});
    // It listens at any node.
    let told = (0..ATTEMPTS).any(|_| {
        let key = OPEN.key_on(0, "listens");
        let mut client = heatsink.client();
        client.set_timeout(SOON);
        assert!(!client.command(&["HELLO", "3"]).is_error());
        assert_eq!(client.command(&["SUBSCRIBE", "news"]).items()[2].integer(), 1);
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        if client.command(&["INCR", &key]).is_error() {
            return false;
        }
        OPEN.move_slot(key_slot(&key), elsewhere(&key));
        let text = "EXECABORT heatsink: not possible while subscribed, because the key is at \
                    another node";
        assert_eq!(client.command(&["EXEC"]).error(), text);
        assert_eq!(client.command(&["EXEC"]).error(), "ERR EXEC without MULTI");
        assert_eq!(client.command(&["GET", &key]), Reply::Null);
        true
    });
    assert!(told, "it never listened at the node of the key");
}

#[test]
fn what_is_urgent_outside_is_queued_inside() {
    let heatsink = before_open(|_| {});
    for node in 0..3 {
        let mut client = heatsink.client();
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["SCRIPT", "KILL"]).text(), "QUEUED");
        let key = OPEN.key_on(node, "urgent");
        assert_eq!(client.command(&["SET", &key, "1"]).text(), "QUEUED");
        let done = client.command(&["EXEC"]);
        assert!(done.items()[0].error().starts_with("NOTBUSY"), "{done}");
        assert_eq!(done.items()[1], Reply::ok());
    }
}

#[test]
fn a_wrong_number_of_words_means_what_it_means_to_the_server() {
    let heatsink = before_open(|_| {});
    for node in 0..3 {
        for wrong in [&["RESET", "x"][..], &["EXEC", "x"], &["DISCARD", "x"], &["MULTI", "x"]] {
            let key = OPEN.key_on(node, &wrong.join(":"));
            let commands = [&["MULTI"][..], wrong, &["SET", &key, "1"], &["EXEC"], &["GET", &key]];
            let [direct, through] = [OPEN.node(node).client(), heatsink.client()].map(|client| {
                let mut client = client;
                let replies = commands.map(|command| client.command(command).to_string());
                client.command(&["DEL", &key]);
                replies
            });
            assert_eq!(through, direct, "{wrong:?}");
            let aborted = direct[3].contains("EXECABORT") && direct[4] == Reply::Null.to_string();
            assert!(aborted || wrong[0] == "EXEC", "{wrong:?}: {direct:?}");
        }
    }
}

/// Either it is queued or it fails the transaction, wherever the keys are.
#[test]
fn a_word_about_replicas_inside_is_queued_or_fails_the_whole() {
    let heatsink = before_open(|_| {});
    for between in ["READONLY", "READWRITE", "ASKING"] {
        for node in 0..3 {
            let key = OPEN.key_on(node, &format!("inside:{between}"));
            let mut client = heatsink.client();
            client.set_timeout(PROMPT);
            assert_eq!(client.command(&["MULTI"]), Reply::ok());
            let answer = client.command(&[between]);
            let queued = client.command(&["SET", &key, "v"]);
            let done = client.command(&["EXEC"]);
            let value = client.command(&["GET", &key]);
            if answer.is_error() {
                assert!(done.is_error() && done.error().starts_with("EXECABORT"), "{done}");
                assert_eq!(value, Reply::Null, "{between}: {queued}");
            } else {
                assert_eq!(answer.text(), "QUEUED", "{between}");
                assert_eq!(done.items(), [Reply::ok(), Reply::ok()], "{between}");
                assert_eq!(value, Reply::bulk("v"), "{between}");
            }
            assert_eq!(client.command(&["EXEC"]).error(), "ERR EXEC without MULTI");
        }
    }
}

#[test]
fn a_word_about_replicas_inside_executes_nothing_twice() {
    let heatsink = before_open(|_| {});
    for between in ["READONLY", "READWRITE", "ASKING"] {
        for node in 0..3 {
            for at_once in [false, true] {
                let key = OPEN.key_on(node, &format!("twice:{between}:{at_once}"));
                let commands =
                    [&["MULTI"][..], &["INCR", &key], &[between], &["GET", &key], &["EXEC"]];
                let mut client = heatsink.client();
                client.set_timeout(PROMPT);
                let replies = if at_once {
                    send_all(&mut client, &commands);
                    commands.map(|_| client.read_reply())
                } else {
                    commands.map(|command| client.command(command))
                };
                let value = client.command(&["GET", &key]);
                let done = &replies[4];
                if done.is_error() {
                    assert!(done.error().starts_with("EXECABORT"), "{between}: {replies:?}");
                    assert_eq!(value, Reply::Null, "{between}: {replies:?}");
                } else {
                    assert!(!replies[2].is_error(), "{between}: {replies:?}");
                    let expected = [Reply::Integer(1), Reply::ok(), Reply::bulk("1")];
                    assert_eq!(done.items(), expected, "{between}");
                    assert_eq!(value, Reply::bulk("1"), "{between}: {replies:?}");
                }
            }
        }
    }
}
