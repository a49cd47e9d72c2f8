//! Where a request goes in a cluster: the node of its key, several nodes, or any.

use heatsink_cluster::join::{Join, request_policy};
use heatsink_cluster::split::Piece;
use heatsink_cluster::{cursor, slot, split};
use heatsink_resp::command::{Access, Command, CommandTable, RequestPolicy, Unnamed};
use heatsink_resp::glob;

use crate::cluster::effects::Notes;
use crate::cluster::forward::{Batch, Departing, NodeBatches};
use crate::cluster::scatter_gather::{Ending, Targets};
use crate::cluster::{Room, Routing};
use crate::downstream::clients::{Clients, MAX_OUTSTANDING};
use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::request::{Flow, Request, look_into};
use crate::upstream;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// The slots that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    /// It names no key.
    None,
    One(u16),
    /// More than one; this is the first.
    Several(u16),
}

impl Slots {
    pub(crate) fn of(command: &Command, request: Request<'_>) -> Self {
        let mut slots = Self::None;
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            let slot = slot::of_key(arg(index));
            slots = match slots {
                Self::None => Self::One(slot),
                Self::One(first) if first != slot => Self::Several(first),
                same => same,
            };
        });
        slots
    }

    pub(crate) fn first(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::One(slot) | Self::Several(slot) => Some(slot),
        }
    }
}

/// How many entries `SLOWLOG GET` asks for; what the server refuses is left to it.
fn slowlog_count(request: Request<'_>) -> usize {
    const USUAL: usize = 10;
    let Some(count) = request.arg(2) else { return USUAL };
    let count: Option<i64> = std::str::from_utf8(count).ok().and_then(|text| text.parse().ok());
    // -1 is all of them.
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
}

