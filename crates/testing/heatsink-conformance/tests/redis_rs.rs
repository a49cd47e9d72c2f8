//! redis-rs, unmodified: RESP2 and RESP3, first on a plain server, then through Heatsink.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use heatsink_conformance::Rig;
use heatsink_testkit::{RedisServer, eventually};
use redis::caching::CacheConfig;
use redis::streams::{StreamRangeReply, StreamReadOptions, StreamReadReply};
use redis::{
    AsyncConnectionConfig, AsyncTypedCommands, Client, Commands, Connection, ErrorKind, PushKind,
    RedisResult, Script, ServerErrorKind, Value, cmd, pipe,
};

const WORKERS: usize = 2;
const WAIT: Duration = Duration::from_secs(10);

/// Where to connect, and with which protocol.
struct Place {
    addr: SocketAddr,
    protocol: &'static str,
}

impl Place {
    fn client_of(&self, user: &str, db: u32) -> Client {
        let Self { addr, protocol } = self;
        Client::open(format!("redis://{user}{addr}/{db}?protocol={protocol}")).expect("a URL")
    }

    fn client(&self) -> Client {
        self.client_of("", 0)
    }

    fn connect(&self) -> Connection {
        self.client().get_connection().expect("it accepts")
    }

    fn await_blocked(&self) {
        let mut connection = self.connect();
        eventually(WAIT, || {
            let info: String = cmd("INFO").arg("clients").query(&mut connection).expect("INFO");
            !info.contains("blocked_clients:0")
        });
    }
}

fn on_both(check: impl Fn(&Place)) {
    let plain = RedisServer::start();
    on_protocols("plain server", plain.addr(), &check);
    drop(plain);
    let rig = Rig::new(WORKERS);
    on_protocols("through Heatsink", rig.addr(), &check);
}

fn on_protocols(whose: &str, addr: SocketAddr, check: &impl Fn(&Place)) {
    for protocol in ["resp2", "resp3"] {
        println!("{whose}, {protocol}");
        let place = Place { addr, protocol };
        cmd("FLUSHALL").exec(&mut place.connect()).expect("FLUSHALL");
        check(&place);
    }
}

