//! An orderly end: nothing in flight is lost, and it does not take for ever.

use std::time::{Duration, Instant};

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, Reply, encode, eventually};

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let mut rig = Rig::new(2);
    let mut clients: Vec<RawClient> = (0..20).map(|_| rig.client()).collect();
    let mut pauser = rig.server().client();
    pauser.command(&["CLIENT", "PAUSE", "2000", "WRITE"]);
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&["SET", &format!("k{n}"), "v"]);
    }
    eventually(Duration::from_secs(5), || rig.server().info_u64("clients", "blocked_clients") == 2);
    assert_eq!(rig.shutdown(Duration::from_secs(20)), 0);
    for client in &mut clients {
        assert_eq!(client.read_reply(), Reply::ok());
        client.expect_closed();
    }
    assert!(RawClient::try_connect(rig.addr()).is_err());
}

#[test]
fn the_bound_holds_for_what_never_ends() {
    let mut rig = Rig::new(1);
    let (mut blocked, mut subscriber) = (rig.client(), rig.client());
    blocked.send(&["BLPOP", "queue", "0"]);
    subscriber.command(&["SUBSCRIBE", "a"]);
    eventually(Duration::from_secs(5), || rig.server().info_u64("clients", "blocked_clients") == 1);
    let start = Instant::now();
    assert_eq!(rig.shutdown(Duration::from_millis(200)), 1);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    blocked.expect_closed();
    subscriber.expect_closed();
}

#[test]
fn requests_that_wait_for_earlier_ones_are_finished_too() {
    let mut rig = Rig::new(1);
    let mut client = rig.client();
    rig.server().client().command(&["CLIENT", "PAUSE", "1000", "WRITE"]);
    let commands = [&["SET", "k", "0"][..], &["SELECT", "1"], &["SET", "k", "1"], &["GET", "k"]];
    client.send_raw(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    eventually(Duration::from_secs(5), || rig.server().info_u64("clients", "blocked_clients") == 1);
    assert_eq!(rig.shutdown(Duration::from_secs(20)), 0);
    for _ in 0..3 {
        assert_eq!(client.read_reply(), Reply::ok());
    }
    assert_eq!(client.read_reply(), Reply::bulk("1"));
    client.expect_closed();
}
