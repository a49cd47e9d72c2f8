//! How the reads of one large value lie over the primaries, before and after it has copies.
//!
//! Called by: `split`.
//! Bound: two runs of `redis-benchmark`.
//! Invariant: the primaries count themselves.

use super::Effort;
use super::balance::uneven;
use super::rig::Rig;
use crate::benchmark;
use crate::section::{Goal, Section};

/// Reads at the busiest primary, as a multiple of the mean.
const UNEVEN_MAX: f64 = 1.10;
const VALUE_BYTES: usize = 100 << 10;
/// A request moves as many bytes as hundreds of small ones.
const SHARE_OF_REQUESTS: u64 = 10;
const CLIENTS: &str = "48";
/// Reads at a time until copies are read from, and how often.
const WARM_UP: u64 = 500;
const ATTEMPTS: usize = 200;
const KEY: &str = "copies:large";

/// Reads per primary.
pub(crate) fn over_primaries(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    let mut section = Section::new(
        "Reads of a hot value of 100 KiB over three primaries",
        "case",
        &["max ÷ mean", "reads per request", "at each primary"],
    );
    let requests = (effort.requests / SHARE_OF_REQUESTS).max(1000);
    section.notes = vec![
        format!(
            "{requests} times GET, {CLIENTS} clients, as fast as they can, once the copies are \
             filled"
        ),
        "without copies the value becomes hot by its bytes, and equal reads are joined".to_owned(),
    ];
    let value = "x".repeat(VALUE_BYTES);
    let failed = |error: std::io::Error| format!("{KEY}: {error}");
    rig.client()?.try_command(&["SET", KEY, &value]).map_err(failed)?;
    let whole = measure(&rig, requests)?;
    rig.copy(KEY)?;
    wait_for_copies(&rig)?;
    let copied = measure(&rig, requests)?;
    rig.make_whole(KEY)?;
    for (case, counts) in [("without copies", &whole), ("with copies", &copied)] {
        let each = counts.iter().map(ToString::to_string).collect::<Vec<_>>();
        section.row(
            case,
            [
                format!("{:.3}", uneven(counts)),
                format!("{:.2}", counts.iter().sum::<u64>() as f64 / requests as f64),
                each.join(", "),
            ],
        );
    }
    let (before, after) = (uneven(&whole), uneven(&copied));
    section.goals = vec![
        Goal::of_fact(
            "a large value without copies: max ÷ mean, as a check of the count",
            "about 3",
            format!("{before:.3}"),
            before > 2.8,
        ),
        Goal {
            what: "a large value with copies: reads at a primary, max ÷ mean",
            limit: format!("at most {UNEVEN_MAX}"),
            figure: format!("{after:.3}"),
            // In a short run chance has a say in which clients are faster.
            reached: effort.judges_times.then_some(after <= UNEVEN_MAX),
        },
    ];
    Ok(section)
}

/// Copies are filled by whoever reads first; until then the key is read.
fn wait_for_copies(rig: &Rig) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        if uneven(&measure(rig, WARM_UP)?) < 1.5 {
            return Ok(());
        }
    }
    Err(format!("{KEY} is read from one primary after {ATTEMPTS} times {WARM_UP} reads"))
}

fn measure(rig: &Rig, requests: u64) -> Result<Vec<u64>, String> {
    let count = || rig.calls(|name| name == "get" || name == "mget");
    let before = count();
    let args = ["-c", CLIENTS, "GET", KEY].map(str::to_owned).to_vec();
    benchmark::send(rig.target(), requests, args)?;
    Ok(count().iter().zip(before).map(|(after, before)| after - before).collect())
}
