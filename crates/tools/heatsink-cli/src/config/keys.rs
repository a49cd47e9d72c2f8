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
    /// When a change of it takes effect.
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

/// When a changed key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read at start: a change takes a restart.
    Start,
    /// Read at start and by a reload.
    Live,
}

/// The tables of the file with their heading in `--help`, in the order shown there.
pub(crate) const SECTIONS: [(&str, &str); 11] = [
    ("", "General"),
    ("tls", "TLS for clients"),
    ("upstream_tls", "TLS to the upstream and to the coordination store"),
    ("limits", "Limits of a client"),
    ("timeouts", "Timeouts"),
    ("coordination", "Coordination"),
    ("registry", "Registry of hot keys"),
    ("detect", "Detection of hot keys"),
    ("local_cache", "Local cache"),
    ("coalesce", "Coalescing"),
    ("split", "Splitting"),
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

const PATH: Kind = Kind::Optional(&Kind::Path);

const fn start(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default: Default::Text(default), effect: Effect::Start, doc }
}

const fn live(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default: Default::Text(default), effect: Effect::Live, doc }
}

/// Every key but those of `[[policy]]`.
#[rustfmt::skip] // One row a key: it is read as a table.
pub(crate) static KEYS: [Key; 70] = [
    start("listen", Kind::Address, "127.0.0.1:6380", "Address that clients connect to; port 0 takes a free one"),
    start("admin", Kind::Optional(&Kind::Address), "127.0.0.1:9600", "Address of the admin API; empty is none"),
    start("admin_token_file", PATH, "", "File with the token that the admin API requires; needed unless it listens on loopback"),
    start("privacy", Kind::Choice(&["none", "hash"]), "none", "Whether keys are shown in the admin API, metrics, events and logs, or only their hashes"),
    start("upstream", Kind::Url, "embedded://", "The Redis to proxy: redis://[user:pass@]host:port[/db], redis+cluster://host:port[,...], redis+sentinel://host:port[,...]/name[/db], each with TLS as rediss..., or embedded://"),
    start("role", Kind::Choice(&["all", "proxy", "aggregator"]), "all", "What this process does"),
    start("namespace", Kind::Name, "default", "Fleet that this process belongs to"),
    live("mode", Kind::Choice(&["off", "observe", "exact", "coherent", "relaxed"]), "coherent", "Mode of keys that no policy matches, the strongest relaxation that they may get; off does not count them"),
    start("workers", whole(0, 256), "0", "Worker threads; 0 is one per core"),
    live("log", Kind::Filter, "warn", "Level (off, error, warn, info, debug, trace) or directives (warn,heatsink_proxy=debug)"),
    start("log_format", Kind::Choice(&["text", "json"]), "text", "Form of log lines"),
    start("cluster_announce", Kind::Optional(&Kind::HostPort), "", "Host and port to announce to cluster clients; empty is the address they connected to"),
    start("auth", Kind::Choice(&["pass-through", "service"]), "pass-through", "Who checks passwords of clients: the upstream, or Heatsink by its users file"),
    start("users", PATH, "", "Users file of auth = service"),
    start("handover", PATH, "", "Unix socket over which a new process takes over from a running one; empty is off"),
    live("reload_on_change", Kind::Switch, "true", "Reload when the file, the users file or a certificate has changed"),

    start("tls.listen", Kind::Optional(&Kind::Address), "", "Address that clients connect to with TLS; empty is none"),
    start("tls.certificate", PATH, "", "Certificate of the listener, followed by its chain (PEM)"),
    start("tls.key", PATH, "", "Private key of the certificate (PEM)"),
    start("tls.client_ca", PATH, "", "Authorities whose client certificates are accepted (PEM)"),
    start("tls.require_client_certificate", Kind::Switch, "false", "Refuse clients without a certificate"),

    start("upstream_tls.ca", PATH, "", "Authorities to trust (PEM); empty is those of the system"),
    start("upstream_tls.certificate", PATH, "", "Client certificate to present (PEM)"),
    start("upstream_tls.key", PATH, "", "Private key of the client certificate (PEM)"),
    start("upstream_tls.server_name", Kind::Optional(&Kind::Host), "", "Name to expect in the certificate; empty is the host that was dialled"),

    live("limits.max_clients", whole(1, 1_000_000), "10000", "Open connections, all clients together"),
    live("limits.max_request_bytes", bytes(64, 64 * GIB), "1GiB", "Size of one request"),
    live("limits.max_bulk_bytes", bytes(64, 64 * GIB), "512MiB", "Size of one argument"),
    live("limits.max_args", whole(3, i32::MAX as u64), "1048576", "Arguments of one request"),
    live("limits.unauthenticated_max_args", whole(3, i32::MAX as u64), "10", "Arguments of one request before authentication"),
    live("limits.unauthenticated_max_bytes", bytes(64, GIB), "16KiB", "Size of one request before authentication"),
    live("limits.max_output_bytes", bytes(64, 64 * GIB), "512MiB", "Replies that a client has not read yet"),
    live("limits.max_total_output_bytes", bytes(0, 1024 * GIB), "0", "Replies that all clients together have not read yet; above it the slowest are closed. 0 is a quarter of the memory"),
    live("limits.max_total_input_bytes", bytes(0, 1024 * GIB), "0", "Unfinished requests of all clients together; above it those with most are closed. 0 is a quarter of the memory"),
    live("limits.idle_seconds", whole(0, YEAR_SECONDS), "0", "Close a client that is silent this long; 0 is never"),

    live("timeouts.connect_ms", whole(1, HOUR_MS), "1000", "Connecting to the upstream, TLS and login included"),
    live("timeouts.silence_ms", whole(0, DAY_MS), "10000", "Give up an upstream that owes replies and sends nothing; 0 is never"),
    live("timeouts.cluster_retry_ms", whole(0, HOUR_MS), "1000", "Retrying what a cluster cannot execute at the moment"),
    live("timeouts.handover_ms", whole(0, DAY_MS), "60000", "Serving the remaining connections after handing over"),
    live("timeouts.shutdown_ms", whole(0, HOUR_MS), "5000", "Finishing what is in flight after SIGTERM"),

    Key { path: "coordination.url", kind: Kind::Url, default: Default::SameAs("upstream"), effect: Effect::Start, doc: "Redis in which the processes of a fleet meet; embedded:// is memory" },
    start("coordination.secret_file", PATH, "", "File with the secret that members of the fleet sign their records and messages with; unsigned ones are ignored. Empty is none"),

    start("registry.max_entries", whole(1, 65_536), "4096", "Hot keys at once, whole fleet"),
    live("registry.ttl_seconds", whole(5, YEAR_SECONDS), "60", "Life of an automatic entry that is not renewed"),
    live("registry.block_seconds", whole(0, YEAR_SECONDS), "300", "Time for which a key that was removed by hand is not promoted automatically"),

    start("detect.window_ms", whole(10, HOUR_MS), "1000", "Time over which requests are counted"),
    start("detect.tick_ms", whole(1, HOUR_MS), "50", "Time between two looks at the counts"),
    live("detect.hot_threshold", whole(1, 1_000_000_000), "1000", "Requests a second on one key, whole fleet, that make it hot"),
    live("detect.report_threshold", whole(1, 1_000_000_000), "1000", "Requests a second on one key, one proxy, that are reported; lowered to hot_threshold / live proxies"),
    live("detect.hot_bytes_per_second", bytes(1, 1024 * GIB), "64MiB", "Bytes a second moved for one key that make it hot"),
    live("detect.miss_storm_threshold", whole(1, 1_000_000_000), "500", "Misses a second of one key that count as a miss storm"),
    live("detect.write_contention_threshold", whole(1, 1_000_000), "16", "Writes of one key in flight at once that count as write contention"),
    live("detect.retire_fraction", Kind::Fraction, "0.5", "Fraction of the threshold below which a key cools down"),
    live("detect.hold_seconds", whole(0, YEAR_SECONDS), "30", "Time for which a key stays below that before it is retired"),
    start("detect.sketch_depth", whole(1, 8), "4", "Rows of the sketch"),
    start("detect.sketch_width", whole(16, 1 << 24), "2048", "Counters in a row of the sketch"),

    live("local_cache.enabled", Kind::Switch, "true", "Answer reads of hot keys from a cache that the server keeps up to date; if not, entries only say what would be done"),
    live("local_cache.entries", whole(1, 100_000_000), "2048", "Replies kept at most"),
    live("local_cache.max_bytes", bytes(1024, 1024 * GIB), "64MiB", "Memory used at most"),
    live("local_cache.max_ttl_ms", whole(1, YEAR_SECONDS * 1000), "60000", "Maximum age of a reply"),
    live("local_cache.ttl_fraction", Kind::Fraction, "0.2", "Maximum age of a reply, as a fraction of the key's TTL"),

    live("coalesce.enabled", Kind::Switch, "true", "Concurrent reads of a hot key share one upstream read, concurrent increments and plain SETs one upstream write"),
    live("coalesce.max_wait_ms", whole(1, HOUR_MS), "1000", "In mode relaxed: a read that has waited this long gets what was read before"),
    live("coalesce.max_stale_ms", whole(0, DAY_MS), "10000", "In mode relaxed: maximum age of what a read gets that has waited too long; with 0 it gets the error"),

    live("split.enabled", Kind::Switch, "true", "Values of keys that are promoted to split are moved into several keys on different nodes; if not, entries only say what would be done, and split values are moved back"),
    live("split.freeze_ms", whole(10, HOUR_MS), "200", "Longest wait for all proxies to hold writes of a key; then its split is put off"),
    live("split.max_members", whole(1, 100_000_000), "1000000", "Values with more members are not split"),
    live("split.max_value_bytes", bytes(1024, 64 * GIB), "64MiB", "Values with more bytes are not split"),
    live("split.max_factor", whole(2, 1024), "64", "Shards of one key at most"),
    live("split.node_writes_per_second", whole(1, 1_000_000_000), "50000", "Writes a second of one key that one node can take; a key with more is split, where a policy says whole_traffic"),
];

/// The keys of one `[[policy]]`, which exists in the file only.
pub(crate) static POLICY_KEYS: [Key; 5] = [
    Key {
        path: "policy.match",
        kind: Kind::Pattern,
        default: Default::Required,
        effect: Effect::Live,
        doc: "Keys that the rule is for: a glob, as in Redis",
    },
    Key {
        path: "policy.mode",
        kind: Kind::Choice(&["off", "observe", "exact", "coherent", "relaxed"]),
        default: Default::Required,
        effect: Effect::Live,
        doc: "Strongest relaxation that they may get",
    },
    Key {
        path: "policy.replica_reads",
        kind: Kind::Switch,
        default: Default::Text("false"),
        effect: Effect::Live,
        doc: "Whether replicas may answer reads",
    },
    Key {
        path: "policy.whole_traffic",
        kind: Kind::Switch,
        default: Default::Text("false"),
        effect: Effect::Live,
        doc: "Whether all clients of these keys go through Heatsink, so that they may be split and copied",
    },
    Key {
        path: "policy.hot_threshold",
        kind: Kind::Whole { min: 0, max: 1_000_000_000 },
        default: Default::Text("0"),
        effect: Effect::Live,
        doc: "Requests a second that make such a key hot; 0 is that of [detect]",
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
