//! The shared tier on a real server: one load over processes, coherence, leases.

mod common;

use std::time::Instant;

use common::{Database, MS, Process, S, all_at_once, get};
use heatsink::{Clock, Error, Fallback, Source, StoreState};
use heatsink_testkit::{RedisServer, Reply, eventually};

fn text(reply: &Reply) -> String {
    format!("{reply:?}")
}

#[test]
fn processes_share_values_and_hear_of_changes() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    assert_eq!(one.cache.shared_state(), Some(StoreState::Connected { server_tells: true }));
    let row = |number| format!("row {number}");
    assert_eq!(one.get(1, MS(0)), (row(1), Source::Loaded));
    assert_eq!(one.get(1, MS(0)), (row(1), Source::Local));
    assert_eq!(two.get(1, MS(0)), (row(1), Source::Shared));
    assert_eq!(two.get(1, MS(0)), (row(1), Source::Local));

    two.run(two.cache.put(&1, "put".to_owned())).unwrap();
    assert_eq!(two.get(1, MS(0)), ("put".to_owned(), Source::Shared));
    eventually(S(5), || one.get(1, MS(0)).0 == "put");

    one.run(one.cache.invalidate(&1)).unwrap();
    assert_eq!(one.get(1, MS(0)), (row(2), Source::Loaded));
    eventually(S(5), || two.get(1, MS(0)).0 == row(2));

    // Neither a deletion by others nor a flush goes unnoticed.
    for (number, command) in [(3, &["DEL", "users:1"][..]), (4, &["FLUSHALL"])] {
        server.client().command(command);
        eventually(S(5), || one.get(1, MS(0)).0 == row(number));
        eventually(S(5), || two.get(1, MS(0)).0 == row(number));
    }
    assert_eq!(db.queries(), 4);
    let counts = two.counts();
    assert_eq!(counts.failed + counts.abandoned + counts.shared_errors, 0);
}

#[test]
fn ten_thousand_callers_in_four_processes_make_one_query() {
    let server = RedisServer::start();
    let db = Database::default();
    let processes: Vec<_> = (0..4).map(|_| Process::start(&server.url(), &db)).collect();
    let callers: Vec<_> = (0..10_000)
        .map(|number| {
            let process = &processes[number % 4];
            let (cache, db) = (process.cache.clone(), db.clone());
            process
                .spawn(async move { get(&cache, &db, 1, MS(100)).await.map(|row| (*row).clone()) })
        })
        .collect();
    processes[0].run(async {
        for caller in callers {
            assert_eq!(&*caller.await.unwrap().unwrap(), "row 1");
        }
    });
    assert_eq!(db.queries(), 1);
    let sum = |of: fn(&heatsink::Counts) -> u64| {
        processes.iter().map(|process| of(&process.counts())).sum::<u64>()
    };
    assert_eq!(sum(heatsink::Counts::gets), 10_000);
    assert_eq!(sum(|counts| counts.loads), 1);
}

#[test]
fn a_holder_that_dies_is_followed_by_one_other() {
    let server = RedisServer::start();
    let db = Database::default();
    let lease = MS(500);
    let mut processes: Vec<_> = (0..4)
        .map(|_| Process::start_with(&server.url(), &db, |b| b.lease(lease), |store| store))
        .collect();
    let (cache, hangs) = (processes[0].cache.clone(), db.clone());
    processes[0].spawn(async move { get(&cache, &hangs, 1, S(3600)).await.map(drop) });
    eventually(S(5), || db.queries() == 1);
    let callers: Vec<_> = (0..99)
        .map(|number| {
            let process = &processes[1 + number % 3];
            let (cache, db) = (process.cache.clone(), db.clone());
            process
                .spawn(async move { get(&cache, &db, 1, MS(100)).await.map(|row| (*row).clone()) })
        })
        .collect();
    eventually(S(5), || (1..4).all(|at| processes[at].counts().leases_waited > 0));
    // While it lives it is not replaced, however long it takes.
    processes[3].sleep(lease * 3);
    assert_eq!(db.queries(), 1);
    processes[0].kill();
    let killed = Instant::now();
    processes[1].run(async {
        for caller in callers {
            assert_eq!(&*caller.await.unwrap().unwrap(), "row 2");
        }
    });
    assert_eq!(db.queries(), 2);
    assert!(killed.elapsed() < lease + S(2), "{:?}", killed.elapsed());
}

