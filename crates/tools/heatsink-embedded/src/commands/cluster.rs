//! `CLUSTER`: what a node tells of its cluster, in the form of Redis 7.
//!
//! Called by: `table`. A store that stands alone does not support any of it.

use std::fmt::Write as _;

use heatsink_cluster::slot::COUNT;

use crate::cluster::Membership;
use crate::failure::{Failure, Outcome};
use crate::table;
use crate::world::Call;

/// What a node adds to its port for the cluster's bus, which does not exist here.
const BUS_PORT_DISTANCE: u16 = 10_000;

fn membership(call: &Call<'_>) -> Result<Membership, Failure> {
    let alone = || table::unsupported(b"cluster").unwrap_or(Failure::SYNTAX);
    call.world.cluster.clone().ok_or_else(alone)
}

pub(crate) fn slots(call: &mut Call<'_>) -> Outcome {
    let cluster = membership(call)?;
    let reply = &mut call.client.reply;
    reply.array(cluster.nodes().len());
    for (node, address) in cluster.nodes().iter().enumerate() {
        let slots = cluster.slots(node);
        reply.array(3);
        reply.int(i64::from(*slots.start()));
        reply.int(i64::from(*slots.end()));
        reply.array(4);
        reply.bulk(address.ip().to_string().as_bytes());
        reply.int(i64::from(address.port()));
        reply.bulk(cluster.id(node).as_bytes());
        reply.map(0);
    }
    Ok(())
}

pub(crate) fn nodes(call: &mut Call<'_>) -> Outcome {
    let cluster = membership(call)?;
    let mut text = String::new();
    for (node, address) in cluster.nodes().iter().enumerate() {
        let (id, slots) = (cluster.id(node), cluster.slots(node));
        let own = if node == cluster.own() { "myself," } else { "" };
        let bus = address.port().saturating_add(BUS_PORT_DISTANCE);
        let epoch = node + 1;
        let _ = writeln!(
            text,
            "{id} {address}@{bus} {own}master - 0 0 {epoch} connected {}-{}",
            slots.start(),
            slots.end()
        );
    }
    call.client.reply.verbatim(&text);
    Ok(())
}

pub(crate) fn info(call: &mut Call<'_>) -> Outcome {
    let cluster = membership(call)?;
    let (count, own_epoch) = (cluster.nodes().len(), cluster.own() + 1);
    let fields = [
        ("cluster_slots_assigned", COUNT),
        ("cluster_slots_ok", COUNT),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", count),
        ("cluster_size", count),
        ("cluster_current_epoch", count),
        ("cluster_my_epoch", own_epoch),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ];
    let mut text = "cluster_state:ok\r\n".to_owned();
    for (name, value) in fields {
        let _ = write!(text, "{name}:{value}\r\n");
    }
    call.client.reply.verbatim(&text);
    Ok(())
}
