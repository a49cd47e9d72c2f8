//! Which server holds the store at this moment.
//!
//! Called by: `connect`, before each connection.
//! Bound: every node or Sentinel is asked once, [`STEP_TIMEOUT`] each and [`LOCATE_TIMEOUT`]
//! together; [`HEARD_OF_LIMIT`] nodes are remembered.
//!
//! [`STEP_TIMEOUT`]: super::connect::STEP_TIMEOUT

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use heatsink_upstream::address::Url;
use redis::Value;
use tokio::time::timeout;

use super::connect::{Address, Place, failure, within};
use super::wire;
use crate::error::StoreError;

const LOCATE_TIMEOUT: Duration = Duration::from_secs(5);
const HEARD_OF_LIMIT: usize = 64;

/// What the user said of where the store is.
pub(super) enum Target {
    Server(Address),
    Cluster(Vec<Address>),
    Sentinel { sentinels: Vec<Address>, name: String },
}

impl Target {
    /// Of a URL that is not `embedded://`.
    pub(super) fn new(url: &Url) -> Self {
        let address = |(host, port): &(String, u16)| Address { host: host.clone(), port: *port };
        match url {
            Url::Embedded => Self::Cluster(Vec::new()),
            Url::Server(url) => Self::Server(Address { host: url.host.clone(), port: url.port }),
            Url::Cluster(url) => Self::Cluster(url.seeds.iter().map(address).collect()),
            Url::Sentinel(url) => Self::Sentinel {
                sentinels: url.sentinels.iter().map(address).collect(),
                name: url.name.clone(),
            },
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| {
            addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Server(address) => address.fmt(f),
            Self::Cluster(seeds) => write!(f, "cluster at {}", list(seeds)),
            Self::Sentinel { sentinels, name } => {
                write!(f, "{name:?} watched by {}", list(sentinels))
            }
        }
    }
}

impl Place {
    /// The server to connect to; it may turn out to be the wrong one by then.
    pub(super) async fn locate(&self) -> Result<Address, StoreError> {
        let found = async {
            match &self.target {
                Target::Server(address) => Ok(address.clone()),
                Target::Cluster(seeds) => self.locate_in_cluster(seeds).await,
                Target::Sentinel { sentinels, name } => self.ask_sentinels(sentinels, name).await,
            }
        };
        let too_long = |_| {
            StoreError::unreachable(format!("{self}: no node or Sentinel said in time where it is"))
        };
        timeout(LOCATE_TIMEOUT, found).await.map_err(too_long)?
    }

    /// Asks seeds and nodes heard of, from a random one on: those that fail should not fail
    /// every attempt first.
    async fn locate_in_cluster(&self, seeds: &[Address]) -> Result<Address, StoreError> {
        let mut nodes = self.heard_of.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for seed in seeds {
            if !nodes.contains(seed) {
                nodes.push(seed.clone());
            }
        }
        let mut last = StoreError::unreachable(format!("{self}: no node to ask"));
        for node in in_turn(&nodes) {
            match self.ask_node(node).await {
                Ok((owner, all)) => {
                    *self.heard_of.lock().unwrap_or_else(PoisonError::into_inner) = all;
                    return Ok(owner);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The primary of our slot and all nodes, as one of them knows them.
    async fn ask_node(&self, node: &Address) -> Result<(Address, Vec<Address>), StoreError> {
        let line = self.dial(node, self.login(), None).await?;
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let reply = within(node, line.send(&question)).await?;
        let reply = reply.map_err(|error| failure(node, &error))?;
        let mut owner = None;
        let mut all = Vec::new();
        for range in wire::items(&reply)? {
            let [first, last, nodes @ ..] = wire::items(range)? else { continue };
            let slots = wire::number(first)?..=wire::number(last)?;
            let mut addresses = nodes.iter().filter_map(|one| node_address(one, node));
            let primary = addresses.next();
            if slots.contains(&u64::from(self.names.slot())) {
                owner.clone_from(&primary);
            }
            for address in primary.into_iter().chain(addresses) {
                if all.len() < HEARD_OF_LIMIT && !all.contains(&address) {
                    all.push(address);
                }
            }
        }
        let slot = self.names.slot();
        let nobody = || StoreError::unreachable(format!("{node}: nobody owns slot {slot}"));
        Ok((owner.ok_or_else(nobody)?, all))
    }

    async fn ask_sentinels(
        &self,
        sentinels: &[Address],
        name: &str,
    ) -> Result<Address, StoreError> {
        let mut last = StoreError::unreachable(format!("{self}: no Sentinel to ask"));
        for sentinel in in_turn(sentinels) {
            match self.ask_sentinel(sentinel, name).await {
                Ok(address) => return Ok(address),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask_sentinel(&self, sentinel: &Address, name: &str) -> Result<Address, StoreError> {
        let line = self.dial(sentinel, &self.sentinel_login, None).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let reply = within(sentinel, line.send(&question)).await?;
        match reply.map_err(|error| failure(sentinel, &error))? {
            Value::Nil => Err(StoreError::unreachable(format!(
                "Sentinel {sentinel} knows no primary called {name:?}"
            ))),
            reply => match wire::items(&reply)? {
                [host, port] => {
                    let port = wire::number(port)?.try_into();
                    let port = port.map_err(|_| StoreError::garbled(format!("{reply:?}")))?;
                    Ok(Address { host: wire::text(host)?, port })
                }
                _ => Err(StoreError::garbled(format!("{reply:?}"))),
            },
        }
    }
}

fn in_turn(addresses: &[Address]) -> impl Iterator<Item = &Address> {
    let start = if addresses.is_empty() { 0 } else { fastrand::usize(..addresses.len()) };
    addresses[start..].iter().chain(&addresses[..start])
}

/// `{host, port, id, ...}`; a host that is missing is that of the node that was asked.
fn node_address(node: &Value, asked: &Address) -> Option<Address> {
    let [host, port, ..] = wire::items(node).ok()? else { return None };
    let host = match host {
        Value::Nil => String::new(),
        other => wire::text(other).ok()?,
    };
    let host = if host.is_empty() || host == "?" { asked.host.clone() } else { host };
    Some(Address { host, port: u16::try_from(wire::number(port).ok()?).ok()? })
}
