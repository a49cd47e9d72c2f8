//! Requests that a client sends in one piece: those to shards go with those to other keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use heatsink_cluster::slot;
use heatsink_conformance::ClusterRig;
use heatsink_detect::config::Settings;
use heatsink_proxy::Detector;
use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, eventually, seed_from};

use crate::hand::Mover;

const WINDOW_S: u32 = 8;
/// Long enough for an answer that nothing stands in the way of.
const A_WHILE: Duration = Duration::from_millis(100);

/// A set `split` of the members 0 to 9, which is split; its proxy counts.
pub(crate) struct SplitSet {
    pub(crate) rig: ClusterRig,
    pub(crate) mover: Mover,
    detector: Detector,
}

impl SplitSet {
    pub(crate) fn new() -> Self {
        let settings = Settings {
            window_ms: WINDOW_S * 1000,
            tick_ms: 50,
            hot_threshold: 1,
            report_threshold: 1,
            ..Settings::default()
        };
        let cluster = RedisCluster::builder().replicas_per_primary(0);
        let mut rig = ClusterRig::with(cluster, |config| {
            config.workers = 1;
            config.detect = Some(settings);
        });
        let detector = rig.heatsink.take_detector().expect("it counts");
        let mover = Mover::new(&rig.heatsink.proxy().handle());
        let members = (0..10).map(|member| member.to_string());
        let add: Vec<String> =
            ["SADD".to_owned(), "split".to_owned()].into_iter().chain(members).collect();
        // Past the proxy, which counts what it is asked.
        let owner = rig.cluster.owner_of(slot::of_key(b"split"));
        rig.cluster.node(owner).client().command(&add);
        assert!(mover.split(b"split", 8));
        Self { rig, mover, detector }
    }

    /// How often each key was read and written, once so much was counted in all.
    fn counts(&mut self, total: u64) -> BTreeMap<String, (u64, u64)> {
        let whole = |rate: f64| (rate * f64::from(WINDOW_S)).round() as u64;
        let mut report = self.detector.tick();
        eventually(Duration::from_secs(10), || {
            report = self.detector.tick();
            whole(report.reads_per_second + report.writes_per_second) >= total
        });
        let entry = |heat: &heatsink_detect::heat::KeyHeat| {
            let name = String::from_utf8_lossy(&heat.key).into_owned();
            (name, (whole(heat.reads_per_second), whole(heat.writes_per_second)))
        };
        report.keys.iter().map(entry).collect()
    }
}

/// Sends all in one piece.
pub(crate) fn send(client: &mut RawClient, commands: &[impl AsRef<str>]) {
    let words = |command: &_| encode(&AsRef::<str>::as_ref(command).split(' ').collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(words).collect::<Vec<u8>>());
}

/// The same; the replies.
pub(crate) fn together(client: &mut RawClient, commands: &[impl AsRef<str>]) -> Vec<Reply> {
    send(client, commands);
    commands.iter().map(|_| client.read_reply()).collect()
}

/// Has the proxy open the client's ways to all nodes: before that, nothing goes straight.
pub(crate) fn open_ways(client: &mut RawClient) {
    let commands: Vec<String> = (0..9).map(|number| format!("GET plain{number}")).collect();
    assert!(together(client, &commands).iter().all(|reply| *reply == Reply::Null));
}

/// Has other threads end, also when this one panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub(crate) fn waits(client: &mut RawClient) -> bool {
    client.try_read_frame(A_WHILE).expect("no error").is_none()
}

/// What goes to shards, to other keys and to all shards comes back in order, and everything is
/// counted once under the name that the client knows.
#[test]
fn every_request_of_a_pipeline_is_answered_in_its_place_and_counted() {
    let mut set = SplitSet::new();
    let mut client = set.rig.client();
    let mut commands = Vec::new();
    let mut wanted = Vec::new();
    for number in 0..30 {
        commands.push(format!("SET plain{} {number}", number % 5));
        wanted.push(Reply::ok());
        commands.push(format!("SADD split {number}"));
        wanted.push(Reply::Integer(i64::from(number >= 10)));
        commands.push(format!("SISMEMBER split {}", number + 1));
        wanted.push(Reply::Integer(i64::from(number < 9)));
        commands.push(format!("GET plain{}", number % 5));
        wanted.push(Reply::Bulk(number.to_string().into_bytes()));
        if number % 10 == 4 {
            commands.push("SCARD split".to_owned());
            wanted.push(Reply::Integer(10.max(number + 1)));
        }
    }
    assert_eq!(together(&mut client, &commands), wanted);
    assert!(set.mover.is_split(b"split") && set.mover.forced() == 0);
    let counts = set.counts(commands.len() as u64);
    let plain = (0..5).map(|number| (format!("plain{number}"), (6, 6)));
    let expected: BTreeMap<_, _> = plain.chain([("split".to_owned(), (33, 30))]).collect();
    assert_eq!(counts, expected);
}

