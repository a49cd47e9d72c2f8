//! Values of every type are split, made whole and copied while everything around them fails:
//! nothing is lost, nothing is invented, and `heatsink drain` leaves nothing behind.
//!
//! | what | module |
//! |---|---|
//! | what clients were told, and whether the values agree with it | `books` |
//! | clients that change values, and can be told to stand still | `clients` |
//! | a cluster with replicas: kills, lagging replicas, memory pressure, moved slots | `cluster` |
//! | one server with six databases: `SWAPDB`, `FLUSHALL`, large requests | `one_server` |
//!
//! Usually each kind of trouble comes once. `HEATSINK_CONSERVATION_SECONDS` goes on for that long,
//! and `HEATSINK_CONSERVATION_SEED` is another seed, or `random`.

mod books;
mod clients;
mod cluster;
mod one_server;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply, eventually, eventually_ok, seed_from};

use crate::node::{Node, assemble};
use crate::split::split;
use crate::support::Place;
use books::{Account, KEYS};
use clients::Clients;

/// How long a value may take to be there again behind a failure.
const RECOVERY: Duration = Duration::from_secs(90);
/// The longest pause of a short run; a campaign has longer ones.
const SHORT_PAUSE_MS: u64 = 2_000;
const LONG_PAUSE_MS: u64 = 15_000;

/// Which kinds of trouble come, and for how long.
struct Schedule {
    rng: fastrand::Rng,
    end: Option<Instant>,
    log: Vec<String>,
}

impl Schedule {
    fn new() -> Self {
        let seed = seed_from("HEATSINK_CONSERVATION_SEED", 19);
        let seconds = seed_from("HEATSINK_CONSERVATION_SECONDS", 0);
        let end = (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds));
        Self { rng: fastrand::Rng::with_seed(seed), end, log: Vec::new() }
    }

    /// Each of `kinds` once in any order, and again until the time is over.
    fn rounds<T: Copy>(&mut self, kinds: &[T], mut each: impl FnMut(&mut Self, T)) {
        loop {
            let mut kinds = kinds.to_vec();
            self.rng.shuffle(&mut kinds);
            for kind in kinds {
                each(self, kind);
                if self.end.is_some_and(|end| Instant::now() >= end) {
                    return;
                }
            }
            if self.end.is_none() {
                return;
            }
        }
    }

    fn note(&mut self, what: String) {
        println!("{what}");
        self.log.push(what);
    }

    /// Half a second to a quarter of a minute; less in a short run.
    fn pause(&mut self) -> Duration {
        let longest = if self.end.is_some() { LONG_PAUSE_MS } else { SHORT_PAUSE_MS };
        Duration::from_millis(self.rng.u64(500..=longest))
    }
}

/// Two proxies, their clients, and who watches over both.
struct Fleet {
    place: Place,
    flags: Vec<String>,
    nodes: Vec<Node>,
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
    clients: Clients,
}

impl Fleet {
    /// Starts two proxies with these flags, and a client for each of these databases, which may be
    /// shown by a proxy that is behind what stands at a split key, or not.
    fn start(flags: &[&str], databases: &[u32], sees_markers: bool) -> Self {
        let place = Place::empty();
        let nodes: Vec<Node> = (0..2).map(|_| Node::start(&place, flags)).collect();
        assemble(&nodes.iter().collect::<Vec<_>>());
        let addresses = Arc::new(Mutex::new(nodes.iter().map(Node::clients).collect()));
        let clients = Clients::start(databases, &addresses, sees_markers);
        let flags = flags.iter().map(ToString::to_string).collect();
        Self { place, flags, nodes, addresses, clients }
    }

    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// Has values split, split otherwise and made whole, without waiting for any of it.
    fn operate(&self, rng: &mut fastrand::Rng) {
        for key in KEYS {
            let api = self.nodes[rng.usize(..2)].api().with_timeout(Duration::from_secs(3));
            // An operator may be refused: the store, or the server, may be away.
            let _ = match rng.u32(..4) {
                0 => api.demote(key.as_bytes()).is_ok(),
                factor => api.promote(key.as_bytes(), split(1 << factor)).is_ok(),
            };
        }
    }

