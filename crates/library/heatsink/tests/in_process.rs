//! The cache without a shared tier: one load for all, freshness, failures, bounds.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heatsink::{BuildError, Builder, Cache, Clock, Context, Error, Loaded, Local, Source};
use tokio::sync::{Notify, Semaphore};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

type Failed = Error<String>;
type BoxFuture = std::pin::Pin<Box<dyn Future<Output = Result<u32, String>> + Send>>;

fn builder(clock: &Clock) -> Builder<String, u32> {
    Cache::builder("test").ttl(S(60)).clock(clock.clone())
}

async fn cache() -> (Cache<String, u32>, Clock) {
    let clock = Clock::manual();
    (builder(&clock).build().await.unwrap(), clock)
}

/// Says how often it was asked.
#[derive(Clone, Default)]
struct Database(Arc<AtomicU32>);

impl Database {
    fn query(self) -> Ready<Result<u32, String>> {
        ready(Ok(self.0.fetch_add(1, Ordering::SeqCst) + 1))
    }

    fn failing(self) -> Ready<Result<u32, String>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        ready(Err("no database".to_owned()))
    }

    fn fails(&self) -> impl FnOnce(Context<u32>) -> BoxFuture + Send + 'static {
        let db = self.clone();
        move |_| Box::pin(db.failing())
    }

    /// As a loader.
    fn asks(&self) -> impl FnOnce(Context<u32>) -> BoxFuture + Send + 'static {
        let db = self.clone();
        move |_| Box::pin(db.query())
    }

    fn queries(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_value_is_loaded_once_and_served_until_it_expires() {
    let (cache, clock) = cache().await;
    let db = Database::default();
    let get = || {
        let db = db.clone();
        cache.get("k").load(|_| db.query())
    };
    let first = get().await.unwrap();
    assert_eq!((*first, first.source()), (1, Source::Loaded));
    clock.advance(S(59));
    let second = get().await.unwrap();
    assert_eq!((*second, second.source(), second.age()), (1, Source::Local, S(59)));
    clock.advance(S(1));
    assert_eq!(*get().await.unwrap(), 2);
    let counts = cache.counts();
    assert_eq!((counts.gets(), counts.local_hits, counts.loaded, counts.loads), (3, 1, 2, 2));
}

#[tokio::test]
async fn callers_of_one_key_share_one_load() {
    let (cache, _) = cache().await;
    let db = Database::default();
    let go = Arc::new(Notify::new());
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let (cache, db, go) = (cache.clone(), db.clone(), Arc::clone(&go));
            tokio::spawn(async move {
                let load = |_| async move {
                    go.notified().await;
                    db.query().await
                };
                *cache.get("k").load(load).await.unwrap()
            })
        })
        .collect();
    // One loader waits; the others wait for it.
    while cache.loading() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), 1);
    }
    let counts = cache.counts();
    assert_eq!((counts.loads, counts.loaded, counts.loads_deduped), (1, 1, 99));
    assert_eq!((counts.gets(), cache.loading()), (100, 0));
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_end_the_load() {
    let (cache, _) = cache().await;
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let caller = {
        let (cache, started, finish) = (cache.clone(), started.clone(), finish.clone());
        tokio::spawn(async move {
            let load = |_| async move {
                started.notify_one();
                finish.notified().await;
                Ok::<_, String>(7)
            };
            drop(cache.get("k").load(load).await);
        })
    };
    started.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert_eq!(cache.counts().abandoned, 1);
    let joins = cache.get("k").load(|_| async { Err::<u32, _>("not asked".to_owned()) });
    finish.notify_one();
    let value = joins.await.unwrap();
    assert_eq!((*value, value.source()), (7, Source::Joined));
    assert_eq!(*cache.peek("k").unwrap(), 7);
    assert_eq!(cache.counts().gets(), 2);
}