/// More than a client may have out at once, and than a buffer holds.
#[test]
fn a_pipeline_of_any_length_reaches_its_shards() {
    let set = SplitSet::new();
    let mut client = set.rig.client();
    let add = |number: usize| format!("SADD split member{number}");
    let commands: Vec<String> = (0..20_000).map(add).collect();
    let replies = together(&mut client, &commands);
    assert!(replies.iter().all(|reply| *reply == Reply::Integer(1)));
    assert_eq!(client.command(&["SCARD", "split"]), Reply::Integer(20_010));
    assert!(set.mover.is_split(b"split") && set.mover.forced() == 0);
}

/// Rights are those on the key. Whoever has none on shards finds the key whole.
#[test]
fn another_user_is_not_sent_to_shards() {
    let set = SplitSet::new();
    for node in set.rig.cluster.nodes() {
        let user = ["ACL", "SETUSER", "ann", "on", ">pw", "~split", "~plain*", "+@all"];
        assert_eq!(node.client().command(&user), Reply::ok());
    }
    let mut ann = set.rig.client();
    assert_eq!(ann.command(&["AUTH", "ann", "pw"]), Reply::ok());
    open_ways(&mut ann);
    let commands = ["SET plain 1", "SADD split new", "SISMEMBER split new", "GET plain"];
    let wanted = [Reply::ok(), Reply::Integer(1), Reply::Integer(1), Reply::bulk("1")];
    assert_eq!(together(&mut ann, &commands), wanted);
    assert_eq!(set.mover.forced(), 1);
}

/// What is known of the shards may not hold any more: nothing goes there, whatever stands before
/// it and behind.
#[test]
fn shards_that_are_not_believed_in_get_nothing() {
    let set = SplitSet::new();
    let handle = set.rig.heatsink.proxy().handle();
    let mut client = set.rig.client();
    open_ways(&mut client);
    let now = Instant::now();
    handle.believe_splits(now);
    // It counts in milliseconds.
    eventually(Duration::from_secs(1), || now.elapsed() > Duration::from_millis(2));
    send(&mut client, &["SET plain 1", "SADD split new", "GET plain"]);
    assert_eq!(client.read_reply(), Reply::ok());
    assert!(waits(&mut client));
    handle.believe_splits(now + Duration::from_secs(3600));
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert_eq!(client.read_reply(), Reply::bulk("1"));
    assert!(set.mover.is_split(b"split"));
}

/// While a key is made whole, its shards are asked by both their names, and get no writes.
#[test]
fn a_pipeline_waits_for_a_key_that_is_made_whole_at_its_first_write() {
    let set = SplitSet::new();
    let mut client = set.rig.client();
    open_ways(&mut client);
    for sealed in [0, 4] {
        set.mover.drain(b"split", sealed);
        let reads = (0..10).map(|member| format!("SISMEMBER split {member}"));
        let add = format!("SADD split new{sealed}");
        let commands: Vec<String> = reads.chain([add, "GET plain".to_owned()]).collect();
        send(&mut client, &commands);
        for member in 0..10 {
            assert_eq!(client.read_reply(), Reply::Integer(1), "{member}, {sealed} sealed");
        }
        assert!(waits(&mut client), "{sealed} sealed");
        assert!(set.mover.make_whole(b"split"));
        assert_eq!(client.read_reply(), Reply::Integer(1));
        assert_eq!(client.read_reply(), Reply::Null);
        assert!(set.mover.split(b"split", 8));
    }
}

/// An increment takes a way of its own, and longer: what the client asks of other hot keys
/// behind it does not overtake it.
#[test]
fn nothing_overtakes_an_increment_that_waits() {
    let set = SplitSet::new();
    let mut client = set.rig.client();
    open_ways(&mut client);
    client.command(&["SET", "count", "1"]);
    assert!(set.mover.split(b"count", 4));
    // The increment is refused, and waits until it is known where the value is.
    set.mover.seal_unheard(b"count", 0..4);
    send(&mut client, &["INCR count", "SADD split new"]);
    assert!(waits(&mut client));
    let is_there = set.rig.client().command(&["SISMEMBER", "split", "new"]);
    assert_eq!(is_there, Reply::Integer(0));
    set.mover.make_whole_unheard(b"count");
    set.mover.release(b"count");
    assert_eq!(client.read_reply(), Reply::Integer(2));
    assert_eq!(client.read_reply(), Reply::Integer(1));
}

