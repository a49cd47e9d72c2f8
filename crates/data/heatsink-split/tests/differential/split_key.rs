//! A split key on one plain server: sends the parts of plans, merges, and moves the value.

use std::io::Write as _;

use fastrand::Rng;
use heatsink_split::layout::Names;
use heatsink_split::plan::{Context, Merged, Part, Plan};
use heatsink_split::{Kind, Layout, moving, plan, stamp};
use heatsink_testkit::{RawClient, RedisServer, Reply};

/// The name that callers use.
pub(crate) const KEY: &[u8] = b"logical";
const BUILT: &[u8] = b"built";

pub(crate) struct SplitKey {
    kind: Kind,
    client: RawClient,
    mover: RawClient,
    resp3: bool,
    layout: Option<Layout>,
    rng: Rng,
    calls: usize,
    pub(crate) splits: usize,
    /// Commands that the shards answered.
    pub(crate) answered: usize,
}

impl SplitKey {
    pub(crate) fn new(server: &RedisServer, kind: Kind, resp3: bool, rng: Rng) -> Self {
        let (client, mover) = (connect(server, resp3), server.client());
        Self { kind, client, mover, resp3, layout: None, rng, calls: 0, splits: 0, answered: 0 }
    }

    /// A command, answered from the shards if it can be, else from the value made whole.
    pub(crate) fn ask(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.calls += 1;
        if let Some(layout) = self.layout.take() {
            let context = Context {
                layout: &layout,
                names: Names::Live,
                resp3: self.resp3,
                turn: self.calls,
                stamp: self.calls as u64 * stamp::PER_CALL,
            };
            let reply = match plan::plan(&context, args) {
                Plan::One(shard) => {
                    let part = plan::under_name(&context, shard, args);
                    Some(self.send(&[part]).remove(0))
                }
                Plan::Many { parts, merge } => Some(self.merged(&context, parts, merge)),
                Plan::Answer(reply) => Some(reply),
                Plan::Whole => None,
            };
            if let Some(reply) = reply {
                self.layout = Some(layout);
                self.answered += 1;
                return reply;
            }
            self.unsplit(&layout);
        }
        self.client.send(args);
        let reply = self.client.read_frame();
        self.split();
        reply
    }

    fn merged(&mut self, context: &Context<'_>, parts: Vec<Part>, merge: plan::Merge) -> Vec<u8> {
        let (mut parts, mut merge) = (parts, merge);
        for _ in 0..64 {
            let replies = self.send(&parts);
            match plan::merge(context, merge, &replies) {
                Merged::Reply(reply) => return reply,
                Merged::More { parts: more, merge: how } => (parts, merge) = (more, how),
            }
        }
        panic!("there is no end to it");
    }

    fn send(&mut self, parts: &[Part]) -> Vec<Vec<u8>> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
        self.client.send_raw(&bytes);
        parts.iter().map(|_| self.client.read_frame()).collect()
    }

    /// Moves the value into shards, if it is fit for that.
    fn split(&mut self) {
        let kind = self.mover.command(&[b"TYPE", KEY]);
        if kind.bytes() != Some(self.kind.server_type().as_bytes()) {
            return;
        }
        let whole = self.read(&moving::read_whole(self.kind, KEY));
        let factor = *self.rng.choice(&[1, 2, 3, 5, 8, 16]).expect("there are some");
        let tags: Vec<String> = (0..factor).map(|tag: usize| tag.to_string()).collect();
        let expires = self.rng.u8(..5) == 0;
        let layout = Layout::new(&self.calls.to_string(), self.kind, expires, &tags);
        let stamp = self.calls as u64 * stamp::PER_CALL;
        let Ok(requests) = moving::fill_shards(&layout, &whole, stamp) else { return };
        self.write(&requests);
        self.mover.command(&[b"DEL", KEY]);
        self.write(&[moving::write_fence(self.kind, KEY, &layout.id)]);
        self.splits += 1;
        self.layout = Some(layout);
    }

    fn unsplit(&mut self, layout: &Layout) {
        let fence = self.read(&moving::read_fence(self.kind, KEY));
        assert!(moving::is_fence(&fence, &layout.id), "{}", fence.escape_ascii());
        let reads = moving::read_shards(layout, Names::Live);
        let replies: Vec<Vec<u8>> = reads.iter().map(|request| self.read(request)).collect();
        let requests = moving::build_whole(layout, &replies, BUILT).expect("shards that fit");
        self.write(&requests);
        self.mover.command(&[b"DEL", KEY]);
        if !requests.is_empty() {
            assert_eq!(self.mover.command(&[b"RENAME", BUILT, KEY]), Reply::ok());
        }
        for shard in 0..layout.len() {
            self.mover.command(&[b"DEL", layout.name(shard, Names::Live)]);
        }
    }

    fn read(&mut self, request: &[u8]) -> Vec<u8> {
        self.mover.send_raw(request);
        self.mover.read_frame()
    }

    fn write(&mut self, requests: &[Vec<u8>]) {
        for request in requests {
            let reply = self.read(request);
            assert_ne!(reply[0], b'-', "{}", reply.escape_ascii());
        }
    }
}

/// A connection that speaks one of the two protocols.
pub(crate) fn connect(server: &RedisServer, resp3: bool) -> RawClient {
    let mut client = server.client();
    client.command(&["HELLO", if resp3 { "3" } else { "2" }]);
    client
}

/// A request as text, for messages.
pub(crate) fn shown(args: &[Vec<u8>]) -> String {
    let mut text = Vec::new();
    for arg in args.iter().take(40) {
        let _ = write!(text, "{} ", arg[..arg.len().min(60)].escape_ascii());
    }
    String::from_utf8_lossy(&text).into_owned()
}
