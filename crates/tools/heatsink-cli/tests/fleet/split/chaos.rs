//! Everything that takes part in a split is killed or frozen at random, under load: what was
//! acknowledged is there in the end, once, and nothing else.
//!
//! `HEATSINK_SPLIT_KILLS` makes it longer, `HEATSINK_SPLIT_SEED` another one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually, seed_from};

use crate::node::{Node, all, assemble};
use crate::split::split;
use crate::support::{PATIENCE, Place};

/// Kills and freezes of the usual run.
const KILLS: u64 = 10;
/// Members of the set that each client adds and removes.
const MEMBERS: usize = 40;
const CLIENTS: usize = 4;

/// What a client knows of a member of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    In,
    Out,
    Unsure,
}

/// What all clients know.
#[derive(Debug, Default)]
struct Books {
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    members: Mutex<BTreeMap<String, Known>>,
    errors: Mutex<BTreeMap<String, u64>>,
}

/// A client that changes what only it changes, and notes what it was told.
struct Changes {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Changes {
    fn start(number: usize, addresses: &Arc<Mutex<Vec<SocketAddr>>>, books: &Arc<Books>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (addresses, books, ends) = (Arc::clone(addresses), Arc::clone(books), over.clone());
        let thread = thread::spawn(move || {
            let mut rng = fastrand::Rng::with_seed(number as u64);
            let mut client = None;
            while !ends.load(Ordering::Acquire) {
                client = client.or_else(|| {
                    let addresses = addresses.lock().expect("no panic").clone();
                    let address = addresses[rng.usize(..addresses.len())];
                    let mut client = RawClient::try_connect(address).ok()?;
                    client.set_timeout(Duration::from_secs(8));
                    Some(client)
                });
                let Some(connected) = &mut client else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let well = if rng.bool() {
                    increment(connected, &books)
                } else {
                    change(connected, &mut rng, number, &books)
                };
                if !well {
                    client = None;
                }
            }
        });
        Self { over, thread: Some(thread) }
    }

