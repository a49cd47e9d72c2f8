//! Orders of events that are rare by chance and arranged here: each test draws its own.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{Heatsink, Relay, Rig, Way};
use heatsink_proxy::config::Config;
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

use crate::served::{SOON, make_hot, rig, warm};

/// What promises something about the order of events.
pub(crate) const BOTH: [Treatment; 2] = [Treatment::EXACT, Treatment::COHERENT];
/// Long enough to see that a reply does not come.
const A_WHILE: Duration = Duration::from_millis(60);

/// A Heatsink of one worker, a relay, and the server behind it. The first ends first.
pub(crate) struct Arranged {
    pub(crate) heatsink: Heatsink,
    pub(crate) relay: Relay,
    pub(crate) server: RedisServer,
}

impl Arranged {
    pub(crate) fn new(treatment: Treatment) -> Self {
        Self::with(treatment, |_| ())
    }

    /// `k` is hot and holds `old`.
    pub(crate) fn with(treatment: Treatment, adjust: impl FnOnce(&mut Config)) -> Self {
        let server = RedisServer::start();
        let relay = Relay::before(server.addr());
        let heatsink = Heatsink::before_url(&relay.url(), |config| {
            config.workers = 1;
            adjust(config);
        });
        heatsink.heat(&["k"], treatment);
        assert_eq!(server.client().command(&["SET", "k", "old"]), Reply::ok());
        let arranged = Self { heatsink, relay, server };
        // Links are there, also those of the cache.
        if treatment.local_cache {
            arranged.warm();
        } else {
            // The second is answered behind Heatsink's own first question, whose reply is long: nothing
            // gathers for that.
            for _ in 0..2 {
                arranged.heatsink.client().command(&["GET", "k"]);
            }
        }
        arranged
    }

    pub(crate) fn client(&self) -> RawClient {
        self.heatsink.client()
    }

    /// Reads until a read is answered without the server.
    pub(crate) fn warm(&self) {
        let mut client = self.client();
        eventually(SOON, || {
            let before = self.server.calls("get");
            client.command(&["GET", "k"]);
            self.server.calls("get") == before
        });
    }

    /// Sends a read that is not cached: of a range, so that it is not like another.
    pub(crate) fn read(&self, last: u32) -> RawClient {
        let mut client = self.client();
        client.send(&["GETRANGE", "k", "0", &last.to_string()]);
        client
    }
}

/// It gets no reply for a while.
#[track_caller]
pub(crate) fn assert_waits(client: &mut RawClient) {
    assert_eq!(client.try_read_frame(A_WHILE).ok().flatten(), None, "it was answered");
}

/// ```text
/// 1. A's read leaves            2. the server executes it: old
/// 3. a write is executed and answered
/// 4. B reads, while A's reply is still under way
/// 5. A's reply comes: A may be told old, B may not
/// ```
#[test]
fn nobody_joins_a_read_that_was_executed_before_a_write() {
    for treatment in BOTH {
        let rig = Arranged::new(treatment);
        rig.relay.set(Way::HoldReplies);
        let mut first = rig.read(9);
        rig.relay.wait_held(b"old");
        assert_eq!(rig.server.client().command(&["SET", "k", "new"]), Reply::ok());
        let mut second = rig.read(9);
        assert_waits(&mut second);
        rig.relay.set(Way::Open);
        assert_eq!(first.read_reply(), Reply::bulk("old"));
        assert_eq!(second.read_reply(), Reply::bulk("new"), "{treatment:?}");
    }
}

