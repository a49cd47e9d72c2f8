//! CPU per request of commands that name one member, of a split set beside sets that are whole.
//!
//! Called by: `split`.
//! Bound: the rounds asked for, four cases, four kinds of keys.
//! Invariant: all load goes through one process, whose CPU time is taken; a ratio is taken within
//! a round, in which the kinds come in turns that rotate. Each gets as much load as it takes, which
//! is not the same: CPU is judged by `rates`.

use super::rig::Rig;
use super::{Effort, FACTOR};
use crate::benchmark;
use crate::ratios::{Ratios, ratios};
use crate::section::{Goal, Section};
use crate::summary;

const MEMBERS: &str = "10000";
const WARM_UP_PART: u64 = 10;

/// What the commands name. The last stands for many keys that are whole and lie on all
/// primaries: what it costs alone that requests go to three nodes instead of one.
const KEYS: [&str; 4] = ["cpu:split", "cpu:hot", "cpu:cold", "cpu:many:__rand_int__"];
const SPLIT: usize = 0;
const HOT: usize = 1;
const COLD: usize = 2;
const MANY: usize = 3;

const COMMANDS: [&str; 2] = ["SADD", "SISMEMBER"];
const DEPTHS: [u64; 2] = [1, 16];

/// Ratios over all cases.
pub(crate) fn per_request(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    rig.prepare_sets(KEYS[SPLIT], KEYS[HOT], KEYS[COLD])?;
    let mut section = Section::new(
        "CPU of the proxy per request with one member, 50 clients",
        "case",
        &[
            "split, CPU s/M",
            "hot, whole",
            "cold, whole",
            "many keys",
            "split ÷ hot",
            "its quartiles",
            "split ÷ cold",
            "its quartiles",
            "many ÷ cold",
            "requests/s, split ÷ cold",
        ],
    );
    section.notes = vec![
        format!(
            "rounds: {}, requests per round: {} ({} with pipelining), in turns; median of the \
             ratios within a round; one worker, three primaries",
            effort.rounds,
            effort.requests,
            8 * effort.requests
        ),
        format!(
            "split: a set split into {FACTOR}; hot: a set with the mitigation `coalesce`; cold: a \
             set that nothing is done about; many keys: sets that are whole, spread over the \
             primaries as any keys are; {MEMBERS} members each"
        ),
    ];
    let (mut hot_worst, mut cold_worst, mut many_worst) = (0.0_f64, 0.0_f64, 0.0_f64);
    for depth in DEPTHS {
        for command in COMMANDS {
            let pipelined = if depth > 1 { format!(", -P {depth}") } else { String::new() };
            let title = format!("{command}{pipelined}");
            eprintln!("split: cpu: {title}");
            let figures = measure(&rig, command, depth, effort)?;
            let [hot, cold] = [HOT, COLD].map(|key| ratios(&figures.cpu[SPLIT], &figures.cpu[key]));
            let many = ratios(&figures.cpu[MANY], &figures.cpu[COLD]).median;
            let against_many = ratios(&figures.cpu[SPLIT], &figures.cpu[MANY]).median;
            let rate = ratios(&figures.rate[SPLIT], &figures.rate[COLD]).median;
            let medians = (0..KEYS.len()).map(|key| {
                format!("{:.2}", summary::median(figures.cpu[key].clone()).unwrap_or(f64::NAN))
            });
            let quartiles = |of: &Ratios| format!("{:.2} to {:.2}", of.lower, of.upper);
            let rest = [
                format!("{:.3}", hot.median),
                quartiles(&hot),
                format!("{:.3}", cold.median),
                quartiles(&cold),
                format!("{many:.3}"),
                format!("{rate:.3}"),
            ];
            section.row(title, medians.chain(rest));
            hot_worst = hot_worst.max(hot.median);
            cold_worst = cold_worst.max(cold.median);
            many_worst = many_worst.max(against_many);
        }
    }
    let goal = |what, worst: f64| Goal {
        what,
        limit: "none; see `rates`".to_owned(),
        figure: format!("{worst:.3}"),
        reached: None,
    };
    let many = "CPU per request, split ÷ many keys on as many primaries, worst of the cases";
    section.goals = vec![
        goal("CPU per request, split ÷ hot and whole, worst of the cases", hot_worst),
        goal("CPU per request, split ÷ cold and whole, worst of the cases", cold_worst),
        goal(many, many_worst),
    ];
    Ok(section)
}

/// By kind of key, a figure a round.
struct Figures {
    cpu: [Vec<f64>; KEYS.len()],
    rate: [Vec<f64>; KEYS.len()],
}

fn measure(rig: &Rig, command: &str, depth: u64, effort: &Effort) -> Result<Figures, String> {
    let requests = if depth > 1 { effort.requests * 8 } else { effort.requests };
    let run = |key: &str, requests: u64| {
        let depth = depth.to_string();
        let args = ["-c", "50", "-P", &depth, "-r", MEMBERS, command, key, "m:__rand_int__"];
        benchmark::send(rig.target(), requests, args.map(str::to_owned).to_vec())
    };
    for key in KEYS {
        run(key, (requests / WARM_UP_PART).max(1_000))?;
    }
    let mut figures = Figures { cpu: Default::default(), rate: Default::default() };
    for round in 0..effort.rounds {
        for turn in 0..KEYS.len() {
            let index = (round + turn) % KEYS.len();
            let before = rig.cpu_seconds()?;
            let seen = run(KEYS[index], requests)?;
            let used = rig.cpu_seconds()? - before;
            figures.cpu[index].push(used * 1e6 / requests as f64);
            figures.rate[index].push(seen.requests_per_second);
        }
    }
    Ok(figures)
}