#[tokio::test]
async fn an_error_reaches_everybody_once_and_is_not_kept() {
    let (cache, _) = cache().await;
    let db = Database::default();
    let gate = Arc::new(Semaphore::new(0));
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let (cache, db, gate) = (cache.clone(), db.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                let load = |_| async move {
                    let _open = gate.acquire().await;
                    db.failing().await
                };
                cache.get("k").load(load).await.map(|value| *value)
            })
        })
        .collect();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    let mut shared = Vec::new();
    for caller in callers {
        let Err(Error::Load(error)) = caller.await.unwrap() else { panic!("it failed") };
        assert_eq!(*error, "no database");
        shared.push(error);
    }
    assert!(shared.iter().all(|error| Arc::ptr_eq(error, &shared[0])), "one error for all");
    assert_eq!(db.queries(), 1);
    assert_eq!(*cache.get("k").load(db.asks()).await.unwrap(), 2);
    assert_eq!((cache.counts().failed, cache.counts().loads_failed), (10, 1));
}

#[tokio::test]
async fn a_panic_reaches_everybody_and_harms_nobody_else() {
    let (cache, _) = cache().await;
    let panics = |_| async { panic!("a bug, {}", 7) as Result<u32, String> };
    let (one, two) = tokio::join!(cache.get("k").load(panics), cache.get("k").load(panics));
    for end in [one, two] {
        let Err(Error::Panicked(words)) = end else { panic!("{end:?}") };
        assert_eq!(&*words, "a bug, 7");
    }
    assert_eq!(cache.counts().loads, 1);
    // Not only the future: the closure itself.
    let closure = |_| -> Ready<Result<u32, String>> { panic!("early") };
    assert!(matches!(cache.get("k").load(closure).await, Err(Error::Panicked(_))));
    assert_eq!(*cache.get("k").load(|_| async { Ok::<_, String>(1) }).await.unwrap(), 1);
    assert_eq!(cache.loading(), 0);
}

#[tokio::test]
async fn callers_with_other_error_types_share_values_and_are_told_of_failures() {
    let (cache, _) = cache().await;
    let go = Arc::new(Notify::new());
    let waits = Arc::clone(&go);
    let one = cache.get("k").load(|_| async move {
        waits.notified().await;
        Err::<u32, _>("text".to_owned())
    });
    let other = cache.get("k").load(|_| async { Err::<u32, u8>(7) });
    let open = async {
        tokio::task::yield_now().await;
        go.notify_one();
    };
    let (one, other, ()) = tokio::join!(one, other, open);
    assert!(matches!(one, Err(Error::Load(_))));
    assert!(matches!(other, Err(Error::LoadElsewhere)));
}

#[tokio::test]
async fn what_is_absent_is_believed_briefly() {
    let clock = Clock::manual();
    let cache = builder(&clock).negative_ttl(S(5)).stale(S(60)).build().await.unwrap();
    let db = Database::default();
    let absent = || {
        let db = db.clone();
        cache.get("k").load(|_| async move { db.query().await.map(|_| None::<u32>) })
    };
    assert!(absent().await.unwrap().is_none());
    clock.advance(MS(4999));
    assert!(absent().await.unwrap().is_none());
    assert_eq!(db.queries(), 1);
    // Never stale: it may be there by now.
    clock.advance(MS(1));
    let value = cache.get("k").load(|_| async { Ok::<_, String>(Some(3)) }).await.unwrap();
    assert_eq!(*value.unwrap(), 3);

    // A loader that has no word for "absent" is told, and not given nothing.
    let other = || cache.get("other");
    assert!(other().load(|_| async { Ok::<_, String>(None::<u32>) }).await.unwrap().is_none());
    let end = other().load(|_| async { Ok::<_, String>(4) }).await;
    assert!(matches!(end, Err(Error::Absent)), "{end:?}");
}

#[tokio::test]
async fn a_loader_has_the_last_word_on_its_value() {
    let (cache, clock) = cache().await;
    let load = |loaded: Loaded<u32>| cache.get("k").load(|_| async { Ok::<_, String>(loaded) });
    load(Loaded::new(1).ttl(S(5))).await.unwrap();
    clock.advance(S(5));
    assert!(cache.peek("k").is_none());

    let value = load(Loaded::new(2).no_store()).await.unwrap().unwrap();
    assert_eq!(*value, 2);
    assert!(cache.peek("k").is_none());

    cache.get("k").ttl(S(7)).load(|_| async { Ok::<_, String>(3) }).await.unwrap();
    clock.advance(S(7));
    assert!(cache.peek("k").is_none());
}