    /// Values move for so long.
    fn operate_for(&self, rng: &mut fastrand::Rng, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.operate(rng);
            thread::sleep(Duration::from_millis(rng.u64(50..400)).min(time));
        }
    }

    fn kill_proxy(&mut self, rng: &mut fastrand::Rng) {
        let victim = rng.usize(..2);
        self.nodes[victim].process.kill();
        thread::sleep(Duration::from_millis(rng.u64(..200)));
        self.nodes[victim] = Node::start(&self.place, &self.flags());
        self.addresses.lock().expect("no panic")[victim] = self.nodes[victim].clients();
    }

    fn pause_proxy(&mut self, rng: &mut fastrand::Rng, time: Duration) {
        let victim = rng.usize(..2);
        self.nodes[victim].process.pause();
        self.operate_on(1 - victim, rng, time);
        self.nodes[victim].process.resume();
    }

    /// Values move for so long, by the word of one proxy.
    fn operate_on(&self, number: usize, rng: &mut fastrand::Rng, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let api = self.nodes[number].api().with_timeout(Duration::from_secs(3));
            let key = KEYS[rng.usize(..KEYS.len())].as_bytes();
            let _ = match rng.u32(..3) {
                0 => api.demote(key).is_ok(),
                factor => api.promote(key, split(2 << factor)).is_ok(),
            };
            thread::sleep(Duration::from_millis(rng.u64(50..400)));
        }
    }

    fn client(&self, number: usize, database: u32) -> RawClient {
        let mut client = self.nodes[number].client();
        client.set_timeout(Duration::from_secs(15));
        if database > 0 {
            assert_eq!(client.command(&["SELECT", &database.to_string()]), Reply::ok());
        }
        client
    }

    /// What a read of a key gives, once it gives anything; by each of the proxies.
    fn read(&self, number: usize, database: u32, key: &str) -> Reply {
        eventually_ok(RECOVERY, || {
            let mut client = self.client(number, database);
            match client.try_command(&books::read(key)) {
                Ok(Reply::Error(error)) => Err(format!("{key}: {error}")),
                Ok(reply) => Ok(reply),
                Err(error) => Err(format!("{key}: {error}")),
            }
        })
    }

    /// All values of a database are what the clients know them to be. Clients must have stopped.
    #[track_caller]
    fn verify(&self, database: u32, schedule: &Schedule) {
        for key in KEYS {
            for number in 0..2 {
                let reply = self.read(number, database, key);
                let accounts = self.clients.of(database);
                let accounts = accounts.iter().map(|account| &**account as &Account);
                if let Some(fault) = books::fault(key, &reply, accounts) {
                    let log = schedule.log.join("\n");
                    let seen = self.seen(database, key);
                    panic!("database {database}, proxy {number}, {key}: {fault}\n{log}\n{seen}");
                }
            }
        }
    }

    /// Each proxy has looked at the markers, and goes by that. Until then it reads the shards of a value
    /// whose marker was evicted.
    fn wait_for_looks(&self) {
        const LOOKED: &str = "heatsink_split_reconciled_timestamp_seconds ";
        let looked = |node: &Node| {
            let metrics = node.metrics();
            metrics.lines().find_map(|line| line.strip_prefix(LOOKED)).map(str::to_owned)
        };
        // One may be under way; the next begins later, and is over when the one after it is.
        for _ in 0..3 {
            for (node, before) in
                self.nodes.iter().map(|node| (node, looked(node))).collect::<Vec<_>>()
            {
                eventually(RECOVERY, || looked(node) != before);
            }
        }
    }

    /// What each proxy says of a key, at once and a while later: whether a wrong reply was only late.
    fn seen(&self, database: u32, key: &str) -> String {
        let mut seen = String::new();
        for time in [0, 1, 5, 15] {
            thread::sleep(Duration::from_secs(time));
            for number in 0..2 {
                let reply = self.client(number, database).try_command(&books::read(key));
                let stats = self.nodes[number].json(&format!("/hotkeys/{key}/stats"));
                writeln!(seen, "after {time} s more, proxy {number}: {reply:?}\n{stats:?}")
                    .unwrap();
            }
        }
        seen
    }

    /// Values that are gone as a whole are given up; what is there must be complete.
    fn verify_or_absent(&self, database: u32, schedule: &mut Schedule) {
        self.wait_for_looks();
        for key in KEYS {
            if books::is_absent(&self.read(0, database, key)) {
                schedule.note(format!("{key} was evicted"));
                for mut account in self.clients.of(database) {
                    account.forget(key);
                }
            }
        }
        self.verify(database, schedule);
    }

    /// Nothing is left of splits and copies, and the values are whole.
    fn drain(&self) {
        eventually_ok(RECOVERY, || {
            let drained = self.place.run(&[&["drain"], &self.flags()[..]].concat());
            if drained.code == Some(0) { Ok(()) } else { Err(format!("{drained:?}")) }
        });
    }
}