impl<N: Notes> Routing<'_, N> {
    /// Passes a request on along the shared links.
    #[inline]
    pub(crate) fn forward_clustered(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Flow {
        if let Some(flow) = self.without_map(key).or_else(|| self.clients.wait_for_reader(key)) {
            return flow;
        }
        let single = command.single_key_index().and_then(|index| request.arg(index));
        let Some(name) = single else {
            let flow = self.forward_unusual(key, request, command);
            if flow == Flow::Taken {
                self.note_several_keys(key, request, command);
            }
            return flow;
        };
        let slot = slot::of_key(name);
        if let Some(flow) = self.note_written(key, request, command) {
            return flow;
        }
        let node = if self.room.reads_replicas {
            self.reading_node(slot, key, command, name)
        } else {
            self.primary_of(slot, key)
        };
        self.forward_observed(key, node, request, command)
    }

    /// Passes a request on to a node, and counts its keys.
    fn forward_observed(
        &mut self,
        key: ClientKey,
        node: NodeId,
        request: Request<'_>,
        command: &Command,
    ) -> Flow {
        if let Some(flow) = self.behind_old_map(key) {
            return flow;
        }
        let mark = self.observe(key, command, request);
        self.send_on(key, node, request.bytes, &[mark]);
        Flow::Taken
    }

    /// Passes each request of a batch on to its node.
    #[inline]
    pub(crate) fn forward_each(&mut self, key: ClientKey, buf: &[u8], batch: &mut Batch) {
        let Batch { marks, node_batches, renamed, .. } = batch;
        let Self { clients, now, upstream, .. } = self;
        let upstream::Room { pools, links, dirty_links, .. } = &mut **upstream;
        let Some((client, buffers)) = clients.get_with_buffers(key) else {
            return node_batches.clear();
        };
        let pool = &pools[client.pool];
        let all_open = node_batches.find_links(|node| {
            let link = pool.open_link(node)?;
            Some((link, links[link].source(link)))
        });
        if !all_open {
            for ((text, node), mark) in node_batches.in_order().zip(&*marks) {
                self.send_on(key, node, text.of(buf, renamed), &[*mark]);
            }
            return node_batches.clear();
        }
        node_batches.expect(&mut client.order, buffers);
        for Departing { link, way, requests } in node_batches.departing(buf, renamed, marks) {
            let upstream = &mut links[link];
            let ticket = Ticket { client: key, seq: way, purpose: Purpose::Forward };
            upstream.requests += requests.len() as u64;
            upstream.link.push_each(requests, ticket, *now);
            if !upstream.dirty {
                upstream.dirty = true;
                dirty_links.push(link);
            }
        }
        node_batches.clear();
    }

    /// The node for a request about one key: a replica, if the key may be read from one.
    fn reading_node(
        &mut self,
        slot: u16,
        key: ClientKey,
        command: &Command,
        name: &[u8],
    ) -> NodeId {
        let primary = self.primary_of(slot, key);
        let rule = self.live.policy.iter().find(|rule| glob::matches(&rule.pattern, name));
        if !rule.is_some_and(|rule| rule.replica_reads) {
            return primary;
        }
        let (Some(view), Some(client)) = (&self.room.view, self.clients.get(key)) else {
            return primary;
        };
        // Whoever moves data must see what was acknowledged last.
        let exact = client.within
            || name.starts_with(b"heatsink:")
            || self.room.moved.misleads_replicas(name, self.now);
        if command.access != Access::Read || exact || client.written.may_hold(name) {
            return primary;
        }
        // A client always reads from the same replica, so that it does not see time go backwards.
        let healthy = |node: &&NodeId| !view.sick.iter().any(|(sick, _)| sick == *node);
        let replicas: Vec<_> = view.routes.replicas(slot).iter().filter(healthy).collect();
        match replicas.len() {
            0 => primary,
            count => *replicas[client.record.id as usize % count],
        }
    }

    /// Remembers what a client writes that it might otherwise read from a replica. The write
    /// waits until what the client asked before is answered: a replica may still owe it the
    /// value from before.
    pub(crate) fn note_written(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Option<Flow> {
        if !self.room.reads_replicas || command.access == Access::Read {
            return None;
        }
        let policy = std::sync::Arc::clone(&self.live.policy);
        let client = self.clients.get(key)?;
        let mut matched = request.unnamed(command) == Unnamed::Anything;
        if matched {
            client.written.add_all();
        }
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            let rule = policy.iter().find(|rule| glob::matches(&rule.pattern, arg(index)));
            if rule.is_some_and(|rule| rule.replica_reads) {
                client.written.add(arg(index));
                matched = true;
            }
        });
        (matched && client.order.outstanding() > 0).then_some(Flow::Wait)
    }

    /// A request that names no key, or may name several.
    fn forward_unusual(&mut self, key: ClientKey, request: Request<'_>, command: &Command) -> Flow {
        if command.name.starts_with("cluster") {
            return self.cluster_command(key, request);
        }
        if !self.room.knows_map() {
            // Whoever wants a password first will say so.
            return self.forward_to(key, self.home(key), request.bytes);
        }
        if let Some(flow) = self.note_written(key, request, command) {
            return flow;
        }
        match Slots::of(command, request) {
            Slots::One(slot) => {
                self.forward_observed(key, self.primary_of(slot, key), request, command)
            }
            Slots::Several(first) => {
                let args: Vec<_> = request.args_from(0).collect();
                match split::by_slot(command, &args) {
                    Some(pieces) => {
                        let how = Join::for_pieces(command, &pieces);
                        if let Some(flow) = self.behind_old_map(key) {
                            return flow;
                        }
                        let mark = self.observe(key, command, request);
                        self.fan_out_marked(key, &Targets::Pieces(pieces), Ending::Join(how), mark)
                    }
                    // A value is missing behind a key: one key of all is enough to be told so.
                    None if request_policy(command) == RequestPolicy::MultiShard => {
                        let mut bytes = Vec::new();
                        heatsink_resp::encode::command(&mut bytes, &args[..2]);
                        self.forward_to(key, self.primary_of(first, key), &bytes)
                    }
                    // The server says what is wrong.
                    None => self.forward_to(key, self.primary_of(first, key), request.bytes),
                }
            }
            Slots::None => self.forward_keyless(key, request, command),
        }
    }

    fn forward_keyless(&mut self, key: ClientKey, request: Request<'_>, command: &Command) -> Flow {
        if &*command.name == "scan" && request.len() > 1 {
            return self.scan(key, request);
        }
        let how = || match &*command.name {
            "slowlog|get" => Ending::Join(Join::Newest(slowlog_count(request))),
            _ => Ending::Join(Join::for_command(command)),
        };
        match request_policy(command) {
            RequestPolicy::AllShards => {
                self.fan_out(key, &Targets::Primaries(request.bytes), how())
            }
            RequestPolicy::AllNodes => self.fan_out(key, &Targets::All(request.bytes), how()),
            RequestPolicy::Default | RequestPolicy::MultiShard | RequestPolicy::Special => {
                self.forward_to(key, self.home(key), request.bytes)
            }
        }
    }

    /// Which nodes are asked what for a read, and how their replies become one.
    pub(crate) fn places_of(
        &self,
        bytes: &[u8],
        client: ClientKey,
    ) -> (Vec<(NodeId, Vec<u8>)>, Join) {
        let slots = look_into(self.table, bytes, |command, request| {
            let slots = Slots::of(command, request);
            let args: Vec<_> = request.args_from(0).collect();
            let pieces = match slots {
                Slots::Several(_) => split::by_slot(command, &args),
                _ => None,
            };
            (slots, pieces.map(|pieces| (Join::for_pieces(command, &pieces), pieces)))
        });
        match slots.filter(|_| self.room.view.is_some()) {
            Some((_, Some((how, pieces)))) => {
                let place = |piece: Piece| (self.primary_of(piece.slot, client), piece.bytes);
                (pieces.into_iter().map(place).collect(), how)
            }
            Some((slots, None)) => {
                let node =
                    slots.first().map_or(self.home(client), |slot| self.primary_of(slot, client));
                (vec![(node, bytes.to_vec())], Join::First)
            }
            None => (vec![(self.home(client), bytes.to_vec())], Join::First),
        }
    }

    /// One cursor over all nodes, one node after the other.
    fn scan(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let Some(view) = &self.room.view else { return Flow::Taken };
        let count = view.routes.shards.len();
        let cursor = request.arg(1).and_then(cursor::unpack);
        let Some((shard, cursor)) = cursor.filter(|(shard, _)| *shard < count) else {
            if request.arg(1).is_some_and(|arg| cursor::unpack(arg).is_some()) {
                // Of a cluster that had more nodes: there is nothing left to tell.
                self.clients.reply(key, b"*2\r\n$1\r\n0\r\n*0\r\n");
                return Flow::Taken;
            }
            // No number: the server says so.
            return self.forward_to(key, self.home(key), request.bytes);
        };
        let node = view.routes.shards[shard].primary;
        let cursor = cursor.to_string();
        let mut args: Vec<_> = request.args_from(0).collect();
        args[1] = cursor.as_bytes();
        let mut bytes = Vec::new();
        heatsink_resp::encode::command(&mut bytes, &args);
        self.fan_out(key, &Targets::Node(node, &bytes), Ending::Scan { shard, count })
    }
}

