//! The room of hot keys driven by itself, without the event loop: what it answers to a request, and
//! what the relay notes for it.

use std::rc::Rc;

use heatsink_upstream::error::LinkError;

use crate::cluster::redirects::{Standing, WRONG_TYPE};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request, spans};
use crate::hot::mitigation::Reply;
use crate::hot::{Incoming, Mitigated};
use crate::hot_keys::{HotKeys, Treatment};
use crate::relay::effects::Effect;
use crate::runtime::scripted::{Rig, request};
use crate::runtime::worker::Worker;
use crate::upstream::effects::Effect as OfLinks;
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// A worker for which `k` and `l` are hot, between two of its turns, and a client of it.
fn rig(treatment: Treatment) -> (Rig, ClientKey) {
    let mut rig = Rig::new();
    rig.make_hot(&[("k", treatment), ("l", treatment)]);
    rig.idle_turn();
    rig.client();
    rig.settle();
    let client = rig.worker.relay.clients.key(0).expect("the first client");
    (rig, client)
}

/// Offers the room a request of a client.
fn offer(rig: &mut Rig, key: ClientKey, line: &str) -> Mitigated {
    let bytes = request(line);
    let args = spans(&bytes).expect("a request");
    let request = Request { bytes: &bytes, args: &args };
    let Worker { relay, hot, .. } = &mut rig.worker;
    let table = Rc::clone(&relay.table);
    let command = table.lookup(request.name(), request.arg(1)).expect("a command");
    hot.mitigate(relay, Incoming { key, request, command, together: false })
}

fn link_of(rig: &Rig, owner: Owner) -> usize {
    let mut links = rig.worker.relay.upstream.links.iter();
    links.find(|(_, upstream)| upstream.owner == owner).map(|(slot, _)| slot).expect("a link")
}

