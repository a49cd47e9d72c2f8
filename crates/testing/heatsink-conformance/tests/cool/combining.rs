//! Increments of one key that are carried out together: each client still gets its own reply.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_conformance::{Heatsink, Rig};
use heatsink_proxy::hot_keys::{HotKeys, Treatment};
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};

use crate::served::SOON;

const EXACT: Treatment = Treatment::EXACT;
const CLIENTS: usize = 64;

/// How many increments; a million take a minute or so.
pub(crate) fn increments() -> u64 {
    let number = std::env::var("HEATSINK_INCREMENTS").ok();
    number.map_or(40_000, |text| text.parse().expect("a number"))
}

fn calls(server: &RedisServer, commands: &[&str]) -> u64 {
    let stats = server.commandstats();
    commands.iter().filter_map(|name| stats.get(*name)).map(|stats| stats.calls).sum()
}

/// What is repeated, by one each time, and how often.
#[derive(Clone, Copy)]
pub(crate) struct Counting {
    pub(crate) words: &'static [&'static str],
    pub(crate) total: u64,
}

/// One increment, and where it stood in time: two numbers of one clock.
struct Increment {
    begun: u64,
    ended: u64,
    reply: i64,
}

/// What many clients were told.
pub(crate) struct Counted(Vec<Increment>);

/// Increments by one, as many clients at once, until all have been sent.
pub(crate) fn count_up(proxies: &[SocketAddr], counting: Counting) -> Counted {
    let Counting { words, total } = counting;
    let left = Arc::new(AtomicU64::new(total));
    let clock = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for number in 0..CLIENTS {
        let (left, clock) = (Arc::clone(&left), Arc::clone(&clock));
        let proxy = proxies[number % proxies.len()];
        threads.push(thread::spawn(move || {
            let mut client = RawClient::connect(proxy);
            let mut seen = Vec::new();
            let one_less = |left: u64| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                let begun = clock.fetch_add(1, Ordering::SeqCst);
                let reply = number_in(&client.command(words)).expect("a number");
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                seen.push(Increment { begun, ended, reply });
            }
            seen
        }));
    }
    let join = |thread: thread::JoinHandle<_>| thread.join().expect("every one is answered");
    Counted(threads.into_iter().flat_map(join).collect())
}

/// The number in a reply, however the command gives it.
fn number_in(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Integer(number) => Some(*number),
        Reply::Bulk(_) => reply.text().parse().ok(),
        _ => None,
    }
}

impl Counted {
    /// The replies are all numbers from 1, each once, and none is told before a lesser one.
    pub(crate) fn check(self, total: u64) {
        let Self(mut seen) = self;
        let replies: BTreeSet<i64> = seen.iter().map(|increment| increment.reply).collect();
        assert_eq!(seen.len() as u64, total);
        assert!(replies.iter().copied().eq(1..=total as i64), "not the numbers from 1 to {total}");
        // Whoever began after another had ended has the greater number.
        seen.sort_by_key(|increment| increment.ended);
        let mut starts: Vec<&Increment> = seen.iter().collect();
        starts.sort_by_key(|increment| increment.begun);
        let (mut ended, mut greatest) = (seen.iter().peekable(), 0);
        for increment in starts {
            while let Some(before) = ended.next_if(|before| before.ended < increment.begun) {
                greatest = greatest.max(before.reply);
            }
            assert!(increment.reply > greatest, "{} behind {greatest}", increment.reply);
        }
    }
}

#[test]
fn replies_are_all_numbers_and_respect_time() {
    let server = RedisServer::start();
    let proxies: Vec<Heatsink> =
        (0..2).map(|_| Heatsink::before_url(&server.url(), |config| config.workers = 1)).collect();
    for heatsink in &proxies {
        heatsink.heat(&["counter"], EXACT);
    }
    let addrs: Vec<SocketAddr> = proxies.iter().map(Heatsink::addr).collect();
    let total = increments();
    count_up(&addrs, Counting { words: &["INCR", "counter"], total }).check(total);
    let upstream = calls(&server, &["incr", "incrby"]);
    println!("{total} increments, {upstream} of them by the server");
    // How many go together depends on how many wait at a time, and that on the machine; `hot` of
    // the benchmark judges it.
    assert!(upstream <= total / 2, "{upstream} of {total} reached the server");
}

