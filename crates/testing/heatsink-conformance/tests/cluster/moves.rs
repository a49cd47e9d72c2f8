//! Slots move from node to node, and no client notices.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use heatsink_conformance::{ClusterRig, Heatsink};
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, RedisCluster, Reply, key_for_slot, key_slot};

use crate::load::{Round, duration, expect, pipeline, seed, while_loaded, words};

const SECONDS: u64 = 6;
/// Requests of [`mixed`] that were refused.
static REFUSED: AtomicUsize = AtomicUsize::new(0);
/// Keys that nobody uses, in a slot that is to take its time.
const MANY_KEYS: usize = 2000;

/// A few slots of each primary, as the tags of keys.
fn moving_tags(cluster: &RedisCluster, count: usize) -> Vec<String> {
    let primaries = cluster.primaries();
    (0..count)
        .map(|n| {
            let key = cluster.key_on(primaries[n % primaries.len()], &format!("moving{n}"));
            key_for_slot(key_slot(key))
        })
        .collect()
}

fn integer(what: &str, reply: &Reply, expected: i64) -> Result<(), String> {
    expect(what, reply, &Reply::Integer(expected))
}

fn ask(client: &mut RawClient, command: &[String]) -> Result<Reply, String> {
    client.try_command(command).map_err(|error| format!("{}: {error}", command.join(" ")))
}

/// `INCR` of own keys, `burst` at a time: each is one more than the last.
fn counting(name: &str, tags: &[String], burst: usize) -> Box<dyn Round> {
    let keys: Vec<String> = tags.iter().map(|tag| format!("{tag}{name}")).collect();
    let mut values = vec![0_i64; keys.len()];
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        let chosen: Vec<usize> = (0..burst).map(|_| rng.usize(..keys.len())).collect();
        let commands: Vec<_> = chosen.iter().map(|&key| words(["INCR", &keys[key]])).collect();
        for (key, reply) in chosen.into_iter().zip(pipeline(client, &commands)?) {
            values[key] += 1;
            integer(&format!("INCR {}", keys[key]), &reply, values[key])?;
        }
        Ok(burst)
    })
}

/// `SET` and `GET` of own keys, `burst` pairs at a time: what was written last is read.
fn writing(name: &str, tags: &[String], burst: usize) -> Box<dyn Round> {
    let keys: Vec<String> = tags.iter().map(|tag| format!("{tag}{name}")).collect();
    let mut next = 0_u64;
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        let mut commands = Vec::new();
        let mut values = Vec::new();
        for _ in 0..burst {
            let key = &keys[rng.usize(..keys.len())];
            next += 1;
            values.push(next.to_string());
            commands.push(words(["SET", key, &next.to_string()]));
            commands.push(words(["GET", key]));
        }
        let replies = pipeline(client, &commands)?;
        for ((command, pair), value) in commands.chunks(2).zip(replies.chunks(2)).zip(&values) {
            expect("SET", &pair[0], &Reply::ok())?;
            expect(&command[1].join(" "), &pair[1], &Reply::bulk(value))?;
        }
        Ok(2 * burst)
    })
}

/// `MSET`, `MGET`, `EXISTS` of own keys in all slots, and of several in one.
fn many_keys(name: &str, tags: &[String]) -> Box<dyn Round> {
    let across: Vec<String> = tags.iter().map(|tag| format!("{tag}{name}")).collect();
    let within: Vec<Vec<String>> =
        tags.iter().map(|tag| (0..4).map(|n| format!("{tag}{name}:{n}")).collect()).collect();
    let mut next = 0_u64;
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        for keys in [&across, &within[rng.usize(..within.len())]] {
            next += 1;
            let mut set = words(["MSET"]);
            set.extend(keys.iter().flat_map(|key| [key.clone(), next.to_string()]));
            expect("MSET", &ask(client, &set)?, &Reply::ok())?;
            let get = [&words(["MGET"]), &keys[..]].concat();
            let expected = Reply::bulks(keys.iter().map(|_| next.to_string()));
            expect("MGET", &ask(client, &get)?, &expected)?;
            let exists = [&words(["EXISTS"]), &keys[..]].concat();
            integer("EXISTS", &ask(client, &exists)?, keys.len() as i64)?;
        }
        Ok(6)
    })
}

