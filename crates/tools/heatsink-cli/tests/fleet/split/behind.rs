//! Proxies that know less than the others: they have just started, were cut off from the store,
//! or slept. Their clients do not see what stands where a value was moved from.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};

use crate::node::{Node, Servers, all, assemble};
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

const CLIENTS: usize = 4;
/// Restarts of each of two proxies.
const RESTARTS: usize = 4;

/// A way to a server that can be cut: connections stay, and nothing comes through.
struct Way {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Way {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { return };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().expect("one"), to.try_clone().expect("one"));
                    let cut = Arc::clone(&cut);
                    thread::spawn(move || pass_on(from, to, &cut));
                }
            }
        });
        Self { address, is_cut }
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Release);
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_cut.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A cluster, a store, and two proxies, the second of which can be cut off from the store.
pub(crate) struct Rig {
    place: Place,
    cluster: RedisCluster,
    store: RedisServer,
    way: Way,
    pub(crate) nodes: [Node; 2],
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self::start_in(Place::empty())
    }

    /// The same with a configuration.
    pub(crate) fn start_in(place: Place) -> Self {
        let cluster = RedisCluster::builder().replicas_per_primary(0).start();
        let store = RedisServer::start();
        let way = Way::to(store.addr());
        let nodes = [store.url(), way.url()].map(|store| {
            let upstream = cluster.seed_url();
            let args = ["--coordination-url", &store, "--upstream", &upstream];
            let has_file = place.path().join("heatsink.toml").exists();
            let file: &[&str] = if has_file { &["--config", "heatsink.toml"] } else { &[] };
            Node::start(&place, &[&args, file].concat())
        });
        assemble(&[&nodes[0], &nodes[1]]);
        let mut client = nodes[0].client();
        client.command(&["SADD", "set", "a", "b", "c"]);
        client.command(&["SET", "counter", "10"]);
        Self { place, cluster, store, way, nodes }
    }

    /// Cuts the second proxy off from the store, or brings it back.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.way.cut(is_cut);
    }

    /// Starts a proxy again, at its address, after a signal or the hard way.
    fn restart(&mut self, which: usize, kindly: bool) {
        let node = &mut self.nodes[which];
        let listen = node.clients().to_string();
        if kindly {
            node.process.terminate();
            node.process.wait_exit(PATIENCE);
        } else {
            node.process.kill();
        }
        let (store, upstream) = (self.store.url(), self.cluster.seed_url());
        let args = ["serve", "--listen", &listen, "--workers", "1", "--coordination-url", &store];
        *node = Node::of(self.place.heatsink(&args).args(["--upstream", &upstream]));
    }
}

/// Splits both keys, or makes them whole, by the first proxy; waits for these to know.
fn move_keys(splits: bool, who: &[Node]) {
    move_these(&["set", "counter"], splits, who);
}

