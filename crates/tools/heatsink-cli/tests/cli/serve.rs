//! `heatsink serve`: where settings come from, the ready line, and how it ends.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use heatsink_testkit::{
    ProcStats, Process, ProcessBuilder, RawClient, RedisServer, Reply, eventually, open_fds,
};
use rustix::process::Signal;

use crate::support::{Finished, PATIENCE, Place, address, start};

/// Nothing listens on port 1; the proxy does not need its upstream to start.
const NOWHERE: &str = "redis://127.0.0.1:1";

fn serve(place: &Place, upstream: &str, args: &[&str]) -> ProcessBuilder {
    place.heatsink(&["serve", "--listen", "127.0.0.1:0", "--upstream", upstream]).args(args)
}

#[test]
fn one_line_says_what_to_connect_to() {
    let place = Place::empty();
    let (_process, ready) = start(serve(&place, NOWHERE, &["--workers", "2"]));
    let version = env!("CARGO_PKG_VERSION");
    let beginning = format!("heatsink {version} ready: connect to redis://127.0.0.1:");
    let rest = ready.strip_prefix(&beginning).expect(&ready);
    let (port, rest) =
        rest.split_once(" (upstream 127.0.0.1:1, 2 workers, admin http://127.0.0.1:").expect(rest);
    port.parse::<u16>().expect("a port");
    rest.strip_suffix(')').expect(rest).parse::<u16>().expect("a port");
}

#[test]
fn sigterm_and_sigint_end_it_orderly_and_quietly() {
    let server = RedisServer::start();
    for signal in [Signal::TERM, Signal::INT] {
        let place = Place::empty();
        let (mut process, _) = start(serve(&place, &server.url(), &["--limits-max-clients", "9"]));
        process.signal(signal);
        let finished = Finished::of(&mut process);
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{signal:?}");
        assert_eq!(finished.stdout.lines().count(), 1, "{finished:?}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let run = Place::empty().run(&["serve", "--listen", &address, "--upstream", NOWHERE]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        run.stderr,
        format!("heatsink: cannot listen on {address}: another process listens there already\n")
    );
}

/// A `serve` with one request that its upstream holds back. The client and the server are
/// returned to be kept.
fn with_request_in_flight(place: &Place, shutdown_ms: &str) -> (Process, (RawClient, RedisServer)) {
    let server = RedisServer::start();
    assert_eq!(server.client().command(&["CLIENT", "PAUSE", "3600000", "WRITE"]), Reply::ok());
    // What the fleet writes would be blocked as well, and counted.
    let alone = ["--coordination-url", "embedded://"];
    let args = ["--log", "info", "--timeouts-shutdown-ms", shutdown_ms];
    let (process, ready) = start(serve(place, &server.url(), &args).args(alone));
    let mut client = RawClient::connect(address(&ready));
    client.send(&["SET", "k", "v"]);
    eventually(PATIENCE, || server.info_u64("clients", "blocked_clients") == 1);
    (process, (client, server))
}

#[test]
fn what_is_unanswered_when_the_bound_passes_is_counted() {
    let place = Place::empty();
    let (mut process, _kept) = with_request_in_flight(&place, "50");
    process.terminate();
    let finished = Finished::of(&mut process);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stderr.contains("unanswered=1"), "{finished:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::empty();
    let (mut process, _kept) = with_request_in_flight(&place, "3600000");
    process.terminate();
    process.wait_for_line("shutting down", PATIENCE);
    process.terminate();
    let finished = Finished::of(&mut process);
    assert_eq!(finished.code, Some(1), "{finished:?}");
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let place = Place::with_file("workers = 3\n");
    let workers = |builder| {
        let (_process, ready) = start(builder);
        let (rest, _) = ready.rsplit_once(", admin").expect("an admin address");
        rest.rsplit_once(", ").expect("a number of workers").1.to_owned()
    };
    let file = || serve(&place, NOWHERE, &["--config", "heatsink.toml"]);
    assert_eq!(workers(file()), "3 workers");
    assert_eq!(workers(file().env("HEATSINK_WORKERS", "2")), "2 workers");
    assert_eq!(workers(file().env("HEATSINK_WORKERS", "2").args(["--workers", "1"])), "1 worker");
    let named_by_variable = serve(&place, NOWHERE, &[]).env("HEATSINK_CONFIG", "heatsink.toml");
    assert_eq!(workers(named_by_variable), "3 workers");
}

#[test]
fn bad_values_name_their_flag_variable_or_line() {
    let place = Place::with_file("[limits]\nmax_clients = 0\n");
    let finished = Finished::of(
        &mut serve(&place, NOWHERE, &["--config", "heatsink.toml", "--workers", "-1"])
            .env("HEATSINK_LIMITS_MAX_ARGS", "few")
            .spawn(),
    );
    assert_eq!(finished.code, Some(3));
    assert_eq!(finished.stdout, "");
    assert_eq!(
        finished.stderr,
        "--workers: \"-1\" is not a whole number from 0 to 256\n\
         HEATSINK_LIMITS_MAX_ARGS: \"few\" is not a whole number from 3 to 2147483647\n\
         heatsink.toml:2: limits.max_clients: 0 is not a whole number from 1 to 1000000\n"
    );
}

#[test]
fn a_role_without_a_place_to_meet_is_refused() {
    let finished = Place::empty().run(&["serve", "--role", "aggregator"]);
    assert_eq!(finished.code, Some(3));
    assert_eq!(
        finished.stderr,
        "--role: \"aggregator\" needs a Redis in which to meet the others; set coordination.url (or upstream)\n"
    );
}

#[test]
fn a_missing_file_is_a_failure_at_run_time() {
    let finished = Place::empty().run(&["serve", "--config", "nowhere.toml"]);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.starts_with("heatsink: cannot read nowhere.toml: "), "{finished:?}");
}

