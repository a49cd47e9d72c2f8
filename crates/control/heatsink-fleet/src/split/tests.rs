//! The data steps, on a real server and a real cluster.

mod marker;
mod memory;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use heatsink_admin::control::ShardContent;
use heatsink_proxy::config::{Config, Target, Upstream};
use heatsink_proxy::{Handle, Proxy};
use heatsink_split::layout::Names;
use heatsink_split::{Kind, Layout};
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, eventually};
use heatsink_upstream::address::Endpoint;

use self::marker::{
    a_changed_marker_is_as_good_as_any_when_a_value_is_made_whole,
    a_marker_that_was_changed_is_mended_once, a_marker_that_was_renamed_is_found,
    a_marker_without_an_id_is_that_of_the_latest_split,
};
use self::memory::{
    a_shard_that_is_gone_is_not_an_empty_one, parts_that_may_be_evicted_are_told_of,
};
use super::fit::Bounds;
use super::names::{Manifest, new_split_id};
use super::steps::{Fate, NotSplit, Steps};
use super::whole::Whole;

const PATIENCE: Duration = Duration::from_secs(20);
const BOUNDS: Bounds = Bounds { max_members: 1_000_000, max_value_bytes: 64 << 20 };

/// A proxy before one server or before a cluster.
struct Rig {
    /// Runs as long as the rig is there.
    _proxy: Proxy,
    handle: Handle,
    steps: Steps,
    server: Option<RedisServer>,
}

impl Rig {
    fn before(target: Target, server: Option<RedisServer>) -> Self {
        let upstream = Upstream { target, credentials: None, db: 0, tls: None };
        let listen = "127.0.0.1:0".parse().expect("an address");
        let proxy = Proxy::start(Config::new(listen, upstream)).expect("it starts");
        let handle = proxy.handle();
        let steps = Steps::new(handle.clone(), "test");
        Self { _proxy: proxy, handle, steps, server }
    }

    fn server() -> Self {
        let server = RedisServer::start();
        let endpoint = Endpoint::tcp("127.0.0.1", server.port());
        Self::before(Target::Server(endpoint), Some(server))
    }

    fn cluster() -> Self {
        let port = shared_cluster().node(0).port();
        let rig = Self::before(Target::Cluster(vec![("127.0.0.1".to_owned(), port)]), None);
        rig.client().command(&["FLUSHALL"]);
        eventually(PATIENCE, || rig.handle.slot_owners().is_some());
        rig
    }

    /// One that may use the names of shards.
    fn client(&self) -> RawClient {
        RawClient::over_stream(self.handle.connect().expect("a connection within"))
    }

    fn layout(&self, key: &str, kind: Kind, expires: bool, factor: u32) -> Layout {
        let tags = self.steps.new_tags(key.as_bytes(), factor);
        Layout::new(&new_split_id(1), kind, expires, &tags)
    }

    async fn enter(&self, key: &str, layout: &Layout) {
        let manifest = Manifest::new(key.as_bytes(), layout, 1);
        self.steps.permit(key.as_bytes(), &layout.id).await.expect("allowed");
        self.steps.enter(&layout.id, &manifest).await.expect("entered");
    }

    async fn split(&self, key: &str, layout: &Layout) -> Result<(), NotSplit> {
        self.steps.split(key.as_bytes(), layout, &BOUNDS, 1 << 40).await
    }

    fn names(&self) -> BTreeSet<String> {
        let keys = self.client().command(&["KEYS", "*"]);
        keys.items().iter().map(Reply::text).collect()
    }
}

fn shared_cluster() -> MutexGuard<'static, RedisCluster> {
    static SHARED: OnceLock<Mutex<RedisCluster>> = OnceLock::new();
    let shared =
        SHARED.get_or_init(|| Mutex::new(RedisCluster::builder().replicas_per_primary(0).start()));
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every function here is a test on a server and on a cluster.
macro_rules! on_each {
    ($($name:ident)*) => {
        mod server { $(
            #[tokio::test]
            async fn $name() { super::$name(super::Rig::server()).await }
        )* }
        // One after the other, because they share one.
        mod cluster {
            #[tokio::test]
            async fn all_of_them() { $( super::$name(super::Rig::cluster()).await; )* }
        }
    };
}

