//! Split keys on a cluster: which primaries do the work, what a request costs, and how long
//! writers wait while a value is moved; and copies of large values: which primaries are read from.
//!
//! Called by: `main`, for `split`.
//! Bound: about eight minutes with the defaults, under a minute with `--quick`.
//! Invariant: cluster, proxy and load are real; a key is split and made whole over the admin API,
//! as an operator would do it. Times and CPU are judged only in a whole run; how many commands
//! reach the primaries always is.

mod balance;
mod callers;
mod copies;
mod cpu;
mod freeze;
mod get;
mod rig;

use clap::{Args, ValueEnum};

pub(crate) use rig::Rig;

use crate::HeatsinkArgs;
use crate::machine::{self, Machine};
use crate::peer::HeatsinkChoice;
use crate::section::{self, Section};

/// Physical keys that a key is split into.
const FACTOR: u32 = 8;
const ROUNDS: u16 = 9;
const MOVES: u16 = 50;

#[derive(Args)]
pub(crate) struct SplitArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Requests per round without pipelining; eight times as many with it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..))]
    requests: Option<u64>,
    /// Rounds for what is compared within a round; the median of the ratios counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// How often a counter is split and made whole; two fifths as often a large set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    moves: Option<u16>,
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
    Balance,
    Cpu,
    Get,
    Freeze,
    Copies,
}

/// How much is done.
struct Effort {
    choice: HeatsinkChoice,
    requests: u64,
    rounds: usize,
    counter_moves: usize,
    set_moves: usize,
    judges_times: bool,
}

impl Effort {
    fn of(args: SplitArgs) -> Result<Self, String> {
        let (requests, rounds, moves) = if args.quick {
            (crate::REQUESTS_QUICK, 1, 3)
        } else {
            (crate::REQUESTS, ROUNDS, MOVES)
        };
        let choice = crate::choice(args.heatsink);
        let moves = usize::from(args.moves.unwrap_or(moves));
        Ok(Self {
            choice: HeatsinkChoice { program: Some(choice.program()?), ..choice },
            requests: args.requests.unwrap_or(requests),
            rounds: usize::from(args.rounds.unwrap_or(rounds)),
            counter_moves: moves,
            set_moves: (moves * 2 / 5).max(1),
            judges_times: !args.quick,
        })
    }
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: SplitArgs) -> Result<bool, String> {
    let (parts, enforce) = (args.part.clone(), args.enforce);
    let effort = Effort::of(args)?;
    let machine = Machine::describe();
    let wants = |part| parts.is_empty() || parts.contains(&part);
    let mut sections: Vec<Section> = Vec::new();
    let mut add = |name: &str, measure: fn(&Effort) -> Result<Section, String>| {
        eprintln!("split: {name}");
        let before = machine::load_average();
        let mut section = measure(&effort)?;
        let after = machine::load_average();
        section.notes.push(format!("load average of the machine: {before} before, {after} after"));
        sections.push(section);
        Ok::<(), String>(())
    };
    if wants(Part::Balance) {
        add("balance", balance::over_primaries)?;
    }
    if wants(Part::Cpu) {
        add("cpu", cpu::per_request)?;
    }
    if wants(Part::Get) {
        add("get", get::of_a_counter)?;
    }
    if wants(Part::Freeze) {
        add("freeze", freeze::of_a_counter)?;
        add("freeze, a large set", freeze::of_a_set)?;
    }
    if wants(Part::Copies) {
        add("copies", copies::over_primaries)?;
    }
    let reached = section::print("Split keys", &machine.to_string(), &sections);
    Ok(!enforce || reached)
}
