//! Logs that cannot be written: the proxy serves, answers for its health and ends when asked.

use std::fs::OpenOptions;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::net::TcpStream;
use std::process::Stdio;

use heatsink_testkit::{Process, RawClient, RedisServer, Reply, eventually};

use crate::support::{Finished, PATIENCE, Place, address, start};

/// A `serve` that logs much, to `stderr`.
fn serve(place: &Place, server: &RedisServer, stderr: impl Into<Stdio>) -> (Process, String) {
    let url = server.url();
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--log", "info"];
    start(place.heatsink(&args).stderr(stderr))
}

/// The value of a metric, as the process tells it.
fn metric(ready: &str, name: &str) -> f64 {
    let (_, rest) = ready.split_once("admin http://").expect("an admin address");
    let mut stream = TcpStream::connect(rest.trim_end_matches(')')).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

/// Has a line logged, and every worker serve.
fn log_and_serve(ready: &str) {
    let mut client = TcpStream::connect(address(ready)).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("not zero");
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    // A warning is logged before the connection is closed.
    let _ = client.read_to_end(&mut Vec::new());
    for _ in 0..4 {
        let mut client = RawClient::connect(address(ready));
        assert_eq!(client.command(&["SET", "k", "v"]), Reply::ok());
    }
}

/// A pipe that nothing more can be written to until it is read from.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be made not to wait");
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("and to wait");
    (reader, writer)
}

fn ends_when_asked(mut process: Process) {
    process.terminate();
    assert_eq!(Finished::of(&mut process).code, Some(0));
}

#[test]
fn a_full_disk_costs_log_lines_and_nothing_else() {
    let (server, place) = (RedisServer::start(), Place::empty());
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let (process, ready) = serve(&place, &server, full);
    log_and_serve(&ready);
    // "ready", and the warning.
    eventually(PATIENCE, || metric(&ready, "heatsink_log_lines_dropped_total") >= 2.0);
    ends_when_asked(process);
}

#[test]
fn a_reader_that_has_gone_costs_log_lines_and_nothing_else() {
    let (server, place) = (RedisServer::start(), Place::empty());
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let (process, ready) = serve(&place, &server, writer);
    log_and_serve(&ready);
    eventually(PATIENCE, || metric(&ready, "heatsink_log_lines_dropped_total") >= 2.0);
    ends_when_asked(process);
}

#[test]
fn a_pipe_that_nobody_drains_stops_nobody() {
    let (server, place) = (RedisServer::start(), Place::empty());
    let (_kept, writer) = full_pipe();
    let (process, ready) = serve(&place, &server, writer);
    log_and_serve(&ready);
    ends_when_asked(process);
}

#[test]
fn what_waited_is_written_when_the_pipe_is_drained() {
    let (server, place) = (RedisServer::start(), Place::empty());
    let (mut reader, writer) = full_pipe();
    let (mut process, ready) = serve(&place, &server, writer);
    log_and_serve(&ready);
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    process.terminate();
    assert_eq!(Finished::of(&mut process).code, Some(0));
    let text = read.join().expect("it reads").expect("text");
    for line in ["ready", "speaks HTTP", "shutting down"] {
        assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
    }
}

#[test]
fn a_failure_to_start_has_its_exit_code_without_a_stderr() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let place = Place::empty();
    for (args, code) in [(["check", "nowhere.toml"], 1), (["serve", "--listen=x"], 3)] {
        let full = full.try_clone().expect("a descriptor");
        let mut process = place.heatsink(&args).stderr(full).spawn();
        assert_eq!(Finished::of(&mut process).code, Some(code), "{args:?}");
    }
}

const CLIENTS: usize = 300;

#[test]
fn a_flood_of_one_kind_of_line_is_counted_instead() {
    let place = Place::empty();
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", "embedded://"];
    let (mut process, ready) = start(place.heatsink(&args));
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(address(&ready)).expect("it listens");
        client.write_all(b"POST / HTTP/1.1\r\n\r\n").expect("sent");
        let _ = client.read_to_end(&mut Vec::new());
    }
    process.terminate();
    let stderr = Finished::of(&mut process).stderr;
    let told = |line: &&str| line.contains("speaks HTTP");
    let (counts, lines): (Vec<&str>, Vec<&str>) =
        stderr.lines().filter(told).partition(|line| line.contains("were suppressed"));
    assert!(lines.len() < CLIENTS / 3, "{stderr}");
    let count = |line: &str| -> Option<usize> {
        line.split_once("count=")?.1.split(' ').next()?.parse().ok()
    };
    let left_out: usize = counts.iter().filter_map(|line| count(line)).sum();
    assert_eq!(lines.len() + left_out, CLIENTS, "{stderr}");
}
