//! Split keys and copies, with real processes before real servers: clients go on using the
//! original key, and nothing is lost whoever fails.

mod auto;
mod behind;
mod chaos;
mod conservation;
mod copies;
mod drains;
mod ends;
mod failover;
mod fields;
mod kills;
mod load;
mod marker;
mod memory;
mod promoted;
mod stats;
mod storeless;
mod unseen;
mod upstreams;
mod waits;

use std::collections::BTreeSet;

use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{RawClient, Reply};

use crate::node::Node;

/// What the tests promote to.
pub(crate) fn split(factor: u32) -> Promotion {
    Promotion { mitigation: Mitigation::Split, split_factor: Some(factor), ttl_seconds: None }
}

/// Whether the key is in shards, by what the upstream says.
pub(crate) fn is_split(direct: &mut RawClient, key: &str) -> bool {
    !manifests(direct).is_empty() && is_marker(direct, key)
}

pub(crate) fn is_marker(direct: &mut RawClient, key: &str) -> bool {
    match direct.command(&["TYPE", key]).text().as_str() {
        "string" => direct.command(&["GET", key]).text().starts_with("heatsink:split"),
        "list" => direct.command(&["LINDEX", key, "0"]).text() == "heatsink:split",
        _ => false,
    }
}

pub(crate) fn manifests(direct: &mut RawClient) -> BTreeSet<String> {
    let ids = direct.command(&["HKEYS", "heatsink:{default}:splits"]);
    ids.items().iter().map(Reply::text).collect()
}

/// The registry says that the key is split, and nobody moves it.
pub(crate) fn rests_split(node: &Node, key: &str, factor: u32) -> bool {
    node.entry(key).is_some_and(|entry| {
        entry.status == "active"
            && entry.split_factor == factor
            && entry.split_phase() == Some("split")
            && entry.split.is_some_and(|split| split.shards == factor)
    })
}
