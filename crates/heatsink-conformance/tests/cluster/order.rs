//! What one client sends is executed in its order, whatever becomes of the first of it.

use std::time::Duration;

use heatsink_testkit::{Reply, encode, key_slot};

use crate::open::{OPEN, before_open, elsewhere, send_all};

/// Long enough for what is wrong to happen.
const MOMENT: Duration = Duration::from_millis(150);
/// Takes a while to send.
const LARGE_BYTES: usize = 16 << 20;

#[test]
fn a_request_that_is_tried_again_is_not_overtaken() {
    let heatsink = before_open(|config| {
        config.live.timeouts.cluster_retry = Duration::from_secs(10);
    });
    // All at once, and the second when the first is known to have failed.
    for (name, pause, watches) in [
        ("at once", None, false),
        ("later", Some(MOMENT), false),
        ("at once, watching", None, true),
        ("later, watching", Some(MOMENT), true),
    ] {
        let tag = OPEN.key_on(0, name);
        let (a, b) = (format!("{tag}1"), format!("{tag}2"));
        let (slot, to) = (key_slot(&a), elsewhere(&a));
        let mut client = heatsink.client();
        assert_eq!(client.command(&["SET", &a, "0"]), Reply::ok());
        if watches {
            assert_eq!(client.command(&["WATCH", &a]), Reply::ok());
        }
        OPEN.begin_move_slot(slot, to);
        let (first, second) =
            (encode(&["MSET", &a, "first", &b, "first"]), encode(&["SET", &a, "second"]));
        match pause {
            None => client.send_raw(&[first, second].concat()),
            Some(pause) => {
                client.send_raw(&first);
                assert_eq!(client.try_read_frame(pause).expect("open"), None, "{name}");
                client.send_raw(&second);
            }
        }
        let early = client.try_read_frame(MOMENT).expect("open");
        OPEN.abandon_move_slot(slot, to);
        let set_both = match early {
            Some(frame) => String::from_utf8_lossy(&frame).into_owned(),
            None => client.read_reply().to_string(),
        };
        let allowed = set_both.contains("OK") || (pause.is_none() && set_both.contains("TRYAGAIN"));
        assert!(allowed, "{name}: {set_both}");
        assert_eq!(client.read_reply(), Reply::ok(), "{name}");
        assert_eq!(client.command(&["GET", &a]), Reply::bulk("second"), "{name}");
    }
}

#[test]
fn a_watching_client_is_not_overtaken_by_itself_either() {
    let heatsink = before_open(|config| {
        config.live.timeouts.cluster_retry = Duration::from_secs(10);
    });
    let tag = OPEN.key_on(0, "watching");
    let (watched, a, b) = (format!("{tag}w"), format!("{tag}1"), format!("{tag}2"));
    let (slot, to) = (key_slot(&a), elsewhere(&a));
    let mut client = heatsink.client();
    assert_eq!(client.command(&["MSET", &a, "0", &watched, "0"]), Reply::ok());
    assert_eq!(client.command(&["WATCH", &watched]), Reply::ok());
    OPEN.begin_move_slot(slot, to);
    let commands = [
        &["MSET", &a, "first", &b, "first"][..],
        &["WATCH", &a],
        &["MULTI"],
        &["GET", &a],
        &["EXEC"],
    ];
    send_all(&mut client, &commands);
    let early = client.try_read_frame(MOMENT).expect("open");
    OPEN.abandon_move_slot(slot, to);
    let set_both = match early {
        Some(frame) => String::from_utf8_lossy(&frame).into_owned(),
        None => client.read_reply().to_string(),
    };
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply().text(), "QUEUED");
    let done = client.read_reply();
    let last = client.command(&["GET", &a]);
    if set_both.contains("OK") {
        // Nil if the slot is thought to have been touched.
        assert!(done == Reply::bulks(["first"]) || done == Reply::Null, "{set_both}: {done}");
        assert_eq!(last, Reply::bulk("first"));
    } else {
        assert!(set_both.contains("TRYAGAIN"), "{set_both}");
        assert!(done == Reply::bulks(["0"]) || done == Reply::Null, "{set_both}: {done}");
        assert_eq!(last, Reply::bulk("0"));
    }
}

#[test]
fn a_transaction_waits_for_what_was_sent_before_it() {
    let heatsink = before_open(|_| {});
    let tag = OPEN.key_on(1, "before");
    let (watched, key) = (format!("{tag}w"), format!("{tag}k"));
    let large = "x".repeat(LARGE_BYTES);
    for watches in [false, true] {
        let mut client = heatsink.client();
        assert_eq!(client.command(&["SET", &key, "0"]), Reply::ok());
        if watches {
            assert_eq!(client.command(&["WATCH", &watched]), Reply::ok());
        }
        let commands = [
            &["SET", &key, &large][..],
            &["WATCH", &key],
            &["MULTI"],
            &["STRLEN", &key],
            &["EXEC"],
        ];
        send_all(&mut client, &commands);
        for _ in 0..3 {
            assert_eq!(client.read_reply(), Reply::ok());
        }
        assert_eq!(client.read_reply().text(), "QUEUED");
        assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Integer(LARGE_BYTES as i64)]));
    }
    assert_eq!(heatsink.client().command(&["DEL", &key]).integer(), 1);
}
