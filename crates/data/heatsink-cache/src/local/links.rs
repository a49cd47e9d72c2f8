//! Generations of tracked links.
//!
//! Bound: one record per link that is open.
//! Invariant: an id names one connection, for ever; a reconnect gets another.

use slab::Slab;

use crate::identity::LoginId;

/// One connection with tracking on, from its opening to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId {
    slot: u32,
    generation: u64,
}

impl LinkId {
    pub(super) fn slot(self) -> u32 {
        self.slot
    }
}

#[derive(Debug)]
struct Link {
    generation: u64,
    login: LoginId,
}

#[derive(Debug, Default)]
pub(super) struct Links {
    open: Slab<Link>,
    generations: u64,
}

impl Links {
    pub(super) fn open(&mut self, login: LoginId) -> LinkId {
        self.generations += 1;
        let generation = self.generations;
        let slot = self.open.insert(Link { generation, login }) as u32;
        LinkId { slot, generation }
    }

    /// Ends the link; `false` if it had ended before.
    pub(super) fn close(&mut self, id: LinkId) -> bool {
        let is_open = self.get(id).is_some();
        if is_open {
            self.open.remove(id.slot as usize);
        }
        is_open
    }

    pub(super) fn is_open_for(&self, id: LinkId, login: LoginId) -> bool {
        self.get(id).is_some_and(|link| link.login == login)
    }

    fn get(&self, id: LinkId) -> Option<&Link> {
        self.open.get(id.slot as usize).filter(|link| link.generation == id.generation)
    }
}
