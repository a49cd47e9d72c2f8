//! Counts of keys in bounded memory: the hottest are never missing.
//!
//! Called by: the `MONITOR` session of a node, for every key of every command.
//! Bound: twice [`CAPACITY`] names of at most [`MAX_KEY_BYTES`].
//! Invariant: of a key that is listed, `requests` is at most the truth and
//! `requests + error` at least; a key that is not listed has at most [`Tally::error`].
//!
//! When the map is full, the lower half goes. The highest count that went is the most that a
//! key which comes (back) later can have had before, so it is that key's error. This is the
//! idea of Misra and Gries with the clearing done in batches: a command costs one look into
//! a hash map, and sorting is paid once in [`CAPACITY`] new names.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use heatsink_resp::command::{Access, Command, ValueKind};

/// Names that survive when the map is full.
pub const CAPACITY: usize = 16 * 1024;

/// Longer keys are counted in sum only.
pub const MAX_KEY_BYTES: usize = 1024;

/// What was done to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands that read it.
    pub reads: u64,
    /// `INCR` and its kin.
    pub increments: u64,
    /// Plain `SET` and its kin, which replace a whole string.
    pub sets: u64,
    /// Writes into a hash, set, sorted set, list, stream or `HyperLogLog`.
    pub member_writes: u64,
    /// Scripts and functions that name it.
    pub scripts: u64,
    /// Any other write (`DEL`, `EXPIRE`, `APPEND` …).
    pub other_writes: u64,
    /// Bytes of the arguments of its writes.
    pub bytes_written: u64,
    /// By how much the sum of requests may be too low.
    pub error: u64,
    /// What it holds, as far as the commands told.
    pub kind: ValueKind,
}

impl Counts {
    /// All commands that named the key.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes()
    }

    /// All that may change it.
    pub fn writes(&self) -> u64 {
        self.increments + self.sets + self.member_writes + self.scripts + self.other_writes
    }

    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.increments += other.increments;
        self.sets += other.sets;
        self.member_writes += other.member_writes;
        self.scripts += other.scripts;
        self.other_writes += other.other_writes;
        self.bytes_written += other.bytes_written;
        self.error += other.error;
        if other.kind != ValueKind::Unknown {
            self.kind = other.kind;
        }
    }

    /// Counts one command.
    fn record(&mut self, command: &Command, bytes: u64) {
        match command.access {
            Access::Read => self.reads += 1,
            Access::Write | Access::Neither => {
                let counter = match (&*command.name, command.value_kind) {
                    ("eval" | "evalsha" | "fcall", _) => &mut self.scripts,
                    ("set" | "setex" | "psetex" | "mset" | "getset", _) => &mut self.sets,
                    (_, ValueKind::Counter) => &mut self.increments,
                    (_, ValueKind::Unknown | ValueKind::String) => &mut self.other_writes,
                    _ => &mut self.member_writes,
                };
                *counter += 1;
                self.bytes_written += bytes;
            }
        }
        // A counter is set now and then; that does not make it another string.
        let counter_is_set =
            self.kind == ValueKind::Counter && command.value_kind == ValueKind::String;
        if command.value_kind != ValueKind::Unknown && !counter_is_set {
            self.kind = command.value_kind;
        }
    }
}

/// A key in its database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Database.
    pub db: u32,
    /// The raw key.
    pub key: Vec<u8>,
}

