//! The fleet in virtual time: agents, aggregators and a model of the store, with a network
//! and processes that fail. Everything follows from a seed.
//!
//! `HEATSINK_FLEET_SEED=n` runs one seed of the random faults; a failing test prints its seed.
//! `HEATSINK_FLEET_SEEDS=n` runs that many instead of the usual ones.

#[path = "fleet/node.rs"]
mod node;
#[path = "fleet/store.rs"]
mod store;
#[path = "fleet/world.rs"]
mod world;

#[path = "fleet/alone.rs"]
mod alone;
#[path = "fleet/faults.rs"]
mod faults;
#[path = "fleet/finding.rs"]
mod finding;
#[path = "fleet/operators.rs"]
mod operators;

use std::time::Duration;

use heatsink_control::settings::Settings;
use world::World;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Threshold 1000 requests/s, retired below 500 for `hold_seconds`.
fn settings(hold_seconds: u32) -> Settings {
    let mut settings = Settings::default();
    settings.detect.hold_seconds = hold_seconds;
    settings
}

/// A fleet that has come to rest.
fn fleet(seed: u64, proxies: usize, aggregators: usize, hold_seconds: u32) -> World {
    let mut world = World::new(seed, proxies, aggregators, settings(hold_seconds));
    world.run(seconds(3));
    assert!(world.has_converged(), "a fleet without faults is in step");
    world
}
