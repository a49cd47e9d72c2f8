//! Reads of a hot key that find none to join go as usual, until there are some again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use heatsink_conformance::{ClusterRig, Heatsink, Rig, Way};
use heatsink_proxy::hot_keys::{Cooled, HotKeys, Treatment};
use heatsink_testkit::{RawClient, Reply, encode, eventually};

use crate::interleavings::{Arranged, assert_waits};
use crate::served::SOON;

const EXACT: Treatment = Treatment::EXACT;
/// More different reads than it takes until they pass.
const MANY: u32 = 300;

/// What was done for a key, once all `reads` of it are told of.
fn cooled(heatsink: &Heatsink, key: &str, reads: u64) -> Cooled {
    let handle = heatsink.proxy().handle();
    let told = || handle.cooled(key.as_bytes()).unwrap_or_default();
    let all = |cooled: &Cooled| cooled.hits + cooled.reads + cooled.joined >= reads;
    eventually(SOON, || all(&told()));
    told()
}

/// Requests of one client that were sent together, and their replies.
fn pipeline(client: &mut RawClient, requests: &[Vec<u8>]) -> Vec<Reply> {
    client.send_raw(&requests.concat());
    requests.iter().map(|_| client.read_reply()).collect()
}

/// As many clients at once, each with `rounds` pipelines of what `request` makes of the number of
/// the client and of the request; which of the replies are not `wanted`.
fn storm(
    addr: SocketAddr,
    clients: usize,
    rounds: usize,
    request: fn(usize, usize) -> Vec<u8>,
    wanted: &Reply,
) {
    thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut client = RawClient::connect(addr);
                for round in 0..rounds {
                    let requests: Vec<Vec<u8>> =
                        (0..16).map(|at| request(number, round * 16 + at)).collect();
                    for reply in pipeline(&mut client, &requests) {
                        assert_eq!(reply, *wanted);
                    }
                }
            });
        }
    });
}

fn member(client: usize, at: usize) -> Vec<u8> {
    encode(&["SISMEMBER", "s", &format!("m{}", client * 100_000 + at)])
}

fn size(_: usize, _: usize) -> Vec<u8> {
    encode(&["SCARD", "s"])
}

/// Different reads reach the server as they are, equal ones behind them are joined as if nothing
/// had been.
#[test]
fn different_reads_pass_and_equal_ones_are_joined_again() {
    const CLIENTS: usize = 20;
    let rig = Rig::new(1);
    rig.heatsink().heat(&["s"], EXACT);
    rig.server().client().command(&["SADD", "s", "m0", "x", "y"]);
    rig.server().client().command(&["SREM", "s", "m0"]);

    storm(rig.addr(), CLIENTS, 50, member, &Reply::Integer(0));
    let different = (CLIENTS * 50 * 16) as u64;
    let before = cooled(rig.heatsink(), "s", different);
    assert_eq!(rig.server().calls("sismember"), different);
    assert_eq!((before.reads, before.joined), (different, 0), "{before:?}");
    assert!(before.passed + 300 > different, "{before:?}");

    storm(rig.addr(), CLIENTS, 50, size, &Reply::Integer(2));
    let after = cooled(rig.heatsink(), "s", 2 * different);
    let asked = rig.server().calls("scard");
    println!("{different} equal reads, {asked} of them by the server; {after:?}");
    assert_eq!(after.reads - before.reads, asked, "{after:?}");
    assert_eq!(after.reads + after.joined, 2 * different, "{after:?}");
    // A dozen is noticed; in a pipeline of 16 all but one are spared at the least.
    assert!(after.passed - before.passed < 100, "{after:?}");
    assert!(asked < different / 10, "{asked}");
}

/// The same before a cluster, where requests of a pipeline go each their way.
#[test]
fn before_a_cluster_different_reads_pass_as_well() {
    const CLIENTS: usize = 10;
    let rig = ClusterRig::new(1);
    rig.heatsink.heat(&["s"], EXACT);
    assert_eq!(rig.client().command(&["SADD", "s", "x", "y"]), Reply::Integer(2));
    storm(rig.heatsink.addr(), CLIENTS, 50, member, &Reply::Integer(0));
    let different = (CLIENTS * 50 * 16) as u64;
    let before = cooled(&rig.heatsink, "s", different);
    assert_eq!((before.reads, before.joined), (different, 0), "{before:?}");
    assert!(before.passed + 300 > different, "{before:?}");
    storm(rig.heatsink.addr(), CLIENTS, 50, size, &Reply::Integer(2));
    let after = cooled(&rig.heatsink, "s", 2 * different);
    assert!(after.passed - before.passed < 100, "{after:?}");
    assert!(after.reads - before.reads < different / 10, "{after:?}");
}

