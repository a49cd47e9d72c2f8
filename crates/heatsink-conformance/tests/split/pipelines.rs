//! Requests that a client sends in one piece: those to shards go with those to other keys.

use std::collections::BTreeMap;
use std::time::Duration;

use heatsink_cluster::slot;
use heatsink_conformance::ClusterRig;
use heatsink_detect::config::Settings;
use heatsink_proxy::Detector;
use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, eventually};

use crate::hand::Mover;

const WINDOW_S: u32 = 8;

struct Rig {
    before: ClusterRig,
    mover: Mover,
    detector: Detector,
}

impl Rig {
    /// A set `split` of the members 0 to 9, which is split.
    fn new() -> Self {
        let settings = Settings {
            window_ms: WINDOW_S * 1000,
            tick_ms: 50,
            hot_threshold: 1,
            report_threshold: 1,
            ..Settings::default()
        };
        let cluster = RedisCluster::builder().replicas_per_primary(0);
        let mut rig = ClusterRig::with(cluster, |config| {
            config.workers = 1;
            config.detect = Some(settings);
        });
        let detector = rig.heatsink.take_detector().expect("it counts");
        let mover = Mover::new(&rig.heatsink.proxy().handle());
        let members = (0..10).map(|member| member.to_string());
        let add: Vec<String> =
            ["SADD".to_owned(), "split".to_owned()].into_iter().chain(members).collect();
        // Past the proxy, which counts what it is asked.
        let owner = rig.cluster.owner_of(slot::of_key(b"split"));
        rig.cluster.node(owner).client().command(&add);
        assert!(mover.split(b"split", 8));
        Self { before: rig, mover, detector }
    }

    /// How often each key was read and written, once so much was counted in all.
    fn counts(&mut self, total: u64) -> BTreeMap<String, (u64, u64)> {
        let whole = |rate: f64| (rate * f64::from(WINDOW_S)).round() as u64;
        let mut report = self.detector.tick();
        eventually(Duration::from_secs(10), || {
            report = self.detector.tick();
            whole(report.reads_per_second + report.writes_per_second) >= total
        });
        let entry = |heat: &heatsink_detect::heat::KeyHeat| {
            let name = String::from_utf8_lossy(&heat.key).into_owned();
            (name, (whole(heat.reads_per_second), whole(heat.writes_per_second)))
        };
        report.keys.iter().map(entry).collect()
    }
}

/// Sends all in one piece; the replies.
fn together(client: &mut RawClient, commands: &[String]) -> Vec<Reply> {
    let words = |command: &String| encode(&command.split(' ').collect::<Vec<_>>());
    client.send_raw(&commands.iter().flat_map(words).collect::<Vec<u8>>());
    commands.iter().map(|_| client.read_reply()).collect()
}

/// What goes to shards, to other keys and to all shards comes back in order, and everything is
/// counted once under the name that the client knows.
#[test]
fn every_request_of_a_pipeline_is_answered_in_its_place_and_counted() {
    let mut rig = Rig::new();
    let mut client = rig.before.client();
    let mut commands = Vec::new();
    let mut wanted = Vec::new();
    for number in 0..30 {
        commands.push(format!("SET plain{} {number}", number % 5));
        wanted.push(Reply::ok());
        commands.push(format!("SADD split {number}"));
        wanted.push(Reply::Integer(i64::from(number >= 10)));
        commands.push(format!("SISMEMBER split {}", number + 1));
        wanted.push(Reply::Integer(i64::from(number < 9)));
        commands.push(format!("GET plain{}", number % 5));
        wanted.push(Reply::Bulk(number.to_string().into_bytes()));
        if number % 10 == 4 {
            commands.push("SCARD split".to_owned());
            wanted.push(Reply::Integer(10.max(number + 1)));
        }
    }
    assert_eq!(together(&mut client, &commands), wanted);
    assert!(rig.mover.is_split(b"split") && rig.mover.forced() == 0);
    let counts = rig.counts(commands.len() as u64);
    let plain = (0..5).map(|number| (format!("plain{number}"), (6, 6)));
    let expected: BTreeMap<_, _> = plain.chain([("split".to_owned(), (33, 30))]).collect();
    assert_eq!(counts, expected);
}

/// More than a client may have out at once, and than a buffer holds.
#[test]
fn a_pipeline_of_any_length_reaches_its_shards() {
    let rig = Rig::new();
    let mut client = rig.before.client();
    let add = |number: usize| format!("SADD split member{number}");
    let commands: Vec<String> = (0..20_000).map(add).collect();
    let replies = together(&mut client, &commands);
    assert!(replies.iter().all(|reply| *reply == Reply::Integer(1)));
    assert_eq!(client.command(&["SCARD", "split"]), Reply::Integer(20_010));
    assert!(rig.mover.is_split(b"split") && rig.mover.forced() == 0);
}