/// The same with a write through Heatsink, by another client, whose reply comes first.
///
/// ```text
/// 1. A's read leaves along the tracked link and is executed: old
/// 2. C's write goes another way, is executed and answered
/// 3. B, and C itself, read: both must see the write
/// ```
#[test]
fn nobody_joins_a_read_that_was_executed_before_a_write_through_heatsink() {
    let rig = Arranged::new(Treatment::COHERENT);
    rig.relay.set(Way::HoldTracked);
    let mut first = rig.read(9);
    rig.relay.wait_held(b"old");
    let mut writer = rig.client();
    assert_eq!(writer.command(&["SET", "k", "new"]), Reply::ok());
    let mut second = rig.read(9);
    writer.send(&["GET", "k"]);
    assert_waits(&mut second);
    assert_waits(&mut writer);
    rig.relay.set(Way::Open);
    assert_eq!(first.read_reply(), Reply::bulk("old"));
    assert_eq!(second.read_reply(), Reply::bulk("new"));
    assert_eq!(writer.read_reply(), Reply::bulk("new"));
    // What A was told is not kept.
    assert_eq!(rig.read(9).read_reply(), Reply::bulk("new"));
}

/// ```text
/// 1. A's read is out, executed: old
/// 2. C sends a SET and a read in one piece
/// 3. the read would join A's, or overtake the SET on another link
/// ```
#[test]
fn a_read_does_not_overtake_the_write_before_it() {
    for treatment in BOTH {
        let rig = Arranged::new(treatment);
        for round in 0..5 {
            rig.relay.set(Way::HoldReplies);
            let mut first = rig.read(9);
            rig.relay.wait_held(b"$3\r\n");
            let values = [format!("a{round}"), format!("b{round}")];
            let get = encode(&["GETRANGE", "k", "0", "9"]);
            let pieces: Vec<u8> = values
                .iter()
                .flat_map(|value| [encode(&["SET", "k", value]), get.clone()].concat())
                .collect();
            let mut client = rig.client();
            client.send_raw(&pieces);
            assert_waits(&mut client);
            rig.relay.set(Way::Open);
            for value in &values {
                assert_eq!(client.read_reply(), Reply::ok());
                assert_eq!(client.read_reply(), Reply::bulk(value), "{treatment:?}");
            }
            first.read_reply();
            assert_eq!(client.command(&["SET", "k", "old"]), Reply::ok());
        }
    }
}

/// ```text
/// 1. C's write is sent, and is stuck on the way
/// 2. C is told that nobody knows; the link is given up
/// 3. reads find the old value, which is cached
/// 4. the write arrives after all, and is executed
/// 5. the old value must not be served on
/// ```
#[test]
fn a_write_that_was_given_up_and_comes_late_is_seen() {
    for write in [&["SET", "k", "late"][..], &["APPEND", "k", "late"]] {
        let rig = Arranged::with(Treatment::COHERENT, |config| {
            config.live.timeouts.silence = Some(Duration::from_millis(300));
            config.live.coalesce.max_wait = Duration::from_millis(400);
        });
        rig.relay.set(Way::HoldRequest(b"late".to_vec()));
        let mut writer = rig.client();
        writer.send(write);
        rig.relay.wait_request_held();
        assert!(writer.read_reply().is_error(), "{write:?}");
        rig.warm();
        let mut client = rig.client();
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("old"));
        rig.relay.set(Way::Open);
        let mut direct = rig.server.client();
        let late = eventually(SOON, || {
            let now = direct.command(&["GET", "k"]);
            (now != Reply::bulk("old")).then_some(now)
        });
        let since = Instant::now();
        eventually(SOON, || client.command(&["GET", "k"]) == late);
        let slow = since.elapsed();
        assert!(slow < Duration::from_secs(1), "the old value was served for {slow:?}");
        rig.warm();
        assert_eq!(client.command(&["GET", "k"]), late);
    }
}

/// The same with a server that stands still.
///
/// ```text
/// 1. the server stops; C's write lies in its socket
/// 2. C is told that nobody knows, or an error
/// 3. the server goes on and executes the write behind reads that came later, or before them
/// ```
#[test]
fn a_write_to_a_server_that_stood_still_is_seen() {
    let mut rig = Rig::with(RedisServer::builder(), |config| {
        config.workers = 1;
        config.live.timeouts.silence = Some(Duration::from_millis(300));
    });
    make_hot(&rig, &["k"]);
    let mut client = rig.client();
    for round in 0..3 {
        assert_eq!(client.command(&["SET", "k", "old"]), Reply::ok());
        warm(&rig, "k");
        rig.server_mut().pause();
        let late = format!("late{round}");
        let mut writer = rig.client();
        writer.send(&["SET", "k", &late]);
        assert!(writer.read_reply().is_error());
        rig.server_mut().resume();
        eventually(SOON, || rig.server().client().command(&["GET", "k"]) == Reply::bulk(&late));
        let since = Instant::now();
        eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk(&late));
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        warm(&rig, "k");
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk(&late));
    }
}

