//! State that belongs to one connection behaves as on a direct one.

use std::thread;
use std::time::Duration;

use heatsink_conformance::{Heatsink, Relay, Rig, Way};
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

const SOON: Duration = Duration::from_secs(5);

/// Waits until the server has that many clients blocked.
fn wait_blocked(rig: &Rig, count: u64) {
    eventually(SOON, || rig.server().info_u64("clients", "blocked_clients") == count);
}

#[test]
fn a_blocking_command_holds_up_nobody_else() {
    let rig = Rig::new(1);
    let (mut waiting, mut other) = (rig.client(), rig.client());
    waiting.send(&["BLPOP", "queue", "0"]);
    wait_blocked(&rig, 1);
    assert_eq!(other.command(&["SET", "a", "1"]), Reply::ok());
    assert_eq!(other.command(&["RPUSH", "queue", "x"]).integer(), 1);
    assert_eq!(waiting.read_reply(), Reply::bulks(["queue", "x"]));
    assert_eq!(waiting.command(&["GET", "a"]), Reply::bulk("1"));
}

#[test]
fn whoever_leaves_while_blocked_takes_nothing_along() {
    let rig = Rig::new(1);
    for pipelined in [&[][..], &[&["CLIENT", "ID"][..]]] {
        let mut waiting = rig.client();
        let mut bytes = encode(&["BLPOP", "queue", "0"]);
        // What waits behind the blocking command must not hide that the client has gone.
        bytes.extend(pipelined.iter().flat_map(|command| encode(command)));
        waiting.send_raw(&bytes);
        wait_blocked(&rig, 1);
        drop(waiting);
        wait_blocked(&rig, 0);
    }
    let mut other = rig.client();
    other.command(&["RPUSH", "queue", "x"]);
    assert_eq!(other.command(&["LLEN", "queue"]).integer(), 1);
}

#[test]
fn every_kind_of_blocking_command() {
    let rig = Rig::new(1);
    let mut other = rig.client();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["BLMOVE", "l1", "l2", "LEFT", "RIGHT", "0"], &["RPUSH", "l1", "x"]),
        (&["BZPOPMIN", "z", "0"], &["ZADD", "z", "1", "x"]),
        (&["BLMPOP", "0", "1", "l3", "LEFT"], &["RPUSH", "l3", "x"]),
        (&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"], &["XADD", "s", "1-1", "f", "v"]),
        (&["BRPOPLPUSH", "l4", "l5", "0"], &["RPUSH", "l4", "x"]),
        (&["BZMPOP", "0", "1", "z2", "MAX"], &["ZADD", "z2", "1", "x"]),
    ];
    for (blocking, waking) in cases {
        let mut waiting = rig.client();
        waiting.send(blocking);
        wait_blocked(&rig, 1);
        other.command(waking);
        assert!(!waiting.read_reply().is_error(), "{blocking:?}");
    }
    let mut waiting = rig.client();
    assert_eq!(waiting.command(&["BLPOP", "none", "0.01"]), Reply::Null);
    assert!(!waiting.command(&["XREAD", "COUNT", "1", "STREAMS", "s", "0"]).is_error());
}

#[test]
fn a_client_can_be_unblocked_by_the_id_it_was_told() {
    let rig = Rig::new(2);
    let (mut waiting, mut other) = (rig.client(), rig.client());
    let id = waiting.command(&["CLIENT", "ID"]).integer().to_string();
    waiting.send(&["BLPOP", "queue", "0"]);
    wait_blocked(&rig, 1);
    assert_eq!(other.command(&["CLIENT", "UNBLOCK", &id, "ERROR"]).integer(), 1);
    assert!(waiting.read_reply().error().starts_with("UNBLOCKED"));
    assert_eq!(other.command(&["CLIENT", "UNBLOCK", &id]).integer(), 0);
}

