//! Room for descriptors.
//!
//! Called by: `main`, before the servers of `idle` start, which inherit the limit.
//! Bound: the system's hard limit.
//! Invariant: never asks for less than there was.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but the connections held.
const SPARE: usize = 256;

/// Raises the limit so that `connections` can be open at once, and returns how many can.
pub(crate) fn room_for(connections: usize) -> usize {
    let wanted = (connections + SPARE) as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return connections;
    }
    // Raising the hard limit takes privileges; when that fails, as far as the hard limit goes.
    let hard = maximum.map(|maximum| maximum.max(wanted));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: hard })
        .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }));
    let Some(current) = getrlimit(Resource::Nofile).current else { return connections };
    let room = (current as usize).saturating_sub(SPARE).min(connections);
    if room < connections {
        eprintln!("notice: only {room} connections fit into the limit of {current} descriptors");
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modest_wish_is_granted_and_a_wild_one_cut() {
        assert_eq!(room_for(10), 10);
        let limit = getrlimit(Resource::Nofile).current;
        assert!(limit.is_none_or(|limit| limit >= 10 + SPARE as u64));
        assert!(room_for(1 << 40) < 1 << 40);
    }
}
