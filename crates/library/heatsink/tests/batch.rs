//! Many keys with one query, in one process and over several.

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::{Database, MS, Process, S, get};
use heatsink::{Cache, Clock, Error, Source};
use heatsink_testkit::{RedisServer, Reply, eventually};

type Queries = Arc<Mutex<Vec<Vec<u32>>>>;

type Rows = Result<HashMap<u32, String>, String>;
type Answer = std::pin::Pin<Box<dyn Future<Output = Rows> + Send>>;

/// Has all keys but multiples of ten.
fn table(
    queries: &Queries,
    takes: std::time::Duration,
) -> impl Fn(Vec<u32>) -> Answer + Send + Sync + 'static {
    let queries = Arc::clone(queries);
    move |keys| {
        let queries = Arc::clone(&queries);
        Box::pin(async move {
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            queries.lock().unwrap().push(sorted);
            tokio::time::sleep(takes).await;
            let has = |key: &u32| !key.is_multiple_of(10);
            Ok(keys.into_iter().filter(has).map(|key| (key, format!("row {key}"))).collect())
        })
    }
}

#[tokio::test]
async fn misses_are_one_query_and_absent_keys_are_kept_as_such() {
    let clock = Clock::manual();
    let cache = Cache::<u32, String>::builder("t").ttl(S(60)).clock(clock.clone());
    let cache = cache.build().await.unwrap();
    let queries = Queries::default();
    cache.put(&1, "put".to_owned()).await.unwrap();
    let keys = [1, 2, 3, 10, 2];
    let found = cache.get_many(&keys).load(table(&queries, MS(0))).await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!((&*found[&1], found[&1].source()), (&"put".to_owned(), Source::Local));
    assert_eq!((&**found[&2], found[&2].source()), ("row 2", Source::Loaded));
    let again = cache.get_many(&keys).load(table(&queries, MS(0))).await.unwrap();
    assert_eq!(again.len(), 3);
    assert_eq!(*queries.lock().unwrap(), [[2, 3, 10]]);
    assert_eq!(cache.counts().gets(), 8);

    clock.advance(S(60));
    let fails = |_| async { Err::<HashMap<u32, String>, _>("no".to_owned()) };
    assert!(matches!(cache.get_many(&keys).load(fails).await, Err(Error::Load(_))));
    let panics = |_| async { panic!("bug") as Result<HashMap<u32, String>, String> };
    assert!(matches!(cache.get_many(&keys).load(panics).await, Err(Error::Panicked(_))));
    assert_eq!(cache.loading(), 0);
}

#[test]
fn single_and_many_share_loads_and_each_process_asks_for_what_nobody_else_loads() {
    let server = RedisServer::start();
    let (db, queries) = (Database::default(), Queries::default());
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    // Key 5 is being loaded by the other process; 6 lies in the shared tier.
    let (cache, slow) = (two.cache.clone(), db.clone());
    let five =
        two.spawn(async move { get(&cache, &slow, 5, MS(300)).await.map(|row| (*row).clone()) });
    eventually(S(5), || db.queries() == 1);
    two.run(two.cache.put(&6, "six".to_owned())).unwrap();
    let keys = [4, 5, 6, 7, 20];
    let begun = Instant::now();
    let found = one.run(one.cache.get_many(&keys).load(table(&queries, MS(50)))).unwrap();
    assert!(begun.elapsed() < S(3), "{:?}", begun.elapsed());
    let mut rows: Vec<_> = found.iter().map(|(key, row)| (*key, (**row).clone())).collect();
    rows.sort();
    let expected = [(4, "row 4"), (5, "row 1"), (6, "six"), (7, "row 7")];
    assert_eq!(rows, expected.map(|(key, row)| (key, row.to_owned())));
    assert_eq!(*queries.lock().unwrap(), [[4, 7, 20]]);
    assert_eq!(two.run(five).unwrap().unwrap(), "row 1");
    one.settle();
    // What was loaded together is shared, each by itself; nothing is left of the leases.
    let never = |_| async { Err::<HashMap<u32, String>, _>("not asked".to_owned()) };
    assert_eq!(two.run(two.cache.get_many(&keys).load(never)).unwrap().len(), 4);
    assert_eq!(server.client().command(&["DBSIZE"]), Reply::Integer(5));
}