#[test]
fn transactions_are_executed_whole_or_not_at_all() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    assert_eq!(client.command(&["SET", "a", "1"]).text(), "QUEUED");
    assert!(client.command(&["NOSUCH"]).is_error());
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
    assert_eq!(client.command(&["GET", "a"]), Reply::Null);
    assert!(client.command(&["EXEC"]).error().contains("EXEC without MULTI"));

    client.command(&["MULTI"]);
    client.command(&["SET", "a", "1"]);
    drop(client);
    let mut other = rig.client();
    // Its connection upstream goes with it: the pipeline, this look and the kit's own remain.
    eventually(SOON, || rig.server().info_u64("clients", "connected_clients") == 2);
    assert_eq!(other.command(&["GET", "a"]), Reply::Null);
}

#[test]
fn a_watched_key_that_changes_fails_the_transaction() {
    let rig = Rig::new(1);
    let (mut client, mut other) = (rig.client(), rig.client());
    client.command(&["WATCH", "a"]);
    other.command(&["SET", "a", "1"]);
    client.command(&["MULTI"]);
    client.command(&["SET", "a", "2"]);
    assert_eq!(client.command(&["EXEC"]), Reply::Null);
    client.command(&["WATCH", "a"]);
    other.command(&["SET", "a", "3"]);
    client.command(&["UNWATCH"]);
    client.command(&["MULTI"]);
    client.command(&["GET", "a"]);
    assert_eq!(client.command(&["EXEC"]), Reply::bulks(["3"]));
}

#[test]
fn connections_of_ended_transactions_are_used_again() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    for round in 0..200 {
        let mut bytes = encode(&["MULTI"]);
        bytes.extend(encode(&["INCR", "n"]));
        bytes.extend(encode(&["EXEC"]));
        bytes.extend(encode(&["GET", "n"]));
        client.send_raw(&bytes);
        assert_eq!(client.read_reply(), Reply::ok());
        client.read_reply();
        assert_eq!(client.read_reply().items()[0].integer(), round + 1);
        assert_eq!(client.read_reply(), Reply::bulk((round + 1).to_string()));
    }
    assert!(rig.server().info_u64("stats", "total_connections_received") < 10);
}

#[test]
fn databases_of_clients_on_one_worker_stay_apart() {
    let rig = Rig::new(1);
    let (mut zero, mut three) = (rig.client(), rig.client());
    assert_eq!(three.command(&["SELECT", "3"]), Reply::ok());
    zero.command(&["SET", "k", "zero"]);
    three.command(&["SET", "k", "three"]);
    let mut bytes = Vec::new();
    for db in ["0", "3", "0", "3"] {
        bytes.extend(encode(&["SELECT", db]));
        bytes.extend(encode(&["GET", "k"]));
    }
    zero.send_raw(&bytes);
    for value in ["zero", "three", "zero", "three"] {
        assert_eq!(zero.read_reply(), Reply::ok());
        assert_eq!(zero.read_reply(), Reply::bulk(value));
    }
    assert!(zero.command(&["SELECT", "99"]).error().contains("DB index is out of range"));
    assert!(zero.command(&["SELECT", "x"]).is_error());
    assert_eq!(zero.command(&["GET", "k"]), Reply::bulk("three"));
    assert_eq!(zero.command(&["RESET"]).text(), "RESET");
    assert_eq!(zero.command(&["GET", "k"]), Reply::bulk("zero"));
    // A database selected inside a transaction stays selected.
    for command in [&["MULTI"][..], &["SELECT", "3"], &["EXEC"]] {
        assert!(!zero.command(command).is_error());
    }
    assert_eq!(zero.command(&["GET", "k"]), Reply::bulk("three"));
}

