//! The loop: ticks, notices of the store, heartbeats, and what came of calls.
//!
//! Interleavings that matter:
//!
//! ```text
//! 1. a snapshot is asked for          begin_snapshot: changes wait from here on
//! 2. a change is told                 kept
//! 3. the snapshot comes               taken over, then the changes that it does not contain
//! ```
//!
//! ```text
//! 1. an operator's promote is acknowledged by the store      acknowledge: in the copy at once
//! 2. a change from before is told                            older than that: no effect
//! ```
//!
//! Bound: a turn handles one message; whatever is due by the clock comes after it, so that a
//! flood of reports does not keep heartbeats from going out.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_control::agent::Agent;
use heatsink_control::aggregate::Intent;
use heatsink_control::registry::What;
use heatsink_control::value::ValueKind;
use heatsink_control::wire;
use heatsink_coordination::{
    Channel, Notice, PutOutcome, RemoveOutcome, RenewOutcome, Store, StoreError, Subscription,
};
use heatsink_detect::heat::{HeatKind, KeyHeat};
use heatsink_detect::report::Report;
use heatsink_proxy::Detector;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::calls::{Calls, Done};
use crate::members::{Card, MEMBER_LIFE, Present};
use crate::pace::Pace;
use crate::split::acks::Acks;
use crate::state::{Inner, State, unix_ms};
use crate::{Live, control, records, upstream};

/// Time between two heartbeats; several fit into the patience with the store.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// Time between two looks for entries that have expired.
const SWEEP: Duration = Duration::from_secs(1);
/// The whole registry is read again after this time, should a change have been missed.
const RESYNC: Duration = Duration::from_secs(10);
/// Time between two looks for news that no message told.
const NEWS: Duration = Duration::from_millis(250);
/// Changes that follow each other so closely are told together.
const CHANGES: Duration = Duration::from_millis(10);
/// Reports of one moment are added up together.
const GATHER: Duration = Duration::from_millis(2);
/// For the last words to the store, and for the API to end.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the owner says.
#[derive(Debug)]
pub(crate) enum Told {
    Reload(Box<Live>),
    CloseAdmin(std::sync::mpsc::Sender<()>),
    Stop,
}

/// The loop.
pub(crate) struct Run {
    state: Arc<State>,
    calls: Calls,
    results: mpsc::UnboundedReceiver<Done>,
    subscription: Subscription,
    detector: Option<Detector>,
    tellings: mpsc::UnboundedReceiver<Told>,
    stop_admin: Option<oneshot::Sender<()>>,
    admin: Option<JoinHandle<io::Result<()>>>,
    due: Due,
    /// Generation of the registry that the news were last told of.
    told_generation: u64,
    /// And the one that the data plane has, with how often splits were found to be over.
    refreshed_generation: (u64, u64),
    /// When an entry for a key was first proposed.
    proposed: HashMap<Vec<u8>, Instant>,
    storms: Risen,
    contentions: Risen,
    /// From totals of the data plane to rates.
    pace: Pace,
    /// What was last logged of the store.
    told_trouble: Option<String>,
    /// It was logged that the registry is full.
    told_full: bool,
    acks: Acks,
}

/// When something is to be done next.
struct Due {
    tick: Instant,
    aggregate: Option<Instant>,
    /// Adding up costs time; it gets a fifth of it at most.
    not_before: Instant,
    heartbeat: Instant,
    sweep: Instant,
    resync: Instant,
    snapshot: Instant,
    news: Instant,
    /// Before that, changes gather.
    changes: Instant,
}

