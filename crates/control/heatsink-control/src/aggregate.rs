//! The aggregator: adds up the reports of the fleet and proposes changes of the registry.
//!
//! Called by: the runtime of every process with that role, with each report, each list of
//! members, and each tick.
//! Bound: [`MAX_INTENTS`] changes a tick, largest first; the rest waits for the next tick.
//! Cost of a tick: one look at each summed key and each record.
//! Invariant: proposals depend on the sums, the policies and the registry copy alone, and every change
//! names the epoch it is based on. So aggregators need not know of each other: the first change takes
//! effect, the others are refused. A manual entry is never changed. An aggregator that may not hear all
//! proxies retires nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use heatsink_detect::heat::{HeatKind, KeyHeat, Thresholds};

use crate::decision::{Case, Decision, decide};
use crate::entry::{Entry, Origin, Status};
use crate::member::{self, Member};
use crate::policy::{Effective, Policies};
use crate::registry::{Record, Registry};
use crate::settings::Settings;
use crate::sums::{KeySum, Sums};
use crate::value::ValueKind;
use crate::wire::Report;

mod review;
mod watch;

use review::Track;
use watch::Watch;

/// Changes that are proposed in one tick.
pub const MAX_INTENTS: usize = 64;

/// A change that an aggregator proposes. The store refuses it for a blocked key, except for the put of a
/// key that [`Registry::outlives_block`].
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "most of them are puts, and there are few")]
pub enum Intent {
    /// Put an entry.
    Put {
        /// The raw key.
        key: Vec<u8>,
        /// What it is to have.
        entry: Entry,
        /// Only if the record has this epoch; 0: only if there is none.
        expects_epoch: u64,
        /// How long it lives.
        ttl: Option<Duration>,
    },
    /// Remove an entry.
    Remove {
        /// The raw key.
        key: Vec<u8>,
        /// Only if the record has this epoch.
        expects_epoch: u64,
    },
    /// Let an entry live on.
    Renew {
        /// The raw key.
        key: Vec<u8>,
        /// Only if the record has this epoch.
        expects_epoch: u64,
        /// How long from now.
        ttl: Duration,
    },
    /// Publish this watch list (see [`crate::wire::encode_watch`]).
    Watch(Vec<Vec<u8>>),
}

/// What a key does right now.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// Sums over the fleet, without the key.
    pub heat: KeyHeat,
    /// Proxies that reported it.
    pub proxies: usize,
    /// What it holds.
    pub value: ValueKind,
    /// Whether it is at or over the retire fraction in any way.
    pub warm: bool,
}

/// An aggregator's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reports that were taken in.
    pub reports: u64,
    /// Reports that came twice or too late.
    pub outdated_reports: u64,
    /// Keys and reporters that found no room.
    pub refused: u64,
    /// Keys that anybody reports now.
    pub summed_keys: usize,
    /// Keys on the watch list.
    pub watched_keys: usize,
    /// Proxies that are heard now.
    pub heard_proxies: usize,
    /// How often a hot key was left out because the registry was full.
    pub left_out: u64,
    /// Whether a live proxy is not heard, so that nothing is retired.
    pub is_deaf: bool,
}

/// One aggregator.
#[derive(Debug)]
pub struct Aggregator {
    settings: Settings,
    policies: Arc<Policies>,
    policies_since: Duration,
    sums: Sums,
    reports: u64,
    members: Vec<Member>,
    members_at: Option<Duration>,
    tracks: HashMap<Vec<u8>, Track, RandomState>,
    /// When an entry was last proposed for a key that has none.
    asked: HashMap<Vec<u8>, Duration, RandomState>,
    watch: Watch,
    last_tick: Duration,
    is_deaf: bool,
    left_out: u64,
}

impl Aggregator {
    /// An aggregator that has heard nothing yet.
    pub fn new(now: Duration, settings: Settings, policies: Arc<Policies>) -> Self {
        Self {
            settings,
            policies,
            policies_since: now,
            sums: Sums::default(),
            reports: 0,
            members: Vec::new(),
            members_at: None,
            tracks: HashMap::default(),
            asked: HashMap::default(),
            watch: Watch::default(),
            last_tick: now,
            is_deaf: true,
            left_out: 0,
        }
    }

