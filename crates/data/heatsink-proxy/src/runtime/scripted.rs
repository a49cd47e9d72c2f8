//! A whole worker without sockets, threads or sleep: a test plays its clients, its servers and its clock.
//!
//! Called by: tests of interleavings and of random schedules.
//!
//! The servers are engines of `heatsink-embedded`. Between a client and a key there are four moments, and
//! a test decides when each comes:
//!
//! ```text
//! client ── bytes ──> worker ── take_turn ──> connection ── execute ──> engine
//!        <── bytes ──        <── take_turn ──            <── deliver ──
//! ```
//!
//! [`Rig::settle`] has everything happen at once, in the usual order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use heatsink_cluster::slot;
use heatsink_embedded::{ConnId, Engine};
use heatsink_resp::encode;
use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::request::{Limits, RequestScan, Status as Requested};
use heatsink_upstream::Connection;
use heatsink_upstream::address::Endpoint;
use heatsink_upstream::scripted::{End, Watch, pair};
use mio::Token;

use crate::config::{Live, Target, Upstream};
use crate::hot_keys::{HotKeys, Treatment};
use crate::runtime::clock::{Clock, Manual};
use crate::runtime::shared::{Mailbox, Message, Shared};
use crate::runtime::socket::Socket;
use crate::runtime::worker::Worker;
use crate::runtime::world::{Ready, World};

/// Turns after which a worker that still has something to do does it for ever.
const MANY_TURNS: usize = 10_000;

/// What a worker finds in the place of sockets.
#[derive(Clone, Default)]
pub(crate) struct Network {
    wires: Rc<RefCell<Wires>>,
}

