//! Engine: bytes of connections in, bytes out; no sockets, no clock.
//!
//! Called by: `server`, and by simulations directly.
//! Bound: input per connection by the request limits of `heatsink-resp`, output by
//! [`Engine::OUTPUT_BYTES_MAX`], expiry per tick by `EXPIRED_PER_TICK`.
//! Invariant: given the same seed, calls and times, the output is the same.

use heatsink_resp::inline;
use heatsink_resp::request::{Limits, Status};

use crate::args::{Args, is};
use crate::client::{Client, ConnId, Queue};
use crate::cluster::Membership;
use crate::failure::Failure;
use crate::reply::{self, Proto, Reply};
use crate::table;
use crate::transactions;
use crate::world::World;

/// Keys that one tick may expire in one database.
const EXPIRED_PER_TICK: usize = 1000;

/// Input buffers larger than this are given back once their request has run.
const KEPT_INPUT_BYTES: usize = 16 * 1024;

/// The store with its connections.
///
/// ```
/// use heatsink_embedded::Engine;
///
/// let mut engine = Engine::new(7, 0);
/// let conn = engine.connect(0);
/// engine.feed(conn, b"SET k v PX 50\r\nGET k\r\n", 1000);
/// assert_eq!(engine.take_output(conn), b"+OK\r\n$1\r\nv\r\n");
/// engine.feed(conn, b"GET k\r\n", 1051);
/// assert_eq!(engine.take_output(conn), b"$-1\r\n");
/// ```
#[derive(Debug)]
pub struct Engine {
    pub(crate) world: World,
    limits: Limits,
    last_id: u64,
    requests_total: u64,
    /// Connections with output to write; a stack, as in Redis: whoever was answered last is
    /// written to first, and so a writer hears before those whose keys it invalidated.
    dirty: Vec<ConnId>,
}

impl Engine {
    /// Output that a connection may leave unread; with more it is closed.
    pub const OUTPUT_BYTES_MAX: usize = reply::OUTPUT_BYTES_MAX;

    /// An empty store. All random choices follow from `seed`; times are in milliseconds
    /// since the Unix epoch.
    pub fn new(seed: u64, now_ms: u64) -> Self {
        Self {
            world: World::new(seed, now_ms),
            limits: Limits::default(),
            last_id: 0,
            requests_total: 0,
            dirty: Vec::new(),
        }
    }

    /// Makes the store a node of a cluster: it has its part of the slots and database 0.
    #[must_use]
    pub fn in_cluster(mut self, membership: Membership) -> Self {
        self.world.cluster = Some(membership);
        self
    }

    /// Commands that were run or refused so far.
    pub fn requests_total(&self) -> u64 {
        self.requests_total
    }

    /// A new connection.
    pub fn connect(&mut self, now_ms: u64) -> ConnId {
        self.last_id += 1;
        self.world.stats.connections += 1;
        let id = ConnId(self.last_id);
        self.world.peers.insert(id, Box::new(Client::new(id, now_ms)));
        id
    }

    /// Forgets a connection and everything it subscribed to, watched or tracked.
    pub fn disconnect(&mut self, conn: ConnId) {
        let Some(mut client) = self.world.peers.swap_remove(&conn) else { return };
        self.world.pubsub.forget(&mut client);
        self.world.watches.forget(conn);
        self.world.tracking.disable(conn);
    }

    /// Takes bytes that a client sent and runs every request that they complete.
    pub fn feed(&mut self, conn: ConnId, bytes: &[u8], now_ms: u64) {
        let Some(mut client) = self.world.peers.swap_remove(&conn) else { return };
        if !client.is_closing {
            self.world.set_time(now_ms);
            self.world.stats.input_bytes += bytes.len() as u64;
            client.active_ms = now_ms;
            if client.input.is_empty() {
                let used = self.run_all(&mut client, bytes);
                client.input.extend_from_slice(&bytes[used..]);
            } else {
                let mut input = std::mem::take(&mut client.input);
                input.extend_from_slice(bytes);
                let used = self.run_all(&mut client, &input);
                input.drain(..used);
                if input.is_empty() {
                    input.shrink_to(KEPT_INPUT_BYTES);
                }
                client.input = input;
            }
        }
        self.world.peers.insert(conn, client);
        self.mark(conn);
    }

    /// Runs the complete requests in `buf`; how many bytes they took.
    fn run_all(&mut self, client: &mut Client, buf: &[u8]) -> usize {
        let mut used = 0;
        let mut args: Vec<&[u8]> = Vec::new();
        let mut spans = std::mem::take(&mut client.spans);
        while !client.is_closing {
            let rest = &buf[used..];
            let status = client.scan.advance(rest, &self.limits, |span| spans.push(span));
            match status {
                Ok(Status::Complete { len }) => {
                    args.clear();
                    args.extend(spans.drain(..).map(|span| &rest[span]));
                    self.execute(client, &args);
                    used += len;
                }
                Ok(Status::Inline { len }) => {
                    match inline::split(&rest[..len]) {
                        Ok(words) => {
                            let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                            if !args.is_empty() {
                                self.execute(client, &args);
                            }
                        }
                        Err(error) => Self::refuse(client, &error.to_string()),
                    }
                    used += len;
                }
                Ok(Status::Empty { len }) => used += len,
                Ok(Status::Incomplete) => break,
                Err(error) => Self::refuse(client, &error.to_string()),
            }
        }
        client.spans = spans;
        used
    }

