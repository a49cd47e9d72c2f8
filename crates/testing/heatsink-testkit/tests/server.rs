//! The server guard against a real `redis-server`: every state a test may put it in.

use std::io;
use std::path::Path;
use std::time::Duration;

use heatsink_testkit::{ProcStats, RawClient, RedisServer, Reply, eventually, open_fds};

const SOON: Duration = Duration::from_secs(5);

#[test]
fn starts_serves_and_is_gone_after_drop() {
    let server = RedisServer::start();
    let (addr, pid) = (server.addr(), server.pid());
    let directory = server.directory().to_owned();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.client().command(&["SET", "a", "1"]), Reply::ok());
    assert_eq!(server.client().command(&["INCR", "a"]), Reply::Integer(2));
    assert!(server.client().command(&["DEBUG", "SLEEP", "0"]) == Reply::ok());
    drop(server);
    assert!(RawClient::try_connect(addr).is_err());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!directory.exists());
}

#[test]
fn killed_it_refuses_and_started_again_it_serves_on_the_same_port() {
    let mut server = RedisServer::start();
    let (addr, pid) = (server.addr(), server.pid());
    let mut client = server.client();
    assert_eq!(client.command(&["SET", "a", "1"]), Reply::ok());
    server.stop();
    client.expect_closed();
    let refused = RawClient::try_connect(addr).expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    server.stop();
    server.start_again();
    assert_eq!(server.addr(), addr);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.client().command(&["GET", "a"]), Reply::Null);
}

#[test]
fn restart_closes_connections_and_keeps_settings() {
    let mut server = RedisServer::builder().arg("maxmemory", "12mb").start();
    let mut client = server.client();
    let addr = server.addr();
    for _ in 0..3 {
        server.restart();
    }
    client.expect_closed();
    assert_eq!(server.addr(), addr);
    assert_eq!(
        server.client().command(&["CONFIG", "GET", "maxmemory"]),
        Reply::bulks(["maxmemory", "12582912"])
    );
}

#[test]
fn paused_it_keeps_connections_and_answers_late() {
    let mut server = RedisServer::start();
    let mut client = server.client();
    assert_eq!(client.command(&["SET", "a", "1"]), Reply::ok());
    server.pause();
    client.send(&["GET", "a"]);
    assert_eq!(client.try_read_frame(Duration::from_millis(50)).expect("open"), None);
    server.resume();
    assert_eq!(client.read_frame(), b"$1\r\n1\r\n");
}

#[test]
fn a_paused_server_can_be_killed_and_restarted() {
    let mut server = RedisServer::start();
    let mut client = server.client();
    server.pause();
    server.restart();
    client.expect_closed();
    assert_eq!(server.client().command(&["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn a_password_is_demanded_and_the_kit_knows_it() {
    let server = RedisServer::builder().arg("requirepass", "x").start();
    let mut client = server.client();
    assert!(client.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    assert_eq!(client.command(&["AUTH", "x"]), Reply::ok());
    assert_eq!(server.info("server", "tcp_port"), server.port().to_string());
}

#[test]
fn a_password_the_kit_does_not_know_counts_as_ready() {
    let server = RedisServer::builder().args(["--requirepass", "x"]).start();
    assert!(server.client().command(&["PING"]).error().starts_with("NOAUTH"));
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_cannot_start_shows_its_log() {
    RedisServer::builder().arg("no-such-setting", "1").start();
}

#[test]
#[should_panic(expected = "Address already in use")]
fn a_port_asked_for_and_taken_is_an_error() {
    let first = RedisServer::start();
    RedisServer::builder().port(first.port()).start();
}

#[test]
fn figures_of_the_server() {
    let server = RedisServer::start();
    let mut client = server.client();
    for _ in 0..7 {
        client.command(&["GET", "a"]);
    }
    assert!(client.command(&["INCR"]).is_error());
    assert_eq!(server.calls("get"), 7);
    assert_eq!(server.calls("set"), 0);
    assert_eq!(server.commandstats()["incr"].rejected_calls, 1);
    assert!(server.info_u64("stats", "total_commands_processed") >= 7);

    assert!(open_fds(server.pid()).expect("alive") < 100);
    let more: Vec<RawClient> = (0..100).map(|_| server.client()).collect();
    eventually(SOON, || open_fds(server.pid()).is_ok_and(|now| now > more.len()));

    let before = ProcStats::of(server.pid()).expect("alive");
    assert_eq!(client.command(&["DEBUG", "POPULATE", "300000"]), Reply::ok());
    let after = ProcStats::of(server.pid()).expect("alive");
    assert!(after.rss_bytes > before.rss_bytes + 5_000_000);
    assert!(after.cpu_seconds > before.cpu_seconds);
}
