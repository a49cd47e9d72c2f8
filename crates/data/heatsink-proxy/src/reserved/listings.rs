//! Replies that tell names of keys, or their number, without those that belong to the fleet.
//!
//! Called by: `intake` and `apply` with such requests, `scatter_gather` with what the servers say.
//! Bound: [`MAX_ROUNDS`] further questions for a random key; one further question for a slot in
//! which the fleet is known to have keys, for their number.
//! Invariant: what a client is told of its own keys is what the server says. Names that nobody
//! here knows of (tombstones of a split that is over, for ten minutes) are left out of lists, but
//! not of the number.
//!
//! Within `MULTI` and on a client's dedicated connection replies are the server's.

use heatsink_cluster::join::{self, Join};
use heatsink_cluster::{cursor, slot};
use heatsink_resp::command::Command;
use heatsink_resp::encode;
use heatsink_split::layout::{self, Names};
use heatsink_split::placement;
use heatsink_upstream::Protocol;
use memchr::{memchr, memmem};

use crate::cluster;
use crate::cluster::scatter_gather::{Asker, Ending};
use crate::downstream::clients::Clients;
use crate::downstream::connection::ClientKey;
use crate::downstream::intake::Flow;
use crate::downstream::request::Request;
use crate::observe::Mark;
use crate::reserved::names::{self, PREFIX};
use crate::runtime::shared::OwnKeys;
use crate::runtime::worker::Worker;
use crate::splits::Splitting;
use crate::upstream::nodes::NodeId;

/// Keys that are asked for at once, when the first was one of the fleet's.
const ROUND: usize = 8;
/// So often. A client with one key among ten of the fleet's is told so all the same but once in
/// many millions; with more, sooner.
const MAX_ROUNDS: u32 = 24;

/// What becomes of such a reply.
#[derive(Debug)]
pub(crate) enum Telling {
    /// A list of names.
    List(Join),
    /// A cursor and a list of names; on a cluster, whose cursor it is, and of how many.
    Scan(Option<(usize, usize)>),
    /// Numbers of keys, of which the first so many are all and the others the fleet's.
    Count(usize),
    /// Keys by chance, and how often more may be asked for.
    Random(u32),
}

/// Whether a command tells of keys that it does not name.
#[inline]
pub(crate) fn tells_names(command: &Command) -> bool {
    command.keys.is_empty()
        && matches!(
            &*command.name,
            "keys" | "scan" | "dbsize" | "randomkey" | "pubsub|channels" | "pubsub|shardchannels"
        )
}

/// A reply without names of the fleet, if it has any.
fn without_dedicated(frame: &[u8], list_at: usize) -> Option<Vec<u8>> {
    memmem::find(frame, PREFIX)?;
    let list = frame.get(list_at..)?;
    let (kind, header) = (*list.first()?, memchr(b'\n', list)? + 1);
    if !matches!(kind, b'*' | b'~') {
        return None;
    }
    let (mut rest, mut kept, mut count) = (&list[header..], Vec::with_capacity(list.len()), 0);
    while !rest.is_empty() {
        let (name, len) = bulk(rest)?;
        if !names::is_reserved(name) {
            kept.extend_from_slice(&rest[..len]);
            count += 1;
        }
        rest = &rest[len..];
    }
    let mut told = frame[..list_at].to_vec();
    encode::header(&mut told, kind, count);
    told.extend_from_slice(&kept);
    Some(told)
}

/// The string that a frame begins with, and how long its frame is.
fn bulk(frame: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', frame)?;
    let length = frame[..end].strip_prefix(b"$")?.strip_suffix(b"\r")?;
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    let start = end + 1;
    Some((frame.get(start..start + length)?, start + length + 2))
}

/// Where the list begins in the reply of `SCAN`.
fn list_of_scan(frame: &[u8]) -> Option<usize> {
    let header = memchr(b'\n', frame)? + 1;
    let (_, cursor) = bulk(&frame[header..])?;
    Some(header + cursor)
}