/// `MGET` of several own keys in one slot, and across slots, `burst` at a time.
fn reading(name: &str, tags: &[String], burst: usize) -> Box<dyn Round> {
    let keys: Vec<Vec<String>> =
        tags.iter().map(|tag| (0..3).map(|n| format!("{tag}{name}:{n}")).collect()).collect();
    let mut next = 0_u64;
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        next += 1;
        let mut set = words(["MSET"]);
        set.extend(keys.iter().flatten().flat_map(|key| [key.clone(), next.to_string()]));
        expect("MSET", &ask(client, &set)?, &Reply::ok())?;
        let mut asked = Vec::new();
        for _ in 0..burst {
            let (some, others) = (&keys[rng.usize(..keys.len())], &keys[rng.usize(..keys.len())]);
            let chosen = match rng.u8(..3) {
                0 => &some[..1],
                1 => &some[..],
                _ => &[&some[..], others].concat(),
            };
            asked.push([&words(["MGET"]), chosen].concat());
        }
        for (get, reply) in asked.iter().zip(pipeline(client, &asked)?) {
            let expected = Reply::bulks(get[1..].iter().map(|_| next.to_string()));
            expect(&get.join(" "), &reply, &expected)?;
        }
        Ok(burst + 1)
    })
}

/// Reads and writes of one or all of a slot's own keys, `burst` at a time. What names several keys may
/// be refused, if a write behind it was executed; then it was not.
fn mixed(name: &str, tags: &[String], burst: usize) -> Box<dyn Round> {
    let keys: Vec<Vec<String>> =
        tags.iter().map(|tag| (0..3).map(|n| format!("{tag}{name}:{n}")).collect()).collect();
    let mut values = vec![vec![Reply::Null; 3]; keys.len()];
    let mut next = 0_u64;
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        let slot = rng.usize(..keys.len());
        let (keys, values) = (&keys[slot], &mut values[slot]);
        let mut commands = Vec::new();
        for _ in 0..burst {
            next += 1;
            let (key, value) = (&keys[rng.usize(..keys.len())], next.to_string());
            let all = keys.iter().flat_map(|key| [key.clone(), value.clone()]);
            commands.push(match rng.u8(..4) {
                0 => words(["GET", key]),
                1 => words(["SET", key, &value]),
                2 => [&words(["MGET"]), &keys[..]].concat(),
                _ => words(["MSET"]).into_iter().chain(all).collect(),
            });
        }
        for (command, reply) in commands.iter().zip(pipeline(client, &commands)?) {
            let several = command[0].starts_with('M');
            if several && reply.is_error() && reply.error().starts_with("TRYAGAIN") {
                REFUSED.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let is = |value: &String| Reply::bulk(value);
            let place = keys.iter().position(|key| *key == command[1]).unwrap_or_default();
            let expected = match command[0].as_str() {
                "GET" => values[place].clone(),
                "MGET" => Reply::Array(values.clone()),
                "SET" => {
                    values[place] = is(&command[2]);
                    Reply::ok()
                }
                _ => {
                    values.fill(is(&command[2]));
                    Reply::ok()
                }
            };
            expect(&command.join(" "), &reply, &expected)?;
        }
        Ok(burst)
    })
}

/// Transactions on two own keys of a slot.
fn transactions(name: &str, tags: &[String]) -> Box<dyn Round> {
    let tags = tags.to_vec();
    let name = name.to_owned();
    let mut values = vec![0_i64; tags.len()];
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        let slot = rng.usize(..tags.len());
        let (a, b) = (format!("{}{name}:a", tags[slot]), format!("{}{name}:b", tags[slot]));
        let commands =
            [words(["MULTI"]), words(["INCR", &a]), words(["INCR", &b]), words(["EXEC"])];
        let replies = if rng.bool() {
            pipeline(client, &commands)?
        } else {
            commands.iter().map(|command| ask(client, command)).collect::<Result<_, _>>()?
        };
        values[slot] += 1;
        expect("MULTI", &replies[0], &Reply::ok())?;
        expect("INCR", &replies[1], &Reply::Simple("QUEUED".into()))?;
        let both = Reply::Array(vec![Reply::Integer(values[slot]); 2]);
        expect(&format!("EXEC of {a}"), &replies[3], &both)?;
        Ok(4)
    })
}

/// A script on an own key.
fn scripts(name: &str, tags: &[String]) -> Box<dyn Round> {
    let keys: Vec<String> = tags.iter().map(|tag| format!("{tag}{name}")).collect();
    let mut values = vec![0_i64; keys.len()];
    Box::new(move |client: &mut RawClient, rng: &mut Rng| {
        let key = rng.usize(..keys.len());
        let script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
        let reply = ask(client, &words(["EVAL", script, "1", &keys[key], "3"]))?;
        values[key] += 3;
        integer(&format!("EVAL of {}", keys[key]), &reply, values[key])?;
        Ok(1)
    })
}

