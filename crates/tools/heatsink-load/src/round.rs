//! What all connections of a round share.
//!
//! Called by: [`crate::run()`] makes it, the engine and its connections read it.
//! Times are since the round's epoch, which is the moment it was made.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::ledger::Ledger;
use crate::options::{Options, Pace, Target};
use crate::workload::{KeyId, Workload};

/// One round of one target.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    pub(crate) options: &'a Options,
    pub(crate) target: &'a Target,
    pub(crate) address: SocketAddr,
    pub(crate) prefix: &'a str,
    pub(crate) ledger: &'a Ledger,
    pub(crate) workload: &'a Workload,
    pub(crate) epoch: Instant,
    /// When measuring begins, and when nothing is sent any more.
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

impl Round<'_> {
    /// The time now.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Whether what was due then is measured.
    pub(crate) fn measures(&self, due: Duration) -> bool {
        (self.begin..self.end).contains(&due)
    }

    /// Which part of the measured time has passed, 0 to 1.
    pub(crate) fn part(&self, at: Duration) -> f64 {
        let length = self.end.saturating_sub(self.begin).as_secs_f64();
        at.saturating_sub(self.begin).as_secs_f64() / length
    }

    /// Time since the script began; it waits for the end of the warm-up.
    pub(crate) fn script_time(&self, at: Duration) -> Duration {
        at.saturating_sub(self.begin)
    }

    /// When request `number` of a connection is due, at a given rate. The connections take
    /// turns, so that requests leave at even intervals.
    pub(crate) fn due(&self, connection: u32, number: u64) -> Option<Duration> {
        let Pace::Rate(rate) = self.options.pace else { return None };
        let place = number as f64 * f64::from(self.options.connections) + f64::from(connection);
        Some(Duration::from_secs_f64(place / rate))
    }

    /// Place of a value in the ledger; nothing for a counter.
    pub(crate) fn value_place(&self, key: KeyId) -> Option<usize> {
        match key {
            KeyId::Item(number) => Some(number as usize),
            KeyId::Expiring => Some(self.options.shape.keys as usize),
            KeyId::Counter(_) | KeyId::Stock => None,
        }
    }
}

/// Place of a counter in the ledger; the stock stands behind the others.
pub(crate) fn counter_place(key: KeyId, options: &Options) -> Option<usize> {
    match key {
        KeyId::Counter(number) => Some(number as usize),
        KeyId::Stock => Some(options.counters as usize),
        KeyId::Item(_) | KeyId::Expiring => None,
    }
}

/// The how-manieth value of a counter a reply is: the stock is counted down.
pub(crate) fn ordinal(key: KeyId, value: i64, options: &Options) -> Option<u64> {
    match key {
        KeyId::Stock => u64::try_from(options.stock as i64 - value).ok(),
        _ => u64::try_from(value).ok(),
    }
}