#[test]
fn each_client_speaks_its_own_protocol() {
    let rig = Rig::new(1);
    let (mut old, mut new) = (rig.client(), rig.client());
    let hello = new.command(&["HELLO", "3"]);
    assert_eq!(hello.get("proto").map(|v| v.integer()), Some(3));
    let id = hello.get("id").expect("an id").integer();
    assert_eq!(new.command(&["CLIENT", "ID"]).integer(), id);
    old.command(&["HSET", "h", "f", "v"]);
    old.send(&["HGETALL", "h"]);
    assert_eq!(old.read_frame(), b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    new.send(&["HGETALL", "h"]);
    assert_eq!(new.read_frame(), b"%1\r\n$1\r\nf\r\n$1\r\nv\r\n");
    assert!(new.command(&["HELLO", "4"]).error().starts_with("NOPROTO"));
    assert!(!new.command(&["HELLO", "2", "SETNAME", "me"]).is_error());
    assert_eq!(new.command(&["CLIENT", "GETNAME"]), Reply::bulk("me"));
    new.send(&["GET", "none"]);
    assert_eq!(new.read_frame(), b"$-1\r\n");
}

#[test]
fn clients_can_be_named_listed_and_killed() {
    let rig = Rig::new(2);
    let (mut one, mut two) = (rig.client(), rig.client());
    assert_eq!(one.command(&["CLIENT", "GETNAME"]), Reply::Null);
    assert_eq!(one.command(&["CLIENT", "SETNAME", "one"]), Reply::ok());
    assert!(one.command(&["CLIENT", "SETNAME", "a b"]).is_error());
    assert_eq!(one.command(&["CLIENT", "GETNAME"]), Reply::bulk("one"));
    assert_eq!(two.command(&["CLIENT", "GETNAME"]), Reply::Null);
    let list = two.command(&["CLIENT", "LIST"]).text();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("name=one"), "{list}");
    assert!(list.contains(&format!("addr={}", one.local_addr())), "{list}");
    assert!(two.command(&["CLIENT", "INFO"]).text().contains("cmd=client|info"));
    let id = one.command(&["CLIENT", "ID"]).integer().to_string();
    assert_eq!(two.command(&["CLIENT", "KILL", "ID", &id]).integer(), 1);
    one.expect_closed();
    assert_eq!(two.command(&["CLIENT", "KILL", "ID", &id]).integer(), 0);
    assert!(two.command(&["CLIENT", "KILL", "1.2.3.4:5"]).error().contains("No such client"));
    assert!(two.command(&["CLIENT", "KILL", "NONSENSE", "x"]).is_error());
    let me = two.local_addr().to_string();
    assert_eq!(two.command(&["CLIENT", "KILL", &me]), Reply::ok());
    two.expect_closed();
}

#[test]
fn replies_can_be_switched_off() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let mut bytes = encode(&["CLIENT", "REPLY", "OFF"]);
    bytes.extend(encode(&["SET", "a", "1"]));
    bytes.extend(encode(&["CLIENT", "REPLY", "ON"]));
    bytes.extend(encode(&["CLIENT", "REPLY", "SKIP"]));
    bytes.extend(encode(&["SET", "a", "2"]));
    bytes.extend(encode(&["GET", "a"]));
    client.send_raw(&bytes);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("2"));
}

