//! What clients were told about the values they change, and whether the values agree with it.
//!
//! Called by: the clients of the campaign, for every reply; the campaign, while no client sends.
//! Bound: a client uses [`NAMES`] members, fields and scores, and pushes at most [`MAX_PUSHED`]
//! elements.
//! Invariant: only one client changes a given member, field, score or element, so what it was
//! last told is what must be there. Of a change whose outcome the client does not know, either
//! result is right.

use std::collections::BTreeMap;

use heatsink_testkit::{RawClient, Reply};

/// The keys that are changed, one of each type.
pub(super) const KEYS: [&str; 5] = ["counter", "set", "hash", "scores", "list"];

const NAMES: u64 = 30;
const MAX_PUSHED: u64 = 300;

/// What one client knows of its part of the five values.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Names everything that belongs to this account.
    owner: String,
    /// Whether a proxy that is behind may show what stands at a split key, which it does before one
    /// server: nothing is done then.
    sees_markers: bool,
    acknowledged: i64,
    unsure: i64,
    /// For each name the values that may be there; `None` is absence.
    members: BTreeMap<String, Vec<Option<String>>>,
    fields: BTreeMap<String, Vec<Option<String>>>,
    scores: BTreeMap<String, Vec<Option<String>>>,
    /// Elements in the order they were pushed, and whether the push was acknowledged.
    pushed: Vec<(String, bool)>,
}

/// What a reply says about a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused,
    Unknown,
}

