//! Bounds: over a limit there is a clear error, then the end; others notice nothing.

use std::time::{Duration, Instant};

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

const SOON: Duration = Duration::from_secs(5);

#[test]
fn one_client_too_many_is_told_so() {
    let rig = Rig::with(RedisServer::builder(), |config| config.live.limits.max_clients = 2);
    let (mut one, mut two) = (rig.client(), rig.client());
    one.command(&["PING"]);
    two.command(&["PING"]);
    let mut three = rig.client();
    assert_eq!(three.read_reply().error(), "ERR max number of clients reached");
    three.expect_closed();
    assert_eq!(one.command(&["PING"]).text(), "PONG");
    drop(two);
    eventually(SOON, || rig.client().try_command(&["PING"]).is_ok_and(|r| r.text() == "PONG"));
}

#[test]
fn requests_over_the_limits_or_malformed_end_the_connection() {
    let rig = Rig::with(RedisServer::builder(), |config| {
        config.live.limits.max_bulk_bytes = 1000;
        config.live.limits.max_args = 5;
        config.live.limits.max_request_bytes = 2000;
    });
    let mut bystander = rig.client();
    let too_big = encode(&["MSET", &"k".repeat(900), &"v".repeat(900), "k", &"v".repeat(900)]);
    for (bytes, error) in [
        (&b"*6\r\n"[..], "invalid multibulk length"),
        (b"*2\r\n$3\r\nGET\r\n$1001\r\n", "invalid bulk length"),
        (&too_big, "too big request"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx", "expected CRLF after bulk string"),
        (b"*abc\r\n", "invalid multibulk length"),
        (b"SET \"a\r\n", "unbalanced quotes in request"),
        (&[b'x'; 3000], "too big inline request"),
    ] {
        let mut client = rig.client();
        // What came before is answered first.
        client.send_raw(&[&encode(&["ECHO", "before"]), bytes].concat());
        assert_eq!(client.read_reply(), Reply::bulk("before"));
        let reply = client.read_reply().error();
        assert_eq!(reply, format!("ERR Protocol error: {error}"));
        client.expect_closed();
        assert_eq!(bystander.command(&["PING"]).text(), "PONG");
    }
    // As a server does with a browser.
    let mut client = rig.client();
    client.send_raw(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.expect_closed();
}

#[test]
fn a_request_cut_off_is_forgotten() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nab");
    client.shutdown_write();
    client.expect_closed();
    assert_eq!(rig.client().command(&["GET", "a"]), Reply::Null);
}

#[test]
fn a_client_that_does_not_read_is_closed_and_others_go_on() {
    let rig = Rig::with(RedisServer::builder(), |config| {
        config.live.limits.max_output_bytes = 8 << 20;
    });
    let mut other = rig.client();
    other.command(&["SET", "big", &"x".repeat(1 << 20)]);
    let mut slow = rig.client();
    slow.send_raw(&encode(&["GET", "big"]).repeat(100));
    eventually(SOON, || {
        let list = other.command(&["CLIENT", "LIST"]).text();
        list.lines().count() == 1
    });
    assert_eq!(other.command(&["GET", "none"]), Reply::Null);
}

#[test]
fn a_slow_reader_gets_everything_within_the_limit() {
    let rig = Rig::new(1);
    let mut other = rig.client();
    other.command(&["SET", "big", &"x".repeat(4 << 20)]);
    let mut slow = rig.client();
    slow.send_raw(&encode(&["GET", "big"]).repeat(10));
    slow.send_raw(&encode(&["INCR", "n"]));
    eventually(SOON, || other.command(&["GET", "n"]) == Reply::bulk("1"));
    for _ in 0..10 {
        assert_eq!(slow.read_reply().text().len(), 4 << 20);
    }
    assert_eq!(slow.read_reply().integer(), 1);
    // From now on it has a connection of its own, and nothing is different.
    for n in 2..10 {
        assert_eq!(slow.command(&["INCR", "n"]).integer(), n);
    }
}

#[test]
fn values_larger_than_any_buffer_pass_both_ways() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let value: Vec<u8> =
        (0..24_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client.send_raw(&encode(&[&b"INCR"[..], b"n"]));
    client.send_raw(&encode(&[&b"SET"[..], b"big", &value]));
    client.send_raw(&encode(&[&b"INCR"[..], b"n"]));
    assert_eq!(client.read_reply().integer(), 1);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply().integer(), 2);
    let direct = rig.server().client().command(&["GET", "big"]);
    assert!(direct == Reply::bulk(&value));
    assert!(client.command(&["GET", "big"]) == Reply::bulk(&value));
    assert_eq!(client.command(&["GET", "n"]), Reply::bulk("2"));
    // A large request whose end is wrong has had its chance.
    client.send_raw(b"*3\r\n$3\r\nSET\r\n$3\r\nbad\r\n$1048576\r\n");
    client.send_raw(&vec![b'y'; (1 << 20) + 2]);
    assert!(client.read_reply().error().contains("expected CRLF"));
    client.expect_closed();
    assert_eq!(rig.client().command(&["EXISTS", "bad"]).integer(), 0);
}

