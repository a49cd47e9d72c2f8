//! A primary with replicas and the Sentinels that watch over them.
//!
//! Called by: integration tests of the Sentinel upstream.
//! Bound: 90 s for every wait.
//! Invariant: a server keeps its index and address for life; who is the primary is asked of the
//! Sentinels each time, never remembered.
//!
//! The Sentinels look and speak more often than usual and take a primary for dead after 500 ms:
//! a failover takes about two seconds.

mod settings;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::redis_server::RedisServer;
use crate::reply::Reply;
use crate::wait::eventually_ok;

pub use settings::SentinelRigBuilder;

const SETTLE_TIMEOUT: Duration = Duration::from_secs(90);
/// A failover that takes longer has been given up.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Periods of a Sentinel, in milliseconds.
///
/// Ping: below the time after which a primary counts as dead, because after a switch the first
/// ping goes out only when a period has passed, and a Sentinel with the usual one takes that
/// silence for death and replaces the new primary, too. Not shorter either: a replica heard of
/// longer ago than five of these is not promoted, and while the primary is dead replicas are
/// looked at once a second.
///
/// Info: a replica looked at longer ago than three of these is not promoted by hand.
const PERIODS: [&str; 6] = ["ping-period", "300", "info-period", "500", "publish-period", "200"];

/// A running primary, its replicas and Sentinels, ended on drop.
pub struct SentinelRig {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    /// Indexes of servers that stand still.
    paused: BTreeSet<usize>,
    /// The primary that was last killed, paused or replaced.
    left: Option<usize>,
    name: String,
    is_tls: bool,
}

impl SentinelRig {
    /// Starts a primary, a replica and three Sentinels.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Settings for a rig that differs from the default.
    pub fn builder() -> SentinelRigBuilder {
        SentinelRigBuilder::new()
    }

