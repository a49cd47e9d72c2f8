//! `GET` of a split counter: how many commands it takes, how many round trips, and how long.
//!
//! Called by: `split`.
//! Bound: the rounds asked for, [`READS`] of each key a round; a primary is stopped for
//! `PATIENCE` at most.
//! Invariant: both keys are read by one client through one process, in turns. That the commands
//! do not wait for each other is not judged by time, which on one machine is that of the work:
//! each primary gets its part while the others are stopped.

use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply, encode, poll_until};

use super::rig::Rig;
use super::{Effort, FACTOR};
use crate::ratios::ratios;
use crate::section::{Goal, Section};
use crate::spread::Spread;
use crate::summary;

const READS: usize = 2_000;
/// Below the time after which a cluster thinks that a node has failed.
const PATIENCE: Duration = Duration::from_millis(300);
/// Whoever moves values looks at the shards now and then, with a `GET` of each.
const OF_LOOKS: f64 = 0.01;
const SPLIT: &str = "get:split";
const WHOLE: &str = "get:whole";

/// What a read of a counter takes.
pub(crate) fn of_a_counter(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    let mut client = rig.client()?;
    for key in [SPLIT, WHOLE] {
        client.try_command(&["SET", key, "1000"]).map_err(|error| format!("{key}: {error}"))?;
    }
    rig.split(SPLIT)?;
    let [mut split_us, mut whole_us] = [Vec::new(), Vec::new()];
    let mut commands: u64 = 0;
    for _ in 0..effort.rounds {
        whole_us.push(read(&mut client, WHOLE)?);
        let before: u64 = rig.calls(|name| name == "get").iter().sum();
        split_us.push(read(&mut client, SPLIT)?);
        commands += rig.calls(|name| name == "get").iter().sum::<u64>() - before;
    }
    let alone = (0..3).map(|node| sent_alone(&rig, &mut client, node)).sum::<Result<u64, _>>()?;
    let per_get = commands as f64 / (effort.rounds * READS) as f64;
    let median = |rounds: &[Spread], figure: fn(&Spread) -> f64| {
        summary::median(rounds.iter().map(figure).collect()).unwrap_or(f64::NAN)
    };
    let p50s = |rounds: &[Spread]| rounds.iter().map(|spread| spread.p50).collect::<Vec<_>>();
    let ratio = ratios(&p50s(&split_us), &p50s(&whole_us));
    let mut section = Section::new(
        "GET of a split counter, one client",
        "key",
        &["p50 µs", "p99 µs", "p50 ÷ whole", "its quartiles", "commands per GET"],
    );
    section.notes = vec![format!(
        "{} rounds of {READS} reads each, in turns; split into {FACTOR} over three primaries",
        effort.rounds
    )];
    let of = |rounds: &[Spread]| {
        [median(rounds, |spread| spread.p50), median(rounds, |spread| spread.p99)]
            .map(|figure| format!("{figure:.0}"))
    };
    let none = ["1".to_owned(), String::new(), "1".to_owned()];
    section.row("whole", of(&whole_us).into_iter().chain(none));
    let rest = [
        format!("{:.3}", ratio.median),
        format!("{:.2} to {:.2}", ratio.lower, ratio.upper),
        format!("{per_get:.3}"),
    ];
    section.row("split", of(&split_us).into_iter().chain(rest));
    section.goals = vec![
        Goal::of_fact(
            "commands per GET of a split counter: one for each shard",
            FACTOR.to_string(),
            format!("{per_get:.3}"),
            (per_get - f64::from(FACTOR)).abs() < OF_LOOKS,
        ),
        Goal::of_fact(
            "of these, those that reach their primary while the other two are stopped",
            FACTOR.to_string(),
            alone.to_string(),
            alone == u64::from(FACTOR),
        ),
    ];
    Ok(section)
}

/// How many of the commands of one `GET` a primary gets while the other two are stopped.
fn sent_alone(rig: &Rig, client: &mut RawClient, node: usize) -> Result<u64, String> {
    let calls = || rig.calls_at(node, "get");
    let before = calls();
    let stopped = rig.stop_all_but(node)?;
    client.try_send_raw(&encode(&["GET", SPLIT])).map_err(|error| format!("{SPLIT}: {error}"))?;
    // A primary with fewer than the most is watched for as long as anything could come.
    let most = u64::from(FACTOR.div_ceil(3));
    let mut come = 0;
    poll_until(PATIENCE, || {
        come = calls() - before;
        come >= most
    });
    drop(stopped);
    match client.try_read_reply() {
        Ok(reply) if reply == Reply::bulk("1000") => Ok(come),
        Ok(reply) => Err(format!("GET {SPLIT} answered {reply}")),
        Err(error) => Err(format!("GET {SPLIT}: {error}")),
    }
}

/// Microseconds of reads, one after the other.
fn read(client: &mut RawClient, key: &str) -> Result<Spread, String> {
    let mut took = Vec::with_capacity(READS);
    for _ in 0..READS {
        let begun = Instant::now();
        let reply = client.try_command(&["GET", key]).map_err(|error| format!("{key}: {error}"))?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
        if reply != Reply::bulk("1000") {
            return Err(format!("GET {key} answered {reply}"));
        }
    }
    Ok(Spread::of(took))
}
