//! Where the servers are at this moment.
//!
//! Called by: `link`, before each connection; `nodes`, for the map of a cluster.
//! Bound: each Sentinel or node is asked once, a second each.

use heatsink_upstream::address::Url;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::fmt;

use super::{Core, Down};

/// A host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

pub(super) enum Target {
    Server(Address),
    Cluster(Vec<Address>),
    Sentinel { sentinels: Vec<Address>, name: String },
}

impl Target {
    pub(super) fn new(url: &Url) -> Self {
        let address = |(host, port): &(String, u16)| Address { host: host.clone(), port: *port };
        match url {
            Url::Server(url) => Self::Server(Address { host: url.host.clone(), port: url.port }),
            Url::Cluster(url) => Self::Cluster(url.seeds.iter().map(address).collect()),
            Url::Sentinel(url) => Self::Sentinel {
                sentinels: url.sentinels.iter().map(address).collect(),
                name: url.name.clone(),
            },
            Url::Embedded => Self::Cluster(Vec::new()),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether Sentinels say which server is the primary.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self, Self::Sentinel { .. })
    }
}

/// Ranges of slots with the primary that has them.
pub(super) type Ranges = Vec<(u16, u16, Address)>;

impl Core {
    /// The one server of a target that is no cluster.
    pub(super) async fn locate(&self) -> Result<Address, Down> {
        match &self.target {
            Target::Server(address) => Ok(address.clone()),
            Target::Cluster(_) => Err(Down::new("a cluster is not one server")),
            Target::Sentinel { sentinels, name } => {
                let mut question = redis::cmd("SENTINEL");
                question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
                let mut last = Down::new("no Sentinel to ask");
                for sentinel in in_turn(sentinels) {
                    match self.ask_once(sentinel, &self.sentinel_login, &question).await {
                        Ok(answer) => match primary(&answer) {
                            Some(address) => return Ok(address),
                            None => {
                                last = Down::new(format_args!(
                                    "{sentinel} knows no primary called {name:?}"
                                ));
                            }
                        },
                        Err(down) => last = down,
                    }
                }
                Err(last)
            }
        }
    }

    /// Which primary has which slots, as the first node that answers knows them.
    pub(super) async fn ask_for_map(&self, known: &[Address]) -> Result<Ranges, Down> {
        let Target::Cluster(seeds) = &self.target else { return Ok(Vec::new()) };
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut last = Down::new("no node to ask");
        let seeds = seeds.iter().filter(|seed| !known.contains(seed));
        for node in in_turn(known).chain(seeds) {
            match self.ask_once(node, &self.login, &question).await {
                Ok(answer) => {
                    let ranges = ranges(&answer, node);
                    if !ranges.is_empty() {
                        return Ok(ranges);
                    }
                    last = Down::new(format_args!("{node} knows of no slots"));
                }
                Err(down) => last = down,
            }
        }
        Err(last)
    }
}

fn in_turn(addresses: &[Address]) -> impl Iterator<Item = &Address> {
    let start = if addresses.is_empty() { 0 } else { fastrand::usize(..addresses.len()) };
    addresses[start..].iter().chain(&addresses[..start])
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn primary(answer: &Value) -> Option<Address> {
    let Value::Array(items) = answer else { return None };
    let [host, port] = items.as_slice() else { return None };
    Some(Address { host: text(host)?.to_owned(), port: text(port)?.parse().ok()? })
}

fn ranges(answer: &Value, asked: &Address) -> Ranges {
    let Value::Array(items) = answer else { return Vec::new() };
    items.iter().filter_map(|item| range(item, asked)).collect()
}

/// `{first, last, {host, port, ..}, ..}`; a host that is missing is that of the node that was asked.
fn range(item: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let Value::Array(items) = item else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = items.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = text(host).filter(|host| !host.is_empty() && *host != "?").unwrap_or(&asked.host);
    let address = Address { host: host.to_owned(), port: u16::try_from(*port).ok()? };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, address))
}

/// Whether the key is at another node by now.
pub(super) fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_names_primaries_also_where_hosts_are_missing() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), bulk("id")]);
        let item = |from, to, one| Value::Array(vec![Value::Int(from), Value::Int(to), one]);
        let answer = Value::Array(vec![
            item(0, 99, node(bulk("10.0.0.1"), 7001)),
            item(100, 200, node(Value::Nil, 7002)),
            item(300, 99_999, node(bulk("x"), 1)),
            Value::Nil,
        ]);
        let asked = Address { host: "here".to_owned(), port: 7000 };
        let found: Vec<_> = ranges(&answer, &asked)
            .into_iter()
            .map(|(first, last, address)| (first, last, address.to_string()))
            .collect();
        assert_eq!(
            found,
            [(0, 99, "10.0.0.1:7001".to_owned()), (100, 200, "here:7002".to_owned())]
        );
    }
}
