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
use crate::upstream::Room;
use crate::upstream::links::{Owner, Upstream};
use crate::upstream::nodes::NodeId;

/// A node that owes an answer and has said nothing for so long may have been replaced.
const STILL: Duration = Duration::from_millis(500);
/// A node that lives hears of its heir when others do, and says so within this time.
pub(super) const LAST_WORD: Duration = Duration::from_millis(100);

impl Room {
    /// Nodes that may have been replaced. What is known to have been is not among them.
    pub(crate) fn silent_nodes(&self, clients: &Clients, now: Instant) -> Vec<NodeId> {
        let retired = |upstream: &Upstream| matches!(upstream.owner, Owner::Retired { .. });
        self.links
            .iter()
            .filter(|(_, upstream)| !retired(upstream) && upstream.is_silent(now))
            .filter(|(slot, upstream)| upstream.owes_answer(*slot, clients))
            .map(|(_, upstream)| upstream.node)
            .collect()
    }
}

impl Upstream {
    fn is_silent(&self, now: Instant) -> bool {
        !self.link.was_heard_within(STILL, now)
    }

    /// Whether its node was replaced, and has had time to say so itself.
    pub(super) fn is_outlived(&self, now: Instant) -> bool {
        let Owner::Retired { since } = self.owner else { return false };
        self.is_replaced && self.is_silent(now) && now >= since + LAST_WORD
    }

    /// Whether its server is to say something soon; `slot` is its place.
    pub(super) fn owes_answer(&self, slot: usize, clients: &Clients) -> bool {
        if self.link.is_shut() {
            // At least its end of the connection.
            return true;
        }
        match self.owner {
            Owner::Pool | Owner::Tracked | Owner::Retired { .. } => self.link.waiting() > 0,
            Owner::Client(key) => {
                clients.get_ref(key).is_some_and(|client| client.awaits_prompt_answer_on(slot))
            }
            // `WAIT` may take as long as its client wants.
            Owner::Spare | Owner::Once => false,
            // It is asked all the time whether it is there.
            Owner::Listener => true,
        }
    }
}
