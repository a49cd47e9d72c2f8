//! CPU per request with detection and control, beside the same process without.
//!
//! Called by: `fleet`.
//! Bound: the rounds asked for, four cases, three processes.
//! Invariant: a ratio is taken within a round, in which the processes come one after the
//! other; the median of these ratios counts, so that a busy minute of the machine does not.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use heatsink_testkit::{free_port, poll_until};

use super::Effort;
use crate::admin;
use crate::benchmark::Access;
use crate::case;
use crate::peer::{Backend, HeatsinkChoice, Peer};
use crate::ratios::ratios;
use crate::rounds::{self, Plan, Sample};
use crate::section::{Goal, Section};
use crate::summary;

const CPU_RATIO_MAX: f64 = 1.05;
const ON: &str = "everything on";
const OFF: &str = "mode off";
const BARE: &str = "mode off, alone";
const PATIENCE: Duration = Duration::from_secs(10);

/// Ratios over all cases.
pub(crate) fn cpu_per_request(effort: &Effort) -> Result<Section, String> {
    let peers = [
        start(effort, ON, &["--mode", "coherent"], true)?,
        start(effort, OFF, &["--mode", "off"], true)?,
        start(effort, BARE, &["--mode", "off"], false)?,
    ];
    let plan = Plan {
        cases: case::matching(case::of_proxies(), "random keys, 50 clients"),
        requests: effort.requests,
        rounds: effort.rounds,
        counts_upstream: false,
    };
    let samples = rounds::run(&plan, &peers, |progress| eprintln!("{progress}"))?;
    let mut section = Section::new(
        "CPU per request of pass-through traffic",
        "case",
        &[
            "on, CPU s/M",
            "off",
            "off, alone",
            "on ÷ off",
            "its quartiles",
            "on ÷ alone",
            "requests/s, on ÷ off",
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
            "{ON}: `mode = \"coherent\"`, admin API, control plane on the same Redis; {OFF}: the \
             same, but keys are not counted; {BARE}: neither API nor store"
        ),
    ];
    let mut all = Vec::new();
    for (index, case) in plan.cases.iter().enumerate() {
        let of = |peer: &str, figure: fn(&Sample) -> f64| -> Vec<f64> {
            let of_peer = samples.iter().filter(|s| s.case == index && s.peer == peer);
            of_peer.map(figure).collect()
        };
        let cpu = |peer: &str| of(peer, |sample| sample.cpu_per_million);
        let rate = |peer: &str| of(peer, |sample| sample.requests_per_second);
        let within = ratios(&cpu(ON), &cpu(OFF));
        let ratio = within.median;
        let cells = [ON, OFF, BARE].map(|peer| {
            let median = summary::median(cpu(peer)).unwrap_or(f64::NAN);
            format!("{median:.2}")
        });
        let rest = [
            format!("{ratio:.3}"),
            format!("{:.2} to {:.2}", within.lower, within.upper),
            format!("{:.3}", ratios(&cpu(ON), &cpu(BARE)).median),
            format!("{:.3}", ratios(&rate(ON), &rate(OFF)).median),
        ];
        section.row(case.title(), cells.into_iter().chain(rest));
        all.push(ratio);
    }
    let worst = all.iter().copied().fold(0.0, f64::max);
    section.goals.push(Goal {
        what: "CPU per request, on ÷ off, worst of the cases",
        limit: format!("at most {CPU_RATIO_MAX}"),
        figure: format!("{worst:.3}"),
        reached: effort.judges_times.then_some(worst <= CPU_RATIO_MAX),
    });
    Ok(section)
}

/// One process in front of a Redis of its own, in which it also meets its fleet if it has one.
fn start(effort: &Effort, name: &str, args: &[&str], in_fleet: bool) -> Result<Peer, String> {
    let redis = Backend::server();
    let store = redis.addr().ok_or("there is no server")?;
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut args: Vec<String> = args.iter().map(ToString::to_string).collect();
    if in_fleet {
        args.extend(["--admin".to_owned(), admin.to_string()]);
        args.extend(["--coordination-url".to_owned(), format!("redis://{store}")]);
    }
    args.extend(effort.extra_args.iter().cloned());
    let choice = HeatsinkChoice { program: Some(PathBuf::clone(&effort.program)), args };
    let peer = choice.start(name, redis, Access::Server)?;
    if in_fleet && poll_until(PATIENCE, || admin::is_well(admin)).is_none() {
        return Err(format!("{name}: it is not part of a fleet after {PATIENCE:?}"));
    }
    Ok(peer)
}