#[test]
fn tracking_works_in_both_protocols() {
    let rig = Rig::new(2);
    let (mut new, mut writer) = (rig.client(), rig.client());
    new.command(&["HELLO", "3"]);
    assert_eq!(new.command(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
    new.command(&["GET", "a"]);
    writer.command(&["SET", "a", "1"]);
    assert_eq!(new.read_frame(), b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");

    let (mut listener, mut reader) = (rig.client(), rig.client());
    let id = listener.command(&["CLIENT", "ID"]).integer().to_string();
    listener.command(&["SUBSCRIBE", "__redis__:invalidate"]);
    assert_eq!(reader.command(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id]), Reply::ok());
    reader.command(&["GET", "b"]);
    writer.command(&["SET", "b", "1"]);
    let message = listener.read_reply();
    assert_eq!(message.items()[2], Reply::bulks(["b"]));
}

#[test]
fn monitor_and_unknown_commands_have_a_connection_of_their_own() {
    let rig = Rig::new(1);
    let (mut monitor, mut other) = (rig.client(), rig.client());
    assert_eq!(monitor.command(&["MONITOR"]), Reply::ok());
    other.command(&["SET", "seen", "1"]);
    let line = eventually(SOON, || {
        let line = monitor.read_reply().text();
        line.contains("seen").then_some(line)
    });
    assert!(line.contains("\"SET\" \"seen\" \"1\""), "{line}");
    for _ in 0..50 {
        assert!(other.command(&["NOSUCH", "x"]).error().starts_with("ERR unknown command"));
    }
    assert!(rig.server().info_u64("clients", "connected_clients") < 6);
    assert_eq!(other.command(&["GET", "seen"]), Reply::bulk("1"));
}

#[test]
fn the_list_of_clients_tells_who_is_blocked() {
    let rig = Rig::new(2);
    let (mut blocked, mut other) = (rig.client(), rig.client());
    let id = blocked.command(&["CLIENT", "ID"]).integer().to_string();
    let mut flags = || {
        let line = other.command(&["CLIENT", "LIST", "ID", &id]).text();
        let word = line.split(' ').find_map(|word| word.strip_prefix("flags="));
        word.expect("flags").to_owned()
    };
    assert_eq!(flags(), "N");
    blocked.send(&["BLPOP", "nothing", "0"]);
    eventually(SOON, || flags() == "b");
    rig.client().command(&["RPUSH", "nothing", "1"]);
    assert_eq!(blocked.read_reply(), Reply::bulks(["nothing", "1"]));
    eventually(SOON, || flags() == "N");
}

#[test]
fn wait_speaks_of_writes_on_the_shared_pipeline() {
    // Without the delay in which a primary hopes for further replicas.
    let rig = Rig::one_server()
        .servers(|server| server.arg("repl-diskless-sync-delay", "0"))
        .workers(1)
        .start();
    let mut replica = RedisServer::start();
    let port = rig.server().port().to_string();
    replica.client().command(&["REPLICAOF", "127.0.0.1", &port]);
    eventually(SOON, || replica.info("replication", "master_link_status") == "up");
    let mut client = rig.client();
    client.command(&["SET", "a", "1"]);
    assert_eq!(client.command(&["WAIT", "1", "5000"]).integer(), 1);
    assert_eq!(replica.client().command(&["GET", "a"]), Reply::bulk("1"));
    replica.pause();
    client.command(&["SET", "a", "2"]);
    assert_eq!(client.command(&["WAIT", "1", "50"]).integer(), 0);
    replica.resume();
    assert_eq!(client.command(&["WAIT", "1", "5000"]).integer(), 1);
}

#[test]
fn a_script_that_does_not_end_can_be_killed() {
    let rig = Rig::one_server()
        .servers(|server| server.arg("busy-reply-threshold", "50"))
        .workers(1)
        .start();
    let (mut busy, mut other) = (rig.client(), rig.client());
    busy.send(&["EVAL", "while true do end", "0"]);
    // Until the server calls the script slow, it cannot be killed.
    eventually(SOON, || other.command(&["SCRIPT", "KILL"]) == Reply::ok());
    assert!(busy.read_reply().error().contains("killed"));
    assert_eq!(other.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_pause_can_be_ended_by_a_client_of_the_same_worker() {
    let rig = Rig::new(1);
    let (mut writer, mut other) = (rig.client(), rig.client());
    assert_eq!(other.command(&["CLIENT", "PAUSE", "60000", "WRITE"]), Reply::ok());
    writer.send(&["SET", "a", "1"]);
    wait_blocked(&rig, 1);
    assert_eq!(other.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
    assert_eq!(writer.read_reply(), Reply::ok());
}

#[test]
fn quit_answers_what_came_before_it_and_closes() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let mut bytes = encode(&["SET", "a", "1"]);
    bytes.extend(encode(&["GET", "a"]));
    bytes.extend(encode(&["QUIT"]));
    bytes.extend(encode(&["SET", "a", "2"]));
    client.send_raw(&bytes);
    assert_eq!(client.read_to_close(), b"+OK\r\n$1\r\n1\r\n+OK\r\n");
    assert_eq!(rig.client().command(&["GET", "a"]), Reply::bulk("1"));
}

#[test]
fn a_client_that_shuts_its_side_still_gets_its_replies() {
    let rig = Rig::new(1);
    for command in [&["GET", "none"][..], &["MULTI"]] {
        let mut client = rig.client();
        client.send_raw(&encode(command).repeat(1000));
        client.shutdown_write();
        let frames = client.read_to_close();
        assert_eq!(frames.split(|b| *b == b'\n').count(), 1001);
    }
}

#[test]
fn scripts_and_functions_work() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
    assert_eq!(client.command(&["EVAL", script, "1", "n", "5"]).integer(), 5);
    let sha = client.command(&["SCRIPT", "LOAD", script]).text();
    assert_eq!(client.command(&["EVALSHA", &sha, "1", "n", "5"]).integer(), 10);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    assert_eq!(client.command(&["FUNCTION", "LOAD", library]), Reply::bulk("lib"));
    assert_eq!(client.command(&["FCALL", "f", "0"]).integer(), 7);
}

#[test]
fn inline_commands_and_requests_split_at_every_byte() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    client.send_raw(b"SET a \"x y\"\r\n\r\nGET a\nPING\r\n");
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("x y"));
    assert_eq!(client.read_reply().text(), "PONG");
    client.stream().set_nodelay(true).expect("a socket option");
    let bytes = [encode(&["SET", "a\r\n\0", "b\0\r\n"]), encode(&["GET", "a\r\n\0"])].concat();
    for byte in bytes {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("b\0\r\n"));
}

#[test]
fn pipelines_of_any_depth_come_back_in_order() {
    let rig = Rig::new(2);
    let writer = rig.client();
    let mut sending = RawClient::connect(rig.addr());
    drop(writer);
    // All of it is written before anything is read.
    let bytes: Vec<u8> =
        (0..200_000).flat_map(|n: u32| encode(&["ECHO", &n.to_string()])).collect();
    sending.send_raw(&bytes);
    for n in 0..200_000_u32 {
        assert_eq!(sending.read_reply(), Reply::bulk(n.to_string()));
    }
}

#[test]
fn a_blocking_command_sent_in_leaving_is_left_too() {
    let rig = Rig::new(1);
    for _ in 0..50 {
        let mut client = rig.client();
        client.send_raw(&[encode(&["INCR", "seen"]), encode(&["BLPOP", "queue", "0"])].concat());
    }
    let mut server = rig.server().client();
    eventually(SOON, || server.command(&["GET", "seen"]) == Reply::bulk("50"));
    eventually(SOON, || rig.heatsink().proxy().client_count() == 0);
    wait_blocked(&rig, 0);
    let mut other = rig.client();
    for n in 1..=20 {
        assert_eq!(other.command(&["RPUSH", "queue", "x"]).integer(), n);
    }
}

#[test]
fn whoever_leaves_in_the_middle_of_a_large_request_leaves_nothing_behind() {
    let rig = Rig::new(1);
    let mut other = rig.client();
    other.command(&["PING"]);
    for _ in 0..10 {
        let mut client = rig.client();
        client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$10000000\r\n");
        client.send_raw(&vec![b'x'; 2_000_000]);
    }
    eventually(SOON, || other.command(&["CLIENT", "LIST"]).text().lines().count() == 1);
    eventually(SOON, || rig.server().info_u64("clients", "connected_clients") == 2);
    assert_eq!(other.command(&["EXISTS", "a"]).integer(), 0);
}

#[test]
fn a_block_option_is_found_wherever_it_stands() {
    let rig = Rig::new(1);
    let (mut waiting, mut other) = (rig.client(), rig.client());
    other.command(&["XGROUP", "CREATE", "s", "streams", "$", "MKSTREAM"]);
    let read = ["XREADGROUP", "GROUP", "streams", "me", "BLOCK", "0", "STREAMS", "s", ">"];
    waiting.send(&read);
    wait_blocked(&rig, 1);
    assert_eq!(other.command(&["PING"]).text(), "PONG");
    other.command(&["XADD", "s", "1-1", "f", "v"]);
    assert!(!waiting.read_reply().is_error());
}

#[test]
fn a_client_that_shut_its_side_gets_all_of_a_large_transaction() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["SET", "big", &"x".repeat(2 << 20)]);
    let mut bytes = encode(&["MULTI"]);
    bytes.extend(encode(&["GET", "big"]).repeat(6));
    bytes.extend(encode(&["EXEC"]));
    client.send_raw(&bytes);
    client.shutdown_write();
    // Until the server has executed it, so that everything waits for this client.
    eventually(SOON, || rig.server().calls("exec") == 1);
    for _ in 0..7 {
        assert!(!client.read_reply().is_error());
    }
    assert_eq!(client.read_reply().items().len(), 6);
    client.expect_closed();
}