#[test]
fn a_loader_slower_than_its_lease_is_run_once() {
    let server = RedisServer::start();
    let db = Database::default();
    let start = || Process::start_with(&server.url(), &db, |b| b.lease(MS(400)), |store| store);
    let (one, two) = (start(), start());
    let (cache, slow) = (one.cache.clone(), db.clone());
    let loading = one.spawn(async move { get(&cache, &slow, 1, MS(1500)).await.map(drop) });
    eventually(S(5), || db.queries() == 1);
    assert_eq!(two.get(1, MS(0)), ("row 1".to_owned(), Source::Shared));
    one.run(loading).unwrap().unwrap();
    one.settle();
    assert_eq!((db.queries(), one.counts().leases_lost), (1, 0));
}

#[test]
fn what_was_deleted_or_written_during_a_load_is_not_brought_back() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    for (turn, change) in ["DEL by hand", "invalidate", "put"].into_iter().enumerate() {
        let queries = db.queries();
        let (cache, slow) = (one.cache.clone(), db.clone());
        let loading = one
            .spawn(async move { get(&cache, &slow, 1, MS(300)).await.map(|row| (*row).clone()) });
        eventually(S(5), || db.queries() == queries + 1);
        match change {
            "DEL by hand" => {
                assert_eq!(server.client().command(&["DEL", "users:1"]), Reply::Integer(1));
            }
            "invalidate" => two.run(two.cache.invalidate(&1)).unwrap(),
            _ => two.run(two.cache.put(&1, "put".to_owned())).unwrap(),
        }
        assert_eq!(one.run(loading).unwrap().unwrap(), format!("row {}", queries + 1));
        one.settle();
        let now = server.client().command(&["GET", "users:1"]);
        if change == "put" {
            assert!(text(&now).contains("put"), "{now:?}");
            assert_eq!(one.get(1, MS(0)).0, "put");
        } else {
            assert_eq!(now, Reply::Null, "{change}");
            assert_eq!(one.get(1, MS(0)).0, format!("row {}", queries + 2), "{change}");
        }
        assert_eq!(one.counts().leases_lost, turn as u64 + 1);
        one.run(one.cache.invalidate(&1)).unwrap();
    }
}

#[test]
fn who_asks_after_a_change_does_not_join_a_load_from_before_it() {
    let server = RedisServer::start();
    let db = Database::default();
    let one = Process::start_with(&server.url(), &db, |b| b.lease(MS(300)), |store| store);
    for is_renewed in [false, true] {
        let queries = db.queries();
        let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let (cache, slow, closed) = (one.cache.clone(), db.clone(), gate.clone());
        let loading = one.spawn(async move {
            let load = async move {
                let row = slow.query(MS(0)).await;
                let _open = closed.acquire().await;
                row
            };
            cache.get(&1).load(|_| load).await.map(|row| (*row).clone())
        });
        eventually(S(5), || db.queries() == queries + 1);
        if is_renewed {
            one.sleep(MS(250));
        }
        // Another process has changed the row.
        assert_eq!(server.client().command(&["DEL", "users:1"]), Reply::Integer(1));
        eventually(S(5), || {
            let soon =
                async { tokio::time::timeout(MS(100), get(&one.cache, &db, 1, MS(0))).await };
            one.run(soon).is_ok_and(|row| *row.unwrap() == format!("row {}", queries + 2))
        });
        gate.add_permits(1);
        assert_eq!(one.run(loading).unwrap().unwrap(), format!("row {}", queries + 1));
        one.settle();
        assert_eq!(one.get(1, MS(0)).0, format!("row {}", queries + 2));
        one.run(one.cache.invalidate(&1)).unwrap();
    }
}