/// Nodes close their connections while pipelines are under way: each request is answered once, in
/// its place, and carried out once if at all.
#[test]
fn replies_stay_in_their_places_when_links_are_lost() {
    const FIELDS: usize = 300;
    let set = SplitSet::new();
    let mut client = set.rig.client();
    client.command(&["HSET", "hash", "first", "1"]);
    assert!(set.mover.split(b"hash", 8));
    let over = AtomicBool::new(false);
    let (mut done, mut unknown) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let nodes = set.rig.cluster.nodes();
            let mut nodes: Vec<RawClient> = nodes.map(|node| node.client()).collect();
            while !over.load(Ordering::Acquire) {
                for node in &mut nodes {
                    node.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let _ending = Ending(&over);
        let until = Instant::now() + Duration::from_secs(20);
        for round in 0.. {
            // Some links are lost between pipelines, where nobody notices.
            if round >= 50 && unknown >= 50 {
                break;
            }
            assert!(Instant::now() < until, "{done} done, of {unknown} it is not known");
            let ask = |field: usize| {
                let name = round * FIELDS + field;
                [
                    format!("HSET hash {name} {name}"),
                    format!("SET plain{field} {name}"),
                    format!("HGET hash {name}"),
                ]
            };
            let commands: Vec<String> = (0..FIELDS).flat_map(ask).collect();
            let replies = together(&mut client, &commands);
            for (field, replies) in replies.chunks(3).enumerate() {
                let name = (round * FIELDS + field).to_string();
                let is_lost = |reply: &Reply| match reply {
                    Reply::Error(text) => {
                        assert!(text.starts_with("ERR heatsink: upstream "), "{text}");
                        true
                    }
                    _ => false,
                };
                let lost: Vec<bool> = replies.iter().map(is_lost).collect();
                assert!(lost[0] || replies[0] == Reply::Integer(1), "{replies:?}");
                assert!(lost[1] || replies[1] == Reply::ok(), "{replies:?}");
                let is_read = replies[2] == Reply::bulk(name);
                let is_nothing = lost[0] && replies[2] == Reply::Null;
                assert!(lost[2] || is_read || is_nothing, "{replies:?}");
                done += usize::from(!lost[0]);
                unknown += usize::from(lost[0]);
            }
        }
    });
    assert!(done > 0);
    let mut left = Reply::Null;
    eventually(Duration::from_secs(10), || {
        left = client.command(&["HLEN", "hash"]);
        matches!(left, Reply::Integer(_))
    });
    let left = left.integer() as usize - 1;
    assert!((done..=done + unknown).contains(&left), "{left}, {done} done, {unknown} unknown");
}

/// A pipeline about members that nobody else uses and about a key of the client's own; what it is
/// answered.
fn own_burst(rng: &mut Rng, own: usize, members: &mut BTreeSet<usize>) -> Vec<(String, Reply)> {
    let mut burst = Vec::new();
    for number in 0..rng.usize(1..64) {
        let member = rng.usize(..6);
        let there =
            |members: &BTreeSet<usize>, member| Reply::Integer(members.contains(&member).into());
        let (command, reply) = match rng.u32(..6) {
            0 | 1 => {
                let is_new = members.insert(member);
                (format!("SADD split {own}:{member}"), Reply::Integer(is_new.into()))
            }
            2 => {
                let was_there = members.remove(&member);
                (format!("SREM split {own}:{member}"), Reply::Integer(was_there.into()))
            }
            3 => (format!("SISMEMBER split {own}:{member}"), there(members, member)),
            4 => {
                let next = (member + 1) % 6;
                let both = vec![there(members, member), there(members, next)];
                (format!("SMISMEMBER split {own}:{member} {own}:{next}"), Reply::Array(both))
            }
            _ => {
                burst.push((format!("SET own{own} {number}"), Reply::ok()));
                (format!("GET own{own}"), Reply::bulk(number.to_string()))
            }
        };
        burst.push((command, reply));
    }
    burst
}

/// What one client asks of a member is carried out in its order, wherever the value and the slots
/// of the shards go meanwhile.
#[test]
fn pipelines_keep_their_order_while_a_key_and_its_slots_are_moved() {
    const ROUNDS: usize = 24;
    let seed = seed_from("HEATSINK_SPLIT_SEED", 1);
    let set = SplitSet::new();
    let over = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    thread::scope(|scope| {
        for own in 0..4 {
            let (set, over, answered) = (&set, &over, &answered);
            scope.spawn(move || {
                let mut client = set.rig.client();
                if own % 2 == 1 {
                    client.command(&["HELLO", "3"]);
                }
                let mut rng = Rng::with_seed(seed ^ own as u64);
                let mut members = BTreeSet::new();
                let mut under_way = Vec::new();
                while !over.load(Ordering::Acquire) || !under_way.is_empty() {
                    let next = if over.load(Ordering::Acquire) {
                        Vec::new()
                    } else {
                        own_burst(&mut rng, own, &mut members)
                    };
                    let commands: Vec<&String> = next.iter().map(|(command, _)| command).collect();
                    send(&mut client, &commands);
                    // There is always something under way.
                    for (command, wanted) in std::mem::replace(&mut under_way, next) {
                        assert_eq!(client.read_reply(), wanted, "{command}");
                    }
                    answered.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let _ending = Ending(&over);
        let mut rng = Rng::with_seed(seed);
        let wait = |count| {
            let before = answered.load(Ordering::Acquire);
            eventually(Duration::from_secs(10), || {
                answered.load(Ordering::Acquire) > before + count
            });
        };
        for round in 0..ROUNDS {
            wait(20);
            let shards = set.mover.shards(b"split");
            let name = &shards[rng.usize(..shards.len())];
            set.rig.cluster.move_slot(slot::of_key(name), rng.usize(..3));
            wait(20);
            assert!(set.mover.make_whole(b"split"));
            assert!(set.mover.split(b"split", [2, 3, 8][round % 3]));
        }
    });
    assert_eq!(set.mover.forced(), 0);
}
