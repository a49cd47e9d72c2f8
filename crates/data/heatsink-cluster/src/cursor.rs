//! One `SCAN` cursor over all shards: the node's own cursor above, the shard's index in the
//! low ten bits. A shard that is done hands over to the next one; after the last, 0.
//!
//! Called by: routing, for `SCAN` and for its reply.
//! Bound: 1024 shards, and cursors of nodes below 2^54: a server's cursor stays below the
//! size of its table, by a factor of 2^14 if it holds the slot too (Redis 7.4).
//! Invariant: an element that stays on its shard for the whole scan is returned, as
//! promised by the shard. One that moves to another shard meanwhile may be missed or be
//! returned twice, as for any client of a cluster.

use heatsink_resp::encode;

use crate::frame::{Aggregate, text};

/// Low bits that name the shard.
const SHARD_BITS: u32 = 10;

/// What a server answers to a cursor that is none.
pub const INVALID: &[u8] = b"-ERR invalid cursor\r\n";

/// What is answered when a node's cursor leaves no room for the shard.
const TOO_LARGE: &[u8] = b"-ERR the node's cursor is too large to be passed on\r\n";

/// Takes a client's cursor apart: index of the shard and the cursor there. `None` if it is no
/// number of 64 bits. The index may lie behind the last shard if the cluster shrank: then
/// nothing is left to scan.
pub fn unpack(cursor: &[u8]) -> Option<(usize, u64)> {
    if !cursor.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let cursor: u64 = match cursor {
        // To a server, nothing is zero.
        b"" => 0,
        digits => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    Some(((cursor & ((1 << SHARD_BITS) - 1)) as usize, cursor >> SHARD_BITS))
}

/// The client's cursor behind a reply of shard `shard_index` with this `cursor`. `None` if
/// either is too large for what a client's cursor holds.
pub fn pack(shard_index: usize, cursor: u64, shard_count: usize) -> Option<u64> {
    let index = match cursor {
        0 if shard_index + 1 >= shard_count => return Some(0),
        0 => shard_index + 1,
        _ => shard_index,
    };
    let fits = index < 1 << SHARD_BITS && cursor.leading_zeros() >= SHARD_BITS;
    fits.then_some(cursor << SHARD_BITS | index as u64)
}

/// Puts the client's cursor into a `SCAN` reply of a shard. What is no such reply, an error
/// say, is returned as it is.
pub fn rewrite_reply(frame: &[u8], shard_index: usize, shard_count: usize) -> Vec<u8> {
    let Some((cursor, rest)) = parts(frame) else { return frame.to_vec() };
    let Some(packed) = pack(shard_index, cursor, shard_count) else { return TOO_LARGE.to_vec() };
    let mut out = Vec::with_capacity(frame.len() + 8);
    encode::header(&mut out, b'*', 2);
    encode::bulk(&mut out, packed.to_string().as_bytes());
    out.extend_from_slice(rest);
    out
}

/// The cursor of a `SCAN` reply and the bytes behind it.
fn parts(frame: &[u8]) -> Option<(u64, &[u8])> {
    let reply = Aggregate::parse(frame).filter(|reply| reply.count == 2)?;
    let first = reply.elements().next()?;
    let cursor = std::str::from_utf8(text(first)?).ok()?.parse().ok()?;
    Some((cursor, &reply.body[first.len()..]))
}

#[cfg(test)]
mod tests;
