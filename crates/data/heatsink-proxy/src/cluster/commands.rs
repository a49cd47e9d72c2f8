//! What only cluster clients ask: to them, Heatsink is a cluster of one node.

use heatsink_cluster::announce;
use heatsink_resp::encode;
use heatsink_upstream::Protocol;

use crate::cluster::Routing;
use crate::cluster::effects::Notes;
use crate::cluster::effects::{Effect, Question};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::{Flow, Request};

impl<N: Notes> Routing<'_, N> {
    /// `CLUSTER …`: the server is asked first, so that only a user who may ask gets an answer;
    /// then the answer is ours.
    pub(crate) fn cluster_command(&mut self, key: ClientKey, request: Request<'_>) -> Flow {
        if request.is(1, "countkeysinslot") || request.is(1, "getkeysinslot") {
            let slot = request.arg(2).and_then(|arg| std::str::from_utf8(arg).ok()?.parse().ok());
            let node = slot.map_or_else(|| self.home(key), |slot| self.primary_of(slot, key));
            return self.forward_to(key, node, request.bytes);
        }
        let Some(client) = self.clients.get_ref(key) else { return Flow::Taken };
        let pool = client.pool;
        let (host, port) = match &self.shared.announce {
            Some((host, port)) => (host.clone(), *port),
            None => (client.record.local_addr.ip().to_string(), client.record.local_addr.port()),
        };
        let resp3 = self.upstream.pools[pool].login.protocol == Protocol::Resp3;
        let args: Vec<_> = request.args_from(0).collect();
        let Some(answer) = announce::answer(&args, &host, port, resp3) else {
            if request.len() < 2 || request.is(1, "help") {
                return self.forward_to(key, self.home(key), request.bytes);
            }
            self.clients.error(
                key,
                "ERR heatsink: this CLUSTER subcommand is for one node; connect to it directly",
            );
            return Flow::Taken;
        };
        if !client.is_drained() {
            return Flow::Wait;
        }
        // What names our own node, or is unknown to older servers, is not for theirs to judge.
        let foreign = ["replicas", "slaves", "myshardid"].iter().any(|sub| request.is(1, sub));
        let mut probe = Vec::new();
        if foreign {
            encode::command(&mut probe, &["CLUSTER", "MYID"]);
        } else {
            probe.extend_from_slice(request.bytes);
        }
        let question = Question { client: key, pool, probe, answer };
        self.effects.note(Effect::Ask(Box::new(question)));
        Flow::Taken
    }
}
