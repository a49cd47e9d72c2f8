//! Everything is killed and started again, or frozen and let go on, in every order, under
//! load.
//!
//! What has to hold: no request fails on a proxy that lives; nothing is lost that was
//! acknowledged to an operator; in the end all say the same.
//!
//! `FLEET_CHAOS_SECONDS` makes it longer, `FLEET_CHAOS_SEED` another one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heatsink_admin::client::ClientError;
use heatsink_testkit::{Load, RedisServer, Reply};

use crate::node::{CACHE, Node, Servers, all, assemble};
use crate::support::{PATIENCE, Place};

const KEYS: usize = 6;
/// Two proxies, one that does both, one that only adds up.
const ROLES: [&str; 4] = ["all", "proxy", "proxy", "aggregator"];
/// The number of the store, after those of the processes.
const STORE: usize = ROLES.len();

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Random numbers that a seed repeats: a multiplicative generator, of which the high bits are
/// good enough to pick a victim.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as usize) % limit
    }

    fn shuffled(&mut self, mut items: Vec<usize>) -> Vec<usize> {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
        items
    }
}

/// A process, or its absence.
struct Slot {
    node: Option<Node>,
    is_frozen: bool,
    loads: Vec<Load>,
}

/// What an operator knows of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Promoted,
    Removed,
    /// The last answer was an error: it may be either.
    Unsure,
}

struct Arena {
    place: Place,
    servers: Servers,
    slots: Vec<Slot>,
    store_is_up: bool,
    /// The store keeps its data when it is killed.
    durable: bool,
    dice: Dice,
    known: BTreeMap<String, Known>,
    log: Vec<String>,
}

