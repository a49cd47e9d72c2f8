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
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

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
}

/// A server: an engine and the connections to it.
pub(crate) struct Server {
    endpoint: String,
    pub(crate) engine: Engine,
    pub(crate) connections: Vec<ServerConnection>,
    /// Commands that were executed.
    pub(crate) executed: Vec<String>,
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

impl Rig {
    /// A worker before one server.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same with settings of its own.
    pub(crate) fn with(change: impl FnOnce(&mut Live)) -> Self {
        let endpoint = Endpoint::tcp("127.0.0.1", 1);
        let upstream = Upstream::new(Target::Server(endpoint.clone()));
        let mut live = Live::default();
        change(&mut live);
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
        let server = Server {
            endpoint: endpoint.to_string(),
            engine: Engine::new(1, 0),
            connections: Vec::new(),
            executed: Vec::new(),
        };
        let mut rig = Self {
            worker,
            shared,
            servers: vec![server],
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
        self.clients[client].end.send(&bytes);
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
    pub(crate) fn execute(&mut self, server: usize, connection: usize) -> bool {
        let now_ms = self.now_ms();
        let server = &mut self.servers[server];
        let Some(request) = server.connections[connection].requests.pop_front() else {
            return false;
        };
        let id = server.connections[connection].id;
        server.executed.push(words(&request));
        server.engine.feed(id, &request, now_ms);
        server.collect_output();
        true
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
    pub(crate) fn has_undelivered(&self, server: usize) -> bool {
        self.servers[server].connections.iter().any(|connection| !connection.output.is_empty())
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
}
