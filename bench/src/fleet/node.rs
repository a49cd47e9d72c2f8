//! The processes of a fleet, started and waited for until they know each other.
//!
//! Called by: `onset`, `sums` and `reports`.
//! Bound: `PATIENCE` until all are there.
//! Invariant: they end before the Redis that they meet in.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_testkit::{Process, RedisServer, poll_until};

use super::Effort;
use super::pace::Sender;
use crate::admin::{self, Events};
use crate::detect::stream::Zipf;
use crate::preload;

/// Proxies of a fleet.
pub(crate) const PROXIES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(20);
const BACKGROUND_KEYS: usize = 10_000;
const VALUE: &str = "value";

/// One process.
pub(crate) struct Node {
    process: Process,
    /// Where clients connect; an aggregator takes none.
    pub(crate) addr: Option<SocketAddr>,
    pub(crate) admin: SocketAddr,
}

impl Node {
    /// Starts one before and beside `redis` and waits until it is ready.
    pub(crate) fn start(
        effort: &Effort,
        redis: &RedisServer,
        role: &str,
        args: &[&str],
    ) -> Result<Self, String> {
        let url = redis.url();
        let mut process = Process::builder(&effort.program)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--workers", "1", "--role", role, "--upstream", &url])
            .args(args)
            .args(&effort.extra_args)
            .try_spawn()
            .map_err(|error| format!("{}: {error}", effort.program.display()))?;
        let line = poll_until(PATIENCE, || {
            let stdout = process.stdout();
            let line = stdout.lines().find(|line| line.contains(" ready: "));
            line.map(str::to_owned).or_else(|| (!process.is_running()).then(String::new))
        });
        let line = line.unwrap_or_default();
        let place = |before: &str| {
            let (_, rest) = line.split_once(before)?;
            rest.split([' ', ',', ')']).next()?.parse().ok()
        };
        let Some(admin) = place("admin http://") else {
            return Err(format!("heatsink did not become ready; it printed:\n{}", process.tail()));
        };
        Ok(Self { addr: place("connect to redis://"), admin, process })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// Three proxies that also aggregate, with traffic on many keys, none of them hot.
pub(crate) struct Fleet {
    // In the order in which they have to end.
    background: Vec<Sender>,
    nodes: Vec<Node>,
    pub(crate) events: Events,
    redis: RedisServer,
}

impl Fleet {
    pub(crate) fn start(effort: &Effort, hold_seconds: u64) -> Result<Self, String> {
        let redis = RedisServer::start();
        let hold = hold_seconds.to_string();
        let start = |_| Node::start(effort, &redis, "all", &["--detect-hold-seconds", &hold]);
        let nodes = (0..PROXIES).map(start).collect::<Result<Vec<_>, _>>()?;
        for node in &nodes {
            let sees_all = || {
                let metrics = admin::metrics(node.admin).unwrap_or_default();
                let members = admin::metric(&metrics, "heatsink_members{role=\"all\"}");
                members == Some(PROXIES as f64) && admin::is_well(node.admin)
            };
            if poll_until(PATIENCE, sees_all).is_none() {
                return Err(format!("the fleet did not assemble:\n{}", node.process.tail()));
            }
        }
        let events = Events::of(nodes.iter().map(|node| node.admin))?;
        let mut fleet = Self { background: Vec::new(), nodes, events, redis };
        fleet.start_background(effort.background_per_second)?;
        Ok(fleet)
    }

    fn start_background(&mut self, per_second: u32) -> Result<(), String> {
        let name = |rank: usize| format!("background:{rank:08}");
        let keys: Vec<String> = (0..BACKGROUND_KEYS).map(name).collect();
        preload::set_all(self.redis.addr(), &keys, VALUE).map_err(|error| error.to_string())?;
        for (index, addr) in self.proxies().into_iter().enumerate() {
            let zipf = Zipf::new(BACKGROUND_KEYS);
            let mut random = fastrand::Rng::with_seed(index as u64 + 1);
            let next = move || name(zipf.draw(&mut random));
            self.background.push(Sender::start(addr, per_second, 0.0, next)?);
        }
        Ok(())
    }

    /// Where clients connect.
    pub(crate) fn proxies(&self) -> Vec<SocketAddr> {
        self.nodes.iter().filter_map(|node| node.addr).collect()
    }

    /// Reads the key so many times a second on each proxy, from now on. It exists: a read that
    /// finds nothing is another kind of heat.
    pub(crate) fn read(&self, key: &str, per_second: u32) -> Result<Vec<Sender>, String> {
        let keys = [key.to_owned()];
        preload::set_all(self.redis.addr(), &keys, VALUE).map_err(|error| error.to_string())?;
        let sender = |(index, addr)| {
            let key = key.to_owned();
            let phase = index as f64 / PROXIES as f64;
            Sender::start(addr, per_second, phase, move || key.clone())
        };
        self.proxies().into_iter().enumerate().map(sender).collect()
    }

    /// Ends the background, which must have been answered all the time.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.background.drain(..).try_for_each(|sender| sender.stop().map(drop))
    }
}
