//! How the load is spread over the nodes, as a number.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{Reply, eventually_ok};

use crate::load::StopOnDrop;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn the_share_of_the_hottest_node_rises_with_a_hot_key() {
    let rig = ClusterRig::new(2);
    let primaries = rig.cluster.primaries();
    let even: Vec<String> =
        primaries.iter().map(|node| rig.cluster.key_on(*node, "even")).collect();
    let (one_key, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (one_key, stop, even, rig) = (&one_key, &stop, &even, &rig);
        for _ in 0..2 {
            scope.spawn(move || {
                let mut client = rig.client();
                let mut turn = 0;
                while !stop.load(Ordering::Acquire) {
                    let hot = one_key.load(Ordering::Acquire);
                    let key = if hot { &even[1] } else { &even[turn % even.len()] };
                    assert_eq!(client.command(&["GET", key]), Reply::Null);
                    turn += 1;
                }
            });
        }
        let check = |what: &str, expected: &dyn Fn(f64) -> bool| {
            eventually_ok(SOON, || {
                let load = rig.heatsink.proxy().upstream_load();
                let endpoints: Vec<_> = load.primaries.iter().map(|node| &node.endpoint).collect();
                let known = primaries.iter().all(|node| {
                    let addr = rig.cluster.node(*node).addr().to_string();
                    endpoints.iter().any(|endpoint| endpoint.contains(&addr))
                });
                let busy = load.primaries.iter().all(|node| node.requests_per_second > 0.0);
                let fits = known
                    && load.primaries.len() == 3
                    && (busy || what != "even")
                    && expected(load.hottest_share);
                if fits { Ok(()) } else { Err(format!("{what}: {load:?}")) }
            });
        };
        let stopping = StopOnDrop(stop);
        check("even", &|share| share > 0.3 && share < 0.45);
        one_key.store(true, Ordering::Release);
        check("one key", &|share| share > 0.95);
        drop(stopping);
    });
}