#[test]
fn doubtful_settings_are_named_once_in_the_log() {
    let place = Place::with_file("[[policy]]\nmatch = \"*\"\nmode = \"off\"\n");
    let args = ["--config", "heatsink.toml", "--coalesce-max-wait-ms", "9", "--log-format", "json"];
    let builder = serve(&place, NOWHERE, &args)
        .env("HEATSINK_LISEN", "x")
        .env("HEATSINK_LIMITS_MAX_CLIENTS", "9");
    let (mut process, _) = start(builder);
    process.terminate();
    let stderr = Finished::of(&mut process).stderr;
    assert!(stderr.lines().all(|line| line.starts_with('{')), "{stderr}");
    assert_eq!(stderr.matches("did you mean HEATSINK_LISTEN?").count(), 1, "{stderr}");
}

/// ```text
/// 1. the event loop stands still; in its next batch of events are, in this order:
/// 2. client A, in a transaction, has gone: its connection to the server is closed
/// 3. client B sends MULTI: it gets a new connection in the same slot
/// 4. the server has closed A's connection: told of the slot that is B's by now
/// ```
#[test]
fn an_event_for_what_was_in_a_slot_before_does_not_touch_what_is_there_now() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (mut process, ready) = start(serve(&place, &server.url(), &["--workers", "1"]));
    let (mut a, mut b) = (RawClient::connect(address(&ready)), RawClient::connect(address(&ready)));
    assert_eq!(b.command(&["PING"]).text(), "PONG");
    assert_eq!(a.command(&["MULTI"]), Reply::ok());
    let list = server.client().command(&["CLIENT", "LIST"]).text();
    let line = list.lines().find(|line| line.contains("cmd=multi")).expect("a transaction");
    let id = line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect("an id");
    process.pause();
    drop(a);
    b.send(&["MULTI"]);
    assert_eq!(server.client().command(&["CLIENT", "KILL", "ID", id]).integer(), 1);
    process.resume();
    assert_eq!(b.read_reply(), Reply::ok());
    let cpu = || ProcStats::of(process.pid()).expect("it runs").cpu_seconds;
    let (before, start) = (cpu(), Instant::now());
    eventually(PATIENCE, || start.elapsed() > Duration::from_millis(500));
    assert!(cpu() - before < 0.25, "{} s of CPU in half a second of idling", cpu() - before);
    b.command(&["SET", "k", "v"]);
    assert_eq!(b.command(&["EXEC"]).items(), [Reply::ok()]);
}

/// What a client is told that is not accepted.
const TOO_MANY: &str = "ERR max number of clients reached";

/// Whether a client that has just connected is served; if not it was told why.
fn is_served(client: &mut RawClient) -> bool {
    client.send(&["PING"]);
    let reply = client.read_reply();
    assert!(reply.is_error() == (reply.text() == TOO_MANY), "{reply:?}");
    !reply.is_error()
}

#[test]
fn clients_that_descriptors_do_not_suffice_for_are_told_so() {
    let server = RedisServer::start();
    let place = Place::empty();
    let heatsink = env!("CARGO_BIN_EXE_heatsink");
    let url = server.url();
    let few = ["-c", "ulimit -n 80; exec \"$@\"", "bash", heatsink, "serve"];
    let args = ["--listen", "127.0.0.1:0", "--upstream", &url, "--workers", "1"];
    let own_admin = ["--admin", "127.0.0.1:0"];
    let builder =
        Process::builder("bash").args(few).args(args).args(own_admin).directory(place.path());
    let (mut process, ready) = start(builder);
    process.wait_for_line("limits.max_clients is lowered", PATIENCE);
    let mut clients: Vec<_> = (0..60).map(|_| RawClient::connect(address(&ready))).collect();
    let accepted = clients.iter_mut().map(is_served).filter(|served| *served).count();
    assert_eq!(accepted, 32, "half of the limit, less one of their own for every four clients");
    // There is room for what clients and operators need.
    for client in &mut clients[..8] {
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
    }
    let (_, admin) = ready.split_once("admin http://").expect("an admin address");
    assert!(std::net::TcpStream::connect(admin.trim_end_matches(')')).is_ok());
    process.terminate();
    assert_eq!(Finished::of(&mut process).code, Some(0));
}

#[test]
fn it_ends_when_asked_even_without_a_descriptor_left() {
    let server = RedisServer::start();
    let place = Place::empty();
    let (mut process, ready) = start(serve(&place, &server.url(), &["--workers", "1"]));
    let mut first = RawClient::connect(address(&ready));
    assert!(is_served(&mut first));
    // Taken away while it runs, so that it cannot know.
    let pid = rustix::process::Pid::from_raw(process.pid() as i32);
    let few = rustix::process::Rlimit { current: Some(40), maximum: Some(40) };
    rustix::process::prlimit(pid, rustix::process::Resource::Nofile, few).expect("a child");
    let mut clients: Vec<_> = (0..60).map(|_| RawClient::connect(address(&ready))).collect();
    eventually(PATIENCE, || open_fds(process.pid()).expect("it runs") >= 39);
    // There is no descriptor for the last ones, but a word.
    assert_eq!(clients[59].read_reply().error(), TOO_MANY);
    assert_eq!(first.command(&["PING"]).text(), "PONG");
    process.terminate();
    let finished = Finished::of(&mut process);
    assert_eq!(finished.code, Some(0), "{finished:?}");
}
