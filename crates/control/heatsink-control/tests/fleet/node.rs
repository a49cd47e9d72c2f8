//! One process of the simulated fleet: the runtime around agent, aggregator and registry.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use heatsink_control::agent::{Agent, HotSet};
use heatsink_control::aggregate::{Aggregator, Intent};
use heatsink_control::member::Member;
use heatsink_control::policy::Policies;
use heatsink_control::registry::{Change, Registry};
use heatsink_control::settings::Settings;
use heatsink_control::value::ValueKind;
use heatsink_control::wire;
use heatsink_detect::heat::KeyHeat;
use heatsink_detect::report::Report;

use crate::store::{Reply, Request};

const BEAT: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_secs(1);
const READ_TIMEOUT: Duration = Duration::from_millis(700);
/// Time until a broken connection is noticed, and until it is made anew.
const NOTICE: Duration = Duration::from_millis(300);

/// What a process is.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) member: Member,
    /// Its clock differs from true time by so much.
    pub(crate) skew: Duration,
    /// It cannot reach the store.
    pub(crate) is_cut: bool,
    /// Reports do not reach it.
    pub(crate) is_deaf: bool,
    pub(crate) boot: u64,
}

/// What a running process holds; lost when it crashes.
#[derive(Debug)]
pub(crate) struct Brain {
    pub(crate) registry: Registry,
    pub(crate) agent: Option<Agent>,
    pub(crate) aggregator: Option<Aggregator>,
    /// Each hot set that the data plane got, with true time.
    pub(crate) hot: Vec<(Duration, Arc<HotSet>)>,
    pub(crate) is_subscribed: bool,
    wrong_since: Option<Duration>,
    reading_since: Option<Duration>,
    beat_at: Option<Duration>,
    looked_at: Duration,
    swept_at: Duration,
    ends_soon: Duration,
    slots: BTreeMap<Vec<u8>, VecDeque<[f64; 2]>>,
}

impl Brain {
    pub(crate) fn new(node: &Node, now: Duration, settings: &Settings) -> Self {
        let local = now + node.skew;
        let policies = Arc::new(Policies::default());
        let agent = node.member.proxy.then(|| {
            Agent::new(local, &node.member.id, node.boot, settings.clone(), policies.clone())
        });
        let aggregator = node
            .member
            .aggregator
            .then(|| Aggregator::new(local, settings.clone(), policies.clone()));
        Self {
            registry: Registry::new(),
            agent,
            aggregator,
            hot: Vec::new(),
            is_subscribed: false,
            wrong_since: None,
            reading_since: None,
            beat_at: None,
            looked_at: now,
            swept_at: now,
            ends_soon: settings.registry_ttl / 8,
            slots: BTreeMap::new(),
        }
    }

    /// One tick: `version` is the store's, if it can be reached; `rates` are reads/s and writes/s on this proxy right now.
    pub(crate) fn tick(
        &mut self,
        node: &Node,
        now: Duration,
        is_reachable: bool,
        version: u64,
        rates: &BTreeMap<Vec<u8>, [f64; 2]>,
    ) -> Vec<Request> {
        let local = now + node.skew;
        let mut requests = Vec::new();
        self.connect(local, now, is_reachable);
        let due = |last: Duration, every: Duration| now.saturating_sub(last) >= every;
        if self.beat_at.is_none_or(|last| due(last, BEAT)) {
            self.beat_at = Some(now);
            requests.push(Request::Beat(node.member.clone()));
        }
        if due(self.looked_at, LOOK) {
            self.looked_at = now;
            let confirmed = self.is_subscribed.then_some(version);
            if !self.registry.is_current(local, confirmed, self.ends_soon) {
                self.registry.desync();
            }
        }
        if self.reading_since.is_some_and(|since| due(since, READ_TIMEOUT)) {
            self.reading_since = None;
            self.registry.snapshot_failed();
        }
        if self.registry.wants_snapshot() && self.reading_since.is_none() {
            self.reading_since = Some(now);
            self.registry.begin_snapshot();
            requests.push(Request::Snapshot);
        }
        let report = self.count(rates);
        let mut intents = Vec::new();
        if let Some(agent) = &mut self.agent {
            let tick = agent.tick(local, &report, &|_| ValueKind::Unknown, &mut self.registry);
            requests.extend(tick.report.map(Request::Report));
            self.hot.extend(tick.hot.map(|hot| (now, hot)));
            intents.extend(tick.intents);
        }
        if let Some(aggregator) = &mut self.aggregator {
            intents.extend(aggregator.tick(local, &mut self.registry));
            if due(self.swept_at, SWEEP) {
                self.swept_at = now;
                requests.push(Request::Sweep);
            }
        }
        requests.extend(intents.into_iter().map(|intent| request(intent, &self.registry)));
        requests
    }

