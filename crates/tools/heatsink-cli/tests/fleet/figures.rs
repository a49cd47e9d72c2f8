//! What is shown is what happened: the figures of the API, of the metrics, of `top` and of the page
//! against what clients have sent.

use std::io::Read;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::browser::{Browser, with_browser};
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::Value;

use crate::node::{CACHE, Node};
use crate::support::{PATIENCE, Place};

/// The value of a metric; its labels belong to the name.
fn metric(node: &Node, name: &str) -> f64 {
    let metrics = node.metrics();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

fn start(place: &Place, server: &RedisServer, keys: &[&str]) -> Node {
    let node = Node::start(place, &["--upstream", &server.url()]);
    for key in keys {
        eventually(PATIENCE, || node.api().promote(key.as_bytes(), CACHE).is_ok());
    }
    node
}

#[test]
fn totals_are_those_of_clients() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["cached"]);
    // Its own questions are no requests of clients.
    assert!(metric(&node, "heatsink_requests_total") < 0.5);
    let mut client = node.client();
    assert_eq!(client.command(&["SET", "cached", "v"]), Reply::ok());
    let gets = server.calls("get");
    for _ in 0..1000 {
        assert_eq!(client.command(&["GET", "cached"]), Reply::bulk("v"));
    }
    // In a pipeline, in a transaction, and of several keys.
    client.send_raw(&encode(&["PING"]).repeat(100));
    for _ in 0..100 {
        assert_eq!(client.read_reply().text(), "PONG");
    }
    for command in [&["MULTI"][..], &["SET", "a", "1"], &["EXEC"], &["MGET", "a", "b"]] {
        client.command(command);
    }
    let sent = 1 + 1000 + 100 + 4;
    eventually(PATIENCE, || metric(&node, "heatsink_requests_total") >= f64::from(sent));
    assert_eq!(metric(&node, "heatsink_requests_total") as i64, i64::from(sent));
    // Each read was answered by the cache or by the server.
    let hits = metric(&node, "heatsink_local_cache_hits_total") as u64;
    let asked = server.calls("get") - gets;
    assert!(hits <= 1000 && hits + asked >= 1000, "{hits} hits, {asked} reads of the server");
    assert!(asked <= 50, "{asked} reads of the server");
    let saved = metric(&node, "heatsink_requests_total")
        - metric(&node, "heatsink_upstream_commands_total");
    assert!(saved <= hits as f64, "{saved} saved, {hits} hits");
}

#[test]
fn a_key_that_nobody_uses_shows_nothing_in_a_crowd() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["idle", "used"]);
    let mut client = node.client();
    client.set_timeout(PATIENCE);
    let (mut seen, mut number) = (0, 0);
    let until = Instant::now() + Duration::from_secs(3);
    let deadline = Instant::now() + PATIENCE;
    while (Instant::now() < until || seen < 5) && Instant::now() < deadline {
        let batch: Vec<u8> = (0..5000)
            .flat_map(|one| encode(&["GET", &format!("other:{}", number + one)]))
            .collect();
        number += 5000;
        client.send_raw(&batch);
        client.send_raw(&encode(&["GET", "used"]));
        for _ in 0..5001 {
            assert_eq!(client.read_reply(), Reply::Null);
        }
        let used = node.entry("used").expect("listed");
        if used.frequency > 0.0 {
            seen += 1;
            let idle = node.entry("idle").expect("listed");
            assert!(idle.frequency == 0.0, "{idle:?}\n{used:?}");
        }
    }
    assert!(seen >= 5, "seen {seen} times");
}

/// `heatsink top` on a terminal of its own.
struct Top {
    screen: Arc<Mutex<vt100::Parser>>,
    child: Box<dyn Child + Send + Sync>,
    _master: Box<dyn MasterPty + Send>,
}