#[tokio::test]
async fn stale_values_are_served_while_one_refresh_runs() {
    let clock = Clock::manual();
    let cache = builder(&clock).stale(S(30)).build().await.unwrap();
    let db = Database::default();
    let get = || {
        let db = db.clone();
        cache.get("k").load(|_| db.query())
    };
    get().await.unwrap();
    clock.advance(S(60));
    let stale = get().await.unwrap();
    assert_eq!((*stale, stale.is_stale(), stale.source()), (1, true, Source::Local));
    assert_eq!(*get().await.unwrap(), 1);
    until(|| cache.loading() == 0).await;
    let fresh = get().await.unwrap();
    assert_eq!((*fresh, fresh.is_stale()), (2, false));
    // Past its window it is gone, and callers wait.
    clock.advance(S(91));
    assert_eq!(*get().await.unwrap(), 3);
    let counts = cache.counts();
    assert_eq!((counts.stale_served, counts.refreshes, counts.loads), (2, 1, 3));
    assert_eq!(counts.gets(), 5);
}

#[tokio::test]
async fn with_a_soft_timeout_callers_wait_a_little_for_the_fresh_value() {
    let clock = Clock::manual();
    let cache = builder(&clock).stale(S(30)).soft_timeout(S(5)).build().await.unwrap();
    let db = Database::default();
    let get = || {
        let db = db.clone();
        cache.get("k").load(|_| db.query())
    };
    get().await.unwrap();
    clock.advance(S(60));
    assert_eq!(*get().await.unwrap(), 2);
    clock.advance(S(60));
    // Too slow: the old value, and the load goes on.
    let go = Arc::new(Notify::new());
    let waits = Arc::clone(&go);
    let slow = |_| async move {
        waits.notified().await;
        Ok::<_, String>(9)
    };
    let stale = cache.get("k").soft_timeout(MS(5)).load(slow).await.unwrap();
    assert_eq!((*stale, stale.is_stale()), (2, true));
    go.notify_one();
    until(|| cache.loading() == 0).await;
    assert_eq!(*cache.peek("k").unwrap(), 9);
}

#[tokio::test]
async fn after_a_failed_load_the_old_value_is_served_and_the_database_left_alone() {
    let clock = Clock::manual();
    let cache = builder(&clock).stale_if_error(S(30)).retry_pause(S(1)).build().await.unwrap();
    let db = Database::default();
    cache.get("k").load(db.asks()).await.unwrap();
    clock.advance(S(60));
    let fails = || {
        let db = db.clone();
        cache.get("k").load(|_| db.failing())
    };
    for _ in 0..5 {
        let old = fails().await.unwrap();
        assert_eq!((*old, old.is_stale()), (1, true));
    }
    assert_eq!(db.queries(), 2, "one attempt in the pause");
    clock.advance(S(1));
    assert_eq!(*fails().await.unwrap(), 1);
    assert_eq!(db.queries(), 3);
    clock.advance(S(29));
    assert!(matches!(fails().await, Err(Error::Load(_))), "past its window");
    assert!(matches!(cache.get("k").no_stale().load(db.fails()).await, Err(Error::Load(_))));
}

#[tokio::test]
async fn nobody_waits_longer_than_the_hard_timeout_and_a_hung_refresh_is_given_up() {
    let clock = Clock::manual();
    let cache = builder(&clock)
        .stale(S(30))
        .hard_timeout(MS(20))
        .load_timeout(MS(200))
        .build()
        .await
        .unwrap();
    let hangs = |_| std::future::pending::<Result<u32, String>>();
    assert!(matches!(cache.get("k").load(hangs).await, Err(Error::Timeout)));
    assert_eq!(cache.loading(), 1, "the load goes on");
    until(|| cache.loading() == 0).await;

    cache.put(&"k".to_owned(), 1).await.unwrap();
    clock.advance(S(60));
    assert_eq!(*cache.get("k").load(hangs).await.unwrap(), 1);
    clock.advance(S(31));
    // The value is gone while its refresh hangs: that is given up, and the next one loads.
    until(|| cache.loading() == 0).await;
    assert_eq!(*cache.get("k").load(|_| async { Ok::<_, String>(2) }).await.unwrap(), 2);
}

