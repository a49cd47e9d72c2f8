//! What a mover sends, and what it makes of the replies. All replies are RESP2.
//!
//! Called by: whoever splits a key or makes it whole again.
//! Bound: a request has at most 512 members, and at most 64 KiB unless one member alone is
//! larger.
//! Invariant: what [`fill_shards`] writes is what the plans expect, and [`build_whole`] makes the
//! same value of it again.

mod batch;
mod fields;
mod strings;

use heatsink_cluster::frame::{Aggregate, is_error, is_nil, text};
use heatsink_resp::encode;

use crate::layout::{Kind, Layout, Names};
use crate::stamp;
use batch::Batch;

pub use fields::{ask_field_ttls, tells_of_field_ttl};
pub use strings::kind_of_string;

/// Why a value cannot be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

/// What every fence begins with.
const FENCE: &str = "heatsink:split";

/// The request that reads all of a plain value.
pub fn read_whole(kind: Kind, key: &[u8]) -> Vec<u8> {
    match kind {
        Kind::Counter | Kind::HyperLogLog => request(&[b"GET", key]),
        Kind::Set => request(&[b"SMEMBERS", key]),
        Kind::Hash => request(&[b"HGETALL", key]),
        Kind::SortedSet => request(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]),
        Kind::List => request(&[b"LRANGE", key, b"0", b"-1"]),
    }
}

/// How much the reply to [`read_whole`] shows: members, or bytes of a string. The server's count of
/// it (`SCARD`, `STRLEN`) says the same.
pub fn size_of(kind: Kind, reply: &[u8]) -> Result<u64, Unfit> {
    Ok(match kind {
        Kind::Counter | Kind::HyperLogLog => strings::string(reply)?.map_or(0, <[u8]>::len) as u64,
        Kind::Set | Kind::List => elements(reply)?.len() as u64,
        Kind::Hash | Kind::SortedSet => elements(reply)?.len() as u64 / 2,
    })
}

/// The requests that fill the shards from the reply to [`read_whole`], each of bounded size and
/// about one shard. A list takes as many stamps as it has elements, from `stamp` on.
pub fn fill_shards(layout: &Layout, whole: &[u8], stamp: u64) -> Result<Vec<Vec<u8>>, Unfit> {
    if layout.is_empty() {
        return Err(Unfit("there are no shards".to_owned()));
    }
    if matches!(layout.kind, Kind::Counter | Kind::HyperLogLog) {
        return strings::fill(layout, whole);
    }
    let elements = elements(whole)?;
    if elements.is_empty() {
        return Err(Unfit("it does not exist".to_owned()));
    }
    let mut batches: Vec<Batch> = (0..layout.len())
        .map(|shard| Batch::new(writer(layout.kind), layout.name(shard, Names::Live)))
        .collect();
    match layout.kind {
        Kind::List => {
            if elements.len() as u64 > stamp::PER_CALL {
                return Err(Unfit(format!("it has more than {} elements", stamp::PER_CALL)));
            }
            for (at, element) in elements.iter().enumerate() {
                // Neighbours stay together, so that a sort by stamps finds long runs.
                let shard = at * layout.len() / elements.len();
                let stamped = stamp::right(stamp, at, element)
                    .ok_or_else(|| Unfit("the stamps are used up".to_owned()))?;
                batches[shard].push(&[&stamped]);
            }
        }
        kind => members(kind, &elements, |member, args| {
            batches[layout.shard_of(member)].push(args);
        })?,
    }
    Ok(batches.into_iter().flat_map(Batch::finish).collect())
}

/// A request for each shard that reads all of it.
pub fn read_shards(layout: &Layout, names: Names) -> Vec<Vec<u8>> {
    (0..layout.len()).map(|shard| read_whole(layout.kind, layout.name(shard, names))).collect()
}

