//! Load on real servers: what is measured, what is verified, what is left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_load::options::{Options, Pace, Target};
use heatsink_load::report::html;
use heatsink_load::scenario::Scenario;
use heatsink_load::{Event, Progress, Report, run};
use heatsink_testkit::{Certificates, RawClient, RedisServer, Reply, eventually, poll_until};

fn target(name: &str, server: &RedisServer) -> Target {
    Target::parse(&format!("{name}={}", server.url())).expect("a target")
}

fn options(scenario: Scenario, server: &RedisServer) -> Options {
    let mut options = Options::new(scenario, vec![target("direct", server)]);
    options.duration = Duration::from_millis(600);
    options.warmup = Duration::from_millis(50);
    options.connections = 8;
    options.shape.keys = 200;
    options
}

fn finished(options: &Options) -> Report {
    let report = run(options, &AtomicBool::new(false), &mut ()).expect("a report");
    for target in &report.targets {
        assert_eq!(target.errors.count, 0, "{report}");
    }
    report
}

fn verified(options: &Options) -> Report {
    let report = finished(options);
    assert_eq!(report.mismatches(), 0, "{report}");
    report
}

/// Interferes with a run from outside, again and again until it has ended.
fn disturbed(options: &Options, disturb: impl Fn(&mut RawClient), server: &RedisServer) -> Report {
    thread::scope(|scope| {
        let running = scope.spawn(|| finished(options));
        let mut client = server.client();
        while !running.is_finished() {
            disturb(&mut client);
        }
        running.join().expect("a report")
    })
}

#[test]
fn every_scenario_is_right_on_a_plain_server() {
    let server = RedisServer::start();
    for scenario in Scenario::ALL {
        let mut options = options(scenario, &server);
        options.shape.write_share = 0.3;
        options.ttl = Duration::from_millis(50);
        options.recompute = Duration::from_millis(5);
        options.stock = 100;
        options.pipeline = 4;
        options.threads = 2;
        let report = verified(&options);
        let target = &report.targets[0];
        assert!(target.requests > 100, "{report}");
        assert_eq!(target.requests, target.reads + target.writes + target.increments);
        assert_eq!(target.stale_reads, 0, "one server alone is never stale");
        assert!(target.latency.p50_us > 0.0 && target.latency.p50_us <= target.latency.p99_us);
        match scenario {
            Scenario::Stampede => assert!(target.misses > 0 && target.recomputations > 0),
            Scenario::Counter => assert!(target.increments > target.requests / 4),
            Scenario::FlashSale => {
                assert_eq!(target.sold, 100, "neither more nor less than there was");
                assert!(target.sold_out > 0);
            }
            Scenario::Zipf | Scenario::Viral | Scenario::Moving => {
                assert_eq!((target.increments, target.misses), (0, 0));
            }
        }
    }
    assert_eq!(server.client().command(&["DBSIZE"]), Reply::Integer(0), "nothing is left");
}

#[test]
fn a_rate_is_kept_and_times_count_from_when_due() {
    let mut server = RedisServer::start();
    let mut options = options(Scenario::Zipf, &server);
    options.pace = Pace::Rate(2_000.0);
    options.duration = Duration::from_millis(1_500);
    let steady = verified(&options);
    let target = &steady.targets[0];
    assert_eq!(target.requests + target.unsent, 3_000, "{steady}");

    // The server stops for 300 ms. Only 8 requests can be out then, but all that would have
    // been sent count: about a fifth of all.
    let report = thread::scope(|scope| {
        let before = server.calls("get");
        let running = scope.spawn(|| finished(&options));
        eventually(Duration::from_secs(10), || server.calls("get") > before + 500);
        server.pause();
        let stalled = poll_until(Duration::from_millis(300), || false);
        assert_eq!(stalled, None);
        server.resume();
        running.join().expect("a report")
    });
    let stalled = &report.targets[0];
    assert!(stalled.latency.max_us >= 250_000.0, "{report}");
    assert!(stalled.latency.p90_us >= 50_000.0, "{report}");
    assert_eq!(report.mismatches(), 0, "{report}");
}

