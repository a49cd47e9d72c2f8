//! The room of sessions driven by itself, without the event loop: what it does with a request, and what
//! the relay notes for it.

use heatsink_upstream::error::LinkError;

use crate::downstream::connection::{ClientKey, Lost};
use crate::downstream::request::{Flow, Request, spans};
use crate::relay::effects::Effect;
use crate::runtime::scripted::{Rig, request};
use crate::session::dedicated::Expected;
use crate::upstream::effects::Effect as OfLinks;
use crate::upstream::links::Owner;
use crate::upstream::nodes::NodeId;

/// A worker between two of its turns, and a client of it.
fn rig() -> (Rig, ClientKey) {
    let mut rig = Rig::new();
    rig.client();
    rig.settle();
    let client = rig.worker.relay.clients.key(0).expect("the first client");
    (rig, client)
}

fn send(rig: &mut Rig, client: ClientKey, line: &str, expected: Expected) -> Flow {
    rig.worker.sessions().send_dedicated(client, NodeId::FIRST, &request(line), expected)
}

fn link_of(rig: &Rig, client: ClientKey) -> usize {
    let mut links = rig.worker.relay.upstream.links.iter();
    let link = links.find(|(_, upstream)| upstream.owner == Owner::Client(client));
    link.expect("its dedicated connection").0
}

#[test]
fn a_lost_dedicated_connection_is_told_of_and_its_watch_is_lost() {
    let (mut rig, client) = rig();
    assert_eq!(send(&mut rig, client, "WATCH k", Expected::Watch), Flow::Taken);
    rig.idle_turn();
    rig.settle();
    assert_eq!(rig.replies(0), ["+OK\r\n"]);
    let link = link_of(&rig, client);
    rig.worker.relay.links().lose_link(link, &LinkError::Closed);
    let noted: Vec<&Effect> = rig.worker.relay.effects.iter().collect();
    assert!(
        matches!(noted[..], [Effect::OfLinks(OfLinks::DedicatedLost(of, at, _))] if (*of, *at) == (client, link)),
        "{noted:?}"
    );
    let lost = |rig: &Rig| rig.worker.relay.clients.get_ref(client).expect("there").lost;
    assert_eq!(lost(&rig), Lost::Nothing, "the event loop has not carried it out");
    rig.worker.apply_effects();
    assert_eq!(lost(&rig), Lost::Watch);
    assert_eq!(rig.ask(0, "MULTI"), "+OK\r\n");
    assert!(rig.ask(0, "EXEC").starts_with("-EXECABORT"));
}

#[test]
fn a_login_whose_connection_is_lost_is_answered_and_its_client_goes_on() {
    let (mut rig, client) = rig();
    let bytes = request("SELECT 3");
    let args = spans(&bytes).expect("a request");
    let flow = rig.worker.sessions().select(client, Request { bytes: &bytes, args: &args });
    assert_eq!(flow, Flow::Taken);
    let relay = &mut rig.worker.relay;
    let pool = relay.upstream.pools.iter().find(|(_, pool)| pool.login.db == 3);
    let pool = pool.expect("a pool of its own").0;
    let link = relay.upstream.pools[pool].open_link(NodeId::FIRST).expect("asked along it");
    relay.links().lose_link(link, &LinkError::Closed);
    let noted: Vec<&Effect> = relay.effects.iter().collect();
    let [Effect::OfLinks(first), Effect::OfLinks(second), Effect::OfLinks(third)] = noted[..]
    else {
        panic!("{noted:?}")
    };
    assert!(matches!((first, second), (OfLinks::NodeFailed(_), OfLinks::NodeLost(_))), "{noted:?}");
    assert!(matches!(third, OfLinks::Unanswered(of, _) if of.client == client), "{noted:?}");
    rig.worker.apply_effects();
    rig.idle_turn();
    rig.settle();
    let replies = rig.replies(0);
    assert!(replies.len() == 1 && replies[0].starts_with("-ERR heatsink: "), "{replies:?}");
    assert_eq!(rig.ask(0, "PING"), "+PONG\r\n");
}

#[test]
fn what_a_client_that_has_gone_would_block_for_is_not_sent() {
    let (mut rig, client) = rig();
    rig.worker.relay.clients.get(client).expect("there").gone = true;
    assert_eq!(send(&mut rig, client, "BLPOP q 0", Expected::Blocking), Flow::Taken);
    let noted: Vec<&Effect> = rig.worker.relay.effects.iter().collect();
    assert!(matches!(noted[..], [Effect::Close(of)] if *of == client), "{noted:?}");
    let links = &rig.worker.relay.upstream.links;
    assert!(links.iter().all(|(_, link)| link.owner != Owner::Client(client)));
    rig.worker.apply_effects();
    assert!(rig.worker.relay.clients.get_ref(client).is_none());
}
