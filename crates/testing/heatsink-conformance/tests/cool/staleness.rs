//! How old a value may be that is served, when somebody else writes all the time.
//!
//! `HEATSINK_STALENESS_READS` says how many reads there are, and with
//! `HEATSINK_STALENESS=strict` the bound is that of a machine which does nothing else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, RedisServer, Reply};

/// Time between two writes.
const PACE: Duration = Duration::from_millis(5);
/// Readers of each Heatsink.
const READERS: usize = 2;

fn reads() -> u64 {
    let number = std::env::var("HEATSINK_STALENESS_READS").ok();
    number.map_or(20_000, |text| text.parse().expect("a number"))
}

fn bound() -> Duration {
    let strict = std::env::var("HEATSINK_STALENESS").is_ok_and(|text| text == "strict");
    Duration::from_millis(if strict { 5 } else { 250 })
}

/// When each version was acknowledged to its writer; the first is version 0.
#[derive(Default)]
struct Acknowledged(RwLock<Vec<Instant>>);

impl Acknowledged {
    fn push(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }

    fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn at(&self, version: usize) -> Instant {
        self.0.read().unwrap_or_else(PoisonError::into_inner)[version]
    }
}

/// Reads until enough have been; returns how stale each was.
fn read(proxy: SocketAddr, acknowledged: &Acknowledged, left: &AtomicU64) -> Vec<Duration> {
    let mut client = RawClient::connect(proxy);
    let (mut seen, mut staleness) = (0, Vec::new());
    let one_less = |left: u64| left.checked_sub(1);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        // Versions below this number were acknowledged before the read is sent.
        let known = acknowledged.count();
        let reply = client.command(&["GET", "k"]);
        let now = Instant::now();
        let version: usize = reply.text().parse().expect("a version");
        assert!(version >= seen, "{version} after {seen}");
        seen = version;
        let missing = version + 1;
        staleness.push(if missing < known {
            now.saturating_duration_since(acknowledged.at(missing))
        } else {
            Duration::ZERO
        });
    }
    staleness
}

/// A read that was sent after a version was acknowledged, and returns an older one, is stale by
/// the time since the oldest version that it misses was acknowledged.
#[test]
fn what_others_write_is_seen_soon() {
    let server = RedisServer::start();
    let mut direct = server.client();
    assert_eq!(direct.command(&["SET", "k", "0"]), Reply::ok());
    let acknowledged = Arc::<Acknowledged>::default();
    acknowledged.push();
    let heatsinks = [(), ()].map(|()| {
        let heatsink = Heatsink::before_url(&server.url(), |config| config.workers = 2);
        heatsink.heat(&["k"], Treatment::COHERENT);
        heatsink
    });
    let left = Arc::new(AtomicU64::new(reads()));
    let before = server.calls("get");
    let readers: Vec<_> = heatsinks
        .iter()
        .flat_map(|heatsink| [heatsink.addr(); READERS])
        .map(|proxy| {
            let (acknowledged, left) = (Arc::clone(&acknowledged), Arc::clone(&left));
            thread::spawn(move || read(proxy, &acknowledged, &left))
        })
        .collect();
    while !readers.iter().all(thread::JoinHandle::is_finished) {
        let version = acknowledged.count().to_string();
        assert_eq!(direct.command(&["SET", "k", &version]), Reply::ok());
        acknowledged.push();
        thread::sleep(PACE);
    }
    let mut staleness: Vec<Duration> = readers
        .into_iter()
        .flat_map(|reader| reader.join().expect("nobody saw time go backwards"))
        .collect();
    staleness.sort_unstable();
    let number = staleness.len();
    assert_eq!(number as u64, reads());
    let part = |parts: usize| staleness[(number - 1) * parts / 1000];
    let (half, most, all) = (part(500), part(990), part(1000));
    let stale = staleness.iter().filter(|staleness| !staleness.is_zero()).count();
    let (asked, writes) = (server.calls("get") - before, acknowledged.count());
    println!(
        "{number} reads, {asked} of them by the server, {writes} writes: {stale} stale; \
         p50 {half:?}, p99 {most:?}, p99.9 {:?}, most {all:?}",
        part(999)
    );
    assert!(writes > 10, "hardly anything was written");
    assert!(asked < number as u64, "nothing was cached");
    assert!(most <= bound(), "p99 is {most:?}");
}
