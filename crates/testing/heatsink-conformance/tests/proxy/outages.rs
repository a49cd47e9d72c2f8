//! The server goes away, stands still, or comes back.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{Heatsink, Rig, RigBuilder};
use heatsink_proxy::config::Target;
use heatsink_testkit::{RedisServer, Reply, encode, eventually};
use heatsink_upstream::address::Endpoint;

const SOON: Duration = Duration::from_secs(5);

fn assert_prompt(start: Instant) {
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn whoever_waits_is_told_at_once_and_stays_connected() {
    let mut rig = Rig::new(2);
    let mut clients: Vec<_> = (0..10).map(|_| rig.client()).collect();
    for client in &mut clients {
        client.command(&["PING"]);
    }
    rig.server_mut().pause();
    for client in &mut clients {
        client.send_raw(&encode(&["INCR", "n"]).repeat(3));
    }
    let start = Instant::now();
    rig.server_mut().kill();
    let endpoint = rig.server().addr();
    for client in &mut clients {
        for _ in 0..3 {
            let error = client.read_reply().error();
            let expected = format!("ERR heatsink: upstream {endpoint} unavailable: ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
    assert_prompt(start);
    // While it is away, so is every command that needs it.
    let start = Instant::now();
    for client in &mut clients {
        for command in
            [&["GET", "a"][..], &["BLPOP", "l", "0"], &["SELECT", "1"], &["CLIENT", "ID"]]
        {
            let error = client.command(command).error();
            assert!(error.contains("unavailable: connection refused"), "{command:?}: {error}");
        }
    }
    assert_prompt(start);
    rig.server_mut().start_again();
    for client in &mut clients {
        eventually(SOON, || client.command(&["SET", "a", "1"]) == Reply::ok());
    }
}

#[test]
fn service_resumes_within_100_ms() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["PING"]);
    // The best of a few: what else the machine does is not the question.
    let fastest = (0..5)
        .map(|_| {
            rig.server_mut().kill();
            assert!(client.command(&["GET", "a"]).is_error());
            rig.server_mut().start_again();
            let start = Instant::now();
            eventually(SOON, || client.command(&["SET", "a", "1"]) == Reply::ok());
            start.elapsed()
        })
        .min();
    assert!(fastest < Some(Duration::from_millis(100)), "{fastest:?}");
}

#[test]
fn it_can_start_before_its_server() {
    let mut server = RedisServer::start();
    server.stop();
    let port = server.port();
    let rig = Rig::with(RedisServer::builder(), |config| {
        config.upstream.target = Target::Server(Endpoint::tcp("localhost", port));
    });
    let mut client = rig.client();
    let error = client.command(&["GET", "a"]).error();
    assert!(error.contains(&format!("upstream localhost:{port} unavailable")), "{error}");
    server.start_again();
    eventually(SOON, || client.command(&["SET", "a", "1"]) == Reply::ok());
}

#[test]
fn a_server_that_stands_still_is_given_up() {
    let mut rig = Rig::with(RedisServer::builder(), |config| {
        config.live.timeouts.silence = Some(Duration::from_millis(200));
    });
    let mut client = rig.client();
    client.command(&["PING"]);
    rig.server_mut().pause();
    let error = client.command(&["SET", "a", "1"]).error();
    assert!(error.contains("no answer in time"), "{error}");
    assert!(error.contains("unknown whether the command was executed"), "{error}");
    rig.server_mut().resume();
    eventually(SOON, || !client.command(&["GET", "a"]).is_error());
}

#[test]
fn a_transaction_whose_connection_is_lost_fails_as_a_whole() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["MULTI"]);
    client.command(&["SET", "a", "1"]);
    rig.server_mut().restart();
    // Outside of its transaction this would be executed at once.
    assert!(client.command(&["SET", "b", "1"]).is_error());
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
    assert_eq!(client.command(&["MGET", "a", "b"]).items(), [Reply::Null, Reply::Null]);

    client.command(&["MULTI"]);
    rig.server_mut().restart();
    assert!(client.command(&["SET", "a", "1"]).is_error());
    assert_eq!(client.command(&["DISCARD"]), Reply::ok());
    assert_eq!(client.command(&["GET", "a"]), Reply::Null);
}