/// ```text
/// 1. A's read is executed while the key lives      2. the key expires
/// 3. the reply comes, and the time to live that was left then
/// 4. B reads: the key is gone
/// ```
#[test]
fn a_key_that_expires_while_its_value_is_under_way_is_not_kept() {
    let rig = Arranged::new(Treatment::COHERENT);
    for last in 10..13 {
        rig.relay.set(Way::HoldReplies);
        let mut direct = rig.server.client();
        assert_eq!(direct.command(&["SET", "k", "brief", "PX", "250"]), Reply::ok());
        let mut first = rig.read(last);
        rig.relay.wait_held(b"brief");
        eventually(SOON, || direct.command(&["EXISTS", "k"]) == Reply::Integer(0));
        rig.relay.set(Way::Open);
        first.read_reply();
        for _ in 0..3 {
            assert_eq!(rig.read(last).read_reply(), Reply::bulk(""));
        }
    }
}

/// No read that is sent after a key has expired finds it, however often it was read before.
///
/// ```text
/// 1. the key is set for a short time      2. it is cached, and read without pause
/// 3. it expires                           4. the next read
/// ```
#[test]
fn nothing_is_served_past_its_expiry() {
    let rig = rig(&["k"], 1);
    let (mut client, mut direct) = (rig.client(), rig.server().client());
    for time_ms in [40_u64, 90, 200, 400] {
        direct.command(&["SET", "k", "brief", "PX", &time_ms.to_string()]);
        // It expires at the latest this long after the answer.
        let gone = Instant::now() + Duration::from_millis(time_ms + 1);
        let mut seen = 0;
        while Instant::now() < gone + Duration::from_millis(60) {
            let sent = Instant::now();
            let reply = client.command(&["GET", "k"]);
            seen += u32::from(reply == Reply::bulk("brief"));
            assert!(sent < gone || reply == Reply::Null, "{reply} {:?} too late", sent - gone);
        }
        assert!(seen > 0, "it was never read");
    }
}

/// An entry lives for a fifth of the time that its key had left.
#[test]
fn an_entry_lives_for_a_fifth_of_the_time() {
    let rig = rig(&["k"], 1);
    let (mut client, mut direct) = (rig.client(), rig.server().client());
    assert_eq!(direct.command(&["SET", "k", "v", "PX", "2000"]), Reply::ok());
    let mut entries = 0;
    while direct.command(&["PTTL", "k"]).integer() > 500 {
        let left = direct.command(&["PTTL", "k"]).integer() as u64;
        let before = rig.server().calls("get");
        client.command(&["GET", "k"]);
        entries += u64::from(rig.server().calls("get") > before);
        // Nobody reads, so nothing is refreshed.
        thread::sleep(Duration::from_millis(left / 5 + 5));
        let before = rig.server().calls("get");
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("v"));
        assert_eq!(rig.server().calls("get"), before + 1, "kept for more than {left} / 5 ms");
    }
    assert!(entries > 0);
}