/// One pushes numbers, slowly, and the other waits for each.
fn queue(key: &str) -> [(String, Box<dyn Round>); 2] {
    let (pushing, popping) = (key.to_owned(), key.to_owned());
    let (mut pushed, mut popped) = (0_u64, 0_u64);
    let push = move |client: &mut RawClient, rng: &mut Rng| {
        let reply = ask(client, &words(["RPUSH", &pushing, &pushed.to_string()]))?;
        if !matches!(reply, Reply::Integer(1..)) {
            return Err(format!("RPUSH: {reply}"));
        }
        pushed += 1;
        // So that the other one waits more often than not.
        std::thread::sleep(Duration::from_millis(rng.u64(..20)));
        Ok(1)
    };
    let pop = move |client: &mut RawClient, _: &mut Rng| {
        let reply = ask(client, &words(["BLPOP", &popping, "0.5"]))?;
        if reply == Reply::Null {
            return Ok(0);
        }
        expect("BLPOP", &reply, &Reply::bulks([popping.as_str(), &popped.to_string()]))?;
        popped += 1;
        Ok(1)
    };
    [(format!("RPUSH {key}"), Box::new(push)), (format!("BLPOP {key}"), Box::new(pop))]
}

/// Moves random ones of the slots to random primaries, in steps of random size.
fn move_about(cluster: &RedisCluster, tags: &[String], rng: &mut Rng, lasts: Duration) -> usize {
    let until = Instant::now() + lasts;
    let mut moves = 0;
    while Instant::now() < until {
        let slot = key_slot(&tags[rng.usize(..tags.len())]);
        let from = cluster.owner_of(slot);
        let others: Vec<usize> =
            cluster.primaries().into_iter().filter(|node| *node != from).collect();
        let to = others[rng.usize(..others.len())];
        cluster.begin_move_slot(slot, to);
        for _ in 0..rng.usize(..4) {
            // Open for a while, with keys on both sides.
            cluster.migrate_some_keys(slot, to, rng.usize(1..10));
            std::thread::sleep(Duration::from_millis(rng.u64(..30)));
        }
        cluster.migrate_keys(slot, to);
        cluster.finish_move_slot(slot, to);
        moves += 1;
    }
    moves
}

#[test]
fn slots_move_to_and_fro_under_load() {
    move_to_and_fro(Treatment::default());
}

/// The same while every key is hot. Each client has keys of its own, so that what it sees of
/// them is exact in either way.
#[test]
fn slots_of_cached_keys_move_to_and_fro_under_load() {
    move_to_and_fro(Treatment::COHERENT);
}

#[test]
fn slots_of_coalesced_keys_move_to_and_fro_under_load() {
    move_to_and_fro(Treatment::EXACT);
}

fn move_to_and_fro(heat: Treatment) {
    // One at a time: each takes what the machine has.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = ClusterRig::with(RedisCluster::builder(), |config| {
        config.workers = 2;
        // However busy the machine is: a slot that takes longer to move is not what this is about.
        config.live.timeouts.cluster_retry = Duration::from_secs(10);
    });
    let tags = moving_tags(&rig.cluster, 6);
    let mut client = rig.client();
    for batch in 0..MANY_KEYS / 100 {
        let mut set = words(["MSET"]);
        for n in 0..100 {
            set.extend([format!("{}filler:{batch}:{n}", tags[0]), "x".to_owned()]);
        }
        assert_eq!(client.command(&set), Reply::ok());
    }
    let mut clients: Vec<(String, Box<dyn Round>)> = Vec::new();
    for burst in [1, 1, 20, 100] {
        let name = format!("counting by {burst}, {}", clients.len());
        let round = counting(&name, &tags, burst);
        clients.push((name, round));
    }
    for burst in [1, 30] {
        let name = format!("writing by {burst}");
        let round = writing(&name, &tags, burst);
        clients.push((name, round));
    }
    clients.push(("many keys".to_owned(), many_keys("m", &tags)));
    for burst in [5, 50] {
        let name = format!("reading by {burst}");
        let round = reading(&name, &tags, burst);
        clients.push((name, round));
        let name = format!("mixed by {burst}");
        let round = mixed(&name, &tags, burst);
        clients.push((name, round));
    }
    clients.push(("transactions".to_owned(), transactions("t", &tags)));
    clients.push(("scripts".to_owned(), scripts("s", &tags)));
    for tag in &tags[..3] {
        clients.extend(queue(&format!("{tag}queue")));
    }
    let others = ["m", "m:0", "m:1", "m:2", "m:3", "t:a", "t:b", "s", "queue"];
    let names = clients.iter().map(|(name, _)| name.as_str()).chain(others);
    let keys = names.flat_map(|name| tags.iter().map(move |tag| format!("{tag}{name}")));
    let hot = keys.map(|key| (key.into_bytes(), heat)).collect();
    rig.heatsink.proxy().handle().set_hot_keys(hot);
    let seed = seed();
    let mut moves = 0;
    let checked = while_loaded(rig.heatsink.addr(), seed, clients, || {
        let mut rng = Rng::with_seed(seed);
        moves = move_about(&rig.cluster, &tags, &mut rng, duration(SECONDS));
    });
    let refused = REFUSED.swap(0, Ordering::Relaxed);
    println!("{moves} moves, {checked} replies, {refused} of several keys refused");
    assert!(refused <= checked / 1000, "{refused} of {checked}");
    assert!(moves >= 3 && checked > 1000, "{moves} moves, {checked} replies");
    let pattern = format!("{}filler:*", tags[0]);
    assert_eq!(client.command(&["KEYS", &pattern]).items().len(), MANY_KEYS);
}

