//! What is measured: a command, a number of clients, a depth of pipelining.
//!
//! Called by: `main` to choose, `benchmark` to run, `verdict` for the goal that applies.
//! Bound: four commands in three shapes.
//! Invariant: a random key that a case reads has been written before it is measured, see
//! `rounds`.

use serde::Serialize;

/// Random keys are `key:` and a number below this with twelve digits, as `redis-benchmark`
/// writes it.
pub(crate) const KEYS: usize = 100_000;
/// The key that every client reads in "one key".
pub(crate) const ONE_KEY: &str = "one:key";
const COUNTER: &str = "one:counter";
const RANDOM_KEY: &str = "key:__rand_int__";
const VALUE_BYTES: usize = 100;

/// The name of a random key.
pub(crate) fn key(number: usize) -> String {
    format!("key:{number:012}")
}

/// The value of every key.
pub(crate) fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

/// The command that a case repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Workload {
    GetOne,
    GetRandom,
    SetRandom,
    IncrOne,
}

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Self::GetOne => "GET one key",
            Self::GetRandom => "GET random keys",
            Self::SetRandom => "SET random keys",
            Self::IncrOne => "INCR one key",
        }
    }

    /// The command for `redis-benchmark`.
    pub(crate) fn command(self) -> Vec<String> {
        let value = value();
        let words: &[&str] = match self {
            Self::GetOne => &["GET", ONE_KEY],
            Self::GetRandom => &["GET", RANDOM_KEY],
            Self::SetRandom => &["SET", RANDOM_KEY, &value],
            Self::IncrOne => &["INCR", COUNTER],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Whether the command names random keys.
    pub(crate) fn random(self) -> bool {
        matches!(self, Self::GetRandom | Self::SetRandom)
    }
}

/// One row of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) clients: u32,
    pub(crate) pipeline: u32,
}

impl Case {
    /// Its name in tables and for `--case`.
    pub(crate) fn title(&self) -> String {
        let Self { workload, clients, pipeline } = self;
        let pipelined = if *pipeline > 1 { format!(", -P {pipeline}") } else { String::new() };
        format!("{}, {clients} clients{pipelined}", workload.title())
    }

    /// A pipelined case gets through its requests several times as fast; with more of them its
    /// rounds last about as long as the others'.
    pub(crate) fn requests(&self, unpipelined: u64) -> u64 {
        if self.pipeline > 1 { unpipelined * 8 } else { unpipelined }
    }
}

/// The cases whose title contains `filter`.
pub(crate) fn matching(filter: &str) -> Vec<Case> {
    let filter = filter.to_lowercase();
    let mut cases = Vec::new();
    for (clients, pipeline) in [(50, 1), (50, 16), (200, 1)] {
        for workload in
            [Workload::GetOne, Workload::GetRandom, Workload::SetRandom, Workload::IncrOne]
        {
            cases.push(Case { workload, clients, pipeline });
        }
    }
    cases.retain(|case| case.title().to_lowercase().contains(&filter));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_chooses_by_title() {
        assert_eq!(matching("").len(), 12);
        assert_eq!(matching("get ONE").len(), 3);
        assert_eq!(matching("-P 16").len(), 4);
        let titles: Vec<String> = matching("incr").iter().map(Case::title).collect();
        assert_eq!(
            titles,
            [
                "INCR one key, 50 clients",
                "INCR one key, 50 clients, -P 16",
                "INCR one key, 200 clients"
            ]
        );
        assert!(matching("lpush").is_empty());
    }
}
