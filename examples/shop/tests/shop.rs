//! The shop with a real Postgres and a real Redis, driven over HTTP.
//!
//! Where Postgres is not installed these tests say so and show nothing; `./test` installs it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use heatsink_testkit::{Process, RedisServer, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(90);
const LONG: Duration = Duration::from_secs(60);

struct Shop {
    process: Process,
    address: String,
    /// Where it keeps what its servers write.
    directory: TempDir,
}

impl Shop {
    /// `None`: there is no Postgres on this machine.
    fn start(args: &[&str]) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_in_path = std::env::split_paths(&path).any(|at| at.join("postgres").is_file());
        if !is_in_path && !Path::new("/usr/lib/postgresql").is_dir() {
            eprintln!("skipped: there is no Postgres (on Debian: apt-get install postgresql)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        // Postgres runs as a user of its own if this is root.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let process = Process::builder(env!("CARGO_BIN_EXE_shop"))
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .env("TMPDIR", directory.path())
            .spawn();
        let line = process.wait_for_line("shop ready: http://", START);
        let address = line.split("http://").nth(1).unwrap().trim_end_matches('/').to_owned();
        Some(Self { process, address, directory })
    }

    /// Status and body.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn load(&self, target: &str, rate: u32) {
        let wish = json!({ "target": target, "rate": rate });
        assert_eq!(self.call("PUT", "/load", Some(&wish)), (200, wish));
    }

    /// A number of a way.
    fn count(&self, way: &str, what: &str) -> u64 {
        let stats = self.get("/stats");
        let ways = stats["ways"].as_array().unwrap();
        ways.iter().find(|row| row["way"] == way).unwrap()[what].as_u64().unwrap()
    }

    /// Ends it as Ctrl-C does, and returns what it has printed.
    fn end(&mut self) -> String {
        self.process.signal(Signal::INT);
        assert!(self.process.wait_exit(LONG).success(), "{}", self.process.tail());
        self.process.output()
    }

    /// A line of what it printed about its servers: process id and URL.
    fn server(&self, name: &str) -> (u32, String) {
        let line = self.process.wait_for_line(&format!("{name} "), START);
        let (pid, url) = line.split_once(' ').unwrap().1.split_once(": ").unwrap();
        (pid.parse().unwrap(), url.trim().to_owned())
    }
}

impl Drop for Shop {
    /// Its servers end in order before their files are removed.
    fn drop(&mut self) {
        if self.process.is_running() && !std::thread::panicking() {
            self.end();
        }
    }
}

/// A product that expires each second under 1 000 requests per second, with a query of 50 ms: each
/// request of those 50 ms asks the database, if nothing keeps it from doing so.
#[test]
fn an_expiry_costs_one_query_with_the_library_and_many_without() {
    let Some(shop) = Shop::start(&[]) else { return };

    shop.load("naive", 1000);
    eventually(LONG, || shop.count("naive", "expiries") >= 4);
    let (queries, expiries) = (shop.count("naive", "queries"), shop.count("naive", "expiries"));
    assert!(queries > 10 * expiries, "naive: {queries} queries in {expiries} expiries");

    shop.load("heatsink", 1000);
    eventually(LONG, || shop.count("heatsink", "expiries") >= 8);
    shop.load("heatsink", 0);
    let count = |what| shop.count("heatsink", what);
    // The last load ends, and nothing more begins.
    eventually(LONG, || count("queries") == count("expiries"));
    assert_eq!(count("worst"), 1, "{}", shop.get("/stats")["ways"][3]);
    assert_eq!((count("failed"), count("shed")), (0, 0));
    // One for each second would be the least; that early ones are not much more is seen here.
    assert!(count("queries") <= 3 * (count("seconds") + 2), "{}", shop.get("/stats")["ways"][3]);
    assert!(count("local") > count("requests") / 2);

    // What is counted here is what Postgres has counted.
    let all: u64 = ["naive", "heatsink"].iter().map(|way| shop.count(way, "queries")).sum();
    eventually(LONG, || shop.get("/stats")["postgres_calls"] == all);
}

#[test]
fn a_lock_and_stale_values_cost_a_query_for_each_instance() {
    let Some(shop) = Shop::start(&["--instances", "3"]) else { return };
    for way in ["locked", "stale"] {
        shop.load(way, 1000);
        eventually(LONG, || shop.count(way, "expiries") >= 6);
        let (queries, expiries) = (shop.count(way, "queries"), shop.count(way, "expiries"));
        assert!(queries > expiries, "{way}: {queries} queries in {expiries} expiries");
    }
    assert_eq!(shop.count("locked", "stale"), 0);
    assert!(shop.count("locked", "joined") > 0);
    assert!(shop.count("stale", "stale") > 0);
}

#[test]
fn a_changed_price_is_seen_by_each_instance_in_each_way() {
    let Some(shop) = Shop::start(&["--ttl-ms", "600000", "--instances", "2"]) else { return };
    let ways = ["naive", "locked", "stale", "heatsink"];
    let price = |way| shop.get(&format!("/product/7?way={way}"))["product"]["price_cents"].clone();
    for way in ways {
        assert_eq!((price(way), price(way), price(way)), (json!(700), json!(700), json!(700)));
    }
    let change = json!({ "price_cents": 555 });
    assert_eq!(shop.call("PUT", "/product/7", Some(&change)).0, 204);
    for way in ways {
        // The instances answer in turn; one of them is told by a push.
        eventually(LONG, || (price(way), price(way)) == (json!(555), json!(555)));
    }
    assert_eq!(shop.call("GET", "/product/101", None).0, 404);
    assert_eq!(shop.call("PUT", "/product/101", Some(&change)).0, 404);
    assert_eq!(shop.call("GET", "/product/1?way=unknown", None).0, 400);
}

#[test]
fn its_servers_end_with_it_and_leave_nothing_behind() {
    let Some(mut shop) = Shop::start(&["--load", "100"]) else { return };
    let (postgres, redis) = (shop.server("postgres").0, shop.server("redis").0);
    let is_alive = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(is_alive(postgres) && is_alive(redis));
    eventually(LONG, || shop.count("naive", "requests") > 0);
    let text = shop.end();
    assert!(text.contains("naive"), "the table is printed at the end: {text}");
    assert!(!is_alive(postgres) && !is_alive(redis));
    let left: Vec<_> = std::fs::read_dir(shop.directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn servers_that_were_given_are_used_and_left_running() {
    let Some(first) = Shop::start(&[]) else { return };
    let (pid, database) = first.server("postgres");
    let mut redis = RedisServer::start();
    let args = ["--database-url", &database, "--redis-url", &redis.url()];
    let Some(mut second) = Shop::start(&args) else { return };
    assert_eq!(second.get("/product/3")["product"]["name"], "Product 3");
    assert!(redis.client().command(&["EXISTS", "shop-heatsink:3"]).integer() == 1);
    assert!(second.end().contains("ready"));
    assert!(Path::new(&format!("/proc/{pid}")).exists() && redis.is_running());
    assert_eq!(first.get("/product/4")["tier"], "loaded");
    redis.kill();
}