impl Room {
    /// The server of a key.
    pub(crate) fn node_of(&self, clients: &Clients, name: &[u8]) -> NodeId {
        if self.view.is_none() {
            return NodeId::FIRST;
        }
        self.primary_of(clients, slot::of_key(name), ClientKey::NOBODY)
    }

    /// The primary of a slot; any node, which will say what is wrong, if it has none.
    #[inline]
    pub(crate) fn primary_of(&self, clients: &Clients, slot: u16, key: ClientKey) -> NodeId {
        let view = self.view.as_ref();
        view.and_then(|view| view.routes.primary(slot)).unwrap_or_else(|| self.home(clients, key))
    }

    /// The node for a request that nothing stands in the way of, behind those of `node_batches`: the
    /// link is there and has room, and the client may go on. `None` if anything needs a closer
    /// look.
    #[inline]
    pub(crate) fn fast_path_node(
        &self,
        upstream: &upstream::Room,
        client: &Client,
        request: Request<'_>,
        command: &Command,
        node_batches: &NodeBatches,
    ) -> Option<NodeId> {
        let name = command.single_key_index().and_then(|index| request.arg(index))?;
        self.fast_path_to_slot(upstream, client, slot::of_key(name), node_batches)
    }

    /// The node for a request about one slot, if nothing stands in its way.
    #[inline]
    pub(crate) fn fast_path_to_slot(
        &self,
        upstream: &upstream::Room,
        client: &Client,
        slot: u16,
        node_batches: &NodeBatches,
    ) -> Option<NodeId> {
        let usual = !(client.bulky || client.within || self.reads_replicas || upstream.goes_around);
        if !usual || client.epoch != self.epoch {
            return None;
        }
        let node = self.view.as_ref()?.routes.primary(slot)?;
        if !node_batches.go_to(node) {
            let link = upstream.pools[client.pool].open_link(node)?;
            if upstream.links[link].is_full() {
                return None;
            }
        }
        let asked = client.order.outstanding() as usize + node_batches.len() + 1;
        (asked < MAX_OUTSTANDING as usize).then_some(node)
    }
}

impl Clients {
    /// A client that does not read its replies gets no more of them.
    #[inline]
    pub(crate) fn wait_for_reader(&mut self, key: ClientKey) -> Option<Flow> {
        let client = self.get(key)?;
        if !client.bulky {
            return None;
        }
        if client.output.len() <= crate::downstream::clients::BULKY_BYTES / 2 {
            client.bulky = false;
            return None;
        }
        // Resumed by a flush.
        Some(Flow::Wait)
    }
}

/// Whether an error that answers a request can be what somebody else wrote: a script's
/// author, or a module's.
pub(crate) fn may_be_made_up(table: &CommandTable, request: &[u8]) -> bool {
    let scripted = |command: &Command, _: Request<'_>| {
        command.name.starts_with("eval")
            || command.name.starts_with("fcall")
            || command.name.contains('.')
    };
    look_into(table, request, scripted).unwrap_or(true)
}

/// The slot that a request is about.
pub(crate) fn slot_of(table: &CommandTable, bytes: &[u8]) -> Option<u16> {
    look_into(table, bytes, |command, request| Slots::of(command, request).first()).flatten()
}

/// What a server calls the command of a request.
pub(crate) fn name_of(table: &CommandTable, bytes: &[u8]) -> String {
    look_into(table, bytes, |command, _| command.name.to_string()).unwrap_or_default()
}
