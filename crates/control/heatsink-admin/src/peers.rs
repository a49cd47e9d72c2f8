//! Who is connected to the listener.
//!
//! A connection counts as a stranger's until a request on it has passed the check of access. Strangers and
//! all others have separate numbers of places, so neither can keep the other out. A health check, which
//! comes from a stranger, is always answered: when there are too many strangers, the oldest connection of
//! the address with the most of them is closed.
//!
//! Called by: [`crate::Server`], for each connection; the guard in front of the routes.
//! Bound: [`crate::Limits::strangers`], [`crate::Limits::connections`].

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Everybody who is connected.
#[derive(Debug)]
pub(crate) struct Peers {
    /// In the order in which they came.
    strangers: Mutex<Vec<Arc<Peer>>>,
    max_strangers: usize,
    /// Places for those who are no strangers.
    places: Arc<Semaphore>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Where it comes from.
    pub(crate) address: SocketAddr,
    peers: Arc<Peers>,
    /// Held once it is no stranger any more.
    place: OnceLock<OwnedSemaphorePermit>,
    sent_away: Notify,
}

/// Keeps a connection counted for as long as it lives.
#[derive(Debug)]
pub(crate) struct Visit(pub(crate) Arc<Peer>);

impl Peers {
    pub(crate) fn new(max_strangers: usize, max_known: usize) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(max_known));
        Arc::new(Self { strangers: Mutex::default(), max_strangers, places })
    }

    /// Counts a connection; a stranger may be sent away for it.
    pub(crate) fn arrived(self: &Arc<Self>, address: SocketAddr) -> Visit {
        let peer = Arc::new(Peer {
            address,
            peers: Arc::clone(self),
            place: OnceLock::new(),
            sent_away: Notify::new(),
        });
        let mut strangers = self.lock();
        if strangers.len() >= self.max_strangers
            && let Some(at) = least_welcome(strangers.iter().map(|peer| peer.address.ip()))
        {
            strangers.remove(at).sent_away.notify_one();
        }
        strangers.push(Arc::clone(&peer));
        Visit(peer)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Peer>>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// A request has passed the check of access: it is no stranger from now on. False if there is
    /// no place for it.
    pub(crate) fn pass(&self) -> bool {
        if self.place.get().is_some() {
            return true;
        }
        let Ok(place) = Arc::clone(&self.peers.places).try_acquire_owned() else { return false };
        let _ = self.place.set(place);
        self.forget();
        true
    }

    /// Waits until it is sent away, which may never be.
    pub(crate) async fn is_sent_away(&self) {
        self.sent_away.notified().await;
    }

    fn forget(&self) {
        self.peers.lock().retain(|peer| !std::ptr::eq(Arc::as_ptr(peer), self));
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.forget();
    }
}

/// Which of these connections, oldest first, is to be closed: the oldest of the address with most.
fn least_welcome(strangers: impl Iterator<Item = IpAddr>) -> Option<usize> {
    let mut by_address: HashMap<IpAddr, (usize, usize)> = HashMap::new();
    for (at, address) in strangers.enumerate() {
        by_address.entry(address).or_insert((0, at)).0 += 1;
    }
    let most =
        by_address.into_values().max_by_key(|&(count, first)| (count, usize::MAX - first))?;
    Some(most.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: &[u8]) -> impl Iterator<Item = IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last]))
    }

    #[test]
    fn the_first_of_the_address_with_the_most_has_to_go() {
        assert_eq!(least_welcome(addresses(&[])), None);
        assert_eq!(least_welcome(addresses(&[7, 8])), Some(0));
        assert_eq!(least_welcome(addresses(&[7, 8, 9, 8])), Some(1));
        assert_eq!(least_welcome(addresses(&[1, 7, 7, 8, 8, 8])), Some(3));
    }

    #[test]
    fn strangers_and_others_do_not_take_each_others_places() {
        let peers = Peers::new(2, 1);
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let known = peers.arrived(address);
        assert!(known.0.pass() && known.0.pass());
        let strangers: Vec<Visit> = (0..5).map(|_| peers.arrived(address)).collect();
        assert_eq!(peers.lock().len(), 2);
        assert!(!strangers[4].0.pass(), "the place is taken");
        drop(known);
        assert!(strangers[4].0.pass());
        drop(strangers);
        assert_eq!((peers.lock().len(), peers.places.available_permits()), (0, 1));
    }
}