/// The requests that build the plain value at `to` from the replies to [`read_shards`]; none if
/// nothing is left of it.
pub fn build_whole(layout: &Layout, replies: &[Vec<u8>], to: &[u8]) -> Result<Vec<Vec<u8>>, Unfit> {
    if replies.len() != layout.len() {
        return Err(Unfit(format!("{} replies of {} shards", replies.len(), layout.len())));
    }
    if matches!(layout.kind, Kind::Counter | Kind::HyperLogLog) {
        return strings::build(layout.kind, replies, to);
    }
    let mut batch = Batch::new(writer(layout.kind), to);
    match layout.kind {
        Kind::List => {
            let mut stamped = Vec::new();
            for reply in replies {
                stamped.extend(elements(reply)?);
            }
            if !stamp::sort(&mut stamped) {
                return Err(Unfit("an element has no stamp".to_owned()));
            }
            for element in stamped {
                batch.push(&[stamp::without(element)]);
            }
        }
        kind => {
            for reply in replies {
                members(kind, &elements(reply)?, |_, args| batch.push(args))?;
            }
        }
    }
    Ok(batch.finish())
}

/// What a shard's guard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The shard may be written to.
    Open,
    /// It was sealed, and held so much ([`size_of`]).
    Sealed(u64),
}

impl Guard {
    /// The request that writes it at `name`.
    pub fn write(self, name: &[u8]) -> Vec<u8> {
        match self {
            Self::Open => request(&[b"SET", name, b"open"]),
            Self::Sealed(size) => request(&[b"SET", name, format!("sealed {size}").as_bytes()]),
        }
    }

    /// What the reply to a `GET` of it says; none if it is not there.
    pub fn read(reply: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(text(reply)?).ok()?;
        match value.strip_prefix("sealed ") {
            Some(size) => size.parse().ok().map(Self::Sealed),
            None => (value == "open").then_some(Self::Open),
        }
    }
}

/// The request that writes a marker or a tombstone at `name`, which does not exist: a value that
/// commands of `kind` refuse.
pub fn write_fence(kind: Kind, name: &[u8], id: &str) -> Vec<u8> {
    if kind.server_type() == "string" {
        request(&[b"RPUSH", name, FENCE.as_bytes(), id.as_bytes()])
    } else {
        request(&[b"SET", name, format!("{FENCE} {id}").as_bytes()])
    }
}

/// The request that reads what [`write_fence`] writes.
pub fn read_fence(kind: Kind, name: &[u8]) -> Vec<u8> {
    if kind.server_type() == "string" {
        request(&[b"LRANGE", name, b"0", b"-1"])
    } else {
        request(&[b"GET", name])
    }
}

/// Whether the reply to a read of a string or a list is, or begins with, a fence of any split.
pub fn tells_of_fence(reply: &[u8]) -> bool {
    let body = |reply: &[u8]| {
        let end = reply.iter().position(|byte| *byte == b'\n')?;
        Some(reply[end + 1..].starts_with(FENCE.as_bytes()))
    };
    match reply.first() {
        Some(b'$') => body(reply).unwrap_or(false),
        Some(b'*') => {
            let end = reply.iter().position(|byte| *byte == b'\n').unwrap_or(0);
            reply[end + 1..].starts_with(b"$") && body(&reply[end + 1..]).unwrap_or(false)
        }
        _ => false,
    }
}

/// Whether a reply to [`read_fence`] is the fence of this split. An error is not, nor is what
/// another split has left.
pub fn is_fence(reply: &[u8], id: &str) -> bool {
    let mut string = Vec::new();
    encode::bulk(&mut string, format!("{FENCE} {id}").as_bytes());
    reply == string || reply == request(&[FENCE.as_bytes(), id.as_bytes()])
}

/// The id in a fence that nobody has changed, of whichever split.
pub fn id_of_fence(reply: &[u8]) -> Option<String> {
    // An id that nothing has, so that any which is there is another one.
    match fence(reply, "\0") {
        Fence::Another(id) => String::from_utf8(id).ok(),
        Fence::Intact | Fence::Damaged | Fence::Missing => None,
    }
}

