//! A place in a fleet of Heatsinks, whether proxies are in it or only applications.
//!
//! The process is a member like a proxy: it reports what its caches are asked for, so its counts are
//! in the fleet's sums; it follows the registry, so what the fleet finds hot, and what an operator
//! promotes or removes, holds for its caches. While no proxy and no aggregator is there, it adds the
//! reports up itself, as every other application does that is in the fleet.
//!
//! | the registry says | the caches do |
//! |---|---|
//! | `local_cache`, `copies`, `replica_reads` | the key is kept in memory with [`Local::hot`](crate::Local::hot), and refreshed before it expires |
//! | `coalesce`, or nothing | one load at a time, as for every key |
//!
//! Called by: the application; `heat`, to know what is hot.
//! Bound: one heartbeat, one snapshot, one report and [`MOST_CHANGES`] changes of the registry under
//! way at once; what finds no room is proposed again by a later tick.
//! Invariant: no `get` waits for anything here. Without the store the last registry holds, and after
//! a while the process decides on its own counts.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use heatsink_control::agent::{Agent, HotSet};
use heatsink_control::aggregate::{Aggregator, Intent};
use heatsink_control::entry::{Entry, Mitigation, Status};
use heatsink_control::member::Member;
use heatsink_control::policy::Policies;
use heatsink_control::registry::{Change, Registry, Snapshot, Stored, What};
use heatsink_control::settings::Settings as ControlSettings;
use heatsink_control::value::ValueKind;
use heatsink_control::wire;
use heatsink_coordination::{self as coordination, Channel, Expects, Notice, Put, PutOutcome};
use heatsink_coordination::{RemoveOutcome, RenewOutcome, StoreError};
use heatsink_detect::config::Settings as Detect;
use heatsink_detect::key::KeyHasher;
use heatsink_detect::report::{Merger, Report};
use heatsink_detect::snapshot::Snapshot as Counted;
use heatsink_upstream::address::Url;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::error::BuildError;
use crate::heat::Heat;

use heatsink_coordination::{Secret, TlsFiles};

const HEARTBEAT: Duration = Duration::from_millis(250);
const MEMBER_LIFE: Duration = Duration::from_secs(2);
const RESYNC: Duration = Duration::from_secs(10);
const SWEEP: Duration = Duration::from_secs(1);
const MOST_CHANGES: usize = 64;

/// This process's place in a fleet; caches take it with [`Builder::fleet`](crate::Builder::fleet).
/// Cheap to clone; the process leaves with the last clone and the last cache.
#[derive(Clone)]
pub struct Fleet {
    pub(crate) place: Arc<Place>,
    _leaver: Arc<Leaver>,
}

/// Settings of a [`Fleet`].
pub struct FleetBuilder {
    url: String,
    namespace: String,
    secret: Option<Secret>,
    tls: TlsFiles,
    detect: Detect,
    policies: Policies,
}

/// What the caches of the process and its member look at together.
pub(crate) struct Place {
    pub(crate) hasher: KeyHasher,
    pub(crate) detect: Detect,
    heats: Mutex<Vec<Weak<Heat>>>,
    hot: RwLock<Arc<HotSet>>,
    report: Mutex<Report>,
    id: String,
}

struct Leaver(AbortHandle);

impl Drop for Leaver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Fleet {
    /// Begins to join the fleet that meets at a URL: that of the proxies' coordination store, which
    /// is their upstream unless they were told otherwise.
    pub fn builder(url: impl Into<String>) -> FleetBuilder {
        FleetBuilder {
            url: url.into(),
            namespace: "default".to_owned(),
            secret: None,
            tls: TlsFiles::default(),
            detect: Detect::default(),
            policies: Policies::default(),
        }
    }

    /// What this process is called in the fleet.
    pub fn id(&self) -> &str {
        &self.place.id
    }
}

