//! Random schedules of a whole worker: clients, server, word of changes and clock in any order.
//!
//! One seed decides everything, and the test says it when something is wrong:
//!
//! ```console
//! $ HEATSINK_SIMULATION_SEED=17 cargo test -p heatsink-proxy --lib simulation
//! $ HEATSINK_SIMULATION_RUNS=1000000 cargo test --release -p heatsink-proxy --lib simulation
//! ```
//!
//! The server is one engine that executes one command after the other, so each write of a key makes a
//! *version* of it, and it is known which version was there when a request was sent and when it was
//! answered. What is judged:
//!
//! | promise | judged by |
//! |---|---|
//! | mode `exact`: a history is linearizable | a read tells of a version between those two; increments of a counter each tell of another number between those two |
//! | mode `coherent`: own writes are seen, nobody sees an older value than before | a read tells of a version that is not older than what the same client saw or wrote |
//! | mode `coherent`: an older value is served no longer than word of a change takes | … nor older than what was there when all words had last arrived |
//! | a reply is for its request, in its order; nothing is forgotten | each request is answered once, in the client's order, by a reply of its shape |
//! | an acknowledged write is not lost | at the end a counter is what was acknowledged, and at most what is unknown more |
//!
//! That the judges see is shown by worlds that break promises: words of changes that never arrive, and
//! the promise of one mode asked of another.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use crate::hot_keys::Treatment;
use crate::runtime::scripted::{Rig, Server};

/// A register, and a counter.
const KEYS: [&str; 2] = ["k", "n"];
/// Steps of one run.
const STEPS: usize = 150;
const CLIENTS: usize = 4;
/// Requests of a client that are not answered.
const MOST_OUTSTANDING: usize = 6;

/// What is promised in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Exact,
    Coherent,
}

/// How a world misbehaves, for the judges to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// The server does not tell of changes, though it said that it would.
    LostWords,
    /// Keys are cached although an exact history is promised.
    CachedExact,
}

/// What a client asked.
#[derive(Clone, Debug)]
enum Asked {
    Get,
    Set(String),
    Del,
    Incr,
    Count,
    Multi,
    Queued,
    Exec(Vec<Asked>),
}

/// A request that is not answered.
#[derive(Clone, Debug)]
struct Outstanding {
    asked: Asked,
    /// The versions that were there when it was sent.
    sent_at: [usize; 2],
    /// What the promise allows no read to be older than, whoever asks.
    floor: [usize; 2],
}

#[derive(Default)]
struct Person {
    outstanding: VecDeque<Outstanding>,
    /// The versions that this client has seen or written.
    seen: [usize; 2],
    /// Between `MULTI` and `EXEC`.
    queue: Option<Vec<Asked>>,
}

/// One run.
struct Simulation {
    random: Rng,
    promise: Promise,
    plant: Plant,
    rig: Rig,
    people: Vec<Person>,
    /// Every state that each key was in, oldest first.
    versions: [Vec<Option<String>>; 2],
    /// The versions that were there when all words of changes had last arrived.
    heard: [usize; 2],
    values: u32,
    increments: u32,
    /// Increments whose callers were told that nobody knows.
    unknown: u32,
    /// Numbers that increments were answered.
    numbers: Vec<i64>,
    trace: Vec<String>,
}

