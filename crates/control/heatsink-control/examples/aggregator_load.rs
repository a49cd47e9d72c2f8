//! How much of a core one aggregator needs: 200 proxies, 100 keys each, 20 reports a second.
//!
//! `cargo run --release -p heatsink-control --example aggregator_load`
//!
//! Two cases: all proxies see the same keys, and each sees its own. Prints the time for
//! reading and summing one report, for one tick, and the share of a core of both together.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_control::aggregate::Aggregator;
use heatsink_control::member::Member;
use heatsink_control::policy::{Mode, Policies, Rights, Rule};
use heatsink_control::registry::{Registry, Snapshot};
use heatsink_control::settings::Settings;
use heatsink_control::value::ValueKind;
use heatsink_control::wire::{Counts, KeyRecord, Report, WireError};

const PROXIES: usize = 200;
const KEYS: usize = 100;
const TICKS_PER_SECOND: u32 = 20;
const ROUNDS: u32 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    for (name, own_keys) in [("the same keys everywhere", false), ("each its own keys", true)] {
        let (report, tick, worst) = measure(own_keys)?;
        let a_second = (report * PROXIES as u32 + tick) * TICKS_PER_SECOND;
        println!(
            "{name}: a report of {KEYS} keys {report:?}, a tick {tick:?} (worst {worst:?}), \
             {:.1} % of a core",
            a_second.as_secs_f64() * 100.0
        );
    }
    Ok(())
}

/// Mean time of a report and of a tick, and the longest tick.
fn measure(own_keys: bool) -> Result<(Duration, Duration, Duration), WireError> {
    let ids: Vec<String> = (0..PROXIES).map(|number| format!("proxy-{number}")).collect();
    let member = |id: &String| Member { id: id.clone(), proxy: true, aggregator: false };
    let members: Vec<Member> = ids.iter().map(member).collect();
    let rules = (0..8).map(|number| Rule {
        pattern: format!("tenant{number}:*").into_bytes(),
        mode: Mode::Exact,
        rights: Rights { hot_threshold: Some(500), ..Rights::default() },
    });
    let policies = Arc::new(Policies::new(rules.collect()).unwrap_or_default());
    let mut aggregator = Aggregator::new(Duration::ZERO, Settings::default(), policies);
    let mut registry = Registry::new();
    registry.begin_snapshot();
    let incarnation = b"one".to_vec();
    registry.on_snapshot(Duration::ZERO, Snapshot { incarnation, ..Snapshot::default() });

    let (mut reporting, mut ticking) = (Duration::ZERO, Duration::ZERO);
    let mut worst = Duration::ZERO;
    for round in 0..ROUNDS {
        let now = Duration::from_millis(50) * (round + 1);
        let reports = reports(&ids, u64::from(round), own_keys);
        let start = Instant::now();
        for bytes in &reports {
            aggregator.on_report(now, &Report::decode(bytes)?);
        }
        reporting += start.elapsed();
        aggregator.on_members(now, &members);
        let start = Instant::now();
        std::hint::black_box(aggregator.tick(now, &mut registry));
        let took = start.elapsed();
        ticking += took;
        worst = worst.max(took);
    }
    Ok((reporting / (ROUNDS * PROXIES as u32), ticking / ROUNDS, worst))
}

fn reports(ids: &[String], round: u64, own_keys: bool) -> Vec<Vec<u8>> {
    let report = |(number, id): (usize, &String)| {
        let owner = if own_keys { number } else { 0 };
        let names: Vec<String> =
            (0..KEYS).map(|key| format!("session:{owner}:user:{key:08}")).collect();
        let record = |(place, name): (u64, &'_ String)| Counts {
            reads: 5 + (place + round) % 40 + name.len() as u64,
            writes: place % 3,
            bytes: 20_000,
            ..Counts::default()
        };
        let keys = names
            .iter()
            .zip(0..)
            .map(|(name, place)| KeyRecord {
                key: name.as_bytes(),
                value: ValueKind::String,
                counts: record((place, name)),
            })
            .collect();
        Report { member: id, boot: 1, sequence: round + 1, keys, ..Report::default() }.encode()
    };
    ids.iter().enumerate().map(report).collect()
}