#[tokio::test]
async fn early_refreshes_come_before_the_expiry_and_nobody_waits() {
    let clock = Clock::manual();
    let cache = builder(&clock).early(1000.0).build().await.unwrap();
    let db = Database::default();
    let slow = db.clone();
    cache
        .get("k")
        .load(|_| async move {
            tokio::time::sleep(MS(2)).await;
            slow.query().await
        })
        .await
        .unwrap();
    // 2 ms of cost times 1000: a millisecond before the end it is all but certain.
    clock.advance(MS(59_999));
    let value = cache.get("k").load(db.asks()).await.unwrap();
    assert_eq!((*value, value.source()), (1, Source::Local));
    until(|| cache.loading() == 0).await;
    assert_eq!(*cache.peek("k").unwrap(), 2);
    let counts = cache.counts();
    assert_eq!((counts.early_refreshes, counts.refreshes, counts.loads), (1, 1, 2));
}

#[tokio::test]
async fn not_modified_makes_the_old_value_fresh_again() {
    let clock = Clock::manual();
    let cache = builder(&clock).stale(S(30)).build().await.unwrap();
    cache.put(&"k".to_owned(), 5).await.unwrap();
    clock.advance(S(60));
    let load = |cx: Context<u32>| async move {
        assert_eq!(cx.stale(), Some(&5));
        Ok::<_, String>(Loaded::not_modified())
    };
    for _ in 0..3 {
        let value = cache.get("k").anew().load(load).await.unwrap().unwrap();
        assert_eq!((*value, value.is_stale()), (5, false));
    }
    // Without an old value it has nothing to say.
    let nothing = |_| async { Ok::<_, String>(Loaded::<u32>::not_modified()) };
    assert!(cache.get("other").load(nothing).await.unwrap().is_none());
    assert!(cache.peek("other").is_none());
}

#[tokio::test]
async fn what_was_invalidated_or_put_meanwhile_is_not_brought_back_by_a_load() {
    let (cache, _) = cache().await;
    for change in ["invalidate", "put"] {
        let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (starts, waits) = (Arc::clone(&started), Arc::clone(&finish));
        let load = |_| async move {
            starts.notify_one();
            waits.notified().await;
            Ok::<_, String>(1)
        };
        let changes = async {
            started.notified().await;
            match change {
                "put" => cache.put(&"k".to_owned(), 2).await.unwrap(),
                _ => cache.invalidate("k").await.unwrap(),
            }
            // Who asks now does not join the load from before.
            let after = cache.get("k").load(|_| async { Ok::<_, String>(3) }).await.unwrap();
            finish.notify_one();
            *after
        };
        let (old, after) = tokio::join!(cache.get("k").load(load), changes);
        assert_eq!(*old.unwrap(), 1, "it asked before");
        let expected = if change == "put" { 2 } else { 3 };
        assert_eq!(after, expected);
        assert_eq!(*cache.peek("k").unwrap(), expected, "{change}");
        cache.invalidate("k").await.unwrap();
    }
}

#[tokio::test]
async fn loaders_and_flights_are_bounded() {
    let clock = Clock::manual();
    let cache = builder(&clock).max_concurrent_loads(2).max_flights(5).build().await.unwrap();
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let callers: Vec<_> = (0..5)
        .map(|key| {
            let cache = cache.clone();
            let (running, most, gate) = (running.clone(), most.clone(), gate.clone());
            tokio::spawn(async move {
                let load = move |_| async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    gate.acquire().await.unwrap().forget();
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, String>(key)
                };
                *cache.get(&key.to_string()).load(load).await.unwrap()
            })
        })
        .collect();
    until(|| cache.loading() == 5).await;
    let sixth: Result<_, Failed> = cache.get("6").load(|_| async { Ok(6) }).await;
    assert!(matches!(sixth, Err(Error::Overloaded)), "{sixth:?}");
    gate.add_permits(5);
    for (key, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.await.unwrap(), key as u32);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(*cache.get("6").load(|_| async { Ok::<_, String>(6) }).await.unwrap(), 6);
}

