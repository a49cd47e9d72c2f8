//! Real processes, that are killed and stopped: this test's own binary, started again as [`child`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use heatsink::{Cache, Json, Store};
use heatsink_testkit::{Process, RedisServer, Reply, eventually};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;

const URL: &str = "HEATSINK_TEST_CHILD_URL";
const CALLERS: &str = "HEATSINK_TEST_CHILD_CALLERS";
const FIRST_MS: &str = "HEATSINK_TEST_CHILD_FIRST_MS";
const LEASE: Duration = Duration::from_secs(1);

/// A process with so many callers of one key, as soon as `go` is said. Queries are counted in the
/// store; the first takes as long as the test says, others 100 ms.
#[test]
#[ignore = "is started by the other tests"]
fn child() {
    let variable = |name: &str| std::env::var(name).expect("set by the other tests");
    let url = variable(URL);
    let callers: usize = variable(CALLERS).parse().unwrap();
    let first: u64 = variable(FIRST_MS).parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::connect(&url).await.unwrap();
        let builder = Cache::<u32, String>::builder("users").store(store, Json).lease(LEASE);
        let cache = builder.build().await.unwrap();
        let client = redis::Client::open(url).unwrap();
        let mut database = client.get_multiplexed_async_connection().await.unwrap();
        database.set_response_timeout(S(60));
        println!("ready");
        let _: redis::Value =
            redis::cmd("BLPOP").arg("go").arg(0).query_async(&mut database).await.unwrap();
        let asks: Vec<_> = (0..callers)
            .map(|_| {
                let (cache, mut database) = (cache.clone(), database.clone());
                tokio::spawn(async move {
                    let load = move |_| async move {
                        let query = redis::cmd("INCR").arg("queries").to_owned();
                        let number: u64 = query.query_async(&mut database).await?;
                        let holder = std::process::id();
                        let mut say = redis::cmd("RPUSH");
                        let say = say.arg("holders").arg(holder);
                        let _: u64 = say.query_async(&mut database).await?;
                        tokio::time::sleep(MS(if number == 1 { first } else { 100 })).await;
                        Ok::<_, redis::RedisError>(format!("row {number}"))
                    };
                    (*cache.get(&1).hard_timeout(S(60)).load(load).await.unwrap()).clone()
                })
            })
            .collect();
        let mut rows = BTreeSet::new();
        for ask in asks {
            rows.insert(ask.await.unwrap());
        }
        eventually_settled(&cache).await;
        println!("answered {callers} with {rows:?}");
        // What is kept is looked at, too.
        let never = |_| async { Err::<String, _>("not asked") };
        println!("now {:?}", *cache.get(&1).load(never).await.unwrap());
    });
}

async fn eventually_settled(cache: &Cache<u32, String>) {
    while cache.loading() > 0 {
        tokio::time::sleep(MS(1)).await;
    }
}

struct Rig {
    server: RedisServer,
    children: Vec<Process>,
}

impl Rig {
    fn start(callers: usize, first_ms: u64) -> Self {
        let server = RedisServer::start();
        let program = std::env::current_exe().unwrap();
        let children: Vec<_> = (0..4)
            .map(|_| {
                let builder = Process::builder(&program);
                let builder = builder.args(["--exact", "child", "--ignored", "--nocapture"]);
                let builder = builder.env(URL, server.url()).env(CALLERS, callers.to_string());
                builder.env(FIRST_MS, first_ms.to_string()).spawn()
            })
            .collect();
        for child in &children {
            child.wait_for_line("ready", S(30));
        }
        for _ in &children {
            server.client().command(&["RPUSH", "go", "1"]);
        }
        Self { server, children }
    }

    fn queries(&self) -> u64 {
        match self.server.client().command(&["GET", "queries"]) {
            Reply::Bulk(number) => String::from_utf8(number).unwrap().parse().unwrap(),
            _ => 0,
        }
    }

    /// Where in the children the first loader runs.
    fn holder(&self) -> usize {
        eventually(S(10), || self.queries() == 1);
        let holder =
            eventually(S(10), || match self.server.client().command(&["LINDEX", "holders", "0"]) {
                Reply::Bulk(pid) => Some(String::from_utf8(pid).unwrap()),
                _ => None,
            });
        let is_holder = |child: &Process| child.pid().to_string() == holder;
        self.children.iter().position(is_holder).expect("one of the children")
    }
}

#[test]
fn ten_thousand_callers_in_four_processes_make_one_query() {
    let rig = Rig::start(2500, 100);
    for child in &rig.children {
        child.wait_for_line(r#"answered 2500 with {"row 1"}"#, S(30));
        child.wait_for_line(r#"now "row 1""#, S(10));
    }
    assert_eq!(rig.queries(), 1);
}

#[test]
fn when_the_holder_is_killed_one_other_follows_within_its_lease() {
    let mut rig = Rig::start(100, 3_600_000);
    let holder = rig.holder();
    rig.children.remove(holder).kill();
    let killed = Instant::now();
    for child in &rig.children {
        child.wait_for_line(r#"answered 100 with {"row 2"}"#, S(30));
    }
    assert!(killed.elapsed() < LEASE + S(2), "{:?}", killed.elapsed());
    assert_eq!(rig.queries(), 2);
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_overwrites_nothing_when_it_goes_on() {
    let mut rig = Rig::start(100, 300);
    let holder = rig.holder();
    let mut stopped = rig.children.remove(holder);
    stopped.pause();
    for child in &rig.children {
        child.wait_for_line(r#"answered 100 with {"row 2"}"#, S(30));
    }
    stopped.resume();
    // Its callers asked before; what it serves afterwards is what is true now.
    stopped.wait_for_line(r"answered 100 with", S(30));
    stopped.wait_for_line(r#"now "row 2""#, S(10));
    assert_eq!(rig.queries(), 2);
}