#[test]
fn foreign_writes_are_noticed() {
    let server = RedisServer::start();
    let options = options(Scenario::Zipf, &server);
    let hottest = "heatsink:load:direct:item:0";
    let other = "heatsink:load:direct:item:1";

    let damaged = disturbed(
        &options,
        |client| {
            client.command(&["APPEND", hottest, "!"]);
        },
        &server,
    );
    let kinds = &damaged.targets[0].mismatches.kinds;
    assert!(kinds.contains_key("damaged value"), "{damaged}");
    assert!(damaged.to_string().contains("heatsink:load:direct:item:0"), "{damaged}");

    let swapped = disturbed(
        &options,
        |client| {
            client.command(&["COPY", other, hottest, "REPLACE"]);
        },
        &server,
    );
    assert!(swapped.targets[0].mismatches.kinds.contains_key("value of another key"), "{swapped}");

    let deleted = disturbed(
        &options,
        |client| {
            client.command(&["DEL", hottest]);
        },
        &server,
    );
    assert!(deleted.targets[0].mismatches.kinds.contains_key("missing value"), "{deleted}");
}

#[test]
fn an_old_version_that_comes_back_is_noticed() {
    let server = RedisServer::start();
    let mut options = options(Scenario::Zipf, &server);
    options.shape.write_share = 0.2;
    options.connections = 2;
    let hottest = "heatsink:load:direct:item:0";
    let kept = std::sync::Mutex::new(None::<Vec<u8>>);
    let report = disturbed(
        &options,
        |client| {
            // The first version is put back again and again.
            let mut kept = kept.lock().unwrap();
            match &*kept {
                Some(value) => {
                    let args: [&[u8]; 4] = [b"SET", hottest.as_bytes(), value, b"XX"];
                    client.command(&args);
                }
                None => *kept = client.command(&["GET", hottest]).bytes().map(<[u8]>::to_vec),
            }
        },
        &server,
    );
    let target = &report.targets[0];
    assert!(target.mismatches.kinds.contains_key("version went back"), "{report}");
    assert!(target.stale_reads > 0, "{report}");
}

#[test]
fn counters_that_are_set_back_are_noticed() {
    let server = RedisServer::start();
    let options = options(Scenario::Counter, &server);
    let report = disturbed(
        &options,
        |client| {
            client.command(&["SET", "heatsink:load:direct:counter:0", "1", "XX"]);
        },
        &server,
    );
    let kinds = &report.targets[0].mismatches.kinds;
    assert!(kinds.contains_key("counter repeated"), "{report}");
    assert!(kinds.contains_key("increments lost"), "{report}");
}

#[test]
fn targets_take_turns_and_upstream_commands_are_theirs() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let mut options = options(Scenario::Viral, &one);
    options.targets.push(target("other", &other));
    options.rounds = 2;
    options.upstreams = vec![one.url().parse().unwrap(), other.url().parse().unwrap()];
    let mut order = Order::default();
    let report = run(&options, &AtomicBool::new(false), &mut order).unwrap();
    assert_eq!(order.rounds, ["direct 0", "other 0", "other 1", "direct 1"]);
    assert!(order.pulses > 0);
    for target in &report.targets {
        assert_eq!((target.mismatches.count, target.rounds.len()), (0, 2), "{report}");
        let upstream = target.upstream.as_ref().unwrap();
        assert!(upstream.calls["get"] > 0);
        let per_request = upstream.commands_per_request;
        assert!((per_request - 1.0).abs() < 0.01, "a plain server runs what it is sent: {report}");
    }

    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["settings"]["scenario"], "viral");
    assert_eq!(json["targets"][1]["name"], "other");
    assert!(json["targets"][0]["latency"]["p99_us"].as_f64().unwrap() > 0.0);
    let page = html::page(&report).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("other") && page.contains("All replies were correct"));
    for outside in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs nothing from elsewhere: {outside}");
    }
    let table = report.to_string();
    assert!(table.contains("direct") && table.contains("2 rounds"), "{table}");
}

#[derive(Default)]
struct Order {
    rounds: Vec<String>,
    pulses: usize,
}

impl Progress for Order {
    fn on(&mut self, event: Event<'_>) {
        match event {
            Event::RoundStarted { target, round, .. } => {
                self.rounds.push(format!("{target} {round}"));
            }
            Event::Pulse(_) => self.pulses += 1,
            Event::Preparing { .. } | Event::RoundEnded { .. } => {}
        }
    }
}

/// The commands that a server gets in two runs with one seed are the same.
#[test]
fn a_run_can_be_repeated() {
    let counts = |seed: u64| {
        let server = RedisServer::start();
        let mut options = options(Scenario::Viral, &server);
        options.pace = Pace::Rate(1_000.0);
        options.shape.seed = seed;
        options.keep_keys = true;
        options.warmup = Duration::ZERO;
        let report = verified(&options);
        let target = &report.targets[0];
        assert_eq!(target.unsent, 0, "{report}");
        (target.reads, target.writes)
    };
    assert_eq!(counts(7), counts(7));
    assert_ne!(counts(7), counts(8));
}

