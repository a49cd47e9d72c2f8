//! Requests of one client that go on together.
//!
//! Called by: `intake`, with each request that nothing stands in the way of, and before anything
//! else is done for the client.
//! Bound: the requests in what was read at once.
//! Invariant: whatever does not join the batch comes behind it: it is sent first.

use std::ops::Range;

use heatsink_resp::command::Command;

use crate::cluster::node_batches::{NodeBatches, Text};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;
use crate::observe::Mark;
use crate::relay::Relay;
use crate::upstream::nodes::NodeId;

/// What is kept of the place where requests get the name of a shard.
pub(crate) const RENAMED_BYTES: usize = 64 << 10;

/// Requests of one client that are counted together, and sent on together: those next to each
/// other in one piece, before a cluster each to its node.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Range<usize>,
    /// One for each.
    pub(crate) marks: Vec<Mark>,
    /// Before a cluster: where each is, and where it goes.
    pub(crate) node_batches: NodeBatches,
    /// Those that go to shards, under their names.
    pub(crate) renamed: Vec<u8>,
}

impl Relay {
    /// A request goes on to a node with those that came before.
    #[inline]
    pub(crate) fn join_batch(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
        command: &Command,
        at: usize,
        to: (NodeId, Text),
        batch: &mut Batch,
    ) {
        let place = batch.marks.len();
        let mark = match &mut self.observer {
            Some(observer) => observer.sent_in_batch(key, command, request, at, place),
            None => Mark::Nothing,
        };
        batch.marks.push(mark);
        batch.node_batches.push(to.0, to.1);
    }

    /// Sends requests that need nothing but to be passed on.
    #[inline]
    pub(crate) fn forward_batch(&mut self, key: ClientKey, buf: &[u8], batch: &mut Batch) {
        if let Some(observer) = &mut self.observer {
            observer.count_batch(key, buf, &mut batch.marks);
        }
        if batch.node_batches.is_empty() {
            self.send_on(key, NodeId::FIRST, &buf[batch.bytes.clone()], &batch.marks);
        } else {
            self.forward_each(key, buf, batch);
            batch.renamed.clear();
            batch.renamed.shrink_to(RENAMED_BYTES);
        }
        batch.marks.clear();
        batch.bytes = 0..0;
    }
}
