//! The servers that are compared, each proxy with a `redis-server` of its own.
//!
//! Called by: `main`.
//! Bound: 10 s for each to become ready.
//! Invariant: plain Redis comes first and is always there; a peer that is not installed is
//! left out with a notice that says how to get it.

use std::env;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use heatsink_testkit::{Process, RawClient, RedisServer, Reply, free_port, poll_until};
use tempfile::TempDir;

const READY_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) const REDIS: &str = "redis";
pub(crate) const TWEMPROXY: &str = "twemproxy";
pub(crate) const HEATSINK: &str = "heatsink";

/// One server to measure.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    /// The process that clients talk to.
    pub(crate) pid: u32,
    /// The process behind it, when it is a proxy that was started here.
    pub(crate) redis_pid: Option<u32>,
    // Ends the processes; the proxy before its Redis.
    _process: Option<Process>,
    _redis: Option<RedisServer>,
    _directory: Option<TempDir>,
}

/// Which Heatsink to start.
pub(crate) struct HeatsinkChoice {
    pub(crate) program: Option<PathBuf>,
    pub(crate) args: Vec<String>,
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

/// Starts what is installed.
pub(crate) fn start_all(
    heatsink: &HeatsinkChoice,
    extra: Vec<ExtraPeer>,
) -> Result<Vec<Peer>, String> {
    let mut peers = vec![plain()];
    for started in [start_twemproxy(), start_heatsink(heatsink)] {
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
        let peer = Peer {
            name,
            addr,
            pid,
            redis_pid: None,
            _process: None,
            _redis: None,
            _directory: None,
        };
        peers.push(peer);
    }
    Ok(peers)
}

/// Plain Redis without a proxy.
pub(crate) fn plain() -> Peer {
    let redis = start_redis();
    Peer {
        name: REDIS.to_owned(),
        addr: redis.addr(),
        pid: redis.pid(),
        redis_pid: None,
        _process: None,
        _redis: Some(redis),
        _directory: None,
    }
}

fn start_redis() -> RedisServer {
    // Room for as many idle connections as the others hold.
    RedisServer::builder().arg("maxclients", "60000").start()
}

fn start_twemproxy() -> Result<Peer, String> {
    let redis = start_redis();
    let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "bench:\n  listen: {addr}\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  \
         auto_eject_hosts: false\n  servers:\n   - {}:1\n",
        redis.addr()
    );
    let failed = |error: std::io::Error| format!("twemproxy is left out: {error}");
    let directory = tempfile::tempdir().map_err(failed)?;
    let file = directory.path().join("nutcracker.yml");
    fs::write(&file, config).map_err(failed)?;
    let process = Process::builder("nutcracker")
        .arg("--conf-file")
        .arg(&file)
        .args(["--stats-addr", "127.0.0.1", "--stats-port", &free_port().to_string()])
        .try_spawn()
        .map_err(|_| "twemproxy is left out; install it with: apt-get install nutcracker")?;
    let directory = Some(directory);
    proxy(TWEMPROXY, addr, process, redis, directory)
}

fn start_heatsink(choice: &HeatsinkChoice) -> Result<Peer, String> {
    let program = match &choice.program {
        Some(program) => program.clone(),
        None => build_heatsink()?,
    };
    let redis = start_redis();
    let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let process = Process::builder(&program)
        .args(["serve", "--listen", &addr.to_string(), "--upstream", &redis.url()])
        .args(["--workers", "1"])
        .args(&choice.args)
        .try_spawn()
        .map_err(|error| format!("heatsink is left out: {}: {error}", program.display()))?;
    proxy(HEATSINK, addr, process, redis, None)
}

/// The release binary beside this one, built first so that it is never an old one.
fn build_heatsink() -> Result<PathBuf, String> {
    // Set by `cargo run`; a copied binary measures what lies beside it.
    if let (Some(cargo), Some(directory)) =
        (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR"))
    {
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--quiet", "--package", "heatsink-cli"]);
        if !build.current_dir(directory).status().is_ok_and(|status| status.success()) {
            return Err("heatsink is left out: it does not build".to_owned());
        }
    }
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let mut places = own.ancestors().skip(1).take(2);
    let (beside, above) = (places.next(), places.next());
    let candidates =
        [above.map(|dir| dir.join("release/heatsink")), beside.map(|dir| dir.join("heatsink"))];
    candidates.into_iter().flatten().find(|file| file.is_file()).ok_or_else(|| {
        "heatsink is left out: there is no release build; make one with: cargo build --release"
            .to_owned()
    })
}

fn proxy(
    name: &str,
    addr: SocketAddr,
    mut process: Process,
    redis: RedisServer,
    directory: Option<TempDir>,
) -> Result<Peer, String> {
    wait_until_ready(addr, Some(&mut process))
        .map_err(|error| format!("{name} is left out: {error}; it printed:\n{}", process.tail()))?;
    Ok(Peer {
        name: name.to_owned(),
        addr,
        pid: process.pid(),
        redis_pid: Some(redis.pid()),
        _process: Some(process),
        _redis: Some(redis),
        _directory: directory,
    })
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

    #[test]
    fn a_peer_that_is_missing_is_left_out_and_a_name_is_taken_once() {
        let missing = HeatsinkChoice { program: Some("./no/heatsink".into()), args: Vec::new() };
        let peers = start_all(&missing, Vec::new()).expect("the others");
        assert_eq!(peers[0].name, REDIS);
        assert!(peers.iter().all(|peer| peer.name != HEATSINK));
        let twice = ExtraPeer { name: REDIS.to_owned(), addr: peers[0].addr, pid: peers[0].pid };
        assert!(start_all(&missing, vec![twice]).is_err());
    }
}
