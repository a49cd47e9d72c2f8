//! The servers that are compared.
//!
//! Called by: `proxy` and `cluster`, which say who takes part.
//! Bound: 10 s for each to become ready.
//! Invariant: clients reach every peer at one address; a proxy ends before the Redis behind it.

mod heatsink;

use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use heatsink_testkit::{Process, RawClient, RedisCluster, RedisServer, Reply, poll_until};
use tempfile::TempDir;

use crate::benchmark::{Access, Target};

pub(crate) use heatsink::HeatsinkChoice;

const READY_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// One server to measure.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) target: Target,
    /// The process that clients talk to; none when that is Redis itself.
    proxy_pid: Option<u32>,
    // Ends the process, before its Redis.
    _process: Option<Process>,
    redis: Backend,
    _directory: Option<TempDir>,
}

impl Peer {
    /// Redis without a proxy.
    pub(crate) fn direct(name: &str, target: Target, redis: Backend) -> Self {
        let name = name.to_owned();
        Self { name, target, proxy_pid: None, _process: None, redis, _directory: None }
    }

    /// A proxy that was just started, once it serves.
    pub(crate) fn proxy(
        name: &str,
        target: Target,
        mut process: Process,
        redis: Backend,
        directory: Option<TempDir>,
    ) -> Result<Self, String> {
        wait_until_ready(target.addr, Some(&mut process)).map_err(|error| {
            format!("{name} is left out: {error}; it printed:\n{}", process.tail())
        })?;
        Ok(Self {
            name: name.to_owned(),
            target,
            proxy_pid: Some(process.pid()),
            _process: Some(process),
            redis,
            _directory: directory,
        })
    }

    /// The processes that clients talk to.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.proxy_pid.map_or_else(|| self.redis.pids(), |pid| vec![pid])
    }

    /// The processes behind them, when it is a proxy that was started here.
    pub(crate) fn redis_pids(&self) -> Vec<u32> {
        if self.proxy_pid.is_some() { self.redis.pids() } else { Vec::new() }
    }

    /// The Redis servers that execute its commands, as far as they were started here.
    pub(crate) fn servers(&self) -> Vec<&RedisServer> {
        self.redis.servers()
    }
}

/// The Redis that a peer is or stands before.
pub(crate) enum Backend {
    Unknown,
    Server(Box<RedisServer>),
    /// One that several peers may use, because they are measured in turns.
    Cluster(Rc<RedisCluster>),
}

impl Backend {
    /// A server of its own.
    pub(crate) fn server() -> Self {
        // Room for as many idle connections as the others hold.
        Self::Server(Box::new(RedisServer::builder().arg("maxclients", "60000").start()))
    }

    /// An address at which clients may start.
    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        self.servers().first().map(|server| server.addr())
    }

    fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Server(server) => vec![server],
            Self::Cluster(cluster) => cluster.nodes().collect(),
        }
    }

    fn pids(&self) -> Vec<u32> {
        self.servers().iter().map(|server| server.pid()).collect()
    }
}

/// A server that runs already: `name=HOST:PORT:PID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtraPeer {
    name: String,
    addr: SocketAddr,
    pid: u32,
}

impl FromStr for ExtraPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected name=HOST:PORT:PID";
        let (name, place) = text.split_once('=').ok_or(form)?;
        let (addr, pid) = place.rsplit_once(':').ok_or(form)?;
        let addr = addr.to_socket_addrs().map_err(|error| format!("{addr}: {error}"))?.next();
        let pid = pid.parse().map_err(|_| format!("{pid:?} is no process id"))?;
        Ok(Self { name: name.to_owned(), addr: addr.ok_or(form)?, pid })
    }
}

/// Adds those that were started, with a notice about each that was not, and those that run
/// already.
pub(crate) fn gather(
    mut peers: Vec<Peer>,
    started: Vec<Result<Peer, String>>,
    extra: Vec<ExtraPeer>,
    access: Access,
) -> Result<Vec<Peer>, String> {
    for started in started {
        match started {
            Ok(peer) => peers.push(peer),
            Err(notice) => eprintln!("notice: {notice}"),
        }
    }
    for ExtraPeer { name, addr, pid } in extra {
        if peers.iter().any(|peer| peer.name == name) {
            return Err(format!("there are two peers named {name}"));
        }
        wait_until_ready(addr, None)?;
        peers.push(Peer {
            name,
            target: Target { addr, access },
            proxy_pid: Some(pid),
            _process: None,
            redis: Backend::Unknown,
            _directory: None,
        });
    }
    Ok(peers)
}

/// Waits until PING and a write are answered: the second shows that the Redis behind is reached.
fn wait_until_ready(addr: SocketAddr, mut process: Option<&mut Process>) -> Result<(), String> {
    let ready = poll_until(READY_TIMEOUT, || {
        if process.as_mut().is_some_and(|process| !process.is_running()) {
            return Some(Err("it ended by itself".to_owned()));
        }
        serves(addr).then_some(Ok(()))
    });
    ready.unwrap_or_else(|| Err(format!("{addr} did not answer within {READY_TIMEOUT:?}")))
}

fn serves(addr: SocketAddr) -> bool {
    let Ok(mut client) = RawClient::try_connect(addr) else { return false };
    client.set_timeout(PROBE_TIMEOUT);
    let pong = client.try_command(&["PING"]);
    pong.is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
        && client.try_command(&["SET", "ready", "1"]).is_ok_and(|reply| reply == Reply::ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_peer_has_name_address_and_pid() {
        let expected = ExtraPeer {
            name: "predixy".to_owned(),
            addr: SocketAddr::from(([127, 0, 0, 1], 7000)),
            pid: 42,
        };
        assert_eq!("predixy=127.0.0.1:7000:42".parse(), Ok(expected));
        for text in ["127.0.0.1:7000:42", "a=127.0.0.1:7000", "a=127.0.0.1:7000:x", "a=:1"] {
            assert!(text.parse::<ExtraPeer>().is_err(), "{text}");
        }
    }
}