/// Its name reaches a connection of its own that it had before.
#[test]
fn a_name_given_while_watching_or_subscribed_is_the_clients_name_afterwards() {
    let rig = Rig::new(1);
    let mut watching = rig.client();
    assert_eq!(watching.command(&["WATCH", "k"]), Reply::ok());
    assert_eq!(watching.command(&["CLIENT", "SETNAME", "one"]), Reply::ok());
    assert_eq!(watching.command(&["MULTI"]), Reply::ok());
    watching.command(&["CLIENT", "GETNAME"]);
    assert_eq!(watching.command(&["EXEC"]).items()[0].text(), "one");
    assert_eq!(watching.command(&["CLIENT", "GETNAME"]).text(), "one");

    let mut subscribed = rig.client();
    subscribed.command(&["HELLO", "3"]);
    subscribed.command(&["SUBSCRIBE", "news"]);
    assert_eq!(subscribed.command(&["CLIENT", "SETNAME", "two"]), Reply::ok());
    // Its connection has a database of its own from now on.
    assert_eq!(subscribed.command(&["SELECT", "0"]), Reply::ok());
    assert_eq!(subscribed.command(&["CLIENT", "GETNAME"]).text(), "two");
}

#[test]
fn what_a_client_that_wants_no_replies_sends_before_it_leaves_arrives() {
    let rig = Rig::new(1);
    for n in 0..20 {
        let mut client = rig.client();
        client.send(&["CLIENT", "REPLY", "OFF"]);
        client.send(&["SET", &format!("k{n}"), "1"]);
    }
    eventually(SOON, || rig.client().command(&["DBSIZE"]).integer() == 20);
}

