//! What is hot only in the sum is found, what is not hot is not, and what was hot ends.
//!
//! Called by: `fleet`.
//! Bound: `LIMIT` for each thing that has to happen.
//! Invariant: both keys are read at the same time, beside the same traffic.

use std::thread;
use std::time::{Duration, Instant};

use super::Effort;
use super::node::{Fleet, PROXIES};
use super::onset::{THRESHOLD, ms};
use crate::admin::What;
use crate::section::{Goal, Section};
use crate::spread::Spread;

const HOLD_SECONDS: u64 = 2;
/// On each proxy: over the threshold only in the sum.
const WARM_PER_SECOND: u32 = 400;
/// Below the threshold in the sum too.
const COLD_PER_SECOND: u32 = 100;
const COLD_KEY: &str = "sum:cold";
/// For anything to happen at all.
const LIMIT: Duration = Duration::from_secs(15);
const RETIREMENT_MS: f64 = (HOLD_SECONDS as f64 + 1.0) * 1e3;

/// Keys come and go while another one is watched.
pub(crate) fn found_and_retired(effort: &Effort) -> Result<Section, String> {
    let mut fleet = Fleet::start(effort, HOLD_SECONDS)?;
    let begun = Instant::now();
    let cold = fleet.read(COLD_KEY, COLD_PER_SECOND)?;
    let (mut found_ms, mut retired_ms) = (Vec::new(), Vec::new());
    for number in 0..effort.ends {
        let (found, retired) = life(&mut fleet, &format!("sum:warm:{number}"))?;
        found_ms.extend(found);
        retired_ms.extend(retired);
    }
    thread::sleep(Duration::from_secs(effort.cold_seconds).saturating_sub(begun.elapsed()));
    let cold_seconds = begun.elapsed().as_secs_f64();
    let is_known = |node| fleet.events.first(node, What::Registered, COLD_KEY).is_some();
    let is_found = (0..PROXIES).any(is_known);
    cold.into_iter().try_for_each(|sender| sender.stop().map(drop))?;
    fleet.end()?;

    let mut section = Section::new(
        "Hot in the sum, and the end of it",
        "ms",
        &["times", "least", "p50", "p99", "most"],
    );
    section.notes.push(format!(
        "{PROXIES} proxies; a key read {WARM_PER_SECOND} times a second on each, beside one read \
         {COLD_PER_SECOND} times a second on each; threshold {THRESHOLD} in the sum"
    ));
    section.notes.push(format!(
        "the key is read until all proxies show it and then no more; hold time {HOLD_SECONDS} s"
    ));
    for (name, figures) in
        [("first request to the last proxy", &found_ms), ("last request to its end", &retired_ms)]
    {
        let spread = Spread::of(figures.clone());
        section.row(name, [figures.len().to_string()].into_iter().chain(spread.cells()));
    }
    let all = format!("{} of {}", effort.ends, effort.ends);
    let times = |figures: &[f64]| format!("{} of {}", figures.len(), effort.ends);
    let longest = Spread::of(retired_ms.clone()).most;
    section.goals = vec![
        Goal::of_fact(
            "400 requests/s on each of three proxies: found",
            &all,
            times(&found_ms),
            found_ms.len() == effort.ends,
        ),
        Goal::of_fact(
            "100 requests/s on each of three proxies: found",
            "never",
            format!("{} in {cold_seconds:.0} s", if is_found { "found" } else { "not" }),
            !is_found,
        ),
        Goal::of_fact(
            "a key that is not read any more: retired",
            &all,
            times(&retired_ms),
            retired_ms.len() == effort.ends,
        ),
        Goal::of_time(
            "retirement on every proxy, hold time 2 s, longest",
            longest,
            RETIREMENT_MS,
            "ms",
            effort.judges_times,
        ),
    ];
    Ok(section)
}

/// How long a key took to be found by all, and to be given up by all after its last request.
fn life(fleet: &mut Fleet, key: &str) -> Result<(Option<f64>, Option<f64>), String> {
    let senders = fleet.read(key, WARM_PER_SECOND)?;
    let found = fleet.events.last_of(PROXIES, What::Registered, key, LIMIT);
    let mut sent_at = Vec::new();
    for sender in senders {
        sent_at.extend(sender.stop()?);
    }
    let (Some(first), Some(last)) = (sent_at.iter().min(), sent_at.iter().max()) else {
        return Err("nothing was sent".to_owned());
    };
    let Some(found) = found else { return Ok((None, None)) };
    let gone = fleet.events.last_of(PROXIES, What::Removed, key, LIMIT);
    Ok((Some(ms(*first, found)), gone.map(|gone| ms(*last, gone))))
}
