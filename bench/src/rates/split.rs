//! Commands that name one member, of a split set beside sets that are whole.
//!
//! Called by: `rates`.
//! Bound: two commands with and without pipelining, three sets, at each rate.
//! Invariant: all load goes through one process.

use heatsink_testkit::encode;

use super::{Balance, Contender, Effort, measure, paces, quartiles};
use crate::benchmark;
use crate::section::Section;
use crate::split::Rig;

const MEMBERS: usize = 10_000;
const CLIENTS: usize = 50;
/// Split, hot and whole, cold and whole.
const KEYS: [&str; 3] = ["rates:split", "rates:hot", "rates:cold"];

pub(super) fn beside_whole(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    rig.prepare_sets(KEYS[0], KEYS[1], KEYS[2])?;
    let mut section = Section::new(
        "A split set beside whole ones, commands with one member, 50 clients",
        "case",
        &[
            "requests/s",
            "split, CPU s/M",
            "hot, whole",
            "cold, whole",
            "split ÷ hot",
            "its quartiles",
            "split ÷ cold",
            "its quartiles",
            "split, p50 and p99 ms",
            "cold",
        ],
    );
    section.notes = vec![
        effort.note(),
        format!(
            "split: into 8, over three primaries; hot: with the mitigation `coalesce`; cold: \
             nothing is done about it; {MEMBERS} members each"
        ),
    ];
    let (mut of_hot, mut of_cold) = (Balance::default(), Balance::default());
    for depth in [1, 16] {
        for command in ["SADD", "SISMEMBER"] {
            let pipelined = if depth > 1 { format!(", -P {depth}") } else { String::new() };
            let title = format!("{command}{pipelined}");
            if !effort.wants(&title) {
                continue;
            }
            eprintln!("rates: split: {title}");
            of_hot.begin(depth > 1);
            of_cold.begin(depth > 1);
            let full_speed = full_speed(&rig, command, depth, effort)?;
            for pace in paces(full_speed, CLIENTS, depth) {
                let mut contenders = KEYS.map(|key| contender(&rig, command, key));
                let figures = measure(effort, pace, &mut contenders)?;
                let hot = of_hot.add(&figures[0], &figures[1]);
                let cold = of_cold.add(&figures[0], &figures[2]);
                section.row(
                    title.clone(),
                    [
                        format!("{}", pace.per_second),
                        figures[0].cpu_cell(),
                        figures[1].cpu_cell(),
                        figures[2].cpu_cell(),
                        format!("{:.3}", hot.median),
                        quartiles(&hot),
                        format!("{:.3}", cold.median),
                        quartiles(&cold),
                        figures[0].wait_cell(),
                        figures[2].wait_cell(),
                    ],
                );
            }
        }
    }
    let of_hot = of_hot.goals(
        [
            "CPU per request, split ÷ hot and whole, mean of the rates, worst case",
            "split ÷ hot at one rate, worst",
            "split ÷ hot with `-P 16`, mean of the rates, worst case",
        ],
        effort.judges,
    );
    let of_cold = of_cold.goals(
        [
            "CPU per request, split ÷ cold and whole, mean of the rates, worst case",
            "split ÷ cold at one rate, worst",
            "split ÷ cold with `-P 16`, mean of the rates, worst case",
        ],
        effort.judges,
    );
    section.goals = of_hot.into_iter().chain(of_cold).collect();
    Ok(section)
}

fn full_speed(rig: &Rig, command: &str, depth: usize, effort: &Effort) -> Result<f64, String> {
    let requests = if depth > 1 { 8 * effort.requests } else { effort.requests };
    let (clients, depth) = (CLIENTS.to_string(), depth.to_string());
    let numbers = MEMBERS.to_string();
    let args = ["-c", &clients, "-P", &depth, "-r", &numbers, command, KEYS[0], "m:__rand_int__"];
    let args = args.map(str::to_owned).to_vec();
    Ok(benchmark::send(rig.target(), requests, args)?.requests_per_second)
}

fn contender<'a>(rig: &'a Rig, command: &'static str, key: &'static str) -> Contender<'a> {
    let next = move |to: &mut Vec<u8>| {
        let member = format!("m:{:012}", fastrand::usize(..MEMBERS));
        to.extend(encode(&[command, key, &member]));
    };
    Contender { peer: rig.peer(), next: Box::new(next) }
}
