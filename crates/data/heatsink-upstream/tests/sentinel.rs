//! The primary is found and followed, with real sentinels.

#[path = "sentinel/fake.rs"]
mod fake;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use heatsink_testkit::{RedisServer, Reply, SentinelRig, eventually, free_port};
use heatsink_upstream::address::Url;
use heatsink_upstream::sentinel::{Connector, SentinelWatch, SocketName};

use fake::Fake;

/// So long that nothing a test waits for can come from it.
const NEVER: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);
/// For what takes sentinels some seconds to agree on.
const SOON: Duration = Duration::from_secs(30);

fn try_watch(
    url: &str,
    poll_interval: Duration,
    connector: Option<Connector>,
) -> std::io::Result<(SentinelWatch, Receiver<SocketName>)> {
    let Ok(Url::Sentinel(url)) = url.parse() else { panic!("{url}") };
    let (sender, told) = channel();
    let report = move |primary| sender.send(primary).expect("the test waits");
    let watch = SentinelWatch::start(url, SOON, poll_interval, connector, report)?;
    Ok((watch, told))
}

fn watch(url: &str, poll_interval: Duration) -> (SentinelWatch, Receiver<SocketName>) {
    try_watch(url, poll_interval, None).expect("threads can be started")
}

#[track_caller]
fn next(told: &Receiver<SocketName>) -> u16 {
    let primary = told.recv_timeout(SOON).expect("a primary is reported");
    assert_eq!(primary.host, "127.0.0.1");
    primary.port
}

#[track_caller]
fn drop_promptly(watch: SentinelWatch) {
    let start = Instant::now();
    drop(watch);
    // Meant to be 100 ms at most; the rest is for a busy machine.
    assert!(start.elapsed() < Duration::from_millis(500), "took {:?}", start.elapsed());
}

#[test]
fn the_primary_is_found_and_a_failover_noticed_by_its_event() {
    let mut rig = SentinelRig::start();
    let (watch, told) = watch(&rig.url(), NEVER);
    assert_eq!(next(&told), rig.servers()[0].port());
    rig.hand_over();
    assert_eq!(next(&told), rig.servers()[1].port());
    drop_promptly(watch);
}

#[test]
fn a_killed_primary_is_replaced() {
    let mut rig = SentinelRig::start();
    let (_watch, told) = watch(&rig.url(), SECOND);
    assert_eq!(next(&told), rig.servers()[0].port());
    rig.kill_primary();
    assert_eq!(next(&told), rig.servers()[1].port());
}

#[test]
fn one_living_sentinel_is_enough_and_those_it_knows_are_enough_without_it() {
    let mut rig = SentinelRig::start();
    let dead = format!("127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let living = rig.sentinels()[0].addr();
    let (watch, told) = watch(&format!("redis+sentinel://{dead},{living}/{}", rig.name()), NEVER);
    assert_eq!(next(&told), rig.servers()[0].port());
    let other = rig.sentinels()[2].port().to_string();
    eventually(SOON, || format!("{watch:?}").contains(&other));
    rig.kill_sentinel(0);
    rig.hand_over();
    assert_eq!(next(&told), rig.servers()[1].port());
}

#[test]
fn a_wrong_name_finds_nothing() {
    let rig = SentinelRig::builder().name("right").start();
    let (watch, told) = watch(&rig.url().replace("right", "wrong"), Duration::from_millis(50));
    watch.nudge();
    // A thread that had ended would have taken the sender along.
    assert_eq!(told.recv_timeout(SECOND), Err(RecvTimeoutError::Timeout));
    drop_promptly(watch);
}

#[test]
fn sentinels_and_servers_with_passwords() {
    let mut rig = SentinelRig::builder().password("sesame").sentinel_password("mellon").start();
    let url = rig.url().replace("://", "://:sesame@");
    let (_right, told) = watch(&format!("{url}?sentinel_password=mellon"), NEVER);
    assert_eq!(next(&told), rig.servers()[0].port());
    rig.hand_over();
    assert_eq!(next(&told), rig.servers()[1].port());
    for query in ["", "?sentinel_password=sesame", "?sentinel_user=bob&sentinel_password=mellon"] {
        let (_watch, told) = watch(&format!("{url}{query}"), Duration::from_millis(50));
        assert_eq!(told.recv_timeout(SECOND), Err(RecvTimeoutError::Timeout), "{query}");
    }
}

#[test]
fn an_older_answer_does_not_replace_a_newer_one() {
    let (oldest, older, newest) = (free_port(), free_port(), free_port());
    let (first, late) = (Fake::start(older, 2), Fake::start(oldest, 1));
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/x", first.port, late.port);
    let (watch, told) = watch(&url, NEVER);
    assert_eq!(next(&told), older);
    first.kill();
    watch.nudge();
    eventually(SOON, || late.asked() > 0);
    late.say(newest, 3);
    watch.nudge();
    // Had the late answer been believed, it would have been reported before.
    assert_eq!(next(&told), newest);
}

#[test]
fn sentinels_that_start_over_are_believed_after_a_while() {
    let (before, after) = (free_port(), free_port());
    let sentinel = Fake::start(before, 7);
    let url = format!("redis+sentinel://127.0.0.1:{}/x", sentinel.port);
    let (_watch, told) = watch(&url, Duration::from_millis(100));
    assert_eq!(next(&told), before);
    sentinel.say(after, 0);
    assert_eq!(next(&told), after);
}

#[test]
fn a_server_that_is_not_promoted_yet_is_not_reported() {
    let primary = RedisServer::start();
    let replica =
        RedisServer::builder().arg("replicaof", &format!("127.0.0.1 {}", primary.port())).start();
    let sentinel = Fake::start(replica.port(), 1);
    let (_watch, told) = watch(&format!("redis+sentinel://127.0.0.1:{}/x", sentinel.port), NEVER);
    eventually(SOON, || sentinel.asked() >= 3);
    assert!(told.try_recv().is_err());
    assert_eq!(replica.client().command(&["REPLICAOF", "NO", "ONE"]), Reply::ok());
    assert_eq!(next(&told), replica.port());
}

#[test]
fn encryption_is_for_sentinels_and_servers_and_never_left_out() {
    let server = RedisServer::start();
    let sentinel = Fake::start(server.port(), 1);
    let url = format!("rediss+sentinel://127.0.0.1:{}/x", sentinel.port);
    assert!(try_watch(&url, NEVER, None).is_err());
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let connector: Connector = Arc::new(move |socket, host| {
        assert_eq!(host, "127.0.0.1");
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(socket))
    });
    let (_watch, told) = try_watch(&url, NEVER, Some(connector)).expect("threads can be started");
    assert_eq!(next(&told), server.port());
    // Question, events, and the check of the server.
    eventually(SOON, || made.load(Ordering::Relaxed) == 3);
}

#[test]
fn a_stop_does_not_wait_for_an_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("bound").port();
    let (watch, told) = watch(&format!("redis+sentinel://127.0.0.1:{port}/x"), NEVER);
    let connections = [silent.accept(), silent.accept()].map(|result| result.expect("both").0);
    drop_promptly(watch);
    // The threads end, too, long before an answer would be overdue.
    assert_eq!(told.recv_timeout(SOON / 4), Err(RecvTimeoutError::Disconnected));
    for mut connection in connections {
        std::io::copy(&mut connection, &mut std::io::sink()).expect("ends");
    }
}
