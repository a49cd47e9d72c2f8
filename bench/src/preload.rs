//! Keys that exist before they are read.
//!
//! Called by: `rounds`, once per peer; `fleet`, for its background.
//! Bound: `KEYS` keys for each size of values.
//! Invariant: they are written through the peer itself, except on a cluster without a proxy:
//! there to the nodes, with the tags that `redis-benchmark` was seen to use.

use std::io;
use std::net::SocketAddr;

use heatsink_testkit::{RawClient, Reply, encode};

use crate::benchmark::{self, Access};
use crate::case::{Family, ONE_KEY};
use crate::peer::Peer;

const BATCH: usize = 1_000;
/// So many that each of its connections, which it spreads over the nodes, sends some.
const PROBE_REQUESTS: u64 = 3_000;
const PROBE_PREFIX: &str = "probe:{";

/// Writes every key that a case reads.
pub(crate) fn write(peer: &Peer, families: &[Family]) -> Result<(), String> {
    let numbers = peer.target.access.numbers();
    if peer.target.access != Access::Cluster {
        for family in families {
            let keys = (0..numbers).map(|number| family.key(number));
            let keys: Vec<String> = keys.chain([ONE_KEY.to_owned()]).collect();
            set_all(peer.target.addr, &keys, &family.value()).map_err(|error| error.to_string())?;
        }
        return Ok(());
    }
    for (addr, tag) in tags(peer)? {
        for family in families {
            let keys: Vec<String> =
                (0..numbers).map(|number| family.tagged_key(&tag, number)).collect();
            set_all(addr, &keys, &family.value()).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// What `redis-benchmark` puts in for `{tag}`, and the node where such keys live.
fn tags(peer: &Peer) -> Result<Vec<(SocketAddr, String)>, String> {
    let command = ["SET", "probe:{tag}", "1"].map(str::to_owned).to_vec();
    benchmark::send(peer.target, PROBE_REQUESTS, command)?;
    let mut tags = Vec::new();
    for node in peer.servers() {
        let addr = node.addr();
        let found = take_probes(addr).map_err(|error| error.to_string())?;
        if found.is_empty() {
            return Err(format!("redis-benchmark sent nothing to {addr}"));
        }
        tags.extend(found.into_iter().map(|tag| (addr, tag)));
    }
    Ok(tags)
}

/// The tags of the keys of the probe at one node, and removes these.
fn take_probes(addr: SocketAddr) -> io::Result<Vec<String>> {
    let mut client = RawClient::try_connect(addr)?;
    let keys = match client.try_command(&["KEYS", "probe:*"])? {
        Reply::Array(keys) => keys,
        other => return Err(io::Error::other(format!("KEYS answered {other}"))),
    };
    let mut tags = Vec::new();
    for key in keys.iter().map(Reply::text) {
        client.try_command(&["DEL", &key])?;
        // A short tag is filled up with further braces; the first one ends it.
        let tag = key.strip_prefix(PROBE_PREFIX).and_then(|rest| rest.strip_suffix('}'));
        let tag = tag.ok_or_else(|| io::Error::other(format!("{key} has no tag")))?;
        tags.push(tag.to_owned());
    }
    Ok(tags)
}

/// Gives each of the keys the value.
pub(crate) fn set_all(addr: SocketAddr, keys: &[String], value: &str) -> io::Result<()> {
    let mut client = RawClient::try_connect(addr)?;
    for batch in keys.chunks(BATCH) {
        let bytes: Vec<u8> = batch.iter().flat_map(|key| encode(&["SET", key, value])).collect();
        client.try_send_raw(&bytes)?;
        for _ in batch {
            match client.try_read_reply()? {
                reply if reply == Reply::ok() => {}
                other => return Err(io::Error::other(format!("SET answered {other}"))),
            }
        }
    }
    Ok(())
}