impl FleetBuilder {
    /// The fleet's namespace; `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The secret that members sign with, where the fleet has one.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Certificates, for a URL with `rediss`.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// Thresholds and times, which should be those of the proxies.
    #[must_use]
    pub fn detect(mut self, settings: Detect) -> Self {
        self.detect = settings;
        self
    }

    /// What may be done about which keys, by the names they have in the shared tier.
    #[must_use]
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }

    /// Joins. A store that cannot be reached is tried again for ever.
    pub fn join(self) -> Result<Fleet, BuildError> {
        let wrong = BuildError::Shared;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        self.detect.validate().map_err(|error| BuildError::Setting(error.setting, error.reason))?;
        let url: Url = self.url.parse().map_err(|error| wrong(format!("{error}")))?;
        let mut settings = coordination::Settings::new(&self.namespace)
            .map_err(|error| wrong(error.to_string()))?;
        settings.secret = self.secret;
        let store = coordination::Store::redis(&url, Some(&self.tls), settings)
            .map_err(|error| wrong(error.to_string()))?;
        let place = Arc::new(Place {
            hasher: KeyHasher::random(),
            detect: self.detect.clone(),
            heats: Mutex::default(),
            hot: RwLock::default(),
            report: Mutex::default(),
            id: format!("app-{:016x}", fastrand::u64(..)),
        });
        let control = ControlSettings { detect: self.detect, ..ControlSettings::default() };
        let run = Run::new(Arc::clone(&place), store, control, Arc::new(self.policies), &runtime);
        let task = runtime.spawn(run.run()).abort_handle();
        Ok(Fleet { place, _leaver: Arc::new(Leaver(task)) })
    }
}

impl Place {
    /// A cache's counts are a part of this process's.
    pub(crate) fn add(&self, heat: &Arc<Heat>) {
        let mut heats = lock(&self.heats);
        heats.retain(|heat| heat.strong_count() > 0);
        heats.push(Arc::downgrade(heat));
    }

    pub(crate) fn is_any_hot(&self) -> bool {
        !self.hot().keys.is_empty()
    }

    /// Whether the key is to be kept in memory.
    pub(crate) fn is_hot(&self, name: &[u8]) -> bool {
        self.hot().get(name).is_some_and(|hot| {
            let is_kept = !matches!(hot.mitigation, Mitigation::Coalesce | Mitigation::Split);
            let is_in_force = matches!(hot.status, Status::Active | Status::Cooling);
            is_kept && is_in_force && !hot.dry_run
        })
    }

    /// The hot keys of the fleet that this process is asked for.
    pub(crate) fn hottest(&self) -> Vec<(Vec<u8>, f64)> {
        let hot = self.hot();
        let report = lock(&self.report);
        let rate = |heat: &heatsink_detect::heat::KeyHeat| {
            hot.get(&heat.key).map(|_| (heat.key.clone(), heat.requests_per_second()))
        };
        report.keys.iter().filter_map(rate).collect()
    }

