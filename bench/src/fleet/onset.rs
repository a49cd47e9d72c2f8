//! From a key's first request to the moment every proxy shows it as registered.
//!
//! Called by: `fleet`.
//! Bound: `LIMIT` a trial.
//! Invariant: the time that the count itself needs is taken from when requests were really
//! sent, not from the rate that was asked for.

use std::thread;
use std::time::{Duration, Instant};

use super::Effort;
use super::node::{Fleet, PROXIES};
use super::pace::crossing;
use crate::admin::What;
use crate::section::{Goal, Section};
use crate::spread::Spread;

/// By default a key is hot from so many requests within a second.
pub(crate) const THRESHOLD: usize = 1_000;
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// On each proxy: twice the threshold in the sum.
const PER_SECOND: u32 = 667;
/// What was promised to users.
const LIMIT: Duration = Duration::from_secs(5);
const P50_MS: f64 = 200.0;
const P99_MS: f64 = 300.0;
const TICK: Duration = Duration::from_millis(50);

/// One key, in milliseconds.
struct Trial {
    /// From the first request until all proxies showed it.
    whole: f64,
    /// From the first request until the count was over the threshold.
    count: f64,
    /// What is left: negative if a proxy was sure before.
    after: f64,
}

/// Delays over all trials.
pub(crate) fn delays(effort: &Effort) -> Result<Section, String> {
    let mut fleet = Fleet::start(effort, 1)?;
    let mut trials = Vec::new();
    for number in 0..effort.trials {
        trials.extend(trial(&mut fleet, &format!("onset:{number}"))?);
        // Not in step with the ticks of the proxies.
        thread::sleep(TICK + TICK.mul_f64(fastrand::f64()));
    }
    fleet.end()?;
    let mut section = Section::new(
        "From onset to mitigation on every proxy",
        "ms",
        &["least", "p50", "p99", "most"],
    );
    section.notes.push(format!(
        "{PROXIES} proxies, each an aggregator too, one Redis for data and fleet; beside the key \
         {} requests/s of Zipf-distributed keys on each",
        effort.background_per_second
    ));
    section.notes.push(format!(
        "{} keys, one after the other, each from 0 to {} requests/s in the sum; threshold \
         {THRESHOLD}",
        effort.trials,
        PER_SECOND * PROXIES as u32
    ));
    for (name, figure) in [
        ("first request to the last proxy", (|trial| trial.whole) as fn(&Trial) -> f64),
        ("of that, until the count was over the threshold", |trial| trial.count),
        ("after that", |trial| trial.after),
    ] {
        let spread = Spread::of(trials.iter().map(figure).collect());
        section.row(name, spread.cells());
    }
    let after = Spread::of(trials.iter().map(|trial| trial.after).collect());
    let whole = Spread::of(trials.iter().map(|trial| trial.whole).collect());
    let judged = effort.judges_times;
    section.goals = vec![
        Goal::of_fact(
            "keys that every proxy came to know within 5 s",
            format!("all {}", effort.trials),
            trials.len().to_string(),
            trials.len() == effort.trials,
        ),
        Goal::of_time("onset after the count, p50", after.p50, P50_MS, "ms", judged),
        Goal::of_time("onset after the count, p99", after.p99, P99_MS, "ms", judged),
        Goal::of_time("onset, longest", whole.most, LIMIT.as_millis() as f64, "ms", judged),
    ];
    Ok(section)
}

/// Nothing if a proxy did not show the key in time.
fn trial(fleet: &mut Fleet, key: &str) -> Result<Option<Trial>, String> {
    let senders = fleet.read(key, PER_SECOND)?;
    let last = fleet.events.last_of(PROXIES, What::Registered, key, LIMIT);
    let mut sent_at = Vec::new();
    for sender in senders {
        sent_at.extend(sender.stop()?);
    }
    let crossed = crossing(&mut sent_at, THRESHOLD, WINDOW);
    let (Some(first), Some(last)) = (sent_at.first(), last) else { return Ok(None) };
    let crossed = crossed.unwrap_or(last);
    Ok(Some(Trial {
        whole: ms(*first, last),
        count: ms(*first, crossed),
        after: ms(crossed, last),
    }))
}

/// Milliseconds from one moment to the other, which may be the earlier.
pub(crate) fn ms(from: Instant, to: Instant) -> f64 {
    let ahead = to.saturating_duration_since(from).as_secs_f64();
    let behind = from.saturating_duration_since(to).as_secs_f64();
    (ahead - behind) * 1e3
}