#[test]
fn a_transaction_that_cannot_begin_executes_nothing() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["PING"]);
    rig.server_mut().kill();
    let commands = [&["MULTI"][..], &["SET", "a", "1"], &["EXEC"]];
    client.send_raw(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    assert_eq!(client.read_reply(), Reply::ok());
    assert!(client.read_reply().is_error());
    assert!(client.read_reply().error().starts_with("EXECABORT"));
    rig.server_mut().start_again();
    eventually(SOON, || client.command(&["GET", "a"]) == Reply::Null);
}

#[test]
fn a_lost_watch_fails_the_next_transaction() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["WATCH", "a"]);
    rig.server_mut().restart();
    eventually(SOON, || client.command(&["GET", "a"]) == Reply::Null);
    for command in [&["MULTI"][..], &["SET", "a", "1"]] {
        client.command(command);
    }
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
    assert_eq!(client.command(&["GET", "a"]), Reply::Null);
}

#[test]
fn replies_stay_in_order_when_a_watch_was_lost() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    client.command(&["WATCH", "a"]);
    rig.server_mut().restart();
    eventually(SOON, || client.command(&["SET", "a", "1"]) == Reply::ok());
    let commands = [&["GET", "a"][..], &["MULTI"], &["SET", "b", "1"], &["EXEC"], &["GET", "a"]];
    client.send_raw(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    assert_eq!(client.read_reply(), Reply::bulk("1"));
    assert_eq!(client.read_reply(), Reply::ok());
    assert!(client.read_reply().is_error());
    assert!(client.read_reply().error().starts_with("EXECABORT"));
    assert_eq!(client.read_reply(), Reply::bulk("1"));
}

#[test]
fn subscribers_and_half_told_replies_are_closed() {
    let mut rig = Rig::new(1);
    let mut subscriber = rig.client();
    subscriber.command(&["SUBSCRIBE", "a"]);
    let mut reader = rig.client();
    reader.command(&["SET", "big", &"x".repeat(64 << 20)]);
    let mut other = rig.client();
    other.send(&["GET", "big"]);
    assert!(other.read_exact_bytes(1000).starts_with(b"$67108864\r\n"));
    // More of the same client, behind somebody else: its errors must not be told either.
    reader.send(&["GET", "a"]);
    other.send(&["GET", "a"]);
    rig.server_mut().kill();
    subscriber.expect_closed();
    // It got a part: the rest never comes, and no error could be told from the value.
    assert!(other.read_to_close().iter().all(|b| *b == b'x'));
    assert!(reader.read_reply().is_error());
    rig.server_mut().start_again();
    eventually(SOON, || reader.command(&["SET", "a", "1"]) == Reply::ok());
}

#[test]
fn a_transaction_at_a_server_that_stands_still_is_given_up_too() {
    let mut rig = Rig::with(RedisServer::builder(), |config| {
        config.live.timeouts.silence = Some(Duration::from_millis(200));
    });
    let (mut client, mut blocked) = (rig.client(), rig.client());
    client.command(&["MULTI"]);
    blocked.send(&["BLPOP", "queue", "0"]);
    eventually(SOON, || rig.server().info_u64("clients", "blocked_clients") == 1);
    rig.server_mut().pause();
    assert!(client.command(&["SET", "a", "1"]).error().contains("no answer in time"));
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
    rig.server_mut().resume();
    // Who asked to wait is not given up.
    eventually(SOON, || client.command(&["RPUSH", "queue", "x"]) == Reply::Integer(1));
    assert_eq!(blocked.read_reply(), Reply::bulks(["queue", "x"]));
}

#[test]
fn something_that_is_no_server_is_not_asked_over_and_over() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let connects = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&connects);
    // Ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::AcqRel);
            let _ = Write::write_all(&mut &stream, b"220 mail.example ESMTP\r\n");
        }
    });
    let rig = Rig::with(RedisServer::builder(), |config| {
        config.upstream.target = Target::Server(Endpoint::tcp("127.0.0.1", port));
    });
    let mut client = rig.client();
    let start = Instant::now();
    for _ in 0..500 {
        let error = client.command(&["SET", "a", "1"]).error();
        assert!(error.contains("does not speak RESP") && !error.contains("unknown"), "{error}");
    }
    let most = 3 + start.elapsed().as_millis() as i64 / 20;
    assert!(connects.load(Ordering::Acquire) <= most, "{connects:?} connects, {most} at most");
}

