//! Commands that list or count keys: asks the servers, and leaves the fleet's own keys out of the reply;
//! see [`crate::reserved::listings`].

use heatsink_cluster::join::Join;
use heatsink_cluster::{cursor, join, slot};
use heatsink_resp::command::Command;
use heatsink_resp::encode;
use heatsink_split::layout::Names;
use heatsink_split::{layout, placement};
use heatsink_upstream::Protocol;

use crate::cluster;
use crate::cluster::scatter_gather::{Asker, Ending};
use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request};
use crate::observe::Mark;
use crate::reserved::listings::{
    MAX_ROUNDS, ROUND, Telling, bulk, count, list_of_scan, tells_names, without_dedicated,
};
use crate::reserved::names;
use crate::runtime::shared::OwnKeys;
use crate::runtime::worker::Worker;
use crate::splits::Splitting;
use crate::upstream::nodes::NodeId;

impl Worker {
    /// Asks the servers in such a form that the fleet's own keys can be left out of the reply.
    pub(crate) fn ask_for_names(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Flow {
        if let Some(flow) = self
            .relay
            .routing()
            .without_map(key)
            .or_else(|| self.relay.routing().behind_old_map(key))
        {
            return flow;
        }
        let shards = self.relay.cluster.view.as_ref().map(|view| &view.routes.shards);
        let primaries: Vec<NodeId> = match shards {
            Some(shards) => shards.iter().map(|shard| shard.primary).collect(),
            None => vec![NodeId::FIRST],
        };
        let bytes = request.bytes.to_vec();
        let all = |primaries: Vec<NodeId>| {
            primaries.into_iter().map(|node| (node, bytes.clone())).collect::<Vec<_>>()
        };
        let (questions, telling) = match &*command.name {
            "scan" => match self.relay.cluster.scan_question(request) {
                Some((question, of)) => (vec![question], Telling::Scan(of)),
                // The server says what is wrong, or there is nothing left to tell.
                None => return self.scan_in_vain(key, request),
            },
            "dbsize" => (all(primaries.clone()), Telling::Count(primaries.len())),
            "randomkey" => (all(primaries), Telling::Random(MAX_ROUNDS)),
            _ => (all(primaries), Telling::List(Join::for_command(command))),
        };
        if questions.is_empty() {
            return self.relay.routing().forward(key, request.bytes);
        }
        let dedicated = match telling {
            Telling::Count(_) => self.own_key_questions(key),
            _ => Vec::new(),
        };
        if self.relay.upstream.goes_around
            && let Some(client) = self.relay.clients.get_ref(key)
        {
            let pool = client.pool;
            let nodes: Vec<NodeId> = questions.iter().map(|(node, _)| *node).collect();
            self.relay.links().decide_around(key, pool, &nodes);
        }
        let Some((client, buffers)) = self.relay.clients.get_with_buffers(key) else {
            return Flow::Taken;
        };
        let (pool, place) = (client.pool, client.order.reserve(buffers));
        let asker = Asker { client: key, place };
        let base_pool = self.relay.upstream.base_pool;
        self.relay.routing().ask_on_pools(
            asker,
            &[(pool, &questions), (base_pool, &dedicated)],
            Ending::Names(Box::new(telling)),
            Mark::Nothing,
        );
        self.relay.clients.stop_if_many(key);
        Flow::Taken
    }

    fn scan_in_vain(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let knows_nodes =
            self.relay.cluster.view.as_ref().is_some_and(|view| !view.routes.shards.is_empty());
        if knows_nodes && request.arg(1).is_some_and(|arg| cursor::unpack(arg).is_some()) {
            // The cursor is of a cluster that had more nodes.
            self.relay.clients.reply(key, b"*2\r\n$1\r\n0\r\n*0\r\n");
            return Flow::Taken;
        }
        self.relay.routing().forward(key, request.bytes)
    }

    /// How many keys the fleet has where this client looks, as far as anybody here knows.
    fn own_key_questions(&self, key: ClientKey) -> Vec<(NodeId, Vec<u8>)> {
        let pool = self.relay.clients.get_ref(key).map(|client| client.pool);
        let login = pool.map(|pool| &self.relay.upstream.pools[pool].login);
        if login.is_none_or(|login| login.db != self.relay.shared.base_login.db) {
            return Vec::new();
        }
        let mut names = Vec::new();
        if let Some(OwnKeys { always, while_split }) = self.relay.shared.own_keys.get() {
            names.extend_from_slice(always);
            if self.hot.keys.has_moved() {
                names.extend_from_slice(while_split);
            }
        }
        for (key, splitting) in self.hot.keys.splits() {
            if let Splitting::Freezing { permit, .. } = splitting {
                names.push(permit.to_vec());
            }
            let layout = splitting.layout();
            names.push(placement::manifest_name(key, &layout.id));
            for shard in 0..layout.len() {
                names.push(layout.name(shard, Names::Live).to_vec());
                names.push(layout.name(shard, Names::Sealed).to_vec());
                names.push(layout.guard(shard));
            }
        }
        let copied = self.hot.keys.copied().filter_map(|key| self.hot.keys.copies(key));
        for copy in copied.flat_map(|copies| &copies.names) {
            names.extend([layout::lock_name(copy), layout::writers_name(copy), copy.clone()]);
        }
        names.sort_by_key(|name| slot::of_key(name));
        names
            .chunk_by(|one, other| slot::of_key(one) == slot::of_key(other))
            .map(|names| {
                let mut args: Vec<&[u8]> = vec![b"EXISTS"];
                args.extend(names.iter().map(Vec::as_slice));
                let mut bytes = Vec::new();
                encode::command(&mut bytes, &args);
                (self.relay.primary_of(slot::of_key(&names[0]), key), bytes)
            })
            .collect()
    }

    /// The servers have answered: what the client is told, unless they are asked again.
    pub(crate) fn names_told(
        &mut self,
        asker: Asker,
        telling: Telling,
        parts: &[Vec<u8>],
    ) -> Option<Vec<u8>> {
        let (reply, list_at) = match telling {
            Telling::Count(nodes) => return Some(count(parts, nodes)),
            Telling::Random(rounds) => return self.random_told(asker, rounds, parts),
            Telling::List(join) => (join::join(&join, parts), Some(0)),
            Telling::Scan(of) => {
                let reply = match of {
                    Some((shard, count)) => cursor::rewrite_reply(&parts[0], shard, count),
                    None => parts[0].clone(),
                };
                let list_at = list_of_scan(&reply);
                (reply, list_at)
            }
        };
        Some(list_at.and_then(|at| without_dedicated(&reply, at)).unwrap_or(reply))
    }

    fn random_told(&mut self, asker: Asker, rounds: u32, parts: &[Vec<u8>]) -> Option<Vec<u8>> {
        let is_own = |part: &&Vec<u8>| bulk(part).is_some_and(|(name, _)| names::is_reserved(name));
        let others: Vec<&Vec<u8>> = parts.iter().filter(|part| !is_own(part)).collect();
        let has_found =
            others.iter().any(|part| part.starts_with(b"$") && !part.starts_with(b"$-"));
        if has_found || others.len() == parts.len() {
            return Some(join::join(&Join::RandomKey, &others));
        }
        let pool = self.relay.clients.get_ref(asker.client)?.pool;
        if rounds == 0 {
            let resp3 = self.relay.upstream.pools[pool].login.protocol == Protocol::Resp3;
            return Some(if resp3 { b"_\r\n".to_vec() } else { b"$-1\r\n".to_vec() });
        }
        let shards = self.relay.cluster.view.as_ref().map(|view| &view.routes.shards);
        let primaries: Vec<NodeId> = match shards {
            Some(shards) => shards.iter().map(|shard| shard.primary).collect(),
            None => vec![NodeId::FIRST],
        };
        let question = |node: &NodeId| (*node, b"*1\r\n$9\r\nRANDOMKEY\r\n".to_vec());
        let questions: Vec<_> = (0..ROUND).flat_map(|_| primaries.iter().map(question)).collect();
        let ending = Ending::Names(Box::new(Telling::Random(rounds - 1)));
        self.relay.routing().ask_several(pool, asker, &questions, ending, Mark::Nothing);
        None
    }
}

impl Clients {
    /// Whether a client is told of keys without those of the fleet.
    pub(crate) fn hides_names(&self, key: ClientKey, command: &Command) -> bool {
        let client = self.get_ref(key);
        client.is_some_and(|client| !client.within && client.dedicated.is_none())
            && tells_names(command)
    }
}

impl cluster::Room {
    /// Which server is asked to scan next, and whose cursor it is.
    #[expect(clippy::type_complexity, reason = "a question, and where its answer belongs")]
    pub(crate) fn scan_question(
        &self,
        request: Request<'_>,
    ) -> Option<((NodeId, Vec<u8>), Option<(usize, usize)>)> {
        let Some(view) = &self.view else {
            return Some(((NodeId::FIRST, request.bytes.to_vec()), None));
        };
        let count = view.routes.shards.len();
        let (shard, cursor) = request.arg(1).and_then(cursor::unpack)?;
        let node = view.routes.shards.get(shard)?.primary;
        let cursor = cursor.to_string();
        let mut args: Vec<_> = request.args_from(0).collect();
        args[1] = cursor.as_bytes();
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &args);
        Some(((node, bytes), Some((shard, count))))
    }
}
