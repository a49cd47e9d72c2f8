//! Prints what a hit costs, in ns: one thread, and two threads with an instance each, as the
//! workers of a proxy have. The reply is copied out, as a worker does.
//!
//! `cargo run --release -p heatsink-cache --example hit_cost`

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use heatsink_cache::identity::{LoginId, Protocol, Reader};
use heatsink_cache::local::{KeySettings, Limits, LocalCache, Lookup, Registered, Ttl};

const HITS: u32 = 50_000;
const RUNS: usize = 200;
const READER: Reader = Reader { login: LoginId(1), protocol: Protocol::Resp2 };

fn main() {
    println!("GET of a 16-byte key, 100-byte value; best of {RUNS} runs, ns per hit");
    for (name, keys) in [("one key", 1), ("2000 keys in turn", 2000)] {
        let single = one_thread(keys, &Barrier::new(1));
        let barrier = Barrier::new(2);
        let pair = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| one_thread(keys, &barrier)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        println!("{name:18} 1 thread {single:5.1}   2 threads {:5.1} {:5.1}", pair[0], pair[1]);
    }
}

/// The best run of one thread with a cache of its own.
fn one_thread(keys: usize, barrier: &Barrier) -> f64 {
    let (mut cache, requests) = filled(keys);
    let mut output = Vec::with_capacity(1 << 16);
    let now = black_box(Duration::from_secs(1));
    let mut best = f64::MAX;
    for _ in 0..RUNS {
        barrier.wait();
        let start = Instant::now();
        let mut next = 0;
        for _ in 0..HITS {
            let (key, command) = black_box(&requests[next]);
            next = if next + 1 == keys { 0 } else { next + 1 };
            match cache.lookup(now, READER, key, command) {
                Lookup::Hit { reply, .. } => output.extend_from_slice(reply),
                other => panic!("no hit: {other:?}"),
            }
            if output.len() > 60_000 {
                black_box(&output);
                output.clear();
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(HITS));
    }
    best
}

type Request = (Vec<u8>, Vec<u8>);

fn filled(keys: usize) -> (LocalCache, Vec<Request>) {
    let mut cache = LocalCache::new(Limits::default());
    let link = cache.link_opened(READER.login);
    let reply = format!("$100\r\n{}\r\n", "v".repeat(100));
    let requests: Vec<Request> = (0..keys)
        .map(|number| {
            let key = format!("user:{number:011}");
            let command = format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n");
            (key.into_bytes(), command.into_bytes())
        })
        .collect();
    for (key, command) in &requests {
        if let Registered::New(settling) = cache.register(key, KeySettings::default()) {
            cache.write_done(settling);
        }
        let Lookup::Miss(token) = cache.lookup(Duration::ZERO, READER, key, command) else {
            panic!("the cache is empty");
        };
        assert!(cache.filled(
            Duration::ZERO,
            token.sent_on(link),
            reply.as_bytes(),
            Ttl::Unlimited
        ));
    }
    (cache, requests)
}