/// A slot with `count` keys `{tag}0`, `{tag}1` and so on, one of which has moved already.
struct HalfMoved {
    slot: u16,
    to: usize,
    /// Still at the source, and at the target.
    stayed: Vec<String>,
    moved: Vec<String>,
}

impl HalfMoved {
    fn begin(cluster: &RedisCluster, client: &mut RawClient, name: &str, count: usize) -> Self {
        let primaries = cluster.primaries();
        let (from, to) = (primaries[0], primaries[1]);
        let tag = cluster.key_on(from, name);
        let slot = key_slot(&tag);
        let keys: Vec<String> = (0..count).map(|n| format!("{tag}{n}")).collect();
        for key in &keys {
            assert_eq!(client.command(&["SET", key, "0"]), Reply::ok());
        }
        cluster.begin_move_slot(slot, to);
        cluster.migrate_some_keys(slot, to, count / 2);
        let mut source = cluster.node(from).client();
        let (stayed, moved) =
            keys.into_iter().partition(|key| source.command(&["GET", key]) == Reply::bulk("0"));
        let half = Self { slot, to, stayed, moved };
        assert!(!half.stayed.is_empty() && half.moved.len() == count / 2);
        half
    }

    fn finish(&self, cluster: &RedisCluster) {
        cluster.migrate_keys(self.slot, self.to);
        cluster.finish_move_slot(self.slot, self.to);
    }

    fn all(&self) -> Vec<String> {
        [&self.stayed[..], &self.moved].concat()
    }
}

#[test]
fn keys_of_a_slot_that_is_moving_are_found_where_they_are() {
    let rig = ClusterRig::new(1);
    let mut client = rig.client();
    let half = HalfMoved::begin(&rig.cluster, &mut client, "asked", 10);
    let new = format!("{}new", half.stayed[0]);
    let mut bytes = Vec::new();
    for key in half.all() {
        for command in [&["INCR", &key][..], &["GET", &key], &["SET", &key, "7"], &["INCR", &key]] {
            bytes.extend(heatsink_testkit::encode(command));
        }
    }
    client.send_raw(&bytes);
    for key in half.all() {
        assert_eq!(client.read_reply().integer(), 1, "{key}");
        assert_eq!(client.read_reply(), Reply::bulk("1"), "{key}");
        assert_eq!(client.read_reply(), Reply::ok(), "{key}");
        assert_eq!(client.read_reply().integer(), 8, "{key}");
    }
    // A key that is nowhere yet is made at the target.
    assert_eq!(client.command(&["INCR", &new]).integer(), 1);
    for keys in [&half.stayed, &half.moved] {
        let get = [&words(["MGET"]), &keys[..]].concat();
        assert_eq!(client.command(&get), Reply::bulks(keys.iter().map(|_| "8")));
    }
    for key in [&half.stayed[0], &half.moved[0]] {
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["INCR", key]).text(), "QUEUED");
        assert_eq!(client.command(&["EXEC"]), Reply::Array(vec![Reply::Integer(9)]));
        let script = "return redis.call('INCR', KEYS[1])";
        assert_eq!(client.command(&["EVAL", script, "1", key]).integer(), 10);
    }
    half.finish(&rig.cluster);
    assert_eq!(client.command(&["INCR", &half.moved[0]]).integer(), 11);
    assert_eq!(client.command(&["INCR", &new]).integer(), 2);
}

