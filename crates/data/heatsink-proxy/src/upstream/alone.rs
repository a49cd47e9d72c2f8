//! The room of links driven by itself, without the cluster, the sessions and the mitigations: what it
//! notes for them.

use heatsink_upstream::Login;
use heatsink_upstream::error::LinkError;

use crate::downstream::connection::ClientKey;
use crate::runtime::scripted::{Rig, request};
use crate::upstream::Links;
use crate::upstream::effects::{Effect, Unsent};
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// A client between two turns of its worker.
fn client_of(rig: &mut Rig) -> ClientKey {
    rig.client();
    rig.settle();
    rig.worker.relay.clients.key(0).expect("the first client")
}

/// The room, with what it stands on, and a list for what it notes.
fn links<'a>(rig: &'a mut Rig, noted: &'a mut Vec<Effect>) -> Links<'a, Vec<Effect>> {
    let relay = &mut rig.worker.relay;
    Links {
        room: &mut relay.upstream,
        clients: &mut relay.clients,
        world: &mut relay.world,
        shared: &relay.shared,
        live: &relay.live,
        table: &relay.table,
        now: relay.now,
        next_tick: &mut relay.next_tick,
        effects: noted,
    }
}

/// A pool that has no connection yet.
fn new_pool(rig: &mut Rig) -> usize {
    let login = Login { db: 3, ..rig.shared.base_login.clone() };
    links(rig, &mut Vec::new()).pool_for(&login).expect("a pool")
}

#[test]
fn a_request_along_a_link_that_is_there_notes_nothing() {
    let (mut rig, mut noted) = (Rig::new(), Vec::new());
    let client = client_of(&mut rig);
    let mut links = links(&mut rig, &mut noted);
    let link = links.link_for(client, links.room.base_pool, NodeId::FIRST).expect("a link");
    links.room.push_to_link(links.now, link, &request("GET k"), Ticket::internal(Purpose::Ignored));
    assert!(noted.is_empty(), "{noted:?}");
}

#[test]
fn what_a_lost_link_owed_is_noted_in_the_order_in_which_it_was_asked() {
    let (mut rig, mut noted) = (Rig::new(), Vec::new());
    client_of(&mut rig);
    let mut links = links(&mut rig, &mut noted);
    let link = links.base_link(NodeId::FIRST).expect("a link");
    for purpose in [Purpose::Fill(7), Purpose::Ignored, Purpose::Session] {
        links.room.push_to_link(links.now, link, &request("GET k"), Ticket::internal(purpose));
    }
    links.lose_link(link, &LinkError::Closed);
    assert!(links.room.links.get(link).is_none());
    let owed: Vec<Purpose> = noted
        .iter()
        .filter_map(|effect| match effect {
            Effect::Unanswered(ticket, _) => Some(ticket.purpose),
            _ => None,
        })
        .collect();
    assert_eq!(owed, [Purpose::Fill(7), Purpose::Session]);
    // Those who may find out where the server went, or what it is now, hear of it first.
    let [Effect::NodeFailed(failed), Effect::NodeLost(lost), ..] = noted[..] else {
        panic!("{noted:?}")
    };
    assert_eq!([failed, lost], [NodeId::FIRST; 2]);
}

#[test]
fn what_a_link_has_not_sent_is_given_back_when_it_is_used_no_more() {
    let (mut rig, mut noted) = (Rig::before_cluster(1), Vec::new());
    client_of(&mut rig);
    let pool = new_pool(&mut rig);
    let mut links = links(&mut rig, &mut noted);
    let link = links.pool_link(pool, NodeId::FIRST).expect("a link");
    let (ticket, bytes) = (Ticket::internal(Purpose::Redirect(0)), request("SET k 1"));
    links.room.push_to_link(links.now, link, &bytes, ticket);
    links.retire_link(link, false);
    let serial = Some(links.room.pools[pool].serial);
    let [Effect::SendElsewhere(unsent)] = &noted[..] else { panic!("{noted:?}") };
    let Unsent { way, requests, only_reads } = &**unsent;
    assert_eq!((way, requests), (&(pool, serial), &vec![(ticket, bytes)]));
    assert!(!only_reads, "nothing of it was sent");
}

/// The pool's place may have been taken by one of another user by the time at which that is carried out.
#[test]
fn what_was_given_back_is_not_asked_along_another_pool_in_the_place_of_its_own() {
    let mut rig = Rig::before_cluster(1);
    let client = client_of(&mut rig);
    let pool = new_pool(&mut rig);
    let relay = &mut rig.worker.relay;
    let (record, buffers) = relay.clients.get_with_buffers(client).expect("there");
    let place = record.order.reserve(buffers);
    let ticket = Ticket { client, seq: 0, purpose: Purpose::Redirect(place) };
    let link = relay.links().pool_link(pool, NodeId::FIRST).expect("a link");
    relay.upstream.push_to_link(relay.now, link, &request("SET k 1"), ticket);
    relay.links().retire_link(link, false);
    relay.upstream.pools[pool].serial += 1;
    rig.worker.apply_effects();
    rig.idle_turn();
    assert_eq!(rig.replies(0), ["-ERR heatsink: given up\r\n"]);
}