/// ```text
/// 1. a key is cached                    2. the server's table of who read what is full
/// 3. it forgets the key, and tells so   4. somebody writes it
/// ```
#[test]
fn a_server_that_can_remember_few_keys_is_heard_all_the_same() {
    let names: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    for most in ["1", "2"] {
        let settings = RedisServer::builder().arg("tracking-table-max-keys", most);
        let rig = Rig::with(settings, |config| config.workers = 2);
        make_hot(&rig, &keys);
        let (mut clients, mut direct) = ([rig.client(), rig.client()], rig.server().client());
        let mut slowest = Duration::ZERO;
        for round in 0..40_usize {
            for key in &keys {
                for client in &mut clients {
                    client.command(&["GET", key]);
                }
            }
            let (key, value) = (keys[round % keys.len()], round.to_string());
            assert_eq!(direct.command(&["SET", key, &value]), Reply::ok());
            let since = Instant::now();
            for client in &mut clients {
                eventually(SOON, || client.command(&["GET", key]) == Reply::bulk(&value));
            }
            slowest = slowest.max(since.elapsed());
        }
        let kept = rig.server().info_u64("stats", "tracking_total_keys");
        assert!(kept <= keys.len() as u64 / 2, "the server kept {kept} keys");
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    }
}

/// ```text
/// 1. a key is cached        2. somebody empties the database
/// 3. the server tells of no key, only that all are gone
/// ```
#[test]
fn a_flush_by_somebody_else_is_seen() {
    let rig = rig(&["k"], 2);
    let mut clients = [rig.client(), rig.client(), rig.client()];
    let mut direct = rig.server().client();
    for flush in [&["FLUSHDB"][..], &["FLUSHALL"], &["FLUSHDB", "ASYNC"], &["FLUSHALL", "SYNC"]] {
        direct.command(&["SET", "k", "old"]);
        for client in &mut clients {
            eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("old"));
        }
        warm(&rig, "k");
        assert_eq!(direct.command(flush), Reply::ok());
        let since = Instant::now();
        for client in &mut clients {
            eventually(SOON, || client.command(&["GET", "k"]) == Reply::Null);
        }
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    }
}

/// ```text
/// 1. A and B read the key, which is cached       2. A swaps two databases
/// 3. the server tells nobody: the keys have not changed, only their place
/// ```
fn swap_databases(workers: usize) {
    let rig = rig(&["k"], workers);
    let mut direct = rig.server().client();
    direct.command(&["SET", "k", "0"]);
    direct.command(&["SELECT", "1"]);
    direct.command(&["SET", "k", "1"]);
    let mut clients: Vec<RawClient> = (0..4).map(|_| rig.client()).collect();
    for round in 0..10 {
        for client in &mut clients {
            let now = (round % 2).to_string();
            eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk(&now));
        }
        assert_eq!(clients[0].command(&["SWAPDB", "0", "1"]), Reply::ok());
        let wanted = Reply::bulk(((round + 1) % 2).to_string());
        assert_eq!(clients[0].command(&["GET", "k"]), wanted, "one's own");
        let since = Instant::now();
        for client in &mut clients {
            eventually(SOON, || client.command(&["GET", "k"]) == wanted);
        }
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    }
}

#[test]
fn swapped_databases_are_noticed() {
    swap_databases(1);
}

#[test]
fn swapped_databases_are_noticed_by_other_workers() {
    swap_databases(3);
}

/// Whatever somebody else changes a key with.
///
/// ```text
/// 1. the key is cached        2. it is changed as a whole, or by something that runs commands
/// 3. the server tells of it
/// ```
#[test]
fn unusual_writers_are_noticed() {
    let rig = rig(&["k"], 2);
    let mut direct = rig.server().client();
    let mut clients = [rig.client(), rig.client(), rig.client()];
    let exec: [&[&str]; 3] = [&["MULTI"], &["RPUSH", "k", "tx"], &["EXEC"]];
    let script = "return redis.call('rpush', KEYS[1], 'lua')";
    let hidden = "return redis.call('rpush', 'k', 'hidden')";
    let writers: [&[&[&str]]; 9] = [
        &[&["RENAME", "other", "k"]],
        &[&["RENAME", "k", "away"]],
        &[&["COPY", "other", "k", "REPLACE"]],
        &[&["EVAL", script, "1", "k"]],
        &[&["EVAL", hidden, "0"]],
        &exec,
        &[&["SORT", "other", "STORE", "k"]],
        &[&["LMOVE", "other", "k", "LEFT", "RIGHT"]],
        &[&["MOVE", "k", "1"]],
    ];
    let read = ["LRANGE", "k", "0", "-1"];
    let mut slowest = Duration::ZERO;
    for writer in writers {
        direct.command(&["FLUSHALL"]);
        direct.command(&["RPUSH", "k", "1"]);
        direct.command(&["RPUSH", "other", "3", "2"]);
        let before = direct.command(&read);
        for client in &mut clients {
            eventually(SOON, || client.command(&read) == before);
        }
        // Cached: the server is not asked.
        eventually(SOON, || {
            let asked = rig.server().calls("lrange");
            for client in &mut clients {
                assert_eq!(client.command(&read), before);
            }
            rig.server().calls("lrange") == asked
        });
        for command in writer {
            assert!(!direct.command(command).is_error(), "{command:?}");
        }
        let since = Instant::now();
        let wanted = direct.command(&read);
        assert_ne!(wanted, before, "{writer:?}");
        for client in &mut clients {
            eventually(SOON, || client.command(&read) == wanted);
        }
        slowest = slowest.max(since.elapsed());
    }
    println!("all knew after {slowest:?}");
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
}

