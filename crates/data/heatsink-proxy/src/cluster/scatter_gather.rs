//! A request for several nodes: sent to each, and their replies joined to one.
//!
//! Bound: one join per request of a client; its replies are held until the last has come, and
//! what they become counts towards the client's output.

use heatsink_cluster::cursor;
use heatsink_cluster::join::{self, Join};
use heatsink_cluster::split::Piece;

use crate::cluster::{Notes, Room, Routing};
use crate::downstream::clients::error_line;
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Flow;
use crate::observe::Mark;
use crate::reserved::listings::Telling;
use crate::upstream::nodes::NodeId;
use crate::upstream::ticket::{Purpose, Ticket};

/// Who is asked what.
#[derive(Debug)]
pub(crate) enum Targets<'a> {
    /// Each primary, the same.
    Primaries(&'a [u8]),
    /// Each node, the same.
    All(&'a [u8]),
    /// Each slot its piece of the request.
    Pieces(Vec<Piece>),
    /// One node.
    Node(NodeId, &'a [u8]),
    /// Each primary, the same, on dedicated connections: it may wait, or must overtake. If it is to
    /// know of earlier writes, the connection is told first; see [`crate::cluster::own_writes`].
    Apart { bytes: &'a [u8], after_writes: bool },
}

/// What becomes of the replies.
#[derive(Debug)]
pub(crate) enum Ending {
    Join(Join),
    /// A mitigation has asked, and keeps what it is to make of them under this number.
    Mitigation(u32),
    /// They tell names of keys, or their number.
    Names(Box<Telling>),
    /// The cursor in the reply of `SCAN` is one node's.
    Scan {
        shard: usize,
        count: usize,
    },
}

/// What nodes are asked.
pub(crate) type Questions = [(NodeId, Vec<u8>)];

/// Who waits for replies that are made one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) client: ClientKey,
    /// Among what the client waits for.
    pub(crate) place: u32,
}

/// Replies that are waited for.
#[derive(Debug)]
pub(crate) struct Gather {
    client: ClientKey,
    seq: u32,
    ending: Ending,
    parts: Vec<Part>,
    missing: usize,
    /// On connections that nobody else uses.
    apart: bool,
    /// What is remembered of the request.
    mark: Mark,
}

impl Gather {
    /// Nothing but its reply comes of it.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.ending, Ending::Join(_))
    }
}

/// All replies to what a room above has asked.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) asker: Asker,
    /// What is remembered of the request.
    pub(crate) mark: Mark,
    pub(crate) replies: Vec<Vec<u8>>,
    pub(crate) of: GatheredFor,
}

/// Which room knows what to make of replies.
#[derive(Debug)]
pub(crate) enum GatheredFor {
    /// They tell names of keys, or their number.
    Names(Telling),
    /// See [`Ending::Mitigation`].
    Mitigation(u32),
}

#[derive(Debug, Default)]
struct Part {
    reply: Vec<u8>,
    /// A replica's: if it cannot be reached, the others' replies will do.
    optional: bool,
    absent: bool,
    /// What a connection is told before `WAIT`: the reply counts only if it is refused.
    writes: bool,
}

/// What one node is asked.
struct Question<'a> {
    node: NodeId,
    bytes: &'a [u8],
    optional: bool,
}

