//! The workload itself: which connection does what to which key.
//!
//! Called by: the engine, and `heatsink demo`, which plays a script of its own.
//! Bound: a stream is a few hundred bytes, whatever the number of keys.
//! Invariant: the n-th operation of a connection is a pure function of the shape, the script,
//! the connection's number, n and the time that is passed in. Every operation draws the same
//! random numbers whatever the script says, so a phase that begins earlier or later changes
//! the operations in between and no others.
//!
//! ```
//! use std::time::Duration;
//! use heatsink_load::workload::{Heat, Phase, Shape, Workload};
//!
//! let shape = Shape { keys: 1_000, exponent: 1.0, write_share: 0.05, seed: 1 };
//! // Quiet, after 5 s a viral key, after 10 s a counter.
//! let script = vec![
//!     Phase { from: Duration::from_secs(5), heat: Heat::Item(777), share: 0.5 },
//!     Phase { from: Duration::from_secs(10), heat: Heat::Counter(1), share: 0.5 },
//! ];
//! let workload = Workload::new(shape, script).unwrap();
//! let (mut one, mut same) = (workload.stream(3), workload.stream(3));
//! for second in 0..20 {
//!     let at = Duration::from_secs(second);
//!     assert_eq!(one.next(at), same.next(at));
//! }
//! ```

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

/// Of the operations on a hot counter, those that only read it.
const COUNTER_READ_SHARE: f64 = 0.1;
/// Of the operations of a sale, those that buy.
const SALE_BUY_SHARE: f64 = 0.3;

/// What does not change over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of items.
    pub keys: u32,
    /// Of the Zipf law: item n is asked for in proportion to `1 / (n + 1)^exponent`.
    pub exponent: f64,
    /// Of the operations on items, the share that writes (0 to 1).
    pub write_share: f64,
    /// Where all chance comes from.
    pub seed: u64,
}

impl Shape {
    /// One of the colder half of the items, a different one for each number (as far as there
    /// are as many).
    pub fn cold_item(&self, number: u32) -> u32 {
        let half = (self.keys / 2).max(1);
        let first = mix(self.seed) % u64::from(half);
        // A step without a common divisor with the usual sizes does not come back soon.
        let place = (first + u64::from(number) * 7_919) % u64::from(half);
        self.keys.saturating_sub(1).saturating_sub(place as u32)
    }
}

/// From when on what is hot; the phase before ends there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Since the start.
    pub from: Duration,
    /// What is hot.
    pub heat: Heat,
    /// The share of all operations that goes there (0 to 1).
    pub share: f64,
}

/// What is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Nothing.
    None,
    /// This item, read and written like any other.
    Item(u32),
    /// A key that expires, read only: it is written by whoever misses it.
    Expiring,
    /// So many counters, incremented and sometimes read.
    Counter(u32),
    /// This item is read and the stock is counted down.
    Sale(u32),
}

/// A key by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyId {
    /// An ordinary key, the hottest has number 0.
    Item(u32),
    /// The key that expires.
    Expiring,
    /// A counter.
    Counter(u32),
    /// The stock of the sale.
    Stock,
}

impl KeyId {
    /// Appends the key's name.
    pub fn write_name(self, prefix: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(prefix.as_bytes());
        let _ = match self {
            Self::Item(number) => write!(out, "item:{number}"),
            Self::Expiring => write!(out, "expiring"),
            Self::Counter(number) => write!(out, "counter:{number}"),
            Self::Stock => write!(out, "stock"),
        };
    }

    /// The key's name.
    pub fn name(self, prefix: &str) -> Vec<u8> {
        let mut name = Vec::new();
        self.write_name(prefix, &mut name);
        name
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `GET`
    Read,
    /// `SET`
    Write,
    /// `INCR`, or `DECR` of the stock.
    Count,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// On what.
    pub key: KeyId,
    /// What.
    pub action: Action,
}

/// Why there can be no such workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadShape(&'static str);

impl fmt::Display for BadShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadShape {}

/// A workload, from which each connection gets its stream.
#[derive(Clone, Debug)]
pub struct Workload {
    shape: Shape,
    script: Arc<[Phase]>,
    zipf: Zipf<f64>,
}

impl Workload {
    /// A workload; its phases are ordered by time.
    pub fn new(shape: Shape, mut script: Vec<Phase>) -> Result<Self, BadShape> {
        let zipf = Zipf::new(f64::from(shape.keys), shape.exponent)
            .map_err(|_| BadShape("needs at least one key and an exponent of at least 0"))?;
        let shares = script.iter().map(|phase| phase.share).chain([shape.write_share]);
        for share in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(BadShape("a share lies between 0 and 1"));
            }
        }
        script.sort_by_key(|phase| phase.from);
        Ok(Self { shape, script: script.into(), zipf })
    }

    /// What does not change over time.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The phase at a time, if one has begun.
    pub fn phase(&self, at: Duration) -> Option<&Phase> {
        self.script.iter().rev().find(|phase| phase.from <= at)
    }

    /// The operations of one connection.
    pub fn stream(&self, connection: u32) -> OperationStream {
        let seed = mix(mix(self.shape.seed) ^ u64::from(connection));
        OperationStream { workload: self.clone(), random: Pcg64Mcg::seed_from_u64(seed) }
    }
}

/// The operations of one connection, without end.
#[derive(Clone, Debug)]
pub struct OperationStream {
    workload: Workload,
    random: Pcg64Mcg,
}

impl OperationStream {
    /// The next operation, `at` this time since the start.
    pub fn next(&mut self, at: Duration) -> Operation {
        let item = self.workload.zipf.sample(&mut self.random) as u32;
        let [to_hot, to_write, pick]: [f64; 3] = self.random.random();
        let item = KeyId::Item(item.clamp(1, self.workload.shape.keys) - 1);
        let action =
            if to_write < self.workload.shape.write_share { Action::Write } else { Action::Read };
        let heat = match self.workload.phase(at) {
            Some(phase) if to_hot < phase.share => phase.heat,
            _ => Heat::None,
        };
        let (key, action) = match heat {
            Heat::None => (item, action),
            Heat::Expiring => (KeyId::Expiring, Action::Read),
            Heat::Counter(counters) => {
                let number = (pick * f64::from(counters)) as u32;
                let reads = to_write < COUNTER_READ_SHARE;
                let action = if reads { Action::Read } else { Action::Count };
                (KeyId::Counter(number.min(counters.saturating_sub(1))), action)
            }
            Heat::Sale(_) if pick < SALE_BUY_SHARE => (KeyId::Stock, Action::Count),
            Heat::Item(number) | Heat::Sale(number) => (KeyId::Item(number), action),
        };
        Operation { key, action }
    }
}

/// Spreads neighbouring numbers over the whole range (the finalizer of `SplitMix64`).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
