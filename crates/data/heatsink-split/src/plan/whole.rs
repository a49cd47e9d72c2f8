//! What is asked of a key as a whole, whatever its type: whether it exists, its type, and its time
//! to live if it has none. The marker has one that it has.

use heatsink_cluster::frame::integer;

use super::request::all;
use super::{Context, How, Plan};

/// `EXISTS`, `TYPE` and `TTL` of a key whose shards tell their sizes to the command `size`: it exists
/// if there is anything in it.
pub(super) fn plan(
    context: &Context<'_>,
    name: &[u8],
    args: &[&[u8]],
    size: &[u8],
) -> Option<Plan> {
    match (name, args.len()) {
        (b"EXISTS", 2) => Some(all(context, size, &[], How::Exists)),
        (b"TYPE", 2) => Some(all(context, size, &[], How::Type(context.layout.kind))),
        (b"TTL" | b"PTTL", 2) if !context.layout.expires => {
            Some(all(context, size, &[], How::NoTtl))
        }
        _ => None,
    }
}

/// `EXISTS` and `TYPE` of a key that exists for as long as it is split.
pub(super) fn existing(context: &Context<'_>, name: &[u8], args: &[&[u8]]) -> Option<Plan> {
    match (name, args.len()) {
        (b"EXISTS", 2) => Some(Plan::Answer(b":1\r\n".to_vec())),
        (b"TYPE", 2) => Some(Plan::Answer(status(context.layout.kind.server_type()))),
        _ => None,
    }
}

pub(super) fn exists(sizes: &[Vec<u8>]) -> Option<Vec<u8>> {
    Some(format!(":{}\r\n", u8::from(any(sizes)?)).into_bytes())
}

pub(super) fn type_name(kind: crate::Kind, sizes: &[Vec<u8>]) -> Option<Vec<u8>> {
    Some(status(if any(sizes)? { kind.server_type() } else { "none" }))
}

/// Of a key without a time to live.
pub(super) fn no_ttl(sizes: &[Vec<u8>]) -> Option<Vec<u8>> {
    Some(if any(sizes)? { b":-1\r\n".to_vec() } else { b":-2\r\n".to_vec() })
}

fn any(sizes: &[Vec<u8>]) -> Option<bool> {
    sizes.iter().try_fold(false, |any, size| Some(any | (integer(size)? > 0)))
}

fn status(text: &str) -> Vec<u8> {
    format!("+{text}\r\n").into_bytes()
}