on_each! {
    values_are_split_and_made_whole
    a_write_before_the_commit_makes_it_begin_again
    a_split_that_was_given_up_is_never_committed
    two_movers_make_one_value_whole
    what_is_written_while_shards_are_sealed_is_kept_or_refused
    an_overwritten_marker_is_left_alone
    a_marker_that_was_changed_is_mended_once
    a_changed_marker_is_as_good_as_any_when_a_value_is_made_whole
    a_marker_that_was_renamed_is_found
    a_marker_without_an_id_is_that_of_the_latest_split
    an_emptied_value_is_no_value
    a_shard_that_is_gone_is_not_an_empty_one
    parts_that_may_be_evicted_are_told_of
    what_cannot_be_split_is_refused_with_a_reason
}

type Value = (Kind, Vec<Vec<String>>, Vec<&'static str>);

/// The commands that make a value of each kind, and the one that reads it.
fn values() -> Vec<Value> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let many = |first: &str, each: &dyn Fn(usize) -> Vec<String>| {
        let mut command = vec![first.to_owned(), "k".to_owned()];
        command.extend((0..1000).flat_map(each));
        vec![command]
    };
    vec![
        (Kind::Counter, vec![words(&["SET", "k", "-12345"])], vec!["GET", "k"]),
        (Kind::Set, many("SADD", &|n| vec![format!("m{n}")]), vec!["SMEMBERS", "k"]),
        (
            Kind::Hash,
            many("HSET", &|n| vec![format!("f{n}"), format!("v{n}")]),
            vec!["HGETALL", "k"],
        ),
        (
            Kind::SortedSet,
            many("ZADD", &|n| vec![format!("{n}.5"), format!("m{n}")]),
            vec!["ZRANGE", "k", "0", "-1", "WITHSCORES"],
        ),
        (
            Kind::List,
            many("RPUSH", &|n| vec![format!("e{}", n % 7)]),
            vec!["LRANGE", "k", "0", "-1"],
        ),
        (Kind::HyperLogLog, many("PFADD", &|n| vec![format!("m{n}")]), vec!["PFCOUNT", "k"]),
    ]
}

/// What a read shows, in an order that does not matter for what has none.
fn shown(kind: Kind, reply: &Reply) -> Vec<String> {
    match kind {
        Kind::Set => {
            let mut items: Vec<_> = reply.items().iter().map(Reply::text).collect();
            items.sort();
            items
        }
        Kind::Hash => {
            let pairs = reply.items().chunks(2);
            let mut pairs: Vec<_> =
                pairs.map(|pair| format!("{}={}", pair[0].text(), pair[1].text())).collect();
            pairs.sort();
            pairs
        }
        Kind::Counter | Kind::HyperLogLog => vec![format!("{reply:?}")],
        _ => reply.items().iter().map(Reply::text).collect(),
    }
}

/// What all shards hold, each in the way of its kind; of a `HyperLogLog` nothing adds up.
fn added_up(kind: Kind, contents: &[Option<ShardContent>]) -> i64 {
    let part = |content: &Option<ShardContent>| match (kind, content) {
        (Kind::Counter, Some(ShardContent::Value(part))) => *part,
        (Kind::HyperLogLog, Some(ShardContent::Bytes(1..))) => 1000 / contents.len() as i64,
        (_, Some(ShardContent::Count(members))) => *members as i64,
        (_, other) => panic!("{other:?} in a shard of a {kind}"),
    };
    contents.iter().map(part).sum()
}

/// The error of a command, as the server says it: of one in a transaction the proxy asks nothing
/// more.
fn told_by_server(client: &mut RawClient, command: &[&str]) -> String {
    client.command(&["MULTI"]);
    client.command(command);
    client.command(&["EXEC"]).items()[0].error().clone()
}