#[derive(Default)]
struct Wires {
    watches: Vec<(Token, Watch)>,
    /// Connections that the worker has opened, until their server takes them.
    opened: VecDeque<(String, End)>,
    /// Servers that refuse connections.
    refused: Vec<String>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Network {
    pub(crate) fn signs(&self, ready: &mut Vec<Ready>) {
        let mut wires = self.wires.borrow_mut();
        wires.watches.retain(|(_, watch)| !watch.is_over());
        for (token, watch) in &mut wires.watches {
            if let Some(signs) = watch.signs() {
                ready.push(Ready {
                    token: *token,
                    readable: signs.readable,
                    writable: signs.writable,
                    read_closed: signs.read_closed,
                    write_closed: signs.write_closed,
                    error: false,
                });
            }
        }
    }

    pub(crate) fn watch_client(&self, socket: &Socket, token: Token) {
        if let Socket::Scripted(end) = socket {
            self.wires.borrow_mut().watches.push((token, end.watch()));
        }
    }

    pub(crate) fn connect(&self, endpoint: &Endpoint, token: Token) -> io::Result<Connection> {
        let mut wires = self.wires.borrow_mut();
        let endpoint = endpoint.to_string();
        if wires.refused.contains(&endpoint) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = pair();
        wires.watches.push((token, near.watch()));
        wires.opened.push_back((endpoint, far));
        Ok(Connection::scripted(near))
    }
}

/// A connection that the worker has opened to a server.
pub(crate) struct ServerConnection {
    end: End,
    id: ConnId,
    scan: RequestScan,
    received: Vec<u8>,
    /// Requests that have come and are not executed.
    pub(crate) requests: VecDeque<Vec<u8>>,
    /// What the server has said and the worker has not been given.
    output: Vec<u8>,
    /// All commands so far, in small letters.
    pub(crate) commands: Vec<String>,
    /// The last one was `ASKING`.
    is_asking: bool,
}

/// A server: an engine and the connections to it.
pub(crate) struct Server {
    endpoint: String,
    pub(crate) engine: Engine,
    pub(crate) connections: Vec<ServerConnection>,
    /// Commands that were executed.
    pub(crate) executed: Vec<String>,
}

/// Which server of a cluster has which slot.
struct Map {
    owners: Vec<usize>,
    /// A slot that is on its way, from whom and to whom.
    moving: Option<(u16, usize, usize)>,
    /// Who has had slots that are another's now.
    before: Vec<(u16, usize)>,
}

/// A client's side of a connection.
struct Client {
    end: End,
    received: Vec<u8>,
}

/// One worker with its clients, servers and clock.
pub(crate) struct Rig {
    pub(crate) worker: Worker,
    pub(crate) shared: Arc<Shared>,
    pub(crate) servers: Vec<Server>,
    /// None before one server.
    map: Option<Map>,
    /// The last request that a node did not execute, and what it said.
    pub(crate) refused: String,
    clock: Manual,
    passed: Duration,
    network: Network,
    clients: Vec<Client>,
    ready: Vec<Ready>,
    _mail: mpsc::Sender<Message>,
}

/// A request in words: `SET k v`.
pub(crate) fn request(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words: Vec<&str> = line.split(' ').collect();
    encode::command(&mut bytes, &words);
    bytes
}

/// The words of a request.
fn words(request: &[u8]) -> String {
    let mut args = Vec::new();
    let scanned = RequestScan::default().advance(request, &Limits::default(), |arg| args.push(arg));
    assert!(matches!(scanned, Ok(Requested::Complete { .. })), "{request:?}");
    let words: Vec<_> =
        args.into_iter().map(|arg| String::from_utf8_lossy(&request[arg])).collect();
    words.join(" ")
}

/// The key of a command that names one, in words.
fn key_of(line: &str) -> Option<&str> {
    let (command, rest) = line.split_once(' ')?;
    let commands = ["GET", "SET", "DEL", "INCR", "INCRBY", "APPEND", "STRLEN", "PTTL", "MGET"];
    let is_keyed = commands.iter().any(|one| one.eq_ignore_ascii_case(command));
    is_keyed.then(|| rest.split(' ').next().unwrap_or_default())
}

impl Map {
    /// The reply to `CLUSTER SLOTS`.
    fn slots(&self) -> Vec<u8> {
        let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
        for (slot, owner) in self.owners.iter().enumerate() {
            match ranges.last_mut() {
                Some((_, last, of)) if of == owner => *last = slot,
                _ => ranges.push((slot, slot, *owner)),
            }
        }
        let mut reply = format!("*{}\r\n", ranges.len());
        for (first, last, owner) in ranges {
            let (port, id) = (owner + 1, format!("{owner:040}"));
            let node = format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{id}\r\n");
            let _ = write!(reply, "*3\r\n:{first}\r\n:{last}\r\n{node}");
        }
        reply.into_bytes()
    }
}

impl Rig {
    /// A worker before one server.
    pub(crate) fn new() -> Self {
        Self::before(Target::Server(Endpoint::tcp("127.0.0.1", 1)), 1, None)
    }

    /// A worker before a cluster of so many servers, among which the slots are divided evenly.
    pub(crate) fn before_cluster(count: usize) -> Self {
        let seeds = (1..=count).map(|port| ("127.0.0.1".to_owned(), port as u16));
        let owners = (0..slot::COUNT).map(|slot| slot * count / slot::COUNT).collect();
        let map = Map { owners, moving: None, before: Vec::new() };
        Self::before(Target::Cluster(seeds.collect()), count, Some(map))
    }

    fn before(target: Target, count: usize, map: Option<Map>) -> Self {
        let upstream = Upstream::new(target);
        let live = Live::default();
        let (sender, mail) = mpsc::channel();
        let mailbox = Mailbox { sender: sender.clone(), waker: None };
        let manual = Manual::new();
        let clock = Clock::Manual(manual.clone());
        let shared = Arc::new(Shared::new(
            &upstream,
            None,
            None,
            live,
            usize::MAX,
            vec![mailbox],
            clock.clone(),
        ));
        let network = Network::default();
        let world = World::scripted(clock, network.clone());
        let worker = Worker::new(0, world, mail, Arc::clone(&shared), None);
        let server = |port: usize| Server {
            endpoint: Endpoint::tcp("127.0.0.1", port as u16).to_string(),
            engine: Engine::new(port as u64, 0),
            connections: Vec::new(),
            executed: Vec::new(),
        };
        let mut rig = Self {
            worker,
            shared,
            servers: (1..=count).map(server).collect(),
            map,
            refused: String::new(),
            clock: manual,
            passed: Duration::ZERO,
            network,
            clients: Vec::new(),
            ready: Vec::new(),
            _mail: sender,
        };
        rig.settle();
        rig
    }

