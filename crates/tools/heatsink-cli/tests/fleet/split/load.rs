//! Values that are moved while clients write: nothing acknowledged is lost, nothing is invented.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};

use crate::node::{Node, all, assemble};
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

/// What one client has written.
#[derive(Debug, Default)]
struct Written {
    /// Increments, and members, that were acknowledged.
    increments: i64,
    members: BTreeSet<String>,
    /// Increments, and members, of which nobody knows.
    unknown_increments: i64,
    unknown_members: BTreeSet<String>,
    /// Commands that were refused, which were not carried out.
    refused: Vec<String>,
    slowest: Duration,
}

/// Writes through one proxy until it is told to stop; connects again when the proxy is gone.
fn write(name: String, proxy: SocketAddr, stop: Arc<AtomicBool>) -> JoinHandle<Written> {
    thread::spawn(move || {
        let mut written = Written::default();
        let mut client: Option<RawClient> = None;
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(connected) = &mut client else {
                client = RawClient::try_connect(proxy).ok();
                if client.is_none() {
                    thread::sleep(Duration::from_millis(10));
                }
                continue;
            };
            number += 1;
            let begun = Instant::now();
            if number % 2 == 0 {
                match connected.try_command(&["INCR", "counter"]) {
                    Ok(Reply::Integer(_)) => written.increments += 1,
                    Ok(reply) => written.refused.push(reply.error()),
                    Err(_) => {
                        written.unknown_increments += 1;
                        client = None;
                    }
                }
            } else {
                let member = format!("{name}:{number}");
                match connected.try_command(&["SADD", "set", &member]) {
                    Ok(Reply::Integer(_)) => drop(written.members.insert(member)),
                    Ok(reply) => written.refused.push(reply.error()),
                    Err(_) => {
                        written.unknown_members.insert(member);
                        client = None;
                    }
                }
            }
            written.slowest = written.slowest.max(begun.elapsed());
        }
        written
    })
}

/// Compares what is there with what was written.
fn settle(written: &[Written], counter: i64, members: &BTreeSet<String>) {
    let acknowledged: i64 = written.iter().map(|one| one.increments).sum();
    let unknown: i64 = written.iter().map(|one| one.unknown_increments).sum();
    println!("counter {counter}: {acknowledged} acknowledged, {unknown} unknown");
    assert!((acknowledged..=acknowledged + unknown).contains(&counter), "{counter}");
    let sure: BTreeSet<String> = written.iter().flat_map(|one| one.members.clone()).collect();
    let perhaps: BTreeSet<String> =
        written.iter().flat_map(|one| one.unknown_members.clone()).collect();
    let lost: Vec<_> = sure.difference(members).collect();
    assert!(lost.is_empty(), "{} members are lost, among them {:?}", lost.len(), &lost[..1]);
    let made_up =
        members.iter().filter(|member| !sure.contains(*member) && !perhaps.contains(*member));
    assert_eq!(made_up.count(), 0);
    println!("set of {}: {} acknowledged, {} unknown", members.len(), sure.len(), perhaps.len());
}

fn contents(node: &Node) -> (i64, BTreeSet<String>) {
    let mut client = node.client();
    let counter = client.command(&["GET", "counter"]).text().parse().expect("a number");
    let members = client.command(&["SMEMBERS", "set"]);
    (counter, members.items().iter().map(Reply::text).collect())
}

#[test]
fn writers_notice_nothing_of_splits_that_come_and_go() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let nodes: Vec<Node> =
        (0..2).map(|_| Node::member(&place, "all", &store.url(), &cluster.seed_url())).collect();
    assemble(&[&nodes[0], &nodes[1]]);
    let mut client = nodes[0].client();
    client.command(&["SET", "counter", "0"]);
    client.command(&["SADD", "set", "seed"]);
    client.command(&["SREM", "set", "none"]);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let proxy = nodes[number % 2].clients();
            write(format!("w{number}"), proxy, Arc::clone(&stop))
        })
        .collect();
    for round in 0..6 {
        let factor = [2, 4, 8][round % 3];
        let node = &nodes[round % 2];
        for key in ["counter", "set"] {
            node.api().promote(key.as_bytes(), split(factor)).expect("promoted");
        }
        for key in ["counter", "set"] {
            all(&nodes, PATIENCE, "it is split", |node| rests_split(node, key, factor));
        }
        if round % 2 == 1 {
            for key in ["counter", "set"] {
                node.api().demote(key.as_bytes()).expect("removed");
                all(&nodes, PATIENCE, "it is whole", |node| node.lacks(key));
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written: Vec<Written> =
        writers.into_iter().map(|writer| writer.join().expect("it ends")).collect();
    for one in &written {
        assert_eq!(one.refused, Vec::<String>::new(), "nobody is refused anything");
        println!("{} increments, slowest {:?}", one.increments, one.slowest);
    }
    written[0].members.insert("seed".to_owned());
    let (counter, members) = contents(&nodes[1]);
    settle(&written, counter, &members);
    println!("{}", freeze(&nodes));
}

/// Proxies are killed while they move, one after the other.
#[test]
fn nothing_is_lost_when_movers_are_killed_at_any_moment() {
    let place = Place::empty();
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let store = RedisServer::start();
    let start = || Node::member(&place, "all", &store.url(), &cluster.seed_url());
    let steady = start();
    let mut client = steady.client();
    client.command(&["SET", "counter", "0"]);
    client.command(&["SADD", "set", "seed"]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers: Vec<_> = (0..2)
        .map(|number| write(format!("w{number}"), steady.clients(), Arc::clone(&stop)))
        .collect();
    for round in 0_u64..8 {
        let mut doomed = start();
        assemble(&[&steady, &doomed]);
        let gone = Arc::new(AtomicBool::new(false));
        let writer = write(format!("d{round}"), doomed.clients(), Arc::clone(&gone));
        for key in ["counter", "set"] {
            if round % 2 == 0 {
                steady.api().promote(key.as_bytes(), split(4)).expect("promoted");
            } else {
                let _ = steady.api().demote(key.as_bytes());
            }
        }
        // At another moment each time.
        thread::sleep(Duration::from_millis(round * 4));
        doomed.process.kill();
        gone.store(true, Ordering::Relaxed);
        writers.push(writer);
        for key in ["counter", "set"] {
            all([&steady], PATIENCE, "it comes to rest", |node| {
                if round % 2 == 0 { rests_split(node, key, 4) } else { node.lacks(key) }
            });
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written: Vec<Written> =
        writers.into_iter().map(|writer| writer.join().expect("it ends")).collect();
    written[0].members.insert("seed".to_owned());
    for one in &written {
        for why in &one.refused {
            // A proxy whose mover died lets go after a while, or says that nothing was done.
            assert!(why.starts_with("WRONGTYPE") || why.starts_with("TRYAGAIN"), "{why}");
        }
    }
    let (counter, members) = eventually(PATIENCE, || Some(contents(&steady)));
    settle(&written, counter, &members);
}

/// How long writes were held, as all of them tell.
fn freeze(nodes: &[Node]) -> String {
    let lines = nodes.iter().map(|node| {
        let metrics = node.metrics();
        let lines =
            metrics.lines().filter(|line| line.starts_with("heatsink_split_freeze_seconds"));
        let mut text = String::new();
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    });
    lines.collect()
}