#[test]
fn a_process_that_was_stopped_past_its_lease_does_not_overwrite_its_follower() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    let (cache, slow) = (one.cache.clone(), db.clone());
    let loading = one.spawn(async move { get(&cache, &slow, 1, MS(300)).await.map(drop) });
    eventually(S(5), || db.queries() == 1);
    // As if its lease had run out while it could not renew it.
    server.client().command(&["PEXPIRE", "users:1", "1"]);
    assert_eq!(two.get(1, MS(0)), ("row 2".to_owned(), Source::Loaded));
    one.run(loading).unwrap().unwrap();
    one.settle();
    assert_eq!(one.counts().leases_lost, 1);
    assert_eq!(one.get(1, MS(0)).0, "row 2");
    assert_eq!(two.get(1, MS(0)).0, "row 2");
}

#[test]
fn a_failed_load_gives_its_lease_back() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    let fails = one.cache.get(&1).load(|_| async { Err::<String, _>("no".to_owned()) });
    assert!(matches!(one.run(fails), Err(Error::Load(_))));
    let panics = one.cache.get(&1).load(|_| async { panic!("bug") as Result<String, String> });
    assert!(matches!(one.run(panics), Err(Error::Panicked(_))));
    let start = Instant::now();
    assert_eq!(two.get(1, MS(0)).0, "row 1");
    assert!(start.elapsed() < S(2), "{:?}", start.elapsed());
}

#[test]
fn bytes_that_cannot_be_read_count_as_absent_and_are_replaced() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    // What an older version left: another type, damaged bytes, no envelope, no expiry.
    let other_type = one.run(async {
        let cache = heatsink::Cache::<u32, u64>::builder("users").redis(server.url());
        let cache = cache.build().await.unwrap();
        cache.put(&1, 7).await
    });
    other_type.unwrap();
    let mut raw = server.client();
    raw.command(&["SET", "users:2", "HS\u{1}V damaged", "EX", "100"]);
    raw.command(&["SET", "users:3", "a plain string", "EX", "100"]);
    raw.command(&["SET", "users:4", "x"]);
    for key in 1..=4 {
        assert_eq!(one.get(key, MS(0)), (format!("row {key}"), Source::Loaded));
        assert_eq!(two.get(key, MS(0)), (format!("row {key}"), Source::Shared));
    }
    assert!(one.counts().undecodable >= 4, "{:?}", one.counts());
    assert_eq!(two.counts().undecodable, 0);
}

#[test]
fn what_others_left_under_a_key_is_replaced_whatever_it_is_and_a_deletion_counts() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    let mut raw = server.client();
    for odd in [&["RPUSH", "users:1", "x"][..], &["SET", "users:1", ""], &["SET", "users:1", "H"]] {
        raw.command(&["DEL", "users:1"]);
        raw.command(odd);
        let row = one.get(1, MS(0));
        assert_eq!(two.get(1, MS(0)), (row.0, Source::Shared), "{odd:?}");

        raw.command(&["DEL", "users:1"]);
        raw.command(odd);
        let queries = db.queries();
        let (cache, slow) = (one.cache.clone(), db.clone());
        let loading = one.spawn(async move { get(&cache, &slow, 1, MS(300)).await.map(drop) });
        eventually(S(5), || db.queries() == queries + 1);
        raw.command(&["DEL", "users:1"]);
        one.run(loading).unwrap().unwrap();
        one.settle();
        assert_eq!(raw.command(&["EXISTS", "users:1"]), Reply::Integer(0), "{odd:?}");
    }
    assert_eq!(one.counts().shared_errors, 0);
    raw.command(&["HSET", "users:1", "x", "y"]);
    let many = |keys: Vec<u32>| async move {
        Ok::<_, String>(keys.into_iter().map(|key| (key, "many".to_owned())).collect())
    };
    one.run(one.cache.get_many(&[1, 2]).load(many)).unwrap();
    one.settle();
    assert_eq!(two.get(1, MS(0)), ("many".to_owned(), Source::Shared));
}

#[test]
fn a_value_over_the_limit_is_not_stored_and_others_do_not_wait_for_it() {
    let server = RedisServer::start();
    let db = Database::default();
    let start = || Process::start_with(&server.url(), &db, |b| b.max_value_bytes(3), |store| store);
    let (one, two) = (start(), start());
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    let start = Instant::now();
    assert_eq!(two.get(1, MS(0)).0, "row 2");
    assert!(start.elapsed() < S(2));
    assert_eq!(one.counts().too_large, 1);
    eventually(S(5), || server.client().command(&["GET", "users:1"]) == Reply::Null);
}

