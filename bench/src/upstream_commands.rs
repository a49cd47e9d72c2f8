//! How many commands reached Redis, as it counted them itself.
//!
//! Called by: `rounds`, before and after a run.
//! Bound: two `INFO`s per server.
//! Invariant: a command that was answered with a redirection counts too; the `INFO`s do not.

use crate::peer::Peer;

/// Sums over the servers of a peer since they started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Commands of all kinds, those of connecting and looking around included.
    pub(crate) commands: u64,
    /// Keys that were read and did not exist.
    pub(crate) misses: u64,
}

impl Counts {
    /// The counts now, unless the servers were not started here.
    pub(crate) fn of(peer: &Peer) -> Option<Self> {
        let servers = peer.servers();
        let commands = servers.iter().flat_map(|server| server.commandstats());
        let counted = commands.filter(|(name, _)| name != "info");
        // A redirection is no call, but a call that was rejected.
        let commands = counted.map(|(_, stats)| stats.calls + stats.rejected_calls).sum();
        let misses = servers.iter().map(|server| server.info_u64("stats", "keyspace_misses")).sum();
        (!servers.is_empty()).then_some(Self { commands, misses })
    }

    /// What was added since an earlier count.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { commands: self.commands - earlier.commands, misses: self.misses - earlier.misses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy;

    #[test]
    fn only_what_clients_sent_is_counted() {
        let peer = proxy::plain().expect("a server");
        let before = Counts::of(&peer).expect("known");
        let mut client = peer.servers()[0].client();
        client.command(&["SET", "k", "v"]);
        client.command(&["GET", "k"]);
        client.command(&["GET", "other"]);
        let grown = Counts::of(&peer).expect("known").since(before);
        assert_eq!(grown, Counts { commands: 3, misses: 1 });
    }
}
