//! A hot key with a short life and a slow query under steady traffic of four processes: how many
//! queries an expiry costs, and who waits.
//!
//! Short by default; as a campaign `HEATSINK_EXPIRY_SECONDS=60 cargo test --release -p heatsink --test
//! expiry -- --nocapture`, which prints the strategies side by side.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{MS, S};
use heatsink::{Cache, Json, Store};
use heatsink_testkit::RedisServer;
use redis::AsyncCommands;

const TTL: Duration = Duration::from_secs(1);
const QUERY: Duration = Duration::from_millis(50);
const PROCESSES: u32 = 4;
/// Of each process, every two milliseconds: 2000 a second in all.
const PACE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// `GET`, and on a miss the query and a `SET` with an expiry, by hand: nobody agrees with anybody.
    Naive,
    /// One load for all, and everybody waits for it.
    Locked,
    /// The old value while one refresh runs.
    Stale,
    /// One refresh before the expiry.
    Early,
}

#[derive(Debug)]
struct Figures {
    queries: u32,
    expiries: f64,
    waits: Vec<Duration>,
    oldest: Duration,
}

impl Figures {
    fn percentile(&self, share: f64) -> Duration {
        self.waits[((self.waits.len() - 1) as f64 * share) as usize]
    }

    fn queries_per_expiry(&self) -> f64 {
        f64::from(self.queries) / self.expiries
    }
}

fn run(strategy: Strategy, time: Duration) -> Figures {
    let server = RedisServer::start();
    let queries = Arc::new(AtomicU32::new(0));
    let waits = Arc::new(Mutex::new(Vec::new()));
    let is_over = Arc::new(AtomicBool::new(false));
    let oldest = Arc::new(Mutex::new(Duration::ZERO));
    let epoch = Instant::now();
    // The very first load is no expiry.
    let warm = epoch + MS(300);
    let runtimes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).enable_all().build().unwrap()
        })
        .collect();
    let mut tasks = Vec::new();
    for runtime in &runtimes {
        let (cache, redis) = runtime.block_on(async {
            let store = Store::connect(&server.url()).await.unwrap();
            let builder = Cache::<u32, u64>::builder("hot").store(store, Json).ttl(TTL);
            // Only what the strategy does, and memory that is as old as the shared value.
            let builder = builder.local_ttl(TTL).refresh_hot(false);
            let builder = match strategy {
                Strategy::Naive | Strategy::Locked => builder,
                Strategy::Stale => builder.stale(S(10)),
                Strategy::Early => builder.stale(S(10)).early(1.0),
            };
            let client = redis::Client::open(server.url()).unwrap();
            let redis = client.get_multiplexed_async_connection().await.unwrap();
            (builder.build().await.unwrap(), redis)
        });
        let (queries, waits, oldest) = (queries.clone(), waits.clone(), oldest.clone());
        let is_over = Arc::clone(&is_over);
        tasks.push(runtime.spawn(async move {
            let mut pace = tokio::time::interval(PACE);
            let mut callers = tokio::task::JoinSet::new();
            while !is_over.load(Ordering::SeqCst) {
                pace.tick().await;
                while callers.try_join_next().is_some() {}
                let (cache, queries) = (cache.clone(), Arc::clone(&queries));
                let mut redis = redis.clone();
                let (waits, oldest) = (Arc::clone(&waits), Arc::clone(&oldest));
                callers.spawn(async move {
                    let asked = Instant::now();
                    let query = async move {
                        queries.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(QUERY).await;
                        Ok::<_, String>(epoch.elapsed().as_millis() as u64)
                    };
                    let value = if strategy == Strategy::Naive {
                        let found: Option<u64> = redis.get("naive").await.unwrap();
                        if let Some(value) = found {
                            value
                        } else {
                            let value = query.await.unwrap();
                            let ms = TTL.as_millis() as u64;
                            let (): () = redis.pset_ex("naive", value, ms).await.unwrap();
                            value
                        }
                    } else {
                        *cache.get(&1).load(|_| query).await.unwrap()
                    };
                    if asked < warm {
                        return;
                    }
                    waits.lock().unwrap().push(asked.elapsed());
                    let age = epoch.elapsed().saturating_sub(Duration::from_millis(value));
                    let mut oldest = oldest.lock().unwrap();
                    *oldest = age.max(*oldest);
                });
            }
            while callers.join_next().await.is_some() {}
        }));
    }
    std::thread::sleep(time);
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        runtimes[0].block_on(task).unwrap();
    }
    let mut waits = std::mem::take(&mut *waits.lock().unwrap());
    waits.sort_unstable();
    let oldest = *oldest.lock().unwrap();
    let expiries = time.as_secs_f64() / TTL.as_secs_f64();
    let queries = queries.load(Ordering::SeqCst).saturating_sub(1);
    Figures { queries, expiries, waits, oldest }
}

#[test]
fn an_expiry_costs_one_query_and_nobody_waits_for_it() {
    let seconds = std::env::var("HEATSINK_EXPIRY_SECONDS");
    let seconds: u64 = seconds.ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    println!("strategy  queries/expiry      p50        p99      p99.9     oldest");
    let mut figures = Vec::new();
    for strategy in [Strategy::Naive, Strategy::Locked, Strategy::Stale, Strategy::Early] {
        let found = run(strategy, S(seconds));
        println!(
            "{:8} {:>14.2} {:>10.1?} {:>10.1?} {:>10.1?} {:>10.1?}",
            format!("{strategy:?}"),
            found.queries_per_expiry(),
            found.percentile(0.5),
            found.percentile(0.99),
            found.percentile(0.999),
            found.oldest,
        );
        figures.push(found);
    }
    let [naive, locked, stale, early] = &figures[..] else { unreachable!() };
    assert!(naive.queries_per_expiry() > 10.0, "{}", naive.queries_per_expiry());
    for one in [locked, stale, early] {
        // Early refreshes shorten the cycle.
        assert!(one.queries_per_expiry() <= 1.7, "{}", one.queries_per_expiry());
    }
    // Who waits for a query waits for all of it; nobody does so with stale values.
    assert!(locked.percentile(0.99) > MS(20), "{:?}", locked.percentile(0.99));
    for one in [stale, early] {
        // A busy machine holds up one in a hundred by itself; a campaign wants a quiet one.
        let share = if seconds < 30 { 0.9 } else { 0.99 };
        assert!(one.percentile(share) < QUERY / 2, "{:?}", one.percentile(share));
        assert!(one.oldest < TTL * 3, "{:?}", one.oldest);
    }
}