    /// The servers, in the order of their indexes; the first was the primary at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The name under which the Sentinels know the primary.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Sentinels' addresses as one URL, without credentials:
    /// `redis+sentinel://127.0.0.1:p1,127.0.0.1:p2/name`, with `rediss` when it speaks TLS.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "rediss+sentinel" } else { "redis+sentinel" };
        let addrs: Vec<String> = self.sentinels.iter().map(|one| one.addr().to_string()).collect();
        format!("{scheme}://{}/{}", addrs.join(","), self.name)
    }

    /// The primary, as the first Sentinel that answers sees it.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        &self.servers[self.primary_index()]
    }

    /// The index of [`primary`](Self::primary).
    #[track_caller]
    pub fn primary_index(&self) -> usize {
        let mut answers = self.live_sentinels().filter_map(|sentinel| self.named_by(sentinel));
        answers.next().expect("no Sentinel names one of our servers")
    }

    /// Kills the primary (SIGKILL) and returns its index; see
    /// [`wait_for_new_primary`](Self::wait_for_new_primary).
    #[track_caller]
    pub fn kill_primary(&mut self) -> usize {
        let index = self.primary_index();
        self.left = Some(index);
        self.servers[index].kill();
        index
    }

    /// Freezes the primary and returns its index; see [`resume`](Self::resume).
    #[track_caller]
    pub fn pause_primary(&mut self) -> usize {
        let index = self.primary_index();
        self.left = Some(index);
        self.servers[index].pause();
        self.paused.insert(index);
        index
    }

    /// Lets server `index` go on.
    #[track_caller]
    pub fn resume(&mut self, index: usize) {
        self.servers[index].resume();
        self.paused.remove(&index);
    }

    /// Kills server `index` if it runs and starts it again, without its keys, as what it was
    /// last told to be; the Sentinels may tell it otherwise.
    #[track_caller]
    pub fn restart(&mut self, index: usize) {
        self.paused.remove(&index);
        self.servers[index].restart();
    }

    /// Kills Sentinel `index`.
    #[track_caller]
    pub fn kill_sentinel(&mut self, index: usize) {
        self.sentinels[index].kill();
    }

    /// Kills Sentinel `index` if it runs and starts it again with what it knew.
    #[track_caller]
    pub fn restart_sentinel(&mut self, index: usize) {
        self.sentinels[index].restart();
        self.hurry(index);
    }

    /// Has another server made the primary (`SENTINEL FAILOVER`) and waits until all agree; returns
    /// its index.
    ///
    /// A Sentinel may give up a failover that it was told to carry out, for example because the
    /// replica lags too far behind at the moment: then it is told again. If it had not given up,
    /// that may bring the old one back, and it is told once more.
    #[track_caller]
    pub fn hand_over(&mut self) -> usize {
        let left = self.primary_index();
        self.left = Some(left);
        let mut asked_at = None;
        eventually_ok(SETTLE_TIMEOUT, || {
            let index = self.named_by_all()?;
            if index != left {
                let info = self.replication(index)?;
                return if info.contains("role:master") { Ok(index) } else { Err(info) };
            }
            if asked_at.is_none_or(|at: Instant| at.elapsed() > HAND_OVER_TIMEOUT) {
                asked_at = Some(Instant::now());
                let sentinel = self.live_sentinels().next().expect("a Sentinel");
                // Refused if one is under way.
                sentinel.admin_client().command(&["SENTINEL", "FAILOVER", &self.name]);
            }
            Err(format!("server {index} is still named"))
        })
    }

    /// Waits until every Sentinel that runs names the same primary, another one than was last
    /// killed, paused or replaced, and that server takes itself for the primary; returns its index.
    #[track_caller]
    pub fn wait_for_new_primary(&self) -> usize {
        eventually_ok(SETTLE_TIMEOUT, || {
            let index = self.named_by_all()?;
            if Some(index) == self.left {
                return Err(format!("server {index} is still named"));
            }
            let info = self.replication(index)?;
            if info.contains("role:master") { Ok(index) } else { Err(info) }
        })
    }

    /// Waits until every Sentinel that runs is content: it is in touch with the primary, with
    /// every server that runs and with every other Sentinel that runs, and each replica is
    /// linked to the primary.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        eventually_ok(SETTLE_TIMEOUT, || {
            let primary = self.named_by_all()?;
            self.check_replicas(primary)?;
            for sentinel in self.live_sentinels() {
                self.check_sentinel(sentinel, primary)?;
            }
            Ok(())
        });
    }

    #[track_caller]
    fn wait_for_replicas(&self) {
        eventually_ok(SETTLE_TIMEOUT, || self.check_replicas(0));
    }

    /// Shortens the periods at which a Sentinel looks (`INFO`), speaks (hello messages) and
    /// pings.
    #[track_caller]
    fn hurry(&self, index: usize) {
        let command = [&["SENTINEL", "DEBUG"], &PERIODS[..]].concat();
        let reply = self.sentinels[index].admin_client().command(&command);
        assert_eq!(reply, Reply::ok(), "SENTINEL DEBUG");
    }

    fn check_replicas(&self, primary: usize) -> Result<(), String> {
        let port = self.servers[primary].port().to_string();
        for index in self.live_servers().filter(|index| *index != primary) {
            let info = self.replication(index)?;
            let linked = info.contains("master_link_status:up")
                && info.lines().any(|line| line.strip_prefix("master_port:") == Some(&*port));
            if !linked {
                return Err(format!("server {index}: {info}"));
            }
        }
        Ok(())
    }

    fn replication(&self, index: usize) -> Result<String, String> {
        ask(&self.servers[index], &["INFO", "replication"]).map(|reply| reply.text())
    }

    fn check_sentinel(&self, sentinel: &RedisServer, primary: usize) -> Result<(), String> {
        let ask = |what: &str| ask(sentinel, &["SENTINEL", what, &self.name]);
        let own = ask("MASTER")?;
        if is_well(&own, "master").is_none() {
            return Err(format!("{}: primary: {own}", sentinel.addr()));
        }
        let ports_well = |list: &Reply, kind| -> BTreeSet<String> {
            list.items().iter().filter_map(|one| is_well(one, kind)).collect()
        };
        let servers = self.live_servers().filter(|index| *index != primary);
        let replicas: BTreeSet<String> =
            servers.map(|index| self.servers[index].port().to_string()).collect();
        let seen = ask("REPLICAS")?;
        if !replicas.is_subset(&ports_well(&seen, "slave")) {
            return Err(format!("{}: replicas: {seen}", sentinel.addr()));
        }
        let others = self.live_sentinels().filter(|one| one.port() != sentinel.port());
        let others: BTreeSet<String> = others.map(|one| one.port().to_string()).collect();
        let seen = ask("SENTINELS")?;
        if !others.is_subset(&ports_well(&seen, "sentinel")) {
            return Err(format!("{}: Sentinels: {seen}", sentinel.addr()));
        }
        Ok(())
    }

    fn named_by_all(&self) -> Result<usize, String> {
        let named: BTreeSet<Option<usize>> =
            self.live_sentinels().map(|sentinel| self.named_by(sentinel)).collect();
        match named.first() {
            Some(Some(index)) if named.len() == 1 => Ok(*index),
            _ => Err(format!("the Sentinels name {named:?}")),
        }
    }

    /// The server that `sentinel` names as the primary.
    fn named_by(&self, sentinel: &RedisServer) -> Option<usize> {
        match ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name]).ok()? {
            Reply::Array(addr) => {
                let port = addr.get(1)?.text();
                self.servers.iter().position(|server| server.port().to_string() == port)
            }
            _ => None,
        }
    }

    fn live_servers(&self) -> impl Iterator<Item = usize> {
        let all = 0..self.servers.len();
        all.filter(|index| self.servers[*index].is_running() && !self.paused.contains(index))
    }

    fn live_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running())
    }
}

/// The reply of a server that may be gone: a Sentinel that changes a server's role cuts its
/// connections.
fn ask(server: &RedisServer, command: &[&str]) -> Result<Reply, String> {
    let reply = server.try_admin_client().and_then(|mut client| client.try_command(command));
    reply.map_err(|error| format!("{}: {error}", server.addr()))
}

/// The port in a Sentinel's description of an instance, if it has no other flag than `kind`:
/// none such as `s_down`, `disconnected` or `failover_in_progress`.
fn is_well(description: &Reply, kind: &str) -> Option<String> {
    let flags = description.get("flags")?.text();
    if flags == kind { Some(description.get("port")?.text()) } else { None }
}
