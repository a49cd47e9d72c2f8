//! How the commands of one hot key lie over the primaries, before and after it is split.
//!
//! Called by: `split`.
//! Bound: two runs of `redis-benchmark` a case.
//! Invariant: the primaries count themselves.

use super::rig::Rig;
use super::{Effort, FACTOR};
use crate::benchmark;
use crate::section::{Goal, Section};

/// Commands at the busiest primary, as a multiple of the mean.
const UNEVEN_MAX: f64 = 1.15;
/// Members that are drawn from: so many that chance has little say in where they go.
const MEMBERS: &str = "100000";
/// What commands of counters and sets become on the shards.
const OF_THE_KEY: [&str; 5] = ["incr", "incrby", "get", "sadd", "sismember"];

struct Case {
    title: &'static str,
    clients: &'static str,
    key: &'static str,
    /// Makes the key.
    first: [&'static str; 3],
    command: &'static [&'static str],
}

const CASES: [Case; 4] = [
    Case {
        title: "INCR, 50 clients",
        clients: "50",
        key: "balance:50",
        first: ["SET", "balance:50", "0"],
        command: &["INCR", "balance:50"],
    },
    Case {
        title: "INCR, 200 clients",
        clients: "200",
        key: "balance:200",
        first: ["SET", "balance:200", "0"],
        command: &["INCR", "balance:200"],
    },
    Case {
        title: "SADD, 50 clients",
        clients: "50",
        key: "balance:sadd",
        first: ["SADD", "balance:sadd", "m"],
        command: &["SADD", "balance:sadd", "m:__rand_int__"],
    },
    Case {
        title: "SISMEMBER, 50 clients",
        clients: "50",
        key: "balance:sismember",
        first: ["SADD", "balance:sismember", "m"],
        command: &["SISMEMBER", "balance:sismember", "m:__rand_int__"],
    },
];

/// What the primaries counted in a run.
struct Counted {
    /// Commands of the key, at each primary.
    own: Vec<u64>,
    /// Commands of all kinds, those that look after the split and the fleet included.
    all: Vec<u64>,
}

/// Commands per primary over all cases.
pub(crate) fn over_primaries(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    let mut section = Section::new(
        "Commands of a hot key over three primaries",
        "case",
        &[
            "whole: max ÷ mean",
            "split: max ÷ mean",
            "of all commands",
            "whole: commands per request",
            "split",
            "split: at each primary",
        ],
    );
    section.notes = vec![
        format!("{} requests a case; split into {FACTOR}, that is 3, 3 and 2", effort.requests),
        "increments of a split counter are combined, and each batch reads all shards; the counter \
         that is whole is not hot, so nothing is combined"
            .to_owned(),
    ];
    let (mut whole_least, mut counter_worst, mut set_worst) = (f64::INFINITY, 0.0_f64, 0.0_f64);
    for case in &CASES {
        let failed = |error: std::io::Error| format!("{}: {error}", case.key);
        rig.client()?.try_command(&case.first).map_err(failed)?;
        let whole = measure(&rig, case, effort.requests)?;
        rig.split(case.key)?;
        let split = measure(&rig, case, effort.requests)?;
        rig.make_whole(case.key)?;
        let (before, after) = (uneven(&whole.own), uneven(&split.own));
        whole_least = whole_least.min(before);
        let worst =
            if case.title.starts_with("INCR") { &mut counter_worst } else { &mut set_worst };
        *worst = worst.max(after);
        let per_request = |counts: &[u64]| {
            format!("{:.2}", counts.iter().sum::<u64>() as f64 / effort.requests as f64)
        };
        let each = split.own.iter().map(ToString::to_string).collect::<Vec<_>>();
        section.row(
            case.title,
            [
                format!("{before:.3}"),
                format!("{after:.3}"),
                format!("{:.3}", uneven(&split.all)),
                per_request(&whole.own),
                per_request(&split.own),
                each.join(", "),
            ],
        );
    }
    let goal = |what, worst: f64, judged: bool| Goal {
        what,
        limit: format!("at most {UNEVEN_MAX}"),
        figure: format!("{worst:.3}"),
        reached: judged.then_some(worst <= UNEVEN_MAX),
    };
    section.goals = vec![
        Goal::of_fact(
            "a key that is whole: max ÷ mean, as a check of the count",
            "about 3",
            format!("{whole_least:.3}"),
            whole_least > 2.8,
        ),
        goal("a split counter: commands at a primary, max ÷ mean", counter_worst, true),
        // In a short run chance has a say in where members go.
        goal("a split set: commands at a primary, max ÷ mean", set_worst, effort.judges_times),
    ];
    Ok(section)
}

fn measure(rig: &Rig, case: &Case, requests: u64) -> Result<Counted, String> {
    let count = || Counted {
        own: rig.calls(|name| OF_THE_KEY.contains(&name)),
        all: rig.calls(|name| name != "info"),
    };
    let before = count();
    let mut args = ["-c", case.clients, "-r", MEMBERS].map(str::to_owned).to_vec();
    args.extend(case.command.iter().map(ToString::to_string));
    benchmark::send(rig.target(), requests, args)?;
    let after = count();
    let grown = |after: Vec<u64>, before: &[u64]| {
        after.iter().zip(before).map(|(after, before)| after - before).collect()
    };
    Ok(Counted { own: grown(after.own, &before.own), all: grown(after.all, &before.all) })
}

/// The most as a multiple of the mean.
pub(super) fn uneven(counts: &[u64]) -> f64 {
    let most = counts.iter().max().copied().unwrap_or(0);
    most as f64 * counts.len() as f64 / counts.iter().sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_three_and_two_is_within_the_goal_and_one_for_all_is_not() {
        assert!((uneven(&[30, 30, 20]) - 1.125).abs() < 1e-9);
        assert!((uneven(&[0, 90, 0]) - 3.0).abs() < 1e-9);
        assert!(uneven(&[0, 0, 0]).is_nan());
    }
}