#[test]
fn ages_are_the_stores_and_no_clock_is_believed() {
    let server = RedisServer::start();
    let db = Database::default();
    let one = Process::start_with(&server.url(), &db, |b| b.ttl(S(100)), |store| store);
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    // A process whose clock is thirty years off, and one minute of the store's time.
    server.client().command(&["PEXPIRE", "users:1", "40000"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let clock = Clock::manual();
        let cache = heatsink::Cache::<u32, String>::builder("users")
            .redis(server.url())
            .ttl(S(100))
            .clock(clock.clone())
            .build()
            .await
            .unwrap();
        let entry = get(&cache, &db, 1, MS(0)).await.unwrap();
        assert_eq!(entry.source(), Source::Shared);
        let age = entry.age();
        assert!((S(60)..S(63)).contains(&age), "{age:?}");
        // A clock that jumps makes entries older, never younger.
        clock.advance(S(3600));
        assert!(cache.peek(&1).is_none());
        assert_eq!(get(&cache, &db, 1, MS(0)).await.unwrap().source(), Source::Shared);
    });
    assert_eq!(db.queries(), 1);
}

#[test]
fn one_process_refreshes_while_all_serve_the_stale_value() {
    let server = RedisServer::start();
    let db = Database::default();
    let start = || {
        Process::start_with(
            &server.url(),
            &db,
            |b| b.ttl(S(2)).stale(S(60)).local_ttl(S(60)),
            |store| store,
        )
    };
    let processes: Vec<_> = (0..4).map(|_| start()).collect();
    for process in &processes {
        assert_eq!(process.get(1, MS(0)).0, "row 1");
    }
    processes[0].sleep(MS(2100));
    // The refresh takes long; nobody waits for it.
    for process in &processes {
        let begun = Instant::now();
        assert_eq!(process.get_at_once(1, S(3)).0, "row 1");
        assert!(begun.elapsed() < S(2), "{:?}", begun.elapsed());
        assert_eq!(process.counts().stale_served, 1);
    }
    eventually(S(10), || processes.iter().all(|process| process.get_at_once(1, S(3)).0 == "row 2"));
    assert_eq!(db.queries(), 2, "one query for the expiry");
}

#[test]
fn without_the_store_each_process_makes_one_query_and_goes_on_when_it_is_back() {
    let mut server = RedisServer::start();
    let db = Database::default();
    let processes: [_; 4] = std::array::from_fn(|_| Process::start(&server.url(), &db));
    server.kill();
    eventually(S(5), || processes.iter().all(|process| !process.is_connected()));
    let callers = processes.each_ref().map(|process| {
        let (cache, db) = (process.cache.clone(), db.clone());
        let gets = (0..100).map(move |_| {
            let (cache, db) = (cache.clone(), db.clone());
            async move { get(&cache, &db, 1, MS(100)).await.map(drop) }
        });
        process.spawn(all_at_once(gets.collect()))
    });
    for (process, callers) in processes.iter().zip(callers) {
        for outcome in process.run(callers).unwrap() {
            outcome.unwrap();
        }
    }
    assert_eq!(db.queries(), 4, "one a process");
    let unconfirmed = processes[0].run(processes[0].cache.invalidate(&2));
    assert!(unconfirmed.is_err());
    server.start_again();
    eventually(S(10), || processes.iter().all(Process::is_connected));
    // What was loaded meanwhile is not believed any more.
    assert_eq!(processes[0].get(1, MS(0)).0, "row 5");
    for process in &processes[1..] {
        assert_eq!(process.get(1, MS(0)).0, "row 5");
    }
}

#[test]
fn a_deletion_that_was_not_confirmed_is_sent_again() {
    let mut server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    assert_eq!((one.get(1, MS(0)).0, two.get(1, MS(0)).0), ("row 1".into(), "row 1".into()));
    server.pause();
    assert!(one.run(one.cache.invalidate(&1)).is_err());
    assert_eq!(one.get(1, MS(0)).0, "row 2", "not from the store before that is certain");
    server.resume();
    eventually(S(10), || one.is_connected() && two.is_connected());
    eventually(S(10), || one.get(1, MS(0)).0 != "row 1" && two.get(1, MS(0)).0 != "row 1");
    eventually(S(10), || one.get(1, MS(0)).0 == two.get(1, MS(0)).0);
}

