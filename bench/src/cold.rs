//! What mitigations cost traffic that needs none: CPU per request beside the same process
//! without them.
//!
//! Called by: `main`, for `cold`.
//! Bound: the rounds asked for, four cases, four processes; about five minutes with the
//! defaults.
//! Invariant: no key that is asked for is hot; keys are counted everywhere, so that what differs
//! is the mitigations alone. CPU is judged only in a whole run.

use clap::Args;
use heatsink_control::entry::Mitigation;

use crate::HeatsinkArgs;
use crate::admin;
use crate::case;
use crate::machine::Machine;
use crate::peer::{Backend, HeatsinkChoice, Peer};
use crate::ratios::ratios;
use crate::rounds::{self, Plan, Sample};
use crate::section::{self, Goal, Section};
use crate::summary;

const CPU_RATIO_MAX: f64 = 1.03;
const IDLE: &str = "on, no key is hot";
const BUSY: &str = "on, others are hot";
const OFF: &str = "off";
/// The same once more: how far apart two equal processes are measured.
const TWIN: &str = "off, a second one";
const WITHOUT: [&str; 4] = ["--local-cache-enabled", "false", "--coalesce-enabled", "false"];
/// As many as the API takes in one go.
const OTHER_KEYS: usize = 200;
const OTHER_KEYS_QUICK: usize = 20;
const ROUNDS: u16 = 9;
const ROUNDS_QUICK: u16 = 1;

#[derive(Args)]
pub(crate) struct ColdArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Requests per round without pipelining; eight times as many with it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..))]
    requests: Option<u64>,
    /// Rounds per case; the median of the ratios counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// One short round and no verdict on CPU, to see that it works
    #[arg(long)]
    quick: bool,
    /// Exits with 1 if a goal is missed
    #[arg(long)]
    enforce: bool,
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: ColdArgs) -> Result<bool, String> {
    let (requests, rounds, other_keys) = if args.quick {
        (crate::REQUESTS_QUICK, ROUNDS_QUICK, OTHER_KEYS_QUICK)
    } else {
        (crate::REQUESTS, ROUNDS, OTHER_KEYS)
    };
    let plan = Plan {
        cases: case::matching(case::of_proxies(), "random keys, 50 clients"),
        requests: args.requests.unwrap_or(requests),
        rounds: usize::from(args.rounds.unwrap_or(rounds)),
        counts_upstream: false,
    };
    let machine = Machine::describe();
    let choice = crate::choice(args.heatsink);
    let choice = HeatsinkChoice { program: Some(choice.program()?), ..choice };
    let peers = [
        start(&choice, IDLE, &[], 0)?,
        start(&choice, BUSY, &[], other_keys)?,
        start(&choice, OFF, &WITHOUT, 0)?,
        start(&choice, TWIN, &WITHOUT, 0)?,
    ];
    let samples = rounds::run(&plan, &peers, |progress| eprintln!("{progress}"))?;
    let section = table(&plan, &samples, other_keys, !args.quick);
    let reached = section::print("Cold traffic", &machine.to_string(), &[section]);
    Ok(!args.enforce || reached)
}

fn start(
    choice: &HeatsinkChoice,
    name: &str,
    args: &[&str],
    other_keys: usize,
) -> Result<Peer, String> {
    let (peer, api) = choice.start_with_admin(name, Backend::server(), args)?;
    for number in 0..other_keys {
        let mitigation =
            if number % 2 == 0 { Mitigation::LocalCache } else { Mitigation::Coalesce };
        admin::promote(api, &format!("other:{number}"), mitigation)?;
    }
    Ok(peer)
}

