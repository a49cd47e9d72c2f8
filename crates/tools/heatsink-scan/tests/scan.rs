//! Scans of real servers: what is found, what is limited, what is left behind.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_control::entry::Mitigation;
use heatsink_scan::report::{End, KeyReport};
use heatsink_scan::{Method, Options, Plan, ScanReport, scan};
use heatsink_testkit::{
    Certificates, RawClient, RedisCluster, RedisServer, Reply, encode, eventually,
};

fn options(url: &str) -> Options {
    Options { hot_threshold: 1.0, ..Options::new(url.parse().expect("a URL")) }
}

/// Runs `traffic` when MONITOR is seen on every server, until the scan has ended.
fn scan_during(
    options: Options,
    servers: &[&RedisServer],
    traffic: impl Fn() + Sync,
) -> ScanReport {
    let plan = Plan::make(options).expect("a plan");
    thread::scope(|scope| {
        let run = scope.spawn(|| scan::run(&plan, &AtomicBool::new(false), &mut |_| {}));
        for server in servers {
            eventually(Duration::from_secs(10), || monitors(server) == 1 || run.is_finished());
        }
        while !run.is_finished() {
            traffic();
        }
        run.join().expect("no panic").expect("a report")
    })
}

/// Connections in MONITOR mode, by the server's own list.
fn monitors(server: &RedisServer) -> usize {
    let list = server.admin_client().command(&["CLIENT", "LIST"]).text();
    list.lines().filter(|line| line.contains(" flags=O ")).count()
}

fn key<'a>(report: &'a ScanReport, key: &str) -> &'a KeyReport {
    report.keys.iter().find(|found| found.key == key).unwrap_or_else(|| panic!("{key} is missing"))
}

fn pipeline(client: &mut RawClient, requests: &[&[&str]]) {
    for request in requests {
        client.send_raw(&encode(request));
    }
    for _ in requests {
        client.read_reply();
    }
}

