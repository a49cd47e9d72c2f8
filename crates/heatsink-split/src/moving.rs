//! What a mover sends, and what it makes of the replies. All replies are RESP2.

use crate::layout::{Kind, Layout, Names};

/// Why a value cannot be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

/// The request that reads all of a plain value.
pub fn read_whole(kind: Kind, key: &[u8]) -> Vec<u8> {
    let _ = (kind, key);
    Vec::new()
}

/// What a string is, by its value: a counter, a HyperLogLog, or neither.
pub fn kind_of_string(value: &[u8]) -> Option<Kind> {
    let _ = value;
    None
}

/// The requests that fill the shards from the reply to [`read_whole`], each of bounded size and
/// about one shard.
pub fn fill_shards(layout: &Layout, whole: &[u8], stamp: u64) -> Result<Vec<Vec<u8>>, Unfit> {
    let _ = (layout, whole, stamp);
    Ok(Vec::new())
}

/// A request for each shard that reads all of it.
pub fn read_shards(layout: &Layout, names: Names) -> Vec<Vec<u8>> {
    let _ = (layout, names);
    Vec::new()
}

/// The requests that build the plain value at `to` from the replies to [`read_shards`]; none if
/// nothing is left of it.
pub fn build_whole(layout: &Layout, replies: &[Vec<u8>], to: &[u8]) -> Result<Vec<Vec<u8>>, Unfit> {
    let _ = (layout, replies, to);
    Ok(Vec::new())
}

/// The request that writes a marker or a tombstone at `name`, which does not exist: a value that
/// commands of `kind` refuse.
pub fn write_fence(kind: Kind, name: &[u8], id: &str) -> Vec<u8> {
    let _ = (kind, name, id);
    Vec::new()
}

/// The request that reads what [`write_fence`] writes.
pub fn read_fence(kind: Kind, name: &[u8]) -> Vec<u8> {
    let _ = (kind, name);
    Vec::new()
}

/// Whether a reply to [`read_fence`] is the fence of this split.
pub fn is_fence(reply: &[u8], id: &str) -> bool {
    let _ = (reply, id);
    false
}