#[tokio::test]
async fn memory_is_bounded_by_entries_and_by_bytes() {
    let clock = Clock::manual();
    let by_entries = builder(&clock).local(Local::entries(100)).build().await.unwrap();
    for key in 0..10_000 {
        by_entries.put(&key.to_string(), key).await.unwrap();
    }
    assert!((20..=100).contains(&by_entries.local_len()), "{}", by_entries.local_len());

    let by_bytes = Cache::<u32, Vec<u8>>::builder("bytes")
        .local(Local::bytes(1 << 20))
        .weigher(|_, value: &Vec<u8>| value.len() as u64)
        .build()
        .await
        .unwrap();
    for key in 0..1000 {
        by_bytes.put(&key, vec![0; 10_000]).await.unwrap();
    }
    assert!((20..=105).contains(&by_bytes.local_len()), "{}", by_bytes.local_len());
    // One that does not fit is not kept, and does not take the others' place.
    by_bytes.put(&1001, vec![0; 2 << 20]).await.unwrap();
    assert!(by_bytes.peek(&1001).is_none() && by_bytes.local_len() > 20);

    let off = builder(&clock).local(Local::off()).build().await.unwrap();
    off.put(&"k".to_owned(), 1).await.unwrap();
    assert!(off.peek("k").is_none());
}

#[tokio::test]
async fn clearing_forgets_everything_also_what_is_on_its_way() {
    let (cache, _) = cache().await;
    cache.put(&"k".to_owned(), 1).await.unwrap();
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, waits) = (Arc::clone(&started), Arc::clone(&go));
    let load = |_| async move {
        starts.notify_one();
        waits.notified().await;
        Ok::<_, String>(1)
    };
    let clears = async {
        started.notified().await;
        cache.clear_local();
        go.notify_one();
    };
    let (loaded, ()) = tokio::join!(cache.get("other").load(load), clears);
    loaded.unwrap();
    assert!(cache.peek("k").is_none() && cache.peek("other").is_none());
}

#[tokio::test]
async fn settings_out_of_range_are_refused_by_name() {
    let fault = |change: fn(Builder<String, u32>) -> Builder<String, u32>| async move {
        match change(Cache::builder("test")).build().await {
            Err(BuildError::Setting(name, _)) => name,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault(|b| b.jitter(1.5)).await, "jitter");
    assert_eq!(fault(|b| b.early(f64::NAN)).await, "early");
    assert_eq!(fault(|b| b.ttl(Duration::ZERO)).await, "ttl");
    assert_eq!(fault(|b| b.max_flights(0)).await, "max_flights");
    let named = Cache::<u32, u32>::builder("a:b").build().await;
    assert!(matches!(named, Err(BuildError::Setting("name", _))));
}

#[test]
fn without_a_runtime_there_is_no_cache_and_after_it_nobody_waits() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let first = runtime();
    let cache = first.block_on(async { Cache::<u32, u32>::builder("t").build().await.unwrap() });
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let second = runtime();
    let caller = second.spawn({
        let cache = cache.clone();
        async move {
            let load = |_| async move {
                starts.notify_one();
                std::future::pending::<Result<u32, String>>().await
            };
            cache.get(&1).load(load).await
        }
    });
    second.block_on(started.notified());
    drop(first);
    let end = second.block_on(caller).unwrap();
    assert!(matches!(end, Err(Error::Closed)), "{end:?}");
    // Nor does anybody who comes later.
    let load = |_| async { Ok::<_, String>(1) };
    let late = second.block_on(async { cache.get(&2).load(load).await.map(|value| *value) });
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    assert_eq!(cache.loading(), 0);
}