    fn hot(&self) -> Arc<HotSet> {
        Arc::clone(&self.hot.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_hot(&self, hot: Arc<HotSet>) {
        *self.hot.write().unwrap_or_else(PoisonError::into_inner) = hot;
    }
}

/// What came of a call to the store.
#[expect(clippy::large_enum_variant, reason = "a few of them at a time")]
enum Done {
    Heartbeat(Result<Vec<coordination::Member>, StoreError>),
    Snapshot(Result<coordination::Snapshot, StoreError>),
    Report,
    Swept,
    Changed(Option<Change>),
    Renewed(Option<(Vec<u8>, u64, Duration)>),
}

/// The member's loop.
struct Run {
    place: Arc<Place>,
    store: coordination::Store,
    policies: Arc<Policies>,
    settings: ControlSettings,
    registry: Registry,
    agent: Agent,
    /// While nobody else adds up.
    aggregator: Option<Aggregator>,
    subscription: coordination::Subscription,
    done: mpsc::UnboundedReceiver<Done>,
    sender: mpsc::UnboundedSender<Done>,
    under_way: UnderWay,
    merger: Merger,
    counted: Vec<Counted>,
    clock: Clock,
    generation: u64,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
struct UnderWay {
    heartbeat: bool,
    snapshot: bool,
    report: bool,
    sweep: bool,
    changes: usize,
}

impl Run {
    fn new(
        place: Arc<Place>,
        store: coordination::Store,
        settings: ControlSettings,
        policies: Arc<Policies>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let clock = Clock::system();
        let now = Duration::from_millis(clock.now());
        let (sender, done) = mpsc::unbounded_channel();
        let _inside = runtime.enter();
        let subscription = store.subscribe(&[Channel::Reports, Channel::Watch]);
        let boot = fastrand::u64(..);
        let agent = Agent::new(now, &place.id, boot, settings.clone(), Arc::clone(&policies));
        Self {
            place,
            store,
            policies,
            settings,
            registry: Registry::new(),
            agent,
            aggregator: None,
            subscription,
            done,
            sender,
            under_way: UnderWay::default(),
            merger: Merger::new(),
            counted: Vec::new(),
            clock,
            generation: u64::MAX,
        }
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.clock.now())
    }

    async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.settings.detect.slot_length());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let start = Instant::now();
        let (mut heartbeat, mut resync, mut sweep) = (start, start + RESYNC, start + SWEEP);
        loop {
            tokio::select! {
                Some(done) = self.done.recv() => self.on_done(done),
                Some(notice) = self.subscription.recv() => self.on_notice(notice),
                _ = ticks.tick() => {
                    self.tick();
                    let now = Instant::now();
                    if now >= heartbeat {
                        heartbeat = now + HEARTBEAT;
                        self.heartbeat();
                    }
                    if now >= sweep && self.aggregator.is_some() {
                        sweep = now + SWEEP;
                        if !std::mem::replace(&mut self.under_way.sweep, true) {
                            self.call(|store| async move {
                                let _ = store.sweep().await;
                                Done::Swept
                            });
                        }
                    }
                    if now >= resync {
                        resync = now + RESYNC;
                        let soon = self.settings.registry_ttl / 8;
                        let version = self.subscription.version();
                        if !self.registry.is_current(self.now(), version, soon) {
                            self.registry.desync();
                        }
                    }
                }
            }
            if self.registry.wants_snapshot()
                && !std::mem::replace(&mut self.under_way.snapshot, true)
            {
                self.registry.begin_snapshot();
                self.call(|store| async move { Done::Snapshot(store.snapshot().await) });
            }
            if self.registry.generation() != self.generation {
                self.generation = self.registry.generation();
                if let Some(hot) = self.agent.refresh(self.now(), &self.registry) {
                    self.place.set_hot(hot);
                }
            }
        }
    }