#[test]
fn every_type() {
    on_both(|place| {
        let c = &mut place.connect();
        assert_eq!(c.set("s", "v"), Ok(()));
        assert_eq!(c.get("s"), Ok(Some("v".to_owned())));
        assert_eq!(c.incr("n", 5), Ok(5));
        assert_eq!(c.mget(&["s", "none"]), Ok(vec![Some("v".to_owned()), None]));
        assert_eq!(c.setbit("b", 3, true), Ok(false));
        assert_eq!(c.hset_multiple("h", &[("a", 1), ("b", 2)]), Ok(()));
        let all: HashMap<String, i64> = c.hgetall("h").expect("a hash");
        assert_eq!(all, HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
        assert_eq!(c.rpush("l", &["a", "b"]), Ok(2));
        assert_eq!(c.lrange("l", 0, -1), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(c.sadd("set", &["a", "b"]), Ok(2));
        assert_eq!(c.sismember("set", "a"), Ok(true));
        assert_eq!(c.zadd("z", "m", 1.5), Ok(1));
        assert_eq!(c.zscore("z", "m"), Ok(Some(1.5)));
        assert_eq!(c.xadd("x", "1-1", &[("f", "v")]), Ok("1-1".to_owned()));
        let range: StreamRangeReply = c.xrange_all("x").expect("a stream");
        assert_eq!(range.ids[0].get("f"), Some("v".to_owned()));
        assert_eq!(c.pfadd("p", &["a", "b"]), Ok(true));
        assert_eq!(c.pfcount("p"), Ok(2));
        assert_eq!(c.geo_add("g", (13.36, 38.11, "place")), Ok(1));
        let every: Vec<u8> = (0..=255).collect();
        assert_eq!(c.set(&every, &every), Ok(()));
        assert_eq!(c.get(&every), Ok(Some(every.clone())));
        let mut keys: Vec<Vec<u8>> =
            c.scan().expect("SCAN").collect::<RedisResult<_>>().expect("keys");
        keys.sort();
        assert_eq!(keys.len(), 11);
        let error = c.incr::<_, _, i64>("s", 1).expect_err("a text");
        assert!(error.to_string().contains("not an integer"), "{error}");
    });
}

#[test]
fn transactions_and_conflicts() {
    on_both(|place| {
        let (c, other) = (&mut place.connect(), &mut place.connect());
        let both = pipe().atomic().set("a", 1).ignore().incr("a", 1).get("a").query(c);
        assert_eq!(both, Ok((2, 2)));
        let mut tries = 0;
        let value: (i64,) = redis::transaction(c, &["a"], |c, pipe| {
            tries += 1;
            let old: i64 = c.get("a")?;
            if tries == 1 {
                other.set::<_, _, ()>("a", 10)?;
            }
            pipe.set("a", old + 1).ignore().get("a").query(c)
        })
        .expect("the second try goes through");
        assert_eq!((value.0, tries), (11, 2));
        let aborted = pipe().atomic().set("a", 5).cmd("NO-SUCH").query::<Value>(c);
        assert!(aborted.is_err());
        assert_eq!(c.get("a"), Ok(11));
    });
}

#[test]
fn scripts_and_functions() {
    on_both(|place| {
        let c = &mut place.connect();
        let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
        assert_eq!(script.key("n").arg(3).invoke(c), Ok(3));
        cmd("SCRIPT").arg("FLUSH").exec(c).expect("SCRIPT FLUSH");
        assert_eq!(script.key("n").arg(3).invoke(c), Ok(6));
        let missing = cmd("EVALSHA").arg("0".repeat(40)).arg(0).query::<Value>(c);
        let kind = missing.expect_err("no such script").kind();
        assert_eq!(kind, ErrorKind::Server(ServerErrorKind::NoScript));
        let library = "#!lua name=rslib\n\
            redis.register_function('rs_echo', function(keys, args) return args[1] end)";
        let load = cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library).query(c);
        assert_eq!(load, Ok("rslib".to_owned()));
        let called = cmd("FCALL").arg("rs_echo").arg(0).arg("back").query(c);
        assert_eq!(called, Ok("back".to_owned()));
    });
}

#[test]
fn publish_and_subscribe() {
    on_both(|place| {
        let (subscriber, c) = (&mut place.connect(), &mut place.connect());
        let mut subscriber = subscriber.as_pubsub();
        subscriber.set_read_timeout(Some(WAIT)).expect("a timeout");
        subscriber.subscribe("news").expect("SUBSCRIBE");
        subscriber.psubscribe("n*").expect("PSUBSCRIBE");
        assert_eq!(c.publish("news", "hello"), Ok(2));
        let first = subscriber.get_message().expect("a message");
        assert_eq!((first.get_channel_name(), first.from_pattern()), ("news", false));
        let second = subscriber.get_message().expect("a message");
        assert_eq!(second.get_pattern(), Ok("n*".to_owned()));
        assert_eq!(second.get_payload(), Ok("hello".to_owned()));
        subscriber.unsubscribe("news").expect("UNSUBSCRIBE");
        assert_eq!(c.publish("news", "again"), Ok(1));
        assert!(subscriber.get_message().expect("a message").from_pattern());
    });
}

#[test]
fn blocking() {
    on_both(|place| {
        let c = &mut place.connect();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| place.connect().blpop(&["q1", "q2"], 20.0));
            place.await_blocked();
            assert_eq!(c.rpush("q2", "woken"), Ok(1));
            let woken: RedisResult<Option<[String; 2]>> = waiter.join().expect("no panic");
            assert_eq!(woken, Ok(Some(["q2".to_owned(), "woken".to_owned()])));
            let waiter = scope.spawn(|| {
                let options = StreamReadOptions::default().block(20_000);
                place.connect().xread_options(&["x"], &["$"], &options)
            });
            place.await_blocked();
            assert_eq!(c.xadd("x", "7-7", &[("f", "v")]), Ok("7-7".to_owned()));
            let read: RedisResult<Option<StreamReadReply>> = waiter.join().expect("no panic");
            assert_eq!(read.expect("a reply").expect("an entry").keys[0].ids[0].id, "7-7");
            let waiter = scope.spawn(|| place.connect().bzpopmin("z", 20.0));
            place.await_blocked();
            assert_eq!(c.zadd("z", "m", 2), Ok(1));
            let popped: RedisResult<Option<(String, String, f64)>> =
                waiter.join().expect("no panic");
            assert_eq!(popped, Ok(Some(("z".to_owned(), "m".to_owned(), 2.0))));
        });
        assert_eq!(c.brpop("empty", 0.05), Ok(None::<[String; 2]>));
    });
}

