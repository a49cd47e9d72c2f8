//! Another primary, under load: by hand, by death, and one that comes back.

use std::time::{Duration, Instant};

use heatsink_conformance::{Heatsink, Log};
use heatsink_testkit::{RedisServer, Reply, SentinelRig, eventually, poll_until};

use crate::load::Load;
use crate::turns::my_turn;

const SOON: Duration = Duration::from_secs(10);
/// After the Sentinels agree on the new primary, clients are served again within this.
const BACK_WITHIN: Duration = Duration::from_secs(1);
/// How long clients count before and after.
const WHILE: Duration = Duration::from_millis(300);

fn before(rig: &SentinelRig) -> Heatsink {
    let heatsink = Heatsink::before_url(&rig.url(), |config| config.workers = 2);
    let mut client = heatsink.client();
    eventually(SOON, || client.command(&["PING"]) == Reply::Simple("PONG".into()));
    heatsink
}

fn go_on(load: Duration) {
    poll_until(load, || false);
}

fn counted(server: &RedisServer) -> i64 {
    let value = server.admin_client().command(&["GET", "n"]);
    value.text().parse().expect("a number")
}

/// Every worker answers from `server`.
fn follows(heatsink: &Heatsink, server: &RedisServer) {
    let port = server.port();
    let mut clients: Vec<_> = (0..4).map(|_| heatsink.client()).collect();
    for client in &mut clients {
        eventually(SOON, || {
            let reply = client.command(&["INFO", "server"]);
            !reply.is_error() && reply.text().contains(&format!("tcp_port:{port}\r\n"))
        });
    }
}

#[test]
fn a_failover_by_hand() {
    let _turn = my_turn();
    let mut rig = SentinelRig::start();
    let heatsink = before(&rig);
    let (books, (new, agreed)) = Load::run(heatsink.addr(), |load| {
        go_on(WHILE);
        let new = rig.hand_over();
        let agreed = Instant::now();
        follows(&heatsink, &rig.servers()[new]);
        load.old_is_out();
        go_on(WHILE);
        (new, agreed)
    });
    let trouble = books.trouble_after(agreed);
    println!("by hand: trouble for {trouble:?} after the Sentinels agreed; {books:?}");
    assert!(trouble < BACK_WITHIN, "{trouble:?}");
    assert!(books.durable > 20, "{books:?}");
    books.check(counted(&rig.servers()[new]));
}

#[test]
fn a_killed_primary() {
    let _turn = my_turn();
    let mut rig = SentinelRig::start();
    let heatsink = before(&rig);
    let (books, (new, agreed)) = Load::run(heatsink.addr(), |load| {
        go_on(WHILE);
        rig.kill_primary();
        load.old_is_out();
        let new = rig.wait_for_new_primary();
        let agreed = Instant::now();
        follows(&heatsink, &rig.servers()[new]);
        go_on(WHILE);
        (new, agreed)
    });
    let trouble = books.trouble_after(agreed);
    println!("killed: trouble for {trouble:?} after the Sentinels agreed; {books:?}");
    assert!(trouble < BACK_WITHIN, "{trouble:?}");
    assert!(books.refused > 0 && books.durable > 20, "{books:?}");
    books.check(counted(&rig.servers()[new]));
}

