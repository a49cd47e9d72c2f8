//! Publish and subscribe through Heatsink.

use heatsink_conformance::Rig;
use heatsink_testkit::Reply;

#[test]
fn messages_of_every_kind_arrive_in_both_protocols() {
    let rig = Rig::new(2);
    let mut publisher = rig.client();
    for protocol in ["2", "3"] {
        let mut client = rig.client();
        client.command(&["HELLO", protocol]);
        // Not those of the client before, whose leaving the server may not have noticed yet.
        let [a, p, s] = ["a", "p", "s"].map(|name| format!("{name}{protocol}"));
        client.send(&["SUBSCRIBE", &a, "b"]);
        client.read_frame();
        client.read_frame();
        client.send(&["PSUBSCRIBE", &format!("{p}*")]);
        client.read_frame();
        client.send(&["SSUBSCRIBE", &s]);
        client.read_frame();
        let mark = if protocol == "2" { '*' } else { '>' };
        for (command, channel, kind, count) in [
            ("PUBLISH", a, "message", 3),
            ("PUBLISH", format!("{p}1"), "pmessage", 4),
            ("SPUBLISH", s, "smessage", 3),
        ] {
            assert_eq!(publisher.command(&[command, &channel, "hello"]).integer(), 1);
            let frame = client.read_frame();
            let start = format!("{mark}{count}\r\n${}\r\n{kind}\r\n", kind.len());
            assert!(frame.starts_with(start.as_bytes()), "{}", frame.escape_ascii());
            assert!(frame.ends_with(b"hello\r\n"));
        }
    }
}

#[test]
fn a_subscriber_can_become_an_ordinary_client_again() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["SUBSCRIBE", "a"]);
    assert!(client.command(&["GET", "x"]).error().contains("only (P|S)SUBSCRIBE"));
    assert_eq!(client.command(&["PING"]), Reply::bulks(["pong", ""]));
    client.command(&["UNSUBSCRIBE"]);
    assert_eq!(client.command(&["SET", "x", "1"]), Reply::ok());
    // On the shared pipeline again, so nothing is published to it any more.
    assert_eq!(rig.client().command(&["PUBLISH", "a", "m"]).integer(), 0);
    assert_eq!(client.command(&["GET", "x"]), Reply::bulk("1"));
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}

#[test]
fn on_resp3_everything_is_allowed_while_subscribed() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["HELLO", "3"]);
    client.command(&["SUBSCRIBE", "a"]);
    assert_eq!(client.command(&["SET", "x", "1"]), Reply::ok());
    assert!(client.command(&["CLIENT", "ID"]).integer() > 0);
    rig.client().command(&["PUBLISH", "a", "m"]);
    assert_eq!(client.read_frame(), b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n");
    assert_eq!(client.command(&["GET", "x"]), Reply::bulk("1"));
}

/// The confirmation of a longer name would come in pieces, and nobody could tell what it says.
#[test]
fn a_name_is_taken_up_to_a_limit() {
    let rig = Rig::new(1);
    let (mut subscriber, mut other) = (rig.client(), rig.client());
    let [longest, longer] = [16_384, 16_385].map(|length| "n".repeat(length));
    for command in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE"] {
        assert!(subscriber.command(&[command, &longer]).error().contains("16384"), "{command}");
    }
    assert_eq!(subscriber.command(&["SUBSCRIBE", &longest]).items()[2].integer(), 1);
    for command in [&["MULTI"][..], &["PUBLISH", &longest, "hello"], &["EXEC"]] {
        assert!(!other.command(command).is_error());
    }
    assert_eq!(subscriber.read_reply().items()[2], Reply::bulk("hello"));
    // It is known when the last subscription ends.
    assert_eq!(subscriber.command(&["UNSUBSCRIBE", &longest]).items()[2].integer(), 0);
    assert_eq!(subscriber.command(&["GET", "k"]), Reply::Null);
}

#[test]
fn an_answer_made_here_does_not_split_a_message() {
    let rig = Rig::new(1);
    let (mut subscriber, mut publisher) = (rig.client(), rig.client());
    subscriber.command(&["HELLO", "3"]);
    subscriber.command(&["SUBSCRIBE", "a"]);
    let message = "m".repeat(500_000);
    for _ in 0..30 {
        publisher.send(&["PUBLISH", "a", &message]);
        subscriber.send(&["CLIENT", "ID"]);
        let (mut messages, mut ids) = (0, 0);
        while messages + ids < 2 {
            let frame = subscriber.read_frame();
            match frame[0] {
                b'>' if frame.len() > message.len() => messages += 1,
                b':' => ids += 1,
                _ => panic!("{}", frame[..40.min(frame.len())].escape_ascii()),
            }
        }
        assert_eq!(publisher.read_reply().integer(), 1);
    }
}