/// What is noted, in short.
fn noted(rig: &Rig) -> Vec<String> {
    fn name(effect: &impl std::fmt::Debug) -> String {
        format!("{effect:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()
    }
    let short = |effect: &Effect| match effect {
        Effect::OfLinks(OfLinks::Unanswered(ticket, _)) => match ticket.purpose {
            Purpose::Fill(_) => "read lost".to_owned(),
            Purpose::FillTtl(_) => "ttl lost".to_owned(),
            other => name(&other),
        },
        Effect::OfLinks(effect) => name(effect),
        Effect::OfCluster(effect) => name(effect),
        other => name(other),
    };
    rig.worker.relay.effects.iter().map(short).collect()
}

#[test]
fn a_read_is_served_from_the_cache_and_nothing_is_noted() {
    let (mut rig, client) = rig(Treatment::COHERENT);
    rig.directly(0, "SET k 1");
    rig.ask(0, "GET k");
    rig.ask(0, "GET k");
    assert_eq!(offer(&mut rig, client, "GET k"), Mitigated::Done(Flow::Taken));
    assert!(rig.worker.relay.effects.is_empty());
    let told = rig.worker.relay.clients.get_ref(client).expect("there").output.len();
    assert_eq!(told, "$1\r\n1\r\n".len(), "and it has its reply");
}

#[test]
fn what_no_mitigation_takes_goes_on_and_is_remembered() {
    let (mut rig, client) = rig(Treatment::COHERENT);
    let mitigated = offer(&mut rig, client, "APPEND k 1");
    assert!(matches!(mitigated, Mitigated::Marked(_)), "{mitigated:?}");
    // Its client's reads wait until that is answered; another's do not.
    assert_eq!(offer(&mut rig, client, "GET k"), Mitigated::Done(Flow::Wait));
    rig.client();
    rig.settle();
    let other = rig.worker.relay.clients.key(1).expect("the second client");
    assert_eq!(offer(&mut rig, other, "GET k"), Mitigated::Done(Flow::Taken));
}

/// First that nothing read along the link counts any more, then that its reads are lost: they are sent
/// again, and what they are told must not be kept as if it had come along that link.
#[test]
fn a_lost_link_is_told_of_before_the_reads_that_were_lost_with_it() {
    let (mut rig, client) = rig(Treatment::COHERENT);
    rig.directly(0, "SET l 2");
    rig.ask(0, "GET k");
    assert_eq!(offer(&mut rig, client, "GET l"), Mitigated::Done(Flow::Taken));
    let tracked = link_of(&rig, Owner::Tracked);
    rig.worker.relay.links().lose_link(tracked, &LinkError::Closed);
    assert_eq!(noted(&rig), ["TrackedLost", "NodeLost", "read lost", "ttl lost"]);
    // Nobody is told anything before the event loop has them carried out.
    assert!(rig.replies(0).is_empty());
    rig.worker.apply_effects();
    rig.idle_turn();
    rig.settle();
    assert_eq!(rig.replies(0), ["$1\r\n2\r\n"]);
}

/// The pool's place may have been taken by one of another user by the time at which a lost read is
/// sent again.
#[test]
fn a_lost_read_is_not_sent_along_another_pool_in_the_place_of_its_own() {
    let (mut rig, client) = rig(Treatment::COHERENT);
    rig.ask(0, "GET k");
    assert_eq!(offer(&mut rig, client, "GET l"), Mitigated::Done(Flow::Taken));
    let tracked = link_of(&rig, Owner::Tracked);
    rig.worker.relay.links().lose_link(tracked, &LinkError::Closed);
    let relay = &mut rig.worker.relay;
    let pool = relay.clients.get_ref(client).expect("there").pool;
    relay.upstream.pools[pool].serial += 1;
    rig.worker.apply_effects();
    rig.idle_turn();
    let replies = rig.replies(0);
    assert!(replies.len() == 1 && replies[0].starts_with("-ERR heatsink: "), "{replies:?}");
}

#[test]
fn an_increment_waits_for_nothing_and_answers_all_who_gave_one() {
    let (mut rig, client) = rig(Treatment { coalesce: true, ..Treatment::default() });
    assert_eq!(offer(&mut rig, client, "INCR k"), Mitigated::Done(Flow::Taken));
    assert_eq!(offer(&mut rig, client, "INCRBY k 2"), Mitigated::Done(Flow::Taken));
    let Worker { relay, hot, .. } = &mut rig.worker;
    hot.depart(relay);
    assert!(relay.effects.is_empty());
    // The first left alone; what came behind it leaves with its answer.
    let sent = Ticket::internal(Purpose::Combined(1));
    hot.on_reply(relay, sent, Reply::Frame { frame: b":3\r\n", redirected: false });
    rig.idle_turn();
    assert_eq!(rig.replies(0), [":1\r\n", ":3\r\n"]);
}

#[test]
fn a_refusal_for_the_type_of_a_value_is_the_mitigations_to_explain() {
    let mut rig = Rig::before_cluster(1);
    rig.client();
    rig.settle();
    let relay = &mut rig.worker.relay;
    let client = relay.clients.key(0).expect("the first client");
    let (pool, seq) = (relay.upstream.base_pool, 0);
    let ticket = Ticket { client, seq, purpose: Purpose::Redirect(0) };
    let error = [WRONG_TYPE, b"not that\r\n"].concat();
    relay.routing().go_elsewhere(
        pool,
        NodeId::FIRST,
        ticket,
        request("INCR k"),
        &error,
        Standing::Last,
    );
    assert_eq!(noted(&rig), ["WrongType"]);
}

#[test]
fn whoever_waits_for_a_value_looks_again_when_other_keys_are_hot() {
    let (mut rig, client) = rig(Treatment::COHERENT);
    assert_eq!(rig.worker.relay.routing().hold(client), Flow::Wait);
    rig.worker.relay.clients.resume.clear();
    rig.shared.publish_hot_keys(HotKeys::default());
    let Worker { relay, hot, .. } = &mut rig.worker;
    hot.begin_turn(relay);
    assert_eq!(relay.clients.resume, [client]);
    assert!(relay.cluster.moved.held.is_empty());
}