#[tokio::test]
async fn hot_keys_are_named_and_refreshed_before_they_expire() {
    let clock = Clock::manual();
    let cache = Cache::<u32, u32>::builder("hot").ttl(S(10)).clock(clock.clone()).build().await;
    let cache = cache.unwrap();
    let db = Database::default();
    let get = |key| {
        let db = db.clone();
        let cache = cache.clone();
        async move { *cache.get(&key).load(|_| db.query()).await.unwrap() }
    };
    // 2000/s for a little less than the time to live.
    for _ in 0..98 {
        for _ in 0..200 {
            get(1).await;
        }
        get(2).await;
        clock.advance(MS(100));
        // The detector's task has its turn.
        tokio::task::yield_now().await;
    }
    until(|| cache.loading() == 0).await;
    assert_eq!(cache.hot_keys().len(), 1, "one of them is hot");
    assert_eq!(cache.counts().early_refreshes, 1);
    let value = cache.peek(&1).unwrap();
    assert!(value.age() <= S(1), "{:?}", value.age());
    assert!(cache.peek(&2).unwrap().age() > S(9));
    assert_eq!(cache.counts().loads, 3);
}

#[test]
fn looks_of_many_threads_are_told_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (cache, clock) = runtime.block_on(async {
        let clock = Clock::manual();
        let builder = Cache::<u32, u32>::builder("threads").clock(clock.clone());
        (builder.build().await.unwrap(), clock)
    });
    runtime.block_on(cache.put(&1, 1)).unwrap();
    let hits: u32 = 64 * 500;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..hits {
                    let load = |_| async { Err::<u32, ()>(()) };
                    let mut get = std::pin::pin!(cache.get(&1).load(load));
                    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                    assert!(get.as_mut().poll(&mut cx).is_ready());
                }
            });
        }
    });
    clock.advance(MS(50));
    let [(_, rate)] = &cache.hot_keys()[..] else { panic!("one key") };
    assert!((*rate - f64::from(4 * hits)).abs() < 65.0, "{rate}");
    assert_eq!(cache.counts().local_hits, u64::from(4 * hits));
}