impl Top {
    fn start(admin: &str) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_heatsink"));
        command.args(["top", "--admin", admin, "--interval-ms", "200"]);
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).expect("a process");
        let mut output = pair.master.try_clone_reader().expect("its output");
        let (rows, columns) = (NonZero::new(24).expect("not 0"), NonZero::new(80).expect("not 0"));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let drawn = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with the process.
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                drawn.lock().expect("a screen").process(&buffer[..count]);
            }
        });
        Self { screen, child, _master: pair.master }
    }

    fn shown(&self) -> String {
        self.screen.lock().expect("a screen").screen().contents()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A figure in the head of the screen.
fn head(screen: &str, name: &str) -> Option<f64> {
    let (_, rest) = screen.split_once(name)?;
    let word = rest.split_whitespace().next()?;
    word.replace(',', "").parse().ok()
}

fn last_sample(node: &Node) -> Option<Value> {
    node.json("/history?samples=1")?["samples"].as_array()?.last().cloned()
}

/// A client with a steady rate: 1000 requests a second, of which nine of ten read a key that is cached.
struct Steady {
    stop: Arc<AtomicBool>,
    load: Option<thread::JoinHandle<()>>,
}

impl Steady {
    fn start(node: &Node) -> Self {
        const PER_ROUND: usize = 50;
        const ROUND: Duration = Duration::from_millis(50);
        let address = node.clients();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let load = thread::spawn(move || {
            let mut client = RawClient::connect(address);
            client.set_timeout(PATIENCE);
            client.command(&["SET", "cached", "v"]);
            let cached = encode(&["GET", "cached"]);
            let mut next = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                for number in 0..PER_ROUND {
                    let other = encode(&["ECHO", "x"]);
                    client.send_raw(if number % 10 == 0 { &other } else { &cached });
                }
                for _ in 0..PER_ROUND {
                    client.read_reply();
                }
                next += ROUND;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Self { stop, load: Some(load) }
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.load.take().expect("it runs").join().expect("it sent");
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn near(rate: f64, of: f64) -> bool {
    (rate - of).abs() <= of * 0.3
}

#[test]
fn rates_agree_with_what_was_sent_and_with_each_other() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["cached"]);
    let load = Steady::start(&node);
    let mut said = String::new();
    let agrees = |said: &mut String| {
        let (Some(sample), Some(fleet)) = (last_sample(&node), node.json("/proxies")) else {
            return false;
        };
        let figure = |name: &str| sample[name].as_f64().unwrap_or(-1.0);
        let own = fleet["items"][0]["requests_per_second"].as_f64().unwrap_or(-1.0);
        let key = node.entry("cached").map_or(-1.0, |entry| entry.frequency);
        *said = format!("{sample} {own} {key}");
        let (requests, saved) = (figure("requests_per_second"), figure("saved_per_second"));
        assert!(saved <= requests, "more saved than asked: {said}");
        near(requests, 1000.0) && near(saved, 900.0) && near(own, 1000.0) && near(key, 900.0)
    };
    let until = Instant::now() + PATIENCE;
    while !agrees(&mut said) {
        assert!(Instant::now() < until, "{said}");
        thread::sleep(Duration::from_millis(100));
    }
    // `top` shows the same.
    let top = Top::start(&node.admin_url());
    eventually(PATIENCE, || {
        let shown = top.shown();
        let figure = |name: &str| head(&shown, name).unwrap_or(-1.0);
        let (requests, saved) = (figure("Requests/s"), figure("saved/s"));
        assert!(saved <= requests, "more saved than asked:\n{shown}");
        near(requests, 1000.0) && near(saved, 900.0)
    });
    load.end();
}

/// The number that a text begins with, as a person reads it; those that are not known are no number.
fn read(text: &str) -> f64 {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.replace(',', "").parse().unwrap_or(-1.0)
}

/// Reads texts of the page, all of one moment, until they are as expected.
async fn reads(
    browser: &Browser,
    node: &Node,
    path: &str,
    what: &[&str],
    is_expected: impl Fn(&[String]) -> bool,
) {
    browser.open(node.admin, path).await;
    let list = serde_json::to_string(what).expect("a list");
    // What is hidden, or not there yet, nobody reads.
    let look = format!(
        "{list}.map((one) => document.querySelector(one)).map((element) => \
         element?.checkVisibility() ? element.innerText : '')"
    );
    let until = Instant::now() + PATIENCE;
    loop {
        let texts = browser.value(&look).await;
        let texts: Vec<String> = serde_json::from_value(texts).expect("texts");
        if is_expected(&texts) {
            return;
        }
        if Instant::now() > until {
            browser.screenshot("figures-failed").await;
            panic!("{path} shows {texts:?} as {what:?}");
        }
        browser.sample().await;
    }
}

#[test]
fn the_page_shows_a_person_what_was_sent() {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = start(&place, &server, &["cached", "idle"]);
    let load = Steady::start(&node);
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-screenshots");
    with_browser((1280, 900), &screenshots, async |browser| {
        let tiles = ["#tile-requests", "#tile-saved", "#tile-saved-note", "#tile-keys"];
        reads(browser, &node, "/", &tiles, |texts| {
            let [requests, saved, share] = [0, 1, 2].map(|tile| read(&texts[tile]));
            assert!(saved <= requests, "more saved than asked: {texts:?}");
            let shares = near(share, 90.0) && texts[2].ends_with("of all requests");
            near(requests, 1000.0) && near(saved, 900.0) && shares && texts[3] == "2"
        })
        .await;
        // The hottest key first, and one that nobody uses.
        let [used, idle] = [1, 2].map(|row| {
            let cell =
                |name: &str| format!("#key-rows tr:nth-child({row}) td[data-label='{name}']");
            ["Key", "Requests/s", "Reads", "Hit ratio"].map(cell)
        });
        let cells: Vec<_> = used.iter().chain(&idle).map(String::as_str).collect();
        reads(browser, &node, "/", &cells, |texts| {
            let [rate, reads, hits] = [1, 2, 3].map(|cell| read(&texts[cell]));
            let is_used = near(rate, 900.0) && near(reads, 100.0) && (70.0..=100.0).contains(&hits);
            texts[0] == "cached" && is_used && texts[4] == "idle" && texts[5] == "0"
        })
        .await;
        let facts = [1, 2, 3, 4].map(|fact| format!("#key-facts div:nth-child({fact})"));
        reads(browser, &node, "/#/key/cached", &facts.each_ref().map(String::as_str), |texts| {
            let names = ["Requests/s", "Reads/s", "Writes/s", "Hit ratio"];
            let figure = |fact: usize| {
                let name = |text: &String| text.strip_prefix(names[fact]).map(read);
                texts.get(fact).and_then(name).unwrap_or(-1.0)
            };
            let rates = near(figure(0), 900.0) && near(figure(1), 900.0) && figure(2) == 0.0;
            rates && (70.0..=100.0).contains(&figure(3))
        })
        .await;
        let cells =
            ["Requests/s", "Saved"].map(|name| format!("#proxy-rows td[data-label='{name}']"));
        reads(browser, &node, "/#/proxies", &cells.each_ref().map(String::as_str), |texts| {
            near(read(&texts[0]), 1000.0) && near(read(&texts[1]), 90.0)
        })
        .await;
        browser.no_errors().await;
    });
    load.end();
}
