//! A large reply that many clients are sent is held once, not once for each of them.

use heatsink_testkit::{LUA_NOW_MS, RawClient, RedisServer, Reply, encode, eventually};

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
    eventually(PATIENCE, || node.entry("big").is_some_and(|entry| entry.status == "active"));
    node
}

/// Keeps the server busy for a moment, less than makes a proxy give up a connection.
fn busy_script() -> String {
    format!("{LUA_NOW_MS} local start = now() while now() - start < 200 do end return 1")
}

/// So many clients read what they were sent, to its end; the others never do.
const READERS: usize = 5;
/// On a machine that stands still for a moment the proxy gives up on the connection along which the
/// server tells of changes, and reads fail; then it is tried again.
const ATTEMPTS: usize = 10;

/// Has clients send requests while the server is busy, and waits until all of them are being
/// answered; nothing if some got an error.
fn ask_all(node: &Node, server: &RedisServer, requests: &[u8]) -> Option<Vec<RawClient>> {
    let mut clients: Vec<RawClient> = (0..CLIENTS).map(|_| node.client()).collect();
    let mut busy = server.client();
    busy.send(&["EVAL", &busy_script(), "0"]);
    for client in &mut clients {
        client.set_timeout(PATIENCE);
        client.send_raw(requests);
    }
    let is_answered = |client: &RawClient| {
        let mut first = [0];
        client.stream().peek(&mut first).expect("an answer");
        first == *b"$"
    };
    clients.iter().all(is_answered).then_some(clients)
}

#[test]
fn a_coalesced_value_is_held_once_for_clients_that_do_not_read() {
    const LEN: usize = 20 << 20;
    const MOST: u64 = 200 * MIB;
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, LEN);
    let before = status_bytes(&node, "VmHWM:");
    // All of them ask before the first is answered: one read for the first, one for the others.
    let request = encode(&["GET", "big"]);
    let clients = (0..ATTEMPTS).find_map(|_| ask_all(&node, &server, &request));
    let mut clients = clients.expect("all are answered");
    // The worker tells the figure at the end of a turn. A buffer counts once, however many clients
    // it is for.
    eventually(PATIENCE, || unread_bytes(&node) > 0);
    let unread = unread_bytes(&node);
    let grown = status_bytes(&node, "VmHWM:") - before;
    println!("grown by {grown} bytes, {unread} unread");
    assert!(unread <= 5 * LEN as u64, "{unread} bytes unread");
    assert!(grown < MOST, "grown by {grown} bytes");
    for client in &mut clients[CLIENTS - READERS..] {
        assert_eq!(client.read_reply().text().len(), LEN);
        assert_eq!(client.command(&["PING"]).text(), "PONG");
    }
    drop(clients);
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
        let value = first.command(&["GET", "big"]);
        matches!(value, Reply::Bulk(_)) && server.calls("get") == before
    });
    let before = status_bytes(&node, "VmHWM:");
    let requests = encode(&["GET", "big"]).repeat(READS);
    let clients = (0..ATTEMPTS).find_map(|_| ask_all(&node, &server, &requests));
    let mut clients = clients.expect("all are answered");
    let grown = status_bytes(&node, "VmHWM:") - before;
    println!("grown by {grown} bytes");
    assert!(grown < MOST, "grown by {grown} bytes");
    for client in &mut clients[CLIENTS - READERS..] {
        // One that the cache had lost by then may have failed; none is mixed up with another.
        for _ in 0..READS {
            match client.read_reply() {
                Reply::Bulk(value) => assert_eq!(value.len(), LEN),
                error => assert!(error.error().contains("heatsink")),
            }
        }
    }
    drop(clients);
    eventually(PATIENCE, || unread_bytes(&node) == 0);
}