#[test]
fn keys_on_both_sides_are_waited_for() {
    let cluster = RedisCluster::start();
    let heatsink = |retry| {
        Heatsink::before_url(&cluster.seed_url(), |config| {
            config.live.timeouts.cluster_retry = retry;
        })
    };
    let (patient, hasty) =
        (heatsink(Duration::from_secs(20)), heatsink(Duration::from_millis(300)));
    let (mut waiting, mut client, mut other) = (patient.client(), hasty.client(), patient.client());
    let half = HalfMoved::begin(&cluster, &mut other, "both", 10);
    let all = half.all();
    let get = [&words(["MGET"]), &all[..]].concat();
    // With the move never finished, the node's own error, once the bound has passed.
    let begun = Instant::now();
    let refused = client.command(&get);
    let took = begun.elapsed();
    assert!(refused.is_error() && refused.error().starts_with("TRYAGAIN"), "{refused}");
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
    assert_eq!(client.command(&["GET", &all[0]]), Reply::bulk("0"));
    assert_eq!(client.command(&["PING"]).text(), "PONG");
    // Others are not held up by one that waits, nor is what it asked of other slots lost.
    waiting.send(&get);
    waiting.send(&["SET", "elsewhere", "1"]);
    waiting.send(&["GET", "elsewhere"]);
    assert!(waiting.try_read_frame(Duration::from_millis(200)).expect("open").is_none());
    for key in &all {
        assert_eq!(other.command(&["GET", key]), Reply::bulk("0"));
    }
    half.finish(&cluster);
    assert_eq!(waiting.read_reply(), Reply::bulks(all.iter().map(|_| "0")));
    assert_eq!(waiting.read_reply(), Reply::ok());
    assert_eq!(waiting.read_reply(), Reply::bulk("1"));
    assert_eq!(client.command(&get), Reply::bulks(all.iter().map(|_| "0")));
}

#[test]
fn a_transaction_on_keys_on_both_sides_is_waited_for() {
    let rig = ClusterRig::with(RedisCluster::builder(), |config| {
        config.live.timeouts.cluster_retry = Duration::from_secs(20);
    });
    let (mut client, mut other) = (rig.client(), rig.client());
    let half = HalfMoved::begin(&rig.cluster, &mut other, "exec", 4);
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    for key in [&half.stayed[0], &half.moved[0]] {
        assert_eq!(client.command(&["INCR", key]).text(), "QUEUED");
    }
    client.send(&["EXEC"]);
    let early = client.try_read_frame(Duration::from_millis(200)).expect("open");
    assert!(early.is_none(), "{}", early.unwrap_or_default().escape_ascii());
    half.finish(&rig.cluster);
    assert_eq!(client.read_reply(), Reply::Array(vec![Reply::Integer(1); 2]));
    assert_eq!(client.command(&["GET", &half.moved[0]]), Reply::bulk("1"));
}

#[test]
fn a_watched_slot_that_moves_fails_the_transaction() {
    let rig = ClusterRig::new(1);
    let mut client = rig.client();
    let primaries = rig.cluster.primaries();
    let key = rig.cluster.key_on(primaries[0], "watched");
    assert_eq!(client.command(&["SET", &key, "0"]), Reply::ok());
    let steps = [&["WATCH", &key][..], &["GET", &key], &["MULTI"], &["INCR", &key]];
    // After each step but one the slot moves; then nowhere.
    for (round, after) in [Some(0), Some(1), Some(2), Some(3), None].into_iter().enumerate() {
        let home = rig.cluster.owner_of(key_slot(&key));
        let to = primaries[(primaries.iter().position(|node| *node == home).unwrap_or(0) + 1) % 3];
        for (index, step) in steps.iter().enumerate() {
            let reply = client.command(step);
            assert!(!reply.is_error(), "moved after {after:?}: {step:?}: {reply}");
            if after == Some(index) {
                rig.cluster.move_slot(key_slot(&key), to);
            }
        }
        let done = client.command(&["EXEC"]);
        match after {
            Some(_) => assert_eq!(done, Reply::Null, "moved after {after:?}"),
            None => assert_eq!(done, Reply::Array(vec![Reply::Integer(1)]), "{round}"),
        }
    }
    assert_eq!(client.command(&["GET", &key]), Reply::bulk("1"));
}
