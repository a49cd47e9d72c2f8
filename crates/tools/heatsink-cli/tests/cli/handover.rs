//! Restart without a failed request.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use heatsink_testkit::{
    Process, RawClient, RedisCluster, RedisServer, Reply, SentinelRig, eventually, free_port,
};

use crate::support::{Finished, PATIENCE, Place, address, start};

const PATH: &str = "handover.sock";

/// A process that takes over from the one that serves in `place`, if there is one.
fn serve(place: &Place, server: &RedisServer, args: &[&str]) -> (Process, String) {
    serve_before(place, &server.url(), args)
}

fn serve_before(place: &Place, url: &str, args: &[&str]) -> (Process, String) {
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--upstream", url, "--handover", PATH];
    let (process, ready) = start(place.heatsink(&fixed).args(["--log", "info"]).args(args));
    (process, address(&ready).to_owned())
}

fn ping(client: &mut RawClient) {
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn the_old_process_serves_its_clients_and_the_new_one_those_to_come() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (mut old, address) = serve(&place, &server, &[]);
    let mut before = RawClient::connect(&*address);
    ping(&mut before);
    let (mut new, same_address) = serve(&place, &server, &[]);
    assert_eq!(address, same_address);
    assert!(old.is_running());
    let mut after = RawClient::connect(&*address);
    ping(&mut after);
    ping(&mut before);
    drop(before);
    let finished = Finished::of(&mut old);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stderr.contains("handed over"), "{finished:?}");
    ping(&mut after);
    // The path leads to the new one, which cleans up when it is the last.
    assert!(place.path().join(PATH).exists());
    new.terminate();
    assert_eq!(Finished::of(&mut new).code, Some(0));
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("readable").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Ends the load, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn twenty_in_a_row_under_load_fail_no_request() {
    let server = RedisServer::start();
    hand_over_under_load(&server.url(), 20);
}

#[test]
fn nor_do_they_before_a_cluster() {
    let cluster = RedisCluster::builder().primaries(3).replicas_per_primary(0).start();
    hand_over_under_load(&cluster.seed_url(), 5);
}

#[test]
fn nor_do_they_before_sentinels() {
    let rig = SentinelRig::builder().replicas(1).start();
    hand_over_under_load(&rig.url(), 5);
}

/// Hands over again and again while clients connect, write, read and leave.
fn hand_over_under_load(url: &str, handovers: usize) {
    const CLIENTS: usize = 4;
    let place = Place::empty();
    let (mut serving, address) = serve_before(&place, url, &[]);
    eventually(PATIENCE, || {
        RawClient::connect(&*address).command(&["SET", "k", "v"]) == Reply::ok()
    });
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = |number: usize| {
        while !stop.load(Ordering::Acquire) {
            let mut client = RawClient::connect(&*address);
            let key = format!("k{number}");
            for value in 0..10 {
                let value = value.to_string();
                assert_eq!(client.command(&["SET", &key, &value]), Reply::ok());
                assert_eq!(client.command(&["GET", &key]), Reply::bulk(&*value));
                answered.fetch_add(1, Ordering::AcqRel);
            }
        }
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for number in 0..CLIENTS {
            let load = &load;
            scope.spawn(move || load(number));
        }
        for _ in 0..handovers {
            let before = answered.load(Ordering::Acquire);
            eventually(PATIENCE, || answered.load(Ordering::Acquire) > before + 100);
            let (new, same_address) = serve_before(&place, url, &[]);
            assert_eq!(address, same_address);
            let mut old = std::mem::replace(&mut serving, new);
            let finished = Finished::of(&mut old);
            assert_eq!(finished.code, Some(0), "{finished:?}");
            assert!(!finished.stderr.contains("disconnected"), "{finished:?}");
        }
        let before = answered.load(Ordering::Acquire);
        eventually(PATIENCE, || answered.load(Ordering::Acquire) > before + 100);
    });
}

#[test]
fn a_successor_that_dies_before_it_is_ready_changes_nothing() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (old, address) = serve(&place, &server, &[]);
    drop(UnixStream::connect(place.path().join(PATH)).expect("it waits there"));
    old.wait_for_line("did not become ready", PATIENCE);
    ping(&mut RawClient::connect(&*address));
    // One that cannot start: its own address is taken.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let elsewhere = taken.local_addr().expect("bound").to_string();
    let url = server.url();
    let args = ["serve", "--handover", PATH, "--upstream", &url, "--listen", &elsewhere];
    let failed = place.run(&args);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    ping(&mut RawClient::connect(&*address));
    // And a good one still can.
    let (_new, same_address) = serve(&place, &server, &[]);
    assert_eq!(address, same_address);
}

#[test]
fn the_drain_ends_when_its_time_is_up_or_a_signal_comes() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (mut first, address) = serve(&place, &server, &["--timeouts-handover-ms", "50"]);
    let mut client = RawClient::connect(&*address);
    ping(&mut client);
    let (mut second, _) = serve(&place, &server, &["--timeouts-handover-ms", "3600000"]);
    let finished = Finished::of(&mut first);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stderr.contains("clients=1"), "{finished:?}");
    client.expect_closed();

    let mut client = RawClient::connect(&*address);
    ping(&mut client);
    let (_third, _) = serve(&place, &server, &[]);
    second.wait_for_line("handed over", PATIENCE);
    ping(&mut client);
    second.terminate();
    assert_eq!(Finished::of(&mut second).code, Some(0));
    client.expect_closed();
    ping(&mut RawClient::connect(&*address));
}

#[test]
fn a_process_that_was_killed_leaves_nothing_to_take_over() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (mut killed, _) = serve(&place, &server, &[]);
    killed.kill();
    assert!(place.path().join(PATH).exists());
    let (_process, address) = serve(&place, &server, &[]);
    ping(&mut RawClient::connect(&*address));
}

#[test]
fn another_address_is_bound_anew() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (mut old, first) = serve(&place, &server, &[]);
    let elsewhere = format!("127.0.0.1:{}", free_port());
    let url = server.url();
    let args = ["serve", "--handover", PATH, "--upstream", &url, "--listen", &elsewhere];
    let (_new, ready) = start(place.heatsink(&args));
    assert_eq!(address(&ready), elsewhere);
    assert_eq!(Finished::of(&mut old).code, Some(0));
    ping(&mut RawClient::connect(&*elsewhere));
    assert!(RawClient::try_connect(&*first).is_err());
}

#[test]
fn a_path_that_cannot_be_used_is_named() {
    let place = Place::with_file("");
    let upstream = ["--upstream", "redis://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    for (path, reason) in [
        ("heatsink.toml", "there is something else than a socket"),
        ("missing/h.sock", "No such file or directory (os error 2)"),
    ] {
        let run = Finished::of(
            &mut place.heatsink(&["serve", "--handover", path]).args(upstream).spawn(),
        );
        assert_eq!(run.code, Some(1), "{run:?}");
        assert_eq!(run.stderr, format!("heatsink: cannot hand over at {path}: {reason}\n"));
    }
}