/// While an increment is out, all others wait, and then go as one.
#[test]
fn what_waits_for_an_answer_goes_together() {
    let mut rig = Rig::new(1);
    let handle = rig.heatsink().proxy().handle();
    let hot: HotKeys = [(b"counter".to_vec(), EXACT)].into_iter().collect();
    let version = handle.set_hot_keys(hot);
    eventually(SOON, || handle.settled_version() >= version);
    let mut clients: Vec<RawClient> = (0..CLIENTS).map(|_| rig.client()).collect();
    for client in &mut clients {
        client.command(&["INCR", "counter"]);
    }
    let before = calls(rig.server(), &["incr", "incrby"]);
    rig.server_mut().pause();
    for client in &mut clients {
        client.send(&["INCR", "counter"]);
    }
    // Not asked of the server. The worker has read all of the others by the second answer.
    for _ in 0..2 {
        assert_eq!(rig.client().command(&["QUIT"]), Reply::ok());
    }
    rig.server_mut().resume();
    let mut replies: Vec<i64> =
        clients.iter_mut().map(|client| client.read_reply().integer()).collect();
    replies.sort_unstable();
    let first = CLIENTS as i64 + 1;
    assert_eq!(replies, (first..first + CLIENTS as i64).collect::<Vec<_>>());
    // Those that were read in the first turn, and all that came later.
    let sent = calls(rig.server(), &["incr", "incrby"]) - before;
    assert!(sent <= 2, "{sent} for {CLIENTS} increments");
}

/// While a batch waits for company, its worker sleeps between looks.
#[test]
fn nobody_looks_all_the_time_for_company() {
    let server = RedisServer::start();
    let heatsink = Heatsink::before_url(&server.url(), |config| config.workers = 1);
    let handle = heatsink.proxy().handle();
    let hot: HotKeys = [(b"counter".to_vec(), EXACT)].into_iter().collect();
    let version = handle.set_hot_keys(hot);
    // From now on increments are combined: on the link there is never a crowd to pause for.
    eventually(SOON, || handle.settled_version() >= version);
    let total = increments();
    count_up(&[heatsink.addr()], Counting { words: &["INCR", "counter"], total }).check(total);
    eventually(SOON, || handle.pauses_total() > 0);
}

#[test]
fn a_server_that_is_killed_loses_no_acknowledged_increment() {
    killed_in_between(&["INCR", "counter"]);
}

/// acknowledged <= final <= acknowledged + unknown, and no number twice.
pub(crate) fn killed_in_between(words: &'static [&'static str]) {
    let settings = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let mut rig = Rig::with(settings, |config| config.workers = 2);
    rig.heatsink().heat(&["counter"], EXACT);
    let proxy = rig.addr();
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            thread::spawn(move || {
                let mut client = RawClient::connect(proxy);
                let (mut numbers, mut unknown) = (Vec::new(), 0_u64);
                while !stop.load(Ordering::Relaxed) {
                    match client.command(words) {
                        reply @ (Reply::Integer(_) | Reply::Bulk(_)) => {
                            numbers.push(number_in(&reply).expect("a whole number"));
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                        Reply::Error(text) if text.contains("unknown whether") => unknown += 1,
                        Reply::Error(_) => thread::sleep(Duration::from_millis(2)),
                        other => panic!("{other:?}"),
                    }
                }
                (numbers, unknown)
            })
        })
        .collect();
    for _ in 0..3 {
        let before = acknowledged.load(Ordering::Relaxed);
        eventually(SOON, || acknowledged.load(Ordering::Relaxed) > before + 500);
        rig.server_mut().kill();
        rig.server_mut().start_again();
    }
    let before = acknowledged.load(Ordering::Relaxed);
    eventually(SOON, || acknowledged.load(Ordering::Relaxed) > before + 500);
    stop.store(true, Ordering::Relaxed);
    let (mut numbers, mut unknown) = (BTreeSet::new(), 0);
    for thread in threads {
        let (seen, lost) = thread.join().expect("every one is answered");
        assert!(seen.is_sorted(), "a client saw its numbers fall");
        for number in seen {
            assert!(numbers.insert(number), "{number} was given twice");
        }
        unknown += lost;
    }
    let end = rig.client().command(&["GET", "counter"]).text().parse::<u64>().expect("a number");
    let acknowledged = numbers.len() as u64;
    println!("{acknowledged} acknowledged, {unknown} unknown, {end} in the end");
    assert!(acknowledged <= end && end <= acknowledged + unknown);
}

