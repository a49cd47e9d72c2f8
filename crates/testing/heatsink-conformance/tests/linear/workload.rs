//! What is asked in a history: random commands on few keys, so that they meet.
//!
//! Called by: the tests, once for each history; `recorder` for each request.
//! Bound: [`OPERATIONS`] a history.
//! Invariant: a text begins with [`TEXT`] and is written by one request only; from there it grows
//! until it is replaced. So whatever a key holds that is a text, it holds once.

use std::ops::Range;

use fastrand::Rng;

use crate::model::Command;

/// Operations of a history.
pub(crate) const OPERATIONS: usize = 200;
/// What texts begin with, and numbers do not.
pub(crate) const TEXT: &[u8] = b"v";
/// The most requests that a connection has out.
const DEEPEST: usize = 4;
/// The most clients.
const MOST_CLIENTS: usize = 16;
/// Close to the end of what a counter can hold.
const NEAR_THE_END: i64 = i64::MAX - 20;

/// Which commands prevail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Increments and reads, now and then the key goes.
    Counter,
    /// The same close to the largest number, where increments are refused.
    Edge,
    /// `INCRBYFLOAT` and reads, now and then a value that is not whole.
    Float,
    /// Texts that are replaced, and reads.
    Text,
    /// Anything; numbers become text and the other way round.
    All,
    /// Several keys at one instant, and what moves them apart.
    Several,
}

impl Mix {
    /// All that are about one key at a time, counters twice: the most is done for them.
    pub(crate) const SINGLE: [Self; 6] =
        [Self::Counter, Self::Counter, Self::Float, Self::Edge, Self::Text, Self::All];
    /// All that one server can answer.
    pub(crate) const ANY: [Self; 7] = [
        Self::Counter,
        Self::Counter,
        Self::Float,
        Self::Edge,
        Self::Text,
        Self::All,
        Self::Several,
    ];
}

/// One history's load.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) mix: Mix,
    pub(crate) keys: usize,
    pub(crate) clients: usize,
    pub(crate) operations: usize,
    /// Requests that a connection may have out; every second connection has one.
    pub(crate) depth: usize,
    /// The longest that a client thinks between two requests.
    pub(crate) pause_us: u64,
    /// Clients close connections while requests are out.
    pub(crate) hangs_up: bool,
}

impl Workload {
    /// A load of one of these kinds.
    pub(crate) fn random(rng: &mut Rng, mixes: &[Mix]) -> Self {
        let mut workload = Self {
            mix: mixes[rng.usize(..mixes.len())],
            keys: rng.usize(1..=3),
            clients: rng.usize(5..=MOST_CLIENTS),
            operations: OPERATIONS,
            depth: rng.usize(1..=DEEPEST),
            pause_us: 0,
            hangs_up: false,
        };
        match workload.mix {
            // An increment tells its place, other writes can be almost anywhere.
            Mix::Edge | Mix::Text | Mix::All => workload.calm_down(8, 3),
            Mix::Several => workload.calm_down(6, 2),
            Mix::Counter | Mix::Float => {}
        }
        workload
    }

    /// Less at once: what is out at the same time, or when something fails, can be explained in
    /// many ways, and too many take too long to try.
    pub(crate) fn calm_down(&mut self, clients: usize, depth: usize) {
        self.clients = self.clients.min(clients);
        self.depth = self.depth.min(depth);
    }

    /// The request of a client with this number, and the keys that it is about.
    pub(crate) fn request(&self, rng: &mut Rng, serial: usize) -> (Range<usize>, Command) {
        let command = self.command(rng, serial);
        // The first is the hottest.
        let key = rng.usize(..self.keys).min(rng.usize(..self.keys));
        let keys = if command.is_about_all() { 0..self.keys } else { key..key + 1 };
        (keys, command)
    }

    #[expect(clippy::match_same_arms, reason = "each mix is read by itself")]
    fn command(&self, rng: &mut Rng, serial: usize) -> Command {
        let number = || (serial as i64) * 1000;
        // The end keeps a text apart from a shorter one that a digit was appended to.
        let text = || format!("v{serial}.");
        let by = rng.i64(1..=9);
        match (self.mix, rng.u8(..100)) {
            (Mix::Counter, 0..30) | (Mix::Edge, 0..20) => Command::Get,
            (Mix::Counter, 30..60) | (Mix::Edge, 20..40) => Command::Incr,
            (Mix::Counter, 60..70) | (Mix::Edge, 40..70) => Command::IncrBy(by),
            (Mix::Counter, 70..78) => Command::FloatBy(by),
            (Mix::Counter, 78..86) | (Mix::Edge, 70..76) => Command::Decr,
            (Mix::Counter, 86..92) | (Mix::Edge, 76..82) => Command::DecrBy(by),
            (Mix::Counter, 92..94) => Command::Set(number().to_string()),
            (Mix::Edge, 82..90) => Command::Set((NEAR_THE_END + by).to_string()),
            (Mix::Edge, 90..94) => Command::Set((-NEAR_THE_END - by).to_string()),
            (Mix::Counter | Mix::Edge, 94..96) => Command::GetSet(by.to_string()),
            (Mix::Counter | Mix::Edge, 96..98) => Command::Exists,
            (Mix::Counter | Mix::Edge, _) => Command::Del,
            (Mix::Float, 0..25) => Command::Get,
            (Mix::Float, 25..80) => Command::FloatBy(by),
            (Mix::Float, 80..90) => Command::FloatBy(-by),
            (Mix::Float, 90..94) => Command::Incr,
            (Mix::Float, 94..97) => Command::Set(number().to_string()),
            (Mix::Float, 97..98) => Command::Set(format!("{}.5", number())),
            (Mix::Float, _) => Command::Del,
            (Mix::Text, 0..40) => Command::Get,
            (Mix::Text, 40..70) => Command::Set(text()),
            (Mix::Text, 70..78) => Command::Append(text()),
            (Mix::Text, 78..84) => Command::Strlen,
            (Mix::Text, 84..88) => Command::GetSet(text()),
            (Mix::Text, 88..92) => Command::SetNx(text()),
            (Mix::Text, 92..95) => Command::Exists,
            (Mix::Text, 95..97) => Command::GetDel,
            (Mix::Text, _) => Command::Del,
            (Mix::Several, 0..15) => Command::MGet,
            (Mix::Several, 15..20) => Command::MSet(number().to_string()),
            (Mix::Several, 20..35) => Command::Get,
            (Mix::Several, 35..65) => Command::Incr,
            (Mix::Several, 65..80) => Command::DecrBy(by),
            (Mix::Several, 80..90) => Command::Set(number().to_string()),
            (Mix::Several, _) => Command::GetDel,
            (Mix::All, choice) => match choice % 15 {
                0 | 1 => Command::Get,
                2 => Command::Strlen,
                3 => Command::Exists,
                4 => Command::Set(text()),
                5 => Command::Set(number().to_string()),
                6 => Command::SetNx(number().to_string()),
                7 => Command::GetSet(text()),
                8 => Command::Append(by.to_string()),
                9 => Command::Del,
                10 => Command::GetDel,
                11 => Command::Incr,
                12 => Command::Decr,
                13 => Command::Script(by),
                14 if by > 5 => Command::FloatBy(by),
                _ => Command::IncrBy(by),
            },
        }
    }
}
