//! File descriptors: a connection each, so their limit bounds the number of clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Descriptors that are not clients: listener, event loops, shared pipelines, logs.
const RESERVE: u64 = 128;

/// Raises the soft limit to the hard one, and warns if `max_clients` still does not fit.
pub(super) fn raise(max_clients: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        debug!(%error, "cannot raise the limit of open files");
    }
    // No limit at all reads as none.
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if !fits(max_clients, open_files) {
        warn!(
            max_clients,
            open_files,
            "the limit of open files is too low for limits.max_clients; raise it (ulimit -n) or \
             lower max_clients"
        );
    }
}

fn fits(max_clients: usize, open_files: u64) -> bool {
    (max_clients as u64).saturating_add(RESERVE) <= open_files
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn clients_and_the_reserve_have_to_fit() {
        assert!(fits(10_000, 10_128));
        assert!(!fits(10_000, 10_127));
        assert!(fits(1_000_000, u64::MAX));
    }
}
