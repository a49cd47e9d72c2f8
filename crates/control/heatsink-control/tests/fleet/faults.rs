//! Crashes, partitions, a network that loses and repeats, a store that forgets.

use std::env;

use heatsink_control::entry::Origin;

use crate::world::{CALM, Network};
use crate::{World, fleet, ms, seconds, settings};

#[test]
fn every_process_can_be_restarted_in_any_order() {
    let mut world = fleet(1, 3, 2, 5);
    for proxy in 0..3 {
        world.reads(proxy, "steady", 1000.0);
    }
    world.promote(3, "mine", None);
    world.run(seconds(2));
    for number in [0, 3, 1, 4, 2, 3, 0] {
        world.crash(number);
        world.run(seconds(4));
        world.start(number);
        world.run(seconds(3));
        assert!(world.has_converged(), "after a restart of {number}");
        assert!(world.is_hot_everywhere("steady") && world.is_hot_everywhere("mine"));
    }
    assert_eq!(world.store.puts(b"steady").len(), 1, "nobody decided anew");
    assert!(world.store.removals(b"steady").is_empty());
}

#[test]
fn a_store_that_lost_its_data_gets_manual_entries_back() {
    for seed in 0..20 {
        let mut world = fleet(seed, 2, 2, 5);
        world.reads(0, "auto", 1500.0);
        world.promote(0, "mine", None);
        world.promote(3, "timed", Some(seconds(300)));
        world.run(seconds(3));
        let at = world.random.usize(..4);
        let last = world.promote(at, "last", None);
        while world.operations[last].is_none() {
            world.run(ms(1));
        }
        // Acknowledged, and perhaps not heard of by anybody else.
        world.lose_store();
        world.run(seconds(5));
        for key in ["mine", "timed", "last"] {
            let origin = world.store.entry(key.as_bytes()).map(|entry| entry.origin);
            assert_eq!(origin, Some(Origin::Manual), "seed {seed}: {key}");
        }
        assert!(world.is_hot_everywhere("auto") && world.has_converged(), "seed {seed}");
        assert_eq!(world.store.version(), 4, "seed {seed}: each put once");
    }
}

#[test]
fn a_store_that_went_back_gets_manual_entries_back() {
    let mut world = fleet(3, 2, 2, 5);
    world.promote(0, "early", None);
    world.run(seconds(1));
    let earlier = world.store.clone();
    world.promote(1, "late", None);
    world.remove(0, "early", seconds(60));
    world.promote(2, "early", None);
    world.run(seconds(1));
    world.store.roll_back(earlier);
    world.drop_connections();
    world.run(seconds(5));
    for key in ["early", "late"] {
        assert!(world.store.entry(key.as_bytes()).is_some(), "{key}");
        assert!(world.is_hot_everywhere(key), "{key}");
    }
    assert!(world.has_converged());
}

#[test]
fn an_entry_removed_after_the_loss_stays_removed() {
    for seed in 0..20 {
        let mut world = fleet(seed, 2, 2, 5);
        world.promote(2, "mine", None);
        world.run(seconds(1));
        world.lose_store();
        world.run_until(seconds(3), "put again", |world| world.store.entry(b"mine").is_some());
        world.remove(3, "mine", seconds(60));
        world.run(seconds(5));
        assert!(world.store.entry(b"mine").is_none(), "seed {seed}");
        assert!(world.is_hot_nowhere("mine") && world.has_converged(), "seed {seed}");
    }
}

/// Random faults for a while, then none: everything comes together again, nothing that was
/// acknowledged is lost, and what is hot is found.
fn storm(seed: u64) {
    let mut world = World::new(seed, 3, 2, settings(4));
    world.network = Network { delay_ms: 40, loss: 0.05, duplicates: 0.05 };
    let keeper = 3;
    let mut promises = Vec::new();
    for proxy in 0..3 {
        world.reads(proxy, "steady", 700.0);
    }
    for round in 0..40 {
        let number = world.random.usize(..5);
        match world.random.u8(..12) {
            // The keeper never dies: somebody has to remember.
            0 | 1 if number != keeper => world.crash(number),
            2 | 3 => world.nodes[number].is_cut = true,
            4 | 5 => world.nodes[number].is_cut = false,
            6 => world.store.is_down = !world.store.is_down,
            7 if !world.store.is_down => world.lose_store(),
            8 => {
                let key = format!("manual{round}");
                promises.push((world.promote(keeper, &key, None), key));
            }
            9 => drop(world.promote(number, "contested", None)),
            10 => drop(world.remove(number, "contested", seconds(5))),
            _ => world.start(number),
        }
        let rate = f64::from(world.random.u32(..2000));
        world.reads(number % 3, "restless", rate);
        let pause = ms(world.random.u64(..1500));
        world.run(pause);
    }
    world.network = CALM;
    world.store.is_down = false;
    for number in 0..5 {
        world.nodes[number].is_cut = false;
        world.start(number);
        world.reads(number % 3, "restless", 0.0);
    }
    world.run_until(seconds(25), "everything has come together", |world| {
        world.has_converged()
            && world.is_hot_everywhere("steady")
            && world.is_hot_nowhere("restless")
    });
    world.run(seconds(10));
    assert!(world.has_converged(), "and stays together");
    for (operation, key) in promises {
        if world.operations[operation] == Some(true) {
            let origin = world.store.entry(key.as_bytes()).map(|entry| entry.origin);
            assert_eq!(origin, Some(Origin::Manual), "{key} was acknowledged");
        }
    }
}

#[test]
fn a_fleet_comes_together_after_any_faults() {
    if let Ok(seed) = env::var("HEATSINK_FLEET_SEED") {
        storm(seed.parse().expect("a number"));
        return;
    }
    let seeds = env::var("HEATSINK_FLEET_SEEDS").map_or(150, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| storm(seed));
        assert!(result.is_ok(), "replay with HEATSINK_FLEET_SEED={seed}");
    }
}
