//! Proxies of which there are only the reports and the heartbeats.
//!
//! Called by: `reports`.
//! Bound: `IN_FLIGHT` reports that Redis has not answered for; further ones count as failed.
//! Invariant: reports are sent when they are due, whether or not the ones before were taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heatsink_control::value::ValueKind;
use heatsink_control::wire::{Counts, KeyRecord, Report};
use heatsink_coordination::{Channel, Settings, Store};
use heatsink_testkit::RedisServer;
use tokio::time::MissedTickBehavior;

use crate::fleet::Effort;

/// Keys that all proxies report, each of them hot in the sum ...
pub(super) const SHARED_KEYS: usize = 50;
/// ... keys that one proxy reports alone, and one that all begin to report at the same time.
pub(super) const OWN_KEYS: usize = 49;
/// Requests/s of every key.
pub(super) const READS_LEAST: u64 = 100;
pub(super) const READS_SPREAD: u64 = 32;
pub(super) const TICK: Duration = Duration::from_millis(50);
/// Proxies do not report in step.
const PHASES: u32 = 10;
const HEARTBEAT: Duration = Duration::from_millis(250);
const MEMBER_LIFE: Duration = Duration::from_secs(2);
/// Between two keys that begin.
pub(super) const NEW_KEY: Duration = Duration::from_secs(2);
const IN_FLIGHT: u64 = 4_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// What was sent.
pub(super) struct Sent {
    pub(super) due: u64,
    /// By Redis.
    pub(super) taken: u64,
    pub(super) failed: u64,
    /// When the first report with each new key was sent.
    pub(super) new_keys_at: Vec<Instant>,
}

/// Members of the fleet that an aggregator knows of.
pub(super) struct Proxies {
    store: Store,
    proxies: Vec<Simulated>,
}

/// Joins the fleet, and waits until the aggregator `knows` all: one that has been alone so far hears
/// what is said to it a moment later.
pub(super) async fn join(
    effort: &Effort,
    redis: &RedisServer,
    knows: impl Fn(usize) -> bool,
) -> Result<Proxies, String> {
    let settings = Settings::new("default").map_err(|error| error.to_string())?;
    let url = redis.url().parse().map_err(|_| "the server has no address")?;
    let store = Store::redis(&url, None, settings).map_err(|error| error.to_string())?;
    let proxies: Vec<Simulated> = (0..effort.simulated_proxies).map(Simulated::new).collect();
    let begun = Instant::now();
    while !knows(proxies.len()) {
        if begun.elapsed() > PATIENCE {
            return Err("the aggregator does not notice that it has company".to_owned());
        }
        for proxy in &proxies {
            proxy.beat(&store).await?;
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(Proxies { store, proxies })
}

/// Reports and beats for all proxies, until the time is up and Redis has answered.
pub(super) async fn simulate(effort: &Effort, proxies: Proxies) -> Result<Sent, String> {
    let Proxies { store, proxies } = proxies;
    let (taken, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut sent = Sent { due: 0, taken: 0, failed: 0, new_keys_at: Vec::new() };
    let mut ticks = tokio::time::interval(TICK / PHASES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let begun = Instant::now();
    let phases_per_beat = (HEARTBEAT.as_millis() / (TICK / PHASES).as_millis()) as usize;
    let end = Duration::from_secs(effort.report_seconds);
    for step in 0_u64.. {
        ticks.tick().await;
        let elapsed = begun.elapsed();
        if elapsed >= end {
            break;
        }
        // None in the last second: there must be time to notice it.
        let number = (elapsed.as_millis() / NEW_KEY.as_millis()) as usize;
        if number == sent.new_keys_at.len() && elapsed + Duration::from_secs(1) < end {
            sent.new_keys_at.push(Instant::now());
        }
        let new_key = new_key_name(sent.new_keys_at.len().saturating_sub(1));
        for proxy in
            proxies.iter().skip((step % u64::from(PHASES)) as usize).step_by(PHASES as usize)
        {
            sent.due += 1;
            let (taken, failed) = (Arc::clone(&taken), Arc::clone(&failed));
            let gone = taken.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed);
            if sent.due - gone > IN_FLIGHT {
                failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let body = proxy.report(step, &new_key);
            let store = store.clone();
            tokio::spawn(async move {
                let outcome = store.publish(Channel::Reports, body).await;
                let count = if outcome.is_ok() { taken } else { failed };
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        for proxy in proxies.iter().skip(step as usize % phases_per_beat).step_by(phases_per_beat) {
            let (store, proxy) = (store.clone(), proxy.clone());
            // One that fails is followed by others before the member counts as gone.
            tokio::spawn(async move { proxy.beat(&store).await });
        }
    }
    let all_ended = async {
        while taken.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed) < sent.due {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, all_ended).await.map_err(|_| "reports are still under way")?;
    (sent.taken, sent.failed) = (taken.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    Ok(sent)
}

pub(super) fn shared_key_name(number: usize) -> String {
    format!("shared:key:{number:06}")
}

pub(super) fn new_key_name(number: usize) -> String {
    format!("new:{number}")
}

/// A proxy of which there are only the reports.
#[derive(Clone)]
struct Simulated {
    id: String,
    keys: Vec<String>,
}

impl Simulated {
    fn new(number: usize) -> Self {
        let shared = (0..SHARED_KEYS).map(shared_key_name);
        let own = (0..OWN_KEYS).map(|key| format!("own:{number:04}:key:{key:06}"));
        Self { id: format!("simulated-{number:04}"), keys: shared.chain(own).collect() }
    }

    async fn beat(&self, store: &Store) -> Result<(), String> {
        let card = br#"{"role":"proxy","version":"simulated"}"#;
        let beaten = store.heartbeat(&self.id, card, MEMBER_LIFE).await;
        beaten.map(drop).map_err(|error| error.to_string())
    }

    /// Each key is below the threshold by itself, and hot if ten proxies report it.
    fn report(&self, sequence: u64, new_key: &str) -> Vec<u8> {
        let names = self.keys.iter().map(String::as_str).chain([new_key]);
        let mut keys = Vec::with_capacity(self.keys.len() + 1);
        for key in names.map(str::as_bytes) {
            let reads = READS_LEAST + fastrand::u64(..READS_SPREAD);
            let counts = Counts { reads, error: 2, bytes: reads * 100, ..Counts::default() };
            keys.push(KeyRecord { key, value: ValueKind::Unknown, counts });
        }
        let all: u64 = keys.iter().map(|key| key.counts.reads).sum();
        Report {
            member: &self.id,
            boot: 1,
            sequence: sequence + 1,
            reads_per_second: all,
            writes_per_second: 0,
            keys,
        }
        .encode()
    }
}