#[test]
fn the_hot_keys_of_a_server() {
    let server = RedisServer::start();
    let mut setup = server.client();
    setup.command(&["SET", "page", "0123456789"]);
    let fields: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let mut big = vec!["HSET", "basket"];
    big.extend(fields.iter().flat_map(|field| [field.as_str(), "1"]));
    setup.command(&big);

    let options = Options { commands_max: 3_000, ..options(&server.url()) };
    let report = scan_during(options, &[&server], || {
        let mut client = server.client();
        let mut requests: Vec<&[&str]> = vec![&["GET", "page"]; 60];
        requests.extend([&["INCR", "visits"][..]; 20]);
        requests.extend([&["SET", "setting", "on"][..]; 10]);
        requests.extend([&["HSET", "basket", "7", "2"][..]; 9]);
        requests.push(&["GET", "odd \"key\" \n"]);
        pipeline(&mut client, &requests);
    });

    assert_eq!((report.method, report.ended_by), ("monitor", End::Commands));
    assert_eq!(report.commands, 3_000);
    assert_eq!(report.lines_unreadable, 0);
    assert_eq!(report.keys_seen, 5);
    let page = key(&report, "page");
    assert!((page.share - 0.6).abs() < 0.05, "{page:?}");
    assert_eq!((page.reads, page.writes), (page.requests, 0));
    assert_eq!(page.advice.mitigation, Some(Mitigation::LocalCache));
    assert_eq!(page.value.as_ref().and_then(|value| value.bytes), Some(10));
    let visits = key(&report, "visits");
    assert_eq!((visits.increments, visits.reads), (visits.requests, 0));
    assert_eq!(visits.advice.mitigation, Some(Mitigation::Coalesce));
    assert!(visits.advice.reason.contains("increments"), "{}", visits.advice.reason);
    let setting = key(&report, "setting");
    assert_eq!(setting.advice.mitigation, Some(Mitigation::Coalesce));
    assert!(setting.advice.reason.contains("SETs"), "{}", setting.advice.reason);
    let basket = key(&report, "basket");
    assert_eq!(basket.value.as_ref().and_then(|value| value.elements), Some(10_000));
    assert_eq!(basket.advice.mitigation, Some(Mitigation::Split));
    assert!(key(&report, r#"odd \"key\" \n"#).requests > 0);
    assert_eq!(report.keys[0].key, "page", "the hottest first");

    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["keys"][0]["advice"]["mitigation"], "local_cache");
    assert_eq!(json["ended_by"], "commands");
    let table = report.to_string();
    assert!(table.contains("visits") && table.contains("coalesce"), "{table}");
    assert!(table.contains("3 000 commands on 5 keys"), "{table}");
}

#[test]
fn a_line_longer_than_any_reply_names_its_key() {
    let server = RedisServer::start();
    let big = "x".repeat(3 << 20);
    let options = Options { commands_max: 20, ..options(&server.url()) };
    let report = scan_during(options, &[&server], || {
        let mut client = server.client();
        pipeline(&mut client, &[&["SET", "big", &big], &["GET", "big"]]);
    });
    assert_eq!(report.lines_unreadable, 0);
    let big = key(&report, "big");
    assert!(big.sets > 0 && big.reads > 0, "{big:?}");
    let seconds = report.elapsed_ms as f64 / 1000.0;
    let bytes_per_set = big.bytes_written_per_second * seconds / big.sets as f64;
    assert!((bytes_per_set / f64::from(3 << 20) - 1.0).abs() < 0.1, "{bytes_per_set}");
    assert_eq!(big.value.as_ref().and_then(|value| value.bytes), Some(3 << 20));
}

#[test]
fn nothing_is_left_behind() {
    let server = RedisServer::start();
    let before = server.admin_client().command(&["CLIENT", "LIST"]).text().lines().count();
    let options = Options { commands_max: 100, ..options(&server.url()) };
    let report = scan_during(options, &[&server], || {
        server.client().command(&["GET", "k"]);
    });
    assert!(report.nodes[0].ended_cleanly);
    assert_eq!(monitors(&server), 0);
    eventually(Duration::from_secs(5), || {
        server.admin_client().command(&["CLIENT", "LIST"]).text().lines().count() <= before
    });
}

#[test]
fn a_quiet_server_ends_by_the_duration_and_a_wish_to_stop_ends_at_once() {
    let server = RedisServer::start();
    let short = Options { duration: Duration::from_millis(50), ..options(&server.url()) };
    let report = scan_during(short, &[&server], || {});
    assert_eq!(report.ended_by, End::Duration);

    let long = Options { duration: Duration::from_secs(600), ..options(&server.url()) };
    let plan = Plan::make(long).unwrap();
    let stop = AtomicBool::new(false);
    let mut ticks = 0;
    let report = scan::run(&plan, &stop, &mut |_| {
        ticks += 1;
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(report.unwrap().ended_by, End::Stopped);
    assert!(ticks >= 1);
    assert_eq!(monitors(&server), 0);
}

#[test]
fn the_cost_is_stated_before_anything_starts() {
    let server = RedisServer::start();
    let plan = Plan::make(Options { commands_max: 12_345, ..options(&server.url()) }).unwrap();
    assert_eq!(plan.method, Method::Monitor);
    let text = plan.to_string();
    assert!(text.contains("10 s or 12 345 commands, whichever comes first"), "{text}");
    assert!(text.contains("half its speed"), "{text}");
    assert!(text.contains("no HOTKEYS START"), "{text}");
    assert_eq!(server.calls("monitor"), 0);
    let refused = Plan::make(Options { method: Method::Hotkeys, ..options(&server.url()) });
    assert!(refused.unwrap_err().to_string().contains("no HOTKEYS"));
}

#[test]
fn scripts_count_once_and_databases_are_told_apart() {
    let server = RedisServer::start();
    let options = Options { commands_max: 400, ..options(&server.url()) };
    let script = "redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], 'x')";
    let report = scan_during(options, &[&server], || {
        let mut client = server.client();
        pipeline(&mut client, &[&["EVAL", script, "1", "scripted"], &["SELECT", "3"]]);
        pipeline(&mut client, &[&["GET", "there"], &["GET", "there"]]);
    });
    let scripted = key(&report, "scripted");
    assert_eq!((scripted.scripts, scripted.reads, scripted.sets), (scripted.requests, 0, 0));
    assert_eq!(scripted.value.as_ref().and_then(|value| value.bytes), Some(1));
    assert!(report.commands_in_scripts > 0);
    assert_eq!(key(&report, "there").db, 3);
}

#[test]
fn all_primaries_of_a_cluster() {
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let keys: Vec<String> = (0..3).map(|node| cluster.key_on(node, "hot")).collect();
    let nodes: Vec<&RedisServer> = cluster.nodes().collect();
    let traffic = || {
        for (node, key) in nodes.iter().zip(&keys) {
            let mut client = node.client();
            let request = ["GET", key.as_str()];
            pipeline(&mut client, &[&request[..]; 10]);
        }
    };
    let limited = |url: &str| Options { commands_max: 900, ..options(url) };
    let report = scan_during(limited(&cluster.seed_url()), &nodes, traffic);
    assert_eq!(report.nodes.len(), 3);
    assert!(report.commands <= 900, "the limit is one for all nodes");
    for (at, name) in keys.iter().enumerate() {
        let found = key(&report, name);
        assert!(found.node.contains(&nodes[at].port().to_string()), "{found:?}");
    }
    for node in &nodes {
        assert_eq!(monitors(node), 0);
    }
    // One server of it alone, unless all are asked for.
    let url = nodes[0].url();
    assert_eq!(Plan::make(options(&url)).unwrap().nodes.len(), 1);
    let all = Plan::make(Options { all_nodes: true, ..options(&url) }).unwrap();
    assert_eq!(all.nodes.len(), 3);
}

#[test]
fn a_node_that_refuses_ends_the_scan_of_all_at_once() {
    let cluster = RedisCluster::builder().replicas_per_primary(0).start();
    let nodes: Vec<&RedisServer> = cluster.nodes().collect();
    // The default user of one node may not watch.
    nodes[1].client().command(&["ACL", "SETUSER", "default", "-monitor"]);
    let long = Options { duration: Duration::from_secs(600), ..options(&cluster.seed_url()) };
    let plan = Plan::make(long).unwrap();
    let error = scan::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("NOPERM"), "{error}");
    for node in nodes {
        assert_eq!(monitors(node), 0);
    }
}

#[test]
fn a_server_that_speaks_tls() {
    let certificates = Certificates::generate();
    let server = RedisServer::builder().tls(&certificates).start();
    let files = heatsink_tls::ClientFiles {
        ca: Some(certificates.ca().to_path_buf()),
        certificate: Some(certificates.client().certificate().to_path_buf()),
        key: Some(certificates.client().key().to_path_buf()),
        ..heatsink_tls::ClientFiles::default()
    };
    let tls = Some(heatsink_tls::ClientTls::load(files).unwrap());
    let limited = Options { commands_max: 50, tls, ..options(&server.url()) };
    let report = scan_during(limited, &[&server], || {
        server.client().command(&["GET", "k"]);
    });
    assert!(key(&report, "k").reads > 0);
    assert_eq!(monitors(&server), 0);
    let without = Plan::make(options(&server.url())).unwrap_err().to_string();
    assert!(without.contains("no TLS is configured"), "{without}");
}

#[test]
fn passwords_are_used_and_never_shown() {
    let server = RedisServer::builder().arg("requirepass", "s3cret").start();
    let wrong = options(&format!("redis://:wr0ng@{}", server.addr()));
    let error = Plan::make(wrong).unwrap_err().to_string();
    assert!(error.contains("WRONGPASS") && !error.contains("wr0ng"), "{error}");
    let right = options(&format!("redis://:s3cret@{}", server.addr()));
    let plan = Plan::make(right).unwrap();
    assert!(!format!("{plan} {plan:?}").contains("s3cret"));
}

/// No server with `HOTKEYS` is at hand, so one is played: what is shown is which commands are
/// sent, in which order, and that a foreign session stays untouched.
#[test]
fn the_servers_own_tracking_is_used_where_it_is() {
    let (url, log) = play_server(false);
    let short = Options { duration: Duration::from_millis(20), ..options(&url) };
    let plan = Plan::make(short).unwrap();
    assert_eq!(plan.method, Method::Hotkeys);
    assert!(plan.to_string().contains("HOTKEYS for 0.02 s"));
    let report = scan::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!((report.method, report.keys.len()), ("hotkeys", 1));
    let cost = report.keys[0].cost.as_ref().unwrap();
    assert_eq!(
        (report.keys[0].key.as_str(), cost.cpu_us, cost.cpu_share),
        ("x", Some(75), Some(0.75))
    );
    let sent: Vec<String> = log.try_iter().filter(|line| line.starts_with("HOTKEYS")).collect();
    let expected = [
        "HOTKEYS GET",
        "HOTKEYS START METRICS 2 CPU NET COUNT 20 DURATION 1",
        "HOTKEYS STOP",
        "HOTKEYS GET",
        "HOTKEYS RESET",
    ];
    assert_eq!(sent, expected);

    let (url, log) = play_server(true);
    let error = Plan::make(options(&url)).unwrap_err().to_string();
    assert!(error.contains("somebody else"), "{error}");
    assert!(!log.try_iter().any(|line| line.contains("START") || line.contains("STOP")));
}

/// A server that knows `HOTKEYS`; the requests it got come out of the channel.
fn play_server(busy: bool) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (log, requests) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, log) = (stream.unwrap(), log.clone());
            thread::spawn(move || play(stream, busy, &log));
        }
    });
    (url, requests)
}