    /// Takes over new settings and policies. Entries that they do not allow are changed at the next tick,
    /// all others when they would have changed anyway.
    pub fn apply(&mut self, now: Duration, settings: Settings, policies: Arc<Policies>) {
        self.settings = settings;
        self.policies = policies;
        self.policies_since = now;
    }

    /// A report is here.
    pub fn on_report(&mut self, now: Duration, report: &Report<'_>) {
        self.reports += 1;
        self.sums.add(now, report);
    }

    /// The live members, by the store.
    pub fn on_members(&mut self, now: Duration, members: &[Member]) {
        self.members_at = Some(now);
        if self.members != members {
            self.members = members.to_vec();
        }
    }

    /// Looks at all sums and records. Returns the changes that are to be proposed.
    pub fn tick(&mut self, now: Duration, registry: &mut Registry) -> Vec<Intent> {
        self.sums.expire(now, self.settings.report_life());
        self.is_deaf = !self.hears_everybody(now);
        let mut intents = Vec::new();
        if registry.incarnation().is_some() {
            self.reclaim(now, registry, &mut intents);
            self.review(now, registry, &mut intents);
            self.propose(now, registry, &mut intents);
        }
        self.last_tick = now;
        intents
    }

    /// Whether the reports of all live proxies count now. If not, a sum may be too low.
    fn hears_everybody(&self, now: Duration) -> bool {
        let believed =
            self.members_at.is_some_and(|at| now.saturating_sub(at) <= self.settings.members_life);
        let life = self.settings.report_life();
        believed
            && self
                .members
                .iter()
                .filter(|member| member.proxy)
                .all(|member| self.sums.hears(now, life, &member.id))
    }

    /// Manual entries that the store has lost are put again.
    fn reclaim(&self, now: Duration, registry: &mut Registry, intents: &mut Vec<Intent>) {
        let lost = registry.reclaims(now, self.settings.retry);
        intents.extend(lost.into_iter().map(Intent::from));
    }

    /// Keys without a record: those over a threshold are proposed, those that might be over it
    /// are watched.
    fn propose(&mut self, now: Duration, registry: &Registry, intents: &mut Vec<Intent>) {
        let proxies = self.live_proxies(now).max(1) as f64;
        let mut lowest = self.settings.detect.thresholds();
        if let Some(threshold) = self.policies.lowest_threshold() {
            lowest.requests_per_second = lowest.requests_per_second.min(f64::from(threshold));
        }
        let mut hot = Vec::new();
        let mut near = Vec::new();
        for sum in self.sums.iter().filter(|sum| registry.get(sum.key()).is_none()) {
            let heat = sum.heat();
            if heat.exceeds_any(&lowest) {
                hot.push(sum);
            } else if proxies > 1.0 && reaches(&heat, &lowest, 1.0 / proxies) {
                near.push(sum);
            }
        }
        hot.sort_unstable_by(|a, b| larger_first(a, b));
        let mut room = self.settings.registry_keys.saturating_sub(registry.len());
        let retry = self.settings.retry;
        self.asked.retain(|_, asked| now.saturating_sub(*asked) < retry);
        for sum in hot {
            let policy = self.policies.of(sum.key());
            let thresholds = self.settings.thresholds(&policy);
            let heat = sum.heat();
            let hot_in =
                HeatKind::ALL.into_iter().find(|kind| heat.exceeds(*kind, thresholds.of(*kind)));
            let Some(kind) = hot_in else {
                if proxies > 1.0 && reaches(&heat, &thresholds, 1.0 / proxies) {
                    near.push(sum);
                }
                continue;
            };
            if room == 0 {
                self.left_out += 1;
                continue;
            }
            if intents.len() >= MAX_INTENTS
                || self.asked.contains_key(sum.key())
                || registry.blocked_for(now, sum.key()).is_some()
            {
                continue;
            }
            let threshold = thresholds.of(kind);
            let Some(decision) = self.decision(sum, &heat, kind, threshold, policy) else {
                continue;
            };
            room -= 1;
            self.asked.insert(sum.key().to_vec(), now);
            let entry = self.entry(decision, &heat);
            intents.push(self.put(sum.key(), entry, None));
        }
        let list = self.watch.choose(now, &self.settings, near);
        intents.extend(list.map(Intent::Watch));
    }

