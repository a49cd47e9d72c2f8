//! Histories of concurrent `get`, `put` and `invalidate` over three processes, while the server is
//! paused and connections are cut.
//!
//! The database of a key is a number that only grows, and every change of it is followed by a `put`
//! or an `invalidate` of the process that made it, one writer of a key at a time. So whatever is read can be judged by itself: it
//! must be at least what the database had when the last confirmed change was old enough.
//!
//! A longer campaign: `HEATSINK_HISTORY_SECONDS=60 cargo test -p heatsink --test history`.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{MS, S};
use heatsink::{Cache, Fallback, Json, Store};
use heatsink_testkit::{RedisServer, eventually, seed_from};

const KEYS: u32 = 4;
const SILENCE: Duration = Duration::from_millis(400);
/// What a process that cannot hear the store may be behind: the silence, for entries of a link; the
/// silence again, for what it loaded by itself before; and a push. And what this machine is late.
const BEHIND: Duration = Duration::from_secs(1);
/// What it may be behind while nothing is wrong: a push.
const CALM: Duration = Duration::from_millis(100);

/// How late this machine wakes those who sleep: the most so far, in milliseconds. What is told is
/// heard so much later.
#[derive(Default)]
struct Lateness(AtomicU64);

impl Lateness {
    async fn watch(&self) {
        const NAP: Duration = Duration::from_millis(5);
        loop {
            let asleep = Instant::now();
            tokio::time::sleep(NAP).await;
            let late = asleep.elapsed().saturating_sub(NAP);
            self.0.fetch_max(late.as_millis() as u64, Ordering::SeqCst);
        }
    }

    fn get(&self) -> Duration {
        MS(self.0.load(Ordering::SeqCst))
    }
}

/// One key's truth.
#[derive(Default)]
struct Row {
    number: AtomicU64,
    /// One writer at a time: the order of two `put`s would not be that of their changes.
    writing: tokio::sync::Mutex<()>,
    /// Changes that were confirmed: what the number was, and when that was.
    confirmed: std::sync::Mutex<Vec<(u64, Instant)>>,
}

impl Row {
    fn change(&self) -> u64 {
        self.number.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn confirm(&self, number: u64) {
        self.confirmed.lock().unwrap().push((number, Instant::now()));
    }

    /// The least that may be read by a `get` that began at `asked`.
    fn least(&self, asked: Instant, behind: Duration) -> u64 {
        let confirmed = self.confirmed.lock().unwrap();
        let old = confirmed.iter().filter(|(_, at)| *at + behind <= asked);
        old.map(|(number, _)| *number).max().unwrap_or(0)
    }
}

#[test]
fn nothing_older_than_promised_is_read_and_nothing_comes_back() {
    let seconds = std::env::var("HEATSINK_HISTORY_SECONDS");
    let seconds: u64 = seconds.ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(6);
    let seed = seed_from("HEATSINK_HISTORY_SEED", 22);
    let mut server = RedisServer::start();
    let rows: Arc<Vec<Row>> = Arc::new((0..KEYS).map(|_| Row::default()).collect());
    let is_over = Arc::new(AtomicBool::new(false));
    let is_calm = Arc::new(AtomicBool::new(true));
    let reads = Arc::new(AtomicU64::new(0));
    let runtimes: Vec<_> = (0..3)
        .map(|_| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).enable_all().build().unwrap()
        })
        .collect();
    let mut workers = Vec::new();
    let late = Arc::new(Lateness::default());
    let trouble = Arc::new(AtomicBool::new(false));
    for (at, runtime) in runtimes.iter().enumerate() {
        let cache = runtime.block_on(async {
            let store = Store::builder(server.url()).silence(SILENCE).timeout(MS(200));
            let builder =
                Cache::<u32, u64>::builder("rows").store(store.connect().await.unwrap(), Json);
            let builder = builder.ttl(S(60)).local_ttl(S(60)).lease(MS(300));
            let builder = builder.retry_pause(MS(100)).fallback(Fallback::Load);
            builder.stale(S(60)).early(1.0).build().await.unwrap()
        });
        let watched = Arc::clone(&late);
        runtime.spawn(async move { watched.watch().await });
        for worker in 0..4_u64 {
            let (late, trouble) = (Arc::clone(&late), Arc::clone(&trouble));
            let (cache, rows, reads) = (cache.clone(), Arc::clone(&rows), Arc::clone(&reads));
            let (is_over, is_calm) = (Arc::clone(&is_over), Arc::clone(&is_calm));
            let mut random = fastrand::Rng::with_seed(seed ^ (at as u64) << 8 ^ worker);
            workers.push(runtime.spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let key = random.u32(..KEYS);
                    let row = &rows[key as usize];
                    if random.u32(..20) == 0 {
                        let _alone = row.writing.lock().await;
                        let number = row.change();
                        let changed = if random.bool() {
                            cache.invalidate(&key).await
                        } else {
                            cache.put(&key, number).await
                        };
                        if changed.is_ok() {
                            row.confirm(number);
                            // Here there is nothing to wait for.
                            let least = row.least(Instant::now(), Duration::ZERO).min(number);
                            let read = read(&cache, &rows, key).await;
                            assert!(read >= least, "{read} after {least} was confirmed here");
                        }
                    } else {
                        let asked = Instant::now();
                        let read = read(&cache, &rows, key).await;
                        // Who got no answer in time, on a busy machine, has loaded by itself.
                        if cache.counts().shared_errors > 0 {
                            trouble.store(true, Ordering::SeqCst);
                        }
                        let is_calm =
                            is_calm.load(Ordering::SeqCst) && !trouble.load(Ordering::SeqCst);
                        let late = late.get();
                        let least = row.least(asked, late * 2 + if is_calm { CALM } else { BEHIND });
                        assert!(
                            read >= least,
                            "key {key}: {read} where {least} was confirmed long before; seed {seed}, \
                             calm {is_calm}, late {late:?}, {:?}",
                            cache.shared_state()
                        );
                        reads.fetch_add(1, Ordering::SeqCst);
                    }
                    tokio::time::sleep(MS(random.u64(..4))).await;
                }
            }));
        }
    }
    std::thread::sleep(S(seconds) / 3);
    is_calm.store(false, Ordering::SeqCst);
    let mut random = fastrand::Rng::with_seed(seed);
    let end = Instant::now() + S(seconds);
    while Instant::now() < end {
        std::thread::sleep(MS(random.u64(100..600)));
        match random.u32(..7) {
            // It comes back empty.
            0 => {
                server.kill();
                std::thread::sleep(MS(random.u64(50..900)));
                server.start_again();
            }
            1 | 2 => {
                server.pause();
                std::thread::sleep(MS(random.u64(50..900)));
                server.resume();
            }
            3 | 4 => {
                let _ = server.try_admin_client().map(|mut admin| {
                    admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
                });
            }
            _ => {}
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        runtimes[0].block_on(worker).expect("no promise was broken");
    }
    assert!(reads.load(Ordering::SeqCst) > 500, "{reads:?} reads");
    eventually(S(5), || server.is_running());
}

async fn read(cache: &Cache<u32, u64>, rows: &Arc<Vec<Row>>, key: u32) -> u64 {
    let rows = Arc::clone(rows);
    let load = move |_| async move {
        let number = rows[key as usize].number.load(Ordering::SeqCst);
        // The answer of a database is on its way for a while.
        tokio::time::sleep(MS(3)).await;
        Ok::<_, String>(number)
    };
    *cache.get(&key).load(load).await.expect("the loader does not fail")
}
