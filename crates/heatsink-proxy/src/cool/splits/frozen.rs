//! Reads of a key that is about to be split.
//!
//! Called by: `splits` with each of them, `fan_out` with what the key has answered.
//! Invariant: a read that finds the value gone is answered from the shards, as soon as it is known
//! where they are.

use std::sync::Arc;
use std::time::Instant;

use heatsink_cluster::join::Join;
use heatsink_resp::command::Command;
use heatsink_split::layout::Names;
use heatsink_split::moving;
use heatsink_split::plan::{self, Context, Merge, Plan};
use heatsink_upstream::Protocol;

use super::collected::Collected;
use super::{MOVING, PATIENCE, WRONG_TYPE};
use crate::clients::{MAX_OUTSTANDING, error_line};
use crate::cluster::fan_out::{Asker, Ending};
use crate::connection::ClientKey;
use crate::intake::Flow;
use crate::observe::Mark;
use crate::request::{Request, spans};
use crate::splits::Splitting;
use crate::worker::Worker;

/// A read of a key that is about to be split, sent to the key itself.
#[derive(Debug)]
pub(crate) struct FrozenRead {
    key: Vec<u8>,
    request: Vec<u8>,
}

/// A read that came too late for the key itself.
#[derive(Debug)]
pub(in crate::cool) struct Parked {
    asker: Asker,
    mark: Mark,
    read: FrozenRead,
    since: Instant,
}

impl Worker {
    /// A read of a key that is about to be split goes to the key. If the value was moved before it
    /// came there, it is read from the shards as soon as it is known where they are.
    pub(super) fn read_frozen(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        name: &[u8],
    ) -> Option<Flow> {
        let client = self.clients.get_ref(key)?;
        if client.awaits_hot() || client.order.outstanding() >= MAX_OUTSTANDING {
            return Some(Flow::Wait);
        }
        if let Some(flow) = self.without_map(key) {
            return Some(flow);
        }
        let mark = self.observe(key, command, request);
        let (client, pool) = self.clients.get_with_pool(key)?;
        client.held_since = None;
        let place = client.order.reserve(pool);
        let asker = Asker { client: key, place };
        let read = FrozenRead { key: name.to_vec(), request: request.bytes.to_vec() };
        self.ask_key(asker, read, mark);
        Some(Flow::Taken)
    }

    fn ask_key(&mut self, asker: Asker, read: FrozenRead, mark: Mark) {
        let Some(lane) = self.lane_of(asker) else { return self.give_up(mark) };
        let question = [(self.node_of(&read.key), read.request.clone())];
        self.ask_several(lane, asker, &question, Ending::Frozen(Box::new(read)), mark);
    }

    /// The key itself has answered.
    pub(crate) fn frozen_read(&mut self, asker: Asker, read: FrozenRead, mark: Mark, reply: &[u8]) {
        if !reply.starts_with(WRONG_TYPE) && !moving::tells_of_fence(reply) {
            return self.end_read(asker, mark, reply);
        }
        let parked = Parked { asker, mark, read, since: self.now };
        match self.cooling.hot.split(&parked.read.key) {
            Some(Splitting::Freezing | Splitting::Draining(_)) => self.cooling.parked.push(parked),
            _ => self.read_again(parked),
        }
    }

    /// Reads that have waited too long are told so.
    pub(super) fn end_late_reads(&mut self) {
        let late = |parked: &Parked| self.now.saturating_duration_since(parked.since) > PATIENCE;
        let parked = std::mem::take(&mut self.cooling.parked);
        let (late, parked) = parked.into_iter().partition::<Vec<_>, _>(late);
        self.cooling.parked = parked;
        for parked in late {
            self.end_read(parked.asker, parked.mark, &error_line(MOVING));
        }
    }

    /// The value has been moved, or was not: the read goes where it is now.
    pub(super) fn read_again(&mut self, parked: Parked) {
        let layout = match self.cooling.hot.split(&parked.read.key) {
            Some(Splitting::Split(layout)) => Arc::clone(layout),
            Some(Splitting::Freezing | Splitting::Draining(_)) => {
                return self.cooling.parked.push(parked);
            }
            None => return self.end_with_key(parked.asker, parked.read, parked.mark),
        };
        let Some(lane) = self.lane_of(parked.asker) else { return self.give_up(parked.mark) };
        let login = &self.lanes[lane].login;
        if login.user_name() != self.shared.base_login.user_name() {
            self.shared.desk.want_whole(&parked.read.key, "a client with a user of its own");
            return self.cooling.parked.push(parked);
        }
        let resp3 = login.protocol == Protocol::Resp3;
        let Parked { asker, mark, read, since } = parked;
        let FrozenRead { key, request } = &read;
        let Some(args) = spans(request) else { return };
        let args: Vec<&[u8]> = args.iter().map(|span| &request[span.clone()]).collect();
        let context = Context { layout: &layout, names: Names::Live, resp3, turn: 0, stamp: 0 };
        let (parts, merge) = match plan::plan(&context, &args) {
            Plan::Many { parts, merge } => (parts, merge),
            Plan::One(part) => (vec![part], Merge::first()),
            Plan::Answer(reply) => return self.end_read(asker, mark, &reply),
            Plan::Whole => {
                self.shared.desk.want_whole(key, &self.name_of_request(request));
                return self.cooling.parked.push(Parked { asker, mark, read, since });
            }
        };
        let collected = Collected::new(self.now, key, &layout, merge, resp3, false);
        // What its client has sent meanwhile is no write: those are held.
        self.ask_parts(asker, parts, collected.beside_others(), mark);
    }

    /// Whatever the key itself says is the answer.
    fn end_with_key(&mut self, asker: Asker, read: FrozenRead, mark: Mark) {
        let Some(lane) = self.lane_of(asker) else { return self.give_up(mark) };
        let question = [(self.node_of(&read.key), read.request)];
        self.ask_several(lane, asker, &question, Ending::Join(Join::First), mark);
    }
}