/// What may be kept has to fly: it is what the next reads are answered with.
#[test]
fn reads_of_a_key_that_is_cached_do_not_pass() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["s"], Treatment::COHERENT);
    rig.server().client().command(&["SADD", "s", "x"]);
    storm(rig.addr(), 4, 20, member, &Reply::Integer(0));
    let before = rig.server().calls("sismember");
    storm(rig.addr(), 4, 20, member, &Reply::Integer(0));
    let asked = rig.server().calls("sismember") - before;
    assert!(asked < 4 * 20 * 16 / 2, "{asked} of what was read before");
    assert_eq!(cooled(rig.heatsink(), "s", 2 * 4 * 20 * 16).passed, 0);
}

/// ```text
/// 1. A's GET is out and executed; C's GET waits for the next
/// 2. others read what none is like: the key passes
/// 3. C's GETRANGE, behind its GET, would pass and be executed
/// 4. somebody writes; A's reply comes, C's GET leaves and sees the write
/// ```
#[test]
fn what_passes_does_not_overtake_a_flight() {
    let rig = Arranged::with(EXACT, |config| config.live.coalesce.max_wait = SOON);
    rig.relay.set(Way::HoldReplies);
    let (mut first, mut client) = (rig.client(), rig.client());
    first.send(&["GET", "k"]);
    rig.relay.wait_held(b"old");
    client.send(&["GET", "k"]);
    assert_waits(&mut client);
    // The last of them may gather behind what is out.
    let read_all = |from: u32| {
        let clients: Vec<RawClient> = (from..from + MANY).map(|last| rig.read(last)).collect();
        eventually(SOON, || rig.server.calls("getrange") >= u64::from(from + MANY - 100));
        clients
    };
    let mut others = read_all(10);
    client.send(&["GETRANGE", "k", "0", "9"]);
    assert_waits(&mut client);
    // Had it passed, it would have left with these.
    others.extend(read_all(10 + MANY));
    assert_eq!(rig.server.client().command(&["SET", "k", "new"]), Reply::ok());
    rig.relay.set(Way::Open);
    assert_eq!(first.read_reply(), Reply::bulk("old"));
    assert_eq!(client.read_reply(), Reply::bulk("new"));
    assert_eq!(client.read_reply(), Reply::bulk("new"));
    for other in &mut others {
        assert!(!other.read_reply().is_error());
    }
    let passed = cooled(&rig.heatsink, "k", u64::from(MANY)).passed;
    assert!(passed > u64::from(MANY) / 3, "{passed}");
}

/// A read behind its client's own write sees it, whichever way each of them goes; so does the
/// increment behind a read that has passed.
#[test]
fn what_passes_sees_the_writes_before_it_and_none_behind_it() {
    for cluster in [false, true] {
        let (plain, clustered);
        let (heatsink, mut client): (&Heatsink, _) = if cluster {
            clustered = ClusterRig::new(1);
            (&clustered.heatsink, clustered.client())
        } else {
            plain = Rig::new(1);
            (plain.heatsink(), plain.client())
        };
        heatsink.heat(&["k"], EXACT);
        let range = |last: u32| encode(&["GETRANGE", "k", "0", &(20 + last).to_string()]);
        client.command(&["SET", "k", "0"]);
        for last in 0..MANY {
            pipeline(&mut client, &[range(last)]);
        }
        let mut value = 0;
        for round in 0..200 {
            let at = 1000 + round * 8;
            let requests = [
                range(at),
                encode(&["INCR", "k"]),
                range(at + 1),
                range(at + 2),
                encode(&["SET", "k", &(value + 10).to_string()]),
                range(at + 3),
                encode(&["APPEND", "k", "0"]),
                range(at + 4),
                encode(&["SETRANGE", "k", "0", ""]),
                range(at + 5),
            ];
            let replies = pipeline(&mut client, &requests);
            let text = |value: i64| Reply::bulk(value.to_string());
            assert_eq!(replies[0], text(value));
            assert_eq!(replies[1], Reply::Integer(value + 1));
            assert_eq!(replies[2..4], [text(value + 1), text(value + 1)]);
            assert_eq!(replies[5], text(value + 10));
            assert_eq!(replies[7], text((value + 10) * 10));
            assert_eq!(replies[9], text((value + 10) * 10));
            value = (value + 10) * 10;
            if value > 1_000_000_000_000 {
                value = 0;
                assert_eq!(client.command(&["SET", "k", "0"]), Reply::ok());
            }
        }
        let told = cooled(heatsink, "k", u64::from(MANY) + 1200);
        assert!(told.passed > 1000, "{told:?}");
    }
}

