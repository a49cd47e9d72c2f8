//! What a request costs at the same rate: before a cluster and before one server, and of a split
//! key and of whole ones.
//!
//! Called by: `main`, for `rates`.
//! Bound: about 15 minutes with the defaults, half a minute with `--quick`.
//! Invariant: what is compared gets the same requests at the same times. At full speed, which
//! `cluster` and `split` measure, one side answers more than the other, and what a request costs
//! depends on how many come together.

mod cluster;
mod split;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heatsink_testkit::cpu_time;

use crate::HeatsinkArgs;
use crate::machine::{self, Machine};
use crate::paced::{self, Pace, Played, Times};
use crate::peer::{HeatsinkChoice, Peer};
use crate::ratios::{Ratios, ratios};
use crate::section::{self, Goal, Section};
use crate::summary::median;

const CPU_RATIO_MAX: f64 = 1.10;
/// Parts of the rate at which the slower side has nothing to spare.
const PARTS: [f64; 3] = [0.3, 0.6, 0.9];
/// A rate counts as kept if so much of what was due was answered in time.
const KEPT: f64 = 0.98;
const ROUNDS: u16 = 7;

#[derive(Args)]
pub(crate) struct RatesArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Rounds at each rate; the median of the ratios within a round counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Short rounds and no verdict, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only this part; may be repeated
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Only cases whose title contains this, in any letter case
    #[arg(long, value_name = "FILTER", default_value = "", allow_hyphen_values = true)]
    case: String,
    /// Exits with 1 if a goal is missed
    #[arg(long)]
    enforce: bool,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Cluster,
    Split,
}

/// How much is done.
struct Effort {
    choice: HeatsinkChoice,
    rounds: usize,
    times: Times,
    /// Requests of a run that finds out the full speed, without pipelining.
    requests: u64,
    filter: String,
    judges: bool,
}

impl Effort {
    fn of(args: RatesArgs) -> Result<Self, String> {
        let (rounds, warm_up, measured, requests) =
            if args.quick { (1, 50, 150, 2_000) } else { (ROUNDS, 400, 1_500, 60_000) };
        let choice = crate::choice(args.heatsink);
        let ms = Duration::from_millis;
        Ok(Self {
            choice: HeatsinkChoice { program: Some(choice.program()?), ..choice },
            rounds: usize::from(args.rounds.unwrap_or(rounds)),
            times: Times { warm_up: ms(warm_up), measured: ms(measured) },
            requests,
            filter: args.case.to_lowercase(),
            judges: !args.quick,
        })
    }

    fn wants(&self, title: &str) -> bool {
        title.to_lowercase().contains(&self.filter)
    }

    fn note(&self) -> String {
        format!(
            "rounds: {} of {:?} at each rate behind {:?} that are not measured, in turns that \
             rotate; CPU s/M are medians, ratios medians of those within a round; rates are \
             {PARTS:?} of what the first of those compared manages at full speed",
            self.rounds, self.times.measured, self.times.warm_up
        )
    }
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: RatesArgs) -> Result<bool, String> {
    let (parts, enforce) = (args.part.clone(), args.enforce);
    let effort = Effort::of(args)?;
    let machine = Machine::describe();
    let wants = |part| parts.is_empty() || parts.contains(&part);
    let mut sections: Vec<Section> = Vec::new();
    let mut add = |measure: fn(&Effort) -> Result<Section, String>| {
        let before = machine::load_average();
        let mut section = measure(&effort)?;
        let after = machine::load_average();
        section.notes.push(format!("load average of the machine: {before} before, {after} after"));
        sections.push(section);
        Ok::<(), String>(())
    };
    if wants(Part::Cluster) {
        add(cluster::beside_one_server)?;
    }
    if wants(Part::Split) {
        add(split::beside_whole)?;
    }
    let reached = section::print("The same rate", &machine.to_string(), &sections);
    Ok(!enforce || reached)
}

/// One of those that are compared.
struct Contender<'a> {
    peer: &'a Peer,
    /// Appends a request.
    next: Box<dyn FnMut(&mut Vec<u8>)>,
}

