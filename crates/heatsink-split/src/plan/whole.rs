//! What is asked of a key as a whole, whatever its type: whether it exists, and its type.

use heatsink_cluster::frame::integer;

use super::request::all;
use super::{Context, How, Plan};

/// `EXISTS` and `TYPE` of a key whose shards tell their sizes to the command `size`: it exists
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

fn any(sizes: &[Vec<u8>]) -> Option<bool> {
    sizes.iter().try_fold(false, |any, size| Some(any | (integer(size)? > 0)))
}

fn status(text: &str) -> Vec<u8> {
    format!("+{text}\r\n").into_bytes()
}
