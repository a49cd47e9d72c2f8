//! Keys that nobody promoted: what reaches Redis of one that goes viral, and of many by a law.
//!
//! Called by: `main`, for `viral`.
//! Bound: about two minutes with the defaults.
//! Invariant: what reached Redis is what it counted itself, by kind of command; load and servers
//! are real.

mod lanes;
mod one_key;
mod zipf;

use clap::{Args, ValueEnum};

use crate::HeatsinkArgs;
use crate::machine::Machine;
use crate::peer::HeatsinkChoice;
use crate::section::{self, Section};

#[derive(Args)]
pub(crate) struct ViralArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Small sizes and no verdict on the hit ratio, to see that it works
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
    OneKey,
    Zipf,
}

/// How much is done.
struct Effort {
    choice: HeatsinkChoice,
    /// Requests that are measured with a viral key.
    viral_requests: u64,
    zipf: zipf::Size,
    judges_hits: bool,
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: ViralArgs) -> Result<bool, String> {
    let choice = crate::choice(args.heatsink);
    let choice = HeatsinkChoice { program: Some(choice.program()?), ..choice };
    let effort = Effort {
        choice,
        viral_requests: if args.quick { 20_000 } else { 600_000 },
        zipf: if args.quick { zipf::Size::QUICK } else { zipf::Size::WHOLE },
        judges_hits: !args.quick,
    };
    let machine = Machine::describe();
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let mut sections: Vec<Section> = Vec::new();
    if wants(Part::OneKey) {
        eprintln!("viral: one key");
        sections.push(one_key::reads(&effort)?);
    }
    if wants(Part::Zipf) {
        eprintln!("viral: Zipf");
        sections.push(zipf::hits(&effort)?);
    }
    let reached =
        section::print("Keys that become hot by themselves", &machine.to_string(), &sections);
    Ok(!args.enforce || reached)
}