    fn call<F>(&self, call: impl FnOnce(coordination::Store) -> F)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let (call, sender) = (call(self.store.clone()), self.sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(call.await);
        });
    }

    fn heartbeat(&mut self) {
        if std::mem::replace(&mut self.under_way.heartbeat, true) {
            return;
        }
        let report = lock(&self.place.report);
        let rate = report.reads_per_second + report.writes_per_second;
        drop(report);
        // `library` tells those who would add up only if nobody else does.
        let card = serde_json::json!({
            "role": if self.aggregator.is_some() { "all" } else { "proxy" },
            "version": env!("CARGO_PKG_VERSION"),
            "library": true,
            "requests_per_second": rate,
        });
        let (id, card) = (self.place.id.clone(), card.to_string().into_bytes());
        self.call(|store| async move {
            Done::Heartbeat(store.heartbeat(&id, &card, MEMBER_LIFE).await)
        });
    }

    /// Looks at what the caches of this process were asked for, and adds up what the fleet was.
    fn tick(&mut self) {
        let now = self.now();
        let heats: Vec<_> = lock(&self.place.heats).iter().filter_map(Weak::upgrade).collect();
        self.counted.resize_with(heats.len(), Counted::new);
        for (heat, counted) in heats.iter().zip(&mut self.counted) {
            heat.drain_into(now, counted);
        }
        let counted: Vec<&Counted> = self.counted.iter().collect();
        let registered = self.registry.iter().map(|(key, _)| key);
        let asked = registered.chain(self.agent.watched()).map(|key| self.place.hasher.key(key));
        let asked: Vec<_> = asked.collect();
        let report = self.merger.merge_with(now, &counted, asked);
        let unknown = |_: &[u8]| ValueKind::Unknown;
        let tick = self.agent.tick(now, &report, &unknown, &mut self.registry);
        if let Some(hot) = tick.hot {
            self.place.set_hot(hot);
        }
        if let Some(body) = tick.report
            && !std::mem::replace(&mut self.under_way.report, true)
        {
            self.call(|store| async move {
                let _ = store.publish(Channel::Reports, body).await;
                Done::Report
            });
        }
        *lock(&self.place.report) = report;
        let mut intents = tick.intents;
        if let Some(aggregator) = &mut self.aggregator {
            intents.extend(aggregator.tick(now, &mut self.registry));
        }
        for intent in intents {
            self.carry_out(intent);
        }
    }

    fn carry_out(&mut self, intent: Intent) {
        if self.under_way.changes >= MOST_CHANGES {
            return;
        }
        self.under_way.changes += 1;
        match intent {
            Intent::Put { key, entry, expects_epoch, ttl } => {
                let put = Put {
                    body: wire::encode_entry(&entry),
                    ttl,
                    expects: Expects::Epoch(expects_epoch),
                    respects_block: !self.registry.outlives_block(&key),
                    keep_created: true,
                    survives: entry.survives(),
                };
                self.call(|store| async move {
                    let Ok(PutOutcome::Applied { version }) = store.put(&key, put).await else {
                        return Done::Changed(None);
                    };
                    let what = What::Put { entry, remaining: ttl };
                    Done::Changed(Some(Change { version, key, what }))
                });
            }
            Intent::Remove { key, expects_epoch } => self.call(|store| async move {
                let removed = store.remove(&key, Expects::Epoch(expects_epoch), None).await;
                let Ok(RemoveOutcome::Applied { version }) = removed else {
                    return Done::Changed(None);
                };
                let what = What::Removed { blocked_for: None };
                Done::Changed(Some(Change { version, key, what }))
            }),
            Intent::Renew { key, expects_epoch, ttl } => self.call(move |store| async move {
                let renewed = store.renew(&key, expects_epoch, ttl).await;
                let is_done = matches!(renewed, Ok(RenewOutcome::Applied));
                Done::Renewed(is_done.then_some((key, expects_epoch, ttl)))
            }),
            Intent::Watch(keys) => self.call(|store| async move {
                let _ = store.publish(Channel::Watch, wire::encode_watch(&keys)).await;
                Done::Changed(None)
            }),
        }
    }

    fn on_done(&mut self, done: Done) {
        let now = self.now();
        match done {
            Done::Heartbeat(result) => {
                self.under_way.heartbeat = false;
                match result {
                    Ok(members) => {
                        self.agent.on_store_ok(now);
                        self.on_members(now, members);
                    }
                    Err(error) => self.agent.on_store_error(&error.to_string()),
                }
            }
            Done::Snapshot(result) => {
                self.under_way.snapshot = false;
                match result {
                    Ok(snapshot) => self.registry.on_snapshot(now, read(snapshot)),
                    Err(error) => {
                        self.registry.snapshot_failed();
                        self.agent.on_store_error(&error.to_string());
                    }
                }
            }
            Done::Report => self.under_way.report = false,
            Done::Swept => self.under_way.sweep = false,
            Done::Changed(change) => {
                self.under_way.changes -= 1;
                if let Some(change) = change {
                    self.registry.acknowledge(now, change);
                }
            }
            Done::Renewed(renewed) => {
                self.under_way.changes -= 1;
                if let Some((key, epoch, ttl)) = renewed {
                    self.registry.renewed(now, &key, epoch, ttl);
                }
            }
        }
    }

    fn on_members(&mut self, now: Duration, members: Vec<coordination::Member>) {
        let cards: Vec<_> = members.into_iter().map(member).collect();
        let is_added_up = cards.iter().any(|(member, library)| member.aggregator && !library);
        match &self.aggregator {
            Some(_) if is_added_up => self.aggregator = None,
            None if !is_added_up => {
                let (settings, policies) = (self.settings.clone(), Arc::clone(&self.policies));
                self.aggregator = Some(Aggregator::new(now, settings, policies));
            }
            _ => {}
        }
        let mut members: Vec<_> = cards.into_iter().map(|(member, _)| member).collect();
        for member in members.iter_mut().filter(|member| member.id == self.place.id) {
            member.aggregator = self.aggregator.is_some();
        }
        self.agent.on_members(now, &members);
        if let Some(aggregator) = &mut self.aggregator {
            aggregator.on_members(now, &members);
        }
        let floor = self.settings.detect.report_floor(members.iter().filter(|m| m.proxy).count());
        for heat in lock(&self.place.heats).iter().filter_map(Weak::upgrade) {
            heat.set_report_threshold(floor);
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        let now = self.now();
        match notice {
            Notice::Connected { .. } => {
                self.registry.desync();
                self.agent.on_subscription(now, true);
            }
            Notice::Lost { why } => {
                self.agent.on_subscription(now, false);
                self.agent.on_store_error(&why);
            }
            Notice::Change { version, key, record } => {
                let entry = record.as_ref().and_then(|record| Some((entry(record)?, record)));
                let what = match entry {
                    Some((entry, record)) => What::Put { entry, remaining: record.expires_in },
                    None => What::Removed { blocked_for: None },
                };
                self.registry.on_change(now, Change { version, key, what });
            }
            Notice::Removals => self.registry.desync(),
            Notice::Report(body) => {
                if let (Ok(report), Some(aggregator)) =
                    (wire::Report::decode(&body), &mut self.aggregator)
                {
                    aggregator.on_report(now, &report);
                }
            }
            Notice::Watch(body) => {
                if let Ok(keys) = wire::decode_watch(&body) {
                    self.agent.on_watch(now, &keys);
                }
            }
        }
    }
}

