//! Slots that were seen to move a moment ago.
//!
//! While a slot moves, a request for several of its keys is refused until all of them are in one
//! place. Then nothing that its client sends behind it for the slot may be executed first. Reads are
//! taken back ([`crate::cluster::replay`]); a write that was executed cannot be:
//!
//! ```text
//! 1. GET {t}a -> A: ASK, the slot of {t} is moving
//! 2. MGET {t}a {t}b -> A; SET {t}b 1 is held until it is answered
//! 3. A: TRYAGAIN; tried again until b has moved, too
//! 4. SET {t}b 1
//! ```
//!
//! Sent at 2, the `SET` would be executed at once, and the `MGET` could not be tried again.
//!
//! A slot may also be left half-moved for good. Then each request would wait as long as it may, one
//! after the other; so once one was given up, what follows is sent together again for a while, and
//! given up together.
//!
//! Called by: `redirects`, when a node says so, and `route`, with requests for several keys.
//! Bound: [`MAX_MOVING`] slots, each for [`REMEMBERED`] after it was last heard of.

use std::time::{Duration, Instant};

use heatsink_resp::command::Command;

use crate::cluster::Routing;
use crate::cluster::effects::Notes;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;

/// So many slots are remembered; tools that move them do so one by one.
const MAX_MOVING: usize = 64;
/// Time after a node last said that a slot is moving.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Slots that were seen to move.
#[derive(Debug, Default)]
pub(crate) struct Moving(Vec<MovingSlot>);

#[derive(Debug)]
struct MovingSlot {
    slot: u16,
    /// When it is forgotten.
    until: Instant,
    /// Until then nothing waits for it, since a request was given up that did.
    stuck_until: Instant,
}

impl Moving {
    /// A node says that a slot is moving.
    pub(super) fn note(&mut self, slot: u16, now: Instant) {
        let until = now + REMEMBERED;
        if let Some(known) = self.0.iter_mut().find(|moving| moving.slot == slot) {
            known.until = until;
            return;
        }
        self.0.retain(|moving| now < moving.until);
        if self.0.len() < MAX_MOVING {
            self.0.push(MovingSlot { slot, until, stuck_until: now });
        }
    }

    /// A request for a slot was given up.
    pub(super) fn note_stuck(&mut self, slot: u16, now: Instant) {
        if let Some(known) = self.0.iter_mut().find(|moving| moving.slot == slot) {
            known.stuck_until = now + REMEMBERED;
        }
    }

    fn is_worth_waiting(&self, slot: u16, now: Instant) -> bool {
        let known = self.0.iter().find(|moving| moving.slot == slot);
        known.is_some_and(|moving| (moving.stuck_until..moving.until).contains(&now))
    }
}

impl<N: Notes> Routing<'_, N> {
    /// A request for several keys was sent on: if one of its slots is moving, nothing of its client
    /// is sent behind it until it is answered.
    #[inline]
    pub(super) fn note_several_keys(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) {
        if self.room.moving.0.is_empty() {
            return;
        }
        let mut keys = 0;
        let mut moves = false;
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            keys += 1;
            let slot = heatsink_cluster::slot::of_key(arg(index));
            moves |= self.room.moving.is_worth_waiting(slot, self.now);
        });
        if moves
            && keys > 1
            && let Some(client) = self.clients.get(key)
        {
            client.alone = client.order.outstanding() > 0;
        }
    }
}
