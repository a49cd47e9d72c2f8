//! What people do, and that it holds.

use heatsink_control::entry::Origin;

use crate::{fleet, ms, seconds};

#[test]
fn a_manual_entry_is_not_touched_by_decisions() {
    let mut world = fleet(1, 2, 2, 5);
    let done = world.promote(0, "mine", None);
    world.run(ms(50));
    assert_eq!(world.operations[done], Some(true));
    assert!(world.is_hot_everywhere("mine"));
    let epoch = world.store.epoch(b"mine");
    // Cold, then hot with writes, then cold: the decisions would be three others.
    for rate in [0.0, 30_000.0, 0.0] {
        world.flow(1, "mine", true, move |_| rate);
        world.run(seconds(20));
        assert_eq!(world.store.epoch(b"mine"), epoch);
        assert!(world.is_hot_everywhere("mine"));
    }
}

#[test]
fn a_manual_entry_takes_the_place_of_an_automatic_one() {
    let mut world = fleet(2, 2, 2, 5);
    world.reads(0, "both", 1500.0);
    world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("both"));
    world.promote(1, "both", None);
    world.run(seconds(1));
    world.reads(0, "both", 0.0);
    world.run(seconds(30));
    assert_eq!(world.store.entry(b"both").map(|entry| entry.origin), Some(Origin::Manual));
    assert!(world.is_hot_everywhere("both"));
}

#[test]
fn a_manual_entry_ends_with_its_time() {
    let mut world = fleet(3, 2, 1, 5);
    world.promote(0, "timed", Some(seconds(10)));
    world.run(seconds(9));
    assert!(world.is_hot_everywhere("timed"));
    world.run(seconds(3));
    assert!(world.is_hot_nowhere("timed") && world.has_converged());
}

#[test]
fn a_removed_key_is_not_promoted_again_for_a_while() {
    let mut world = fleet(4, 2, 2, 5);
    world.reads(0, "unwanted", 3000.0);
    world.run_until(seconds(2), "found", |world| world.is_hot_everywhere("unwanted"));
    let done = world.remove(1, "unwanted", seconds(20));
    world.run(ms(50));
    assert_eq!(world.operations[done], Some(true));
    assert!(world.is_hot_nowhere("unwanted"));
    // A restarted aggregator knows of it, too.
    world.crash(2);
    world.crash(3);
    world.run(seconds(1));
    world.start(2);
    world.start(3);
    world.run(seconds(18));
    assert!(world.is_hot_nowhere("unwanted") && world.store.entry(b"unwanted").is_none());
    world.run(seconds(3));
    assert!(world.is_hot_everywhere("unwanted"), "the time is over and it is still hot");
    assert_eq!(world.store.puts(b"unwanted").len(), 2);
}

#[test]
fn a_promote_ends_the_block() {
    let mut world = fleet(5, 2, 2, 5);
    world.reads(0, "again", 3000.0);
    world.run(seconds(2));
    world.remove(0, "again", seconds(300));
    world.run(seconds(1));
    world.promote(1, "again", None);
    world.run(seconds(1));
    assert!(world.is_hot_everywhere("again") && world.has_converged());
    assert_eq!(world.store.entry(b"again").map(|entry| entry.origin), Some(Origin::Manual));
}

#[test]
fn operators_at_odds_end_in_one_state() {
    let (mut kept, mut gone) = (0, 0);
    for seed in 0..200 {
        let mut world = fleet(seed, 3, 2, 5);
        if seed % 2 == 0 {
            world.reads(2, "contested", 2000.0);
            world.run(seconds(2));
        } else {
            world.promote(0, "contested", None);
            world.run(ms(100));
        }
        world.network.delay_ms = 30;
        for _ in 0..3 {
            let (promoter, remover) = (world.random.usize(..5), world.random.usize(..5));
            world.promote(promoter, "contested", None);
            world.remove(remover, "contested", seconds(60));
        }
        world.run(seconds(4));
        assert!(world.has_converged(), "seed {seed}");
        if let Some(entry) = world.store.entry(b"contested") {
            assert_eq!(entry.origin, Origin::Manual, "seed {seed}");
            assert!(world.is_hot_everywhere("contested"), "seed {seed}");
            kept += 1;
        } else {
            assert!(world.is_hot_nowhere("contested"), "seed {seed}");
            gone += 1;
        }
    }
    assert!(kept > 20 && gone > 20, "both outcomes were seen: {kept}, {gone}");
}

/// Removed, promoted, and then the store loses everything, again and again: a removal that
/// only a lost store knew of does not count against a later promote.
#[test]
fn a_promote_after_a_removal_outlives_the_store() {
    for seed in 0..20 {
        let mut world = fleet(seed, 2, 2, 5);
        world.promote(0, "mine", None);
        world.run(seconds(1));
        for _ in 0..3 {
            world.remove(1, "mine", seconds(300));
            world.run(seconds(1));
            world.lose_store();
            let promoter = world.random.usize(..4);
            // Often before the others listen again: they read of it in a snapshot.
            let phase = world.random.u64(..300);
            world.run(ms(phase));
            let done = world.promote(promoter, "mine", None);
            world.run(seconds(3));
            assert_eq!(world.operations[done], Some(true), "seed {seed}");
            world.crash(promoter);
            world.lose_store();
            world.run(seconds(4));
            world.start(promoter);
            world.run(seconds(4));
            let origin = world.store.entry(b"mine").map(|entry| entry.origin);
            assert_eq!(origin, Some(Origin::Manual), "seed {seed}");
            assert!(world.is_hot_everywhere("mine") && world.has_converged(), "seed {seed}");
        }
    }
}

/// The store goes back to where the key was removed and blocked.
#[test]
fn a_promote_after_a_removal_outlives_a_failover() {
    for seed in 0..20 {
        let mut world = fleet(seed, 2, 2, 5);
        world.promote(0, "mine", None);
        world.run(seconds(1));
        world.remove(1, "mine", seconds(300));
        world.run(seconds(1));
        let replica = world.store.clone();
        let done = world.promote(2, "mine", None);
        world.run(ms(100));
        assert_eq!(world.operations[done], Some(true), "seed {seed}");
        world.store.roll_back(replica);
        world.drop_connections();
        world.run(seconds(4));
        assert!(world.is_hot_everywhere("mine") && world.has_converged(), "seed {seed}");
    }
}
