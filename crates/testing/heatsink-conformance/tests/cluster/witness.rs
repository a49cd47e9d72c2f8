//! What a client was told instead of what it should have been, and what the cluster did meanwhile:
//! a reply of the wrong kind may be a failover's doing, or the gravest of faults.
//!
//! Called by: tests in which clients know every byte of their replies.

use std::fmt;

use heatsink_testkit::{RedisCluster, Reply};

/// So much of a wrong reply is shown.
const SHOWN_BYTES: usize = 200;

/// Knows what the cluster was before.
pub(crate) struct Witness<'a> {
    cluster: &'a RedisCluster,
    before: State,
}

/// Who leads a cluster, and how often that has changed.
#[derive(PartialEq, Eq)]
struct State {
    epoch: u64,
    primaries: Vec<usize>,
}

impl State {
    fn of(cluster: &RedisCluster) -> Self {
        let epoch = |info: String| {
            let line = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
            line.and_then(|epoch| epoch.trim().parse().ok()).unwrap_or(0)
        };
        let clients = cluster.nodes().filter_map(|node| node.try_admin_client().ok());
        let infos = clients.filter_map(|mut client| client.try_command(&["CLUSTER", "INFO"]).ok());
        let epoch = infos.map(|info| epoch(info.text())).max().unwrap_or(0);
        Self { epoch, primaries: cluster.primaries() }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, primaries {:?}", self.epoch, self.primaries)
    }
}

impl<'a> Witness<'a> {
    /// Remembers how things are.
    #[track_caller]
    pub(crate) fn of(cluster: &'a RedisCluster) -> Self {
        Self { cluster, before: State::of(cluster) }
    }

    /// Panics with everything there is to say if the reply to `request` is another one;
    /// `position` is its place among those of its client.
    #[track_caller]
    pub(crate) fn check(&self, request: &str, position: usize, got: &Reply, expected: &Reply) {
        if got == expected {
            return;
        }
        let now = State::of(self.cluster);
        let failover = if now == self.before { "no failover" } else { "a failover" };
        panic!(
            "{request}, reply {position}: {}, not {}\n{failover} meanwhile: {}, then {now}",
            shown(got),
            shown(expected),
            self.before,
        );
    }
}

/// The kind of a reply, and where it begins.
pub(crate) fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => {
            let begin = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii();
            format!("a string of {} bytes, {begin}", bytes.len())
        }
        Reply::Error(text) => format!("the error {text:.SHOWN_BYTES$}"),
        other => format!("{:.SHOWN_BYTES$}", other.to_string()),
    }
}

#[test]
fn a_wrong_reply_is_shown_with_its_kind_and_beginning() {
    assert_eq!(
        shown(&Reply::bulk("v".repeat(10 << 10))),
        format!("a string of 10240 bytes, {}", "v".repeat(200))
    );
    assert_eq!(shown(&Reply::Error("CLUSTERDOWN".into())), "the error CLUSTERDOWN");
    assert_eq!(shown(&Reply::Null), "null");
}