fn table(plan: &Plan, samples: &[Sample], other_keys: usize, judged: bool) -> Section {
    let mut section = Section::new(
        "CPU per request of keys that are not hot",
        "case",
        &[
            "off, CPU s/M",
            "on, none hot: ÷ off",
            "its quartiles",
            "on, others hot: ÷ off",
            "its quartiles",
            "requests/s, none hot ÷ off",
            "others hot ÷ off",
            "CPU, a second one off ÷ off",
            "its quartiles",
        ],
    );
    section.notes = vec![
        format!(
            "rounds: {}, requests per round: {} ({} with pipelining), in turns; median of the \
             ratios within a round",
            plan.rounds,
            plan.requests,
            8 * plan.requests
        ),
        format!(
            "{OFF}: `local_cache.enabled` and `coalesce.enabled` are false; {BUSY}: {other_keys} \
             promoted keys that nobody asks for, half of them with `local_cache` and half with \
             `coalesce`; all count keys, have one worker and an admin API; the last two columns show \
             how far apart two equal processes are measured"
        ),
    ];
    let (mut idle_worst, mut busy_worst) = (0.0_f64, 0.0_f64);
    for (index, case) in plan.cases.iter().enumerate() {
        let of = |peer: &str, figure: fn(&Sample) -> f64| -> Vec<f64> {
            let of_peer = samples.iter().filter(|s| s.case == index && s.peer == peer);
            of_peer.map(figure).collect()
        };
        let cpu = |peer: &str| of(peer, |sample| sample.cpu_per_million);
        let rate = |peer: &str| of(peer, |sample| sample.requests_per_second);
        let twin = ratios(&cpu(TWIN), &cpu(OFF));
        let (idle, busy) = (ratios(&cpu(IDLE), &cpu(OFF)), ratios(&cpu(BUSY), &cpu(OFF)));
        section.row(
            case.title(),
            [
                format!("{:.2}", summary::median(cpu(OFF)).unwrap_or(f64::NAN)),
                format!("{:.3}", idle.median),
                format!("{:.2} to {:.2}", idle.lower, idle.upper),
                format!("{:.3}", busy.median),
                format!("{:.2} to {:.2}", busy.lower, busy.upper),
                format!("{:.3}", ratios(&rate(IDLE), &rate(OFF)).median),
                format!("{:.3}", ratios(&rate(BUSY), &rate(OFF)).median),
                format!("{:.3}", twin.median),
                format!("{:.2} to {:.2}", twin.lower, twin.upper),
            ],
        );
        idle_worst = idle_worst.max(idle.median);
        busy_worst = busy_worst.max(busy.median);
    }
    let goal = |what, worst: f64| Goal {
        what,
        limit: format!("at most {CPU_RATIO_MAX}"),
        figure: format!("{worst:.3}"),
        reached: judged.then_some(worst <= CPU_RATIO_MAX),
    };
    section.goals = vec![
        goal("CPU per request, no key hot ÷ off, worst of the cases", idle_worst),
        goal("CPU per request, others hot ÷ off, worst of the cases", busy_worst),
    ];
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(cpu: [(&str, f64); 4]) -> Vec<Sample> {
        let sample = |(peer, cpu_per_million): (&str, f64)| Sample {
            case: 0,
            round: 0,
            peer: peer.to_owned(),
            requests_per_second: 100.0,
            p50_ms: 1.0,
            p99_ms: 1.0,
            cpu_per_million,
            redis_cpu_per_million: None,
            upstream_per_request: None,
        };
        cpu.map(sample).to_vec()
    }

    #[test]
    fn each_way_to_be_on_has_its_own_verdict() {
        let plan = Plan {
            cases: case::matching(case::of_proxies(), "GET random keys, 50 clients, -P"),
            requests: 100,
            rounds: 1,
            counts_upstream: false,
        };
        let reached = |idle, busy, judged| {
            let samples = samples([(IDLE, idle), (BUSY, busy), (OFF, 10.0), (TWIN, 20.0)]);
            let section = table(&plan, &samples, 1, judged);
            section.goals.iter().map(|goal| goal.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(10.3, 10.4, true), [Some(true), Some(false)]);
        assert_eq!(reached(10.4, 10.3, true), [Some(false), Some(true)]);
        assert_eq!(reached(20.0, 20.0, false), [None, None]);
    }
}
