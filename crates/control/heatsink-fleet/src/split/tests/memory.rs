//! Servers that are short of memory, and shards that are gone.

use heatsink_split::layout::Names;
use heatsink_split::{Kind, Layout};
use heatsink_testkit::{RawClient, Reply};

use super::{Rig, shown, values};
use crate::split::data::DataError;
use crate::split::steps::Fate;
use crate::split::whole::Whole;

/// Members of a set that is large beside what a server needs for its clients.
const MEMBERS: i64 = 60_000;

const POLICIES: [&str; 8] = [
    "noeviction",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
];

/// Makes a large set, and tells how many bytes it takes.
fn fill(client: &mut RawClient) -> u64 {
    for from in (0..MEMBERS).step_by(1000) {
        let mut command = vec!["SADD".to_owned(), "k".to_owned()];
        command.extend((from..from + 1000).map(|number| format!("member:{number}")));
        assert_eq!(client.command(&command).integer(), 1000);
    }
    client.command(&["MEMORY", "USAGE", "k", "SAMPLES", "0"]).integer() as u64
}

/// Leaves so many bytes to be used.
fn squeeze(client: &mut RawClient, policy: &str, room: u64) {
    let info = client.command(&["INFO", "memory"]).text();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.expect("told").trim().parse().expect("a number");
    client.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
    client.command(&["CONFIG", "SET", "maxmemory", &(used + room).to_string()]);
}

fn release(client: &mut RawClient) {
    client.command(&["CONFIG", "SET", "maxmemory", "0"]);
    client.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
}

/// What is built of a value and never takes its place is removed.
fn assert_no_attempts(rig: &Rig, when: &str) {
    let names = rig.names();
    let attempts: Vec<_> = names.iter().filter(|name| name.contains(":whole:")).collect();
    assert!(attempts.is_empty(), "{when}: {attempts:?}");
}

#[tokio::test]
async fn a_value_is_made_whole_as_a_whole_or_not_at_all() {
    for policy in POLICIES {
        let rig = Rig::server();
        let mut direct = rig.server.as_ref().expect("a server").client();
        let bytes = fill(&mut direct);
        let layout = rig.layout("k", Kind::Set, false, 4);
        rig.enter("k", &layout).await;
        rig.split("k", &layout).await.expect("split");
        squeeze(&mut direct, policy, bytes * 3 / 4);
        let made = rig.steps.unsplit(b"k", &layout).await;
        // Now there is room.
        direct.command(&["CONFIG", "SET", "maxmemory", "10gb"]);
        if made.is_err() {
            assert!(rig.steps.is_marked(b"k", &layout).await.expect("asked"), "{policy}: {made:?}");
            assert_no_attempts(&rig, policy);
        }
        // What `allkeys` has evicted is gone as a whole.
        let again = rig.steps.unsplit(b"k", &layout).await;
        let members = direct.command(&["SCARD", "k"]);
        let left = if members.is_error() { -1 } else { members.integer() };
        let evicts = policy.starts_with("allkeys");
        assert!(left == MEMBERS || evicts && left == 0, "{policy}: {left}, {made:?}, {again:?}");
        rig.steps.retire(b"k", &layout).await.expect("retired");
        assert_no_attempts(&rig, policy);
    }
}

#[tokio::test]
async fn a_value_is_split_as_a_whole_or_not_at_all() {
    for policy in POLICIES {
        let rig = Rig::server();
        let mut direct = rig.server.as_ref().expect("a server").client();
        let bytes = fill(&mut direct);
        let layout = rig.layout("k", Kind::Set, false, 4);
        rig.enter("k", &layout).await;
        squeeze(&mut direct, policy, bytes / 2);
        let split = rig.split("k", &layout).await;
        release(&mut direct);
        let evicts = policy.starts_with("allkeys");
        assert!(split.is_err(), "{policy}: there is no room for it");
        assert_ne!(rig.steps.forbid(b"k", &layout).await, Ok(Fate::Committed), "{policy}");
        rig.steps.drop_shards(&layout).await.expect("dropped");
        let left = direct.command(&["SCARD", "k"]).integer();
        assert!(left == MEMBERS || evicts && left == 0, "{policy}: {left}, {split:?}");
        let names = rig.names();
        assert!(names.iter().all(|name| name == "k"), "{policy}: {names:?}");
    }
}

