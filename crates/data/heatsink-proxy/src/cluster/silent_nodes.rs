//! Nodes that stand still: they owe an answer and say nothing, and their connections stay open.
//!
//! No error tells that such a node was replaced, so others are asked for the map now and then
//! while it owes an answer:
//!
//! ```text
//! 1. INCR n -> P, which stands still
//! 2. the cluster elects Q
//! 3. STILL after 1, and every LOOKS_APART: another node is asked, and names Q
//! 4. the link to P is retired; LAST_WORD later it is given up, and the client is told that
//!    the outcome is unknown
//! ```
//!
//! P may also be slow, or have waited for Q to take over, and live. As long as the map does not
//! say that it was replaced, it is waited for as ever. And if it does:
//!
//! ```text
//! 1. INCR n -> P, which executes no write until its replica Q has all of them
//! 2. Q takes over, and says so to all; another node tells Heatsink
//! 3. P hears of it, too, and says MOVED: the INCR was not executed, and goes to Q
//! ```
//!
//! Given up at 2, the request would have failed for nothing. So there is time for 3.

use std::time::{Duration, Instant};

use crate::downstream::clients::Clients;
use crate::relay::Relay;
use crate::upstream::nodes::NodeId;
use crate::upstream::pools::{Owner, Upstream};

/// A node that owes an answer and has said nothing for so long may have been replaced.
const STILL: Duration = Duration::from_millis(500);
/// Time between two looks at the map for that reason, whichever worker has it. With the rest
/// less than a second, in which clients are to be served after a failover.
pub(super) const LOOKS_APART: Duration = Duration::from_millis(600);
/// A node that lives hears of its heir when others do, and says so within this time.
pub(crate) const LAST_WORD: Duration = Duration::from_millis(100);

impl Relay {
    /// Nodes that may have been replaced. What is known to have been is not among them.
    pub(super) fn silent_nodes(&self) -> Vec<NodeId> {
        let retired = |upstream: &Upstream| matches!(upstream.owner, Owner::Retired { .. });
        self.upstream
            .links
            .iter()
            .filter(|(_, upstream)| !retired(upstream) && is_silent(upstream, self.now))
            .filter(|(slot, upstream)| self.clients.owes_answer(*slot, upstream))
            .map(|(_, upstream)| upstream.node)
            .collect()
    }

    /// Whether a link's node was replaced, and has had time to say so itself.
    pub(crate) fn is_outlived(&self, upstream: &Upstream) -> bool {
        let Owner::Retired { since } = upstream.owner else { return false };
        upstream.is_replaced && is_silent(upstream, self.now) && self.now >= since + LAST_WORD
    }
}

impl Clients {
    /// Whether a link's server is to say something soon.
    pub(crate) fn owes_answer(&self, slot: usize, upstream: &Upstream) -> bool {
        if upstream.link.is_shut() {
            // At least its end of the connection.
            return true;
        }
        match upstream.owner {
            Owner::Pool | Owner::Tracked | Owner::Retired { .. } => upstream.link.waiting() > 0,
            Owner::Client(key) => {
                let dedicated = self.get_ref(key).and_then(|client| client.dedicated.as_ref());
                dedicated.is_some_and(|dedicated| {
                    dedicated.awaits_prompt_answer() && dedicated.is_asked(slot)
                })
            }
            // `WAIT` may take as long as its client wants.
            Owner::Spare | Owner::Once => false,
            // It is asked all the time whether it is there.
            Owner::Listener => true,
        }
    }
}

fn is_silent(upstream: &Upstream, now: Instant) -> bool {
    !upstream.link.was_heard_within(STILL, now)
}