/// An error that says that nothing was done.
fn is_refusal(error: &str) -> bool {
    let words = ["TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "OOM", "NOREPLICAS"];
    words.iter().any(|word| error.starts_with(word))
        || error.contains("nothing was done")
        || error.contains("was not carried out")
}

impl Account {
    pub(super) fn new(owner: String, sees_markers: bool) -> Self {
        Self { owner, sees_markers, ..Self::default() }
    }

    /// How many changes were acknowledged that still count.
    pub(super) fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// Adds to the counter by a command that another part of the campaign sends.
    pub(super) fn add(&mut self, amount: i64) {
        self.acknowledged += amount;
    }

    /// The value at `key` is gone, as it should be.
    pub(super) fn forget(&mut self, key: &str) {
        match key {
            "counter" => (self.acknowledged, self.unsure) = (0, 0),
            "set" => self.members.clear(),
            "hash" => self.fields.clear(),
            "scores" => self.scores.clear(),
            _ => self.pushed.clear(),
        }
    }

    /// Sends one random change and notes what came of it; false if the connection is of no more
    /// use.
    pub(super) fn change(&mut self, client: &mut RawClient, rng: &mut fastrand::Rng) -> bool {
        let name = format!("{}:{}", self.owner, rng.u64(..NAMES));
        let value = rng.u32(..1_000_000).to_string();
        let removes = rng.u32(..3) == 0;
        let (request, key) = match rng.usize(..KEYS.len()) {
            0 => (vec!["INCR", "counter"], 0),
            1 if removes => (vec!["SREM", "set", &name], 1),
            1 => (vec!["SADD", "set", &name], 1),
            2 if removes => (vec!["HDEL", "hash", &name], 2),
            2 => (vec!["HSET", "hash", &name, &value], 2),
            3 if removes => (vec!["ZREM", "scores", &name], 3),
            3 => (vec!["ZADD", "scores", &value, &name], 3),
            _ => {
                if self.pushed.len() as u64 >= MAX_PUSHED {
                    return true;
                }
                return self.push(client);
            }
        };
        let (outcome, goes_on) = self.send(client, &request);
        if key == 0 {
            match outcome {
                Outcome::Done => self.acknowledged += 1,
                Outcome::Unknown => self.unsure += 1,
                Outcome::Refused => {}
            }
            return goes_on;
        }
        let (book, now) = match key {
            1 => (&mut self.members, String::new()),
            2 => (&mut self.fields, value),
            _ => (&mut self.scores, value),
        };
        note(book.entry(name).or_insert_with(|| vec![None]), (!removes).then_some(now), outcome);
        goes_on
    }

    fn push(&mut self, client: &mut RawClient) -> bool {
        let element = format!("{}:{}", self.owner, fastrand::u64(..));
        let (outcome, goes_on) = self.send(client, &["RPUSH", "list", &element]);
        if outcome != Outcome::Refused {
            self.pushed.push((element, outcome == Outcome::Done));
        }
        goes_on
    }

    fn send(&self, client: &mut RawClient, request: &[&str]) -> (Outcome, bool) {
        match client.try_command(request) {
            Ok(Reply::Integer(_)) => (Outcome::Done, true),
            Ok(Reply::Error(error)) => {
                let marker = error.starts_with("WRONGTYPE");
                assert!(self.sees_markers || !marker, "{request:?}: {error}");
                let refused = marker || is_refusal(&error);
                (if refused { Outcome::Refused } else { Outcome::Unknown }, true)
            }
            Ok(other) => panic!("{request:?}: {other:?}"),
            Err(_) => (Outcome::Unknown, false),
        }
    }
}

fn note(possible: &mut Vec<Option<String>>, now: Option<String>, outcome: Outcome) {
    match outcome {
        Outcome::Done => *possible = vec![now],
        Outcome::Unknown if !possible.contains(&now) => possible.push(now),
        Outcome::Unknown | Outcome::Refused => {}
    }
}

/// The request that reads the whole value at one of [`KEYS`].
pub(super) fn read(key: &str) -> Vec<&str> {
    match key {
        "counter" => vec!["GET", key],
        "set" => vec!["SMEMBERS", key],
        "hash" => vec!["HGETALL", key],
        "scores" => vec!["ZRANGE", key, "0", "-1", "WITHSCORES"],
        _ => vec!["LRANGE", key, "0", "-1"],
    }
}

/// Whether a reply to [`read`] says that there is no value.
pub(super) fn is_absent(reply: &Reply) -> bool {
    match reply {
        Reply::Null => true,
        reply => reply.bytes().is_none() && reply.items().is_empty(),
    }
}

/// What is wrong with the reply to [`read`], by what all accounts know; `None` if nothing is.
pub(super) fn fault<'a>(
    key: &str,
    reply: &Reply,
    accounts: impl Iterator<Item = &'a Account> + Clone,
) -> Option<String> {
    let texts = || reply.items().iter().map(Reply::text);
    let pairs = || texts().step_by(2).zip(texts().skip(1).step_by(2));
    match key {
        "counter" => {
            let value: i64 = if is_absent(reply) { 0 } else { reply.text().parse().ok()? };
            let least: i64 = accounts.clone().map(|account| account.acknowledged).sum();
            let most = least + accounts.map(|account| account.unsure).sum::<i64>();
            let is_right = (least..=most).contains(&value);
            (!is_right).then(|| format!("the counter is {value}, not {least} to {most}"))
        }
        "set" => {
            let found = texts().map(|member| (member, String::new())).collect();
            compare(&found, accounts.flat_map(|account| &account.members))
        }
        "hash" => compare(&pairs().collect(), accounts.flat_map(|account| &account.fields)),
        "scores" => compare(&pairs().collect(), accounts.flat_map(|account| &account.scores)),
        _ => compare_list(&texts().collect::<Vec<_>>(), accounts),
    }
}

fn compare<'a>(
    found: &BTreeMap<String, String>,
    known: impl Iterator<Item = (&'a String, &'a Vec<Option<String>>)>,
) -> Option<String> {
    let mut unexplained = found.clone();
    let mut faults = Vec::new();
    for (name, possible) in known {
        let value = unexplained.remove(name);
        if !possible.contains(&value) {
            faults.push(format!("{name} is {value:?}, not one of {possible:?}"));
        }
    }
    faults.extend(unexplained.into_keys().map(|name| format!("nobody wrote {name}")));
    (!faults.is_empty()).then(|| faults.join("; "))
}

fn compare_list<'a>(
    found: &[String],
    accounts: impl Iterator<Item = &'a Account> + Clone,
) -> Option<String> {
    let mut places = BTreeMap::new();
    for (place, element) in found.iter().enumerate() {
        if places.insert(element.as_str(), place).is_some() {
            return Some(format!("{element} is there twice"));
        }
    }
    for account in accounts {
        let mut last = None;
        for (element, is_acknowledged) in &account.pushed {
            let place = places.remove(element.as_str());
            if !is_acknowledged {
                continue;
            }
            let Some(place) = place else { return Some(format!("{element} is lost")) };
            if last.replace(place) > Some(place) {
                return Some(format!("{element} is before an older one"));
            }
        }
    }
    places.into_keys().next().map(|element| format!("nobody pushed {element}"))
}
