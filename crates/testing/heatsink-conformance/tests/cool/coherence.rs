//! Versioned values, writers beside and through Heatsink, many readers: nobody sees time go
//! backwards, and everybody sees what it wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply};

use crate::served::rig;

const KEYS: [&str; 3] = ["a", "b", "c"];

fn seconds() -> u64 {
    std::env::var("HEATSINK_COHERENCE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4)
}

fn version(reply: &Reply) -> u64 {
    match reply.bytes() {
        None => 0,
        Some(bytes) => std::str::from_utf8(bytes).expect("a number").parse().expect("a number"),
    }
}

/// Raises a version: the server counts, so that versions of a key never fall.
fn raise(client: &mut RawClient, key: &str) -> u64 {
    client.command(&["INCR", key]).integer() as u64
}

#[test]
fn time_never_goes_backwards() {
    let rig = rig(&KEYS, 2);
    let (proxy, server) = (rig.addr(), rig.server().addr());
    let stop = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for number in 0..6_u64 {
        let (stop, reads) = (Arc::clone(&stop), Arc::clone(&reads));
        threads.push(thread::spawn(move || {
            let mut client = RawClient::connect(proxy);
            let mut seen = [0; KEYS.len()];
            let mut random = fastrand::Rng::with_seed(number);
            while !stop.load(Ordering::Relaxed) {
                let index = random.usize(..KEYS.len());
                let key = KEYS[index];
                let now = match random.u8(..120) {
                    0 | 1 if number < 2 => raise(&mut client, key),
                    2..5 => version(&client.command(&["MGET", key, "other"]).items()[0]),
                    5..8 => {
                        let script = "return redis.call('get', KEYS[1])";
                        version(&client.command(&["EVAL", script, "1", key]))
                    }
                    8..11 => {
                        client.command(&["MULTI"]);
                        client.command(&["GET", key]);
                        version(&client.command(&["EXEC"]).items()[0])
                    }
                    _ => version(&client.command(&["GET", key])),
                };
                assert!(now >= seen[index], "{key}: {now} after {}", seen[index]);
                seen[index] = now;
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for number in 0..2 {
        let stop = Arc::clone(&stop);
        threads.push(thread::spawn(move || {
            let mut direct = RawClient::connect(server);
            let mut random = fastrand::Rng::with_seed(100 + number);
            while !stop.load(Ordering::Relaxed) {
                raise(&mut direct, KEYS[random.usize(..KEYS.len())]);
                thread::sleep(Duration::from_micros(random.u64(..2000)));
            }
        }));
    }
    let until = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < until && !threads.iter().any(thread::JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("nobody saw time go backwards");
    }
    assert!(reads.load(Ordering::Relaxed) > 1000);
    let stats = rig.server().commandstats();
    let asked = stats.get("get").map_or(0, |get| get.calls);
    println!("{} reads, {asked} of them by the server", reads.load(Ordering::Relaxed));
}