/// Counts by key.
#[derive(Debug)]
pub struct Tally {
    /// By database (four bytes) and key.
    keys: HashMap<Box<[u8]>, Counts, RandomState>,
    name: Vec<u8>,
    capacity: usize,
    error: u64,
    too_long: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl Tally {
    fn with_capacity(capacity: usize) -> Self {
        Self { keys: HashMap::default(), name: Vec::new(), capacity, error: 0, too_long: 0 }
    }

    /// Counts one command on one of its keys; `bytes` are those of its arguments.
    pub fn record(&mut self, db: u32, key: &[u8], command: &Command, bytes: u64) {
        if key.len() > MAX_KEY_BYTES {
            self.too_long += 1;
            return;
        }
        self.name.clear();
        self.name.extend_from_slice(&db.to_be_bytes());
        self.name.extend_from_slice(key);
        if let Some(counts) = self.keys.get_mut(self.name.as_slice()) {
            counts.record(command, bytes);
            return;
        }
        if self.keys.len() >= self.capacity * 2 {
            self.clear_lower_half();
        }
        let mut counts = Counts { error: self.error, ..Counts::default() };
        counts.record(command, bytes);
        self.keys.insert(self.name.as_slice().into(), counts);
    }

    /// Those of equal rank at the border go, too: they are within the error.
    fn clear_lower_half(&mut self) {
        let most = |counts: &Counts| counts.requests() + counts.error;
        let mut all: Vec<u64> = self.keys.values().map(most).collect();
        let border = all.len() - self.capacity;
        let bar = *all.select_nth_unstable(border).1;
        self.keys.retain(|_, counts| most(counts) > bar);
        self.error = self.error.max(bar);
    }

    /// The most that a key which is not listed can have had.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Commands on keys too long to be named.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Keys that are known by name.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// No key was counted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The `count` keys with the most requests, the hottest first.
    pub fn top(&self, count: usize) -> Vec<(Name, Counts)> {
        let mut all: Vec<(&[u8], &Counts)> =
            self.keys.iter().map(|(name, counts)| (&**name, counts)).collect();
        // By name where counts are equal, so that a scan of the same traffic says the same.
        all.sort_unstable_by(|(a, first), (b, second)| {
            second.requests().cmp(&first.requests()).then_with(|| a.cmp(b))
        });
        let named = all.into_iter().take(count).map(|(name, counts)| {
            let (db, key) = name.split_first_chunk::<4>().expect("a name begins with a database");
            (Name { db: u32::from_be_bytes(*db), key: key.to_vec() }, counts.clone())
        });
        named.collect()
    }
}

/// Adds up what several nodes saw of the same key (a slot may move during a scan), hottest
/// first.
pub fn merge(parts: Vec<(Name, Counts)>) -> Vec<(Name, Counts)> {
    let mut parts = parts;
    parts.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut merged: Vec<(Name, Counts)> = Vec::with_capacity(parts.len());
    for (name, counts) in parts {
        match merged.last_mut() {
            Some((last, sum)) if *last == name => sum.add(&counts),
            _ => merged.push((name, counts)),
        }
    }
    merged.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.requests()));
    merged
}

#[cfg(test)]
mod tests {
    use heatsink_resp::command::CommandTable;

    use super::*;

    fn record(tally: &mut Tally, table: &CommandTable, name: &str, key: &str) {
        tally.record(0, key.as_bytes(), table.lookup(name.as_bytes(), None).unwrap(), 10);
    }

    #[test]
    fn commands_by_what_they_do() {
        let (mut tally, table) = (Tally::default(), CommandTable::default());
        for name in ["GET", "INCR", "INCRBY", "SET", "DEL", "HSET", "EVAL", "STRLEN"] {
            record(&mut tally, &table, name, "k");
        }
        let (_, counts) = &tally.top(1)[0];
        assert_eq!((counts.reads, counts.increments, counts.sets), (2, 2, 1));
        assert_eq!((counts.member_writes, counts.scripts, counts.other_writes), (1, 1, 1));
        assert_eq!((counts.requests(), counts.bytes_written), (8, 60));
    }

    #[test]
    fn databases_are_apart_and_long_keys_are_only_counted() {
        let (mut tally, table) = (Tally::default(), CommandTable::default());
        let get = table.lookup(b"GET", None).unwrap();
        tally.record(0, b"k", get, 0);
        tally.record(7, b"k", get, 0);
        tally.record(7, b"k", get, 0);
        tally.record(0, &[b'x'; MAX_KEY_BYTES + 1], get, 0);
        let top = tally.top(10);
        assert_eq!(top.len(), 2);
        assert_eq!((top[0].0.db, top[0].1.reads), (7, 2));
        assert_eq!(tally.too_long(), 1);
    }

    /// A hot key among a hundred times more cold ones than there is room for.
    #[test]
    fn memory_is_bounded_and_the_hot_key_is_not_lost() {
        let (mut tally, table) = (Tally::with_capacity(64), CommandTable::default());
        for number in 0..6_400 {
            record(&mut tally, &table, "GET", &format!("cold:{number}"));
            if number % 4 == 0 {
                record(&mut tally, &table, "GET", "hot");
            }
        }
        assert!(tally.len() <= 128);
        let top = tally.top(1);
        assert_eq!(top[0].0.key, b"hot");
        let counts = &top[0].1;
        assert!(counts.requests() <= 1_600, "never above the truth");
        assert!(counts.requests() + counts.error >= 1_600, "the truth is within the error");
    }

    #[test]
    fn equal_counts_do_not_overfill() {
        let (mut tally, table) = (Tally::with_capacity(4), CommandTable::default());
        for number in 0..1_000 {
            record(&mut tally, &table, "GET", &number.to_string());
            assert!(tally.len() <= 8);
        }
        assert!(tally.error() >= 1);
    }

    #[test]
    fn a_key_seen_by_two_nodes_is_one_key() {
        let name = |key: &[u8]| Name { db: 0, key: key.to_vec() };
        let reads = |reads| Counts { reads, ..Counts::default() };
        let merged =
            merge(vec![(name(b"a"), reads(3)), (name(b"b"), reads(5)), (name(b"a"), reads(4))]);
        assert_eq!(merged, vec![(name(b"a"), reads(7)), (name(b"b"), reads(5))]);
    }
}