/// ```text
/// 1. A's read is out                     2. B and C wait, for A's or for the next
/// 3. A goes away                         4. the reply comes
/// ```
#[test]
fn who_waits_is_answered_though_the_first_has_gone() {
    for treatment in BOTH {
        let rig = Arranged::new(treatment);
        for _ in 0..5 {
            eventually(SOON, || rig.heatsink.proxy().client_count() == 0);
            let mut first = rig.client();
            // Whoever has not read everything is known to be gone at once: it might else be one
            // that only has nothing more to ask.
            first.send(&["PING"]);
            first.stream().peek(&mut [0]).expect("it is answered");
            rig.relay.set(Way::HoldReplies);
            first.send(&["GETRANGE", "k", "0", "9"]);
            rig.relay.wait_held(b"old");
            let mut others = [rig.read(9), rig.read(9)];
            others.iter_mut().for_each(assert_waits);
            drop(first);
            eventually(SOON, || rig.heatsink.proxy().client_count() == 2);
            rig.relay.set(Way::Open);
            for client in &mut others {
                assert_eq!(client.read_reply(), Reply::bulk("old"), "{treatment:?}");
            }
            // It is not cached in the next round.
            rig.client().command(&["SET", "k", "old"]);
        }
    }
}

/// ```text
/// 1. a key is cached and in use       2. its time here comes to an end
/// 3. one read of it leaves            4. clients are answered as before, until it is back
/// ```
#[test]
fn a_key_in_use_is_read_again_before_its_time_is_over() {
    // So long that what is done at a part of it is not late on a busy machine.
    let life = Duration::from_secs(4);
    let rig = Arranged::with(Treatment::COHERENT, |config| config.live.local_cache.max_ttl = life);
    // What is there was read at a time that is not known.
    let mut client = rig.client();
    rig.server.client().command(&["SET", "k", "new"]);
    eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("new"));
    rig.warm();
    let since = Instant::now();
    let before = rig.server.calls("get");
    while since.elapsed() < life.mul_f64(0.7) {
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("new"));
    }
    assert_eq!(rig.server.calls("get"), before);
    rig.relay.set(Way::HoldTracked);
    while !rig.relay.holds(b"$3\r\nnew") {
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("new"));
        assert!(since.elapsed() < life, "nothing was read ahead");
    }
    // The reply is under way, and nobody waits for it.
    let mut others: Vec<RawClient> = (0..10).map(|_| rig.client()).collect();
    for client in &mut others {
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("new"));
    }
    assert!(rig.relay.holds(b"$3\r\nnew"), "they were answered by the server");
    rig.relay.set(Way::Open);
    while since.elapsed() < life.mul_f64(1.4) {
        for client in &mut others {
            assert_eq!(client.command(&["GET", "k"]), Reply::bulk("new"));
        }
    }
    assert_eq!(rig.server.calls("get"), before + 1, "reads that reached the server");
}
