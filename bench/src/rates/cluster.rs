//! Heatsink before a cluster of three primaries beside Heatsink before one server.
//!
//! Called by: `rates`.
//! Bound: the cases of `cluster` with one key, at each rate.
//! Invariant: both get the same mix of keys, which exist.

use std::rc::Rc;

use heatsink_testkit::{RedisCluster, encode};

use super::{Balance, Contender, Effort, measure, paces, quartiles};
use crate::benchmark::{self, Access};
use crate::case::{self, Case, KEYS, Workload};
use crate::peer::{Backend, Peer};
use crate::preload;
use crate::section::Section;

pub(super) fn beside_one_server(effort: &Effort) -> Result<Section, String> {
    let cluster = Rc::new(RedisCluster::builder().replicas_per_primary(0).start());
    let backend = Backend::Cluster(cluster);
    let start = |name, backend| effort.choice.start(name, backend, Access::ServerThreaded);
    let peers = [start("before a cluster", backend)?, start("before one", Backend::server())?];
    let cases: Vec<Case> = case::of_clusters()
        .into_iter()
        .filter(|case| case.workload.has_one_key() && effort.wants(&case.title()))
        .collect();
    for peer in &peers {
        preload::write(peer, &case::families(&cases))?;
    }
    let mut section = Section::new(
        "A cluster of three primaries beside one server",
        "case",
        &[
            "requests/s",
            "cluster, CPU s/M",
            "one server",
            "ratio",
            "its quartiles",
            "cluster, p50 and p99 ms",
            "one server",
        ],
    );
    section.notes = vec![effort.note()];
    let mut balance = Balance::default();
    for case in cases {
        eprintln!("rates: cluster: {}", case.title());
        balance.begin(case.pipeline > 1);
        let requests = case.requests(effort.requests);
        let full_speed = benchmark::run(&case, peers[0].target, requests)?.requests_per_second;
        for pace in paces(full_speed, case.clients as usize, case.pipeline as usize) {
            let mut contenders = peers.each_ref().map(|peer| contender(peer, case.workload));
            let figures = measure(effort, pace, &mut contenders)?;
            let of = balance.add(&figures[0], &figures[1]);
            section.row(
                case.title(),
                [
                    format!("{}", pace.per_second),
                    figures[0].cpu_cell(),
                    figures[1].cpu_cell(),
                    format!("{:.3}", of.median),
                    quartiles(&of),
                    figures[0].wait_cell(),
                    figures[1].wait_cell(),
                ],
            );
        }
    }
    section.goals = balance
        .goals(
            [
                "CPU per request, cluster ÷ one server, mean of the rates, worst case",
                "the same at one rate, worst",
                "with `-P 16`, mean of the rates, worst case",
            ],
            effort.judges,
        )
        .into();
    Ok(section)
}

fn contender(peer: &Peer, workload: Workload) -> Contender<'_> {
    let family = workload.family();
    let value = matches!(workload, Workload::SetSized(_)).then(|| family.value());
    let next = move |to: &mut Vec<u8>| {
        let key = family.key(fastrand::usize(..KEYS));
        match &value {
            Some(value) => to.extend(encode(&["SET", &key, value])),
            None => to.extend(encode(&["GET", &key])),
        }
    };
    Contender { peer, next: Box::new(next) }
}
