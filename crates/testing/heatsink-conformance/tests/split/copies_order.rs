//! Orders of events around copies that are rare by chance and arranged here: each test draws its
//! own. One server stands for all nodes where that makes no difference.

use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Heatsink, Relay, Rig, Way};
use heatsink_proxy::Handle;
use heatsink_proxy::hot_keys::{Copies, HotKeys, Treatment};
use heatsink_split::layout;
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};

const SOON: Duration = Duration::from_secs(10);
/// Long enough to see that something does not happen.
const A_WHILE: Duration = Duration::from_millis(100);
const KEY: &str = "value";

/// One copy, which lives for so long.
fn copies(tag: &str, life: Duration) -> Copies {
    Copies { names: vec![layout::copy_name(tag, "test", 0)], read: true, life }
}

fn name(copies: &Copies) -> String {
    String::from_utf8_lossy(&copies.names[0]).into_owned()
}

fn tell(handle: &Handle, copies: &Copies) {
    let hot = HotKeys::default().with_copies([(KEY.as_bytes().to_vec(), copies.clone())]);
    let version = handle.set_hot_keys(hot);
    eventually(SOON, || handle.settled_version() >= version);
}

/// A client that reads the copy, of those that `connect` makes: every other one does.
fn reader(connect: impl Fn() -> RawClient, copy: &mut RawClient, name: &str) -> RawClient {
    eventually(SOON, || {
        copy.command(&["SET", name, "from the copy"]);
        let mut client = connect();
        let found = client.command(&["GET", KEY]) == Reply::bulk("from the copy");
        copy.command(&["DEL", name]);
        found.then_some(client)
    })
}

/// ```text
/// 1. GET goes to the copy, which is gone: its reply is under way
/// 2. the copy is filled; GET goes there and finds it: this reply is under way, too
/// 3. somebody writes: the copy goes, the key is new
/// 4. the first reply comes: the key is asked, and says what is new
/// 5. the second reply comes: what it says is older
/// ```
#[test]
fn a_read_behind_one_that_found_no_copy_is_asked_of_the_key_as_well() {
    let server = RedisServer::start();
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
    let mut direct = server.client();
    direct.command(&["SET", KEY, "old"]);
    let copies = copies("t", Duration::from_secs(60));
    let copy = name(&copies);
    tell(&heatsink.proxy().handle(), &copies);
    let mut client = reader(|| heatsink.client(), &mut direct, &copy);
    // Nothing else is out, for whose answer the second read would wait: the list of commands, say.
    eventually(SOON, || server.calls("command") > 0);
    assert_eq!(client.command(&["GET", "another"]), Reply::Null);
    relay.set(Way::HoldReplies);
    let before = server.calls("get");
    client.send(&["GET", KEY]);
    eventually(SOON, || server.calls("get") == before + 1);
    direct.command(&["SET", &copy, "old"]);
    client.send(&["GET", KEY]);
    relay.wait_held(b"old");
    direct.command(&["SET", KEY, "new"]);
    direct.command(&["DEL", &copy]);
    relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::bulk("new"));
    assert_eq!(client.read_reply(), Reply::bulk("new"));
    // What follows is asked of the key for a while, in order.
    client.send(&["GET", KEY]);
    client.send(&["SET", KEY, "newer"]);
    client.send(&["GET", KEY]);
    assert_eq!(client.read_reply(), Reply::bulk("new"));
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::bulk("newer"));
}

/// ```text
/// 1. GET goes to the key, since the copy was gone lately; the key's node is slow
/// 2. that was long enough ago: GET may go to the copy, on another node
/// 3. somebody writes, before the key's node comes to the first
/// ```
#[test]
fn a_read_does_not_go_to_a_copy_while_the_key_owes_an_answer() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let mut rig = ClusterRig::with(settings, |config| config.workers = 1);
    let owner = rig.cluster.owner_of(heatsink_testkit::key_slot(KEY));
    let elsewhere = (owner + 1) % 3;
    let tag = (0..).map(|number: u32| number.to_string());
    let mut tags = tag.filter(|tag| {
        rig.cluster.owner_of(heatsink_cluster::slot::of_key(tag.as_bytes())) == elsewhere
    });
    let life = Duration::from_millis(400);
    let copies = copies(&tags.next().expect("a tag"), life);
    let copy = name(&copies);
    let mut client = rig.client();
    client.command(&["SET", KEY, "old"]);
    tell(&rig.heatsink.proxy().handle(), &copies);
    let mut direct = rig.cluster.node(elsewhere).client();
    let mut client = reader(|| rig.client(), &mut direct, &copy);
    // It finds no copy, and asks the key; so does the next one.
    assert_eq!(client.command(&["GET", KEY]), Reply::bulk("old"));
    rig.cluster.pause(owner);
    let lately = Instant::now();
    client.send(&["GET", KEY]);
    direct.command(&["SET", &copy, "old"]);
    // An eighth of a copy's life.
    eventually(SOON, || lately.elapsed() > life / 8);
    let before = rig.cluster.calls(elsewhere, "get");
    client.send(&["GET", KEY]);
    assert!(client.try_read_frame(A_WHILE).expect("no error").is_none());
    assert_eq!(rig.cluster.calls(elsewhere, "get"), before, "it went to the copy");
    rig.cluster.resume(owner);
    assert_eq!(client.read_reply(), Reply::bulk("old"));
    assert_eq!(client.read_reply(), Reply::bulk("old"));
}