    fn decision(
        &self,
        sum: &KeySum,
        heat: &KeyHeat,
        kind: HeatKind,
        threshold: f64,
        policy: Effective<'_>,
    ) -> Option<Decision> {
        let (value, proxies) = (sum.value(), sum.proxies());
        decide(&Case { heat, value, proxies, kind, threshold, policy }, &self.settings.decision)
    }

    fn entry(&self, decision: Decision, heat: &KeyHeat) -> Entry {
        Entry {
            mitigation: decision.mitigation,
            split_factor: decision.split_factor,
            ttl_seconds: Some(self.settings.registry_ttl.as_secs()),
            origin: Origin::Auto,
            status: Status::Active,
            reason: decision.reason,
            dry_run: decision.dry_run,
            frequency: heat.requests_per_second(),
            reads_per_second: heat.reads_per_second,
            writes_per_second: heat.writes_per_second,
            detected_at_ms: 0,
            split: None,
            pause: None,
        }
    }

    /// The put of an entry in the place of a record. If the value was moved, the new entry keeps saying
    /// where it is, and does not expire before it is moved back.
    fn put(&self, key: &[u8], entry: Entry, record: Option<&Record>) -> Intent {
        let expects_epoch = record.map_or(0, |record| record.epoch);
        let entry = match record {
            Some(record) => record.entry.replaced_by(entry, 0),
            None => entry,
        };
        let ttl = entry.split.is_none().then_some(self.settings.registry_ttl);
        Intent::Put { key: key.to_vec(), entry, expects_epoch, ttl }
    }

    /// The number of proxies that share the traffic: those with a heartbeat or, while heartbeats are not
    /// known, those whose reports come.
    pub fn live_proxies(&self, now: Duration) -> usize {
        match self.members_at {
            Some(_) => member::proxies(&self.members),
            None => self.sums.heard_members(now, self.settings.report_life()),
        }
    }

    /// What a key does right now; none if nobody reports it.
    pub fn live(&self, key: &[u8]) -> Option<Live> {
        self.sums.get(key).map(|sum| self.live_of(sum))
    }

    fn live_of(&self, sum: &KeySum) -> Live {
        let heat = sum.heat();
        let thresholds = self.settings.thresholds(&self.policies.of(sum.key()));
        let warm = reaches(&heat, &thresholds, self.settings.detect.retire_fraction);
        Live { heat, proxies: sum.proxies(), value: sum.value(), warm }
    }

    /// Keys on the watch list: near the threshold, nothing is done yet.
    pub fn watched(&self) -> impl Iterator<Item = &[u8]> {
        self.watch.keys()
    }

    /// What it can tell of itself.
    pub fn stats(&self) -> Stats {
        let life = self.settings.report_life();
        Stats {
            reports: self.reports,
            outdated_reports: self.sums.outdated(),
            refused: self.sums.refused(),
            summed_keys: self.sums.len(),
            watched_keys: self.watch.keys().count(),
            heard_proxies: self.sums.heard_members(self.last_tick, life),
            left_out: self.left_out,
            is_deaf: self.is_deaf,
        }
    }
}

impl From<crate::registry::Reclaim> for Intent {
    fn from(lost: crate::registry::Reclaim) -> Self {
        Self::Put {
            key: lost.key,
            entry: lost.entry,
            expects_epoch: lost.expects_epoch,
            ttl: lost.remaining,
        }
    }
}

/// Whether a key is at or over a fraction of a threshold, in any way.
pub(crate) fn reaches(heat: &KeyHeat, thresholds: &Thresholds, fraction: f64) -> bool {
    HeatKind::ALL.into_iter().any(|kind| heat.level(kind) >= thresholds.of(kind) * fraction)
}

/// The order in which keys are dealt with; the same for every aggregator.
fn larger_first(a: &KeySum, b: &KeySum) -> std::cmp::Ordering {
    b.requests().cmp(&a.requests()).then_with(|| a.key().cmp(b.key()))
}

#[cfg(test)]
mod tests;