#[test]
fn many_arguments_are_read_in_linear_time() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    let args: Vec<String> =
        std::iter::once("MGET".to_owned()).chain((0..200_000).map(|n| n.to_string())).collect();
    assert_eq!(client.command(&args).items().len(), 200_000);
    // Not passed on before it is complete, because it changes the connection's state; few
    // keys, because the server compares each with all before it.
    let args: Vec<String> = std::iter::once("WATCH".to_owned())
        .chain((0..2000).map(|n| format!("{n:0>400}")))
        .collect();
    assert_eq!(client.command(&args), Reply::ok());
}

#[test]
fn idle_clients_are_closed_and_busy_or_listening_ones_are_not() {
    let rig = Rig::with(RedisServer::builder(), |config| {
        config.live.limits.idle = Some(Duration::from_millis(300));
    });
    let (mut idle, mut subscriber, mut blocked) = (rig.client(), rig.client(), rig.client());
    idle.command(&["PING"]);
    subscriber.command(&["SUBSCRIBE", "a"]);
    blocked.send(&["BLPOP", "queue", "0"]);
    idle.expect_closed();
    let mut other: RawClient = rig.client();
    assert_eq!(other.command(&["PUBLISH", "a", "m"]).integer(), 1);
    assert_eq!(other.command(&["RPUSH", "queue", "x"]).integer(), 1);
    assert_eq!(blocked.read_reply(), Reply::bulks(["queue", "x"]));
    assert_eq!(subscriber.read_reply(), Reply::bulks(["message", "a", "m"]));
}

#[test]
fn a_server_that_does_not_read_stops_the_clients_not_the_proxy() {
    let mut rig = Rig::with(RedisServer::builder(), |config| config.live.timeouts.silence = None);
    let mut sender = rig.client();
    sender.command(&["PING"]);
    rig.server_mut().pause();
    // Far more than what may be queued: the proxy stops reading, so this blocks.
    sender.stream().set_write_timeout(Some(Duration::from_millis(300))).expect("a socket option");
    let request = encode(&["SET", "k", &"v".repeat(60_000)]);
    let sent = (0..4000).take_while(|_| sender.try_send_raw(&request).is_ok()).count();
    assert!(sent < 1000, "{sent} requests of 60 kB were taken while the server stood still");
    rig.server_mut().resume();
    let mut other = rig.client();
    assert_eq!(other.command(&["PING"]).text(), "PONG");
    for _ in 0..sent {
        assert_eq!(sender.read_reply(), Reply::ok());
    }
}

