//! Requests of one member that go to a shard in their client's batch, as plain requests go to the
//! nodes of a cluster.
//!
//! Called by: `intake`, with each request that names a hot key, before it sends what came before.
//! Bound: the names of shards in a batch, beside the batch itself.
//! Invariant: `ask_shards` would have sent such a request to the same shard, and at once. A request that
//! needs a closer look is left to `ask_shards`, after the batch is sent, so that a client's requests
//! reach each link in their order.

use heatsink_resp::command::Access;
use heatsink_split::layout::{Kind, Names};
use heatsink_split::plan::{self, Context, Plan};
use heatsink_upstream::Protocol;

use super::FEW_ARGS;
use crate::cluster::forward::NodeBatches;
use crate::hot::{Incoming, Mitigations};
use crate::hot_keys::SplitKey;
use crate::relay::Relay;
use crate::splits::Splitting;
use crate::upstream::nodes::NodeId;

impl Mitigations {
    /// The node for a request that goes to one shard of a split key, behind those of `node_batches`, if
    /// nothing stands in its way; it is then appended to `renamed`, under the shard's name.
    #[inline]
    pub(crate) fn fast_path_to_shard(
        &mut self,
        relay: &mut Relay,
        incoming: Incoming<'_>,
        node_batches: &NodeBatches,
        renamed: &mut Vec<u8>,
    ) -> Option<NodeId> {
        let Incoming { key, request, command, .. } = incoming;
        if relay.cluster.view.is_none() || !self.keys.has_moved() {
            return None;
        }
        let name = command.single_key_index().and_then(|index| request.arg(index))?;
        let SplitKey { splitting, first } = self.keys.split_key(name)?;
        let Splitting::Split(layout) = splitting else { return None };
        let client = relay.clients.get_ref(key)?;
        let login = &relay.upstream.pools[client.pool].login;
        let base = &relay.shared.base_login;
        let may_ask = login.db == base.db && login.user_name() == base.user_name();
        // Increments are combined, what is pushed gets a stamp, and what names no member is about
        // all shards: nothing of that goes to one only, so that it would be planned in vain.
        let is_plain = request.len() > 2 && !matches!(layout.kind, Kind::Counter | Kind::List);
        // A client that has touched hot keys apart may be drained by now, which `hot` sees to.
        if !may_ask
            || !is_plain
            || client.hot.apart
            || client.hot.awaits()
            || command.refuses_count(request.len())
            || !relay.is_believed()
        {
            return None;
        }
        let mut args = [&[][..]; FEW_ARGS];
        let args = args.get_mut(..request.len())?;
        args.iter_mut().zip(request.args_from(0)).for_each(|(place, arg)| *place = arg);
        let resp3 = login.protocol == Protocol::Resp3;
        let turn = self.splitting.turns.wrapping_add(1);
        let context = Context { layout, names: Names::Live, resp3, turn, stamp: 0 };
        let Plan::One(shard) = plan::plan(&context, args) else { return None };
        let node = relay.cluster.fast_path_to_slot(
            &relay.upstream,
            client,
            layout.slot(shard),
            node_batches,
        )?;
        layout.rename(shard, request.bytes, request.args, renamed);
        let first = *first;
        self.splitting.turns = turn;
        if command.access == Access::Write {
            self.note_shard_write(first + shard);
        }
        relay.clients.note_asked(key);
        Some(node)
    }
}
