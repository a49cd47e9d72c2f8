//! The table of keys: the single source of what can be configured.
//!
//! Flags, environment variables, the keys of the file, defaults, `--help`, suggestions for
//! misspelt keys and the output of `check` are all derived from it.
//!
//! Bound: fixed at compile time.
//! Invariant: every default passes the check of its own kind (tested in `validate`).

use super::kind::Kind;

/// One thing that can be configured.
#[derive(Debug)]
pub(crate) struct Key {
    /// Where it stands in the file: `listen`, or `limits.max_clients`.
    pub(crate) path: &'static str,
    /// What values it takes.
    pub(crate) kind: Kind,
    /// Its value when nobody gives one.
    pub(crate) default: Default,
    /// Whether this version does anything with it.
    pub(crate) effect: Effect,
    /// A line for `--help`.
    pub(crate) doc: &'static str,
}

/// Where the value of a key comes from when nobody gives one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Default {
    /// Written here, in the form a flag takes.
    Text(&'static str),
    /// Whatever the key at this path has.
    SameAs(&'static str),
    /// It must be given.
    Required,
}

/// Whether a key does anything in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Yes.
    Now,
    /// Part of the contract: accepted and checked, read by a component to come.
    Later,
}

/// The tables of the file with their heading in `--help`, in the order shown there.
pub(crate) const SECTIONS: [(&str, &str); 7] = [
    ("", "General"),
    ("limits", "Limits of a client"),
    ("timeouts", "Timeouts"),
    ("coordination", "Coordination"),
    ("detect", "Detection of hot keys"),
    ("local_cache", "Local cache"),
    ("coalesce", "Coalescing"),
];

const YEAR_SECONDS: u64 = 365 * 24 * 60 * 60;
const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;
const GIB: u64 = 1 << 30;

const fn whole(min: u64, max: u64) -> Kind {
    Kind::Whole { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

const fn now(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default: Default::Text(default), effect: Effect::Now, doc }
}

const fn later(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default: Default::Text(default), effect: Effect::Later, doc }
}

