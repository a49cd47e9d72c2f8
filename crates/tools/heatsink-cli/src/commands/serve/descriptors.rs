//! File descriptors: one for each connection, so their limit bounds the number of clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Descriptors that are kept for what is no client: 256 connections of the admin API, listeners,
/// event loops, shared upstream connections, the coordination store, files. Of a low limit at most
/// half is kept.
const RESERVE: u64 = 384;
/// For this many clients there is one upstream connection that a client has to itself, for a
/// transaction, a subscription or a command that blocks.
const CLIENTS_PER_OWN: u64 = 4;

/// Raises the soft limit to the hard one; returns how many clients fit, `wanted` at most. More
/// clients than fit would be accepted and then found without a descriptor for their upstream
/// connections, or not be accepted and wait for ever.
pub(super) fn fit(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        debug!(%error, "cannot raise the limit of open files");
    }
    // No limit at all reads as none.
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let max_clients = wanted.min(usize::try_from(room(open_files)).unwrap_or(usize::MAX));
    if max_clients < wanted {
        warn!(
            wanted,
            max_clients,
            open_files,
            "limits.max_clients is lowered to what the limit of open files allows; raise that \
             (ulimit -n) or lower max_clients"
        );
    }
    max_clients
}

/// Upstream connections that fit beside this many clients.
pub(super) fn links(max_clients: usize) -> usize {
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(left(open_files)).unwrap_or(usize::MAX).saturating_sub(max_clients)
}

/// Descriptors for clients and their upstream connections.
fn left(open_files: u64) -> u64 {
    open_files - RESERVE.min(open_files / 2)
}

/// Clients that fit if this many files may be open.
fn room(open_files: u64) -> u64 {
    let left = left(open_files);
    (left - left.div_ceil(CLIENTS_PER_OWN + 1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn clients_leave_room_for_their_upstream_connections_and_for_operators() {
        assert_eq!(room(384 + 12_500), 10_000);
        assert_eq!(room(384 + 12_499), 9_999);
        assert_eq!(room(1024), 512);
        // Of a low limit half is for clients and their connections.
        assert_eq!((room(40), room(2), room(0)), (16, 1, 1));
        assert!(room(u64::MAX) > 1_000_000);
    }
}
