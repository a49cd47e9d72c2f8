//! Hot keys are found, kept and retired.

use std::f64::consts::TAU;
use std::time::Duration;

use heatsink_control::entry::{Mitigation, Origin};

use crate::store::Request;
use crate::{fleet, ms, seconds};

/// The longest way of a message and back, and ticks that do not meet.
const SLACK: Duration = Duration::from_millis(50 + 50 + 4 * 5);

#[test]
fn an_onset_reaches_every_proxy_within_ticks_and_store_delays() {
    for seed in 0..50 {
        let mut world = fleet(seed, 3, 1, 30);
        let phase = ms(world.random.u64(..50));
        world.run(phase);
        let onset = world.now;
        for proxy in 0..3 {
            world.reads(proxy, "viral", 2000.0 / 3.0);
        }
        // Half a second until the window holds the threshold.
        world.run_until(ms(500) + SLACK, "hot on every proxy", |world| {
            world.is_hot_everywhere("viral")
        });
        for proxy in 0..3 {
            let since = world.brain(proxy).hot_since(b"viral").expect("hot");
            assert!(since >= onset + ms(400), "before the threshold was crossed: {since:?}");
        }
        let entry = world.store.entry(b"viral").expect("registered");
        assert_eq!((entry.mitigation, entry.origin), (Mitigation::LocalCache, Origin::Auto));
        let reason = &entry.reason;
        assert!(reason.contains("over 3 proxies, threshold 1 000; 100 % reads"), "{reason}");
    }
}

#[test]
fn a_key_hot_only_in_the_sum_is_found_and_a_cooler_one_is_not() {
    for seed in 0..10 {
        let mut world = fleet(seed, 3, 2, 30);
        for proxy in 0..3 {
            world.reads(proxy, "warm", 400.0);
            world.reads(proxy, "cool", 100.0);
        }
        world.run_until(seconds(2), "warm is found", |world| world.is_hot_everywhere("warm"));
        world.run(seconds(10));
        assert!(world.is_hot_nowhere("cool"));
        assert!(world.store.entry(b"cool").is_none());
    }
}

#[test]
fn processes_that_do_everything_work_the_same() {
    for proxies in 1..=3 {
        let mut world = fleet(3, proxies, 0, 5);
        for proxy in 0..proxies {
            world.reads(proxy, "shared", 1200.0 / proxies as f64);
        }
        world.promote(0, "mine", None);
        world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("shared"));
        world.lose_store();
        world.run(seconds(4));
        assert!(world.is_hot_everywhere("shared") && world.is_hot_everywhere("mine"));
        for proxy in 0..proxies {
            world.reads(proxy, "shared", 0.0);
        }
        world.run_until(seconds(6), "retired", |world| world.is_hot_nowhere("shared"));
        assert!(world.is_hot_everywhere("mine") && world.has_converged());
    }
}

#[test]
fn uneven_shares_are_found_through_the_watch_list() {
    for (shares, is_hot) in [
        (vec![900.0, 150.0], true),
        (vec![900.0, 60.0, 60.0], true),
        (vec![550.0, 40.0, 200.0, 215.0], true),
        (vec![900.0, 90.0], false),
        (vec![700.0, 100.0, 100.0, 90.0], false),
    ] {
        let mut world = fleet(7, shares.len(), 2, 30);
        for (proxy, share) in shares.iter().enumerate() {
            world.reads(proxy, "uneven", *share);
        }
        world.run(seconds(3));
        assert_eq!(world.is_hot_everywhere("uneven"), is_hot, "{shares:?}");
        assert_eq!(world.store.entry(b"uneven").is_some(), is_hot, "{shares:?}");
        if is_hot {
            let entry = world.store.entry(b"uneven").expect("registered");
            let total: f64 = shares.iter().sum();
            assert!(entry.frequency <= total + 1.0 && entry.frequency >= 1000.0, "{entry:?}");
        }
    }
}

#[test]
fn a_key_that_hovers_changes_state_at_most_once() {
    for seed in 0..6 {
        let mut world = fleet(seed, 3, 2, 30);
        let period_s = [0.7, 3.0, 11.0, 30.0, 61.0, 120.0][seed as usize];
        for proxy in 0..3 {
            world.flow(proxy, "hovering", false, move |now| {
                (1000.0 + 300.0 * (now.as_secs_f64() / period_s * TAU).sin()) / 3.0
            });
        }
        world.run(seconds(120));
        for proxy in 0..3 {
            let turns = world.brain(proxy).turns(b"hovering");
            assert!(turns <= 1, "period {period_s} s: {turns} turns");
        }
        assert!(world.store.puts(b"hovering").len() <= 1);
        assert!(world.store.removals(b"hovering").is_empty());
    }
}