#[test]
fn a_server_that_goes_and_comes_back_is_survived() {
    let mut server = RedisServer::start();
    let mut options = options(Scenario::Zipf, &server);
    options.duration = Duration::from_secs(2);
    let report = thread::scope(|scope| {
        let before = server.calls("get");
        let running = scope.spawn(|| run(&options, &AtomicBool::new(false), &mut ()));
        eventually(Duration::from_secs(10), || server.calls("get") > before + 100);
        server.restart();
        running.join().expect("no panic").expect("a report")
    });
    let target = &report.targets[0];
    assert!(target.reconnects > 0 && target.errors.count > 0, "{report}");
    // The server has forgotten everything, and that is said.
    assert!(target.mismatches.kinds.contains_key("missing value"), "{report}");
}

#[test]
fn a_server_that_dies_still_gives_a_report() {
    let mut server = RedisServer::start();
    let mut options = options(Scenario::Counter, &server);
    options.duration = Duration::from_secs(1);
    options.warmup = Duration::ZERO;
    options.upstreams = vec![server.url().parse().unwrap()];
    let report = thread::scope(|scope| {
        let running = scope.spawn(|| run(&options, &AtomicBool::new(false), &mut ()));
        eventually(Duration::from_secs(10), || server.calls("incr") > 100);
        server.kill();
        running.join().expect("no panic").expect("a report")
    });
    let target = &report.targets[0];
    assert!(target.requests > 0 && target.errors.count > 0, "{report}");
    assert_eq!(target.upstream, None, "not known, so not said");
    assert_eq!(target.mismatches.count, 0, "what is unknown is no mismatch: {report}");
}

#[test]
fn nothing_is_written_unless_all_targets_are_there() {
    let (server, mut gone) = (RedisServer::start(), RedisServer::start());
    let mut options = options(Scenario::Zipf, &server);
    options.targets.push(target("gone", &gone));
    gone.kill();
    let error = run(&options, &AtomicBool::new(false), &mut ()).unwrap_err().to_string();
    assert!(error.contains(&gone.port().to_string()), "{error}");
    assert_eq!(server.calls("set"), 0);
}

struct StopAtOnce<'a>(&'a AtomicBool);

impl Progress for StopAtOnce<'_> {
    fn on(&mut self, event: Event<'_>) {
        if matches!(event, Event::Pulse(_)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_wish_to_stop_is_heard() {
    let server = RedisServer::start();
    let mut options = options(Scenario::Zipf, &server);
    options.duration = Duration::from_secs(600);
    let stop = AtomicBool::new(false);
    let report = run(&options, &stop, &mut StopAtOnce(&stop)).unwrap();
    assert!(report.stopped && report.targets[0].requests > 0, "{report}");
    assert_eq!((report.errors(), report.mismatches()), (0, 0), "{report}");
    assert!(report.targets[0].requests_per_second > 1.0, "by the time that it really took");
}

#[test]
fn passwords_and_databases() {
    let server = RedisServer::builder().arg("requirepass", "s3cret").start();
    let mut options = options(Scenario::Zipf, &server);
    let url = |password: &str| format!("direct=redis://:{password}@{}/3", server.addr());
    options.targets = vec![Target::parse(&url("wr0ng")).unwrap()];
    let error = run(&options, &AtomicBool::new(false), &mut ()).unwrap_err().to_string();
    assert!(error.contains("WRONGPASS") && !error.contains("wr0ng"), "{error}");
    options.targets = vec![Target::parse(&url("s3cret")).unwrap()];
    options.keep_keys = true;
    let report = verified(&options);
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("s3cret") && json.contains("/3"));
    let mut client = server.client();
    client.command(&["AUTH", "s3cret"]);
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(0));
    client.command(&["SELECT", "3"]);
    assert!(client.command(&["DBSIZE"]).integer() >= 200);
}

#[test]
fn encrypted_targets() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let mut options = options(Scenario::Counter, &server);
    let files = heatsink_tls::ClientFiles {
        ca: Some(certificates.ca().to_path_buf()),
        certificate: Some(certificates.client().certificate().to_path_buf()),
        key: Some(certificates.client().key().to_path_buf()),
        ..heatsink_tls::ClientFiles::default()
    };
    options.tls = Some(heatsink_tls::ClientTls::load(files).unwrap());
    options.pipeline = 16;
    options.value_bytes = 5_000;
    let report = verified(&options);
    assert!(report.targets[0].url.starts_with("rediss://"));
    assert!(report.targets[0].requests > 100, "{report}");
}
