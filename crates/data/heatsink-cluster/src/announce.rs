//! What a cluster of one node answers to `CLUSTER`, for clients that speak to nothing else.
//!
//! Called by: the proxy, if it is told to look like a cluster at its own address.
//! Invariant: the answers agree with each other: one primary, all slots, one id.

use std::fmt::Write as _;

use heatsink_resp::encode;

use crate::slot;

/// The answer to a `CLUSTER` request (its name is `args[0]`), in the form of Redis 7, as the
/// node at `host:port`. `None` for what only the real cluster can answer, for what would
/// change it and for arguments that do not fit: the caller decides about those.
pub fn answer(args: &[&[u8]], host: &str, port: u16, resp3: bool) -> Option<Vec<u8>> {
    let [_, subcommand, rest @ ..] = args else { return None };
    let mut name = [0; 16];
    let name = name.get_mut(..subcommand.len())?;
    name.copy_from_slice(subcommand);
    name.make_ascii_lowercase();
    let mut reply = Reply { out: Vec::new(), resp3 };
    match (&*name, rest) {
        (b"slots", []) => slots(&mut reply, host, port),
        (b"shards", []) => shards(&mut reply, host, port),
        (b"nodes", []) => reply.verbatim(&node_line(host, port)),
        (b"info", []) => reply.verbatim(INFO),
        (b"myid", []) => reply.text(&node_id(host, port)),
        (b"myshardid", []) => reply.text(&hash_hex("shard", host, port)),
        (b"links", []) => reply.array(0),
        (b"keyslot", [key]) => reply.integer(i64::from(slot::of_key(key))),
        (b"replicas" | b"slaves", [id]) if *id == node_id(host, port).as_bytes() => reply.array(0),
        _ => return None,
    }
    Some(reply.out)
}

/// The id of the node at `host:port`: 40 hexadecimal digits that depend on nothing else, so
/// that it is the same after a restart and in every process behind the address.
pub fn node_id(host: &str, port: u16) -> String {
    hash_hex("node", host, port)
}

/// Same keys as a Redis 7.0, with nothing to tell of a bus that does not exist.
const INFO: &str = "\
    cluster_state:ok\r\n\
    cluster_slots_assigned:16384\r\n\
    cluster_slots_ok:16384\r\n\
    cluster_slots_pfail:0\r\n\
    cluster_slots_fail:0\r\n\
    cluster_known_nodes:1\r\n\
    cluster_size:1\r\n\
    cluster_current_epoch:1\r\n\
    cluster_my_epoch:1\r\n\
    cluster_stats_messages_sent:0\r\n\
    cluster_stats_messages_received:0\r\n\
    total_cluster_links_buffer_limit_exceeded:0\r\n";

/// What a node adds to its port for the cluster's bus.
const BUS_PORT_DISTANCE: u16 = 10000;

fn slots(reply: &mut Reply, host: &str, port: u16) {
    reply.array(1);
    reply.array(3);
    reply.integer(0);
    reply.integer(LAST_SLOT);
    reply.array(4);
    reply.text(host);
    reply.integer(i64::from(port));
    reply.text(&node_id(host, port));
    reply.map(0);
}

fn shards(reply: &mut Reply, host: &str, port: u16) {
    reply.array(1);
    reply.map(2);
    reply.text("slots");
    reply.array(2);
    reply.integer(0);
    reply.integer(LAST_SLOT);
    reply.text("nodes");
    reply.array(1);
    reply.map(7);
    reply.text("id");
    reply.text(&node_id(host, port));
    reply.text("port");
    reply.integer(i64::from(port));
    for text in ["ip", host, "endpoint", host, "role", "master", "replication-offset"] {
        reply.text(text);
    }
    reply.integer(0);
    reply.text("health");
    reply.text("online");
}

fn node_line(host: &str, port: u16) -> String {
    let (id, bus_port) = (node_id(host, port), port.saturating_add(BUS_PORT_DISTANCE));
    format!("{id} {host}:{port}@{bus_port} myself,master - 0 0 1 connected 0-{LAST_SLOT}\n")
}

const LAST_SLOT: i64 = slot::COUNT as i64 - 1;

/// 160 bits from FNV-1a with five seeds: nobody is to be kept from finding collisions, two
/// addresses are only to differ.
fn hash_hex(what: &str, host: &str, port: u16) -> String {
    let mut hex = String::with_capacity(40);
    for seed in 0u8..5 {
        let bytes = [what.as_bytes(), &[0, seed], host.as_bytes(), &port.to_be_bytes()].concat();
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let _ = write!(hex, "{:08x}", (hash ^ (hash >> 32)) as u32);
    }
    hex
}

/// A reply in the client's protocol.
struct Reply {
    out: Vec<u8>,
    resp3: bool,
}

impl Reply {
    fn array(&mut self, count: usize) {
        encode::header(&mut self.out, b'*', count);
    }

    fn map(&mut self, pairs: usize) {
        if self.resp3 {
            encode::header(&mut self.out, b'%', pairs);
        } else {
            encode::header(&mut self.out, b'*', pairs * 2);
        }
    }

    fn integer(&mut self, number: i64) {
        self.out.extend_from_slice(format!(":{number}\r\n").as_bytes());
    }

    fn text(&mut self, text: &str) {
        encode::bulk(&mut self.out, text.as_bytes());
    }

    fn verbatim(&mut self, text: &str) {
        if self.resp3 {
            encode::header(&mut self.out, b'=', text.len() + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.text(text);
        }
    }
}

#[cfg(test)]
mod tests;
