//! Servers that are short of memory, and shards that are gone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use heatsink_split::layout::Names;
use heatsink_split::{Kind, Layout};
use heatsink_testkit::{RawClient, Reply};

use super::{Rig, shown, values};
use crate::split::data::DataError;
use crate::split::names::proof;
use crate::split::steps::{Fate, NotSplit};
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

fn evicted(client: &mut RawClient) -> u64 {
    let info = client.command(&["INFO", "stats"]).text();
    let evicted = info.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    evicted.expect("told").trim().parse().expect("a number")
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
        assert!(matches!(made, Err(DataError::NoRoom(_))), "{policy}: {made:?}");
        // Now there is room.
        direct.command(&["CONFIG", "SET", "maxmemory", "10gb"]);
        assert_eq!(rig.steps.is_sealing(&layout).await, Ok(false), "{policy}: writes go on");
        assert!(rig.steps.is_marked(b"k", &layout).await.expect("asked"), "{policy}");
        assert_no_attempts(&rig, policy);
        assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed), "{policy}");
        assert_eq!(direct.command(&["SCARD", "k"]).integer(), MEMBERS, "{policy}");
        assert_eq!(evicted(&mut direct), 0, "{policy}");
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
        assert!(matches!(split, Err(NotSplit::PutOff(_))), "{policy}: {split:?}");
        assert_ne!(rig.steps.forbid(b"k", &layout).await, Ok(Fate::Committed), "{policy}");
        rig.steps.drop_shards(&layout).await.expect("dropped");
        let left = direct.command(&["SCARD", "k"]).integer();
        assert_eq!((left, evicted(&mut direct)), (MEMBERS, 0), "{policy}");
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
    rig.steps.room_for_whole(b"k", &layout).await.expect("there is no limit");
    for policy in POLICIES {
        squeeze(&mut direct, policy, bytes / 2);
        let room = rig.steps.room_for_whole(b"k", &layout).await;
        let Err(DataError::NoRoom(why)) = room else { panic!("{policy}: {room:?}") };
        assert!(why.contains("maxmemory leaves"), "{why}");
        squeeze(&mut direct, policy, bytes * 3 / 2);
        rig.steps.room_for_whole(b"k", &layout).await.expect("there is room");
    }
    release(&mut direct);
    assert_eq!(rig.steps.is_sealing(&layout).await, Ok(false));
}

/// Room that others take while a value is built is seen; what was built of it is removed.
#[tokio::test]
async fn a_value_whose_room_is_taken_meanwhile_is_not_built_further() {
    let rig = Rig::server();
    let mut direct = rig.server.as_ref().expect("a server").client();
    let bytes = fill(&mut direct);
    let layout = rig.layout("k", Kind::Set, false, 4);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    rig.steps.seal(&layout).await.expect("sealed");
    squeeze(&mut direct, "allkeys-lru", bytes / 2);
    let made = rig.steps.unsplit(b"k", &layout).await;
    assert!(matches!(made, Err(DataError::NoRoom(_))), "{made:?}");
    assert_no_attempts(&rig, "there is no room");
    let room = rig.steps.room_for_whole(b"k", &layout).await;
    assert!(matches!(room, Err(DataError::NoRoom(_))), "{room:?}");
    squeeze(&mut direct, "allkeys-lru", bytes * 3 / 2);
    let room = rig.steps.room_for_whole(b"k", &layout).await.expect("there is room");
    squeeze(&mut direct, "allkeys-lru", bytes / 2);
    let mut data = rig.steps.connect().expect("connected");
    assert!(matches!(room.check(&mut data, b"k", (3, 4)).await, Err(DataError::NoRoom(_))));
    assert_eq!(room.check(&mut data, b"k", (1, 8)).await, Ok(()), "most of it is written");
    assert_eq!(evicted(&mut direct), 0);
    release(&mut direct);
    assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Committed));
    assert_eq!(direct.command(&["SCARD", "k"]).integer(), MEMBERS);
}

const FILLER_BYTES: u64 = 100_000;

fn put_filler(client: &mut RawClient, number: u64) {
    let filler = "f".repeat(FILLER_BYTES as usize);
    let put = ["SET", &format!("filler:{number}"), &filler, "EX", "1000"];
    assert_eq!(client.command(&put), Reply::ok());
}

/// It is always full: a value that waited for room there would never be whole.
#[tokio::test]
async fn a_value_is_made_whole_where_others_are_evicted_anyway() {
    let rig = Rig::server();
    let server = rig.server.as_ref().expect("a server");
    let mut direct = server.client();
    let bytes = fill(&mut direct);
    let layout = rig.layout("k", Kind::Set, false, 4);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    let enough = bytes * 2 / FILLER_BYTES;
    (0..enough).for_each(|number| put_filler(&mut direct, number));
    squeeze(&mut direct, "volatile-lru", 0);
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut others, end) = (server.client(), Arc::clone(&is_over));
    let others = thread::spawn(move || {
        let mut number = enough;
        while !end.load(Relaxed) {
            put_filler(&mut others, number);
            number += 1;
        }
    });
    let made = rig.steps.unsplit(b"k", &layout).await;
    is_over.store(true, Relaxed);
    others.join().expect("they wrote");
    release(&mut direct);
    assert_eq!(made, Ok(Whole::Committed));
    assert_eq!(direct.command(&["SCARD", "k"]).integer(), MEMBERS);
}

/// Has the server evict one key, which is nobody's.
fn evict_one(client: &mut RawClient) {
    client.command(&["SET", "filler", &"f".repeat(1_000_000), "EX", "1000"]);
    squeeze(client, "volatile-lru", 0);
    client.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    client.command(&["SET", "other", &"f".repeat(100_000)]);
    assert_eq!(evicted(client), 1);
    release(client);
}

#[tokio::test]
async fn a_value_of_which_a_part_was_evicted_is_told_from_one_that_was_made_whole() {
    let rig = Rig::server();
    let mut direct = rig.server.as_ref().expect("a server").client();
    let bytes = fill(&mut direct);
    let layout = rig.layout("k", Kind::Set, false, 4);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    evict_one(&mut direct);
    let mut client = rig.client();
    for name in [layout.name(1, Names::Live), &layout.guard(1)] {
        assert_eq!(client.command(&[b"DEL".as_slice(), name]).integer(), 1);
    }
    // There is no room for the rest, which nobody builds.
    squeeze(&mut direct, "allkeys-lru", bytes / 2);
    assert_eq!(rig.steps.unsplit(b"k", &layout).await, Ok(Whole::Evicted));
    assert_eq!(rig.steps.was_evicted(b"k", &layout).await, Ok(true));
    release(&mut direct);
    assert_eq!(rig.steps.was_evicted(b"k", &layout).await, Ok(true), "there is proof");
    let proof = proof(b"k", &layout.id);
    assert_eq!(client.command(&[b"DEL".as_slice(), &proof]).integer(), 1);
    assert_eq!(rig.steps.was_evicted(b"k", &layout).await, Ok(false), "nothing is evicted");
    squeeze(&mut direct, "allkeys-lru", bytes);
    assert_eq!(rig.steps.was_evicted(b"k", &layout).await, Ok(true), "it is gone");
    release(&mut direct);
    assert_eq!(direct.command(&["EXISTS", "k"]).integer(), 0);
}