/// One that waits for a new connection is not overtaken by one that finds a connection which has
/// become free meanwhile.
#[test]
fn blocked_clients_are_served_in_the_order_in_which_they_came() {
    let server = RedisServer::start();
    let blocked = || server.info_u64("clients", "blocked_clients");
    for named in [false, true] {
        let relay = Relay::before(server.addr());
        let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
        let name = |n: usize| format!("client{n}");
        let mut clients: [RawClient; 4] = std::array::from_fn(|n| {
            let mut client = heatsink.client();
            if named {
                assert_eq!(client.command(&["CLIENT", "SETNAME", &name(n)]), Reply::ok());
            }
            client
        });
        let [first, second, other, writer] = &mut clients;
        other.command(&["CLIENT", "SETNAME", "other"]);
        assert_eq!(other.command(&["WATCH", "k"]), Reply::ok());
        // The greeting of connections that are opened from now on is not heard.
        relay.set(Way::HoldRequest(encode(&["CLIENT", "ID"])));
        first.send(&["BLPOP", "queue", "0"]);
        relay.wait_request_held();
        assert_eq!(other.command(&["UNWATCH"]), Reply::ok());
        second.send(&["BLPOP", "queue", "0"]);
        eventually(SOON, || blocked() == 1);
        relay.set(Way::Open);
        eventually(SOON, || blocked() == 2);
        for (n, client) in [first, second].into_iter().enumerate() {
            let value = format!("value{n}");
            assert_eq!(writer.command(&["RPUSH", "queue", &value]), Reply::Integer(1));
            assert_eq!(client.read_reply(), Reply::bulks(["queue", &value]));
            // The connection carries its own name, not that of whoever had it before.
            client.command(&["MULTI"]);
            client.command(&["CLIENT", "GETNAME"]);
            let told = client.command(&["EXEC"]).items()[0].clone();
            assert_eq!(told, if named { Reply::bulk(name(n)) } else { Reply::Null });
        }
    }
}

