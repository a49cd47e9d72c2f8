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

/// Figures in short; infinite if there are none.
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (figures.len() * percent).div_ceil(100).max(1);
            figures.get(rank - 1).copied().unwrap_or(f64::INFINITY)
        };
        Self { least: at(0), p50: at(50), p99: at(99), most: at(100) }
    }

    pub(crate) fn cells(&self) -> [String; 4] {
        [self.least, self.p50, self.p99, self.most].map(|figure| format!("{figure:.0}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest_above() {
        let spread = Spread::of((1..=50).rev().map(f64::from).collect());
        assert_eq!(spread.cells(), ["1", "25", "50", "50"].map(str::to_owned));
        let many = Spread::of((1..=200).map(f64::from).collect());
        assert_eq!(many.cells(), ["1", "100", "198", "200"].map(str::to_owned));
        assert!(Spread::of(Vec::new()).p50.is_infinite());
    }
}