/// How many pipelines are sent.
fn pipelines() -> u64 {
    let number = std::env::var("HEATSINK_PIPELINES").ok();
    number.map_or(6000, |text| text.parse().expect("a number"))
}

/// Reads that are alike and reads that are not take turns, in pipelines with increments between
/// them, while the number rises: no client sees it fall.
#[test]
fn time_never_goes_backwards_while_ways_change() {
    const CLIENTS: u64 = 12;
    let rig = Rig::new(1);
    rig.heatsink().heat(&["k"], EXACT);
    rig.server().client().command(&["SET", "k", "0"]);
    let (proxy, server) = (rig.addr(), rig.server().addr());
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut threads = Vec::new();
    for number in 0..CLIENTS {
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        threads.push(thread::spawn(move || {
            let mut client = RawClient::connect(proxy);
            let mut random = fastrand::Rng::with_seed(number);
            let (mut seen, mut last) = (0, 20 + number);
            while !stop.load(Ordering::Relaxed) {
                // A thousand or so that are alike, and as many that are not.
                let alike = sent.fetch_add(1, Ordering::Relaxed) / 100 % 2 == 1;
                let likely = if alike { 12 } else { 1 };
                let requests: Vec<Vec<u8>> = (0..random.usize(1..24))
                    .map(|_| match random.u32(..200) {
                        0 => encode(&["INCR", "k"]),
                        1 => encode(&["SETRANGE", "k", "0", ""]),
                        _ if random.u32(..16) < likely => encode(&["GET", "k"]),
                        _ => {
                            last += CLIENTS;
                            encode(&["GETRANGE", "k", "0", &last.to_string()])
                        }
                    })
                    .collect();
                for (request, reply) in requests.iter().zip(pipeline(&mut client, &requests)) {
                    let version = match &reply {
                        Reply::Integer(_) if request.starts_with(b"*4\r\n$8") => continue,
                        Reply::Integer(version) => *version,
                        text => text.text().parse().expect("a number"),
                    };
                    assert!(version >= seen, "{version} after {seen}");
                    seen = version;
                }
            }
        }));
    }
    let writer = Arc::clone(&stop);
    threads.push(thread::spawn(move || {
        let mut direct = RawClient::connect(server);
        while !writer.load(Ordering::Relaxed) {
            direct.command(&["INCR", "k"]);
        }
    }));
    let over = || sent.load(Ordering::Relaxed) >= pipelines();
    eventually(SOON * 6, || over() || threads.iter().any(thread::JoinHandle::is_finished));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("nobody saw the number fall");
    }
    let told = cooled(rig.heatsink(), "k", 10_000);
    println!("{told:?}");
    assert!(told.passed > 1000 && told.joined > 1000, "{told:?}");
}

/// A key that passed and is cached from now on is kept again; one that cools down is not.
#[test]
fn another_treatment_ends_it() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["k"], EXACT);
    let mut client = rig.client();
    client.command(&["SET", "k", "1"]);
    for last in 0..MANY {
        client.command(&["GETRANGE", "k", "0", &last.to_string()]);
    }
    assert!(cooled(rig.heatsink(), "k", u64::from(MANY)).passed > 0);
    rig.heatsink().heat(&["k"], Treatment::COHERENT);
    crate::served::warm(&rig, "k");
    rig.heatsink().proxy().handle().set_hot_keys(HotKeys::default());
    eventually(SOON, || {
        let before = rig.server().calls("get");
        client.command(&["GET", "k"]);
        rig.server().calls("get") > before
    });
}
