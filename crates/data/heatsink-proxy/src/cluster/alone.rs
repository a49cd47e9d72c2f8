//! The room of the cluster driven by itself, without the sessions and the mitigations: what it does with a
//! request, and what it notes for them.

use heatsink_cluster::slot;

use crate::cluster::Routing;
use crate::cluster::effects::Effect;
use crate::cluster::redirects::Standing;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request, spans};
use crate::runtime::scripted::{Rig, request};
use crate::upstream;
use crate::upstream::effects::Note;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// What was noted, the first first.
#[derive(Debug, Default)]
struct Noted {
    of_links: Vec<upstream::effects::Effect>,
    of_cluster: Vec<Effect>,
}

impl Note<upstream::effects::Effect> for Noted {
    fn note(&mut self, effect: upstream::effects::Effect) {
        self.of_links.push(effect);
    }
}

impl Note<Effect> for Noted {
    fn note(&mut self, effect: Effect) {
        self.of_cluster.push(effect);
    }
}

/// A worker before two nodes, between two of its turns, and a client of it whose key is the first one's.
fn rig() -> (Rig, ClientKey) {
    let mut rig = Rig::before_cluster(2);
    rig.client();
    rig.settle();
    rig.ask(0, &format!("SET {} 1", key_of_first()));
    let client = rig.worker.relay.clients.key(0).expect("the first client");
    (rig, client)
}

/// A key whose slot is in the lower half.
fn key_of_first() -> String {
    let names = (0..100).map(|number| format!("k{number}"));
    let mut of_first =
        names.filter(|name| usize::from(slot::of_key(name.as_bytes())) < slot::COUNT / 2);
    of_first.next().expect("one of them")
}

/// The room, with what it stands on, and a list for what it notes.
fn routing<'a>(rig: &'a mut Rig, noted: &'a mut Noted) -> Routing<'a, Noted> {
    let relay = &mut rig.worker.relay;
    Routing {
        room: &mut relay.cluster,
        upstream: &mut relay.upstream,
        clients: &mut relay.clients,
        observer: &mut relay.observer,
        world: &mut relay.world,
        shared: &relay.shared,
        live: &relay.live,
        table: &relay.table,
        now: relay.now,
        next_tick: &mut relay.next_tick,
        effects: noted,
    }
}

/// The first node says that the second one has the key of a read.
fn moved(rig: &mut Rig, noted: &mut Noted, client: ClientKey, port: u16) {
    let name = key_of_first();
    let (record, buffers) = rig.worker.relay.clients.get_with_buffers(client).expect("there");
    let ticket =
        Ticket { client, seq: 0, purpose: Purpose::Redirect(record.order.reserve(buffers)) };
    let error = format!("-MOVED {} 127.0.0.1:{port}\r\n", slot::of_key(name.as_bytes()));
    let mut routing = routing(rig, noted);
    let pool = routing.upstream.base_pool;
    let request = request(&format!("GET {name}"));
    let from = NodeId::FIRST;
    routing.go_elsewhere(pool, from, ticket, request, error.as_bytes(), Standing::Last);
}

#[test]
fn a_request_that_goes_to_the_node_of_its_key_notes_nothing() {
    let ((mut rig, client), mut noted) = (rig(), Noted::default());
    let bytes = request(&format!("GET {}", key_of_first()));
    let args = spans(&bytes).expect("a request");
    let table = std::rc::Rc::clone(&rig.worker.relay.table);
    let command = table.lookup(b"GET", None).expect("a command");
    let request = Request { bytes: &bytes, args: &args };
    let flow = routing(&mut rig, &mut noted).forward_clustered(client, request, command);
    assert_eq!(flow, Flow::Taken);
    assert!(noted.of_links.is_empty() && noted.of_cluster.is_empty(), "{noted:?}");
    rig.idle_turn();
    rig.settle();
    assert_eq!(rig.replies(0), ["$1\r\n1\r\n"]);
}

#[test]
fn a_request_that_a_node_sends_to_another_is_sent_on_and_the_map_is_wanted() {
    let ((mut rig, client), mut noted) = (rig(), Noted::default());
    moved(&mut rig, &mut noted, client, 2);
    assert!(matches!(noted.of_cluster[..], [Effect::Resent(_, of)] if of == client), "{noted:?}");
    assert!(rig.worker.relay.cluster.later.is_empty());
}

/// Whatever a script or a module says, no address outside of the cluster is spoken to.
#[test]
fn a_node_that_nobody_knows_is_not_asked_and_the_request_is_tried_again() {
    let ((mut rig, client), mut noted) = (rig(), Noted::default());
    let links = rig.worker.relay.upstream.links.len();
    moved(&mut rig, &mut noted, client, 99);
    assert!(noted.of_cluster.is_empty(), "{noted:?}");
    assert_eq!(rig.worker.relay.cluster.later.len(), 1);
    assert_eq!(rig.worker.relay.upstream.links.len(), links);
}
