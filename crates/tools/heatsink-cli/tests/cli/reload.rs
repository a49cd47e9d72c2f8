//! A new configuration without a restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use heatsink_testkit::{Process, RawClient, RedisServer, Reply, eventually, poll_until};
use rustix::process::Signal;

use crate::support::{Finished, PATIENCE, Place, address, start};

/// A `serve` by the file of `place`.
fn serve(place: &Place, server: &RedisServer, args: &[&str]) -> (Process, String) {
    let url = server.url();
    let fixed = ["serve", "--config", "heatsink.toml", "--listen", "127.0.0.1:0"];
    let (process, ready) = start(place.heatsink(&fixed).args(["--upstream", &url]).args(args));
    (process, address(&ready).to_owned())
}

/// Whether a new client is let in.
fn is_let_in(address: &str) -> bool {
    let mut client = RawClient::connect(address);
    match client.try_command(&["PING"]) {
        Ok(reply) if reply.is_error() => {
            assert_eq!(reply.error(), "ERR max number of clients reached");
            false
        }
        Ok(reply) => {
            assert_eq!(reply, Reply::Simple("PONG".into()));
            true
        }
        Err(error) => panic!("{error}"),
    }
}

fn limits(max_clients: usize) -> String {
    format!("reload_on_change = false\n[limits]\nmax_clients = {max_clients}\n")
}