#[test]
fn nothing_is_served_from_memory_when_the_server_is_silent() {
    let mut server = RedisServer::start();
    let db = Database::default();
    let one = Process::start_with(
        &server.url(),
        &db,
        |b| b.local_ttl(S(60)),
        |store| store.silence(MS(400)),
    );
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    assert_eq!(one.get(1, MS(0)).1, Source::Local);
    server.pause();
    // With no timer that has to fire: by then the link vouches for nothing.
    let begun = Instant::now();
    eventually(S(5), || one.cache.peek(&1).is_none());
    assert!(begun.elapsed() < MS(1900), "{:?}", begun.elapsed());
    assert_eq!(one.get(1, MS(0)).0, "row 2");
    server.resume();
    eventually(S(10), || one.is_connected());
    assert_eq!(one.get(1, MS(0)).0, "row 1", "the store's value is still right");
}

#[test]
fn a_process_that_was_stopped_serves_nothing_from_memory_before_it_has_heard_the_server() {
    let server = RedisServer::start();
    let db = Database::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let clock = Clock::manual();
        let builder = heatsink::Cache::<u32, String>::builder("users").redis(server.url());
        let builder = builder.ttl(S(3600)).local_ttl(S(3600)).clock(clock.clone());
        let cache = builder.build().await.unwrap();
        get(&cache, &db, 1, MS(0)).await.unwrap();
        while cache.peek(&1).is_none() {
            tokio::task::yield_now().await;
        }
        // What a stopped process finds when it goes on: nobody knows what it has missed. The next
        // answered ping comes after everything that was pushed.
        clock.advance(MS(1001));
        assert!(cache.peek(&1).is_none());
        while cache.peek(&1).is_none() {
            tokio::time::sleep(MS(1)).await;
        }
    });
}

#[test]
fn the_fallback_decides_when_the_store_is_gone() {
    let mut server = RedisServer::start();
    let db = Database::default();
    let start = |fallback| {
        Process::start_with(
            &server.url(),
            &db,
            |b| b.ttl(MS(50)).stale(S(60)).local_ttl(S(60)).soft_timeout(S(2)).fallback(fallback),
            |store| store,
        )
    };
    let (fails, stale) = (start(Fallback::Fail), start(Fallback::Stale));
    assert_eq!((fails.get(1, MS(0)).0, stale.get(1, MS(0)).0), ("row 1".into(), "row 1".into()));
    server.kill();
    eventually(S(5), || !fails.is_connected() && !stale.is_connected());
    let end = fails.run(get(&fails.cache, &db, 1, MS(0)));
    assert!(matches!(end, Err(Error::Unavailable(_))), "{end:?}");
    assert_eq!(stale.get(1, MS(0)).0, "row 1");
    assert_eq!(stale.get(2, MS(0)).0, "row 2");
}

#[test]
fn a_store_that_comes_later_is_found() {
    let mut server = RedisServer::start();
    server.kill();
    let db = Database::default();
    let one = Process::start(&server.url(), &db);
    assert!(matches!(one.cache.shared_state(), Some(StoreState::CutOff(_))));
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    server.start_again();
    eventually(S(10), || one.is_connected());
    assert_eq!(one.get(1, MS(0)).0, "row 2");
    assert!(text(&server.client().command(&["GET", "users:1"])).contains("row 2"));
}

#[test]
fn where_the_server_does_not_tell_processes_tell_each_other() {
    let server = RedisServer::start();
    server.client().command(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-client|tracking",
    ]);
    let url = server.url().replace("redis://", "redis://app:secret@");
    let db = Database::default();
    let (one, two) = (Process::start(&url, &db), Process::start(&url, &db));
    assert_eq!(one.cache.shared_state(), Some(StoreState::Connected { server_tells: false }));
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    assert_eq!(two.get(1, MS(0)), ("row 1".to_owned(), Source::Shared));
    assert_eq!(two.get(1, MS(0)).1, Source::Local);
    one.run(one.cache.put(&1, "put".to_owned())).unwrap();
    eventually(S(5), || two.get(1, MS(0)).0 == "put");
    two.run(two.cache.invalidate(&1)).unwrap();
    eventually(S(5), || one.get(1, MS(0)).0 == "row 2");
    // Waiters are woken by the write, not by the end of the lease.
    let (cache, slow) = (one.cache.clone(), db.clone());
    let loading = one.spawn(async move { get(&cache, &slow, 2, MS(200)).await.map(drop) });
    eventually(S(5), || db.queries() == 3);
    let begun = Instant::now();
    assert_eq!(two.get(2, MS(0)), ("row 3".to_owned(), Source::Shared));
    assert!(begun.elapsed() < S(2), "{:?}", begun.elapsed());
    one.run(loading).unwrap().unwrap();
    one.settle();
}