impl Arena {
    fn new(store: RedisServer, durable: bool, seed: u64) -> Self {
        let servers = Servers { upstream: RedisServer::start(), store };
        servers.upstream.client().command(&["MSET", "data", "value", "hot", "value"]);
        let place = Place::empty();
        let start = |role: &&str| {
            let node = servers.member(&place, role, &["--detect-hot-threshold", "500"]);
            let loads = node.clients.map_or_else(Vec::new, |address| {
                vec![
                    Load::start(address, &["GET", "data"], 100, Reply::bulk("value")),
                    Load::start(address, &["GET", "hot"], 300, Reply::bulk("value")),
                ]
            });
            Slot { node: Some(node), is_frozen: false, loads }
        };
        let slots: Vec<Slot> = ROLES.iter().map(start).collect();
        assemble(&slots.iter().filter_map(|slot| slot.node.as_ref()).collect::<Vec<_>>());
        Self {
            place,
            servers,
            slots,
            store_is_up: true,
            durable,
            dice: Dice(seed),
            known: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().filter_map(|slot| slot.node.as_ref())
    }

    /// Kills, or freezes where that can be told from a kill: a process that was frozen while
    /// the store lost its data would bring back what it has not heard was removed.
    fn take_away(&mut self, victim: usize) {
        let freezes = self.durable && self.dice.below(3) == 0;
        self.log.push(format!("{} {victim}", if freezes { "freeze" } else { "kill" }));
        if victim == STORE {
            if !self.durable {
                // What only one process knows could not be kept by anybody.
                self.settle();
            }
            self.store_is_up = false;
            if freezes {
                self.servers.store.pause();
            } else {
                self.servers.store.kill();
            }
            return;
        }
        let slot = &mut self.slots[victim];
        slot.loads.iter().for_each(Load::interrupt);
        slot.is_frozen = freezes;
        match &mut slot.node {
            Some(node) if freezes => node.process.pause(),
            node => *node = None,
        }
    }

    fn bring_back(&mut self, victim: usize) {
        self.log.push(format!("start {victim}"));
        if victim == STORE {
            let store = &mut self.servers.store;
            if store.is_running() {
                store.resume();
                // What it was asked before is done before what it is asked now.
                store.client().command(&["PING"]);
            } else {
                store.start_again();
            }
            self.store_is_up = true;
            return;
        }
        let args = ["--detect-hot-threshold", "500"];
        let slot = &mut self.slots[victim];
        slot.is_frozen = false;
        let node = slot.node.take().map(|mut frozen| {
            frozen.process.resume();
            frozen
        });
        let start = || self.servers.member(&self.place, ROLES[victim], &args);
        let node = node.unwrap_or_else(start);
        for load in &slot.loads {
            load.redirect(node.clients());
        }
        slot.node = Some(node);
    }

    /// An operator says something to a process that lives.
    fn operate(&mut self) {
        let is_alive = |slot: &usize| {
            let slot = &self.slots[*slot];
            slot.node.is_some() && !slot.is_frozen
        };
        let alive: Vec<usize> = (0..ROLES.len()).filter(is_alive).collect();
        if alive.is_empty() {
            return;
        }
        let slot = alive[self.dice.below(alive.len())];
        let key = format!("manual:{}", self.dice.below(KEYS));
        let promotes = self.dice.below(3) > 0;
        let api = self.slots[slot].node.as_ref().expect("alive").api();
        let answer = if promotes {
            api.promote(key.as_bytes(), CACHE).map(drop)
        } else {
            api.demote(key.as_bytes()).map(drop)
        };
        let known = match &answer {
            Ok(()) if promotes => Known::Promoted,
            Ok(()) => Known::Removed,
            Err(ClientError::Refused { status: 404, .. }) if self.durable => {
                let before = self.known.get(&key);
                assert_ne!(before, Some(&Known::Promoted), "{key} is lost: {:?}", self.log);
                Known::Removed
            }
            // The store is away, or was a moment ago; or it has nothing yet of what it lost.
            Err(ClientError::Refused { status: 503 | 404, .. }) => Known::Unsure,
            Err(error) => panic!("{error}; {:?}", self.log),
        };
        let verb = if promotes { "promote" } else { "demote" };
        self.log.push(format!("{verb} {key} at {slot}: {known:?}"));
        self.known.insert(key, known);
    }

    /// Waits until all that live say the same, which is what operators were told.
    fn settle(&mut self) {
        assert!(self.store_is_up);
        let log = self.log.join("; ");
        let what = format!("all say what operators know: {:?}\n{log}", self.known);
        all(self.nodes(), PATIENCE, &what, |node| {
            let Ok(list) = node.api().list(&[]) else { return false };
            let origin = |key: &str| {
                let entry = list.iter().find(|entry| entry.key == key);
                entry.map(|entry| entry.origin.as_str())
            };
            self.known.iter().all(|(key, known)| match known {
                Known::Promoted => origin(key) == Some("manual"),
                Known::Removed => origin(key).is_none(),
                Known::Unsure => true,
            })
        });
        // What may be either is the same everywhere.
        let unsure: Vec<&String> = self
            .known
            .iter()
            .filter(|(_, known)| **known == Known::Unsure)
            .map(|(key, _)| key)
            .collect();
        for key in unsure {
            let same = || {
                let mut listed = self.nodes().map(|node| node.entry(key).is_some());
                let first = listed.next();
                listed.all(|other| Some(other) == first)
            };
            heatsink_testkit::eventually(PATIENCE, same);
        }
    }

    fn check_loads(&self) {
        for (number, slot) in self.slots.iter().enumerate() {
            for load in &slot.loads {
                let tally = load.tally();
                assert_eq!(tally.failed, 0, "{number}: {tally:?}\n{}", self.log.join("; "));
            }
        }
    }

    /// Takes `victims` away one after the other, brings them back in another order, and looks.
    fn round(&mut self, victims: &[usize]) {
        self.log.clear();
        for &victim in victims {
            self.take_away(victim);
            self.operate();
        }
        for victim in self.dice.shuffled(victims.to_vec()) {
            self.bring_back(victim);
            self.operate();
        }
        self.settle();
        self.check_loads();
    }
}

fn rampage(mut arena: Arena, victims: &[usize], time: Duration) {
    let begun = Instant::now();
    let mut rounds = 0;
    for _ in 0..KEYS {
        arena.operate();
    }
    // Each alone, then several at once.
    for victim in arena.dice.shuffled(victims.to_vec()) {
        arena.round(&[victim]);
        rounds += 1;
    }
    while begun.elapsed() < time {
        let order = arena.dice.shuffled(victims.to_vec());
        let count = 2 + arena.dice.below(victims.len() - 1);
        arena.round(&order[..count]);
        rounds += 1;
    }
    assemble(&arena.nodes().collect::<Vec<_>>());
    all(arena.nodes(), PATIENCE, "the hot key is the fleet's", |node| {
        node.entry("hot").is_some_and(|entry| entry.origin == "auto")
    });
    arena.settle();
    arena.check_loads();
    let loads = arena.slots.iter().flat_map(|slot| &slot.loads);
    let slowest = loads.map(|load| load.tally().slowest).max().unwrap_or_default();
    println!("{rounds} rounds in {:?}; the slowest request took {slowest:?}", begun.elapsed());
}

#[test]
fn nothing_acknowledged_is_lost_whatever_is_killed() {
    let store = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let seed = number("FLEET_CHAOS_SEED", 1);
    let arena = Arena::new(store.start(), true, seed);
    let time = Duration::from_secs(number("FLEET_CHAOS_SECONDS", 20));
    rampage(arena, &[0, 1, 2, 3, STORE], time);
}

#[test]
fn nor_without_a_disk_as_long_as_one_process_lives() {
    let seed = number("FLEET_CHAOS_SEED", 1);
    let arena = Arena::new(RedisServer::start(), false, seed);
    let time = Duration::from_secs(number("FLEET_CHAOS_SECONDS", 20) / 2);
    rampage(arena, &[0, 2, 3, STORE], time);
}
