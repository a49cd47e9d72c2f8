//! The agent: a proxy's side of the control plane.
//!
//! Called by: the ticker of a proxy, each tick, with its own report; the runtime, with what
//! the store and its channels say.
//! Bound: a report has `report_keys` keys plus those that are registered or watched; local
//! entries are bounded by `max_hot_keys`.
//! Invariant: the data plane is given the registry's entries, cut down to what this proxy's own policies
//! allow. A proxy on its own adds local entries, none of which moves data. The version of the hot set
//! changes only if the set does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use heatsink_detect::report::Report;

use crate::aggregate::Intent;
use crate::entry::{Mitigation, Origin, SplitRecord, Status};
use crate::member::{self, Member};
use crate::policy::Policies;
use crate::registry::Registry;
use crate::settings::Settings;
use crate::value::ValueKind;

mod effective;
mod health;
mod local;
mod publish;

use effective::Effect;
use health::Health;
pub use health::Readiness;
use local::Local;
use publish::Publisher;

type Map<V> = HashMap<Vec<u8>, V, RandomState>;

/// Keys that a proxy watches at most.
pub const MAX_WATCHED: usize = 1024;

/// A hot key, as the data plane is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The raw key.
    pub key: Vec<u8>,
    /// What is done.
    pub mitigation: Mitigation,
    /// Physical keys; 1 unless it is split.
    pub split_factor: u32,
    /// Where it stands.
    pub status: Status,
    /// Nothing is done; it is only counted.
    pub dry_run: bool,
    /// Who brought it in.
    pub origin: Origin,
    /// The version that wrote its record; 0 for a local one.
    pub epoch: u64,
    /// Where its value is, if it is moved or has been.
    pub split: Option<SplitRecord>,
}

/// The hot keys of this proxy at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotSet {
    /// Changes whenever the keys do.
    pub version: u64,
    /// Ordered by key.
    pub keys: Vec<HotKey>,
}

impl HotSet {
    /// The one with this key.
    pub fn get(&self, key: &[u8]) -> Option<&HotKey> {
        let place = self.keys.binary_search_by(|hot| hot.key.as_slice().cmp(key)).ok()?;
        Some(&self.keys[place])
    }
}

/// What a tick asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tick {
    /// The bytes of a report to publish.
    pub report: Option<Vec<u8>>,
    /// The hot set, if it is another one than before.
    pub hot: Option<Arc<HotSet>>,
    /// Manual entries that the store has lost, to be put again.
    pub intents: Vec<Intent>,
}

/// One proxy's agent.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    policies: Arc<Policies>,
    publisher: Publisher,
    /// Watched keys, and until when.
    watched: Map<Duration>,
    proxies: usize,
    health: Health,
    local: Local,
    effect: Effect,
}

impl Agent {
    /// The agent of the member `id`; `boot` is a number that differs at each start.
    pub fn new(
        now: Duration,
        id: &str,
        boot: u64,
        settings: Settings,
        policies: Arc<Policies>,
    ) -> Self {
        Self {
            publisher: Publisher::new(id, boot),
            watched: Map::default(),
            proxies: 1,
            health: Health::new(now),
            local: Local::new(&settings),
            effect: Effect::default(),
            settings,
            policies,
        }
    }

    /// Takes over other settings and policies.
    pub fn apply(&mut self, settings: Settings, policies: Arc<Policies>) {
        self.local.apply(&settings);
        self.settings = settings;
        self.policies = policies;
        self.effect.forget();
    }

    /// The store has taken a heartbeat. The caller says so several times within `store_patience`, and only
    /// for heartbeats: a store that answers questions and takes no writes is of no use.
    pub fn on_store_ok(&mut self, now: Duration) {
        self.health.store_ok(now);
    }

    /// The store has not answered, or has refused something, and why.
    pub fn on_store_error(&mut self, why: &str) {
        self.health.store_error(why);
    }

    /// The subscription to changes is there, or is gone.
    pub fn on_subscription(&mut self, now: Duration, is_up: bool) {
        self.health.subscription(now, is_up);
    }

    /// The live members, by the store.
    pub fn on_members(&mut self, now: Duration, members: &[Member]) {
        self.proxies = member::proxies(members).max(1);
        self.health.aggregators(now, member::aggregators(members));
    }

    /// A watch list is here.
    pub fn on_watch<K: AsRef<[u8]>>(&mut self, now: Duration, keys: &[K]) {
        let until = now + self.settings.watch_life;
        for key in keys.iter().map(AsRef::as_ref) {
            if let Some(watched) = self.watched.get_mut(key) {
                *watched = until;
            } else if self.watched.len() < MAX_WATCHED {
                self.watched.insert(key.to_vec(), until);
            }
        }
    }

    /// Looks at this proxy's own report. `kind_of` tells what a key holds.
    pub fn tick(
        &mut self,
        now: Duration,
        report: &Report,
        kind_of: &dyn Fn(&[u8]) -> ValueKind,
        registry: &mut Registry,
    ) -> Tick {
        self.watched.retain(|_, until| *until > now);
        let alone = self.health.look(now, registry.is_synced(), &self.settings);
        let scene = Scene {
            now,
            alone,
            settings: &self.settings,
            policies: &self.policies,
            registry,
            report,
            proxies: self.proxies,
            kind_of,
        };
        self.effect.look(&scene);
        self.local.tick(&scene, |key| self.effect.holds(&scene, key));
        let hot = self.effect.tick(&scene, &self.local);
        let report = self.publisher.tick(&scene, &self.watched);
        let lost = registry.reclaims(now, self.settings.retry);
        Tick { report, hot, intents: lost.into_iter().map(Intent::from).collect() }
    }

    /// The hot set after a change of the registry, if it is another one than before: the data
    /// plane need not wait for the next tick.
    pub fn refresh(&mut self, now: Duration, registry: &Registry) -> Option<Arc<HotSet>> {
        let scene = Scene {
            now,
            alone: self.health.is_alone(),
            settings: &self.settings,
            policies: &self.policies,
            registry,
            report: &Report::default(),
            proxies: self.proxies,
            kind_of: &|_| ValueKind::Unknown,
        };
        self.effect.tick(&scene, &self.local)
    }

    /// Whether this proxy is on its own.
    pub fn is_degraded(&self) -> bool {
        self.health.is_alone()
    }

    /// What `/readyz` says.
    pub fn readiness(&self, now: Duration) -> Readiness {
        self.health.readiness(now)
    }

    /// The hot set as it is now.
    pub fn hot(&self) -> &Arc<HotSet> {
        self.effect.hot()
    }

    /// Entries of this proxy alone.
    pub fn local(&self) -> impl Iterator<Item = (&[u8], &crate::entry::Entry)> {
        self.local.iter()
    }

    /// Keys that aggregators asked to watch. The detector reports the counts of these and of the registered
    /// keys, however low they are.
    pub fn watched(&self) -> impl Iterator<Item = &[u8]> {
        self.watched.keys().map(Vec::as_slice)
    }
}

/// What a tick looks at.
struct Scene<'a> {
    now: Duration,
    /// This proxy is on its own.
    alone: bool,
    settings: &'a Settings,
    policies: &'a Policies,
    registry: &'a Registry,
    report: &'a Report,
    /// Live proxies, by the last list of members.
    proxies: usize,
    kind_of: &'a dyn Fn(&[u8]) -> ValueKind,
}

#[cfg(test)]
mod tests;