impl Run {
    pub(crate) fn new(
        state: Arc<State>,
        store: Store,
        detector: Option<Detector>,
        tellings: mpsc::UnboundedReceiver<Told>,
        stop_admin: oneshot::Sender<()>,
        admin: Option<JoinHandle<io::Result<()>>>,
    ) -> Self {
        let mut channels = Vec::new();
        if state.role.is_aggregator() {
            channels.push(Channel::Reports);
        }
        if state.role.is_proxy() {
            channels.push(Channel::Watch);
        }
        let subscription = store.subscribe(&channels);
        let (calls, results) = Calls::new(store);
        let now = Instant::now();
        Self {
            state,
            calls,
            results,
            subscription,
            detector,
            tellings,
            stop_admin: Some(stop_admin),
            admin,
            due: Due {
                tick: now,
                aggregate: None,
                not_before: now,
                heartbeat: now,
                sweep: now + SWEEP,
                resync: now + RESYNC,
                snapshot: now,
                news: now,
                changes: now,
            },
            told_generation: u64::MAX,
            refreshed_generation: (u64::MAX, 0),
            proposed: HashMap::new(),
            storms: Risen::default(),
            contentions: Risen::default(),
            pace: Pace::default(),
            told_trouble: None,
            told_full: false,
            acks: Acks::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let until = tokio::time::Instant::from_std(self.next_due());
            tokio::select! {
                biased;
                told = self.tellings.recv() => match told {
                    Some(Told::Reload(live)) => self.reload(*live),
                    Some(Told::CloseAdmin(done)) => {
                        self.close_admin().await;
                        let _ = done.send(());
                    }
                    Some(Told::Stop) | None => break,
                },
                Some(done) = self.results.recv() => self.on_done(done),
                Some(notice) = self.subscription.recv() => self.on_notice(notice),
                () = self.state.changed.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
            self.on_time();
        }
        let store = self.calls.store().clone();
        let _ = tokio::time::timeout(FAREWELL, store.leave(&self.state.id)).await;
        self.close_admin().await;
    }

    async fn close_admin(&mut self) {
        if let Some(stop) = self.stop_admin.take() {
            let _ = stop.send(());
        }
        if let Some(admin) = self.admin.take() {
            let _ = tokio::time::timeout(FAREWELL, admin).await;
        }
    }

    fn next_due(&self) -> Instant {
        let due = &self.due;
        let times = [due.tick, due.heartbeat, due.sweep, due.resync, due.news];
        let wants_snapshot = self.state.lock().registry.wants_snapshot();
        let others = [due.aggregate, wants_snapshot.then_some(due.snapshot)];
        others.into_iter().flatten().chain(times).min().unwrap_or(due.tick)
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if now >= self.due.tick {
            self.tick();
        }
        if self.due.aggregate.is_some_and(|due| now >= due) {
            self.aggregate();
        }
        if now >= self.due.heartbeat {
            self.due.heartbeat = now + HEARTBEAT;
            self.heartbeat();
        }
        if now >= self.due.sweep {
            self.due.sweep = now + SWEEP;
            if self.state.role.is_aggregator() {
                self.calls.sweep();
            }
        }
        if now >= self.due.resync {
            self.due.resync = now + RESYNC;
            let time = self.state.now();
            let mut inner = self.state.lock();
            let soon = inner.live.control.registry_ttl / 8;
            if !inner.registry.is_current(time, self.subscription.version(), soon) {
                inner.registry.desync();
            }
        }
        self.note_sync();
        self.ask_snapshot(now);
        self.refresh_hot_keys();
        self.tell_news(now);
    }

    /// Looks at what the workers saw.
    fn tick(&mut self) {
        let begun = Instant::now();
        let report = if let Some(detector) = &mut self.detector {
            self.due.tick = detector.next_tick();
            // These are asked for whatever their count.
            let inner = self.state.lock();
            let registered = inner.registry.iter().map(|(key, _)| key);
            let watched = inner.agent.iter().flat_map(Agent::watched);
            detector.tick_with(registered.chain(watched))
        } else {
            let tick_ms = self.state.lock().live.control.detect.tick_ms;
            self.due.tick = begun + Duration::from_millis(u64::from(tick_ms));
            Report::default()
        };
        let now = self.state.now();
        let mut inner = self.state.lock();
        let Inner { agent, registry, live, members, counts, local_since, splits, .. } = &mut *inner;
        let mut intents = Vec::new();
        if let Some(agent) = agent {
            let kinds: HashMap<&[u8], u8> =
                report.keys.iter().map(|heat| (heat.key.as_slice(), heat.value_kind)).collect();
            let kind_of = |key: &[u8]| {
                kinds.get(key).map_or(ValueKind::Unknown, |kind| ValueKind::from_byte(*kind))
            };
            let tick = agent.tick(now, &report, &kind_of, registry);
            intents = tick.intents;
            if let (Some(hot), Some(proxy)) = (&tick.hot, &self.state.proxy) {
                let version = proxy.set_hot_keys(control::treatments(hot, live, splits));
                self.acks.published(hot, version, proxy, self.calls.store(), &self.state.id);
            }
            note_local(local_since, agent);
            if let Some(body) = tick.report {
                if self.calls.report(body) {
                    counts.reports_sent += 1;
                } else {
                    counts.reports_dropped += 1;
                }
            }
            let proxies = members.iter().filter(|present| present.member().proxy).count().max(1);
            let mut floor = live.control.detect.report_floor(proxies);
            if let Some(lowest) = live.policies.lowest_threshold() {
                floor = floor.min(lowest / proxies as u32).max(1);
            }
            if let Some(detector) = &self.detector {
                detector.set_report_threshold(floor);
                detector.set_proxies(proxies);
            }
        }
        let thresholds = live.control.detect.thresholds();
        let over = |kind: HeatKind| {
            let over = move |heat: &&KeyHeat| heat.exceeds(kind, thresholds.of(kind));
            report.keys.iter().filter(over).map(|heat| heat.key.as_slice())
        };
        counts.miss_storms += self.storms.count(over(HeatKind::MissStorm));
        counts.write_contentions += self.contentions.count(over(HeatKind::WriteContention));
        counts.messages_dropped = self.subscription.messages_dropped();
        let ignored = counts.entries_ignored + self.calls.store().ignored();
        if ignored > counts.ignored {
            counts.ignored = ignored;
            counts.ignored_at = Some(now);
        }
        counts.underestimates += report.truth.underestimates;
        inner.tick_seconds.observe(begun.elapsed().as_secs_f64());
        inner.report = report;
        let aggregates = inner.aggregator.is_some();
        drop(inner);
        for intent in intents {
            self.carry_out(intent);
        }
        if aggregates && self.due.aggregate.is_none() {
            self.due.aggregate = Some(self.due.not_before.max(begun + GATHER));
        }
    }

    /// Adds up what the fleet saw.
    fn aggregate(&mut self) {
        self.due.aggregate = None;
        let begun = Instant::now();
        let now = self.state.now();
        let mut inner = self.state.lock();
        let Inner { aggregator, registry, .. } = &mut *inner;
        let intents = match aggregator {
            Some(aggregator) => aggregator.tick(now, registry),
            None => Vec::new(),
        };
        drop(inner);
        for intent in intents {
            if let Intent::Put { key, expects_epoch: 0, .. } = &intent {
                self.proposed.entry(key.clone()).or_insert(begun);
            }
            self.carry_out(intent);
        }
        let ended = Instant::now();
        self.proposed.retain(|_, at| ended - *at < MEMBER_LIFE);
        self.due.not_before = ended + 4 * (ended - begun);
    }

    fn carry_out(&mut self, intent: Intent) {
        let outlives_block = match &intent {
            Intent::Put { key, .. } => self.state.lock().registry.outlives_block(key),
            _ => false,
        };
        self.calls.carry_out(intent, !outlives_block);
    }

    fn heartbeat(&mut self) {
        let now = self.state.now();
        let load = self.state.proxy.as_ref().and_then(|proxy| self.pace.look(now, proxy));
        let mut inner = self.state.lock();
        let card = Card::of(&self.state, now, &inner, load);
        inner.card.clone_from(&card);
        drop(inner);
        let card = serde_json::to_vec(&card).unwrap_or_default();
        self.calls.heartbeat(&self.state.id, card, MEMBER_LIFE);
    }

    fn note_sync(&mut self) {
        let now = self.state.now();
        let mut inner = self.state.lock();
        if inner.registry.is_synced() {
            inner.hearing.on_synced(now);
        }
    }

    /// The data plane need not wait for a tick to learn of a change.
    fn refresh_hot_keys(&mut self) {
        let now = self.state.now();
        let mut inner = self.state.lock();
        let generation = (inner.registry.generation(), inner.splits.over_changes);
        if generation == self.refreshed_generation {
            return;
        }
        let is_over = generation.1 != self.refreshed_generation.1;
        self.refreshed_generation = generation;
        self.state.moves.notify_one();
        let Inner { agent, registry, live, splits, .. } = &mut *inner;
        if let (Some(agent), Some(proxy)) = (agent, &self.state.proxy)
            && let Some(hot) =
                agent.refresh(now, registry).or_else(|| is_over.then(|| Arc::clone(agent.hot())))
        {
            let version = proxy.set_hot_keys(control::treatments(&hot, live, splits));
            self.acks.published(&hot, version, proxy, self.calls.store(), &self.state.id);
        }
    }

    fn ask_snapshot(&mut self, now: Instant) {
        let mut inner = self.state.lock();
        if now >= self.due.snapshot && inner.registry.wants_snapshot() && self.calls.snapshot() {
            inner.registry.begin_snapshot();
        }
    }

    fn tell_news(&mut self, now: Instant) {
        let mut inner = self.state.lock();
        let generation = inner.registry.generation();
        let changed = generation != self.told_generation && now >= self.due.changes;
        if now < self.due.news && !changed {
            return;
        }
        self.due.news = now + NEWS;
        self.due.changes = now + CHANGES;
        self.told_generation = generation;
        let time = self.state.now();
        let hot_keys = control::hot_keys(&inner);
        let readiness = upstream::readiness(&self.state, time, &inner);
        inner.news.compare(hot_keys, readiness, self.state.privacy);
    }

    fn reload(&mut self, live: Live) {
        let now = self.state.now();
        let mut inner = self.state.lock();
        let settings = live.settings();
        let Inner { agent, splits, .. } = &mut *inner;
        if let Some(agent) = agent {
            agent.apply(settings.clone(), Arc::clone(&live.policies));
            if let Some(proxy) = &self.state.proxy {
                let (hot, store) = (Arc::clone(agent.hot()), self.calls.store());
                let version = proxy.set_hot_keys(control::treatments(&hot, &live, splits));
                self.acks.published(&hot, version, proxy, store, &self.state.id);
            }
        }
        if let Some(aggregator) = &mut inner.aggregator {
            aggregator.apply(now, settings, Arc::clone(&live.policies));
        }
        inner.live = live;
    }

    fn on_notice(&mut self, notice: Notice) {
        let now = self.state.now();
        let mut inner = self.state.lock();
        let Inner { agent, aggregator, registry, counts, hearing, .. } = &mut *inner;
        match notice {
            Notice::Connected { server } => {
                tracing::debug!(server, "the coordination store is heard");
                registry.desync();
                hearing.on_subscription(None);
                if let Some(agent) = agent {
                    agent.on_subscription(now, true);
                }
            }
            Notice::Lost { why } => {
                hearing.on_subscription(Some(&why));
                if let Some(agent) = agent {
                    agent.on_subscription(now, false);
                    agent.on_store_error(&why);
                }
            }
            Notice::Change { version, key, record } => {
                let change = records::change(version, key, record.as_ref());
                let is_put = matches!(change.what, What::Put { .. });
                counts.entries_ignored += u64::from(record.is_some() && !is_put);
                registry.on_change(now, change);
            }
            Notice::Removals => registry.desync(),
            Notice::Report(body) => {
                counts.reports_received += 1;
                match (wire::Report::decode(&body), aggregator) {
                    (Ok(report), Some(aggregator)) => aggregator.on_report(now, &report),
                    (Ok(_), None) => {}
                    (Err(error), _) => {
                        counts.reports_dropped += 1;
                        tracing::debug!(%error, "a report is not understood");
                    }
                }
                drop(inner);
                if self.due.aggregate.is_none() {
                    let soon = Instant::now() + GATHER;
                    self.due.aggregate = Some(self.due.not_before.max(soon));
                }
            }
            Notice::Watch(body) => {
                if let (Ok(keys), Some(agent)) = (wire::decode_watch(&body), agent) {
                    agent.on_watch(now, &keys);
                }
            }
        }
    }

    fn on_done(&mut self, done: Done) {
        self.calls.ended(&done);
        let now = self.state.now();
        let mut inner = self.state.lock();
        let trouble = match &done {
            Done::Heartbeat(result) => trouble(result),
            Done::Snapshot(result) => trouble(result),
            Done::Swept(result) => trouble(result),
            Done::Reported(result) | Done::Watched(result) => trouble(result),
            Done::Put { outcome, .. } => trouble(outcome),
            Done::Removed { outcome, .. } => trouble(outcome),
            Done::Renewed { outcome, .. } => trouble(outcome),
        };
        if trouble.is_some() || matches!(done, Done::Heartbeat(_)) {
            inner.hearing.on_answer(now, trouble.as_deref());
        }
        if let Done::Heartbeat(Err(error)) = &done {
            inner.hearing.on_failure(error);
        }
        if let Some(agent) = &mut inner.agent {
            match (&trouble, &done) {
                (Some(why), _) => agent.on_store_error(why),
                // A store that refuses writes may still answer other questions.
                (None, Done::Heartbeat(_)) => agent.on_store_ok(now),
                (None, _) => {}
            }
        }
        if let Some(why) = &trouble
            && self.told_trouble.as_ref() != Some(why)
        {
            tracing::warn!("the coordination store: {why}");
            self.told_trouble = Some(why.clone());
        }
        if trouble.is_none() && matches!(done, Done::Heartbeat(_)) {
            self.told_trouble = None;
        }
        match done {
            Done::Heartbeat(Ok(members)) => {
                let members: Vec<_> = members.into_iter().map(Present::of).collect();
                let list: Vec<_> = members.iter().map(Present::member).collect();
                if let Some(agent) = &mut inner.agent {
                    agent.on_members(now, &list);
                }
                if let Some(aggregator) = &mut inner.aggregator {
                    aggregator.on_members(now, &list);
                }
                inner.members = members;
                inner.members_at = Some(now);
                inner.members_at_ms = unix_ms();
            }
            Done::Snapshot(Ok(snapshot)) => {
                let stored = snapshot.records.len();
                let snapshot = records::snapshot(snapshot);
                inner.counts.entries_ignored += (stored - snapshot.records.len()) as u64;
                inner.registry.on_snapshot(now, snapshot);
                // Also if it says nothing new: whoever starts waits for it.
                self.state.moves.notify_one();
            }
            Done::Snapshot(Err(_)) => {
                inner.registry.snapshot_failed();
                self.due.snapshot = Instant::now() + HEARTBEAT;
            }
            Done::Put { key, mut entry, ttl, outcome: Ok(PutOutcome::Applied { version }) } => {
                entry.detected_at_ms = unix_ms();
                inner.registry.acknowledge(now, records::put(version, &key, entry, ttl));
                if let Some(proposed) = self.proposed.remove(&key) {
                    inner.detection_seconds.observe(proposed.elapsed().as_secs_f64());
                }
            }
            Done::Put { outcome: Ok(PutOutcome::Full), .. } if !self.told_full => {
                self.told_full = true;
                tracing::warn!("the registry is full: further hot keys are left alone");
            }
            Done::Removed { key, outcome: Ok(RemoveOutcome::Applied { version }) } => {
                inner.registry.acknowledge(now, records::removed(version, &key, None));
            }
            Done::Renewed { key, epoch, ttl, outcome: Ok(RenewOutcome::Applied) } => {
                inner.registry.renewed(now, &key, epoch, ttl);
            }
            _ => {}
        }
    }
}

/// Remembers when each local entry was found; the agent knows no time of day.
fn note_local(since: &mut HashMap<Vec<u8>, u64>, agent: &Agent) {
    let local: HashSet<&[u8]> = agent.local().map(|(key, _)| key).collect();
    since.retain(|key, _| local.contains(key.as_slice()));
    for key in local {
        if !since.contains_key(key) {
            since.insert(key.to_vec(), unix_ms());
        }
    }
}

fn trouble<T>(result: &Result<T, StoreError>) -> Option<String> {
    result.as_ref().err().map(|error| match error {
        StoreError::Unreachable { why } => why.clone(),
        StoreError::Timeout { after } => format!("no answer within {} ms", after.as_millis()),
        other => other.to_string(),
    })
}

/// Counts how often something began.
#[derive(Debug, Default)]
struct Risen {
    now: HashSet<Vec<u8>>,
}

impl Risen {
    fn count<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> u64 {
        let now: HashSet<Vec<u8>> = keys.map(<[u8]>::to_vec).collect();
        let begun = now.difference(&self.now).count() as u64;
        self.now = now;
        begun
    }
}
