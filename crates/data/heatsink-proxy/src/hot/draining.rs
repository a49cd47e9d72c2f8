//! Requests that were under way when the hot keys changed, and the moment when all are answered.
//!
//! Called by: `hot`, when it takes over other hot keys, and once a turn.
//! Bound: a fence for each change of the hot keys that is not through; each holds a number for each
//! shared link and client that had something under way.
//! Invariant: a version of the hot keys is not settled before everything is answered that was sent
//! while other keys were hot. (Keys are cached before that; see the head of `reads`.)
//!
//! A fence covers requests that were sent before it, and not what follows from their replies. So a write
//! that takes several rounds is counted beside the fence:
//!
//! ```text
//! 1. SET key, which has copies: they are removed; the answer is under way
//! 2. other hot keys, by which the key is to be split: a fence behind that answer
//! 3. the answer comes: the fence is through; SET key is sent
//! 4. settled now, the mover takes the value away; SET key overwrites the marker
//! ```
//!
//! Such a write belongs to the version that it began under. Later versions wait for it. Its own and
//! earlier ones do not: otherwise a version would never be settled while new writes come.

use heatsink_cache::identity::LoginId;

use crate::cluster;
use crate::downstream::connection::{Client, ClientKey};
use crate::hot::Mitigations;
use crate::relay::Relay;
use crate::upstream;
use crate::upstream::links::{Owner, Upstream};

/// The requests that were under way when the hot keys changed.
#[derive(Debug)]
pub(super) struct Fence {
    /// The version of the hot keys that is settled once they are answered.
    settles: u64,
    /// Place and generation of each link, and how many replies will have come from it by then.
    links: Vec<(usize, u32, u64)>,
    clients: Vec<ClientKey>,
}

impl Mitigations {
    /// Notes what is under way now.
    pub(super) fn raise_fence(
        &mut self,
        relay: &mut Relay,
        settles: u64,
        busy: impl Fn(&Client) -> bool,
    ) {
        // Clients with links of their own are asked themselves.
        let shared = |upstream: &Upstream| {
            matches!(upstream.owner, Owner::Pool | Owner::Tracked | Owner::Retired { .. })
        };
        let waits =
            |(_, upstream): &(usize, &Upstream)| shared(upstream) && upstream.link.waiting() > 0;
        let links = relay.upstream.links.iter().filter(waits);
        let until = |(slot, upstream): (usize, &Upstream)| {
            let until = upstream.link.told() + upstream.link.waiting() as u64;
            (slot, upstream.generation, until)
        };
        let links = links.map(until).collect();
        let owns = |(slot, client): (usize, &Client)| {
            let key = ClientKey { slot: slot as u32, generation: client.generation };
            busy(client).then_some(key)
        };
        let clients = relay.clients.slab.iter().filter_map(owns).collect();
        self.fences.push(Fence { settles, links, clients });
    }

    /// A request goes on along another link. It may have been under way when other keys became hot:
    ///
    /// 1. SADD key x -> A; its client has gone
    /// 2. the key is about to be split: a fence behind that
    /// 3. A: MOVED, the fence is through; SADD key x -> B
    /// 4. settled now, the value would be moved before that is executed
    ///
    /// A request that its client sent by the version that is to be settled, or a later one, is not waited
    /// for.
    pub(crate) fn extend_fences(&mut self, relay: &mut Relay, slot: usize, client: ClientKey) {
        let links = &relay.upstream.links;
        let Some(upstream) = links.get(slot).filter(|_| !self.fences.is_empty()) else { return };
        let until = upstream.link.told() + upstream.link.waiting() as u64;
        let sent_by = relay.clients.get_ref(client).map_or(0, |client| client.hot.version);
        let is_older = |fence: &&mut Fence| sent_by < fence.settles;
        for fence in self.fences.iter_mut().filter(is_older) {
            let same =
                |link: &&mut (usize, u32, u64)| (link.0, link.1) == (slot, upstream.generation);
            match fence.links.iter_mut().find(same) {
                Some(link) => link.2 = until,
                None => fence.links.push((slot, upstream.generation, until)),
            }
        }
    }

    /// Ends the fences of which every request is answered.
    pub(super) fn look_at_fences(&mut self, relay: &mut Relay) {
        let Relay { clients, shared, index, .. } = relay;
        let upstream::Room { links, pools, .. } = &relay.upstream;
        let cluster::Room { redirects, later, replays, .. } = &relay.cluster;
        let counts = |login: LoginId| {
            let pool = pools.iter().find(|(_, pool)| pool.serial as u32 == login.0);
            pool.is_none_or(|(_, pool)| pool.login.db == shared.base_login.db)
        };
        let mut at = 0;
        while at < self.fences.len() {
            let fence = &mut self.fences[at];
            fence.links.retain(|(slot, generation, until)| {
                let link = links.get(*slot).filter(|link| link.generation == *generation);
                link.is_some_and(|upstream| upstream.link.told() < *until)
            });
            fence.clients.retain(|key| {
                clients.get_ref(*key).is_some_and(|client| {
                    let busy =
                        client.dedicated.as_ref().is_some_and(|dedicated| !dedicated.is_drained());
                    busy || client.hides_keys()
                })
            });
            let version = fence.settles;
            let is_through = fence.links.is_empty() && fence.clients.is_empty();
            let redirected = !redirects.is_empty() || !later.is_empty() || !replays.is_empty();
            let is_early =
                redirected || self.combines_held(counts) || self.has_copied_writes_before(version);
            if is_through && !is_early {
                self.fences.swap_remove(at);
                if version > self.settled {
                    self.settled = version;
                    shared.split_mailbox.settle(*index, version);
                }
            } else {
                at += 1;
            }
        }
    }
}
