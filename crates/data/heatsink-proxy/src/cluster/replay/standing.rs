//! A request was refused: what of its client is behind it, and can that be replayed?
//!
//! Called by: `replies`, while the link still knows what it was asked. What was sent behind it on the
//! same link is marked before the next reply is looked at.
//! Bound: [`MAX_WALKED`] requests are looked at in a turn.

use std::collections::HashMap;
use std::time::Instant;

use foldhash::fast::FixedState;
use heatsink_cluster::redirect::{self, Redirect};
use heatsink_resp::command::CommandTable;
use heatsink_upstream::link::Behind;
use slab::Slab;

use crate::cluster::redirects::{MAX_LOOKED_AT, Redirection, Standing, is_servers_own, may_meet};
use crate::cluster::replay::{MAX_REPLAYED_BYTES, MAX_WALKED, Replay, Replays, may_be_replayed};
use crate::cluster::route;
use crate::cluster::scatter_gather::Gather;
use crate::downstream::clients::Clients;
use crate::upstream::suspect_replies::{Replayed, SuspectReplies};
use crate::upstream::ticket::Ticket;

/// What it takes to find out what can be done for a request that was refused.
pub(crate) struct Refusing<'a> {
    /// None on a link of which nothing is replayed.
    pub(crate) replays: Option<&'a mut Replays>,
    pub(crate) gathers: &'a Slab<Gather>,
    pub(crate) redirects: &'a HashMap<Ticket, Redirection, FixedState>,
    pub(crate) table: &'a CommandTable,
    pub(crate) now: Instant,
    /// Requests that were looked at in this turn.
    pub(crate) walked: &'a mut usize,
}

impl Refusing<'_> {
    /// Whether something was sent behind `request` that must not be executed before it, should it
    /// be tried again. It is replayed if that is possible: `suspect_replies` are of what is `behind` it.
    pub(crate) fn standing(
        &mut self,
        leader: Ticket,
        request: &[u8],
        error: &[u8],
        behind: &Behind<'_, Ticket>,
        suspects: &mut SuspectReplies,
        clients: &Clients,
    ) -> Standing {
        let client = clients.get_ref(leader.client);
        let outstanding = client.map_or(0, |client| client.order.outstanding());
        if outstanding <= 1 {
            return Standing::Last;
        }
        let slot = route::slot_of(self.table, request);
        let slot = match (redirect::parse(error), slot) {
            (Some(Redirect::Moved { .. } | Redirect::Ask { .. }), _) => return Standing::SentOn,
            (Some(redirect), Some(slot)) if self.may_lead(leader, redirect, error, request) => slot,
            _ => return self.look_behind(leader, slot, behind, outstanding),
        };
        let mut replay = Replay::new(leader);
        let mut places = Vec::new();
        for (at, (ticket, request)) in behind.iter().enumerate() {
            *self.walked += 1;
            if *self.walked > MAX_WALKED {
                return Standing::Overtaken;
            }
            if ticket.client != leader.client || ticket.is_sibling(leader) {
                continue;
            }
            let of_request = route::slot_of(self.table, request);
            if !may_meet(Some(slot), of_request) {
                continue;
            }
            let fits = of_request == Some(slot)
                && may_be_replayed(ticket, self.gathers)
                && suspects.get(at).replayed.is_none();
            if !fits {
                return Standing::Overtaken;
            }
            places.push((at, replay.add(request)));
        }
        let Some(replays) = self.replays.as_mut().filter(|_| !places.is_empty()) else {
            return Standing::Last;
        };
        if replay.bytes() > MAX_REPLAYED_BYTES {
            return Standing::Overtaken;
        }
        let replay = replays.begin(replay);
        for (at, member) in places {
            suspects.at(at).replayed = Some(Replayed { replay, member });
        }
        Standing::Leads(replay)
    }

    /// Whether others may wait for a request until it has been tried again.
    fn may_lead(
        &self,
        leader: Ticket,
        redirect: Redirect<'_>,
        error: &[u8],
        request: &[u8],
    ) -> bool {
        let earlier = self.redirects.get(&leader);
        self.replays.is_some()
            && may_be_replayed(leader, self.gathers)
            && earlier.is_none_or(|earlier| earlier.may_go_on(self.now))
            && is_servers_own(self.table, redirect, error, request)
    }

    /// How a refused request stands where nothing behind it can be replayed.
    fn look_behind(
        &mut self,
        leader: Ticket,
        slot: Option<u16>,
        behind: &Behind<'_, Ticket>,
        outstanding: u32,
    ) -> Standing {
        let redirect = self.redirects.get(&leader);
        if outstanding > MAX_LOOKED_AT
            || redirect.is_some_and(|redirect| !redirect.may_go_on(self.now))
        {
            return Standing::Overtaken;
        }
        let overtaken = behind.iter().any(|(ticket, request)| {
            *self.walked += 1;
            *self.walked > MAX_WALKED
                || (ticket.client == leader.client
                    && !ticket.is_sibling(leader)
                    && may_meet(slot, route::slot_of(self.table, request)))
        });
        if overtaken { Standing::Overtaken } else { Standing::Last }
    }
}