async fn values_are_split_and_made_whole(rig: Rig) {
    for (kind, commands, read) in values() {
        for (expires, factor) in [(false, 2), (true, 8)] {
            let mut client = rig.client();
            for command in &commands {
                client.command(command);
            }
            if expires {
                client.command(&["PEXPIREAT", "k", "4102444800123"]);
            }
            let before = shown(kind, &client.command(&read));
            let fit = rig.steps.examine(b"k", &BOUNDS).await.expect("fit");
            assert_eq!((fit.kind, fit.expires), (kind, expires));
            let layout = rig.layout("k", kind, expires, factor);
            rig.enter("k", &layout).await;
            rig.split("k", &layout).await.expect("split");
            assert!(rig.steps.is_marked(b"k", &layout).await.expect("asked"));
            assert!(told_by_server(&mut client, &read).starts_with("WRONGTYPE"), "{kind}");
            let deadline = client.command(&["PEXPIRETIME", "k"]).integer();
            assert_eq!(deadline, if expires { 4_102_444_800_123 } else { -1 }, "{kind}");
            let known = rig.steps.known().await.expect("read");
            assert_eq!(known.len(), 1);
            assert_eq!((known[0].key.as_slice(), &known[0].layout), (b"k".as_slice(), &layout));
            let contents = rig.steps.contents(&layout).await.expect("looked into");
            assert_eq!(contents.len(), factor as usize);
            assert_eq!(
                added_up(kind, &contents),
                if kind == Kind::Counter { -12345 } else { 1000 }
            );
            // Through the marker nothing else is lost either: whoever does not know is refused.
            assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed), "{kind}");
            assert_eq!(shown(kind, &client.command(&read)), before, "{kind}");
            let deadline = client.command(&["PEXPIRETIME", "k"]).integer();
            assert_eq!(deadline, if expires { 4_102_444_800_123 } else { -1 }, "{kind}");
            rig.steps.retire(b"k", &layout).await.expect("retired");
            assert!(rig.steps.known().await.expect("read").is_empty());
            // What is left has an end.
            for name in rig.names().iter().filter(|name| *name != "k") {
                let left = client.command(&["PTTL", name]).integer();
                assert!((1..=600_000).contains(&left), "{kind}: {name} has {left} ms left");
            }
            client.command(&["FLUSHALL"]);
        }
    }
}

async fn a_write_before_the_commit_makes_it_begin_again(rig: Rig) {
    let mut client = rig.client();
    let mut command = vec!["SADD".to_owned(), "k".to_owned()];
    command.extend((0..20_000).map(|n| n.to_string()));
    client.command(&command);
    let layout = rig.layout("k", Kind::Set, false, 4);
    rig.enter("k", &layout).await;
    // Writes come all the time, so one of them between the copy and the commit.
    let added = Arc::new(AtomicI64::new(0));
    let writer = {
        let (mut client, added) = (rig.client(), Arc::clone(&added));
        std::thread::spawn(move || {
            while added.load(Ordering::Relaxed) >= 0 {
                let number = added.load(Ordering::Relaxed);
                let reply = client.command(&["SADD", "k", &format!("w{number}")]);
                let next = number + reply.integer();
                if added
                    .compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
                {
                    return next;
                }
            }
            0
        })
    };
    eventually(PATIENCE, || added.load(Ordering::Relaxed) > 0);
    let split = rig.split("k", &layout).await;
    added.store(-1, Ordering::Relaxed);
    let added = writer.join().expect("it ends");
    assert_eq!(split, Err(NotSplit::Disturbed));
    assert_ne!(rig.steps.forbid(b"k", &layout).await, Ok(Fate::Committed));
    rig.steps.drop_shards(&layout).await.expect("dropped");
    assert_eq!(client.command(&["SCARD", "k"]).integer(), 20_000 + added);
    assert_eq!(rig.names(), BTreeSet::from(["k".to_owned()]), "nothing else is left");
}

async fn a_split_that_was_given_up_is_never_committed(rig: Rig) {
    let mut client = rig.client();
    client.command(&["HSET", "k", "f", "v"]);
    let layout = rig.layout("k", Kind::Hash, false, 2);
    rig.enter("k", &layout).await;
    // Somebody believes that the mover is dead, before it has begun or after.
    assert_eq!(rig.steps.forbid(b"k", &layout).await, Ok(Fate::Never));
    assert_eq!(rig.split("k", &layout).await, Err(NotSplit::Disturbed));
    assert_eq!(client.command(&["HGETALL", "k"]), Reply::bulks(["f", "v"]));
    let layout = rig.layout("k", Kind::Hash, false, 2);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    // Too late: it is committed, and the shards must stay.
    assert_eq!(rig.steps.forbid(b"k", &layout).await, Ok(Fate::Committed));
    assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed));
    assert_eq!(client.command(&["HGETALL", "k"]), Reply::bulks(["f", "v"]));
}