/// What may happen to a shard: it is gone before it is sealed, or afterwards.
type Loss = fn(&Layout) -> Vec<Vec<u8>>;

pub(super) async fn a_shard_that_is_gone_is_not_an_empty_one(rig: Rig) {
    let before: Loss = |layout| vec![layout.name(1, Names::Live).to_vec(), layout.guard(1)];
    let after: Loss = |layout| vec![layout.name(1, Names::Sealed).to_vec()];
    let rolled_back: Loss = |layout| {
        let of_shard = [Names::Live, Names::Sealed].map(|names| layout.name(1, names).to_vec());
        of_shard.into_iter().chain([layout.guard(1)]).collect()
    };
    for (kind, commands, read) in values() {
        for (is_sealed, loss) in [(false, before), (true, after), (true, rolled_back)] {
            let mut client = rig.client();
            for command in &commands {
                client.command(command);
            }
            let whole = shown(kind, &client.command(&read));
            let layout = rig.layout("k", kind, false, 4);
            rig.enter("k", &layout).await;
            rig.split("k", &layout).await.expect("split");
            if is_sealed {
                rig.steps.seal(&layout).await.expect("sealed");
            }
            let names = loss(&layout);
            let dumps: Vec<_> =
                names.iter().map(|name| client.command(&[b"DUMP".as_slice(), name])).collect();
            for name in &names {
                assert_eq!(client.command(&[b"DEL".as_slice(), name]).integer(), 1);
            }
            let made = rig.steps.unsplit(b"k", &layout).await;
            let lost = DataError::Refused("shard 1 has lost its data".to_owned());
            assert_eq!(made, Err(lost), "{kind}, sealed: {is_sealed}");
            assert!(rig.steps.is_marked(b"k", &layout).await.expect("asked"));
            assert_no_attempts(&rig, kind.name());
            // It comes back, with its node.
            for (name, dump) in names.iter().zip(&dumps) {
                let dump = dump.bytes().expect("it was there");
                let restore = [b"RESTORE".as_slice(), name, b"0", dump, b"REPLACE"];
                assert_eq!(client.command(&restore), Reply::ok());
            }
            assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed), "{kind}");
            assert_eq!(shown(kind, &client.command(&read)), whole, "{kind}");
            client.command(&["FLUSHALL"]);
        }
    }
}

pub(super) async fn parts_that_may_be_evicted_are_told_of(rig: Rig) {
    let mut client = rig.client();
    let plain = rig.layout("k", Kind::Set, false, 4);
    let expires = rig.layout("k", Kind::Set, true, 4);
    let mut asked = async |policy: &str, max: &str| {
        client.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        client.command(&["CONFIG", "SET", "maxmemory", max]);
        let plain = rig.steps.evicts_parts(b"k", &plain).await.expect("asked");
        let expires = rig.steps.evicts_parts(b"k", &expires).await.expect("asked");
        client.command(&["CONFIG", "SET", "maxmemory", "0"]);
        client.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        (plain, expires)
    };
    assert_eq!(asked("allkeys-lru", "0").await, (None, None));
    assert_eq!(asked("noeviction", "1gb").await, (None, None));
    let any = Some("maxmemory-policy allkeys-lru may evict a part of it".to_owned());
    assert_eq!(asked("allkeys-lru", "1gb").await, (any.clone(), any));
    let marker = "it has a time to live, and maxmemory-policy volatile-ttl may evict a part";
    assert_eq!(asked("volatile-ttl", "1gb").await, (None, Some(marker.to_owned())));
}

#[tokio::test]
async fn what_has_no_room_is_known_before_anything_is_sealed() {
    let rig = Rig::server();
    let mut direct = rig.server.as_ref().expect("a server").client();
    let bytes = fill(&mut direct);
    let layout = rig.layout("k", Kind::Set, false, 4);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    assert_eq!(rig.steps.lacks_room(b"k", &layout).await, Ok(None), "there is no limit");
    squeeze(&mut direct, "noeviction", bytes / 2);
    let lacks = rig.steps.lacks_room(b"k", &layout).await.expect("asked");
    assert!(lacks.is_some_and(|why| why.contains("maxmemory leaves")));
    squeeze(&mut direct, "volatile-lru", bytes / 2);
    assert_eq!(rig.steps.lacks_room(b"k", &layout).await, Ok(None), "others are evicted for it");
    release(&mut direct);
    assert_eq!(rig.steps.is_sealing(&layout).await, Ok(false));
}