/// A member as its card says, and whether it is an application.
fn member(member: coordination::Member) -> (Member, bool) {
    let card: serde_json::Value = serde_json::from_slice(&member.body).unwrap_or_default();
    let role = card.get("role").and_then(serde_json::Value::as_str).unwrap_or_default();
    let library = card.get("library").and_then(serde_json::Value::as_bool).unwrap_or(false);
    let proxy = matches!(role, "all" | "proxy");
    let aggregator = matches!(role, "all" | "aggregator");
    (Member { id: member.id, proxy, aggregator }, library)
}

/// An entry of the registry; one that is not understood counts as none.
fn entry(record: &coordination::Record) -> Option<Entry> {
    let entry = wire::decode_entry(&record.body).ok()?;
    Some(Entry { detected_at_ms: record.created_at_ms, ..entry })
}

fn read(snapshot: coordination::Snapshot) -> Snapshot {
    let stored = |record: coordination::Record| {
        let entry = entry(&record)?;
        let stored = Stored { epoch: record.epoch, entry, remaining: record.expires_in };
        Some((record.key, stored))
    };
    Snapshot {
        incarnation: snapshot.incarnation.into_bytes(),
        version: snapshot.version,
        records: snapshot.records.into_iter().filter_map(stored).collect(),
        blocked: snapshot.blocked.into_iter().map(|one| (one.key, one.remaining)).collect(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
