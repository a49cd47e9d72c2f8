//! Long random command sequences to two servers, whose replies must be the same bytes.
//!
//! Called by: `tests/differential.rs`, with plain Redis on both sides (which shows that the
//! generator itself is sound) and with Heatsink in front of the second; `tests/cluster`, with
//! Heatsink in front of a cluster.
//! Bound: a burst is at most [`BURST_COMMANDS`] commands and about [`BURST_BYTES`]; keys come
//! from small pools, so that values stay small for ever.
//! Invariant: both sides are sent the same bytes, cut at the same places, one connection at a
//! time; the sequence depends on the seed alone, except that `RESTORE` is given what the
//! first server answered to `DUMP`.
//!
//! # Long runs
//!
//! The tests take the number of steps from `HEATSINK_DIFFERENTIAL_STEPS`, and one seed from
//! `HEATSINK_DIFFERENTIAL_SEED` instead of the usual ones, or a random one:
//!
//! ```text
//! HEATSINK_DIFFERENTIAL_SEED=random HEATSINK_DIFFERENTIAL_STEPS=1000000 cargo test --release -p heatsink-conformance --test differential
//! ```
//!
//! # What is left out, and why
//!
//! | left out | because |
//! |---|---|
//! | `TIME`, `LASTSAVE`, `OBJECT IDLETIME`, `XINFO CONSUMERS`, `XINFO STREAM FULL`, `XPENDING` with a range, `SLOWLOG`, `LATENCY`, `ACL LOG` | show the clock |
//! | `XADD` with `*` | the id is the clock; explicit and half-explicit ids are used |
//! | `RANDOMKEY`, `SRANDMEMBER`, `HRANDFIELD`, `ZRANDMEMBER`, `SPOP` of a part, `ACL GENPASS` | random |
//! | `CLIENT ID/LIST/INFO/KILL` of somebody, `INFO`, `MEMORY`, the `id` of `HELLO` | name the process or connection |
//! | `SCAN` family over several calls | cursors follow the server's random hash seed; a call that returns everything is used |
//! | `UNSUBSCRIBE` without channels while there are several | answers in hash order |
//! | `DEBUG`, `SHUTDOWN`, `REPLICAOF`, `SYNC`, `SAVE`, `BGSAVE`, `CLIENT PAUSE`, `MONITOR` | act on the server as a whole or never end; real clients and other tests cover what applies |
//! | `SUBSCRIBE`, `HELLO` inside `MULTI` | allowed, but the number of replies cannot be told from the outside |
//! | `AUTH` inside `MULTI` | Heatsink refuses it: the reply to `EXEC` would tell of any number of logins whether they are right |
//!
//! Left out before a cluster, because its nodes do it otherwise than one server, whoever asks:
//!
//! | left out | because |
//! |---|---|
//! | `SELECT` and `COPY` to another database, `MOVE`, `SWAPDB`, `SORT BY` | a cluster refuses them |
//! | `SCAN` | its cursor goes on to the next node; other tests walk it |
//! | `WAIT`, `ROLE`, `CLUSTER`, `READONLY`, `ASKING` | show that there is a cluster |
//! | `CLIENT REPLY`, `CLIENT TRACKING`, `CLIENT NO-EVICT` | Heatsink refuses them before a cluster |
//! | `PUBLISH`, `PUBSUB`, sharded subscriptions | each node counts its own subscribers, and messages reach those of other nodes later, even such as subscribed later |
//! | other commands of a connection that has subscriptions | it leads to one node only |
//! | `HELLO`, `AUTH`, `SELECT` of a connection that watches keys | refused, for the same reason |
//! | `EVAL` of the script that `EVALSHA` asks for | loads it at one node only |
//! | commands that concern all nodes, and `CLIENT`, inside `MULTI` | it runs at one node |
//! | keys of several slots in one command that is not split, `MULTI`, `WATCH` of them | `CROSSSLOT`; keys that share a slot are used for these |
//!
//! Compared with tolerance rather than left out: replies in hash order (`SMEMBERS`, `KEYS`,
//! ...) are sorted first; what remains of an expiry may differ by the time a run takes; dumps of
//! sets and streams must have one length.

mod check;
mod commands;
mod generator;
mod model;
mod runner;
mod sequence;
mod words;

pub use sequence::difference;

use heatsink_proxy::hot_keys::{HotKeys, Treatment};
use heatsink_testkit::{RedisCluster, RedisClusterBuilder, RedisServer, RedisServerBuilder, Reply};

use crate::{ClusterRig, RigBuilder};