/// Whether a version of the hot keys does not settle, as long as anybody can tell.
pub(crate) fn is_unsettled(handle: &Handle, version: u64) -> bool {
    let until = Instant::now() + A_WHILE;
    while Instant::now() < until {
        if handle.settled_version() >= version {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// ```text
/// 1. an increment is under way; others wait to be combined behind it
/// 2. the key is to have copies: the worker takes that over
/// 3. the first is answered; the others leave. They remove no copies
/// 4. a copy that was filled before they are executed would be older than they are
/// ```
#[test]
fn increments_that_were_combined_before_are_waited_for_before_there_are_copies() {
    let server = RedisServer::start();
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
    let handle = heatsink.proxy().handle();
    let hot: HotKeys = [(KEY.as_bytes().to_vec(), Treatment::EXACT)].into_iter().collect();
    handle.set_hot_keys(hot);
    let mut clients: Vec<RawClient> = (0..3).map(|_| heatsink.client()).collect();
    for client in &mut clients {
        assert!(!client.command(&["INCRBY", KEY, "0"]).is_error());
    }
    relay.set(Way::HoldReplies);
    clients[0].send(&["INCRBY", KEY, "1"]);
    relay.wait_held(b":1\r\n");
    for client in &mut clients[1..] {
        client.send(&["INCRBY", KEY, "20000"]);
    }
    // Both are there before the key is another.
    assert!(clients[1].try_read_frame(A_WHILE).expect("no error").is_none());
    let copies = Copies { read: false, ..copies("t", Duration::from_secs(1)) };
    let hot = HotKeys::default().with_copies([(KEY.as_bytes().to_vec(), copies)]);
    let version = handle.set_hot_keys(hot);
    assert!(is_unsettled(&handle, version));
    relay.set(Way::HoldRequest(b"40000".to_vec()));
    assert_eq!(clients[0].read_reply(), Reply::Integer(1));
    relay.wait_request_held();
    assert!(is_unsettled(&handle, version), "increments are under way that remove no copies");
    relay.set(Way::Open);
    let replies: Vec<i64> =
        clients[1..].iter_mut().map(|client| client.read_reply().integer()).collect();
    assert_eq!(replies.iter().max(), Some(&40_001), "{replies:?}");
    eventually(SOON, || handle.settled_version() >= version);
}

/// ```text
/// 1. a write cannot say to whoever fills a copy that it writes: it tries again and again
/// 2. the copies are to go, or others take their place
/// 3. what was settled without it would be written to later, and remove only the old copies
/// ```
#[test]
fn a_write_that_cannot_reach_a_copy_is_waited_for() {
    let rig = Rig::new(1);
    let handle = rig.heatsink().proxy().handle();
    let mut direct = rig.server().client();
    direct.command(&["SET", KEY, "old"]);
    let copies = copies("t", Duration::from_secs(60));
    tell(&handle, &copies);
    // Something else is where writers say that they write.
    let writers = layout::writers_name(&copies.names[0]);
    direct.command(&[b"SET", &writers[..], b"in the way"]);
    let mut client = rig.client();
    let before = rig.server().calls("sadd");
    client.send(&["SET", KEY, "new"]);
    eventually(SOON, || rig.server().calls("sadd") > before);
    let version = handle.set_hot_keys(HotKeys::default());
    assert!(is_unsettled(&handle, version), "a write is under way");
    assert_eq!(direct.command(&["GET", KEY]), Reply::bulk("old"));
    direct.command(&[b"DEL", &writers[..]]);
    assert_eq!(client.read_reply(), Reply::ok());
    eventually(SOON, || handle.settled_version() >= version);
    assert_eq!(direct.command(&["GET", KEY]), Reply::bulk("new"));
}

/// The same while it is being tried: it lies in no queue then, and its key may be about to be split.
///
/// ```text
/// 1. a write tries again and again to reach a copy
/// 2. the copies are to go: the worker takes that over
/// 3. the write tries once more; the answer is under way
/// 4. settled without it, the value would be moved, and the write would come to what is left there
/// ```
#[test]
fn a_write_that_is_tried_again_is_waited_for() {
    let server = RedisServer::start();
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
    let handle = heatsink.proxy().handle();
    let mut direct = server.client();
    direct.command(&["SET", KEY, "old"]);
    let copies = copies("t", Duration::from_secs(60));
    tell(&handle, &copies);
    let writers = layout::writers_name(&copies.names[0]);
    direct.command(&[b"SET", &writers[..], b"in the way"]);
    let mut client = heatsink.client();
    let tries = || server.calls("sadd");
    client.send(&["SET", KEY, "new"]);
    eventually(SOON, || tries() > 0);
    let version = handle.set_hot_keys(HotKeys::default());
    // What was out when the worker heard of it is answered: it tries again only then.
    let before = tries();
    eventually(SOON, || tries() > before + 2);
    relay.set(Way::HoldReplies);
    let before = tries();
    let until = Instant::now() + A_WHILE;
    while tries() == before && Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(is_unsettled(&handle, version), "a write is under way");
    direct.command(&[b"DEL", &writers[..]]);
    relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::ok());
    eventually(SOON, || handle.settled_version() >= version);
    assert_eq!(direct.command(&["GET", KEY]), Reply::bulk("new"));
}

/// A write of a key that has copies takes several rounds, and only the first was sent when the
/// worker heard of other hot keys.
///
/// ```text
/// 1. a write says that it writes; the answer is under way
/// 2. the copies are to go: the worker takes that over, and waits for this answer
/// 3. the answer comes; the write is sent to the key
/// 4. settled now, the value would be moved, and the write would come to what is left there
/// ```
#[test]
fn a_write_is_waited_for_in_each_of_its_rounds() {
    let server = RedisServer::start();
    let relay = Relay::before(server.addr());
    let heatsink = Heatsink::before_url(&relay.url(), |config| config.workers = 1);
    let handle = heatsink.proxy().handle();
    let mut direct = server.client();
    direct.command(&["SET", KEY, "old"]);
    let copies = copies("t", Duration::from_secs(60));
    tell(&handle, &copies);
    let mut client = heatsink.client();
    assert_eq!(client.command(&["GET", "another"]), Reply::Null);
    relay.set(Way::HoldReplies);
    let before = server.calls("pexpire");
    client.send(&["SET", KEY, "what is new"]);
    eventually(SOON, || server.calls("pexpire") > before);
    let version = handle.set_hot_keys(HotKeys::default());
    assert!(is_unsettled(&handle, version), "it has not said yet that it writes");
    relay.set(Way::HoldRequest(b"what is new".to_vec()));
    relay.wait_request_held();
    assert!(is_unsettled(&handle, version), "it is about to write");
    assert_eq!(direct.command(&["GET", KEY]), Reply::bulk("old"));
    relay.set(Way::Open);
    assert_eq!(client.read_reply(), Reply::ok());
    eventually(SOON, || handle.settled_version() >= version);
    assert_eq!(direct.command(&["GET", KEY]), Reply::bulk("what is new"));
}

/// Writes that began later hold nobody up: they go by what is to be settled.
#[test]
fn only_writes_that_began_before_are_waited_for() {
    let rig = Rig::new(1);
    let handle = rig.heatsink().proxy().handle();
    let mut direct = rig.server().client();
    let life = Duration::from_secs(60);
    let (first, second) = (copies("t", life), copies("u", life));
    let in_the_way = [&first, &second].map(|copies| layout::writers_name(&copies.names[0]));
    for writers in &in_the_way {
        direct.command(&[b"SET", &writers[..], b"in the way"]);
    }
    tell(&handle, &first);
    let (mut early, mut late) = (rig.client(), rig.client());
    early.send(&["SET", KEY, "early"]);
    eventually(SOON, || rig.server().calls("sadd") > 0);
    let hot = HotKeys::default().with_copies([(KEY.as_bytes().to_vec(), second)]);
    let version = handle.set_hot_keys(hot);
    assert!(is_unsettled(&handle, version), "a write is under way that began before");
    late.send(&["SET", KEY, "late"]);
    assert!(late.try_read_frame(A_WHILE).expect("no error").is_none());
    direct.command(&[b"DEL", &in_the_way[0][..]]);
    assert_eq!(early.read_reply(), Reply::ok());
    eventually(SOON, || handle.settled_version() >= version);
    assert!(late.try_read_frame(A_WHILE).expect("no error").is_none());
    direct.command(&[b"DEL", &in_the_way[1][..]]);
    assert_eq!(late.read_reply(), Reply::ok());
    assert_eq!(direct.command(&["GET", KEY]), Reply::bulk("late"));
}

/// A client that goes away while its write waits leaves nothing behind.
#[test]
fn a_client_that_leaves_while_its_write_waits_holds_nobody_up() {
    let rig = Rig::new(1);
    let handle = rig.heatsink().proxy().handle();
    let mut direct = rig.server().client();
    direct.command(&["SET", KEY, "old"]);
    let copies = copies("t", Duration::from_secs(60));
    tell(&handle, &copies);
    let writers = layout::writers_name(&copies.names[0]);
    direct.command(&[b"SET", &writers[..], b"in the way"]);
    let mut client = rig.client();
    let before = rig.server().calls("sadd");
    client.send(&["SET", KEY, "new"]);
    eventually(SOON, || rig.server().calls("sadd") > before);
    drop(client);
    let version = handle.set_hot_keys(HotKeys::default());
    direct.command(&[b"DEL", &writers[..]]);
    eventually(SOON, || handle.settled_version() >= version);
}