    fn refuse(client: &mut Client, error: &str) {
        client.reply.error(&Failure::new(format!("ERR {error}")));
        client.is_closing = true;
    }

    /// Runs or queues one request, then tells others what it caused.
    fn execute(&mut self, client: &mut Client, args: Args<'_>) {
        self.requests_total += 1;
        match table::find(args).and_then(|command| {
            table::check_context(client, command)?;
            if let Some(cluster) = &self.world.cluster {
                cluster.check(command, args)?;
            }
            Ok(command)
        }) {
            Err(failure) if is(args[0], "exec") => {
                self.world.stats.errors += 1;
                transactions::abort(&mut self.world, client, &failure);
            }
            Err(failure) => {
                if let Some(queue) = &mut client.queue {
                    queue.is_broken = true;
                }
                self.world.stats.errors += 1;
                client.reply.error(&failure);
            }
            Ok(command) if client.queue.is_some() && !command.runs_in_multi() => {
                transactions::enqueue(client, command, args);
            }
            Ok(command) => {
                self.world.run(client, command, args);
                self.world.tracking.after_command(client, command);
            }
        }
        self.deliver(Some(client));
        if client.reply.out.len() > Self::OUTPUT_BYTES_MAX {
            client.drop_now();
        }
    }

    /// Writes what waits in the outbox to whom it concerns.
    fn deliver(&mut self, mut current: Option<&mut Client>) {
        for id in std::mem::take(&mut self.world.killed) {
            self.mark(id);
        }
        if self.world.outbox.is_empty() {
            return;
        }
        let mut outbox = std::mem::take(&mut self.world.outbox);
        // Others first: what a client caused for itself follows everything else, as in Redis.
        let own = current.as_ref().map(|client| client.id);
        outbox.sort_by_key(|(id, _)| Some(*id) == own);
        for (id, note) in outbox.drain(..) {
            let Some((id, note)) = self.world.tracking.route(id, note, |id| match &current {
                Some(client) if client.id == id => Some(client.reply.proto),
                _ => self.world.peers.get(&id).map(|peer| peer.reply.proto),
            }) else {
                continue;
            };
            match &mut current {
                Some(client) if client.id == id => note.write(client),
                _ => {
                    if let Some(peer) = self.world.peers.get_mut(&id) {
                        note.write(peer);
                        if peer.reply.out.len() > Self::OUTPUT_BYTES_MAX {
                            peer.drop_now();
                        }
                        self.mark(id);
                    }
                }
            }
        }
        self.world.outbox = outbox;
    }

    /// Lists a connection as having something to write.
    fn mark(&mut self, conn: ConnId) {
        let Some(client) = self.world.peers.get_mut(&conn) else { return };
        if !client.is_dirty && (client.is_closing || !client.reply.out.is_empty()) {
            client.is_dirty = true;
            self.dirty.push(conn);
        }
    }

    /// Lets time pass: removes keys past their deadline, a bounded number at a time.
    pub fn tick(&mut self, now_ms: u64) {
        self.world.set_time(now_ms);
        for db in &mut self.world.dbs {
            db.expire_due(EXPIRED_PER_TICK);
        }
        self.world.spread_changes(None);
        self.deliver(None);
    }

    /// The next connection that has output or is to be closed.
    pub fn next_dirty(&mut self) -> Option<ConnId> {
        loop {
            let conn = self.dirty.pop()?;
            if let Some(client) = self.world.peers.get_mut(&conn) {
                client.is_dirty = false;
                return Some(conn);
            }
        }
    }

    /// Output of a connection, to be written and taken away by the caller.
    pub fn output(&mut self, conn: ConnId) -> Option<&mut Vec<u8>> {
        self.world.peers.get_mut(&conn).map(|client| &mut client.reply.out)
    }

    /// Takes the output of a connection.
    pub fn take_output(&mut self, conn: ConnId) -> Vec<u8> {
        self.output(conn).map(std::mem::take).unwrap_or_default()
    }

    /// Whether the connection is to be closed at once, with output unread: it was killed, or
    /// left more unread than [`Self::OUTPUT_BYTES_MAX`].
    pub fn is_dropped(&self, conn: ConnId) -> bool {
        self.world.peers.get(&conn).is_none_or(|client| client.is_dropped)
    }

    /// Whether the connection is to be closed once its output is written.
    pub fn is_closing(&self, conn: ConnId) -> bool {
        self.world.peers.get(&conn).is_none_or(|client| client.is_closing)
    }
}

/// What `RESET` does to the state of a connection.
pub(crate) fn reset(world: &mut World, client: &mut Client) {
    let Reply { out, .. } = std::mem::replace(&mut client.reply, Reply::new(Proto::Resp2));
    client.reply.out = out;
    client.queue = None::<Queue>;
    client.db = 0;
    client.name.clear();
    world.watches.forget(client.id);
    world.tracking.disable(client.id);
    world.pubsub.forget(client);
}