#[test]
fn a_batch_whose_store_is_gone_is_still_one_query() {
    let mut server = RedisServer::start();
    let (db, queries) = (Database::default(), Queries::default());
    let one = Process::start(&server.url(), &db);
    server.kill();
    eventually(S(5), || !one.is_connected());
    let found = one.run(one.cache.get_many(&[1, 2, 3]).load(table(&queries, MS(0)))).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(*queries.lock().unwrap(), [[1, 2, 3]]);
}

#[test]
fn values_that_expired_together_are_one_query() {
    let server = RedisServer::start();
    let (db, queries) = (Database::default(), Queries::default());
    let start = || {
        let windows = |b: heatsink::Builder<u32, String>| b.ttl(MS(200)).stale(S(60));
        Process::start_with(&server.url(), &db, windows, |store| store)
    };
    let (one, two) = (start(), start());
    let keys: Vec<u32> = (1..50).filter(|key| key % 10 != 0).collect();
    one.run(one.cache.get_many(&keys).load(table(&queries, MS(0)))).unwrap();
    one.settle();
    one.sleep(MS(250));
    // In neither process's memory, or past its time to live there: stale in the shared tier.
    let found = two.run(two.cache.get_many(&keys).load(table(&queries, MS(0)))).unwrap();
    assert_eq!(found.len(), keys.len());
    assert!(found.values().all(|row| !row.is_stale()), "they are loaded, not served stale");
    two.settle();
    assert_eq!(queries.lock().unwrap().len(), 2, "{:?}", queries.lock().unwrap());
    assert_eq!(two.counts().loads, 1);

    // And if that fails, the old ones are the answer.
    two.sleep(MS(250));
    let fails = |_| async { Err::<HashMap<u32, String>, _>("no".to_owned()) };
    let found = two.run(two.cache.get_many(&keys).load(fails)).unwrap();
    assert!(found.len() == keys.len() && found.values().all(heatsink::Entry::is_stale));
    let counts = two.counts();
    let len = keys.len() as u64;
    assert_eq!((counts.gets(), counts.stale_served, counts.failed), (len * 2, len, 0));
    // The leases to refresh are given back.
    eventually(S(5), || server.client().command(&["DBSIZE"]) == Reply::Integer(len as i64));
}

#[tokio::test]
async fn keys_for_which_there_is_no_room_do_not_end_the_others() {
    let cache = Cache::<u32, String>::builder("t").max_flights(3).build().await.unwrap();
    let queries = Queries::default();
    let end = cache.get_many(&[1, 2, 3, 4]).load(table(&queries, MS(0))).await;
    assert!(matches!(end, Err(Error::Overloaded)), "{end:?}");
    assert_eq!(*queries.lock().unwrap(), [[1, 2, 3]]);
    assert_eq!((cache.local_len(), cache.loading()), (3, 0));
    assert_eq!((cache.counts().gets(), cache.counts().failed), (4, 1));
}

#[tokio::test]
async fn a_batch_whose_caller_gives_up_is_counted() {
    let cache = Cache::<u32, String>::builder("t").build().await.unwrap();
    cache.put(&1, "put".to_owned()).await.unwrap();
    let queries = Queries::default();
    let asked = cache.get_many(&[1, 2, 3]).load(table(&queries, S(3600)));
    assert!(tokio::time::timeout(MS(50), asked).await.is_err());
    let counts = cache.counts();
    assert_eq!((counts.gets(), counts.local_hits, counts.abandoned), (3, 1, 2), "{counts:?}");
}

#[tokio::test]
async fn a_batch_that_takes_too_long_says_so() {
    let cache = Cache::<u32, String>::builder("t").load_timeout(MS(20)).build().await.unwrap();
    let hangs = |_| std::future::pending::<Rows>();
    let end = cache.get_many(&[1, 2]).load(hangs).await;
    assert!(matches!(end, Err(Error::Timeout)), "{end:?}");
    assert_eq!((cache.counts().loads, cache.counts().loads_failed, cache.loading()), (1, 1, 0));
}

#[tokio::test]
async fn what_is_asked_for_with_others_becomes_hot_too() {
    let clock = Clock::manual();
    let cache = Cache::<u32, String>::builder("t").clock(clock.clone()).build().await.unwrap();
    cache.put(&1, "one".to_owned()).await.unwrap();
    let queries = Queries::default();
    for _ in 0..2000 {
        cache.get_many(&[1]).load(table(&queries, MS(0))).await.unwrap();
    }
    clock.advance(MS(50));
    assert_eq!(cache.hot_keys().len(), 1);
}