/// Every key but those of `[[policy]]`.
#[rustfmt::skip] // One row a key: it is read as a table.
pub(crate) static KEYS: [Key; 33] = [
    now("listen", Kind::Address, "127.0.0.1:6380", "Address that clients connect to; port 0 takes a free one"),
    later("admin", Kind::Address, "127.0.0.1:9600", "Address of the admin API"),
    now("upstream", Kind::Url, "embedded://", "The Redis to stand before: redis://[user:pass@]host:port[/db] or embedded://"),
    now("role", Kind::Choice(&["all", "proxy", "aggregator"]), "all", "What this process does"),
    later("namespace", Kind::Name, "default", "Fleet that this process belongs to"),
    now("workers", whole(0, 256), "0", "Worker threads; 0 is one per core"),
    now("log", Kind::Filter, "warn", "Level (off, error, warn, info, debug, trace) or directives (warn,heatsink_proxy=debug)"),
    now("log_format", Kind::Choice(&["text", "json"]), "text", "Form of log lines"),

    now("limits.max_clients", whole(1, 1_000_000), "10000", "Open connections, all clients together"),
    now("limits.max_request_bytes", bytes(64, 64 * GIB), "1GiB", "Size of one request"),
    now("limits.max_bulk_bytes", bytes(64, 64 * GIB), "512MiB", "Size of one argument"),
    now("limits.max_args", whole(3, i32::MAX as u64), "1048576", "Arguments of one request"),
    now("limits.unauthenticated_max_args", whole(3, i32::MAX as u64), "10", "Arguments of one request before authentication"),
    now("limits.unauthenticated_max_bytes", bytes(64, GIB), "16KiB", "Size of one request before authentication"),
    now("limits.max_output_bytes", bytes(64, 64 * GIB), "512MiB", "Replies that a client has not read yet"),
    now("limits.idle_seconds", whole(0, YEAR_SECONDS), "0", "Close a client that is silent this long; 0 is never"),

    now("timeouts.connect_ms", whole(1, HOUR_MS), "1000", "Connecting to the upstream"),
    now("timeouts.silence_ms", whole(0, DAY_MS), "10000", "Give up an upstream that owes replies and sends nothing; 0 is never"),
    now("timeouts.shutdown_ms", whole(0, HOUR_MS), "5000", "Finishing what is in flight after SIGTERM"),

    Key { path: "coordination.url", kind: Kind::Url, default: Default::SameAs("upstream"), effect: Effect::Later, doc: "Redis in which processes of a fleet meet" },

    later("detect.window_ms", whole(10, DAY_MS), "1000", "Time over which requests are counted"),
    later("detect.tick_ms", whole(1, HOUR_MS), "50", "Time between two looks at the counts"),
    later("detect.hot_threshold", whole(1, 1_000_000_000), "1000", "Requests a second on one key, whole fleet, that make it hot"),
    later("detect.report_threshold", whole(1, 1_000_000_000), "1000", "Requests a second on one key, one proxy, that are reported"),
    later("detect.retire_fraction", Kind::Fraction, "0.5", "Fraction of the threshold below which a key cools down"),
    later("detect.hold_seconds", whole(0, YEAR_SECONDS), "30", "Time a key stays below before it is retired"),
    later("detect.sketch_depth", whole(1, 16), "4", "Rows of the sketch"),
    later("detect.sketch_width", whole(16, 1 << 24), "2048", "Counters in a row of the sketch"),

    later("local_cache.entries", whole(1, 100_000_000), "2048", "Replies kept at most"),
    later("local_cache.max_bytes", bytes(1024, 1024 * GIB), "64MiB", "Memory used at most"),
    later("local_cache.max_ttl_ms", whole(1, YEAR_SECONDS * 1000), "60000", "Age of a reply at most"),
    later("local_cache.ttl_fraction", Kind::Fraction, "0.2", "Age of a reply at most, as a fraction of the key's TTL"),

    later("coalesce.max_wait_ms", whole(1, HOUR_MS), "1000", "Wait of a request for the flight it joined"),
];

/// The keys of one `[[policy]]`, which exists in the file only.
pub(crate) static POLICY_KEYS: [Key; 2] = [
    Key {
        path: "policy.match",
        kind: Kind::Pattern,
        default: Default::Required,
        effect: Effect::Later,
        doc: "Keys that the rule is for: a glob, as in Redis",
    },
    Key {
        path: "policy.mode",
        kind: Kind::Choice(&["off", "observe", "exact", "coherent", "relaxed"]),
        default: Default::Required,
        effect: Effect::Later,
        doc: "Strongest relaxation that they may get",
    },
];

impl Key {
    /// The section it belongs to, empty at top level.
    pub(crate) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Its name within the section.
    pub(crate) fn leaf(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, leaf)| leaf)
    }

    /// `--limits-max-clients` without the dashes in front.
    pub(crate) fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// `HEATSINK_LIMITS_MAX_CLIENTS`.
    pub(crate) fn variable(&self) -> String {
        format!("HEATSINK_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }
}

/// The key at `path`, outside of `[[policy]]`.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Whether `name` is a table of the file.
pub(crate) fn is_section(name: &str) -> bool {
    !name.is_empty() && SECTIONS.iter().any(|(section, _)| *section == name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_follow_from_the_path() {
        let key = find("limits.max_clients").expect("in the table");
        assert_eq!(key.flag(), "limits-max-clients");
        assert_eq!(key.variable(), "HEATSINK_LIMITS_MAX_CLIENTS");
        assert_eq!((key.section(), key.leaf()), ("limits", "max_clients"));
    }

    #[test]
    fn every_name_is_unique_and_every_section_is_headed() {
        let mut flags = HashSet::new();
        for key in &KEYS {
            assert!(flags.insert(key.flag()), "{} has the flag of another key", key.path);
            assert!(SECTIONS.iter().any(|(name, _)| *name == key.section()), "{}", key.path);
        }
    }
}