#[test]
fn a_client_is_idle_from_the_end_of_its_wait_not_from_its_start() {
    let rig = Rig::with(RedisServer::builder(), |config| {
        config.live.limits.idle = Some(Duration::from_millis(1500));
    });
    let mut client = rig.client();
    assert_eq!(client.command(&["BLPOP", "queue", "1.9"]), Reply::Null);
    assert_eq!(client.command(&["BLPOP", "queue", "1.2"]), Reply::Null);
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_large_reply_that_nobody_reads_holds_others_up_only_briefly() {
    let rig = Rig::new(1);
    let mut other = rig.client();
    other.command(&["SET", "big", &"x".repeat(64 << 20)]);
    let mut slow = rig.client();
    slow.send(&["GET", "big"]);
    eventually(SOON, || rig.server().calls("get") == 1);
    let start = Instant::now();
    assert_eq!(other.command(&["PING"]).text(), "PONG");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(slow.read_reply().text().len(), 64 << 20);
}

/// What a client reads of one reply is right to its end.
fn expect_whole(client: &mut RawClient, len: usize) {
    assert_eq!(client.read_reply().text().len(), len);
}

#[test]
fn over_the_total_the_slowest_client_is_closed_and_others_go_on() {
    const LEN: usize = 32 << 20;
    for workers in [1, 2] {
        let rig = Rig::with(RedisServer::builder(), |config| {
            config.workers = workers;
            config.live.limits.max_total_output_bytes = 40 << 20;
        });
        let handle = rig.heatsink().proxy().handle();
        let mut other = rig.client();
        other.command(&["SET", "big", &"x".repeat(LEN)]);
        let ask = || {
            let before = handle.output().unread_bytes;
            let mut client = rig.client();
            client.set_timeout(SOON);
            client.send(&["GET", "big"]);
            // What it has not read is more than sockets take.
            eventually(SOON, || handle.output().unread_bytes != before);
            client
        };
        let mut slowest = ask();
        eventually(SOON, || handle.output().unread_bytes > 20 << 20);
        std::thread::sleep(Duration::from_millis(50));
        let mut later = ask();
        // Both do not fit: the first one, which has waited longer, goes, and the other does not.
        eventually(SOON, || handle.output().closed_total == 1);
        assert!(slowest.read_to_close().len() < LEN);
        expect_whole(&mut later, LEN);
        assert_eq!(other.command(&["PING"]).text(), "PONG");
        eventually(SOON, || handle.output().unread_bytes == 0);
        assert_eq!(handle.output().closed_total, 1);
    }
}

/// A client that goes on sending notices soon that it was closed for what it had sent.
#[test]
fn a_client_that_breaks_the_protocol_and_does_not_listen_is_closed_soon() {
    let rig = Rig::new(1);
    // The best of some: the machine may be busy.
    let times = (0..5).map(|_| {
        let mut client = rig.client();
        let start = Instant::now();
        client.send_raw(b"*x\r\n");
        while client.try_send_raw(&[b'A'; 1024]).is_ok() && start.elapsed() < SOON {}
        start.elapsed()
    });
    let best = times.min().unwrap();
    assert!(best < Duration::from_millis(400), "{best:?}");
}

/// Many clients that each send most of a large request, and then nothing more.
#[test]
fn over_the_total_of_unfinished_requests_the_largest_is_refused_and_others_go_on() {
    const LEN: usize = 3 << 20;
    const MAX: u64 = 10 << 20;
    const END: usize = 10;
    for workers in [1, 2] {
        let rig = Rig::with(RedisServer::builder(), |config| {
            config.workers = workers;
            config.live.limits.max_total_input_bytes = MAX;
        });
        let handle = rig.heatsink().proxy().handle();
        let mut other = rig.client();
        // Of several keys, so that it is held until it is complete; this is all but its end.
        let begin = |len: usize| {
            let mut client = rig.client();
            client.set_timeout(SOON);
            let before = handle.input();
            let bytes = encode(&["MSET", "a", &"x".repeat(len), "b", "y"]);
            client.send_raw(&bytes[..bytes.len() - END]);
            eventually(SOON, || {
                let now = handle.input();
                now.held_bytes >= before.held_bytes + len as u64
                    || now.closed_total > before.closed_total
            });
            (client, bytes)
        };
        let small: Vec<_> = (0..4).map(|_| begin(LEN / 8)).collect();
        let mut large: Vec<_> = (0..8).map(|_| begin(LEN)).collect();
        eventually(SOON, || {
            let now = handle.input();
            now.held_bytes <= MAX && now.closed_total >= 5
        });
        for (mut client, bytes) in small {
            client.send_raw(&bytes[bytes.len() - END..]);
            assert_eq!(client.read_reply(), Reply::ok(), "it is not the largest");
        }
        let refused = large.iter_mut().filter_map(|(client, bytes)| {
            let _ = client.try_send_raw(&bytes[bytes.len() - END..]);
            match client.try_read_reply() {
                Ok(Reply::Error(error)) => {
                    assert!(error.contains("too many bytes of unfinished requests"), "{error}");
                    client.expect_closed();
                    Some(())
                }
                reply => {
                    assert_eq!(reply.expect("an answer"), Reply::ok());
                    None
                }
            }
        });
        // The last one may have been closed before all of it had come, and another one for the rest.
        assert_eq!(refused.count() as u64, handle.input().closed_total);
        assert_eq!(other.command(&["PING"]).text(), "PONG");
        eventually(SOON, || handle.input().held_bytes == 0);
        // There is room again.
        assert_eq!(other.command(&["MSET", "a", &"x".repeat(LEN), "b", "y"]), Reply::ok());
    }
}