fn number(frame: &[u8]) -> Option<i64> {
    let digits = frame.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// All keys but the fleet's. Where those cannot be asked for, they count.
fn count(parts: &[Vec<u8>], nodes: usize) -> Vec<u8> {
    let (all, dedicated) = parts.split_at(nodes.min(parts.len()));
    let reply = join::join(&Join::Sum, all);
    let Some(all) = number(&reply) else { return reply };
    let dedicated: i64 = dedicated.iter().filter_map(|part| number(part)).sum();
    format!(":{}\r\n", (all - dedicated).max(0)).into_bytes()
}

impl Worker {
    /// Asks what was asked, so that the reply can be told without names of the fleet.
    pub(crate) fn ask_for_names(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
    ) -> Flow {
        if let Some(flow) = self.without_map(key).or_else(|| self.behind_old_map(key)) {
            return flow;
        }
        let shards = self.cluster.view.as_ref().map(|view| &view.routes.shards);
        let primaries: Vec<NodeId> = match shards {
            Some(shards) => shards.iter().map(|shard| shard.primary).collect(),
            None => vec![NodeId::FIRST],
        };
        let bytes = request.bytes.to_vec();
        let all = |primaries: Vec<NodeId>| {
            primaries.into_iter().map(|node| (node, bytes.clone())).collect::<Vec<_>>()
        };
        let (questions, telling) = match &*command.name {
            "scan" => match self.cluster.scan_question(request) {
                Some((question, of)) => (vec![question], Telling::Scan(of)),
                // The server says what is wrong, or there is nothing left to tell.
                None => return self.scan_in_vain(key, request),
            },
            "dbsize" => (all(primaries.clone()), Telling::Count(primaries.len())),
            "randomkey" => (all(primaries), Telling::Random(MAX_ROUNDS)),
            _ => (all(primaries), Telling::List(Join::for_command(command))),
        };
        if questions.is_empty() {
            return self.forward_to(key, self.home(key), request.bytes);
        }
        let dedicated = match telling {
            Telling::Count(_) => self.own_key_questions(key),
            _ => Vec::new(),
        };
        if self.upstream.goes_around
            && let Some(client) = self.clients.get_ref(key)
        {
            let nodes: Vec<NodeId> = questions.iter().map(|(node, _)| *node).collect();
            self.decide_around(key, client.pool, &nodes);
        }
        let Some((client, buffers)) = self.clients.get_with_buffers(key) else {
            return Flow::Taken;
        };
        let (pool, place) = (client.pool, client.order.reserve(buffers));
        let asker = Asker { client: key, place };
        self.ask_on_pools(
            asker,
            &[(pool, &questions), (self.upstream.base_pool, &dedicated)],
            Ending::Names(Box::new(telling)),
            Mark::Nothing,
        );
        self.clients.stop_if_many(key);
        Flow::Taken
    }

    fn scan_in_vain(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        let knows_nodes =
            self.cluster.view.as_ref().is_some_and(|view| !view.routes.shards.is_empty());
        if knows_nodes && request.arg(1).is_some_and(|arg| cursor::unpack(arg).is_some()) {
            // Of a cluster that had more nodes.
            self.clients.reply(key, b"*2\r\n$1\r\n0\r\n*0\r\n");
            return Flow::Taken;
        }
        self.forward_to(key, self.home(key), request.bytes)
    }

    /// How many keys the fleet has where this client looks, as far as anybody here knows.
    fn own_key_questions(&self, key: ClientKey) -> Vec<(NodeId, Vec<u8>)> {
        let pool = self.clients.get_ref(key).map(|client| client.pool);
        let login = pool.map(|pool| &self.upstream.pools[pool].login);
        if login.is_none_or(|login| login.db != self.shared.base_login.db) {
            return Vec::new();
        }
        let mut names = Vec::new();
        if let Some(OwnKeys { always, while_split }) = self.shared.own_keys.get() {
            names.extend_from_slice(always);
            if self.mitigations.keys.has_moved() {
                names.extend_from_slice(while_split);
            }
        }
        for (key, splitting) in self.mitigations.keys.splits() {
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
        let copied =
            self.mitigations.keys.copied().filter_map(|key| self.mitigations.keys.copies(key));
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
                (self.primary_of(slot::of_key(&names[0]), key), bytes)
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
        let pool = self.clients.get_ref(asker.client)?.pool;
        if rounds == 0 {
            let resp3 = self.upstream.pools[pool].login.protocol == Protocol::Resp3;
            return Some(if resp3 { b"_\r\n".to_vec() } else { b"$-1\r\n".to_vec() });
        }
        let shards = self.cluster.view.as_ref().map(|view| &view.routes.shards);
        let primaries: Vec<NodeId> = match shards {
            Some(shards) => shards.iter().map(|shard| shard.primary).collect(),
            None => vec![NodeId::FIRST],
        };
        let question = |node: &NodeId| (*node, b"*1\r\n$9\r\nRANDOMKEY\r\n".to_vec());
        let questions: Vec<_> = (0..ROUND).flat_map(|_| primaries.iter().map(question)).collect();
        let ending = Ending::Names(Box::new(Telling::Random(rounds - 1)));
        self.ask_several(pool, asker, &questions, ending, Mark::Nothing);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, names);
        bytes
    }

    #[test]
    fn names_of_the_fleet_are_left_out_of_lists() {
        let told = list(&["a", "heatsink:{default}:state", "heatsink", "heatsink:{a}:id:0", "b"]);
        assert_eq!(without_dedicated(&told, 0), Some(list(&["a", "heatsink", "b"])));
        assert_eq!(without_dedicated(&list(&["heatsink:{a}:x"]), 0), Some(b"*0\r\n".to_vec()));
        assert_eq!(without_dedicated(&list(&["a", "b"]), 0), None);
        assert_eq!(without_dedicated(b"-ERR heatsink:{\r\n", 0), None);
        let scanned = [b"*2\r\n$2\r\n17\r\n", &told[..]].concat();
        let at = list_of_scan(&scanned).expect("a list");
        let left = [b"*2\r\n$2\r\n17\r\n", &list(&["a", "heatsink", "b"])[..]].concat();
        assert_eq!(without_dedicated(&scanned, at), Some(left));
    }

    #[test]
    fn the_fleets_keys_do_not_count() {
        let parts =
            |texts: &[&str]| texts.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(count(&parts(&[":9\r\n", ":8\r\n"]), 1), b":1\r\n");
        assert_eq!(count(&parts(&[":9\r\n", ":1\r\n", ":2\r\n", "-NOPERM no\r\n"]), 2), b":8\r\n");
        assert_eq!(count(&parts(&["-NOAUTH no\r\n", ":2\r\n"]), 1), b"-NOAUTH no\r\n");
    }
}