#[test]
fn what_is_absent_is_shared_too() {
    let server = RedisServer::start();
    let db = Database::default();
    let (one, two) = (Process::start(&server.url(), &db), Process::start(&server.url(), &db));
    let ask = |process: &Process| {
        let db = db.clone();
        let load = move |_| async move { db.query(MS(0)).await.map(|_| None::<String>) };
        let found = process.run(process.cache.get(&1).load(load)).unwrap();
        process.settle();
        found.map(|row| (*row).clone())
    };
    assert_eq!((ask(&one), ask(&two), ask(&one)), (None, None, None));
    assert_eq!(db.queries(), 1);
    two.run(two.cache.put(&1, "now".to_owned())).unwrap();
    eventually(S(5), || ask(&one).as_deref() == Some("now"));
}

#[test]
fn several_caches_share_a_store_and_not_their_keys() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = heatsink::Store::connect(&server.url()).await.unwrap();
        let users = heatsink::Cache::<String, u32>::builder("users");
        let users = users.store(store.clone(), heatsink::Json).build().await.unwrap();
        let orders = heatsink::Cache::<String, Vec<u8>>::builder("orders");
        let orders = orders.store(store, heatsink::Bytes).build().await.unwrap();
        users.put(&"1".to_owned(), 7).await.unwrap();
        orders.put(&"1".to_owned(), b"raw".to_vec()).await.unwrap();
        let never = |_| async { Err::<u32, _>("not asked") };
        assert_eq!(*users.get("1").load(never).await.unwrap(), 7);
        let never = |_| async { Err::<Vec<u8>, _>("not asked") };
        assert_eq!(*orders.get("1").load(never).await.unwrap(), b"raw");
    });
    assert_eq!(server.client().command(&["EXISTS", "users:1", "orders:1"]), Reply::Integer(2));
    let clients = server.info_u64("clients", "connected_clients");
    assert!(clients <= 3, "{clients} connections for two caches");
}

#[test]
fn who_wants_nothing_stale_waits_for_the_process_that_refreshes() {
    let server = RedisServer::start();
    let db = Database::default();
    let start = || {
        let windows = |b: heatsink::Builder<u32, String>| b.ttl(MS(300)).stale(S(60));
        Process::start_with(&server.url(), &db, windows, |store| store)
    };
    let (one, two, three) = (start(), start(), start());
    for process in [&one, &two, &three] {
        assert_eq!(process.get(1, MS(0)).0, "row 1");
    }
    one.sleep(MS(350));
    assert_eq!(one.get_at_once(1, MS(500)).0, "row 1");
    eventually(S(5), || db.queries() == 2);
    let insist = |process: &Process, anew: bool| {
        let (cache, db) = (process.cache.clone(), db.clone());
        process.spawn(async move {
            let get = cache.get(&1);
            let get = if anew { get.anew() } else { get.no_stale() };
            let row = get.load(move |_| db.query(MS(0))).await.expect("a row");
            ((*row).clone(), row.is_stale())
        })
    };
    let (no_stale, anew) = (insist(&two, false), insist(&three, true));
    assert_eq!(two.run(no_stale).unwrap(), ("row 2".to_owned(), false));
    assert_eq!(three.run(anew).unwrap(), ("row 2".to_owned(), false));
    assert_eq!(db.queries(), 2);
    // With nobody at it, what is stored does not do, however fresh.
    assert_eq!(two.run(insist(&two, true)).unwrap().0, "row 3");
}