impl Simulation {
    fn new(seed: u64, promise: Promise, plant: Plant, servers: usize) -> Self {
        let mut rig = if servers == 1 { Rig::new() } else { Rig::before_cluster(servers) };
        rig.settle();
        let people: Vec<Person> = (0..CLIENTS).map(|_| Person::default()).collect();
        for _ in &people {
            rig.client();
        }
        Self {
            random: Rng::with_seed(seed),
            promise,
            plant,
            rig,
            people,
            versions: [vec![None], vec![None]],
            heard: [0; 2],
            values: 0,
            increments: 0,
            unknown: 0,
            numbers: Vec::new(),
            trace: Vec::new(),
        }
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            if let Err(why) = self.step() {
                return Err(self.told(&why));
            }
        }
        match self.finish() {
            Ok(()) => Ok(()),
            Err(why) => Err(self.told(&why)),
        }
    }

    fn told(&self, why: &str) -> String {
        format!("{why}\n{}", self.trace.join("\n"))
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let line = what();
        self.trace.push(line);
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.u32(0..100) {
            0..25 => self.ask(),
            25..50 => {
                self.rig.turn();
            }
            50..54 => {
                self.rig.idle_turn();
            }
            54..75 => {
                self.rig.receive();
                self.execute();
            }
            75..79 if self.rig.servers.len() > 1 => self.move_slot(),
            75..92 => self.deliver(),
            92..94 => {
                let time = Duration::from_millis(self.random.u64(1..80));
                self.note(|| format!("{time:?} pass"));
                self.rig.advance(time);
            }
            94..97 => self.write_directly(),
            97..99 => self.treat(),
            _ => match self.random.u32(0..3) {
                0 => self.cut(),
                1 => self.hang_up(),
                _ => {}
            },
        }
        self.hear();
        self.judge()
    }

    /// Other keys become hot, or are hot no more.
    fn treat(&mut self) {
        let treatment = match (self.promise, self.plant) {
            (Promise::Coherent, _) | (_, Plant::CachedExact) => Treatment::COHERENT,
            (Promise::Exact, _) => Treatment::EXACT,
        };
        let hot: Vec<_> = KEYS.iter().filter(|_| self.random.u32(0..4) > 0).copied().collect();
        self.note(|| format!("hot: {hot:?}"));
        let hot: Vec<_> = hot.into_iter().map(|key| (key, treatment)).collect();
        self.rig.make_hot(&hot);
    }

    fn ask(&mut self) {
        let client = self.random.usize(0..CLIENTS);
        let mut lines = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            if self.people[client].outstanding.len() < MOST_OUTSTANDING {
                lines.push(self.make_request(client));
            }
        }
        if !lines.is_empty() {
            self.note(|| format!("client {client}: {}", lines.join("; ")));
            if self.random.u32(0..8) == 0 {
                self.rig.send_bytes(client, (lines.join("\r\n") + "\r\n").as_bytes());
            } else {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                self.rig.send(client, &lines);
            }
        }
    }

    fn make_request(&mut self, client: usize) -> String {
        let (line, asked) = match self.random.u32(0..40) {
            0..16 => ("GET k".to_owned(), Asked::Get),
            16..22 => {
                self.values += 1;
                let value = format!("v{}", self.values);
                (format!("SET k {value}"), Asked::Set(value))
            }
            22..24 => ("DEL k".to_owned(), Asked::Del),
            24..34 => {
                self.increments += 1;
                ("INCR n".to_owned(), Asked::Incr)
            }
            34..37 => ("GET n".to_owned(), Asked::Count),
            _ if self.rig.servers.len() > 1 => ("GET k".to_owned(), Asked::Get),
            _ if self.people[client].queue.is_none() => ("MULTI".to_owned(), Asked::Multi),
            _ => ("EXEC".to_owned(), Asked::Exec(Vec::new())),
        };
        let person = &mut self.people[client];
        let asked = match (asked, &mut person.queue) {
            (Asked::Multi, _) => {
                person.queue = Some(Vec::new());
                Asked::Multi
            }
            (Asked::Exec(_), queue) => Asked::Exec(queue.take().unwrap_or_default()),
            (asked, Some(queue)) => {
                queue.push(asked);
                Asked::Queued
            }
            (asked, None) => asked,
        };
        let sent_at = [0, 1].map(|key| self.versions[key].len() - 1);
        let floor = match self.promise {
            Promise::Exact => sent_at,
            Promise::Coherent => self.heard,
        };
        person.outstanding.push_back(Outstanding { asked, sent_at, floor });
        line
    }

    fn connections(&self) -> Vec<(usize, usize)> {
        let servers = self.rig.servers.iter().enumerate();
        let all =
            |(at, server): (usize, &Server)| (0..server.connections.len()).map(move |c| (at, c));
        servers.flat_map(all).collect()
    }

    /// One of the connections, by server and number.
    fn connection(&mut self) -> Option<(usize, usize)> {
        let all = self.connections();
        self.random.choice(all)
    }

    fn execute(&mut self) {
        if let Some((server, connection)) = self.connection() {
            self.execute_on(server, connection);
        }
    }

    fn execute_on(&mut self, server: usize, connection: usize) -> bool {
        let before = self.rig.servers[server].executed.len();
        let has_executed = self.rig.execute(server, connection);
        if self.rig.servers[server].executed.len() > before {
            let command = self.rig.servers[server].executed.last().cloned().unwrap_or_default();
            self.note(|| format!("server {server}, connection {connection}: {command}"));
            self.look_at_keys(&command);
        } else if has_executed {
            let refused = self.rig.refused.clone();
            self.note(|| format!("server {server}, connection {connection}: {refused}"));
        }
        has_executed
    }

    /// A slot begins to move, its key goes, or it has arrived.
    fn move_slot(&mut self) {
        let servers = self.rig.servers.len();
        let (key, to) = (KEYS[self.random.usize(0..2)], self.random.usize(0..servers));
        match self.random.u32(0..3) {
            0 => {
                self.note(|| format!("the slot of {key} begins to move to {to}"));
                self.rig.begin_move(key, to);
            }
            1 => {
                self.note(|| format!("{key} moves, if its slot does"));
                self.rig.move_key(key);
            }
            _ => {
                self.note(|| "the slot that moves has arrived".to_owned());
                self.rig.end_move(&KEYS);
            }
        }
    }

    fn write_directly(&mut self) {
        self.values += 1;
        let line = match self.random.u32(0..3) {
            0 => "DEL k".to_owned(),
            _ => format!("SET k d{}", self.values),
        };
        self.note(|| format!("server, directly: {line}"));
        let home = self.rig.home_of("k");
        self.rig.directly(home, &line);
        self.look_at_keys(&line);
    }

    /// A command that may have written makes a version of each key that it names.
    fn look_at_keys(&mut self, command: &str) {
        let writes = ["SET k", "DEL k", "INCR n", "INCRBY n", "EXEC"];
        if !writes.iter().any(|write| command.starts_with(write)) {
            return;
        }
        for (at, key) in KEYS.iter().enumerate() {
            let home = self.rig.home_of(key);
            let reply = self.rig.directly(home, &format!("GET {key}"));
            let state = bulk(&reply);
            let is_named = command.contains(&format!(" {key}"));
            if is_named || self.versions[at].last() != Some(&state) {
                self.versions[at].push(state);
            }
        }
    }

    fn deliver(&mut self) {
        let Some((server, connection)) = self.connection() else { return };
        if self.plant == Plant::LostWords {
            self.rig.lose_pushes(server, connection);
        }
        if self.rig.deliver(server, connection) {
            self.note(|| format!("delivered: server {server}, connection {connection}"));
        }
    }

    /// A client leaves, whatever it has under way, and another comes.
    fn hang_up(&mut self) {
        let client = self.random.usize(0..CLIENTS);
        self.note(|| format!("client {client} leaves, and another comes"));
        self.rig.replace_client(client);
        let left = std::mem::take(&mut self.people[client]);
        let count = |asked: &Asked| match asked {
            Asked::Incr => 1,
            Asked::Exec(queue) => increments(queue),
            _ => 0,
        };
        self.unknown += left.outstanding.iter().map(|one| count(&one.asked)).sum::<u32>();
        // What was queued is never executed.
        self.increments -= increments(left.queue.as_deref().unwrap_or_default());
    }

    fn cut(&mut self) {
        if let Some((server, connection)) = self.connection() {
            self.note(|| format!("cut: server {server}, connection {connection}"));
            self.rig.cut(server, connection);
        }
    }

    /// All words of changes have arrived, and the worker has looked at them.
    fn hear(&mut self) {
        if !self.rig.has_undelivered() && !self.rig.has_unread() {
            self.heard = [0, 1].map(|key| self.versions[key].len() - 1);
        }
    }

    fn judge(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS {
            for reply in self.rig.replies(client) {
                let Some(outstanding) = self.people[client].outstanding.pop_front() else {
                    return Err(format!("client {client} is told {reply:?}, and asked nothing"));
                };
                self.note(|| format!("client {client} is told {reply:?}"));
                let Outstanding { asked, sent_at, floor } = outstanding;
                self.judge_reply(client, &asked, sent_at, floor, &reply)
                    .map_err(|why| format!("client {client}, {asked:?}: {why}"))?;
            }
        }
        Ok(())
    }

    fn judge_reply(
        &mut self,
        client: usize,
        asked: &Asked,
        sent_at: [usize; 2],
        floor: [usize; 2],
        reply: &str,
    ) -> Result<(), String> {
        if reply.starts_with('-') {
            return self.judge_error(asked, reply);
        }
        match asked {
            Asked::Multi if reply == "+OK\r\n" => Ok(()),
            Asked::Queued if reply == "+QUEUED\r\n" => Ok(()),
            Asked::Get => self.judge_read(client, 0, floor[0], bulk(reply).as_deref()),
            Asked::Count => self.judge_read(client, 1, floor[1], bulk(reply).as_deref()),
            Asked::Set(value) if reply == "+OK\r\n" => {
                let written = Some(value.clone());
                let at = self.versions[0].iter().position(|state| *state == written);
                // It may have been overwritten by another in the same moment: then that one was
                // executed meanwhile.
                let at = at.unwrap_or(sent_at[0] + 1);
                if at >= self.versions[0].len() {
                    return Err("acknowledged, and never executed".to_owned());
                }
                self.people[client].seen[0] = self.people[client].seen[0].max(at);
                Ok(())
            }
            Asked::Del if reply.starts_with(':') => {
                let since = sent_at[0] + 1;
                let gone = self.versions[0].iter().skip(since).position(Option::is_none);
                let gone = gone.ok_or("acknowledged, and never executed")? + since;
                self.people[client].seen[0] = self.people[client].seen[0].max(gone);
                Ok(())
            }
            Asked::Incr => {
                let number = reply.strip_prefix(':').and_then(|rest| rest.trim_end().parse().ok());
                let number: i64 = number.ok_or_else(|| format!("no number: {reply:?}"))?;
                self.judge_number(number, sent_at[1])
            }
            Asked::Exec(queue) => self.judge_exec(client, queue, sent_at, reply),
            _ => Err(format!("a reply of another shape: {reply:?}")),
        }
    }

    fn judge_error(&mut self, asked: &Asked, reply: &str) -> Result<(), String> {
        let is_expected = ["-ERR heatsink: upstream", "-ERR EXEC without MULTI", "-EXECABORT"]
            .iter()
            .any(|text| reply.starts_with(text));
        self.unknown += match asked {
            Asked::Incr => 1,
            Asked::Exec(queue) => increments(queue),
            _ => 0,
        };
        if is_expected { Ok(()) } else { Err(format!("an error: {reply:?}")) }
    }

    /// A read tells of a version that was there from `floor` on, and no older one than this client knows.
    fn judge_read(
        &mut self,
        client: usize,
        key: usize,
        floor: usize,
        state: Option<&str>,
    ) -> Result<(), String> {
        let from = floor.max(self.people[client].seen[key]);
        let version =
            self.versions[key].iter().skip(from).position(|version| version.as_deref() == state);
        let Some(version) = version else {
            let now = self.versions[key].len() - 1;
            let at = self.versions[key].iter().rposition(|version| version.as_deref() == state);
            return Err(format!("{state:?} is version {at:?}; allowed are {from} to {now}"));
        };
        self.people[client].seen[key] = from + version;
        Ok(())
    }

    fn judge_number(&mut self, number: i64, sent_at: usize) -> Result<(), String> {
        let count = |state: &Option<String>| -> i64 {
            state.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let before = count(&self.versions[1][sent_at]);
        let now = self.versions[1].last().map_or(0, count);
        if number <= before || number > now {
            return Err(format!("{number} is not in {before}..={now}"));
        }
        if self.numbers.contains(&number) {
            return Err(format!("{number} was told twice"));
        }
        self.numbers.push(number);
        Ok(())
    }

    fn judge_exec(
        &mut self,
        client: usize,
        queue: &[Asked],
        sent_at: [usize; 2],
        reply: &str,
    ) -> Result<(), String> {
        let mut parts = reply.split_inclusive("\r\n");
        if parts.next() != Some(&format!("*{}\r\n", queue.len())) {
            return Err(format!("a reply of another shape: {reply:?}"));
        }
        for asked in queue {
            let mut part = parts.next().unwrap_or_default().to_owned();
            if part.starts_with('$') && part != "$-1\r\n" {
                part.push_str(parts.next().unwrap_or_default());
            }
            // In the middle of a transaction nobody else saw what it shows.
            match asked {
                Asked::Incr => self.judge_reply(client, asked, sent_at, sent_at, &part)?,
                Asked::Set(_) if part == "+OK\r\n" => {}
                Asked::Del if part.starts_with(':') => {}
                Asked::Get | Asked::Count if part.starts_with('$') => {}
                _ => return Err(format!("a reply of another shape: {part:?}")),
            }
        }
        Ok(())
    }

    /// Everything that is under way ends.
    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            for _ in 0..4 {
                self.rig.turn();
                self.rig.receive();
                for (server, connection) in self.connections() {
                    while self.execute_on(server, connection) {}
                }
                for (server, connection) in self.connections() {
                    self.rig.deliver(server, connection);
                }
                self.rig.turn();
                self.judge()?;
            }
            self.rig.advance(Duration::from_millis(100));
            self.rig.idle_turn();
        }
        let waiting: usize = self.people.iter().map(|person| person.outstanding.len()).sum();
        if waiting > 0 {
            return Err(format!("{waiting} requests are not answered"));
        }
        // What is queued and was never executed.
        let queues = self.people.iter().filter_map(|person| person.queue.as_deref());
        let never: u32 = queues.map(increments).sum();
        let home = self.rig.home_of("n");
        let count = bulk(&self.rig.directly(home, "GET n")).and_then(|text| text.parse().ok());
        let count: u32 = count.unwrap_or(0);
        let acknowledged = self.increments - self.unknown - never;
        if count < acknowledged || count > acknowledged + self.unknown {
            return Err(format!(
                "{count} increments were executed, {acknowledged} acknowledged, {} unknown",
                self.unknown
            ));
        }
        Ok(())
    }
}

