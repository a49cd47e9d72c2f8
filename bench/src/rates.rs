//! What a request costs at the same rate: before a cluster and before one server, and of a split
//! key and of whole ones.
//!
//! Called by: `main`, for `rates`.
//! Bound: about 20 minutes with the defaults, under a minute with `--quick`.
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

/// Appends a request.
type Next = Box<dyn FnMut(&mut Vec<u8>)>;

/// One of those that are compared.
struct Contender<'a> {
    peer: &'a Peer,
    next: Next,
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
        let unkept = if self.is_kept() { "" } else { " (rate not kept)" };
        format!("{:.2}{unkept}", middle(&self.cpu))
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

/// The ratios of two contenders at all rates of all cases.
#[derive(Default)]
struct Balance {
    cases: Vec<Weighed>,
}

/// One case: its ratios, one a rate.
struct Weighed {
    pipelined: bool,
    ratios: Vec<f64>,
    /// Both sides kept all rates.
    kept: bool,
}

impl Balance {
    /// A further case begins.
    fn begin(&mut self, pipelined: bool) {
        self.cases.push(Weighed { pipelined, ratios: Vec::new(), kept: true });
    }

    /// A further rate of the case that began last.
    fn add(&mut self, one: &Figures, other: &Figures) -> Ratios {
        let of = ratios(&one.cpu, &other.cpu);
        if let Some(case) = self.cases.last_mut() {
            case.ratios.push(of.median);
            case.kept &= one.is_kept() && other.is_kept();
        }
        of
    }

    /// The worst case, each with the mean of its rates: what is judged; the worst rate, and the
    /// worst of the cases with pipelining, to read beside it.
    fn goals(&self, whats: [&'static str; 3], judges: bool) -> [Goal; 3] {
        let plain = || self.cases.iter().filter(|case| !case.pipelined);
        let pipelined = self.cases.iter().filter(|case| case.pipelined);
        let worst = plain().map(Weighed::mean).fold(0.0, f64::max);
        let kept = plain().all(|case| case.kept);
        let worst_rate = plain().flat_map(|case| &case.ratios).copied().fold(0.0, f64::max);
        let worst_pipelined = pipelined.map(Weighed::mean).fold(0.0, f64::max);
        let shown = |what, figure: f64| Goal {
            what,
            limit: "none".to_owned(),
            figure: format!("{figure:.3}"),
            reached: None,
        };
        let unkept = if kept { "" } else { "; a rate was not kept" };
        let of_cases = Goal {
            what: whats[0],
            limit: format!("at most {CPU_RATIO_MAX}"),
            figure: format!("{worst:.3}{unkept}"),
            reached: judges.then_some(kept && worst <= CPU_RATIO_MAX),
        };
        [of_cases, shown(whats[1], worst_rate), shown(whats[2], worst_pipelined)]
    }
}

impl Weighed {
    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / self.ratios.len() as f64
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

    fn figures(cpu: f64, kept: f64) -> Figures {
        Figures { cpu: vec![cpu; 3], kept: vec![kept; 3], ..Figures::default() }
    }

    fn judged(cases: &[(bool, &[(f64, f64)])]) -> [Goal; 3] {
        let mut balance = Balance::default();
        for (pipelined, rates) in cases {
            balance.begin(*pipelined);
            for (cpu, kept) in *rates {
                balance.add(&figures(*cpu, *kept), &figures(1.0, 1.0));
            }
        }
        balance.goals(["", "", ""], true)
    }

    #[test]
    fn each_case_counts_with_the_mean_of_its_rates() {
        let reached = |cases: &[(bool, &[(f64, f64)])]| judged(cases)[0].reached;
        let cheap: (bool, &[(f64, f64)]) = (false, &[(0.5, 1.0)]);
        assert_eq!(reached(&[cheap, (false, &[(1.0, 1.0), (1.19, 1.0)])]), Some(true));
        assert_eq!(reached(&[cheap, (false, &[(1.0, 1.0), (1.21, 1.0)])]), Some(false));
        assert_eq!(reached(&[(false, &[(1.2, 1.0)]), cheap]), Some(false));
        let shown = judged(&[cheap, (false, &[(1.0, 1.0), (1.19, 1.0)]), (true, &[(1.5, 1.0)])]);
        assert_eq!(shown.map(|goal| goal.figure), ["1.095", "1.190", "1.500"]);
    }

    #[test]
    fn a_rate_that_was_not_kept_reaches_no_goal() {
        let rates: &[(f64, f64)] = &[(1.0, 1.0), (0.5, 0.9)];
        assert_eq!(judged(&[(false, rates)])[0].reached, Some(false));
        // Pipelining is not judged.
        let cases: &[(bool, &[(f64, f64)])] = &[(false, &[(1.0, 1.0)]), (true, rates)];
        assert_eq!(judged(cases)[0].reached, Some(true));
    }
}