    /// A new client; its number.
    pub(crate) fn client(&mut self) -> usize {
        let end = self.connect_client();
        self.clients.push(Client { end, received: Vec::new() });
        self.clients.len() - 1
    }

    fn connect_client(&mut self) -> End {
        let (near, far) = pair();
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let addresses = [address(40_000), address(6380)];
        let added = self.worker.add_client(Socket::Scripted(near), addresses, false);
        added.expect("nothing prevents it");
        far
    }

    /// A client sends requests, in one piece.
    pub(crate) fn send(&mut self, client: usize, lines: &[&str]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| request(line)).collect();
        self.send_bytes(client, &bytes);
    }

    /// A client sends bytes.
    pub(crate) fn send_bytes(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].end.send(bytes);
    }

    /// A client closes its connection, and another has its number from now on.
    pub(crate) fn replace_client(&mut self, client: usize) {
        let end = self.connect_client();
        self.clients[client] = Client { end, received: Vec::new() };
    }

    /// What a client was told since it last looked: its complete replies.
    pub(crate) fn replies(&mut self, client: usize) -> Vec<String> {
        let Client { end, received, .. } = &mut self.clients[client];
        received.extend(end.take_all());
        let mut replies = Vec::new();
        while let Ok(Status::Complete(len)) = ReplyScan::default().advance(received) {
            let frame: Vec<u8> = received.drain(..len).collect();
            replies.push(String::from_utf8_lossy(&frame).into_owned());
        }
        replies
    }

    /// A client sends a request, everything happens at once, and it is told the reply.
    pub(crate) fn ask(&mut self, client: usize, line: &str) -> String {
        self.send(client, &[line]);
        self.settle();
        let mut replies = self.replies(client);
        assert_eq!(replies.len(), 1, "{line}: {replies:?}");
        replies.remove(0)
    }

    /// Keys are treated like this from the worker's next turn on, and no others.
    pub(crate) fn make_hot(&mut self, keys: &[(&str, Treatment)]) {
        let keys = keys.iter().map(|(key, treatment)| (key.as_bytes().to_vec(), *treatment));
        self.shared.publish_hot_keys(keys.collect::<HotKeys>());
    }

    /// The worker takes a turn with whatever has happened to its sockets, if anything has, or
    /// something is due; whether it had anything to do.
    pub(crate) fn turn(&mut self) -> bool {
        let is_due = self.worker.is_due();
        self.worker.wait(&mut self.ready, Duration::ZERO);
        let has_work = is_due || !self.ready.is_empty();
        if has_work {
            self.worker.take_turn(&self.ready);
        }
        has_work
    }

    /// A turn whatever has happened: it takes over other hot keys, say.
    pub(crate) fn idle_turn(&mut self) {
        self.worker.wait(&mut self.ready, Duration::ZERO);
        self.worker.take_turn(&self.ready);
    }

    /// The same, and the process stands still for so long right behind the turn's look at the clock.
    pub(crate) fn turn_with_pause(&mut self, time: Duration) {
        self.worker.wait(&mut self.ready, Duration::ZERO);
        self.clock.pause_behind_next_look(time);
        self.worker.take_turn(&self.ready);
        self.passed += time;
    }

    /// Servers take what was sent to them; nothing is executed.
    pub(crate) fn receive(&mut self) {
        let now_ms = self.now_ms();
        let mut wires = self.network.wires.borrow_mut();
        for (endpoint, end) in wires.opened.drain(..) {
            let server = self.servers.iter_mut().find(|server| server.endpoint == endpoint);
            let server = server.expect("a server that was named");
            let id = server.engine.connect(now_ms);
            server.connections.push(ServerConnection {
                end,
                id,
                scan: RequestScan::default(),
                received: Vec::new(),
                requests: VecDeque::new(),
                output: Vec::new(),
                commands: Vec::new(),
                is_asking: false,
            });
        }
        for server in &mut self.servers {
            let Server { engine, connections, .. } = server;
            connections.retain_mut(|connection| {
                connection.receive();
                let is_open = !connection.end.has_ended() || !connection.requests.is_empty();
                if !is_open {
                    engine.disconnect(connection.id);
                }
                is_open
            });
        }
    }

    /// A server executes the oldest request of a connection, if there is one; what it says to it, and
    /// tells others of, waits to be delivered.
    pub(crate) fn execute(&mut self, at: usize, connection: usize) -> bool {
        let now_ms = self.now_ms();
        let server = &mut self.servers[at];
        let Some(request) = server.connections[connection].requests.pop_front() else {
            return false;
        };
        let line = words(&request);
        if let Some(answer) = self.answer_as_node(at, connection, &line) {
            self.refused = format!("{line}: {}", String::from_utf8_lossy(&answer).trim_end());
            self.servers[at].connections[connection].output.extend(answer);
            return true;
        }
        let server = &mut self.servers[at];
        let id = server.connections[connection].id;
        server.executed.push(line);
        server.engine.feed(id, &request, now_ms);
        server.collect_output();
        true
    }

    /// What a node of a cluster says to a request that it does not execute; none if it does, or is no
    /// such node.
    fn answer_as_node(&mut self, at: usize, connection: usize, line: &str) -> Option<Vec<u8>> {
        let map = self.map.as_ref()?;
        let connection = &mut self.servers[at].connections[connection];
        let has_asked = std::mem::take(&mut connection.is_asking);
        match line {
            "CLUSTER SLOTS" => return Some(map.slots()),
            "ASKING" => {
                connection.is_asking = true;
                return Some(b"+OK\r\n".to_vec());
            }
            "READONLY" => return Some(b"+OK\r\n".to_vec()),
            _ => {}
        }
        let key = key_of(line)?;
        let slot = slot::of_key(key.as_bytes());
        let owner = map.owners[usize::from(slot)];
        let port = |server: usize| server + 1;
        let moving = map.moving.filter(|(moving, _, _)| *moving == slot);
        match moving {
            Some((_, from, to)) if at == from && !self.has(from, key) => {
                Some(format!("-ASK {slot} 127.0.0.1:{}\r\n", port(to)).into_bytes())
            }
            Some((_, _, to)) if at == to && has_asked => None,
            _ if at == owner => None,
            _ => Some(format!("-MOVED {slot} 127.0.0.1:{}\r\n", port(owner)).into_bytes()),
        }
    }

    fn has(&mut self, server: usize, key: &str) -> bool {
        self.directly(server, &format!("EXISTS {key}")) == ":1\r\n"
    }

    /// The server that has a key at this moment.
    pub(crate) fn home_of(&mut self, key: &str) -> usize {
        let slot = slot::of_key(key.as_bytes());
        let Some(map) = &self.map else { return 0 };
        match map.moving {
            Some((moving, from, to)) if moving == slot => {
                if self.has(from, key) {
                    from
                } else {
                    to
                }
            }
            _ => map.owners[usize::from(slot)],
        }
    }

    /// Begins to move the slot of a key to another server.
    pub(crate) fn begin_move(&mut self, key: &str, to: usize) {
        let slot = slot::of_key(key.as_bytes());
        let map = self.map.as_mut().expect("a cluster");
        let from = map.owners[usize::from(slot)];
        let is_early = map.before.contains(&(slot, to)) && !self.servers[to].is_idle();
        if map.moving.is_none() && from != to && !is_early {
            map.moving = Some((slot, from, to));
        }
    }

    /// Moves the key of the slot that is on its way.
    pub(crate) fn move_key(&mut self, key: &str) {
        let Some((slot, from, to)) = self.map.as_ref().and_then(|map| map.moving) else { return };
        if slot::of_key(key.as_bytes()) != slot || !self.has(from, key) {
            return;
        }
        let value = self.directly(from, &format!("GET {key}"));
        let value = value.split("\r\n").nth(1).unwrap_or_default().to_owned();
        self.directly(to, &format!("SET {key} {value}"));
        self.directly(from, &format!("DEL {key}"));
    }

    /// The slot that is on its way has arrived; its key goes with it. It does not come back to a
    /// server that has not looked at all that it was sent while the slot was another's: that takes
    /// longer than a request is under way. See "Order" in [`crate::cluster`].
    pub(crate) fn end_move(&mut self, keys: &[&str]) {
        let Some((slot, from, to)) = self.map.as_ref().and_then(|map| map.moving) else { return };
        let had = self.map.as_ref().is_some_and(|map| map.before.contains(&(slot, to)));
        if had && !self.servers[to].is_idle() {
            return;
        }
        for key in keys {
            self.move_key(key);
        }
        if let Some(map) = &mut self.map {
            map.moving = None;
            map.owners[usize::from(slot)] = to;
            map.before.push((slot, from));
        }
    }

    /// The worker is given what a server has said on a connection, if anything.
    pub(crate) fn deliver(&mut self, server: usize, connection: usize) -> bool {
        let connection = &mut self.servers[server].connections[connection];
        let output = std::mem::take(&mut connection.output);
        if !output.is_empty() {
            connection.end.send(&output);
        }
        !output.is_empty()
    }

    /// What a server has to say on a connection of itself is lost.
    pub(crate) fn lose_pushes(&mut self, server: usize, connection: usize) {
        let output = &mut self.servers[server].connections[connection].output;
        let mut kept = Vec::new();
        while let Ok(Status::Complete(len)) = ReplyScan::default().advance(output) {
            let frame: Vec<u8> = output.drain(..len).collect();
            if !frame.starts_with(b">") {
                kept.extend(frame);
            }
        }
        *output = kept;
    }

    /// Whether a server has said something that the worker was not given.
    pub(crate) fn has_undelivered(&self) -> bool {
        let mut connections = self.servers.iter().flat_map(|server| &server.connections);
        connections.any(|connection| !connection.output.is_empty())
    }

    /// Whether the worker was given something that it has not looked at.
    pub(crate) fn has_unread(&self) -> bool {
        let connections = self.servers.iter().flat_map(|server| &server.connections);
        connections.into_iter().any(|connection| connection.end.has_unread())
    }

    /// A server closes a connection.
    pub(crate) fn cut(&mut self, server: usize, connection: usize) {
        let server = &mut self.servers[server];
        let cut = server.connections.remove(connection);
        server.engine.disconnect(cut.id);
    }

    /// Who knows the server directly, past the worker, writes.
    pub(crate) fn directly(&mut self, server: usize, line: &str) -> String {
        let now_ms = self.now_ms();
        let server = &mut self.servers[server];
        let id = server.engine.connect(now_ms);
        server.engine.feed(id, &request(line), now_ms);
        let reply = server.engine.take_output(id);
        server.engine.disconnect(id);
        server.collect_output();
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// All that is executed and said, until the worker has nothing more to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MANY_TURNS {
            let mut has_moved = self.turn();
            self.receive();
            for server in 0..self.servers.len() {
                for connection in 0..self.servers[server].connections.len() {
                    while self.execute(server, connection) {
                        has_moved = true;
                    }
                }
                for connection in 0..self.servers[server].connections.len() {
                    has_moved |= self.deliver(server, connection);
                }
            }
            if !has_moved {
                return;
            }
        }
        panic!("the worker does not come to rest");
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.clock.advance(time);
        self.passed += time;
        let now_ms = self.now_ms();
        for server in &mut self.servers {
            server.engine.tick(now_ms);
            server.collect_output();
        }
    }

    fn now_ms(&self) -> u64 {
        1_800_000_000_000 + self.passed.as_millis() as u64
    }

    /// The connection that clients share.
    pub(crate) fn shared(&self) -> usize {
        self.connection(|commands| commands.iter().any(|one| one == "client setname heatsink"))
    }

    /// The connection on which the server tells of changes of hot keys.
    pub(crate) fn tracked(&self) -> usize {
        self.connection(|commands| commands.iter().any(|one| one == "client tracking on optin"))
    }

    fn connection(&self, is_it: impl Fn(&[String]) -> bool) -> usize {
        let connections = &self.servers[0].connections;
        let found = connections.iter().position(|connection| is_it(&connection.commands));
        found.expect("a connection like that")
    }

    /// The worker sends, and the first server takes what was sent: what waits there to be executed.
    pub(crate) fn waiting(&mut self, connection: usize) -> Vec<String> {
        self.turns();
        let requests = &self.servers[0].connections[connection].requests;
        requests.iter().map(|request| words(request)).collect()
    }

    /// The worker does what it can do by itself.
    pub(crate) fn turns(&mut self) {
        for _ in 0..MANY_TURNS {
            let has_moved = self.turn();
            self.receive();
            if !has_moved {
                return;
            }
        }
        panic!("the worker does not come to rest");
    }

    /// The first server executes all that waits on a connection, and says what it has to say on it.
    pub(crate) fn serve(&mut self, connection: usize) {
        self.turns();
        while self.execute(0, connection) {}
        self.deliver(0, connection);
        self.turns();
    }
}

