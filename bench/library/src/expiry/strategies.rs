//! How a service guards its database from a popular key, from not at all to a lease.
//!
//! Called by: `expiry`.
//! Bound: four caches each, with a connection of their own.
//! Invariant: all store the same row in the same server for the same time; only who queries
//! differs. The strategies without Heatsink are what services write around a Redis client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use heatsink::detect::config::Settings as Detector;
use heatsink::{Builder, Cache};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::expiry::database::Database;
use crate::expiry::load::Ask;
use crate::expiry::{CACHES, TTL};

const KEY: &str = "row:1";
const LOCK: &str = "row:1:lock";
/// How long those wait who look for the row again while another one queries.
const POLL: Duration = Duration::from_millis(10);
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// What is to be kept until the run is over.
type Caches = Vec<Cache<String, String>>;
type Opening = Pin<Box<dyn Future<Output = (Ask, Caches)>>>;

pub(crate) struct Strategy {
    pub(crate) name: &'static str,
    pub(crate) open: fn(&str, &Arc<Database>) -> Opening,
}

pub(crate) const STRATEGIES: [Strategy; 7] = [
    Strategy { name: "plain hit in Redis", open: |url, db| by_hand(url, db, FOR_EVER, naive) },
    Strategy { name: "naive", open: |url, db| by_hand(url, db, TTL, naive) },
    Strategy { name: "locked", open: |url, db| by_hand(url, db, TTL, locked) },
    Strategy {
        name: "plain hit of Heatsink",
        open: |url, db| with_heatsink(url, db, |builder| builder.ttl(FOR_EVER)),
    },
    Strategy {
        name: "SWR",
        open: |url, db| {
            with_heatsink(url, db, |builder| builder.ttl(TTL).stale(TTL * 10).refresh_hot(false))
        },
    },
    Strategy {
        name: "XFetch and lease",
        open: |url, db| {
            with_heatsink(url, db, |builder| builder.ttl(TTL).early(1.0).refresh_hot(false))
        },
    },
    Strategy {
        name: "hot keys refreshed, lease",
        open: |url, db| {
            with_heatsink(url, db, |builder| {
                // 500 requests a second of one process are much here.
                let detector = Detector { hot_threshold: 100, ..Detector::default() };
                builder.ttl(TTL).detector(Some(detector))
            })
        },
    },
];

fn with_heatsink(
    url: &str,
    database: &Arc<Database>,
    settings: impl Fn(Builder<String, String>) -> Builder<String, String> + 'static,
) -> Opening {
    let (url, database) = (url.to_owned(), Arc::clone(database));
    Box::pin(async move {
        let mut caches = Vec::with_capacity(CACHES);
        for _ in 0..CACHES {
            let builder = settings(Cache::builder("bench")).redis(url.clone());
            caches.push(builder.build().await.expect("a cache"));
        }
        let kept = caches.clone();
        let ask: Ask = Arc::new(move |cache| {
            let (cache, database) = (caches[cache].clone(), Arc::clone(&database));
            Box::pin(async move {
                let load = move |_| async move {
                    Ok::<_, std::convert::Infallible>(database.query().await)
                };
                let row = cache.get(KEY).load(load).await.expect("a row");
                Database::born_us(&row)
            })
        });
        (ask, kept)
    })
}

type Row = Pin<Box<dyn Future<Output = String> + Send>>;

fn by_hand(
    url: &str,
    database: &Arc<Database>,
    ttl: Duration,
    get: fn(MultiplexedConnection, Arc<Database>, u64) -> Row,
) -> Opening {
    let client = redis::Client::open(url).expect("a URL");
    let database = Arc::clone(database);
    Box::pin(async move {
        let mut connections = Vec::with_capacity(CACHES);
        for _ in 0..CACHES {
            connections
                .push(client.get_multiplexed_async_connection().await.expect("a connection"));
        }
        let ttl_ms = ttl.as_millis() as u64;
        let ask: Ask = Arc::new(move |cache| {
            let row = get(connections[cache].clone(), Arc::clone(&database), ttl_ms);
            Box::pin(async move { Database::born_us(&row.await) })
        });
        (ask, Caches::new())
    })
}

/// Looks, and queries if there is nothing.
fn naive(mut redis: MultiplexedConnection, database: Arc<Database>, ttl_ms: u64) -> Row {
    Box::pin(async move {
        if let Some(row) = redis.get(KEY).await.expect("an answer") {
            return row;
        }
        let row = database.query().await;
        let _: () = redis.pset_ex(KEY, &row, ttl_ms).await.expect("an answer");
        row
    })
}

/// Looks, and if there is nothing, the one who gets the lock queries; the others look again.
fn locked(mut redis: MultiplexedConnection, database: Arc<Database>, ttl_ms: u64) -> Row {
    Box::pin(async move {
        let mut lock = redis::cmd("SET");
        lock.arg(LOCK).arg("1").arg("NX").arg("PX").arg(10_000);
        loop {
            if let Some(row) = redis.get(KEY).await.expect("an answer") {
                return row;
            }
            let is_locked: Option<String> = lock.query_async(&mut redis).await.expect("an answer");
            if is_locked.is_some() {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        let row = database.query().await;
        let _: () = redis.pset_ex(KEY, &row, ttl_ms).await.expect("an answer");
        let _: () = redis.del(LOCK).await.expect("an answer");
        row
    })
}