async fn two_movers_make_one_value_whole(rig: Rig) {
    let mut client = rig.client();
    let mut command = vec!["SADD".to_owned(), "k".to_owned()];
    command.extend((0..500).map(|n| n.to_string()));
    for round in 0..10 {
        client.command(&command);
        let layout = rig.layout("k", Kind::Set, false, 8);
        rig.enter("k", &layout).await;
        rig.split("k", &layout).await.expect("split");
        let (one, two) =
            tokio::join!(rig.steps.unsplit(b"k", &layout), rig.steps.unsplit(b"k", &layout));
        let committed = [&one, &two].iter().filter(|it| ***it == Ok(Whole::Committed)).count();
        assert_eq!(committed, 1, "round {round}: {one:?} {two:?}");
        assert_eq!(client.command(&["SCARD", "k"]).integer(), 500);
        let (one, two) =
            tokio::join!(rig.steps.retire(b"k", &layout), rig.steps.retire(b"k", &layout));
        assert_eq!((one, two), (Ok(()), Ok(())));
        client.command(&["DEL", "k"]);
    }
}

async fn what_is_written_while_shards_are_sealed_is_kept_or_refused(rig: Rig) {
    let mut client = rig.client();
    client.command(&["SADD", "k", "first"]);
    let layout = rig.layout("k", Kind::Set, false, 4);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    // A proxy that does not hold: it writes members to where they belong, until refused.
    let writer = {
        let (mut client, layout) = (rig.client(), layout.clone());
        std::thread::spawn(move || {
            let mut acknowledged = BTreeSet::from(["first".to_owned()]);
            for number in 0.. {
                let member = format!("m{number}");
                let shard = layout.name(layout.shard_of(member.as_bytes()), Names::Live);
                let reply = client.command(&[b"SADD".as_slice(), shard, member.as_bytes()]);
                if reply.is_error() {
                    // A proxy before a cluster would wait for word of a split.
                    let refused = ["WRONGTYPE", "TRYAGAIN"];
                    assert!(
                        refused.iter().any(|word| reply.error().starts_with(word)),
                        "{reply:?}"
                    );
                    return acknowledged;
                }
                acknowledged.insert(member);
            }
            acknowledged
        })
    };
    eventually(PATIENCE, || {
        let shard = String::from_utf8_lossy(layout.name(0, Names::Live)).into_owned();
        client.command(&["SCARD", &shard]).integer() > 20
    });
    assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed));
    let acknowledged = writer.join().expect("it ends");
    let members = client.command(&["SMEMBERS", "k"]);
    let members: BTreeSet<String> = members.items().iter().map(Reply::text).collect();
    assert_eq!(members, acknowledged);
}

async fn an_overwritten_marker_is_left_alone(rig: Rig) {
    let mut client = rig.client();
    client.command(&["SADD", "k", "a", "b"]);
    let layout = rig.layout("k", Kind::Set, false, 2);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    assert_eq!(client.command(&["SET", "k", "mine"]), Reply::ok());
    assert!(!rig.steps.is_marked(b"k", &layout).await.expect("asked"));
    assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::NotOurs));
    rig.steps.retire(b"k", &layout).await.expect("retired");
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("mine"));
    assert!(rig.steps.known().await.expect("read").is_empty());
}

async fn an_emptied_value_is_no_value(rig: Rig) {
    let mut client = rig.client();
    client.command(&["SADD", "k", "a"]);
    let layout = rig.layout("k", Kind::Set, false, 2);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    let shard = layout.name(layout.shard_of(b"a"), Names::Live);
    assert_eq!(client.command(&[b"SREM".as_slice(), shard, b"a"]).integer(), 1);
    assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed));
    assert_eq!(client.command(&["EXISTS", "k"]).integer(), 0);
}

async fn what_cannot_be_split_is_refused_with_a_reason(rig: Rig) {
    let mut client = rig.client();
    let few = Bounds { max_members: 2, max_value_bytes: 100 };
    let cases: [(&[&str], &str); 7] = [
        (
            &["RPUSH", "k", "heatsink:split", "id"],
            "it is split, which the registry does not know yet",
        ),
        (&["SET", "k", "text"], "a string that is neither a number nor a HyperLogLog"),
        (&["XADD", "k", "*", "f", "v"], "a value of type stream cannot be split"),
        (&["SADD", "k", "a", "b", "c"], "3 members, split.max_members is 2"),
        (&["HSET", "k", "f", &"x".repeat(200)], "about 201 bytes, split.max_value_bytes is 100"),
        (&["SET", "k", "5", "EX", "59"], "it has less than a minute left"),
        (&["DEL", "k"], "there is no value"),
    ];
    for (command, why) in cases {
        client.command(&["DEL", "k"]);
        client.command(command);
        let refused = rig.steps.examine(b"k", &few).await;
        assert_eq!(refused, Err(NotSplit::Unfit(why.to_owned())), "{command:?}");
    }
}
