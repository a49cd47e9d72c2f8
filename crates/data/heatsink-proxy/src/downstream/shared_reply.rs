//! Large replies that several clients are sent: all of them share one buffer.
//!
//! Called by: `hot` with replies that several clients wait for or that are cached, `order` and a
//! client's output to hold them.
//! Bound: by `limits.max_total_output_bytes`, to which each buffer counts once however many clients
//! it is held for; see [`crate::downstream::output`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::FixedState;
use heatsink_cache::local::LARGE_BYTES;
use heatsink_upstream::outgoing::Block;

/// A reply to be given to clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply<'a> {
    /// It is copied for each of them.
    Small(&'a [u8]),
    /// They share it.
    Large(&'a Arc<[u8]>),
}

/// A reply that may go to several clients.
#[derive(Clone, Debug)]
pub(crate) enum OwnedReply {
    Small(Vec<u8>),
    Large(Arc<[u8]>),
}

impl OwnedReply {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        if bytes.len() < LARGE_BYTES { Self::Small(bytes) } else { Self::Large(bytes.into()) }
    }

    pub(crate) fn as_reply(&self) -> Reply<'_> {
        match self {
            Self::Small(bytes) => Reply::Small(bytes),
            Self::Large(bytes) => Reply::Large(bytes),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Large(bytes) => bytes,
        }
    }
}

/// What the clients of one worker share at the moment.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By the address of a buffer: by how many replies it is held.
    holders: RefCell<HashMap<usize, usize, FixedState>>,
    /// Bytes of these buffers, each counted once.
    bytes: Cell<usize>,
}

impl Ledger {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

/// A buffer, held for one client.
#[derive(Debug)]
pub(crate) struct Lent {
    bytes: Arc<[u8]>,
    ledger: Rc<Ledger>,
}

impl Lent {
    pub(crate) fn new(bytes: &Arc<[u8]>, ledger: &Rc<Ledger>) -> Self {
        let mut holders = ledger.holders.borrow_mut();
        let count = holders.entry(bytes.as_ptr().addr()).or_default();
        if *count == 0 {
            ledger.bytes.set(ledger.bytes.get() + bytes.len());
        }
        *count += 1;
        drop(holders);
        Self { bytes: Arc::clone(bytes), ledger: Rc::clone(ledger) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut holders = self.ledger.holders.borrow_mut();
        let address = self.bytes.as_ptr().addr();
        if let Some(count) = holders.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                holders.remove(&address);
                self.ledger.bytes.set(self.ledger.bytes.get() - self.bytes.len());
            }
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Block for Lent {
    fn share(&self) -> usize {
        let holders = self.ledger.holders.borrow();
        let count = holders.get(&self.bytes.as_ptr().addr()).copied().unwrap_or(1);
        self.bytes.len() / count.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_counts_once_however_many_hold_it() {
        let ledger = Rc::new(Ledger::default());
        let (one, other): (Arc<[u8]>, Arc<[u8]>) = (vec![1; 100].into(), vec![2; 10].into());
        let mut lent: Vec<Lent> = (0..4).map(|_| Lent::new(&one, &ledger)).collect();
        assert_eq!((ledger.bytes(), lent[0].share()), (100, 25));
        let apart = Lent::new(&other, &ledger);
        assert_eq!((ledger.bytes(), apart.share()), (110, 10));
        lent.truncate(1);
        assert_eq!((ledger.bytes(), lent[0].share()), (110, 100));
        drop(lent);
        assert_eq!(ledger.bytes(), 10);
        drop(apart);
        assert_eq!((ledger.bytes(), ledger.holders.borrow().len()), (0, 0));
    }
}
