//! Proxies without the store or without aggregators.

use heatsink_control::entry::Origin;

use crate::{fleet, ms, seconds};

fn words(world: &crate::World, proxy: usize) -> String {
    let now = world.now + world.nodes[proxy].skew;
    world.brain(proxy).agent.as_ref().expect("a proxy").readiness(now).words
}

#[test]
fn without_the_store_a_proxy_finds_what_is_hot_to_itself() {
    let mut world = fleet(1, 2, 1, 5);
    world.reads(0, "before", 3000.0);
    world.reads(1, "before", 3000.0);
    world.run(seconds(2));
    world.store.is_down = true;
    world.run(ms(3200));
    assert_eq!(
        words(&world, 0),
        "degraded: the coordination store cannot be reached since 2.9 s: \
                                  connection refused"
    );
    assert!(world.is_hot_everywhere("before"), "the last registry is kept");
    world.reads(0, "during", 1500.0);
    world.reads(1, "during", 600.0);
    world.run(seconds(2));
    let hot = world.brain(0).agent.as_ref().expect("a proxy").hot().clone();
    assert_eq!(hot.get(b"during").map(|hot| hot.origin), Some(Origin::Local));
    assert!(!world.brain(1).is_hot(b"during"), "not by its own count");
    // What cools down while alone is let go.
    world.reads(0, "during", 0.0);
    world.run(seconds(7));
    assert!(!world.brain(0).is_hot(b"during"));
    world.reads(0, "during", 1500.0);
    world.run(seconds(2));
    world.store.is_down = false;
    world.run(seconds(3));
    assert_eq!(words(&world, 0), "ok");
    let hot = world.brain(0).agent.as_ref().expect("a proxy").hot().clone();
    assert_eq!(hot.get(b"during").map(|hot| hot.origin), Some(Origin::Auto), "handed over");
    assert!(world.has_converged());
    let turns = world.brain(0).turns(b"during");
    assert_eq!(turns, 3, "in force without a break from one hand to the other");
}

#[test]
fn a_local_entry_that_the_fleet_does_not_share_is_dropped() {
    let mut world = fleet(2, 2, 1, 30);
    world.store.is_down = true;
    world.run(seconds(2));
    world.reads(0, "short", 1500.0);
    world.run(seconds(2));
    assert!(world.brain(0).is_hot(b"short"));
    world.reads(0, "short", 0.0);
    world.run(seconds(2));
    world.store.is_down = false;
    world.run(seconds(4));
    assert!(world.brain(0).is_hot(b"short"), "aggregators are given time to find it");
    world.run(seconds(3));
    assert!(world.is_hot_nowhere("short") && world.has_converged());
}

#[test]
fn without_aggregators_the_same() {
    let mut world = fleet(3, 2, 1, 5);
    world.crash(2);
    world.run(seconds(6));
    let text = words(&world, 1);
    assert!(text.starts_with("degraded: no aggregator is alive since "), "{text}");
    world.reads(0, "orphan", 1500.0);
    world.run(seconds(2));
    assert!(world.brain(0).is_hot(b"orphan"));
    world.start(2);
    world.run(seconds(3));
    assert_eq!(words(&world, 1), "ok");
    assert!(world.is_hot_everywhere("orphan") && world.has_converged());
}

#[test]
fn a_blocked_key_is_not_found_alone() {
    let mut world = fleet(4, 2, 1, 5);
    world.reads(0, "unwanted", 3000.0);
    world.run(seconds(2));
    world.remove(0, "unwanted", seconds(60));
    world.run(seconds(1));
    world.store.is_down = true;
    world.run(seconds(10));
    assert!(world.is_hot_nowhere("unwanted"));
}