impl ServerConnection {
    /// Nothing is under way on it, in either direction.
    fn is_idle(&self) -> bool {
        let Self { requests, received, output, end, .. } = self;
        requests.is_empty() && received.is_empty() && output.is_empty() && end.is_idle()
    }

    fn receive(&mut self) {
        self.received.extend(self.end.take_all());
        loop {
            let scanned = self.scan.advance(&self.received, &Limits::default(), |_| {});
            let Ok(Requested::Complete { len }) = scanned else { return };
            let request: Vec<u8> = self.received.drain(..len).collect();
            self.commands.push(words(&request).to_lowercase());
            self.requests.push_back(request);
        }
    }
}

impl Server {
    fn is_idle(&self) -> bool {
        self.connections.iter().all(ServerConnection::is_idle)
    }

    fn collect_output(&mut self) {
        while let Some(id) = self.engine.next_dirty() {
            let output = self.engine.take_output(id);
            if let Some(connection) = self.connections.iter_mut().find(|one| one.id == id) {
                connection.output.extend(output);
            }
        }
    }
}

mod tests {
    use super::*;

    const COHERENT: Treatment = Treatment::COHERENT;

    #[test]
    fn a_request_goes_to_the_server_and_its_reply_to_the_client() {
        let mut rig = Rig::new();
        let client = rig.client();
        assert_eq!(rig.ask(client, "SET k v"), "+OK\r\n");
        assert_eq!(rig.ask(client, "GET k"), "$1\r\nv\r\n");
        assert_eq!(rig.directly(0, "GET k"), "$1\r\nv\r\n");
    }

