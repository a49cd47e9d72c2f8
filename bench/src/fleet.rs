//! Several processes as one fleet: how soon all of them know a hot key, what is found, how it
//! ends, and what it all costs.
//!
//! Called by: `main`, for `fleet`.
//! Bound: about six minutes with the defaults, under a minute with `--quick`.
//! Invariant: all processes are real and talk over sockets. CPU is compared only between
//! rounds in turn. Times and CPU are judged only in a whole run; what is found, what is lost and
//! what is not found always is.

mod node;
mod onset;
mod overhead;
mod pace;
mod reports;
mod sums;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::HeatsinkArgs;
use crate::machine::{Machine, load_average};
use crate::section::{Section, push_goals};

const TRIALS: u16 = 50;
const TRIALS_QUICK: u16 = 2;
const ROUNDS: u16 = 9;
const ROUNDS_QUICK: u16 = 1;
const SECONDS: u16 = 20;
const SECONDS_QUICK: u16 = 3;

#[derive(Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Keys that become hot, one after the other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    trials: Option<u16>,
    /// Rounds for the CPU per request; the median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// How long the simulated proxies report
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    seconds: Option<u16>,
    /// Small sizes and no verdict on times and CPU, to see that it works
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
    Onset,
    Sums,
    Overhead,
    Reports,
}

/// How much is done.
struct Effort {
    program: PathBuf,
    extra_args: Vec<String>,
    trials: usize,
    /// How often the end of a hot key is watched.
    ends: usize,
    /// How long a key that is not hot is watched.
    cold_seconds: u64,
    /// Requests/s of other keys, on each proxy.
    background_per_second: u32,
    rounds: usize,
    requests: u64,
    simulated_proxies: usize,
    report_seconds: u64,
    judges_times: bool,
}

impl Effort {
    fn of(args: FleetArgs) -> Result<Self, String> {
        let extra_args = args.heatsink.heatsink_arg.clone();
        let program = crate::choice(args.heatsink).program()?;
        let whole = Self {
            program,
            extra_args,
            trials: usize::from(args.trials.unwrap_or(TRIALS)),
            ends: 5,
            cold_seconds: 10,
            background_per_second: 2_000,
            rounds: usize::from(args.rounds.unwrap_or(ROUNDS)),
            requests: crate::REQUESTS,
            simulated_proxies: 200,
            report_seconds: u64::from(args.seconds.unwrap_or(SECONDS)),
            judges_times: true,
        };
        if !args.quick {
            return Ok(whole);
        }
        Ok(Self {
            trials: usize::from(args.trials.unwrap_or(TRIALS_QUICK)),
            ends: 1,
            cold_seconds: 2,
            background_per_second: 200,
            rounds: usize::from(args.rounds.unwrap_or(ROUNDS_QUICK)),
            requests: crate::REQUESTS_QUICK,
            simulated_proxies: 20,
            report_seconds: u64::from(args.seconds.unwrap_or(SECONDS_QUICK)),
            judges_times: false,
            ..whole
        })
    }
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: FleetArgs) -> Result<bool, String> {
    let (parts, enforce) = (args.part.clone(), args.enforce);
    let effort = Effort::of(args)?;
    let machine = Machine::describe();
    let wants = |part| parts.is_empty() || parts.contains(&part);
    let mut sections: Vec<Section> = Vec::new();
    let mut add = |name: &str, measure: fn(&Effort) -> Result<Section, String>| {
        eprintln!("fleet: {name}");
        let before = load_average();
        let mut section = measure(&effort)?;
        let after = load_average();
        section.notes.push(format!("load average of the machine: {before} before, {after} after"));
        sections.push(section);
        Ok::<(), String>(())
    };
    if wants(Part::Onset) {
        add("onset", onset::delays)?;
    }
    if wants(Part::Sums) {
        add("sums", sums::found_and_retired)?;
    }
    if wants(Part::Overhead) {
        add("overhead", overhead::cpu_per_request)?;
    }
    if wants(Part::Reports) {
        add("reports", reports::taken_in)?;
    }
    let mut text = format!("## A fleet\n\n{machine}");
    for section in &sections {
        section.push_to(&mut text);
    }
    let reached = push_goals(&mut text, &sections);
    let _ = writeln!(
        text,
        "\nA key that hovers around the threshold is shown in virtual time, by the tests of \
         `heatsink-control` (`a_key_that_hovers_changes_state_at_most_once`)."
    );
    print!("{text}");
    Ok(!enforce || reached)
}
