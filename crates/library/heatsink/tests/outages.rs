//! What callers notice while servers or the database fail, and what is left behind: nothing.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::{Database, MS, Process, S, get};
use heatsink::{Cache, Local, Source, StoreState};
use heatsink_testkit::{RawClient, RedisServer, Reply, eventually};
use tokio::sync::Semaphore;

/// Where processes have to tell each other of changes.
fn server_that_does_not_tell() -> RedisServer {
    RedisServer::builder().line("rename-command HELLO \"\"").start()
}

/// A query that is asked at once and answered when the gate is open.
async fn gated(db: Database, gate: Arc<Semaphore>) -> Result<String, String> {
    let row = db.query(MS(0)).await;
    let _open = gate.acquire().await;
    row
}

fn connections(admin: &mut RawClient) -> u64 {
    let stats = admin.command(&["INFO", "stats"]).text();
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.expect("a count").trim().parse().expect("a number")
}

#[test]
fn while_the_store_is_gone_a_slow_load_is_run_once() {
    let mut server = RedisServer::start();
    let db = Database::default();
    let one = Process::start(&server.url(), &db);
    server.kill();
    eventually(S(5), || !one.is_connected());
    let gate = Arc::new(Semaphore::new(0));
    let (cache, load) = (one.cache.clone(), gated(db.clone(), Arc::clone(&gate)));
    let loading = one.spawn(async move { cache.get(&1).load(|_| load).await.map(drop) });
    eventually(S(5), || db.queries() == 1);
    // Meanwhile it is tried again and again to connect.
    for _ in 0..40 {
        let load = gated(db.clone(), Arc::clone(&gate));
        let impatient = one.cache.get(&1).hard_timeout(MS(50)).load(|_| load);
        assert!(one.run(impatient).is_err());
    }
    assert_eq!(db.queries(), 1);
    gate.add_permits(1);
    one.run(loading).unwrap().unwrap();
}

#[test]
fn while_the_store_is_gone_a_key_costs_a_query_a_second() {
    let mut server = RedisServer::start();
    let db = Database::default();
    let one = Process::start(&server.url(), &db);
    server.kill();
    eventually(S(5), || !one.is_connected());
    let begun = Instant::now();
    while begun.elapsed() < MS(2900) {
        one.get(1, MS(0));
        one.sleep(MS(5));
    }
    assert!(db.queries() <= 3, "{}", db.queries());
}

#[test]
fn a_lost_connection_is_replaced_by_one() {
    let server = RedisServer::start();
    let db = Database::default();
    let one = Process::start_with(&server.url(), &db, |b| b.local(Local::off()), |store| store);
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|key| {
            let (cache, db, is_over) = (one.cache.clone(), db.clone(), Arc::clone(&is_over));
            one.spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    get(&cache, &db, key, MS(1)).await.expect("it loads by itself");
                }
            })
        })
        .collect();
    let mut admin = server.admin_client();
    // The server is busy until a ping waits for it, and then ends the connection.
    let begun = connections(&mut admin);
    for lost in 1..=5 {
        admin.send(&["DEBUG", "SLEEP", "0.35"]);
        admin.send(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert_eq!(admin.read_reply(), Reply::ok());
        assert!(matches!(admin.read_reply(), Reply::Integer(1..)));
        eventually(S(5), || connections(&mut admin) >= begun + lost && one.is_connected());
    }
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        one.run(caller).unwrap();
    }
    assert_eq!(connections(&mut admin), begun + 5);
}

