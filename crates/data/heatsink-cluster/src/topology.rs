//! Which node has which slots.
//!
//! Called by: whoever refreshes the map, with a `CLUSTER SLOTS` reply; routing, for the owner
//! of a slot.
//! Bound: 16384 slots, hence at most as many shards.
//! Invariant: shards stand in the order of their lowest slot, so two replies that say the
//! same give the same order: `SCAN` cursors name shards by their index.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::FixedState;
use heatsink_resp::value::Value;

use crate::slot;

/// In [`Topology::slots`]: nobody has the slot.
pub const NOBODY: u16 = u16::MAX;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// Its port for clients.
    pub port: u16,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A primary and those that copy it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The node that takes writes.
    pub primary: NodeAddress,
    /// In the order the server named them, each once.
    pub replicas: Vec<NodeAddress>,
}

/// Which shard has which slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In the order of their lowest slot.
    pub shards: Vec<Shard>,
    /// Per slot an index into `shards`, or [`NOBODY`].
    pub slots: Box<[u16; slot::COUNT]>,
}

/// Why a reply is no topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// The server said no, in these words.
    Refused(String),
    /// The reply is no `CLUSTER SLOTS` reply.
    Malformed,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "the server does not tell its slots: {reason}"),
            Self::Malformed => f.write_str("the server's slots cannot be understood"),
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// Reads a `CLUSTER SLOTS` reply of any server since Redis 3. `asked_host` is where the
    /// question went: a node whose host is not told is there too, at its own port.
    pub fn parse(reply: &Value, asked_host: &str) -> Result<Self, TopologyError> {
        match reply {
            Value::Array(ranges) => from_ranges(ranges, asked_host).ok_or(TopologyError::Malformed),
            Value::Error(text) => {
                Err(TopologyError::Refused(String::from_utf8_lossy(text).into_owned()))
            }
            _ => Err(TopologyError::Malformed),
        }
    }

    /// The shard that has a slot.
    #[inline]
    pub fn owner(&self, slot: u16) -> Option<&Shard> {
        self.shards.get(self.owner_index(slot)?)
    }

    /// Index of the shard that has a slot.
    #[inline]
    pub fn owner_index(&self, slot: u16) -> Option<usize> {
        let index = *self.slots.get(usize::from(slot))?;
        (index != NOBODY).then_some(usize::from(index))
    }

    /// Number of slots that somebody has.
    pub fn covered(&self) -> usize {
        self.slots.iter().filter(|shard| **shard != NOBODY).count()
    }

    /// Takes over what a `MOVED` says, until the next whole reply. A node that was not known
    /// as a primary becomes the last shard, so the indexes of the others stay.
    pub fn moved(&mut self, slot: u16, to: &NodeAddress) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        let known = self.shards.iter().position(|shard| shard.primary == *to);
        let index = known.unwrap_or(self.shards.len());
        if index >= usize::from(NOBODY) {
            return;
        }
        *place = index as u16;
        if known.is_none() {
            self.shards.push(Shard { primary: to.clone(), replicas: Vec::new() });
        }
    }
}

fn from_ranges(ranges: &[Value], asked_host: &str) -> Option<Topology> {
    // More ranges than slots overlap; and up to here an index fits.
    if ranges.len() > slot::COUNT {
        return None;
    }
    let mut slots: Box<[u16; slot::COUNT]> = vec![NOBODY; slot::COUNT].try_into().ok()?;
    let mut shards: Vec<Shard> = Vec::new();
    let mut known = HashMap::<NodeAddress, u16, FixedState>::default();
    for range in ranges {
        let [first, last, primary, replicas @ ..] = range.array() else { return None };
        let first = usize::try_from(first.integer()?).ok()?;
        let last = usize::try_from(last.integer()?).ok()?;
        let primary = address(primary, asked_host)?;
        let index = *known.entry(primary).or_insert_with_key(|primary| {
            shards.push(Shard { primary: primary.clone(), replicas: Vec::new() });
            (shards.len() - 1) as u16
        });
        slots.get_mut(first..=last)?.fill(index);
        let shard = shards.get_mut(usize::from(index))?;
        for replica in replicas {
            let replica = address(replica, asked_host)?;
            if !shard.replicas.contains(&replica) {
                shard.replicas.push(replica);
            }
        }
    }
    Some(Topology { shards, slots }.sorted())
}

impl Topology {
    /// Orders the shards by their lowest slot and drops those that have none.
    fn sorted(mut self) -> Self {
        let mut new_index = vec![NOBODY; self.shards.len()];
        let mut order = Vec::with_capacity(self.shards.len());
        for old in self.slots.iter().filter(|old| **old != NOBODY) {
            let new = &mut new_index[usize::from(*old)];
            if *new == NOBODY {
                *new = order.len() as u16;
                order.push(usize::from(*old));
            }
        }
        for place in self.slots.iter_mut().filter(|place| **place != NOBODY) {
            *place = new_index[usize::from(*place)];
        }
        self.shards = order.into_iter().map(|old| self.shards[old].clone()).collect();
        self
    }
}

/// Reads `[host, port, id?, metadata?]`.
fn address(node: &Value, asked_host: &str) -> Option<NodeAddress> {
    let [host, port, rest @ ..] = node.array() else { return None };
    let told = match host {
        // "The same host as yours": the node at another port of a gateway, say.
        Value::Nil => None,
        _ => match host.text()? {
            b"" => None,
            // The node was to be told by its name but has none; its address may stand aside.
            b"?" => rest.get(1).and_then(|metadata| metadata.get(b"ip")?.text()),
            host => Some(host),
        },
    };
    let host = match told.filter(|host| !host.is_empty()) {
        Some(host) => std::str::from_utf8(host).ok()?,
        None => asked_host,
    };
    Some(NodeAddress { host: host.to_owned(), port: u16::try_from(port.integer()?).ok()? })
}

#[cfg(test)]
mod tests;
