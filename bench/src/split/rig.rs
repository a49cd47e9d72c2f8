//! A cluster of three primaries with one Heatsink before it.
//!
//! Called by: every part of `split`, `rates` and `failover`.
//! Bound: `PATIENCE` until a value has been moved.
//! Invariant: only what is promoted here is hot; the process ends before the cluster.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use heatsink_control::entry::Mitigation;
use heatsink_testkit::{ProcStats, RawClient, RedisCluster, poll_until};
use rustix::process::{Pid, Signal, kill_process};

use super::FACTOR;
use crate::admin;
use crate::benchmark::Target;
use crate::peer::{Backend, HeatsinkChoice, Peer};

const PATIENCE: Duration = Duration::from_secs(20);
/// No key becomes hot by itself.
const NEVER: [&str; 6] = [
    "--detect-hot-threshold",
    "1000000000",
    "--detect-miss-storm-threshold",
    "1000000000",
    "--detect-write-contention-threshold",
    "1000000",
];

/// Processes that do nothing until this is dropped.
pub(crate) struct Stopped(Vec<Pid>);

impl Stopped {
    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        self.0.iter().try_for_each(|pid| kill_process(*pid, signal))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.signal(Signal::CONT);
    }
}

/// What is measured.
pub(crate) struct Rig {
    peer: Peer,
    pub(crate) api: SocketAddr,
    cluster: Rc<RedisCluster>,
}

impl Rig {
    /// The process meets its fleet where it does by default: in the cluster itself.
    pub(crate) fn start(choice: &HeatsinkChoice) -> Result<Self, String> {
        Self::before(choice, Rc::new(RedisCluster::builder().replicas_per_primary(0).start()))
    }

    /// The same, before a cluster that is there.
    pub(crate) fn before(
        choice: &HeatsinkChoice,
        cluster: Rc<RedisCluster>,
    ) -> Result<Self, String> {
        let url = cluster.seed_url();
        let mut args = vec!["--coordination-url", &url];
        args.extend(NEVER);
        let backend = Backend::Cluster(Rc::clone(&cluster));
        let (peer, api) = choice.start_with_admin("heatsink", backend, &args)?;
        Ok(Self { peer, api, cluster })
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn target(&self) -> Target {
        self.peer.target
    }

    pub(crate) fn client(&self) -> Result<RawClient, String> {
        RawClient::try_connect(self.peer.target.addr).map_err(|error| format!("heatsink: {error}"))
    }

    /// CPU time of the proxy so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, String> {
        let of = |pid| ProcStats::of(pid).map(|stats| stats.cpu_seconds);
        let sum = self.peer.pids().into_iter().map(of).sum::<Result<f64, _>>();
        sum.map_err(|error| format!("heatsink: {error}"))
    }

    /// Calls so far at each primary, of the commands whose names are wanted.
    pub(crate) fn calls(&self, wants: impl Fn(&str) -> bool) -> Vec<u64> {
        let of_one = |server: &heatsink_testkit::RedisServer| {
            let commands = server.commandstats().into_iter().filter(|(name, _)| wants(name));
            commands.map(|(_, stats)| stats.calls).sum()
        };
        self.cluster.nodes().map(of_one).collect()
    }

    /// Calls of a command so far at one primary.
    pub(crate) fn calls_at(&self, node: usize, command: &str) -> u64 {
        self.cluster.calls(node, command)
    }

    /// Stops the other primaries until what is returned is dropped.
    pub(crate) fn stop_all_but(&self, node: usize) -> Result<Stopped, String> {
        let others = self.cluster.nodes().enumerate().filter(|(index, _)| *index != node);
        let pids = others.filter_map(|(_, server)| Pid::from_raw(server.pid().cast_signed()));
        let stopped = Stopped(pids.collect());
        stopped.signal(Signal::STOP).map_err(|error| format!("a primary: {error}"))?;
        Ok(stopped)
    }

    /// Splits a key that exists, and waits until it is.
    pub(crate) fn split(&self, key: &str) -> Result<(), String> {
        self.split_in(key, FACTOR)
    }

    /// The same, into so many.
    pub(crate) fn split_in(&self, key: &str, factor: u32) -> Result<(), String> {
        admin::promote_to_split(self.api, key, factor)?;
        self.wait_for(key, Some("split"))
    }

    /// Has copies made of a value, and waits until they are there.
    pub(crate) fn copy(&self, key: &str) -> Result<(), String> {
        admin::promote(self.api, key, Mitigation::Copies)?;
        self.wait_for(key, Some("split"))
    }

    /// Three sets of one member: one that is split, a hot one and one that nothing is done about.
    pub(crate) fn prepare_sets(&self, split: &str, hot: &str, cold: &str) -> Result<(), String> {
        let mut client = self.client()?;
        for key in [split, hot, cold] {
            client.try_command(&["SADD", key, "m"]).map_err(|error| format!("{key}: {error}"))?;
        }
        admin::promote(self.api, hot, Mitigation::Coalesce)?;
        self.split(split)
    }

    /// Makes it whole, and waits until it is.
    pub(crate) fn make_whole(&self, key: &str) -> Result<(), String> {
        admin::remove(self.api, key)?;
        self.wait_for(key, None)
    }

    fn wait_for(&self, key: &str, phase: Option<&str>) -> Result<(), String> {
        let mut seen = Ok(None);
        let is_there = || {
            seen = admin::split_phase(self.api, key);
            seen.as_ref().is_ok_and(|seen| seen.as_deref() == phase)
        };
        let come = poll_until(PATIENCE, is_there);
        come.ok_or_else(|| format!("{key} is {seen:?} and not {phase:?} after {PATIENCE:?}"))
    }
}
