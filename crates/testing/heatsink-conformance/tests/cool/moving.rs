//! Reads of a key whose value is moved while their replies are under way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_proxy::hot_keys::{HotKeys, Treatment};
use heatsink_proxy::splits::Splitting;
use heatsink_split::layout::{Kind, Layout, Names};
use heatsink_split::{moving, placement};
use heatsink_testkit::{RawClient, Reply, eventually};

use crate::interleavings::{Arranged, assert_waits};
use crate::served::SOON;
use heatsink_conformance::Way;

const KEY: &[u8] = b"k";

/// A sorted set at `k`, and somebody who moves it beside Heatsink.
struct Moved {
    rig: Arranged,
    direct: RawClient,
}

impl Moved {
    fn new() -> Self {
        let rig = Arranged::new(Treatment::EXACT);
        let mut direct = rig.server.client();
        direct.command(&["DEL", "k"]);
        add(&mut direct);
        rig.heatsink.proxy().handle().believe_splits(Instant::now() + Duration::from_secs(3600));
        Self { rig, direct }
    }

    /// Heatsink believes this of `k` from now on.
    fn tell(&self, splitting: Splitting) -> u64 {
        let hot = HotKeys::default().with_splits([(KEY.to_vec(), splitting)]);
        self.rig.heatsink.proxy().handle().set_hot_keys(hot)
    }

    /// The same, and has taken it over.
    fn tell_settled(&self, splitting: Splitting) {
        let handle = self.rig.heatsink.proxy().handle();
        let version = self.tell(splitting);
        eventually(SOON, || handle.settled_version() >= version);
    }

    fn ask(&mut self, request: &[u8]) {
        self.direct.send_raw(request);
        let reply = self.direct.read_frame();
        assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
    }

    fn permit(&mut self, layout: &Layout) {
        let permit = placement::permit_name(KEY, &layout.id);
        self.direct.command(&[b"SET", &permit[..], b"1"]);
    }

    fn fill_shards(&mut self, layout: &Layout) {
        self.direct.send_raw(&moving::read_whole(layout.kind, KEY));
        let whole = self.direct.read_frame();
        for fill in moving::fill_shards(layout, &whole, 0).expect("it can be split") {
            self.ask(&fill);
        }
    }

    fn commit(&mut self, layout: &Layout) {
        self.fill_shards(layout);
        let permit = placement::permit_name(KEY, &layout.id);
        self.direct.command(&[b"DEL", &permit[..], KEY]);
        self.ask(&moving::write_fence(layout.kind, KEY, &layout.id));
    }

    fn seal(&mut self, layout: &Layout) {
        for shard in 0..layout.len() {
            let (live, sealed) =
                (layout.name(shard, Names::Live), layout.name(shard, Names::Sealed));
            self.direct.command(&[b"RENAME", live, sealed]);
            self.ask(&moving::write_fence(layout.kind, live, &layout.id));
        }
    }

    /// The same value as before.
    fn make_whole(&mut self) {
        self.direct.command(&["DEL", "k"]);
        add(&mut self.direct);
    }
}

fn add(client: &mut RawClient) {
    let reply = client.command(&["ZADD", "k", "1", "a", "1", "b", "1", "c", "1", "d"]);
    assert_eq!(reply, Reply::Integer(4));
}

fn layout(id: &str) -> Arc<Layout> {
    Arc::new(Layout::new(id, Kind::SortedSet, false, &["0", "1", "2"]))
}

fn freezing(layout: &Arc<Layout>) -> Splitting {
    let permit = placement::permit_name(KEY, &layout.id).into();
    Splitting::Freezing { layout: Arc::clone(layout), permit }
}

