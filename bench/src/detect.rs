//! The detector beside its rivals: what counting costs, what it holds, what it finds.
//!
//! Called by: `main`, for `detect`.
//! Bound: about five minutes with the defaults on an idle machine, a few seconds with `--quick`.
//! Invariant: rivals are measured in the same run, in turns. Times are judged only in a whole
//! run; counts, memory and virtual time do not depend on the machine and always are.

mod accuracy;
mod allocations;
mod memory;
mod onset;
mod record;
mod rig;
mod ring;
mod rivals;
pub(crate) mod stream;
mod tick;
pub(crate) mod timing;

use std::fmt::Write as _;

use clap::{Args, ValueEnum};

use self::stream::Streams;
use crate::machine::Machine;
use crate::section::{Section, push_goals};

const RUNS: u64 = 100;
const RUNS_QUICK: u64 = 2;
const ROUNDS: u16 = 24;
const ROUNDS_QUICK: u16 = 2;
const SEED: u64 = 1;

#[derive(Args)]
pub(crate) struct DetectArgs {
    /// Seeded runs of each stream that accuracy is measured with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Timed rounds; the median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Small sizes and no verdict on times, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only this part; may be repeated
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Exits with 1 if a goal is missed
    #[arg(long)]
    enforce: bool,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Memory,
    Record,
    Ring,
    Tick,
    Accuracy,
    Onset,
}

/// How much is done.
struct Effort {
    keys: usize,
    /// With fewer keys than requests in a second each would be hot.
    uniform_keys: usize,
    stream_requests: usize,
    block_requests: usize,
    round_blocks: usize,
    rounds: usize,
    hot_key_requests: usize,
    /// Requests of each worker between two ticks.
    tick_requests: usize,
    ticks: u32,
    distinct_keys: u64,
    runs: u64,
    scanned_keys: usize,
    phases: u32,
    judges_times: bool,
}

impl Effort {
    fn of(args: &DetectArgs) -> Self {
        let whole = Self {
            keys: 1_000_000,
            uniform_keys: 1_000_000,
            stream_requests: 4_000_000,
            block_requests: 10_000,
            round_blocks: 50,
            rounds: usize::from(args.rounds.unwrap_or(ROUNDS)),
            hot_key_requests: 1_000_000,
            tick_requests: 5_000,
            ticks: 400,
            distinct_keys: 10_000_000,
            runs: args.runs.unwrap_or(RUNS),
            scanned_keys: 10_000_000,
            phases: 50,
            judges_times: true,
        };
        if !args.quick {
            return whole;
        }
        Self {
            keys: 50_000,
            stream_requests: 200_000,
            round_blocks: 10,
            rounds: usize::from(args.rounds.unwrap_or(ROUNDS_QUICK)),
            hot_key_requests: 10_000,
            ticks: 40,
            distinct_keys: 300_000,
            runs: args.runs.unwrap_or(RUNS_QUICK),
            scanned_keys: 200_000,
            phases: 5,
            judges_times: false,
            ..whole
        }
    }
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: &DetectArgs) -> Result<bool, String> {
    let effort = Effort::of(args);
    let machine = Machine::describe();
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let mut sections: Vec<Section> = Vec::new();
    let mut add = |name: &str, measure: &dyn Fn() -> Result<Section, String>| {
        eprintln!("detect: {name}");
        sections.push(measure()?);
        Ok::<(), String>(())
    };
    // First, while the process is still small.
    if wants(Part::Memory) {
        add("memory", &|| memory::sizes(&effort).map_err(|error| error.to_string()))?;
    }
    if wants(Part::Record) || wants(Part::Ring) || wants(Part::Tick) {
        let streams = Streams::new(effort.keys, effort.stream_requests, SEED);
        if wants(Part::Record) {
            add("count, one thread", &|| Ok(record::one_thread(&effort, &streams)))?;
            add("count, two threads", &|| Ok(record::two_threads(&effort)))?;
        }
        if wants(Part::Ring) {
            add("hot ring", &|| Ok(ring::touches(&effort, &streams)))?;
            add("hot ring, reports", &|| Ok(ring::reports(&effort, &streams.received)))?;
        }
        if wants(Part::Tick) {
            add("tick", &|| Ok(tick::merge_and_report(&effort, &streams.received)))?;
        }
    }
    if wants(Part::Accuracy) {
        add("accuracy", &|| Ok(accuracy::runs(&effort)))?;
    }
    if wants(Part::Onset) {
        add("onset", &|| Ok(onset::delays(&effort)))?;
    }
    let mut text = format!("## The detector\n\n{}", machine.host());
    let _ = writeln!(
        text,
        "- rounds: {}, contenders in turn; medians over the rounds, and the least beside them",
        effort.rounds
    );
    text.push_str(
        "- times are CPU time of the measuring thread: other work on the machine adds \
                   nothing but the caches it takes\n",
    );
    for section in &sections {
        section.push_to(&mut text);
    }
    let reached = push_goals(&mut text, &sections);
    print!("{text}");
    Ok(!args.enforce || reached)
}