fn increments(asked: &[Asked]) -> u32 {
    asked.iter().filter(|asked| matches!(asked, Asked::Incr)).count() as u32
}

/// The text of a bulk reply; none if it is the reply of an absent key.
fn bulk(reply: &str) -> Option<String> {
    let (_, text) = reply.strip_prefix('$')?.split_once("\r\n")?;
    Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs many schedules; the first that breaks its promise.
fn search(promise: Promise, plant: Plant, servers: usize, runs: u64) -> Option<(u64, String)> {
    let seeds = match number_from("HEATSINK_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..runs,
    };
    seeds.into_iter().find_map(|seed| {
        let found = Simulation::new(seed, promise, plant, servers).run().err();
        found.map(|why| (seed, why))
    })
}

fn runs() -> u64 {
    number_from("HEATSINK_SIMULATION_RUNS").unwrap_or(400)
}

fn assert_kept(promise: Promise, servers: usize) {
    if let Some((seed, why)) = search(promise, Plant::Nothing, servers, runs()) {
        panic!("seed {seed}: {why}");
    }
}

#[test]
fn exact_histories_are_linearizable() {
    assert_kept(Promise::Exact, 1);
}

#[test]
fn coherent_histories_never_go_back() {
    assert_kept(Promise::Coherent, 1);
}

#[test]
fn exact_histories_are_linearizable_while_slots_move() {
    assert_kept(Promise::Exact, 3);
}

#[test]
fn coherent_histories_never_go_back_while_slots_move() {
    assert_kept(Promise::Coherent, 3);
}

#[test]
fn the_judges_notice_words_of_changes_that_never_arrive() {
    let found = search(Promise::Coherent, Plant::LostWords, 1, 4000);
    assert!(found.is_some_and(|(_, why)| why.contains("allowed are")));
}

#[test]
fn the_judges_notice_that_a_cache_is_not_exact() {
    let found = search(Promise::Exact, Plant::CachedExact, 1, 4000);
    assert!(found.is_some_and(|(_, why)| why.contains("allowed are")));
}