#[test]
fn a_key_is_retired_within_the_hold_time_and_a_second() {
    for (seed, rest) in [(1, 0.0), (2, 0.0), (3, 100.0), (4, 150.0)] {
        let mut world = fleet(seed, 3, 2, 10);
        for proxy in 0..3 {
            world.reads(proxy, "brief", 20_000.0);
        }
        world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("brief"));
        world.run(seconds(5));
        for proxy in 0..3 {
            world.reads(proxy, "brief", rest);
        }
        let took = world.run_until(seconds(11), "retired", |world| world.is_hot_nowhere("brief"));
        assert!(took >= seconds(10), "before the hold time was over: {took:?}");
        world.run(seconds(5));
        assert_eq!(world.store.removals(b"brief").len(), 1);
        assert!(world.has_converged());
    }
}

#[test]
fn a_hot_key_outlives_its_ttl_while_it_is_hot() {
    let mut world = fleet(5, 2, 2, 10);
    world.reads(0, "lasting", 1500.0);
    world.run(seconds(200));
    assert!(world.is_hot_everywhere("lasting"));
    assert_eq!(world.store.puts(b"lasting").len(), 1);
    // Without an aggregator that renews or sweeps, proxies are on their own and keep it
    // while it is warm to them.
    world.crash(2);
    world.crash(3);
    world.run(seconds(100));
    assert!(world.brain(0).is_hot(b"lasting"));
    assert!(!world.brain(1).is_hot(b"lasting"), "cold here, and its time is over");
}

#[test]
fn aggregators_decide_alike_and_once() {
    for seed in 0..20 {
        let mut world = fleet(seed, 3, 3, 10);
        for key in ["a", "b", "c", "d"] {
            for proxy in 0..3 {
                world.reads(proxy, key, 700.0);
            }
        }
        world.run(seconds(8));
        for key in ["a", "b", "c", "d"] {
            assert_eq!(world.store.puts(key.as_bytes()).len(), 1, "{key}");
        }
        assert_eq!(world.store.version(), 4);
    }
}

#[test]
fn a_deaf_aggregator_does_not_retire() {
    let mut world = fleet(9, 2, 1, 5);
    world.reads(0, "kept", 1500.0);
    world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("kept"));
    world.nodes[2].is_deaf = true;
    world.run(seconds(130));
    assert!(world.is_hot_everywhere("kept"), "nothing was heard, so nothing is known");
    assert!(world.store.removals(b"kept").is_empty());
    world.reads(0, "kept", 0.0);
    world.run(seconds(20));
    assert!(world.is_hot_everywhere("kept"));
    world.nodes[2].is_deaf = false;
    let took = world.run_until(seconds(8), "retired", |world| world.is_hot_nowhere("kept"));
    assert!(took >= seconds(5), "{took:?}");
}

#[test]
fn an_aggregator_that_lost_a_proxy_does_not_retire_what_only_that_one_sees() {
    let mut world = fleet(10, 2, 1, 5);
    world.reads(0, "elsewhere", 1500.0);
    world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("elsewhere"));
    world.nodes[0].is_cut = true;
    world.run(seconds(4));
    world.nodes[0].is_cut = false;
    world.run(seconds(30));
    assert!(world.store.removals(b"elsewhere").is_empty());
    assert!(world.has_converged());
}

#[test]
fn an_aggregator_with_old_data_cannot_undo_a_newer_decision() {
    let mut world = fleet(11, 2, 2, 5);
    world.reads(0, "disputed", 1500.0);
    world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("disputed"));
    let old = world.store.epoch(b"disputed").expect("registered");
    let entry = world.store.entry(b"disputed").expect("registered").clone();
    // One aggregator is cut off while the other decides anew on writes.
    world.nodes[3].is_cut = true;
    world.flow(0, "disputed", true, |_| 9000.0);
    world.run_until(seconds(9), "another mitigation", |world| {
        world.store.epoch(b"disputed").is_some_and(|epoch| epoch > old)
    });
    let newer = world.store.epoch(b"disputed");
    assert_eq!(world.store.entry(b"disputed").map(|e| e.mitigation), Some(Mitigation::Coalesce));
    // What it had decided arrives late.
    let key = || b"disputed".to_vec();
    world.nodes[3].is_cut = false;
    let (ttl, respects_block) = (None, true);
    for expects in [Some(old), Some(0)] {
        let entry = entry.clone();
        let put = Request::Put { key: key(), entry, expects, ttl, respects_block };
        world.send(3, put, None);
        world.send(3, Request::Remove { key: key(), expects, block_for: None }, None);
    }
    world.run(seconds(20));
    assert_eq!(world.store.epoch(b"disputed"), newer);
    assert!(world.has_converged());
}
