//! The campaign on one server with six databases.

use std::thread;
use std::time::Duration;

use heatsink_testkit::{RedisServer, Reply, eventually_ok};

use super::{Fleet, KEYS, RECOVERY, Schedule};

const DATABASES: [u32; 6] = [0, 1, 2, 3, 4, 5];
/// More than a request may have before it is sent on in pieces.
const LARGE: usize = 300 << 10;

#[derive(Clone, Copy, Debug)]
enum Trouble {
    KillProxy,
    PauseProxy,
    PauseServer,
    KillServer,
    SwapDatabases,
    FlushAll,
    FlushDatabase,
    LargeRequests,
    Copy,
}

const TROUBLES: [Trouble; 9] = [
    Trouble::KillProxy,
    Trouble::PauseProxy,
    Trouble::PauseServer,
    Trouble::KillServer,
    Trouble::SwapDatabases,
    Trouble::FlushAll,
    Trouble::FlushDatabase,
    Trouble::LargeRequests,
    Trouble::Copy,
];

#[test]
fn values_are_conserved_in_all_databases_of_a_server() {
    let mut schedule = Schedule::new();
    let mut server = RedisServer::builder().durable().start();
    let store = RedisServer::start();
    let (store_url, upstream) = (store.url(), server.url());
    let flags = ["--coordination-url", store_url.as_str(), "--upstream", upstream.as_str()];
    let mut fleet = Fleet::start(&flags, &DATABASES, true);
    schedule.rounds(&TROUBLES, |schedule, trouble| {
        let mut rng = schedule.rng.fork();
        let database = DATABASES[rng.usize(..6)];
        let other = DATABASES[rng.usize(..6)];
        schedule.note(format!("{trouble:?} {database} {other}"));
        let time = schedule.pause();
        fleet.operate_for(&mut rng, Duration::from_millis(300));
        match trouble {
            Trouble::KillProxy => fleet.kill_proxy(&mut rng),
            Trouble::PauseProxy => fleet.pause_proxy(&mut rng, time),
            Trouble::PauseServer => {
                server.pause();
                thread::sleep(time);
                server.resume();
            }
            Trouble::KillServer => {
                server.kill();
                thread::sleep(Duration::from_millis(rng.u64(..300)));
                server.start_again();
            }
            _ => {}
        }
        fleet.clients.stop();
        match trouble {
            Trouble::SwapDatabases => {
                let (one, two) = (database.to_string(), other.to_string());
                // From a database that may be neither of them.
                done(&fleet, DATABASES[rng.usize(..6)], &["SWAPDB", &one, &two]);
                fleet.clients.swap(database, other);
            }
            Trouble::FlushAll => {
                done(&fleet, database, &["FLUSHALL"]);
                for database in DATABASES {
                    forget(&fleet, database);
                }
            }
            Trouble::FlushDatabase => {
                done(&fleet, database, &["FLUSHDB"]);
                forget(&fleet, database);
            }
            Trouble::LargeRequests => large_requests(&fleet),
            Trouble::Copy => copy(&fleet, database),
            _ => {}
        }
        for database in DATABASES {
            fleet.verify(database, schedule);
        }
        fleet.clients.go_on();
    });
    fleet.clients.stop();
    fleet.drain();
    for database in DATABASES {
        fleet.verify(database, &schedule);
    }
    let mut direct = server.client();
    let left = direct.command(&["KEYS", "heatsink:*"]);
    for key in left.items().iter().map(Reply::text) {
        assert!(direct.command(&["PTTL", &key]).integer() >= 0, "{key} stays for ever");
    }
    fleet.clients.end();
}

/// Sends a command until it is carried out.
fn done(fleet: &Fleet, database: u32, command: &[&str]) -> Reply {
    eventually_ok(RECOVERY, || match fleet.client(0, database).try_command(command) {
        Ok(Reply::Error(error)) => Err(error),
        Ok(reply) => Ok(reply),
        Err(error) => Err(error.to_string()),
    })
}

fn forget(fleet: &Fleet, database: u32) {
    for key in KEYS {
        fleet.clients.of(database).iter_mut().for_each(|account| account.forget(key));
    }
}

/// Large requests that name a split key in the end do what small ones do.
fn large_requests(fleet: &Fleet) {
    let padding = "x".repeat(LARGE);
    done(fleet, 0, &["MSET", "padding", &padding, "counter", "500"]);
    let mut accounts = fleet.clients.of(0);
    accounts[0].forget("counter");
    accounts[0].add(500);
    drop(accounts);
    let script = format!("--{padding}\nreturn redis.call('incrby', KEYS[1], ARGV[1])");
    let sum = done(fleet, 0, &["EVAL", &script, "1", "counter", "7"]);
    assert_eq!(sum, Reply::Integer(507));
    fleet.clients.of(0)[0].add(7);
    let mut delete = vec!["DEL".to_owned()];
    delete.extend((0..3_000).map(|number| format!("{number}:{}", "y".repeat(100))));
    delete.extend(["padding".to_owned(), "set".to_owned()]);
    let delete: Vec<&str> = delete.iter().map(String::as_str).collect();
    done(fleet, 0, &delete);
    fleet.clients.of(0)[0].forget("set");
}

/// Copies into other databases have the value, and not what stands in its place.
fn copy(fleet: &Fleet, to: u32) {
    let to = if to == 0 { 1 } else { to };
    for key in KEYS {
        let target = format!("copy:{key}");
        let whole = fleet.read(0, 0, key);
        let copied = done(fleet, 0, &["COPY", key, &target, "DB", &to.to_string(), "REPLACE"]);
        let found = match key {
            "counter" => done(fleet, to, &["GET", &target]),
            "list" => done(fleet, to, &["LRANGE", &target, "0", "-1"]),
            "scores" => done(fleet, to, &["ZRANGE", &target, "0", "-1", "WITHSCORES"]),
            "set" => done(fleet, to, &["SCARD", &target]),
            _ => done(fleet, to, &["HLEN", &target]),
        };
        match key {
            "set" => assert_eq!(found, Reply::Integer(whole.items().len() as i64)),
            "hash" => assert_eq!(found, Reply::Integer(whole.items().len() as i64 / 2)),
            _ if copied == Reply::Integer(1) => assert_eq!(found, whole, "{key}"),
            _ => {}
        }
        done(fleet, to, &["DEL", &target]);
    }
}