/// What stands in the place of a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The fence of this split, as it was written.
    Intact,
    /// The same, changed by somebody: it has the id of this split, or no other.
    Damaged,
    /// What looks like the fence of another split, with its id.
    Another(Vec<u8>),
    /// Something else, or nothing.
    Missing,
}

/// What a reply to [`read_fence`] shows. Whoever has appended to a fence, taken something from it
/// or written into it has not replaced it: of a value of the key's type the server would have
/// refused that.
pub fn fence(reply: &[u8], id: &str) -> Fence {
    if is_fence(reply, id) {
        return Fence::Intact;
    }
    let word = FENCE.as_bytes();
    let has_id = |bytes: &[u8]| bytes.windows(id.len().max(1)).any(|part| part == id.as_bytes());
    match reply.first() {
        Some(b'$') => {
            let Some(string) = text(reply) else { return Fence::Missing };
            if has_id(string) {
                return Fence::Damaged;
            }
            match string.strip_prefix(word) {
                Some([b' ', another @ ..]) if !another.is_empty() => {
                    Fence::Another(another.to_vec())
                }
                Some(_) => Fence::Damaged,
                None if is_half(string, id) => Fence::Damaged,
                None => Fence::Missing,
            }
        }
        Some(b'*') => {
            let elements = elements(reply).unwrap_or_default();
            if elements.iter().any(|element| has_id(element)) {
                return Fence::Damaged;
            }
            match &elements[..] {
                [first, another] if *first == word && *another != word => {
                    Fence::Another(another.to_vec())
                }
                _ if elements.contains(&word) => Fence::Damaged,
                _ => Fence::Missing,
            }
        }
        _ => Fence::Missing,
    }
}

/// Whether half of the bytes that a string had as a fence are still in their places.
fn is_half(string: &[u8], id: &str) -> bool {
    let fence = format!("{FENCE} {id}");
    let same = string.iter().zip(fence.as_bytes()).filter(|(one, other)| one == other).count();
    2 * same >= fence.len()
}

/// The command that adds members.
fn writer(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Set => b"SADD",
        Kind::Hash => b"HSET",
        Kind::SortedSet => b"ZADD",
        Kind::List => b"RPUSH",
        Kind::Counter | Kind::HyperLogLog => b"SET",
    }
}

/// Each member, and the arguments that add it.
fn members<'a>(
    kind: Kind,
    elements: &[&'a [u8]],
    mut each: impl FnMut(&'a [u8], &[&'a [u8]]),
) -> Result<(), Unfit> {
    if kind == Kind::Set {
        for member in elements {
            each(member, &[member]);
        }
        return Ok(());
    }
    let (pairs, []) = elements.as_chunks::<2>() else {
        return Err(Unfit("a member without its value".to_owned()));
    };
    for [member, value] in pairs {
        // A sorted set is read member first, and written score first.
        if kind == Kind::SortedSet {
            each(member, &[value, member]);
        } else {
            each(member, &[member, value]);
        }
    }
    Ok(())
}

/// The strings of an array.
fn elements(reply: &[u8]) -> Result<Vec<&[u8]>, Unfit> {
    let strange = || Unfit(format!("the server answered {}", shown(reply)));
    if is_nil(reply) {
        return Ok(Vec::new());
    }
    let array = Aggregate::parse(reply).ok_or_else(strange)?;
    let elements: Vec<&[u8]> =
        array.elements().map(text).collect::<Option<_>>().ok_or_else(strange)?;
    if elements.len() == array.count { Ok(elements) } else { Err(strange()) }
}

/// The first line of a reply.
fn shown(reply: &[u8]) -> String {
    let line = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = if is_error(reply) { &line[1..] } else { line };
    line[..line.len().min(120)].escape_ascii().to_string()
}

fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, args);
    bytes
}

#[cfg(test)]
mod tests;
