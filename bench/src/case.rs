//! What is measured: a command, a number of clients, a depth of pipelining.
//!
//! Called by: `main` to choose, `benchmark` to run, `proxy`, `hot` and `cluster` for the goal
//! that applies.
//! Bound: four commands in three shapes for `proxy`, three cases for `hot`, nine cases for `cluster`.
//! Invariant: a random key that a case reads has been written before it is measured, see
//! `preload`; keys of values of one size are never written with another.

use serde::Serialize;

use crate::benchmark::Access;

/// Random keys are `key:` and a number below this with twelve digits, as `redis-benchmark`
/// writes it.
pub(crate) const KEYS: usize = 100_000;
/// The key that every client reads in "one key".
pub(crate) const ONE_KEY: &str = "one:key";
/// The key that every client increments.
pub(crate) const COUNTER: &str = "one:counter";
const RANDOM_NUMBER: &str = "__rand_int__";
const VALUE_BYTES: usize = 100;
const SMALL_BYTES: usize = 3;
const LARGE_BYTES: usize = 1024;
const MGET_KEYS: usize = 10;

/// Random keys whose values have one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) value_bytes: usize,
}

impl Family {
    /// The name of a random key of a peer that is one server, or looks like it.
    pub(crate) fn key(self, number: usize) -> String {
        format!("{}{number:012}", self.prefix())
    }

    /// The name of a random key with a hash tag, for load that knows the cluster.
    pub(crate) fn tagged_key(self, tag: &str, number: usize) -> String {
        format!("{}{{{tag}}}:{number:012}", self.prefix())
    }

    /// The value of every key.
    pub(crate) fn value(self) -> String {
        "v".repeat(self.value_bytes)
    }

    fn prefix(self) -> String {
        if self.value_bytes == VALUE_BYTES {
            "key:".to_owned()
        } else {
            format!("key{}:", self.value_bytes)
        }
    }

    /// A random key as `redis-benchmark` wants it written.
    fn pattern(self, access: Access) -> String {
        let tag = if access == Access::Cluster { "{tag}:" } else { "" };
        format!("{}{tag}{RANDOM_NUMBER}", self.prefix())
    }
}

/// The command that a case repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Workload {
    GetOne,
    GetRandom,
    SetRandom,
    IncrOne,
    /// GET of random keys whose values have so many bytes.
    GetSized(usize),
    SetSized(usize),
    MgetSized(usize),
}

impl Workload {
    fn title(self) -> String {
        match self {
            Self::GetOne => "GET one key".to_owned(),
            Self::GetRandom => "GET random keys".to_owned(),
            Self::SetRandom => "SET random keys".to_owned(),
            Self::IncrOne => "INCR one key".to_owned(),
            Self::GetSized(bytes) => format!("GET random keys of {bytes} B"),
            Self::SetSized(bytes) => format!("SET random keys of {bytes} B"),
            Self::MgetSized(bytes) => format!("MGET {MGET_KEYS} random keys of {bytes} B"),
        }
    }

    /// The command for `redis-benchmark`.
    pub(crate) fn command(self, access: Access) -> Vec<String> {
        let key = || self.family().pattern(access);
        let value = || self.family().value();
        match self {
            Self::GetOne => vec!["GET".to_owned(), ONE_KEY.to_owned()],
            Self::GetRandom | Self::GetSized(_) => vec!["GET".to_owned(), key()],
            Self::SetRandom | Self::SetSized(_) => vec!["SET".to_owned(), key(), value()],
            Self::IncrOne => vec!["INCR".to_owned(), COUNTER.to_owned()],
            Self::MgetSized(_) => {
                let keys = (0..MGET_KEYS).map(|_| key());
                ["MGET".to_owned()].into_iter().chain(keys).collect()
            }
        }
    }

    /// Whether the command names random keys.
    pub(crate) fn random(self) -> bool {
        !matches!(self, Self::GetOne | Self::IncrOne)
    }

    /// Whether every request is one command for one server.
    pub(crate) fn has_one_key(self) -> bool {
        !matches!(self, Self::MgetSized(_))
    }

    /// The keys that exist before it is measured.
    pub(crate) fn family(self) -> Family {
        let value_bytes = match self {
            Self::GetOne | Self::GetRandom | Self::SetRandom | Self::IncrOne => VALUE_BYTES,
            Self::GetSized(bytes) | Self::SetSized(bytes) | Self::MgetSized(bytes) => bytes,
        };
        Family { value_bytes }
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

/// The cases of the comparison of proxies.
pub(crate) fn of_proxies() -> Vec<Case> {
    let mut cases = Vec::new();
    for (clients, pipeline) in [(50, 1), (50, 16), (200, 1)] {
        for workload in
            [Workload::GetOne, Workload::GetRandom, Workload::SetRandom, Workload::IncrOne]
        {
            cases.push(Case { workload, clients, pipeline });
        }
    }
    cases
}

/// The cases with a key that is hot.
pub(crate) fn of_hot() -> Vec<Case> {
    vec![
        Case { workload: Workload::GetOne, clients: 50, pipeline: 1 },
        Case { workload: Workload::GetOne, clients: 50, pipeline: 16 },
        Case { workload: Workload::IncrOne, clients: 200, pipeline: 1 },
    ]
}

/// The cases of the comparison of ways to a cluster: every pair of number of clients, depth and
/// size of values occurs, which half of all combinations suffice for.
pub(crate) fn of_clusters() -> Vec<Case> {
    let mut cases = Vec::new();
    for (clients, pipeline, bytes) in
        [(50, 1, SMALL_BYTES), (50, 16, LARGE_BYTES), (200, 1, LARGE_BYTES), (200, 16, SMALL_BYTES)]
    {
        for workload in [Workload::GetSized(bytes), Workload::SetSized(bytes)] {
            cases.push(Case { workload, clients, pipeline });
        }
    }
    cases.push(Case { workload: Workload::MgetSized(SMALL_BYTES), clients: 50, pipeline: 1 });
    cases
}

/// Those of the cases whose title contains `filter`.
pub(crate) fn matching(mut cases: Vec<Case>, filter: &str) -> Vec<Case> {
    let filter = filter.to_lowercase();
    cases.retain(|case| case.title().to_lowercase().contains(&filter));
    cases
}

/// The keys that cases need, each family once.
pub(crate) fn families(cases: &[Case]) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for family in cases.iter().map(|case| case.workload.family()) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_chooses_by_title() {
        let matching = |filter: &str| matching(of_proxies(), filter);
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

    #[test]
    fn keys_of_different_sizes_have_different_names() {
        let families = families(&of_clusters());
        assert_eq!(families, [Family { value_bytes: 3 }, Family { value_bytes: 1024 }]);
        assert_ne!(families[0].key(7), families[1].key(7));
    }

    #[test]
    fn what_is_written_before_is_what_the_command_names() {
        let workload = Workload::GetSized(3);
        let named = |access: Access| {
            let command = workload.command(access).join(" ");
            command.replace(RANDOM_NUMBER, "000000000007").replace("{tag}", "{06S}")
        };
        assert_eq!(named(Access::Server), format!("GET {}", workload.family().key(7)));
        assert_eq!(
            named(Access::Cluster),
            format!("GET {}", workload.family().tagged_key("06S", 7))
        );
        assert_eq!(Workload::MgetSized(3).command(Access::Server).len(), 1 + MGET_KEYS);
    }
}