/// Nobody who blocks waits for a connection where others have blocked before, on whatever worker.
#[test]
fn blocked_clients_of_two_workers_are_served_in_the_order_in_which_they_came() {
    let server = RedisServer::start();
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 2);
    // A connection is ready when it has been told its number.
    let ready = || server.calls("client|id");
    let blocked = || server.info_u64("clients", "blocked_clients");
    // They are dealt out to the workers in turn.
    let mut clients: [RawClient; 4] = std::array::from_fn(|_| {
        let mut client = heatsink.client();
        assert_eq!(client.command(&["PING"]).text(), "PONG");
        client
    });
    let [before, second, first, writer] = &mut clients;
    let shared = ready();
    before.send(&["BLPOP", "other", "0"]);
    eventually(SOON, || blocked() == 1);
    // Its own, and a spare one of each worker.
    eventually(SOON, || ready() == shared + 3);
    // From now on none can be opened.
    relay.set(Way::HoldRequest(encode(&["CLIENT", "ID"])));
    first.send(&["BLPOP", "queue", "0"]);
    eventually(SOON, || blocked() == 2);
    second.send(&["BLPOP", "queue", "0"]);
    eventually(SOON, || blocked() == 3);
    relay.set(Way::Open);
    for (n, client) in [first, second].into_iter().enumerate() {
        let value = format!("value{n}");
        assert_eq!(writer.command(&["RPUSH", "queue", &value]), Reply::Integer(1));
        assert_eq!(client.read_reply(), Reply::bulks(["queue", &value]));
    }
}

/// Whether somebody who comes now is answered, and with what.
fn newcomer(rig: &Rig, command: &[&str]) -> Option<Reply> {
    let mut client = rig.client();
    client.set_timeout(Duration::from_millis(200));
    client.try_command(command).ok()
}

/// Ticks are far apart while nobody asks anything; a request brings the next one near.
#[test]
fn a_script_is_noticed_as_soon_behind_a_pause_of_all_clients() {
    for _ in 0..3 {
        let rig = Rig::one_server()
            .servers(|server| server.arg("busy-reply-threshold", "10"))
            .workers(1)
            .start();
        let (mut busy, mut other) = (rig.client(), rig.client());
        // In a database that a new connection has to select first, which the server refuses then.
        assert_eq!(busy.command(&["SELECT", "9"]), Reply::ok());
        assert_eq!(other.command(&["SELECT", "9"]), Reply::ok());
        // Nothing happens, whatever the machine does meanwhile: the time is what is tested.
        thread::sleep(Duration::from_millis(300));
        busy.send(&["EVAL", "while true do end", "0"]);
        thread::sleep(Duration::from_millis(400));
        other.set_timeout(Duration::from_secs(5));
        assert!(other.command(&["PING"]).error().starts_with("BUSY"));
        // In that database nothing can be asked, not even this.
        assert_eq!(rig.client().command(&["SCRIPT", "KILL"]), Reply::ok());
        assert!(busy.read_reply().error().contains("killed"));
    }
}

#[test]
fn a_script_that_does_not_end_holds_up_nobody_who_comes_later() {
    let rig = Rig::one_server()
        .servers(|server| server.arg("busy-reply-threshold", "50"))
        .workers(1)
        .start();
    let (mut busy, mut behind, mut other) = (rig.client(), rig.client(), rig.client());
    let is_valkey = rig.server().is_valkey();
    busy.send(&["EVAL", "while true do end", "0"]);
    behind.send_raw(&[encode(&["SET", "a", "1"]), encode(&["INCR", "a"])].concat());
    eventually(SOON, || {
        newcomer(&rig, &["GET", "a"]).is_some_and(|reply| reply.error().starts_with("BUSY"))
    });
    // So for whoever has been there before and has nothing under way, whatever it asks.
    assert!(other.command(&["GET", "a"]).error().starts_with("BUSY"));
    // Valkey 9 lets others change the database meanwhile.
    if !is_valkey {
        assert!(other.command(&["SELECT", "1"]).error().starts_with("BUSY"));
    }
    assert!(other.command(&["DBSIZE"]).error().starts_with("BUSY"));
    eventually(SOON, || other.command(&["SCRIPT", "KILL"]) == Reply::ok());
    assert!(busy.read_reply().error().contains("killed"));
    assert_eq!([behind.read_reply(), behind.read_reply()], [Reply::ok(), Reply::Integer(2)]);
    assert_eq!(other.command(&["INCR", "a"]).integer(), 3);
    // The second link goes: the pipeline, the one that the script was killed on, and the kit's own.
    eventually(SOON, || rig.server().info_u64("clients", "connected_clients") == 3);
    assert_eq!(other.command(&["INCR", "a"]).integer(), 4);
}