/// By contender, a figure a round.
#[derive(Clone, Default)]
struct Figures {
    cpu: Vec<f64>,
    kept: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

/// Measures all of them at one rate, in turns.
fn measure(
    effort: &Effort,
    pace: Pace,
    contenders: &mut [Contender<'_>],
) -> Result<Vec<Figures>, String> {
    let mut figures = vec![Figures::default(); contenders.len()];
    for round in 0..effort.rounds {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let Contender { peer, next } = &mut contenders[index];
            let cpu = || {
                let times = peer.pids().into_iter().map(cpu_time);
                times.sum::<io::Result<Duration>>().map(|time| time.as_secs_f64())
            };
            let addr: SocketAddr = peer.target.addr;
            let played = paced::play(addr, pace, effort.times, next, &cpu)
                .map_err(|error| format!("{}: {error}", peer.name))?;
            let Played { grown, answered, kept, p50_ms, p99_ms } = played;
            let of = &mut figures[index];
            of.cpu.push(grown * 1e6 / answered.max(1) as f64);
            of.kept.push(kept);
            of.p50_ms.push(p50_ms);
            of.p99_ms.push(p99_ms);
        }
    }
    Ok(figures)
}

impl Figures {
    fn cpu_cell(&self) -> String {
        format!("{:.2}", middle(&self.cpu))
    }

    fn wait_cell(&self) -> String {
        format!("{:.2}, {:.2}", middle(&self.p50_ms), middle(&self.p99_ms))
    }

    /// Whether the rate was kept in most rounds.
    fn is_kept(&self) -> bool {
        middle(&self.kept) >= KEPT
    }
}

fn middle(figures: &[f64]) -> f64 {
    median(figures.to_vec()).unwrap_or(f64::NAN)
}

/// The rates at which those are measured of whom the slowest manages so much.
fn paces(full_speed: f64, clients: usize, depth: usize) -> impl Iterator<Item = Pace> {
    PARTS.into_iter().map(move |part| {
        // Two digits are enough.
        let rate = full_speed * part;
        let unit = 10_f64.powf(rate.log10().floor() - 1.0);
        Pace { per_second: (rate / unit).round() * unit, clients, depth }
    })
}

fn quartiles(of: &Ratios) -> String {
    format!("{:.2} to {:.2}", of.lower, of.upper)
}

/// The worst ratio so far, and whether all rates were kept.
#[derive(Clone, Copy)]
struct Worst {
    ratio: f64,
    kept: bool,
}

impl Worst {
    fn new() -> Self {
        Self { ratio: 0.0, kept: true }
    }

    /// One more comparison; a ratio that is not kept by both sides says nothing.
    fn add(&mut self, one: &Figures, other: &Figures) -> Ratios {
        let of = ratios(&one.cpu, &other.cpu);
        self.ratio = self.ratio.max(of.median);
        self.kept &= one.is_kept() && other.is_kept();
        of
    }

    fn goal(self, what: &'static str, judges: bool) -> Goal {
        let unkept = if self.kept { "" } else { "; a rate was not kept" };
        Goal {
            what,
            limit: format!("at most {CPU_RATIO_MAX}"),
            figure: format!("{:.3}{unkept}", self.ratio),
            reached: judges.then_some(self.kept && self.ratio <= CPU_RATIO_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_digits() {
        let rates: Vec<f64> = paces(98_765.0, 50, 1).map(|pace| pace.per_second).collect();
        assert_eq!(rates, [30_000.0, 59_000.0, 89_000.0]);
    }

    #[test]
    fn a_rate_that_was_not_kept_reaches_no_goal() {
        let of = |cpu: f64, kept: f64| Figures {
            cpu: vec![cpu; 3],
            kept: vec![kept; 3],
            ..Figures::default()
        };
        let reached = |one: &Figures, other: &Figures| {
            let mut worst = Worst::new();
            worst.add(&of(1.0, 1.0), &of(1.0, 1.0));
            worst.add(one, other);
            worst.goal("", true).reached
        };
        assert_eq!(reached(&of(1.09, 1.0), &of(1.0, 1.0)), Some(true));
        assert_eq!(reached(&of(1.11, 1.0), &of(1.0, 1.0)), Some(false));
        assert_eq!(reached(&of(0.5, 0.9), &of(1.0, 1.0)), Some(false));
        assert_eq!(reached(&of(0.5, 1.0), &of(1.0, 0.9)), Some(false));
    }
}