impl<N: Notes> Routing<'_, N> {
    /// Sends a request to several nodes.
    pub(crate) fn fan_out(
        &mut self,
        key: ClientKey,
        targets: &Targets<'_>,
        ending: Ending,
    ) -> Flow {
        self.fan_out_marked(key, targets, ending, Mark::Nothing)
    }

    /// Asks several nodes, and remembers something of the request.
    pub(crate) fn fan_out_marked(
        &mut self,
        key: ClientKey,
        targets: &Targets<'_>,
        ending: Ending,
        mark: Mark,
    ) -> Flow {
        if let Some(flow) = self.behind_old_map(key) {
            return flow;
        }
        let questions = self.questions(key, targets);
        let Some(client) = self.clients.get(key) else { return Flow::Taken };
        let pool = client.pool;
        if questions.is_empty() {
            // There is no map: whoever wants a password first will say so.
            let (Targets::Primaries(bytes) | Targets::All(bytes) | Targets::Apart { bytes, .. }) =
                targets
            else {
                return Flow::Taken;
            };
            return self.forward_to(key, self.home(key), bytes);
        }
        if self.upstream.goes_around {
            let nodes: Vec<NodeId> = questions.iter().map(|question| question.node).collect();
            self.links().decide_around(key, pool, &nodes);
        }
        let Some((client, buffers)) = self.clients.get_with_buffers(key) else {
            return Flow::Taken;
        };
        let seq = client.order.reserve(buffers);
        client.apart += u32::from(matches!(targets, Targets::Apart { .. }));
        let apart = match targets {
            Targets::Apart { after_writes, .. } => Some(*after_writes),
            _ => None,
        };
        let part =
            |question: &Question<'_>| Part { optional: question.optional, ..Part::default() };
        let gather = Gather {
            client: key,
            seq,
            ending,
            parts: questions.iter().map(part).collect(),
            missing: questions.len(),
            apart: apart.is_some(),
            mark,
        };
        let join = self.room.gathers.insert(gather);
        for (part, question) in questions.iter().enumerate() {
            let purpose = Purpose::Part { join: join as u32, part: part as u32 };
            let ticket = Ticket { client: key, seq, purpose };
            let link = match apart {
                None => self.links().link_for(key, pool, question.node),
                Some(_) => self.links().link_apart(pool, question.node),
            };
            match link {
                Ok(link) => {
                    if apart == Some(true) {
                        let writing = self.writing_to(question.node);
                        let ticket = self.room.part_that_writes(join, ticket);
                        self.upstream.push_to_link(self.now, link, &writing.request, ticket);
                        if let Some(removal) = writing.removal {
                            let ticket = Ticket::internal(Purpose::Ignored);
                            self.upstream.push_to_link(self.now, link, &removal, ticket);
                        }
                    }
                    self.upstream.push_to_link(self.now, link, question.bytes, ticket);
                    if apart.is_none() && self.upstream.links[link].is_full() {
                        self.throttle(key, pool, link);
                    }
                }
                Err(why) => self.conclude(ticket, &error_line(&why)),
            }
        }
        self.clients.stop_if_many(key);
        Flow::Taken
    }

    /// Asks several nodes along a pool, each its question.
    pub(crate) fn ask_several(
        &mut self,
        pool: usize,
        asker: Asker,
        questions: &[(NodeId, Vec<u8>)],
        ending: Ending,
        mark: Mark,
    ) {
        self.ask_on_pools(asker, &[(pool, questions)], ending, mark);
    }

    /// Asks questions along several pools at once. There is at least one question.
    pub(crate) fn ask_on_pools(
        &mut self,
        asker: Asker,
        by_pool: &[(usize, &Questions)],
        ending: Ending,
        mark: Mark,
    ) {
        let Asker { client: key, place: seq } = asker;
        let all = |(pool, questions): &(usize, &Questions)| {
            let pool = *pool;
            questions
                .iter()
                .map(move |(node, bytes)| (pool, *node, bytes.clone()))
                .collect::<Vec<_>>()
        };
        let questions: Vec<_> = by_pool.iter().flat_map(all).collect();
        let gather = Gather {
            client: key,
            seq,
            ending,
            parts: questions.iter().map(|_| Part::default()).collect(),
            missing: questions.len(),
            apart: false,
            mark,
        };
        let join = self.room.gathers.insert(gather);
        for (part, (pool, node, bytes)) in questions.into_iter().enumerate() {
            let purpose = Purpose::Part { join: join as u32, part: part as u32 };
            let ticket = Ticket { client: key, seq, purpose };
            let link = match self.clients.get_ref(key) {
                Some(client) if client.pool == pool => self.links().link_for(key, pool, node),
                _ => self.links().pool_link(pool, node),
            };
            match link {
                Ok(link) => {
                    self.upstream.push_to_link(self.now, link, &bytes, ticket);
                    if self.upstream.links[link].is_full() {
                        self.throttle(key, pool, link);
                    }
                }
                Err(why) => self.conclude(ticket, &error_line(&why)),
            }
        }
    }

    fn questions<'a>(&self, key: ClientKey, targets: &'a Targets<'_>) -> Vec<Question<'a>> {
        let shards = self.room.view.as_ref().map_or(&[][..], |view| &view.routes.shards);
        let primaries = |bytes: &'a [u8]| {
            let question = move |node| Question { node, bytes, optional: false };
            shards.iter().map(|shard| shard.primary).map(question)
        };
        match targets {
            Targets::Primaries(bytes) | Targets::Apart { bytes, .. } => primaries(bytes).collect(),
            Targets::All(bytes) => {
                let replicas = shards.iter().flat_map(|shard| &shard.replicas);
                let question = |node: &NodeId| Question { node: *node, bytes, optional: true };
                primaries(bytes).chain(replicas.map(question)).collect()
            }
            Targets::Pieces(pieces) => pieces
                .iter()
                .map(|piece| {
                    let node = self.primary_of(piece.slot, key);
                    Question { node, bytes: &piece.bytes, optional: false }
                })
                .collect(),
            Targets::Node(node, bytes) => {
                vec![Question { node: *node, bytes, optional: false }]
            }
        }
    }

    /// One of the replies has come. If it was the last, and they are for a room above, all of them.
    pub(crate) fn part_arrived(&mut self, join: u32, part: u32, frame: &[u8]) -> Option<Gathered> {
        let gather = self.room.gathers.get_mut(join as usize)?;
        let place = gather.parts.get_mut(part as usize)?;
        let unable = [&b"-ERR heatsink: upstream "[..], b"-LOADING ", b"-MASTERDOWN "];
        place.absent = place.writes && !frame.starts_with(b"-")
            || place.optional && unable.iter().any(|text| frame.starts_with(text));
        if !place.absent {
            place.reply = frame.to_vec();
        }
        gather.missing -= 1;
        if gather.missing > 0 {
            return None;
        }
        let mut gather = self.room.gathers.remove(join as usize);
        if gather.apart
            && let Some(client) = self.clients.get(gather.client)
        {
            client.apart -= 1;
        }
        let present = gather.parts.iter_mut().filter(|part| !part.absent);
        let replies: Vec<_> = present.map(|part| std::mem::take(&mut part.reply)).collect();
        let Gather { client, seq: place, ending, mark, .. } = gather;
        let asker = Asker { client, place };
        match ending {
            Ending::Join(how) => self.tell(asker, mark, &join::join(&how, &replies)),
            Ending::Scan { shard, count } => {
                self.tell(asker, mark, &cursor::rewrite_reply(&replies[0], shard, count));
            }
            Ending::Names(telling) => {
                return Some(Gathered { asker, mark, replies, of: GatheredFor::Names(*telling) });
            }
            Ending::Mitigation(id) => {
                return Some(Gathered { asker, mark, replies, of: GatheredFor::Mitigation(id) });
            }
        }
        None
    }

    /// Gives whoever waits for it the reply that was made of others.
    pub(crate) fn tell(&mut self, asker: Asker, mark: Mark, reply: &[u8]) {
        if let Some(observer) = &mut self.observer {
            observer.answered(&mark, reply, 0);
        }
        self.clients.fill(asker.client, asker.place, reply);
    }

    /// A client has gone: what it had dedicated connections for is given up with them.
    pub(crate) fn forget_apart(&mut self, key: ClientKey) {
        for link in self.upstream.links_apart(key) {
            self.links().drop_link(link);
        }
        self.room.gathers.retain(|_, gather| !(gather.apart && gather.client == key));
    }
}

impl Room {
    /// One more part, for what stands before the `WAIT` with this ticket.
    pub(crate) fn part_that_writes(&mut self, join: usize, ticket: Ticket) -> Ticket {
        let gather = &mut self.gathers[join];
        gather.parts.push(Part { writes: true, ..Part::default() });
        gather.missing += 1;
        let part = gather.parts.len() as u32 - 1;
        Ticket { purpose: Purpose::Part { join: join as u32, part }, ..ticket }
    }

    /// Whether a ticket is that of what stands before a `WAIT`, which is of no use elsewhere.
    pub(crate) fn is_of_wait(&self, ticket: Ticket) -> bool {
        let Purpose::Part { join, part } = ticket.purpose else { return false };
        let gather = self.gathers.get(join as usize);
        gather.is_some_and(|gather| gather.parts.get(part as usize).is_some_and(|p| p.writes))
    }
}