#[test]
fn a_primary_that_was_only_asleep() {
    let _turn = my_turn();
    let mut rig = SentinelRig::start();
    let heatsink = Heatsink::before_url(&rig.url(), |config| {
        config.workers = 2;
        config.live.timeouts.silence = Some(Duration::from_millis(300));
    });
    let mut client = heatsink.client();
    eventually(SOON, || client.command(&["PING"]) == Reply::Simple("PONG".into()));
    let (books, (old, new)) = Load::run(heatsink.addr(), |load| {
        go_on(WHILE);
        let old = rig.pause_primary();
        load.old_is_out();
        // Sent to one that sleeps: it may be executed yet.
        let error = client.command(&["INCR", "asleep"]).error();
        assert!(error.contains("unknown whether the command was executed"), "{error}");
        let new = rig.wait_for_new_primary();
        follows(&heatsink, &rig.servers()[new]);
        // It wakes up and takes itself for the primary until a Sentinel tells it otherwise.
        rig.resume(old);
        let port = rig.servers()[new].port().to_string();
        eventually(SOON, || {
            // The Sentinel that tells it cuts its connections.
            let client = rig.servers()[old].try_admin_client();
            let info = client.and_then(|mut client| client.try_command(&["INFO", "replication"]));
            let follows = |line: &str| line.strip_prefix("master_port:") == Some(&*port);
            info.is_ok_and(|info| info.text().lines().any(follows))
        });
        go_on(WHILE);
        (old, new)
    });
    assert!(books.durable > 20, "{books:?}");
    books.check(counted(&rig.servers()[new]));
    // What it answers as a replica is not asked for either.
    let calls = rig.servers()[old].calls("get");
    for _ in 0..100 {
        assert!(!client.command(&["GET", "n"]).is_error());
    }
    assert_eq!(rig.servers()[old].calls("get"), calls);
}

#[test]
fn what_the_old_primary_says_later_is_no_acknowledgement() {
    let _turn = my_turn();
    let mut rig = SentinelRig::start();
    let heatsink = before(&rig);
    let mut clients: Vec<_> = (0..4).map(|_| heatsink.client()).collect();
    for client in &mut clients {
        assert_eq!(client.command(&["PING"]).text(), "PONG");
    }
    let old = rig.pause_primary();
    for client in &mut clients {
        client.send(&["INCR", "late"]);
    }
    let new = rig.wait_for_new_primary();
    follows(&heatsink, &rig.servers()[new]);
    // It wakes up, executes what waits in its sockets and says so. Nobody is told: when a
    // Sentinel makes it a replica of the other, all that is gone.
    rig.resume(old);
    for client in &mut clients {
        let reply = client.read_reply();
        let error = reply.error();
        assert!(error.contains("unknown whether the command was executed"), "{error}");
    }
    assert_eq!(rig.servers()[new].admin_client().command(&["GET", "late"]), Reply::Null);
}

#[test]
fn who_is_said_to_be_lost_is_the_old_primary() {
    let _turn = my_turn();
    let log = Log::listen();
    let mut rig = SentinelRig::start();
    let heatsink = Heatsink::before_url(&rig.url(), |config| {
        config.workers = 1;
        config.live.timeouts.silence = None;
    });
    let [mut sharing, mut waiting, mut queueing] = [(); 3].map(|()| heatsink.client());
    eventually(SOON, || sharing.command(&["PING"]) == Reply::Simple("PONG".into()));
    assert_eq!(queueing.command(&["MULTI"]), Reply::ok());
    assert_eq!(queueing.command(&["INCR", "n"]).text(), "QUEUED");
    // Leaves a connection behind: a new one would not be greeted.
    assert_eq!(waiting.command(&["BLPOP", "list", "0.01"]), Reply::Null);
    let old = rig.pause_primary();
    sharing.send(&["INCR", "n"]);
    waiting.send(&["BLPOP", "list", "0"]);
    queueing.send(&["EXEC"]);
    let new = rig.wait_for_new_primary();
    let [old_address, new_address] =
        [old, new].map(|server| rig.servers()[server].addr().to_string());
    for client in [&mut sharing, &mut waiting, &mut queueing] {
        client.set_timeout(SOON);
        let error = client.read_reply().error();
        assert!(error.contains("it is no longer the primary"), "{error}");
        assert!(error.contains(&format!("upstream {old_address} unavailable")), "{error}");
    }
    let lost = |address: &str| log.lines(&format!("upstream {address} lost")).len();
    eventually(SOON, || lost(&old_address) > 0);
    assert_eq!(lost(&new_address), 0);
    follows(&heatsink, &rig.servers()[new]);
    rig.resume(old);
}