#[test]
fn a_pause_for_writers_holds_up_no_readers_who_come_later() {
    let rig = Rig::new(1);
    let mut pauser = rig.server().client();
    let mut writer = rig.client();
    pauser.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let pipeline = [&["INCR", "n"][..], &["GET", "n"], &["INCR", "n"]];
    writer.send_raw(&pipeline.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    eventually(SOON, || newcomer(&rig, &["GET", "n"]) == Some(Reply::Null));
    // One that has something under way does not overtake itself.
    writer.send(&["GET", "n"]);
    let mut reader = rig.client();
    for _ in 0..100 {
        assert_eq!(reader.command(&["GET", "n"]), Reply::Null);
    }
    pauser.command(&["CLIENT", "UNPAUSE"]);
    assert_eq!(writer.read_reply().integer(), 1);
    assert_eq!(writer.read_reply(), Reply::bulk("1"));
    assert_eq!(writer.read_reply().integer(), 2);
    assert_eq!(writer.read_reply(), Reply::bulk("2"));
    assert_eq!(reader.command(&["GET", "n"]), Reply::bulk("2"));
}

/// A connection that becomes free is not given to a client that waits as another user.
#[test]
fn connections_go_to_clients_of_the_same_user_only() {
    let server = RedisServer::start();
    let mut direct = server.client();
    direct.command(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all"]);
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
    let (mut first, mut other) = (heatsink.client(), heatsink.client());
    assert_eq!(first.command(&["AUTH", "app", "x"]), Reply::ok());
    assert_eq!(other.command(&["WATCH", "k"]), Reply::ok());
    relay.set(Way::HoldRequest(encode(&["CLIENT", "ID"])));
    first.send_raw(&[encode(&["MULTI"]), encode(&["ACL", "WHOAMI"]), encode(&["EXEC"])].concat());
    relay.wait_request_held();
    assert_eq!(other.command(&["UNWATCH"]), Reply::ok());
    relay.set(Way::Open);
    assert_eq!(first.read_reply(), Reply::ok());
    assert_eq!(first.read_reply().text(), "QUEUED");
    assert_eq!(first.read_reply(), Reply::bulks(["app"]));
}

/// What a transaction cannot hold is refused, and the transaction fails.
#[test]
fn what_changes_a_connection_has_no_place_in_a_transaction() {
    let rig = Rig::new(1);
    for request in [
        &["SUBSCRIBE", "a"][..],
        &["HELLO", "3", "SETNAME", "a"],
        &["CLIENT", "REPLY", "OFF"],
        &["MONITOR"],
        &["SYNC"],
    ] {
        let mut client = rig.client();
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["SET", "a", "1"]).text(), "QUEUED");
        let refused = client.command(request).error();
        assert!(refused.starts_with("ERR heatsink: not possible"), "{request:?}: {refused}");
        assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"), "{request:?}");
        assert_eq!(client.command(&["EXISTS", "a"]), Reply::Integer(0), "{request:?}");
    }
}

/// A spare connection has been idle for longer than a server may be silent; its new client has a name,
/// which the connection is told first. The server has all its time to answer what the client asks.
#[test]
fn a_client_with_a_name_is_not_given_up_on_a_connection_that_was_idle() {
    const SILENCE: Duration = Duration::from_millis(600);
    let mut rig = Rig::with(RedisServer::builder(), |config| {
        config.workers = 1;
        config.live.timeouts.silence = Some(SILENCE);
    });
    let (mut first, mut named) = (rig.client(), rig.client());
    assert_eq!(named.command(&["CLIENT", "SETNAME", "somebody"]), Reply::ok());
    assert_eq!(first.command(&["WATCH", "k"]), Reply::ok());
    assert_eq!(first.command(&["UNWATCH"]), Reply::ok());
    // Nothing happens: the time is what is tested.
    thread::sleep(SILENCE + SILENCE / 2);
    rig.server_mut().pause();
    named.send(&["WATCH", "k"]);
    thread::sleep(SILENCE / 3);
    rig.server_mut().resume();
    assert_eq!(named.read_reply(), Reply::ok());
    assert_eq!(named.command(&["MULTI"]), Reply::ok());
    assert_eq!(named.command(&["EXEC"]), Reply::Array(Vec::new()));
}