/// ```text
/// 1. the value is moved: the marker is at the key    2. TYPE is executed: string
/// 3. the value is moved back
/// 4. the reply comes, and there is no marker
/// ```
#[test]
fn a_marker_that_came_and_went_is_not_told_of() {
    let mut moved = Moved::new();
    let layout = layout("one");
    moved.permit(&layout);
    moved.tell_settled(freezing(&layout));
    moved.commit(&layout);
    moved.rig.relay.set(Way::HoldReplies);
    let mut client = moved.rig.client();
    client.send(&["TYPE", "k"]);
    moved.rig.relay.wait_held(b"+string\r\n");
    moved.make_whole();
    assert_waits(&mut client);
    moved.rig.relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::Simple("zset".into()));
}

/// ```text
/// 1. TYPE is executed on the value      2. the value is moved, and others empty the shards
/// 3. the reply comes; whether it was of the value is not known, and the shards are asked
/// ```
#[test]
fn a_value_that_is_moved_behind_a_read_is_found() {
    for (empties, now) in [(false, "zset"), (true, "none")] {
        let mut moved = Moved::new();
        let layout = layout("one");
        moved.permit(&layout);
        moved.tell_settled(freezing(&layout));
        moved.rig.relay.set(Way::HoldReplies);
        let mut client = moved.rig.client();
        client.send(&["TYPE", "k"]);
        moved.rig.relay.wait_held(b"+zset\r\n");
        moved.commit(&layout);
        for shard in (0..layout.len()).filter(|_| empties) {
            moved.direct.command(&[b"DEL", layout.name(shard, Names::Live)]);
        }
        moved.rig.relay.set(Way::Open);
        assert_eq!(client.read_reply(), Reply::Simple(now.into()));
    }
}

/// ```text
/// 1. a split is given up; this worker has not heard of it
/// 2. TYPE is executed on the value
/// 3. the worker hears of another split, which is committed
/// 4. the reply comes; asked again, the marker of the other split is at the key
/// ```
#[test]
fn a_read_that_is_sent_again_looks_for_the_split_that_is_known_by_then() {
    let mut moved = Moved::new();
    let (first, second) = (layout("one"), layout("two"));
    moved.tell_settled(freezing(&first));
    moved.rig.relay.set(Way::HoldReplies);
    let mut client = moved.rig.client();
    client.send(&["TYPE", "k"]);
    moved.rig.relay.wait_held(b"+zset\r\n");
    moved.tell(freezing(&second));
    moved.commit(&second);
    moved.rig.relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::Simple("zset".into()));
}

/// ```text
/// 1. the first round of ZRANK is executed     2. the shards are sealed
/// 3. its replies come, and it goes on
/// ```
#[test]
fn a_rank_goes_on_at_shards_that_were_sealed_meanwhile() {
    let mut moved = Moved::new();
    let layout = layout("one");
    moved.commit(&layout);
    moved.tell_settled(Splitting::Draining(Arc::clone(&layout)));
    moved.rig.relay.set(Way::HoldReplies);
    let mut client = moved.rig.client();
    client.send(&["ZREVRANK", "k", "b"]);
    moved.rig.relay.wait_held(b"$1\r\n1\r\n");
    moved.seal(&layout);
    moved.rig.relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::Integer(2));
}

/// ```text
/// 1. SCARD is refused where the marker stands     2. the shards are sealed
/// 3. the reply comes; nobody has said that the key is split, let alone that it ends
/// ```
#[test]
fn shards_that_were_sealed_unheard_are_read() {
    let mut moved = Moved::new();
    let layout = layout("one");
    moved.permit(&layout);
    moved.tell_settled(freezing(&layout));
    moved.commit(&layout);
    moved.rig.relay.set(Way::HoldReplies);
    let mut client = moved.rig.client();
    client.send(&["ZCARD", "k"]);
    moved.rig.relay.wait_held(b"-WRONGTYPE");
    moved.seal(&layout);
    moved.rig.relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::Integer(4));
    assert_eq!(client.command(&["ZRANK", "k", "c"]), Reply::Integer(2));
    assert_eq!(client.command(&["EXISTS", "k"]), Reply::Integer(1));
}