    fn end(mut self) {
        self.over.store(true, Ordering::Release);
        self.thread.take().expect("once").join().expect("no panic");
    }
}

/// An error that says that nothing was done.
fn is_refusal(error: &str) -> bool {
    ["TRYAGAIN", "WRONGTYPE", "LOADING", "CLUSTERDOWN"].iter().any(|word| error.starts_with(word))
        || error.contains("nothing was done")
        || error.contains("was not carried out")
}

fn note_error(books: &Books, error: &str) {
    let text: String = error.chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
    *books.errors.lock().expect("no panic").entry(text).or_default() += 1;
}

fn increment(client: &mut RawClient, books: &Books) -> bool {
    match client.try_command(&["INCR", "counter"]) {
        Ok(Reply::Integer(_)) => {
            books.acknowledged.fetch_add(1, Ordering::AcqRel);
            true
        }
        Ok(Reply::Error(error)) => {
            note_error(books, &error);
            if !is_refusal(&error) {
                books.unknown.fetch_add(1, Ordering::AcqRel);
            }
            true
        }
        Ok(other) => panic!("{other:?}"),
        Err(_) => {
            books.unknown.fetch_add(1, Ordering::AcqRel);
            false
        }
    }
}

fn change(client: &mut RawClient, rng: &mut fastrand::Rng, number: usize, books: &Books) -> bool {
    let member = format!("{number}:{}", rng.usize(..MEMBERS));
    let adds = rng.bool();
    let known = books.members.lock().expect("no panic").get(&member).copied();
    let reply = client.try_command(&[if adds { "SADD" } else { "SREM" }, "set", &member]);
    let now = if adds { Known::In } else { Known::Out };
    let known_now = match &reply {
        Ok(Reply::Integer(changed)) => {
            let expected = match known {
                Some(Known::In) => Some(i64::from(!adds)),
                Some(Known::Out) | None => Some(i64::from(adds)),
                Some(Known::Unsure) => None,
            };
            if let Some(expected) = expected {
                assert_eq!(*changed, expected, "{member}: added {adds}, known {known:?}");
            }
            now
        }
        Ok(Reply::Error(error)) => {
            note_error(books, error);
            match (is_refusal(error), known) {
                (true, known) => known.unwrap_or(Known::Out),
                (false, Some(known)) if known == now => known,
                (false, _) => Known::Unsure,
            }
        }
        Ok(other) => panic!("{other:?}"),
        Err(_) if known == Some(now) => now,
        Err(_) => Known::Unsure,
    };
    books.members.lock().expect("no panic").insert(member, known_now);
    reply.is_ok()
}

fn serve(place: &Place, store: &RedisServer, cluster: &RedisCluster) -> Node {
    let (store, upstream) = (store.url(), cluster.seed_url());
    Node::start(place, &["--coordination-url", &store, "--upstream", &upstream])
}

#[test]
fn nothing_is_lost_or_invented_whoever_dies_when() {
    let kills = seed_from("HEATSINK_SPLIT_KILLS", KILLS);
    let mut rng = fastrand::Rng::with_seed(seed_from("HEATSINK_SPLIT_SEED", 11));
    let place = Place::empty();
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let settings = settings.durable().line("cluster-require-full-coverage no");
    let mut cluster = settings.start();
    let store = RedisServer::start();
    let mut nodes: Vec<Node> = (0..2).map(|_| serve(&place, &store, &cluster)).collect();
    assemble(&nodes.iter().collect::<Vec<_>>());
    let mut client = nodes[0].client();
    client.command(&["SET", "counter", "0"]);
    client.command(&["SADD", "set", "first"]);
    let addresses: Vec<_> = nodes.iter().map(Node::clients).collect();
    let addresses = Arc::new(Mutex::new(addresses));
    let books = Arc::new(Books::default());
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| Changes::start(number, &addresses, &books)).collect();
    let mut log = Vec::new();
    for _ in 0..kills {
        // Values are on the move most of the time.
        for key in ["counter", "set"] {
            let api = nodes[rng.usize(..2)].api().with_timeout(Duration::from_secs(2));
            let done = match rng.u32(..4) {
                0 => api.demote(key.as_bytes()).is_ok(),
                factor => api.promote(key.as_bytes(), split(1 << factor)).is_ok(),
            };
            log.push(format!("operator {key} {done}"));
        }
        thread::sleep(Duration::from_micros(rng.u64(..60_000)));
        let victim = rng.usize(..2);
        match rng.u32(..4) {
            0 | 1 => {
                log.push(format!("kill proxy {victim}"));
                nodes[victim].process.kill();
                thread::sleep(Duration::from_millis(rng.u64(..200)));
                nodes[victim] = serve(&place, &store, &cluster);
                addresses.lock().expect("no panic")[victim] = nodes[victim].clients();
            }
            2 => {
                log.push(format!("freeze proxy {victim}"));
                nodes[victim].process.pause();
                // Longer than its word is believed, so that the rest moves on without it.
                thread::sleep(Duration::from_millis(2_000 + rng.u64(..4_000)));
                nodes[victim].process.resume();
            }
            _ => {
                let victim = rng.usize(..3);
                log.push(format!("kill primary {victim}"));
                cluster.kill(victim);
                thread::sleep(Duration::from_millis(rng.u64(..300)));
                cluster.restart(victim);
                cluster.wait_until_ok();
            }
        }
        thread::sleep(Duration::from_millis(rng.u64(..400)));
    }
    clients.into_iter().for_each(Changes::end);
    assemble(&nodes.iter().collect::<Vec<_>>());
    for key in ["counter", "set"] {
        let begun = Instant::now();
        while !nodes.iter().all(|node| node.lacks(key)) {
            assert!(begun.elapsed() < 2 * PATIENCE, "{key} is not whole again: {log:?}");
            let _ = nodes[0].api().demote(key.as_bytes());
            thread::sleep(Duration::from_millis(50));
        }
    }
    all(&nodes, PATIENCE, "the keys are whole", |node| node.lacks("counter") && node.lacks("set"));
    let mut client = nodes[1].client();
    let value: u64 = eventually(PATIENCE, || match client.command(&["GET", "counter"]) {
        Reply::Bulk(text) => String::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    });
    let acknowledged = books.acknowledged.load(Ordering::Acquire);
    let unknown = books.unknown.load(Ordering::Acquire);
    println!("{acknowledged} increments acknowledged, {unknown} unknown, {value} counted");
    println!("errors: {:#?}", books.errors.lock().expect("no panic"));
    let errors = books.errors.lock().expect("no panic").clone();
    assert!(!errors.keys().any(|error| error.starts_with("WRONGTYPE")), "{log:?}");
    assert!(acknowledged <= value && value <= acknowledged + unknown, "{log:?}");
    let members = books.members.lock().expect("no panic").clone();
    let mut wrong = Vec::new();
    for (member, known) in &members {
        let is_in = client.command(&["SISMEMBER", "set", member]) == Reply::Integer(1);
        match known {
            Known::In if !is_in => wrong.push(format!("{member} is lost")),
            Known::Out if is_in => wrong.push(format!("{member} came back")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} after {log:?}");
    assert!(acknowledged > 200, "{acknowledged}");
}