    fn connect(&mut self, local: Duration, now: Duration, is_reachable: bool) {
        if is_reachable == self.is_subscribed {
            self.wrong_since = None;
            return;
        }
        let since = *self.wrong_since.get_or_insert(now);
        if now.saturating_sub(since) < NOTICE && self.beat_at.is_some() {
            return;
        }
        self.is_subscribed = is_reachable;
        if is_reachable {
            self.registry.desync();
        }
        if let Some(agent) = &mut self.agent {
            agent.on_subscription(local, is_reachable);
        }
    }

    /// The window of one second in slots of one tick.
    fn count(&mut self, rates: &BTreeMap<Vec<u8>, [f64; 2]>) -> Report {
        for key in rates.keys() {
            self.slots.entry(key.clone()).or_default();
        }
        let mut report = Report::default();
        for (key, slots) in &mut self.slots {
            let rate = rates.get(key).copied().unwrap_or_default();
            slots.push_back(rate.map(|rate| rate * 0.05));
            if slots.len() > 20 {
                slots.pop_front();
            }
            let sum = |kind: usize| slots.iter().map(|slot| slot[kind]).sum::<f64>().round();
            let heat = KeyHeat {
                key: key.clone(),
                reads_per_second: sum(0),
                writes_per_second: sum(1),
                ..KeyHeat::default()
            };
            if heat.requests_per_second() > 0.0 {
                report.keys.push(heat);
            }
        }
        report.keys.sort_by(|a, b| b.requests_per_second().total_cmp(&a.requests_per_second()));
        report
    }

    pub(crate) fn on_reply(&mut self, node: &Node, now: Duration, reply: Reply) {
        let local = now + node.skew;
        if let Some(agent) = &mut self.agent {
            match &reply {
                Reply::Unreachable => agent.on_store_error("connection refused"),
                Reply::Members(_) => agent.on_store_ok(local),
                _ => {}
            }
        }
        match reply {
            Reply::Snapshot(snapshot) if self.reading_since.take().is_some() => {
                self.registry.on_snapshot(local, snapshot);
            }
            Reply::Members(members) => {
                if let Some(agent) = &mut self.agent {
                    agent.on_members(local, &members);
                }
                if let Some(aggregator) = &mut self.aggregator {
                    aggregator.on_members(local, &members);
                }
            }
            Reply::Applied(change) => self.registry.acknowledge(local, change),
            Reply::Renewed { key, epoch, ttl } => self.registry.renewed(local, &key, epoch, ttl),
            Reply::Snapshot(_) | Reply::Refused | Reply::Done | Reply::Unreachable => {}
        }
    }

    pub(crate) fn on_change(&mut self, node: &Node, now: Duration, change: Change) {
        self.registry.on_change(now + node.skew, change);
        if let Some(agent) = &mut self.agent {
            let hot = agent.refresh(now + node.skew, &self.registry);
            self.hot.extend(hot.map(|hot| (now, hot)));
        }
    }

    pub(crate) fn on_report(&mut self, node: &Node, now: Duration, bytes: &[u8]) {
        if let Some(aggregator) = self.aggregator.as_mut().filter(|_| !node.is_deaf) {
            let report = wire::Report::decode(bytes).expect("a report of this version");
            aggregator.on_report(now + node.skew, &report);
        }
    }

    pub(crate) fn on_watch(&mut self, node: &Node, now: Duration, bytes: &[u8]) {
        if let Some(agent) = &mut self.agent {
            let keys = wire::decode_watch(bytes).expect("a list of this version");
            agent.on_watch(now + node.skew, &keys);
        }
    }

    /// When the data plane first had a key, in true time.
    pub(crate) fn hot_since(&self, key: &[u8]) -> Option<Duration> {
        self.hot.iter().find(|(_, hot)| hot.get(key).is_some()).map(|(at, _)| *at)
    }

    /// How often a key came into or left the data plane's set.
    pub(crate) fn turns(&self, key: &[u8]) -> usize {
        let mut was = false;
        let mut turns = 0;
        for (_, hot) in &self.hot {
            let is = hot.get(key).is_some();
            turns += usize::from(is != was);
            was = is;
        }
        turns
    }

    pub(crate) fn is_hot(&self, key: &[u8]) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.hot().get(key).is_some())
    }
}

fn request(intent: Intent, registry: &Registry) -> Request {
    match intent {
        Intent::Put { key, entry, expects_epoch, ttl } => {
            let respects_block = !registry.outlives_block(&key);
            Request::Put { key, entry, expects: Some(expects_epoch), ttl, respects_block }
        }
        Intent::Remove { key, expects_epoch } => {
            Request::Remove { key, expects: Some(expects_epoch), block_for: None }
        }
        Intent::Renew { key, expects_epoch, ttl } => {
            Request::Renew { key, epoch: expects_epoch, ttl }
        }
        Intent::Watch(keys) => Request::Watch(wire::encode_watch(&keys)),
    }
}