fn play(stream: TcpStream, busy: bool, log: &std::sync::mpsc::Sender<String>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = read_request(&mut reader) {
        let reply = match request.as_str() {
            "INFO stats" => "$29\r\ninstantaneous_ops_per_sec:5\r\n\r\n".to_owned(),
            "COMMAND INFO HOTKEYS" => format!(
                "*1\r\n*10\r\n{}*2\r\n*1\r\n$11\r\nhotkeys|get\r\n*1\r\n$13\r\nhotkeys|start\r\n",
                ":0\r\n".repeat(9)
            ),
            "HOTKEYS GET" => format!(
                "*1\r\n*10\r\n$15\r\ntracking-active\r\n:{}\r\n\
                 $25\r\nall-commands-all-slots-us\r\n:100\r\n\
                 $32\r\nnet-bytes-all-commands-all-slots\r\n:1000\r\n\
                 $22\r\ncollection-duration-ms\r\n:20\r\n\
                 $14\r\nby-cpu-time-us\r\n*2\r\n$1\r\nx\r\n:75\r\n",
                u8::from(busy)
            ),
            "TYPE x" => "+none\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        let quit = request == "QUIT";
        log.send(request).unwrap();
        writer.write_all(reply.as_bytes()).unwrap();
        if quit {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let count: usize = line.trim()[1..].parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let mut word = vec![0; line.trim()[1..].parse::<usize>().unwrap() + 2];
        reader.read_exact(&mut word).unwrap();
        words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
    }
    Some(words.join(" "))
}

#[test]
fn a_user_without_the_right_is_told_so() {
    let server = RedisServer::start();
    let mut admin = server.client();
    let created =
        admin.command(&["ACL", "SETUSER", "reader", "on", ">pw", "+@all", "-monitor", "~*"]);
    assert_eq!(created, Reply::ok());
    let plan = Plan::make(options(&format!("redis://reader:pw@{}", server.addr()))).unwrap();
    let error = scan::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("NOPERM"), "{error}");
}
