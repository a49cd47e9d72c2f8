//! A large reply that many clients are sent is held once, not once for each of them.

use heatsink_testkit::{RawClient, RedisServer, eventually};

use crate::node::{CACHE, Node};
use crate::support::{PATIENCE, Place};

const CLIENTS: usize = 50;
const MIB: u64 = 1 << 20;

fn status_bytes(node: &Node, name: &str) -> u64 {
    let path = format!("/proc/{}/status", node.process.pid());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().strip_suffix(" kB").expect("in KiB").parse::<u64>().expect("a number") * 1024
}

fn unread_bytes(node: &Node) -> u64 {
    let metrics = node.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix("heatsink_client_output_bytes "));
    line.expect("a gauge").parse().expect("a number")
}

/// Promotes `big` and gives it `len` bytes.
fn start(place: &Place, server: &RedisServer, len: usize) -> Node {
    let upstream = server.url();
    let args = ["--upstream", &upstream, "--coalesce-max-wait-ms", "60000"];
    let node = Node::start(place, &args);
    let mut direct = server.client();
    let length = direct.command(&["SETRANGE", "big", &(len - 1).to_string(), "\0"]);
    assert_eq!(length.integer(), len as i64);
    eventually(PATIENCE, || node.api().promote(b"big", CACHE).is_ok());
    eventually(PATIENCE, || {
        node.entry("big").is_some_and(|entry| entry["mitigation_state"] != "pending")
    });
    node
}

/// What one of them reads is what it asked for, and nothing else follows.
fn expect_value(client: &mut RawClient, len: usize) {
    assert_eq!(client.read_reply().text().len(), len);
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_coalesced_value_is_held_once_for_clients_that_do_not_read() {
    const LEN: usize = 20 << 20;
    const MOST: u64 = 200 * MIB;
    let (place, mut server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, LEN);
    let before = status_bytes(&node, "VmHWM:");
    let mut clients: Vec<RawClient> = (0..CLIENTS).map(|_| node.client()).collect();
    // All of them ask before the first is answered: one read for the first, one for the others.
    server.pause();
    for client in &mut clients {
        client.set_timeout(PATIENCE);
        client.send(&["GET", "big"]);
    }
    let asked = || {
        let metrics = node.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix("heatsink_requests_total "));
        line.is_some_and(|total| total.parse::<u64>().expect("a number") >= CLIENTS as u64)
    };
    eventually(PATIENCE, asked);
    server.resume();
    // The second is there once there is more unread than one of them can leave. A block counts
    // once, however many clients it is for.
    eventually(PATIENCE, || unread_bytes(&node) > LEN as u64);
    let grown = status_bytes(&node, "VmHWM:") - before;
    let unread = unread_bytes(&node);
    println!("grown by {grown} bytes, {unread} unread");
    assert!(unread <= 3 * LEN as u64, "{unread} bytes unread");
    assert!(grown < MOST, "grown by {grown} bytes");
    for client in &mut clients {
        expect_value(client, LEN);
    }
    eventually(PATIENCE, || unread_bytes(&node) == 0);
}

#[test]
fn a_cached_value_is_held_once_for_clients_that_do_not_read() {
    const LEN: usize = 1_000_000;
    const READS: usize = 20;
    const MOST: u64 = 100 * MIB;
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, LEN);
    let mut first = node.client();
    eventually(PATIENCE, || {
        let before = server.calls("get");
        first.command(&["GET", "big"]);
        server.calls("get") == before
    });
    let before = status_bytes(&node, "VmHWM:");
    let mut clients: Vec<RawClient> = (0..CLIENTS).map(|_| node.client()).collect();
    for client in &mut clients {
        client.set_timeout(PATIENCE);
        for _ in 0..READS {
            client.send(&["GET", "big"]);
        }
    }
    eventually(PATIENCE, || unread_bytes(&node) > 0);
    for client in &mut clients {
        for _ in 0..READS {
            assert_eq!(client.read_reply().text().len(), LEN);
        }
    }
    let grown = status_bytes(&node, "VmHWM:") - before;
    println!("grown by {grown} bytes");
    assert!(grown < MOST, "grown by {grown} bytes");
}
