//! The links of a store, and which of them has which keys.
//!
//! Called by: `store`; `calls`, for each call.
//! Bound: [`LINKS`] servers; the map of a cluster is asked for every two seconds, and at once when a
//! node redirects or is lost.
//! Invariant: when slots have moved, nothing read before counts any more: of a key that is not
//! there, the node that had it does not tell.

use std::sync::Arc;
use std::time::Duration;

use heatsink_cluster::slot;
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::locate::{Address, Ranges};
use super::{Core, StoreState, lock};
use crate::fence::LINKS;

const MAP_AGE: Duration = Duration::from_secs(2);
/// A pause between two questions, however often somebody wants to know.
const MAP_PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Nodes {
    links: Vec<Arc<Link>>,
    /// Of a cluster; empty for one server.
    map: Ranges,
    is_cluster: bool,
}

impl Nodes {
    pub(super) fn link_of(&self, key: &[u8]) -> Option<Arc<Link>> {
        if !self.is_cluster {
            return self.links.first().cloned();
        }
        let slot = slot::of_key(key);
        let (.., address) =
            self.map.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        self.links.iter().find(|link| link.address.as_ref() == Some(address)).cloned()
    }

    pub(super) fn state(&self) -> StoreState {
        let mut server_tells = true;
        if self.links.is_empty() {
            return StoreState::CutOff("no node has been found yet".into());
        }
        for link in &self.links {
            match link.speaking() {
                Ok(speaking) => server_tells &= speaking.server_tells,
                Err(down) => return StoreState::CutOff(down.0),
            }
        }
        StoreState::Connected { server_tells }
    }

    fn addresses(&self) -> Vec<Address> {
        self.links.iter().filter_map(|link| link.address.clone()).collect()
    }
}

pub(super) fn start(core: &Arc<Core>) {
    if core.target.is_cluster() {
        core.write_nodes().is_cluster = true;
        core.spawn(follow(Arc::clone(core)));
    } else {
        let link = Arc::new(Link::new(1, None));
        core.write_nodes().links.push(Arc::clone(&link));
        core.spawn(link.run(Arc::clone(core)));
    }
}

/// Keeps the map of a cluster.
async fn follow(core: Arc<Core>) {
    loop {
        let known = core.read_nodes().addresses();
        match core.ask_for_map(&known).await {
            Ok(map) => core.take_map(map),
            Err(down) => tracing::debug!(error = %down.0, "nobody has a map of the cluster"),
        }
        sleep(MAP_PAUSE).await;
        let _ = timeout(MAP_AGE, core.map_is_old.notified()).await;
    }
}

impl Core {
    fn take_map(self: &Arc<Self>, map: Ranges) {
        let mut nodes = self.write_nodes();
        if nodes.map == map {
            drop(nodes);
            self.changed.send_modify(|turn| *turn += 1);
            return;
        }
        let is_primary = |link: &Arc<Link>| {
            map.iter().any(|(.., address)| link.address.as_ref() == Some(address))
        };
        let (kept, gone): (Vec<_>, Vec<_>) = nodes.links.drain(..).partition(is_primary);
        for link in gone {
            if let Some(task) = lock(&link.task).take() {
                task.abort();
            }
            self.fences.vouch(link.id, 0);
        }
        nodes.links = kept;
        for (.., address) in &map {
            let is_known = nodes.links.iter().any(|link| link.address.as_ref() == Some(address));
            let free = (1..LINKS as u16).find(|id| nodes.links.iter().all(|link| link.id != *id));
            if let (false, Some(id)) = (is_known, free) {
                let link = Arc::new(Link::new(id, Some(address.clone())));
                *lock(&link.task) = Some(self.spawn(Arc::clone(&link).run(Arc::clone(self))));
                nodes.links.push(link);
            }
        }
        nodes.map = map;
        drop(nodes);
        self.all_changed();
        self.changed.send_modify(|turn| *turn += 1);
    }
}