/// What a client sends behind an increment of its own sees it, whatever it is.
#[test]
fn a_clients_own_order_is_kept() {
    for treatment in [EXACT, Treatment::COHERENT] {
        let rig = Rig::new(1);
        rig.heatsink().heat(&["n", "h"], treatment);
        // Others keep a batch out nearly all the time.
        let stop = Arc::new(AtomicBool::new(false));
        let others: Vec<_> = (0..4)
            .map(|_| {
                let (stop, proxy) = (Arc::clone(&stop), rig.addr());
                thread::spawn(move || {
                    let mut client = RawClient::connect(proxy);
                    while !stop.load(Ordering::Relaxed) {
                        client.command(&["HINCRBY", "h", "others", "1"]);
                    }
                })
            })
            .collect();
        let mut client = rig.client();
        for round in 0..100_i64 {
            let burst: [&[&str]; 12] = [
                &["DEL", "n"],
                &["INCR", "n"],
                &["INCRBY", "n", "5"],
                &["GET", "n"],
                &["SET", "n", "10"],
                &["DECR", "n"],
                &["EXISTS", "n"],
                &["APPEND", "n", "0"],
                &["SET", "n", "3"],
                &["SET", "n", "4"],
                &["HINCRBY", "h", "mine", "1"],
                &["MGET", "n", "none"],
            ];
            client.send_raw(&burst.map(encode).concat());
            client.read_reply();
            let wanted = [
                Reply::Integer(1),
                Reply::Integer(6),
                Reply::bulk("6"),
                Reply::ok(),
                Reply::Integer(9),
                Reply::Integer(1),
                Reply::Integer(2),
                Reply::ok(),
                Reply::ok(),
                Reply::Integer(round + 1),
                Reply::Array(vec![Reply::bulk("4"), Reply::Null]),
            ];
            for (command, wanted) in burst[1..].iter().zip(wanted) {
                assert_eq!(client.read_reply(), wanted, "{command:?} in round {round}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        for other in others {
            other.join().expect("it counts");
        }
    }
}

#[test]
fn each_gets_the_error_that_is_its_own() {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["n", "text"], EXACT);
    let mut direct = rig.server().client();
    direct.command(&["SET", "n", "9223372036854775797"]);
    direct.command(&["SET", "text", "words"]);
    let burst = encode(&["INCRBY", "n", "4"]).repeat(5);
    let mut client = rig.client();
    client.send_raw(&burst);
    let replies: Vec<Reply> = (0..5).map(|_| client.read_reply()).collect();
    assert_eq!(replies[0], Reply::Integer(9_223_372_036_854_775_801));
    assert_eq!(replies[1], Reply::Integer(9_223_372_036_854_775_805));
    assert!(replies[2..].iter().all(Reply::is_error), "{replies:?}");
    client.send_raw(&encode(&["INCR", "text"]).repeat(3));
    for _ in 0..3 {
        assert_eq!(client.read_reply().text(), direct.command(&["INCR", "text"]).text());
    }
}

/// Keys become hot and cool down all the time: nothing is lost, nothing reordered.
#[test]
fn switching_loses_and_reorders_nothing() {
    let rig = Rig::new(2);
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let (stop, proxy) = (Arc::clone(&stop), rig.addr());
            thread::spawn(move || {
                let mut client = RawClient::connect(proxy);
                let field = format!("f{number}");
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let burst = [
                        encode(&["HINCRBY", "h", &field, "1"]),
                        encode(&["HGET", "h", &field]),
                        encode(&["INCR", "n"]),
                    ];
                    client.send_raw(&burst.concat().repeat(8));
                    let mut last = 0;
                    for _ in 0..8 {
                        count += 1;
                        assert_eq!(client.read_reply(), Reply::Integer(count));
                        assert_eq!(client.read_reply(), Reply::bulk(count.to_string()));
                        let number = client.read_reply().integer();
                        assert!(number > last, "{number} behind {last}");
                        last = number;
                    }
                }
                count
            })
        })
        .collect();
    let ways = [
        Treatment::default(),
        EXACT,
        Treatment::COHERENT,
        Treatment { coalesce: false, ..Treatment::COHERENT },
    ];
    for round in 0..200 {
        rig.heatsink().heat(&["h", "n"], ways[round % ways.len()]);
        let before = rig.server().info_u64("stats", "total_commands_processed");
        eventually(SOON, || {
            rig.server().info_u64("stats", "total_commands_processed") > before + 20
        });
    }
    stop.store(true, Ordering::Relaxed);
    let sum: i64 = threads.into_iter().map(|thread| thread.join().expect("in order")).sum();
    assert_eq!(rig.client().command(&["GET", "n"]).text(), sum.to_string());
}

/// What one client asks of one key in one go, all reads or all increments, is executed in one go, as
/// by a plain server: nobody's comes in between.
#[test]
fn a_pipeline_of_one_kind_is_executed_in_one_go() {
    const LENGTH: usize = 4;
    let rig = Rig::new(2);
    rig.heatsink().heat(&["n"], EXACT);
    let stop = Arc::<AtomicBool>::default();
    let clients: Vec<_> = (0..10)
        .map(|number| {
            let (mut client, stop) = (rig.client(), Arc::clone(&stop));
            thread::spawn(move || {
                let command = if number % 2 == 0 { "INCR" } else { "GET" };
                let pipeline = encode(&[command, "n"]).repeat(LENGTH);
                while !stop.load(Ordering::Relaxed) {
                    client.send_raw(&pipeline);
                    let replies = [(); LENGTH].map(|()| client.read_reply());
                    let wanted = i64::from(number % 2 == 0);
                    let number = |reply: &Reply| match reply {
                        Reply::Integer(number) => *number,
                        Reply::Null => 0,
                        reply => reply.text().parse().expect("a number"),
                    };
                    let pairs = replies.windows(2);
                    let mut gaps = pairs.map(|pair| number(&pair[1]) - number(&pair[0]));
                    assert!(gaps.all(|gap| gap == wanted), "{command}: {replies:?}");
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("nobody came in between");
    }
}