#[test]
fn acknowledged_increments_are_never_lost_nor_made_twice() {
    let settings = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let mut rig = RigBuilder::before(settings).workers(2).start();
    let (acknowledged, unknown) = (AtomicI64::new(0), AtomicI64::new(0));
    let done = AtomicBool::new(false);
    let addr = rig.addr();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = heatsink_testkit::RawClient::connect(addr);
                while !done.load(Ordering::Acquire) {
                    let reply = client.command(&["INCR", "n"]);
                    if !reply.is_error() {
                        acknowledged.fetch_add(1, Ordering::AcqRel);
                    } else if reply.error().contains("unknown whether") {
                        unknown.fetch_add(1, Ordering::AcqRel);
                    } else {
                        thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..5 {
            let before = acknowledged.load(Ordering::Acquire);
            eventually(SOON, || acknowledged.load(Ordering::Acquire) > before + 500);
            rig.server_mut().restart();
        }
        done.store(true, Ordering::Release);
    });
    let value: i64 = rig.server().client().command(&["GET", "n"]).text().parse().expect("a number");
    let (acknowledged, unknown) = (acknowledged.into_inner(), unknown.into_inner());
    assert!(acknowledged <= value, "{acknowledged} acknowledged, {value} there");
    assert!(value <= acknowledged + unknown, "{value} there, {acknowledged} + {unknown} sent");
}

/// A server that accepts everybody and is loading its data until it is told otherwise.
fn loading_server(is_loading: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let is_loading = Arc::clone(is_loading);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let is_loading = Arc::clone(&is_loading);
            thread::spawn(move || answer(stream, &is_loading));
        }
    });
    address
}

fn answer(mut stream: TcpStream, is_loading: &AtomicBool) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    // Each request is an array of bulk strings: twice as many lines follow.
    while let Some(Ok(count)) = lines.next() {
        let count: usize = count[1..].parse().expect("an array");
        let words: Vec<_> = lines.by_ref().take(2 * count).map_while(Result::ok).collect();
        let reply: &[u8] = match words.get(1).map(String::as_str) {
            Some("CLIENT") if words.get(3).is_some_and(|word| word == "ID") => b":1\r\n",
            Some("CLIENT") => b"+OK\r\n",
            Some("COMMAND") => b"*0\r\n",
            _ if is_loading.load(Ordering::Relaxed) => b"-LOADING loading the dataset\r\n",
            _ => b"+PONG\r\n",
        };
        if stream.write_all(reply).is_err() {
            return;
        }
    }
}

#[test]
fn a_server_that_is_loading_its_data_is_not_up() {
    let is_loading = Arc::new(AtomicBool::new(true));
    let address = loading_server(&is_loading);
    let heatsink = Heatsink::before_url(&format!("redis://{address}"), |_| {});
    let handle = heatsink.proxy().handle();
    let state = || handle.upstreams().first().map(|state| (state.is_up, state.error.clone()));
    let loading = Some((false, Some("LOADING loading the dataset".to_owned())));
    eventually(SOON, || state() == loading);
    let errors = handle.upstream_errors();
    assert!(errors.iter().any(|(kind, count)| *kind == "loading" && *count > 0), "{errors:?}");
    is_loading.store(false, Ordering::Relaxed);
    eventually(SOON, || state() == Some((true, None)));
}

#[test]
fn logins_that_clients_got_wrong_are_no_trouble_of_the_server() {
    let rig = Rig::new(1);
    let handle = rig.heatsink().proxy().handle();
    eventually(SOON, || handle.upstreams().first().is_some_and(|state| state.is_up));
    for _ in 0..5 {
        let reply = rig.client().command(&["AUTH", "nobody", "wrong"]);
        assert!(reply.error().starts_with("WRONGPASS"));
    }
    assert!(handle.upstreams()[0].is_up);
    let errors = handle.upstream_errors();
    assert!(errors.iter().all(|(_, count)| *count == 0), "{errors:?}");
}