/// Most commands in one burst.
pub const BURST_COMMANDS: usize = 200;
/// A burst ends at the command that passes this size.
pub const BURST_BYTES: usize = 48 << 10;

/// The protocol that connections of a run start with; `HELLO` changes it on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, as a client that sends no `HELLO`.
    Resp2,
    /// RESP3, by a `HELLO 3` at the start.
    Resp3,
}

/// How a run talks to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The protocol to start with.
    pub protocol: Protocol,
    /// Bursts cut at random bytes, or one command at a time.
    pub pipelined: bool,
}

/// Which slots of a cluster the keys are in, and so what can be done with several at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Any key with any other: there is no cluster.
    Free,
    /// All keys of a run are in one slot.
    Tagged,
    /// Wherever they happen to be; several slots in one command only where it can be split.
    Spread,
}

/// Settings for a cluster that [`compare_cluster`] can use.
pub fn cluster_settings() -> RedisClusterBuilder {
    SETTINGS.iter().fold(RedisCluster::builder(), |cluster, (name, value)| {
        cluster.line(format!("{name} {value}"))
    })
}

/// Compares a plain server with Heatsink in front of a cluster, which is emptied first; panics
/// at the first difference. Every key is treated as `heat` says; through several workers, only
/// what is exact is the same for everyone at every moment.
pub fn compare_cluster(
    rig: &ClusterRig,
    seed: u64,
    steps: usize,
    mode: Mode,
    keys: Keys,
    heat: Treatment,
) {
    let handle = rig.heatsink.proxy().handle();
    handle.set_hot_keys(HotKeys::default());
    let reference = settings().start();
    // A cluster keeps no users in common.
    for node in rig.cluster.nodes() {
        let set = runner::limited_user();
        assert_eq!(node.client().command(&set), Reply::ok());
    }
    for node in rig.cluster.primaries() {
        let mut client = rig.cluster.node(node).client();
        for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["FUNCTION", "FLUSH"]] {
            assert_eq!(client.command(command), Reply::ok());
        }
    }
    let names = words::Words::new(seed, keys).all_keys();
    handle.set_hot_keys(names.into_iter().map(|key| (key, heat)).collect());
    runner::Runner::new(reference.addr(), rig.heatsink.addr(), seed, mode, keys).run(steps);
}

/// Compares a plain server with Heatsink in front of another; panics at the first difference.
/// One step is one command.
pub fn compare(seed: u64, steps: usize, mode: Mode) {
    let reference = settings().start();
    let rig = RigBuilder::before(settings()).workers(2).start();
    runner::Runner::new(reference.addr(), rig.addr(), seed, mode, Keys::Free).run(steps);
}

/// The same with every key hot, so that reads are answered from the cache, or only coalesced if
/// the seed is even. Through one worker there is nobody else's write that a client would hear of
/// later.
pub fn compare_hot(seed: u64, steps: usize, mode: Mode) {
    let reference = settings().start();
    let rig = RigBuilder::before(settings()).workers(1).start();
    let treatment = heat_of(seed);
    let names = words::Words::new(seed, Keys::Free).all_keys();
    let hot = names.into_iter().map(|key| (key, treatment)).collect();
    rig.heatsink().proxy().handle().set_hot_keys(hot);
    runner::Runner::new(reference.addr(), rig.addr(), seed, mode, Keys::Free).run(steps);
}

/// How hot keys are treated in the run of a seed.
pub fn heat_of(seed: u64) -> Treatment {
    if seed.is_multiple_of(2) { Treatment::EXACT } else { Treatment::COHERENT }
}

/// Compares two plain servers: finds what the generator must not do.
pub fn compare_plain(seed: u64, steps: usize, mode: Mode) {
    let (reference, other) = (settings().start(), settings().start());
    runner::Runner::new(reference.addr(), other.addr(), seed, mode, Keys::Free).run(steps);
}

/// Hashes and sorted sets stay in the encoding that knows no chance: the other one shows the
/// server's random hash seed in the order of fields, and the random levels of a skip list in
/// ranges by lexicographical order over unequal scores, which are undefined.
///
/// A server with nothing else to do looks every `1/hz` seconds whose time to block is over.
const SETTINGS: [(&str, &str); 5] = [
    ("hz", "500"),
    ("hash-max-listpack-entries", "1000000"),
    ("hash-max-listpack-value", "1000000"),
    ("zset-max-listpack-entries", "1000000"),
    ("zset-max-listpack-value", "1000000"),
];

fn settings() -> RedisServerBuilder {
    SETTINGS.iter().fold(RedisServer::builder(), |server, (name, value)| server.arg(name, value))
}