#[test]
fn sighup_changes_a_limit_while_clients_stay() {
    let server = RedisServer::start();
    let place = Place::with_file(&limits(1));
    let (mut process, address) = serve(&place, &server, &["--log", "info"]);
    let mut client = RawClient::connect(&*address);
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
    assert!(!is_let_in(&address));
    place.replace("heatsink.toml", &limits(2));
    process.signal(Signal::HUP);
    process.wait_for_line("configuration reloaded: limits.max_clients", PATIENCE);
    eventually(PATIENCE, || is_let_in(&address));
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn sighup_changes_what_is_logged() {
    let server = RedisServer::start();
    for format in ["text", "json"] {
        let place = Place::with_file("log = \"error\"\n");
        let args = ["--log-format", format, "--reload-on-change", "false"];
        let (mut process, _) = serve(&place, &server, &args);
        process.signal(Signal::HUP);
        place.replace("heatsink.toml", "log = \"info\"\n");
        process.signal(Signal::HUP);
        process.wait_for_line("configuration reloaded: log", PATIENCE);
        place.replace("heatsink.toml", "log = \"off\"\n");
        process.signal(Signal::HUP);
        // Orders the end behind the reload: both are looked at by the same thread.
        place.replace("heatsink.toml", "log = \"info\"\n[limits]\nmax_clients = 9\n");
        process.signal(Signal::HUP);
        process.wait_for_line("limits.max_clients", PATIENCE);
        process.terminate();
        let finished = Finished::of(&mut process);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(finished.stderr.contains("shutting down"), "{finished:?}");
    }
}

#[test]
fn an_invalid_file_is_refused_and_the_old_configuration_stays() {
    let server = RedisServer::start();
    let place = Place::with_file(&limits(1));
    let (mut process, address) = serve(&place, &server, &["--log", "info"]);
    let mut client = RawClient::connect(&*address);
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
    for (text, reason) in [
        ("[limits]\nmax_clients = 5\nmax_args = 0\n", "heatsink.toml:3: limits.max_args: 0 is not"),
        ("[limits]\nmax_clients = 6\n[colour]\n", "heatsink.toml:3: unknown key \"colour\""),
        (
            "auth = \"service\"\n[limits]\nmax_clients = 7\n",
            "heatsink.toml:1: auth: \"service\" needs",
        ),
        (
            "auth = \"service\"\nusers = \"u\"\n[limits]\nmax_clients = 8\n",
            "heatsink.toml:2: users: u: no such file",
        ),
        (
            "[tls]\nlisten = \"127.0.0.1:0\"\ncertificate = \"heatsink.toml\"\nkey = \"k\"\n\
             [limits]\nmax_clients = 9\n",
            "heatsink.toml:3: tls.certificate: heatsink.toml: no certificate in it",
        ),
    ] {
        place.replace("heatsink.toml", text);
        process.signal(Signal::HUP);
        let line = process.wait_for_line(reason, PATIENCE);
        assert!(line.contains("configuration not reloaded, the old one stays: "), "{line}");
        assert!(!is_let_in(&address), "{text}");
    }
    std::fs::remove_file(place.path().join("heatsink.toml")).expect("it was there");
    process.signal(Signal::HUP);
    process.wait_for_line("the old one stays: cannot read heatsink.toml", PATIENCE);
    assert!(!is_let_in(&address));
    assert!(!process.stderr().contains("configuration reloaded"), "{}", process.stderr());
    // And the next good one is taken.
    place.replace("heatsink.toml", &limits(2));
    process.signal(Signal::HUP);
    process.wait_for_line("configuration reloaded: limits.max_clients", PATIENCE);
    eventually(PATIENCE, || is_let_in(&address));
}

#[test]
fn what_needs_a_restart_is_named_and_the_rest_is_applied() {
    let server = RedisServer::start();
    let place = Place::with_file("workers = 1\nnamespace = \"a\"\n");
    let args = ["--log", "info", "--limits-max-args", "100", "--reload-on-change", "false"];
    let (mut process, _) = serve(&place, &server, &args);
    // A flag wins over the file still.
    let changed = "workers = 2\nnamespace = \"b\"\ncluster_announce = \"h:1\"\n\
                   [limits]\nmax_args = 5\n[timeouts]\nsilence_ms = 9\n\
                   [[policy]]\nmatch = \"a\"\nmode = \"relaxed\"\nreplica_reads = true\n";
    place.replace("heatsink.toml", changed);
    for _ in 0..2 {
        process.signal(Signal::HUP);
        process.wait_for_line("configuration reloaded: timeouts.silence_ms, policy", PATIENCE);
        let wanted = "a restart is needed for the change of namespace, workers, cluster_announce";
        process.wait_for_line(wanted, PATIENCE);
    }
    assert!(!process.stderr().contains("limits.max_args"), "{}", process.stderr());
}

#[test]
fn a_hundred_reloads_under_load_fail_no_request() {
    const RELOADS: usize = 100;
    let server = RedisServer::start();
    let file = |number: usize| format!("{}max_args = {}\n", limits(9), 100 + number);
    let place = Place::with_file(&file(0));
    let (mut process, address) = serve(&place, &server, &["--log", "info"]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut lasting = RawClient::connect(&*address);
            let mut requests = 0;
            while !done.load(Ordering::Acquire) {
                let mut brief = RawClient::connect(&*address);
                for client in [&mut lasting, &mut brief] {
                    assert_eq!(client.command(&["INCR", "k"]).integer(), requests + 1);
                    requests += 1;
                }
            }
            requests
        });
        for number in 1..=RELOADS {
            place.replace("heatsink.toml", &file(number));
            process.signal(Signal::HUP);
            let reloaded = || process.stderr().matches("reloaded: limits.max_args").count();
            if poll_until(PATIENCE, || reloaded() >= number || load.is_finished()).is_none() {
                break;
            }
        }
        done.store(true, Ordering::Release);
        assert!(load.join().expect("no request fails") > 0);
    });
    assert_eq!(process.stderr().matches("reloaded: limits.max_args").count(), RELOADS);
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let server = RedisServer::start();
    let place = Place::with_file("[limits]\nmax_clients = 1\n");
    let (process, address) = serve(&place, &server, &["--log", "info"]);
    let mut client = RawClient::connect(&*address);
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".into()));
    // Replaced by another file, then written in place.
    place.replace("heatsink.toml", "[limits]\nmax_clients = 2\n");
    process.wait_for_line("configuration reloaded: limits.max_clients", PATIENCE);
    eventually(PATIENCE, || is_let_in(&address));
    let path = place.path().join("heatsink.toml");
    std::fs::write(path, "[limits]\nmax_clients = 2\nmax_args = 9\n").expect("a file is written");
    process.wait_for_line("configuration reloaded: limits.max_args", PATIENCE);
}
