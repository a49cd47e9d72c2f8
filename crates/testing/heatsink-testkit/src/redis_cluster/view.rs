//! What one node believes about the cluster.
//!
//! Called by: `redis_cluster`, to find owners and to see whether all agree.
//! Bound: a range of slots per entry of `CLUSTER SLOTS`, a line of `CLUSTER NODES` per node.
//! Invariant: two views are equal exactly when they name the same owner for every slot.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::client::RawClient;
use crate::reply::Reply;

/// The owner of each range of slots, by node id, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    ranges: Vec<(u16, u16, String)>,
}

impl View {
    pub(super) fn of(client: &mut RawClient) -> io::Result<Self> {
        let reply = client.try_command(&["CLUSTER", "SLOTS"])?;
        parse(&reply).ok_or_else(|| io::Error::other(format!("CLUSTER SLOTS: {reply}")))
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<&str> {
        let range = self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        range.map(|(_, _, id)| &**id)
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = &str> {
        self.ranges.iter().map(|(_, _, id)| &**id)
    }

    pub(super) fn slots_of(&self, id: &str) -> Vec<u16> {
        let own = self.ranges.iter().filter(|(_, _, owner)| owner == id);
        own.flat_map(|(first, last, _)| *first..=*last).collect()
    }

    pub(super) fn covered(&self) -> usize {
        self.ranges.iter().map(|(first, last, _)| usize::from(last - first) + 1).sum()
    }
}

/// What a node knows of each node, itself among them, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Links(BTreeMap<String, Link>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    /// Whom it follows; `-` for a primary.
    primary: String,
    /// The epoch of its claim to its slots.
    epoch: String,
    /// Connected, and not thought to have failed.
    is_well: bool,
}

impl Links {
    pub(super) fn of(client: &mut RawClient) -> io::Result<Self> {
        let text = client.try_command(&["CLUSTER", "NODES"])?.text();
        let nodes = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, _, flags, primary, _, _, epoch, state, ..] = *words else { return None };
            let is_well =
                state == "connected" && !flags.contains("fail") && !flags.contains("handshake");
            let link = Link { primary: primary.to_owned(), epoch: epoch.to_owned(), is_well };
            Some((id.to_owned(), link))
        });
        Ok(Self(nodes.collect()))
    }

    /// Whether the node is in touch with each of `ids`.
    pub(super) fn reach(&self, ids: &BTreeSet<&str>) -> bool {
        ids.iter().all(|id| self.0.get(*id).is_some_and(|link| link.is_well))
    }

    /// Whom each of `ids` follows.
    pub(super) fn primaries_of(&self, ids: &BTreeSet<&str>) -> BTreeMap<String, String> {
        let known = self.0.iter().filter(|(id, _)| ids.contains(&***id));
        known.map(|(id, link)| (id.clone(), link.primary.clone())).collect()
    }

    /// The epoch of the claim that `id` has to its slots.
    pub(super) fn epoch_of(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|link| &*link.epoch)
    }
}

fn parse(reply: &Reply) -> Option<View> {
    let Reply::Array(entries) = reply else { return None };
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] =
            entry.items()
        else {
            return None;
        };
        ranges.push((*first as u16, *last as u16, primary.get(2)?.text()));
    }
    ranges.sort();
    // A replica that is listed differently can cut a range in two.
    ranges.dedup_by(|next, range| {
        let continues = range.1 + 1 == next.0 && range.2 == next.2;
        if continues {
            range.1 = next.1;
        }
        continues
    });
    Some(View { ranges })
}