#[tokio::test]
async fn who_asks_anew_or_wants_nothing_stale_is_told_of_a_failure() {
    let clock = Clock::manual();
    let cache = builder(&clock).stale(S(30)).stale_if_error(S(60)).build().await.unwrap();
    let db = Database::default();
    cache.get("k").load(db.asks()).await.unwrap();
    assert!(matches!(cache.get("k").anew().load(db.fails()).await, Err(Error::Load(_))));
    assert_eq!(*cache.peek("k").unwrap(), 1, "others go on being served");
    clock.advance(S(60));
    assert!(matches!(cache.get("k").no_stale().load(db.fails()).await, Err(Error::Load(_))));
    assert_eq!(*cache.get("k").load(db.fails()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_refresh_that_hangs_does_not_outlive_the_value() {
    let clock = Clock::manual();
    let cache = builder(&clock).stale(S(30)).load_timeout(S(3600)).build().await.unwrap();
    cache.put(&"k".to_owned(), 1).await.unwrap();
    clock.advance(S(60));
    let hangs = |_| std::future::pending::<Result<u32, String>>();
    assert_eq!(*cache.get("k").load(hangs).await.unwrap(), 1);
    assert_eq!(cache.loading(), 1);
    // While the value may be served, its refresh is waited for.
    let waits =
        cache.get("k").no_stale().hard_timeout(MS(50)).load(|_| async { Ok::<_, String>(2) });
    assert!(matches!(waits.await, Err(Error::Timeout)));
    // When it is gone, nobody waits for what hangs.
    clock.advance(S(31));
    let asked = std::time::Instant::now();
    assert_eq!(*cache.get("k").load(|_| async { Ok::<_, String>(3) }).await.unwrap(), 3);
    assert!(asked.elapsed() < S(2), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn who_waited_for_a_refresh_that_is_given_up_loads_alone() {
    let cache = Cache::<u32, u32>::builder("t").ttl(MS(50)).stale(MS(400)).refresh_hot(false);
    let cache = cache.load_timeout(S(3600)).build().await.unwrap();
    cache.put(&1, 1).await.unwrap();
    tokio::time::sleep(MS(60)).await;
    let hangs = |_| std::future::pending::<Result<u32, String>>();
    assert_eq!(*cache.get(&1).load(hangs).await.unwrap(), 1);
    let value = cache.get(&1).no_stale().load(|_| async { Ok::<_, String>(2) }).await.unwrap();
    assert_eq!((*value, value.source()), (2, Source::Loaded));
    // The one that was given up is a load that failed.
    let counts = cache.counts();
    assert_eq!((counts.loads, counts.loads_failed, counts.refreshes), (2, 1, 1));
    assert_eq!(cache.loading(), 0);
}

#[tokio::test]
async fn a_loader_that_takes_too_long_is_a_load_that_failed() {
    let clock = Clock::manual();
    let cache = builder(&clock).load_timeout(MS(20)).build().await.unwrap();
    let hangs = |_| std::future::pending::<Result<u32, String>>();
    assert!(matches!(cache.get("k").load(hangs).await, Err(Error::Timeout)));
    assert_eq!((cache.counts().loads, cache.counts().loads_failed, cache.loading()), (1, 1, 0));
}

#[tokio::test]
async fn a_panic_beside_the_loader_reaches_who_waits_too() {
    let cache = Cache::<u32, u32>::builder("t").weigher(|_, _| panic!("a weigher's bug"));
    let cache = cache.build().await.unwrap();
    let end = cache.get(&1).load(|_| async { Ok::<_, String>(1) }).await;
    let Err(Error::Panicked(words)) = end else { panic!("{end:?}") };
    assert_eq!(&*words, "a weigher's bug");
    let many = |_| async { Ok::<_, String>(std::collections::HashMap::from([(2, 2)])) };
    let end = cache.get_many(&[2]).load(many).await;
    assert!(matches!(end, Err(Error::Panicked(_))), "{end:?}");
    assert_eq!(cache.loading(), 0);
}

#[tokio::test]
async fn a_soft_timeout_neither_outlasts_the_hard_one_nor_asks_a_failing_database_each_time() {
    let clock = Clock::manual();
    let cache = builder(&clock).ttl(S(1)).stale(S(3600)).hard_timeout(MS(100)).build().await;
    let (cache, db) = (cache.unwrap(), Database::default());
    let key = "k";
    cache.put(key, 1).await.unwrap();
    clock.advance(S(2));
    let hangs = |_| std::future::pending::<Result<u32, String>>();
    let begun = std::time::Instant::now();
    assert_eq!(*cache.get(key).soft_timeout(S(600)).load(hangs).await.unwrap(), 1);
    assert!(begun.elapsed() < S(60), "{:?}", begun.elapsed());

    let key = "other";
    cache.put(key, 2).await.unwrap();
    clock.advance(S(2));
    for _ in 0..20 {
        assert_eq!(*cache.get(key).soft_timeout(S(60)).load(db.fails()).await.unwrap(), 2);
    }
    assert_eq!(db.queries(), 1);
}

#[tokio::test]
async fn no_time_is_too_long() {
    let most = Duration::MAX;
    let cache = Cache::<u32, u32>::builder("test").ttl(most).stale(most).stale_if_error(most);
    let cache = cache.negative_ttl(most).early(1000.0).hard_timeout(most).load_timeout(most);
    let cache = cache.soft_timeout(most).retry_pause(most).build().await.unwrap();
    let one = |_| async { Ok::<_, String>(1) };
    let get = cache.get(&1).ttl(most).soft_timeout(most).hard_timeout(most);
    assert_eq!(*get.load(one).await.unwrap(), 1);
    assert_eq!(*cache.get(&1).anew().load(one).await.unwrap(), 1);
    let many = |_| async { Ok::<_, String>([(2, 2)].into()) };
    assert_eq!(cache.get_many(&[1, 2]).hard_timeout(most).load(many).await.unwrap().len(), 2);
}

#[test]
fn an_error_is_told_once() {
    let cause = std::io::Error::other("refused");
    let error = Error::Load(Arc::new(std::io::Error::new(std::io::ErrorKind::NotFound, cause)));
    let source = std::error::Error::source(&error);
    assert_eq!((error.to_string(), source.is_none()), ("refused".to_owned(), true));
}

async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(S(10), waiting).await.expect("within ten seconds");
}