#[test]
fn long_pipelines_and_big_values() {
    on_both(|place| {
        let c = &mut place.connect();
        let mut pipeline = pipe();
        for _ in 0..10_000 {
            pipeline.incr("n", 1);
        }
        assert_eq!(pipeline.query(c), Ok((1..=10_000).collect::<Vec<i64>>()));
        let big: Vec<u8> =
            (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(c.set("big", &big), Ok(()));
        assert!(c.get("big") == Ok(big), "the value came back changed");
    });
}

#[test]
fn users_databases_and_names() {
    on_both(|place| {
        let c = &mut place.connect();
        let rules = ["reset", "on", ">secret", "~mine:*", "+@all", "-@dangerous"];
        cmd("ACL").arg("SETUSER").arg("rs").arg(&rules).exec(c).expect("ACL SETUSER");
        let worker = &mut place.client_of("rs:secret@", 0).get_connection().expect("let in");
        assert_eq!(cmd("ACL").arg("WHOAMI").query(worker), Ok("rs".to_owned()));
        assert_eq!(worker.set("mine:1", 1), Ok(()));
        let denied = worker.get::<_, Value>("yours").expect_err("not permitted");
        assert_eq!(denied.kind(), ErrorKind::Server(ServerErrorKind::NoPerm));
        assert!(place.client_of("rs:wrong@", 0).get_connection().is_err());
        let three = &mut place.client_of("", 3).get_connection().expect("let in");
        assert_eq!(three.set("k", "three"), Ok(()));
        assert_eq!(c.get("k"), Ok(None::<String>));
        assert_eq!(cmd("SELECT").arg(3).query(c), Ok(()));
        assert_eq!(c.get("k"), Ok("three".to_owned()));
        assert_eq!(three.client_setname("three"), Ok(()));
        assert_eq!(three.client_getname(), Ok(Some("three".to_owned())));
        let (one, two): (i64, i64) = (three.client_id().expect("id"), c.client_id().expect("id"));
        assert_ne!(one, two);
        let list: String = cmd("CLIENT").arg("LIST").query(c).expect("CLIENT LIST");
        assert!(list.contains("name=three"), "{list}");
    });
}

#[test]
fn a_pool_used_by_many() {
    on_both(|place| {
        let pool = r2d2_pool(place);
        thread::scope(|scope| {
            for worker in 0..16 {
                let pool = &pool;
                scope.spawn(move || {
                    for i in 0..100 {
                        let c = &mut pool.get().expect("a connection");
                        let key = format!("{worker}:{i}");
                        c.set::<_, _, ()>(&key, &key).expect("SET");
                        assert_eq!(c.get(&key), Ok(key));
                    }
                });
            }
        });
        assert_eq!(cmd("DBSIZE").query(&mut place.connect()), Ok(1600));
    });
}

fn r2d2_pool(place: &Place) -> r2d2::Pool<Client> {
    r2d2::Pool::builder().max_size(6).build(place.client()).expect("a pool")
}

#[test]
fn pushes_on_a_resp3_connection() {
    on_both(|place| {
        if place.protocol != "resp3" {
            return;
        }
        let (c, other) = (&mut place.connect(), &mut place.connect());
        let (sender, pushes) = channel();
        c.set_push_sender(sender);
        cmd("CLIENT").arg("TRACKING").arg("ON").exec(c).expect("CLIENT TRACKING");
        assert_eq!(c.get("tracked"), Ok(None::<String>));
        assert_eq!(other.set("tracked", 1), Ok(()));
        // A blocking connection sees pushes when it reads, so it is asked until one is there.
        let push = eventually(WAIT, || {
            cmd("PING").exec(c).expect("PING");
            pushes.try_recv().ok()
        });
        assert_eq!(push.kind, PushKind::Invalidate);
        assert_eq!(push.data, [Value::Array(vec![Value::BulkString(b"tracked".to_vec())])]);
    });
}

#[test]
fn multiplexed_and_caching() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio");
    on_both(|place| runtime.block_on(multiplexed(place)));
}

async fn multiplexed(place: &Place) {
    let client = place.client();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(WAIT));
    let connection =
        client.get_multiplexed_async_connection_with_config(&config).await.expect("connected");
    let tasks: Vec<_> = (0..500)
        .map(|i| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                connection.set(format!("t:{i}"), i).await.expect("SET");
                connection.get(format!("t:{i}")).await.expect("GET")
            })
        })
        .collect();
    for (i, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.expect("no panic"), Some(i.to_string()));
    }
    if place.protocol == "resp3" {
        let config = config.set_cache_config(CacheConfig::default());
        let mut cached =
            client.get_multiplexed_async_connection_with_config(&config).await.expect("connected");
        let mut connection = connection.clone();
        connection.set("cached", "one").await.expect("SET");
        for _ in 0..5 {
            assert_eq!(cached.get("cached").await, Ok(Some("one".to_owned())));
        }
        connection.set("cached", "two").await.expect("SET");
        let deadline = tokio::time::Instant::now() + WAIT;
        while cached.get("cached").await != Ok(Some("two".to_owned())) {
            assert!(tokio::time::Instant::now() < deadline, "the cache was never invalidated");
            tokio::task::yield_now().await;
        }
        let statistics = cached.get_cache_statistics().expect("it caches");
        assert!(statistics.hit >= 4 && statistics.invalidate >= 1, "{statistics:?}");
    }
}
