//! A request over many slots as one request a slot.
//!
//! Called by: routing, for a request whose keys lie in several slots.
//! Bound: as many pieces as keys; their bytes together are the request's, its name and its
//! trailing arguments once a piece.
//! Invariant: every key of the request is in exactly one piece, keys of one piece in the
//! request's order.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use heatsink_resp::command::{Begin, Command, Find, KeySpec, RequestPolicy};
use heatsink_resp::encode;

use crate::slot;

/// The part of a request that is about one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The slot of all its keys.
    pub slot: u16,
    /// The request for that slot.
    pub bytes: Vec<u8>,
    /// Which keys of the whole request it holds, the first being 0.
    pub keys: Vec<u32>,
}

/// Takes a request apart, pieces in the order in which their slots first appear. `None` if
/// the command cannot be taken apart or if the arguments do not fit it: then the server has
/// to see the request as it is, and says what is wrong with it.
pub fn by_slot(command: &Command, args: &[&[u8]]) -> Option<Vec<Piece>> {
    let Run { first, end, step } = run(command, args.len())?;
    let (name, trailer) = (&args[..first], &args[end..]);
    let groups = || args[first..end].chunks_exact(step);
    let mut piece_of = HashMap::<u16, usize, FixedState>::default();
    let mut pieces: Vec<Piece> = Vec::new();
    for (ordinal, group) in groups().enumerate() {
        let slot = slot::of_key(group[0]);
        let at = *piece_of.entry(slot).or_insert_with(|| {
            pieces.push(Piece { slot, bytes: Vec::new(), keys: Vec::new() });
            pieces.len() - 1
        });
        pieces[at].keys.push(ordinal as u32);
    }
    for piece in &mut pieces {
        let count = name.len() + piece.keys.len() * step + trailer.len();
        encode::header(&mut piece.bytes, b'*', count);
        let group = |ordinal: &u32| {
            let start = first + *ordinal as usize * step;
            &args[start..start + step]
        };
        let own = piece.keys.iter().flat_map(group);
        for arg in name.iter().chain(own).chain(trailer) {
            encode::bulk(&mut piece.bytes, arg);
        }
    }
    Some(pieces)
}

/// The arguments from a request's first key to the last one's last value.
struct Run {
    first: usize,
    end: usize,
    step: usize,
}

fn run(command: &Command, arg_count: usize) -> Option<Run> {
    // All or nothing is what MSETNX is for; in pieces it could be neither.
    if command.request_policy != RequestPolicy::MultiShard || &*command.name == "msetnx" {
        return None;
    }
    let [KeySpec { begin: Begin::Index(first), find }] = &*command.keys else { return None };
    let Find::Range { last, step, limit: 0 | 1 } = *find else { return None };
    if last >= 0 || step == 0 {
        return None;
    }
    let end = (arg_count + 1).checked_sub(last.unsigned_abs())?;
    let len = end.checked_sub(*first).filter(|len| *len > 0 && len % step == 0)?;
    // Ordinals are 32 bits wide.
    u32::try_from(len / step).ok()?;
    Some(Run { first: *first, end, step })
}

#[cfg(test)]
mod tests;
