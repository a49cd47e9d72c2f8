//! `CLIENT TRACKING`, and whatever else the server remembers of a connection until it ends.
//!
//! The client gets a dedicated connection, which stays its own: it is *pinned*.
//! Requests go on being looked at, so that ids of clients are always Heatsink's on one side and
//! the server's on the other.
//!
//! With `REDIRECT` the server tells another connection of changes: that of the client whose id was
//! given. That client must have a connection that is its own and stays so, whatever it does:
//!
//! ```text
//! 1. A waits in BLPOP, on a connection that is its own while it waits
//! 2. B: CLIENT TRACKING ON REDIRECT A
//! 3. A's BLPOP is answered, and C gets the connection: what B was to hear of, C would be told
//! ```
//!
//! So A's worker is asked to pin A's connection first, or to open one, and B's request goes on when
//! the server's id of that connection is known.
//!
//! Called by: `client_command`; the worker, with messages of other workers.
//! Bound: one connection for each client that tracks, or is redirected to, until it leaves. A client waits
//! for the connection of another one until that client's requests under way are answered, and then for
//! `timeouts.connect_ms` at most.

use heatsink_resp::encode;

use crate::downstream::connection::{Client, ClientKey};
use crate::downstream::request::{Flow, Request};
use crate::runtime::shared::Message;
use crate::session::Sessions;
use crate::session::client_command::{NO_ID, parse};
use crate::session::dedicated::Expected;
use crate::session::switch::Session;

/// A client's connection that is to be pinned for another client, of this worker or another.
#[derive(Debug)]
pub(crate) struct Pin {
    pub(crate) target: ClientKey,
    /// The worker of the client that waits for it, and its place there.
    pub(crate) asker: (usize, ClientKey),
}

/// `CLIENT TRACKING` that waits for another client's connection.
#[derive(Debug)]
pub(crate) struct Redirected {
    /// The request, as it came.
    args: Vec<Vec<u8>>,
    /// Where the id is in it.
    at: usize,
    /// The id.
    id: i64,
}

impl Sessions<'_> {
    /// `CLIENT TRACKING ON …`
    pub(in crate::session) fn begin_tracking(
        &mut self,
        key: ClientKey,
        request: Request<'_>,
    ) -> Flow {
        // Of a split key the server would tell by the names of its shards.
        if let Some(flow) = self.relay.routing().wait_for_whole(key) {
            return flow;
        }
        let Some(at) = redirect_at(request) else {
            return self.pin(key, request.bytes, Expected::Tracking { redirect: Some(0) });
        };
        let id: Option<u64> = request.arg(at).and_then(parse);
        let target = id.and_then(|id| self.relay.shared.directory.get(id));
        let args = request.args_from(0).map(<[u8]>::to_vec).collect();
        let redirected = Redirected { args, at, id: id.map_or(0, u64::cast_signed) };
        let Some(target) = target else {
            return self.track_redirected(key, &redirected, None);
        };
        let Some(client) = self.relay.clients.get(key) else { return Flow::Taken };
        client.session = Some(Box::new(Session::Redirected(redirected)));
        client.stopped = true;
        let pin = Pin { target: target.key, asker: (self.relay.index, key) };
        self.relay.shared.mailboxes[target.worker].send(Message::Pin(pin));
        Flow::Taken
    }

    /// Sends a request on the client's dedicated connection, which is pinned if the server agrees.
    pub(in crate::session) fn pin(
        &mut self,
        key: ClientKey,
        bytes: &[u8],
        expected: Expected,
    ) -> Flow {
        let node = self.relay.home(key);
        self.send_dedicated(key, node, bytes, expected)
    }

    /// Pins connections that other clients' changes are redirected to, and tells who waits for it.
    pub(crate) fn serve_pins(&mut self) {
        for pin in std::mem::take(&mut self.room.pins) {
            match self.pinned_id(pin.target) {
                Pinned::Soon => self.room.pins.push(pin),
                Pinned::Never => self.tell_pinned(&pin, None),
                Pinned::As(id) => self.tell_pinned(&pin, Some(id)),
            }
        }
    }

    fn tell_pinned(&self, pin: &Pin, id: Option<i64>) {
        let (worker, asker) = pin.asker;
        self.relay.shared.mailboxes[worker].send(Message::Pinned(asker, id));
    }

    /// Pins a client's connection; the server's id of it.
    fn pinned_id(&mut self, key: ClientKey) -> Pinned {
        let Some(client) = self.relay.clients.get(key) else { return Pinned::Never };
        if client.dedicated.is_none() {
            if !is_between_requests(client) {
                // What it sent goes along the shared link; what it sends next waits for that.
                client.alone = true;
                return Pinned::Soon;
            }
            let node = self.relay.home(key);
            if self.open_dedicated(key, node).is_err() {
                return Pinned::Never;
            }
        }
        let Some(client) = self.relay.clients.get(key) else { return Pinned::Never };
        let Some(dedicated) = &mut client.dedicated else { return Pinned::Never };
        dedicated.pinned = true;
        client.record.upstream_id().map_or(Pinned::Soon, Pinned::As)
    }

    /// The connection that a client's changes are to be redirected to is there, or will not be.
    pub(crate) fn redirect_ready(&mut self, key: ClientKey, id: Option<i64>) {
        let Some(client) = self.relay.clients.get(key) else { return };
        let Some(session) = client.session.take() else { return };
        let Session::Redirected(redirected) = *session else {
            client.session = Some(session);
            return;
        };
        let flow = self.track_redirected(key, &redirected, id);
        debug_assert_eq!(flow, Flow::Taken, "nothing of the client is under way");
        self.relay.clients.resume.push(key);
        self.read_dedicated_again(key);
        self.relay.clients.finish_if_leaving(key);
    }

    /// Without an id the server says that there is no such client.
    fn track_redirected(
        &mut self,
        key: ClientKey,
        redirected: &Redirected,
        id: Option<i64>,
    ) -> Flow {
        let Redirected { args, at, id: told } = redirected;
        let id = id.map_or_else(|| NO_ID.to_owned(), |id| id.to_string());
        let mut args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        args[*at] = id.as_bytes();
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &args);
        self.pin(key, &bytes, Expected::Tracking { redirect: Some(*told) })
    }
}

/// How far a connection is that is to be pinned.
enum Pinned {
    As(i64),
    Soon,
    Never,
}

/// None of its requests is under way, but for one that waits for a connection to be pinned, which
/// may be its own.
fn is_between_requests(client: &Client) -> bool {
    let waits = matches!(client.session.as_deref(), None | Some(Session::Redirected(_)));
    client.order.outstanding() == 0 && waits
}

/// Where the id of a client is among the arguments of `CLIENT TRACKING ON`. The value of a `PREFIX`
/// may be any word.
pub(crate) fn redirect_at(request: Request<'_>) -> Option<usize> {
    let mut at = 3;
    while at < request.len() {
        if request.is(at, "redirect") {
            return (at + 1 < request.len()).then_some(at + 1);
        }
        at += if request.is(at, "prefix") { 2 } else { 1 };
    }
    None
}
