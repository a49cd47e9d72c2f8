//! How long it takes from a key's first request to the report that names it.
//!
//! Called by: `detect`.
//! Bound: a run for each phase, of at most five seconds of virtual time.
//! Invariant: time is virtual and requests are evenly spaced, so the figures are exact and do
//! not depend on the machine.

use std::time::Duration;

use super::Effort;
use super::rig::{Rig, THRESHOLD, TICK, TICKS_PER_SECOND, is_onset};
use super::stream::Zipf;
use crate::section::{Goal, Section};

const BACKGROUND_KEYS: usize = 10_000;
/// The ranks before this are hot themselves and are left out.
const COOL_RANKS: usize = 100;
const LIMIT: Duration = Duration::from_secs(5);

/// Delays by how far after a tick the key begins.
pub(crate) fn delays(effort: &Effort) -> Section {
    let zipf = Zipf::new(BACKGROUND_KEYS);
    let mut section = Section::new(
        "From onset to report, tick 50 ms, virtual time",
        "ms",
        &["least", "median", "most", "an exact count at the same ticks: most"],
    );
    section.notes.push(format!(
        "the key begins {} different times after a tick; beside it {} requests/s of other keys",
        effort.phases, 30_000,
    ));
    for (what, factor, goal_ms) in
        [("at twice the threshold", 2, 600), ("at ten times the threshold", 10, 160)]
    {
        let mut delays_ms = Vec::new();
        let mut exact_ms = Vec::new();
        for phase in 0..effort.phases {
            let offset = TICK * phase / effort.phases;
            let delay = onset(&zipf, factor * THRESHOLD, offset, u64::from(phase) + 1);
            delays_ms.push(delay.map_or(u128::MAX, |(named, _)| named.as_millis()));
            exact_ms.extend(delay.map(|(_, exact)| exact.as_millis()));
        }
        delays_ms.sort_unstable();
        let most = delays_ms[delays_ms.len() - 1];
        let cells = [delays_ms[0], delays_ms[delays_ms.len() / 2], most];
        let exact = exact_ms.into_iter().max().unwrap_or_default();
        section.row(what, cells.into_iter().chain([exact]).map(|ms| ms.to_string()));
        section.goals.push(Goal {
            what: if factor == 2 { "onset at twice the threshold" } else { "onset at ten times" },
            limit: format!("at most {goal_ms} ms"),
            figure: format!("{most} ms"),
            reached: Some(most <= goal_ms),
        });
    }
    section
}

/// When the key was named, and when an exact count would have named it, after its first
/// request; nothing when it was never named.
fn onset(zipf: &Zipf, rate: u32, offset: Duration, seed: u64) -> Option<(Duration, Duration)> {
    let rising = BACKGROUND_KEYS + COOL_RANKS;
    let mut rig = Rig::new(rising + 1, seed);
    let begin = Duration::from_secs(1) + offset;
    let mut next = begin;
    let mut exact = None;
    while rig.now < LIMIT {
        for _ in 0..30_000 / TICKS_PER_SECOND {
            let key = COOL_RANKS + zipf.draw(&mut rig.random);
            rig.request(key);
        }
        while next < rig.now + TICK {
            rig.request(rising);
            next += Duration::from_secs(1) / rate;
        }
        let (_, events) = rig.tick();
        let delay = rig.now.saturating_sub(begin);
        if rig.exact(rising as u64) >= THRESHOLD {
            exact.get_or_insert(delay);
        }
        if events.iter().any(|event| is_onset(event, rising)) {
            return Some((delay, exact.unwrap_or(delay)));
        }
    }
    None
}