#[test]
fn who_wants_nothing_stale_is_told_when_the_load_fails() {
    let server = RedisServer::start();
    let db = Database::default();
    let windows = |b: heatsink::Builder<u32, String>| b.ttl(MS(50)).stale_if_error(S(60));
    let one = Process::start_with(&server.url(), &db, windows, |store| store);
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    one.sleep(MS(60));
    let fails = |_| async { Err::<String, _>("no".to_owned()) };
    let end = one.run(one.cache.get(&1).no_stale().load(fails));
    assert!(matches!(end, Err(Error::Load(_))), "{end:?}");
    let old = one.run(one.cache.get(&1).load(fails)).unwrap();
    assert_eq!((&**old, old.is_stale()), ("row 1", true));
    let counts = one.counts();
    assert_eq!((counts.gets(), counts.failed, counts.stale_served), (3, 1, 1));
}

#[test]
fn hot_keys_are_refreshed_before_they_expire_and_nobody_waits() {
    let server = RedisServer::start();
    let db = Database::default();
    let detector = heatsink::detect::config::Settings { hot_threshold: 100, ..Default::default() };
    let one = Process::start_with(
        &server.url(),
        &db,
        |b| b.ttl(S(2)).detector(Some(detector)),
        |store| store,
    );
    assert_eq!(one.get(1, MS(0)).0, "row 1");
    let (cache, database) = (one.cache.clone(), db.clone());
    // 500 requests a second, over several lives of the value.
    one.run(async move {
        let mut pace = tokio::time::interval(MS(2));
        for _ in 0..3000 {
            pace.tick().await;
            get(&cache, &database, 1, MS(50)).await.unwrap();
        }
    });
    one.settle();
    let counts = one.counts();
    assert!(counts.early_refreshes >= 2, "{counts:?}");
    // But for a refresh that this machine held up until the value was gone.
    if counts.leases_lost == 0 {
        assert_eq!((counts.loads - counts.refreshes, counts.loaded), (1, 1), "{counts:?}");
    }
    assert_eq!(counts.stale_served, 0);
    assert_eq!(one.cache.hot_keys()[0].0, b"users:1");
}

#[test]
fn a_flight_is_one_write_to_the_store_however_many_wait() {
    let server = RedisServer::start();
    let db = Database::default();
    let one = Process::start(&server.url(), &db);
    let calls = |command: &str| {
        let text = server.client().command(&["INFO", "commandstats"]);
        let text = text.text();
        let line = text.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        line.map_or(0, |line| {
            let calls = line.split_once("calls=").unwrap().1;
            calls.split(',').next().unwrap().parse::<u64>().unwrap()
        })
    };
    let callers: Vec<_> = (0..32)
        .map(|_| {
            let (cache, db) = (one.cache.clone(), db.clone());
            one.spawn(async move { get(&cache, &db, 1, MS(50)).await.map(drop) })
        })
        .collect();
    one.run(async {
        for caller in callers {
            caller.await.unwrap().unwrap();
        }
    });
    one.settle();
    // The lease, and what replaces it by the script.
    assert_eq!((calls("set"), calls("eval")), (2, 1));
}

#[test]
fn a_put_that_arrives_late_brings_nothing_back() {
    let server = RedisServer::start();
    let relay = common::relay::Relay::to(server.addr().to_string());
    let db = Database::default();
    let (one, two) = (Process::start(&relay.url(), &db), Process::start(&server.url(), &db));
    for newer in [true, false] {
        one.run(one.cache.put(&1, "before".to_owned())).unwrap();
        eventually(S(5), || two.get(1, MS(0)).0 == "before");
        relay.hold();
        assert!(one.run(one.cache.put(&1, "late".to_owned())).is_err());
        if newer {
            two.run(two.cache.put(&1, "newer".to_owned())).unwrap();
        } else {
            two.run(two.cache.invalidate(&1)).unwrap();
        }
        let mut raw = server.client();
        relay.release();
        let until = Instant::now() + MS(700);
        while Instant::now() < until {
            let stored = raw.command(&["GET", "users:1"]);
            assert!(!text(&stored).contains("late"), "{stored:?}");
        }
        eventually(S(10), || one.is_connected());
        assert_ne!(two.get(1, MS(0)).0, "late");
        eventually(S(10), || one.get(1, MS(0)).0 == two.get(1, MS(0)).0);
    }
}
