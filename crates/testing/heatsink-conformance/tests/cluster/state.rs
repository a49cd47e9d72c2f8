//! Connections with a state of their own, which are tied to one node.

use std::sync::LazyLock;

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{Reply, encode};

/// One for all tests here: they only add keys, and count none but their own.
static RIG: LazyLock<ClusterRig> = LazyLock::new(|| ClusterRig::new(1));

fn fill(prefix: &str) {
    let mut client = RIG.client();
    for n in 0..30 {
        assert_eq!(client.command(&["SET", &format!("{prefix}:{n}"), "v"]), Reply::ok());
    }
}

/// Writes go along shared connections, `WAIT` along others.
#[test]
fn wait_speaks_of_writes_on_shared_connections() {
    let mut rig = ClusterRig::new(1);
    let key = rig.cluster.key_on(0, "waited");
    let replica = rig.cluster.replicas_of(0)[0];
    let mut client = rig.client();
    assert_eq!(client.command(&["SET", &key, "1"]), Reply::ok());
    assert_eq!(client.command(&["WAIT", "1", "10000"]), Reply::Integer(1));
    rig.cluster.pause(replica);
    assert_eq!(client.command(&["SET", &key, "2"]), Reply::ok());
    assert_eq!(client.command(&["WAIT", "1", "50"]), Reply::Integer(0));
    rig.cluster.resume(replica);
    assert_eq!(client.command(&["WAIT", "1", "10000"]), Reply::Integer(1));
    // What was written for it is gone.
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(1));
    for node in rig.cluster.primaries() {
        let keys = rig.cluster.node(node).client().command(&["KEYS", "*:wait"]);
        assert_eq!(keys, Reply::Array(Vec::new()));
    }
}

#[test]
fn a_client_that_watches_still_speaks_to_all_nodes() {
    fill("watching");
    let mut client = RIG.client();
    assert_eq!(client.command(&["WATCH", "watching:0"]), Reply::ok());
    assert_eq!(client.command(&["KEYS", "watching:*"]).items().len(), 30);
    let get: Vec<String> = (0..30).map(|n| format!("watching:{n}")).collect();
    let get = [&["MGET".to_owned()], &get[..]].concat();
    assert_eq!(client.command(&get), Reply::bulks([b"v"; 30]));
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert_eq!(client.command(&["SET", "watching:0", "w"]).text(), "QUEUED");
    assert_eq!(client.command(&["EXEC"]).items().len(), 1);
}

/// Commands on the client's own connection and on the shared ones, in one pipeline.
#[test]
fn what_a_watching_client_sends_is_executed_in_its_order() {
    let mut client = RIG.client();
    assert_eq!(client.command(&["WATCH", "{order}"]), Reply::ok());
    let mut bytes = Vec::new();
    for n in 0..100 {
        bytes.extend(encode(&["RPUSH", "{order}list", &n.to_string()]));
        bytes.extend(encode(&["KEYS", "{order}*"]));
        bytes.extend(encode(&["LLEN", "{order}list"]));
        bytes.extend(encode(&["BLPOP", "{order}list", "1"]));
    }
    client.send_raw(&bytes);
    for n in 0..100 {
        assert_eq!(client.read_reply().integer(), 1, "round {n}");
        assert_eq!(client.read_reply(), Reply::bulks(["{order}list"]), "round {n}");
        assert_eq!(client.read_reply().integer(), 1, "round {n}");
        assert_eq!(client.read_reply(), Reply::bulks(["{order}list", &n.to_string()]));
    }
    let mut bytes = Vec::new();
    for n in 0..100 {
        let value = n.to_string();
        for command in [
            &["WATCH", "{order}"][..],
            &["SET", "{order}k", &value],
            &["MULTI"],
            &["INCR", "{order}k"],
            &["EXEC"],
        ] {
            bytes.extend(encode(command));
        }
    }
    client.send_raw(&bytes);
    for n in 0..100 {
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(client.read_reply(), Reply::ok());
        assert_eq!(client.read_reply().text(), "QUEUED");
        assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Integer(n + 1)]), "round {n}");
    }
}

#[test]
fn a_wrong_end_of_a_transaction_fails_it_wherever_it_goes() {
    for key in ["a", "b", "c"] {
        let mut client = RIG.client();
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        let wrong = client.command(&["DISCARD", "x"]);
        assert!(wrong.error().contains("wrong number of arguments"), "{wrong}");
        assert_eq!(client.command(&["SET", key, "v"]).text(), "QUEUED");
        let done = client.command(&["EXEC"]);
        assert!(done.is_error() && done.error().starts_with("EXECABORT"), "{key}: {done}");
    }
}