#[test]
fn a_cache_that_is_dropped_leaves_no_connection() {
    for server in [RedisServer::start(), server_that_does_not_tell()] {
        let mut admin = server.admin_client();
        let mut clients = || {
            let list = admin.command(&["CLIENT", "LIST"]).text();
            list.lines().count()
        };
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let cache = Cache::<u32, String>::builder("users").redis(server.url());
            let cache = cache.build().await.unwrap();
            assert!(matches!(cache.shared_state(), Some(StoreState::Connected { .. })));
            assert!(clients() > 1);
            drop(cache);
            let end = Instant::now() + S(5);
            while clients() > 1 {
                assert!(Instant::now() < end, "{} connections are left", clients() - 1);
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn who_asks_without_a_pause_does_not_hold_up_what_is_being_stored() {
    let server = RedisServer::start();
    let db = Database::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cache = Cache::<u32, String>::builder("users").redis(server.url());
        let cache = cache.local(Local::off()).build().await.unwrap();
        let end = Instant::now() + S(5);
        while get(&cache, &db, 1, MS(0)).await.unwrap().source() != Source::Shared {
            assert!(Instant::now() < end, "{:?}", cache.counts());
        }
    });
}

#[test]
fn a_refresh_that_hangs_does_not_outlive_a_value_that_was_found_in_the_store() {
    // Elsewhere the server says that the value is gone.
    let server = server_that_does_not_tell();
    let db = Database::default();
    let start = || {
        Process::start_with(&server.url(), &db, |b| b.ttl(MS(200)).stale(MS(800)), |store| store)
    };
    let (one, two) = (start(), start());
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    one.sleep(MS(250));
    assert_eq!(two.get_at_once(1, S(3600)).0, "row 1");
    eventually(S(5), || db.queries() == 2);
    let gone = &["EXISTS", "users:1"];
    eventually(S(5), || server.client().command(gone) == Reply::Integer(0));
    let begun = Instant::now();
    assert_eq!(two.get_at_once(1, MS(0)), ("row 3".to_owned(), Source::Loaded));
    assert!(begun.elapsed() < S(2), "{:?}", begun.elapsed());
}

#[test]
fn after_a_failed_load_every_process_leaves_the_database_alone() {
    let server = RedisServer::start();
    let db = Database::default();
    for (key, on_error) in [(1, true), (2, false)] {
        let start = || {
            let windows = |b: heatsink::Builder<u32, String>| {
                let b = b.ttl(MS(100)).retry_pause(S(60));
                if on_error { b.stale_if_error(S(60)) } else { b.stale(S(60)) }
            };
            Process::start_with(&server.url(), &db, windows, |store| store)
        };
        let (one, two) = (start(), start());
        let row = one.get(key, MS(0)).0;
        one.sleep(MS(150));
        // Also one that has never had the value.
        for process in [&one, &two] {
            for _ in 0..20 {
                let fails = |_| async { Err::<String, _>("no".to_owned()) };
                assert_eq!(*process.run(process.cache.get(&key).load(fails)).unwrap(), row);
                process.settle();
            }
            assert_eq!(process.counts().loads_failed, 1, "{:?}", process.counts());
        }
        two.run(two.cache.put(&key, "new".to_owned())).unwrap();
        eventually(S(5), || one.get(key, MS(0)).0 == "new");
    }
}

#[test]
fn a_process_that_has_just_started_does_not_notice_a_database_that_hangs() {
    let server = RedisServer::start();
    let db = Database::default();
    let start = || {
        let windows = |b: heatsink::Builder<u32, String>| {
            b.ttl(MS(50)).stale_if_error(S(60)).hard_timeout(MS(300)).retry_pause(S(60))
        };
        Process::start_with(&server.url(), &db, windows, |store| store)
    };
    let (one, two) = (start(), start());
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    one.sleep(MS(60));
    assert_eq!(two.get_at_once(1, S(3600)).0, "row 1");
    // And waits for it once.
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(two.get_at_once(1, S(3600)).0, "row 1");
    }
    assert!(begun.elapsed() < S(1), "{:?}", begun.elapsed());
    assert_eq!((db.queries(), two.counts().stale_served), (2, 11));
}

#[test]
fn a_server_without_resp3_and_one_that_is_full_will_do() {
    let server = server_that_does_not_tell();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    assert_eq!(one.cache.shared_state(), Some(StoreState::Connected { server_tells: false }));
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    assert_eq!(two.get(1, MS(0)), ("row 1".to_owned(), Source::Shared));
    one.run(one.cache.invalidate(&1)).unwrap();
    eventually(S(5), || two.get(1, MS(0)).0 == "row 2");

    server.client().command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(two.get(2, MS(0)).0, "row 3");
    assert_eq!(one.run(one.cache.invalidate(&1)), Ok(()));
    assert!(one.run(one.cache.put(&3, "put".to_owned())).is_err());
    server.client().command(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually(S(5), || one.run(one.cache.put(&3, "put".to_owned())).is_ok());
    eventually(S(5), || two.get(3, MS(0)).0 == "put");
    assert_eq!(one.counts().failed + two.counts().failed, 0);
}