    #[test]
    fn reads_of_a_hot_key_are_answered_here_until_it_changes() {
        let mut rig = Rig::new();
        rig.directly(0, "SET k 1");
        rig.make_hot(&[("k", COHERENT)]);
        rig.idle_turn();
        let client = rig.client();
        // Until the connection is there on which the server tells of changes, reads go as usual.
        for _ in 0..2 {
            assert_eq!(rig.ask(client, "GET k"), "$1\r\n1\r\n");
        }
        let executed = rig.servers[0].executed.len();
        assert_eq!(rig.ask(client, "GET k"), "$1\r\n1\r\n");
        assert_eq!(rig.servers[0].executed.len(), executed, "{:?}", rig.servers[0].executed);
        rig.directly(0, "SET k 2");
        rig.settle();
        assert_eq!(rig.ask(client, "GET k"), "$1\r\n2\r\n");
    }

    #[test]
    fn a_slot_that_moves_is_followed() {
        let mut rig = Rig::before_cluster(3);
        let client = rig.client();
        assert_eq!(rig.ask(client, "SET k 1"), "+OK\r\n");
        let (home, other) = (rig.home_of("k"), (rig.home_of("k") + 1) % 3);
        rig.begin_move("k", other);
        assert_eq!(rig.ask(client, "GET k"), "$1\r\n1\r\n");
        rig.move_key("k");
        // ASK, and then MOVED.
        assert_eq!(rig.ask(client, "APPEND k 2"), ":2\r\n");
        rig.end_move(&["k"]);
        assert_eq!(rig.ask(client, "GET k"), "$2\r\n12\r\n");
        assert_eq!(rig.directly(home, "EXISTS k"), ":0\r\n");
    }
}