/// The same for other keys, which may be hot already.
pub(crate) fn move_these(keys: &[&str], splits: bool, who: &[Node]) {
    for key in keys {
        let begun = Instant::now();
        // It is put off for as long as a proxy counts that does not answer.
        let is_done = |node: &Node| {
            if splits { rests_split(node, key, 6) } else { node.lacks(key) }
        };
        while !who.iter().all(is_done) {
            assert!(begun.elapsed() < 3 * PATIENCE, "{key}: {:?}", who[0].entry(key));
            let api = who[0].api();
            let is_split =
                || who[0].entry(key).is_some_and(|entry| entry.mitigation_type == "split");
            if splits && !is_split() {
                api.promote(key.as_bytes(), split(6)).expect("promoted");
            } else if !splits {
                let _ = api.demote(key.as_bytes());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn clients_of_proxies_that_are_restarted_see_no_markers() {
    let mut rig = Rig::start();
    move_keys(true, &rig.nodes);
    let addresses = [rig.nodes[0].clients(), rig.nodes[1].clients()];
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let refused = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (over, done, refused) = (over.clone(), done.clone(), refused.clone());
            thread::spawn(move || {
                let mut round = number;
                while !over.load(Ordering::Acquire) {
                    round += 1;
                    let Ok(mut client) = RawClient::try_connect(addresses[round % 2]) else {
                        thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    client.set_timeout(PATIENCE);
                    let member = format!("{number}");
                    for command in [
                        &["SADD", "set", &member][..],
                        &["SISMEMBER", "set", &member],
                        &["INCR", "counter"],
                        &["SREM", "set", &member],
                        &["GET", "counter"],
                    ] {
                        match client.try_command(command) {
                            Ok(Reply::Error(error)) if error.starts_with("WRONGTYPE") => {
                                refused.lock().expect("no panic").push(command.join(" "));
                            }
                            Ok(Reply::Error(_)) => {}
                            Ok(_) => drop(done.fetch_add(1, Ordering::AcqRel)),
                            Err(_) => break,
                        }
                    }
                }
            })
        })
        .collect();
    for number in 0..RESTARTS {
        for which in 0..2 {
            let before = done.load(Ordering::Acquire);
            rig.restart(which, number % 2 == 0);
            eventually(PATIENCE, || done.load(Ordering::Acquire) > before + 200);
        }
    }
    over.store(true, Ordering::Release);
    for client in clients {
        client.join().expect("no panic");
    }
    let refused = refused.lock().expect("no panic");
    assert!(refused.is_empty(), "{} of them: {:?}", refused.len(), &refused[..1]);
    move_keys(true, &rig.nodes);
}

/// Has the second proxy asked while it is cut off from the store, and brings it back: the reply
/// may not come before.
pub(crate) fn ask_cut_off(rig: &Rig, requests: &[&[&str]]) -> Vec<Reply> {
    let mut clients: Vec<RawClient> = requests.iter().map(|_| rig.nodes[1].client()).collect();
    for (client, request) in clients.iter_mut().zip(requests) {
        client.set_timeout(PATIENCE);
        client.send(request);
    }
    thread::sleep(Duration::from_millis(300));
    rig.cut(false);
    clients.iter_mut().map(RawClient::read_reply).collect()
}

#[test]
fn what_a_tombstone_refuses_is_carried_out_at_the_key() {
    let rig = Rig::start();
    move_keys(true, &rig.nodes);
    rig.cut(true);
    move_keys(false, &rig.nodes[..1]);
    let requests: [&[&str]; 4] = [
        &["SADD", "set", "d"],
        &["SREM", "set", "a"],
        &["SISMEMBER", "set", "b"],
        &["SISMEMBER", "set", "x"],
    ];
    let replies = ask_cut_off(&rig, &requests);
    let expected = [1, 1, 1, 0].map(Reply::Integer);
    assert_eq!(replies, expected);
    let mut members: Vec<String> = rig.nodes[0]
        .client()
        .command(&["SMEMBERS", "set"])
        .items()
        .iter()
        .map(Reply::text)
        .collect();
    members.sort();
    assert_eq!(members, ["b", "c", "d"]);
}

#[test]
fn what_a_marker_refuses_is_carried_out_at_the_shards() {
    let rig = Rig::start();
    rig.cut(true);
    move_keys(true, &rig.nodes[..1]);
    let requests: [&[&str]; 7] = [
        &["SADD", "set", "d"],
        &["SADD", "set", "e", "f", "g"],
        &["SREM", "set", "a"],
        &["SISMEMBER", "set", "b"],
        &["INCRBY", "counter", "5"],
        &["STRLEN", "counter"],
        // This one needs it whole.
        &["SPOP", "set", "0"],
    ];
    let replies = ask_cut_off(&rig, &requests);
    let mut expected: Vec<_> = [1, 3, 1, 1, 15, 2].map(Reply::Integer).to_vec();
    expected.push(Reply::Array(Vec::new()));
    assert_eq!(replies, expected);
    for node in &rig.nodes {
        let mut client = node.client();
        assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(6));
        assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("15"));
    }
}

/// A client that sends on has its order: what would be overtaken is not carried out later.
#[test]
fn nothing_overtakes_what_was_refused() {
    let rig = Rig::start();
    rig.cut(true);
    move_keys(true, &rig.nodes[..1]);
    let mut client = rig.nodes[1].client();
    client.set_timeout(PATIENCE);
    for request in [["SADD", "set", "z"], ["SREM", "set", "z"]] {
        client.send(&request);
    }
    thread::sleep(Duration::from_millis(300));
    rig.cut(false);
    let (added, removed) = (client.read_reply(), client.read_reply());
    match (&added, &removed) {
        (Reply::Integer(1), Reply::Integer(1)) => {}
        (Reply::Error(error), Reply::Integer(0)) => {
            assert!(error.starts_with("TRYAGAIN"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.command(&["SISMEMBER", "set", "z"]), Reply::Integer(0));
}

#[test]
fn a_refusal_that_is_deserved_is_passed_on() {
    let rig = Rig::start();
    let mut client = rig.nodes[1].client();
    client.command(&["RPUSH", "list", "x"]);
    client.command(&["SET", "text", "x"]);
    let wrong: [&[&str]; 4] =
        [&["SADD", "list", "x"], &["INCR", "list"], &["LPUSH", "text", "x"], &["HGET", "set", "f"]];
    for splits in [false, true, false] {
        move_keys(splits, &rig.nodes);
        for request in wrong.iter().chain([&["LPUSH", "counter", "x"][..], &["INCR", "set"]].iter())
        {
            let begun = Instant::now();
            let reply = client.command(request);
            assert!(reply.error().starts_with("WRONGTYPE"), "{request:?}: {reply:?}");
            assert!(begun.elapsed() < Duration::from_secs(2), "{request:?}");
        }
        // One behind the other, with others between them.
        for _ in 0..50 {
            client.send(&["SADD", "text", "x"]);
            client.send(&["GET", "text"]);
        }
        for _ in 0..50 {
            assert!(client.read_reply().error().starts_with("WRONGTYPE"));
            assert_eq!(client.read_reply(), Reply::bulk("x"));
        }
    }
}

/// One that has slept for so long that it believes nothing, and whose keys were split or made
/// whole meanwhile.
fn sleeps_longer_than_it_believes(splits: bool) {
    let mut rig = Rig::start();
    if !splits {
        move_keys(true, &rig.nodes);
    }
    let mut late: Vec<RawClient> = (0..2).map(|_| rig.nodes[1].client()).collect();
    for client in &mut late {
        client.set_timeout(PATIENCE);
        assert_eq!(client.command(&["SISMEMBER", "set", "a"]), Reply::Integer(1));
    }
    rig.nodes[1].process.pause();
    move_keys(splits, &rig.nodes[..1]);
    // What it believes lasts for ten seconds.
    thread::sleep(Duration::from_secs(11));
    late[0].send(&["SADD", "set", "late"]);
    late[1].send(&["INCR", "counter"]);
    rig.nodes[1].process.resume();
    assert_eq!(late[0].read_reply(), Reply::Integer(1));
    assert_eq!(late[1].read_reply(), Reply::Integer(11));
    let mut client = rig.nodes[0].client();
    assert_eq!(client.command(&["SCARD", "set"]), Reply::Integer(4));
    assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("11"));
}

#[test]
fn a_proxy_that_slept_longer_than_it_believes_refuses_nothing_at_shards() {
    sleeps_longer_than_it_believes(true);
}

#[test]
fn a_proxy_that_slept_longer_than_it_believes_refuses_nothing_at_a_whole_key() {
    sleeps_longer_than_it_believes(false);
}

/// Sealed shards answer whoever asks. One that was told that a split ends, and stood still while others
/// made the key whole and wrote to it, does not take what they say for the value.
#[test]
fn a_proxy_that_slept_while_a_key_was_made_whole_does_not_read_what_was_left() {
    let (place, mut servers) = (Place::empty(), Servers::start());
    let mut nodes = [servers.member(&place, "all", &[]), servers.member(&place, "all", &[])];
    assemble(&[&nodes[0], &nodes[1]]);
    let mut client = nodes[0].client();
    client.command(&["SET", "counter", "10"]);
    client.command(&["SADD", "set", "a", "b", "c"]);
    for key in ["counter", "set"] {
        nodes[0].api().promote(key.as_bytes(), split(4)).expect("promoted");
        all(&nodes, PATIENCE, "it is split", |node| rests_split(node, key, 4));
    }
    let mut late: Vec<RawClient> = (0..3).map(|_| nodes[1].client()).collect();
    for client in &mut late {
        client.set_timeout(PATIENCE);
        assert_eq!(client.command(&["GET", "counter"]), Reply::bulk("10"));
    }
    // While the server stands still, a split that is to end goes no further than the registry.
    servers.upstream.pause();
    thread::scope(|scope| {
        for key in ["counter", "set"] {
            let api = nodes[0].api();
            scope.spawn(move || {
                let _ = api.demote(key.as_bytes());
            });
        }
        for key in ["counter", "set"] {
            let drains = || nodes[1].entry(key).is_some_and(|entry| entry.status == "draining");
            eventually(PATIENCE, drains);
        }
        nodes[1].process.pause();
        servers.upstream.resume();
    });
    for key in ["counter", "set"] {
        eventually(PATIENCE, || nodes[0].lacks(key));
    }
    assert_eq!(client.command(&["INCRBY", "counter", "5"]), Reply::Integer(15));
    assert_eq!(client.command(&["SADD", "set", "d"]), Reply::Integer(1));
    late[0].send(&["GET", "counter"]);
    late[1].send(&["SCARD", "set"]);
    late[2].send(&["SISMEMBER", "set", "d"]);
    nodes[1].process.resume();
    let replies: Vec<Reply> = late.iter_mut().map(RawClient::read_reply).collect();
    assert_eq!(replies, [Reply::bulk("15"), Reply::Integer(4), Reply::Integer(1)]);
}

/// The store may be away: clients are served all the same, after a while.
#[test]
fn a_process_that_cannot_hear_of_the_fleet_starts_without() {
    let (place, upstream, mut store) = (Place::empty(), RedisServer::start(), RedisServer::start());
    let (url, upstream) = (store.url(), upstream.url());
    store.kill();
    let begun = Instant::now();
    let node = Node::start(&place, &["--coordination-url", &url, "--upstream", &upstream]);
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    node.process.wait_for_line("clients are accepted before the registry", PATIENCE);
    assert_eq!(node.client().command(&["SET", "key", "value"]), Reply::ok());
}