#[test]
fn what_overtakes_others_does_not_overtake_the_client_itself() {
    let mut client = RIG.client();
    client.send_raw(&[encode(&["BLPOP", "nothing", "0.1"]), encode(&["SCRIPT", "KILL"])].concat());
    assert_eq!(client.read_reply(), Reply::Null);
    assert!(client.read_reply().error().starts_with("NOTBUSY"));
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert_eq!(client.command(&["SET", "urgent", "1"]).text(), "QUEUED");
    assert_eq!(client.command(&["SCRIPT", "KILL"]).text(), "QUEUED");
    let done = client.command(&["EXEC"]);
    assert!(done.items()[1].error().starts_with("NOTBUSY"), "{done}");
}

#[test]
fn a_client_that_listens_may_do_what_the_protocol_allows() {
    fill("listening");
    let mut old = RIG.client();
    assert_eq!(old.command(&["SUBSCRIBE", "news"]).items()[2].integer(), 1);
    let mut new = RIG.client();
    assert!(!new.command(&["HELLO", "3"]).is_error());
    assert_eq!(new.command(&["SUBSCRIBE", "news"]).items()[2].integer(), 1);
    for n in 0..30 {
        let key = format!("listening:{n}");
        let refused = old.command(&["GET", &key]);
        assert!(refused.error().starts_with("ERR Can't execute 'get'"), "{key}: {refused}");
        assert_eq!(new.command(&["GET", &key]), Reply::bulk("v"), "{key}");
    }
}

/// What is refused because of where a connection leads is said to be that, not to have keys of several slots.
#[test]
fn a_subscriber_that_needs_its_own_connection_at_another_node_is_told_so() {
    const REFUSED: &str = "heatsink: not possible while subscribed";
    let mut other = RIG.client();
    for node in 0..3 {
        let key = RIG.cluster.key_on(node, "subscribed");
        let (list, count) = (format!("{key}:l"), format!("{key}:n"));
        for listen in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
            let mut client = RIG.client();
            assert!(!client.command(&["HELLO", "3"]).is_error());
            assert_eq!(client.command(&[listen, &count]).items()[2].integer(), 1);
            assert_eq!(client.command(&["SET", &count, "0"]), Reply::ok());
            for command in [
                &["BLPOP", &list, "0"][..],
                &["BLMOVE", &list, &list, "LEFT", "LEFT", "0"],
                &["XREAD", "BLOCK", "1", "STREAMS", &format!("{key}:s"), "$"],
                &["WATCH", &count],
            ] {
                other.command(&["DEL", &list]);
                assert_eq!(other.command(&["RPUSH", &list, "x"]).integer(), 1);
                let reply = client.command(command);
                if reply.is_error() {
                    assert!(reply.error().contains(REFUSED), "{listen}, {command:?}: {reply}");
                    assert_ne!(listen, "SSUBSCRIBE", "it is at the node of its channel");
                }
            }
            client.command(&["UNWATCH"]);
            assert_eq!(client.command(&["MULTI"]), Reply::ok());
            let queued = client.command(&["INCR", &count]);
            let done = client.command(&["EXEC"]);
            if queued.is_error() {
                assert!(queued.error().contains(REFUSED), "{queued}");
                assert!(done.error().starts_with("EXECABORT"), "{done}");
                assert_eq!(client.command(&["GET", &count]), Reply::bulk("0"));
            } else {
                assert_eq!(done.items(), [Reply::Integer(1)]);
            }
        }
    }
}

#[test]
fn who_watches_keys_does_not_block_on_keys_of_another_slot_and_is_told_so() {
    let mut other = RIG.client();
    for node in 0..3 {
        let (watched, list) =
            (RIG.cluster.key_on(0, "watched"), RIG.cluster.key_on(node, "blocked"));
        other.command(&["DEL", &list]);
        assert_eq!(other.command(&["RPUSH", &list, "x"]).integer(), 1);
        let mut client = RIG.client();
        assert_eq!(client.command(&["WATCH", &watched]), Reply::ok());
        let refused = client.command(&["BLPOP", &list, "0"]);
        let text = "ERR heatsink: not possible while keys of another slot are watched";
        assert_eq!(refused.error(), text);
        // The watch goes on.
        other.command(&["INCR", &watched]);
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["INCR", &watched]).text(), "QUEUED");
        assert_eq!(client.command(&["EXEC"]), Reply::Null);
        // Nothing is watched any more.
        assert_eq!(client.command(&["BLPOP", &list, "0"]), Reply::bulks([&*list, "x"]));
    }
}

/// A command that would block is queued, or fails the transaction, like any other.
#[test]
fn a_command_that_blocks_fails_a_transaction_of_another_slot() {
    for node in 0..3 {
        let (watched, list) =
            (RIG.cluster.key_on(0, "fails"), RIG.cluster.key_on(node, "elsewhere"));
        let mut client = RIG.client();
        assert_eq!(client.command(&["WATCH", &watched]), Reply::ok());
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["INCR", &watched]).text(), "QUEUED");
        client.command(&["BLPOP", &list, "0"]);
        let done = client.command(&["EXEC"]);
        assert!(done.is_error(), "{node}: {done}");
        assert_eq!(client.command(&["GET", &watched]), Reply::Null);
    }
}
