//! The control plane as the admin API sees it: what it shows, and the changes that it makes.

use std::sync::Arc;
use std::time::Duration;

use heatsink_admin::control::{
    Answer, Control, ControlError, Demotion, Event, Guard, HotKey, OwnStats, Policy, PolicyRule,
    Promotion, Proxy, Readiness, Shard, ShardNode, Stats,
};
use heatsink_admin::metrics::Metrics;
use heatsink_control::agent::{Agent, HotKey as AgentHotKey, HotSet};
use heatsink_control::aggregate::Live as KeyLive;
use heatsink_control::entry::{Entry, Mitigation, Origin, Phase, SplitRecord, Status};
use heatsink_control::policy::{Effective, Mode};
use heatsink_control::words;
use heatsink_coordination::Store;
use heatsink_detect::heat::KeyHeat;
use heatsink_proxy::Handle as ProxyHandle;
use heatsink_proxy::hot_keys::{Cooled, Guard as ProxyGuard, HotKeys, Treatment};
use heatsink_proxy::splits::Splitting;
use heatsink_split::layout::Names;
use heatsink_split::placement;
use tokio::sync::broadcast;

use crate::Live;
use crate::split::change::{self, Changed, Next, NotChanged, Seen};
use crate::split::{Figures, lifecycle};
use crate::state::{Inner, State, unix_ms};
use crate::{figures, members, upstream};

/// What the data plane does about the keys of a hot set. Splits that are over by what the data says
/// are none.
pub(crate) fn treatments(hot: &HotSet, live: &Live, known: &Figures) -> HotKeys {
    let acting = hot.keys.iter().filter(|hot| !hot.dry_run);
    let treated = acting.filter_map(|hot| {
        let treatment = match hot.mitigation {
            Mitigation::LocalCache if live.caches => {
                Treatment { coalesce: live.coalesces, ..Treatment::COHERENT }
            }
            // Before its value is moved, and while it cannot be.
            Mitigation::Coalesce | Mitigation::Split if live.coalesces => Treatment::EXACT,
            _ => return None,
        };
        let stale_if_late = live.policies.of(&hot.key).mode == Mode::Relaxed;
        Some((hot.key.clone(), Treatment { stale_if_late, ..treatment }))
    });
    // Where a value is does not depend on what is wanted.
    let is_over = |hot: &&AgentHotKey| hot.split.as_ref().is_some_and(|it| known.is_over(&it.id));
    let split = hot.keys.iter().filter(|hot| !is_over(hot));
    let splits = split.filter_map(|hot| Some((hot.key.clone(), splitting(hot)?)));
    let copied = hot.keys.iter().filter_map(|hot| {
        let copies = crate::split::copies::copies(hot.split.as_ref()?)?;
        Some((hot.key.clone(), copies))
    });
    let all = hot.keys.iter().map(|hot| hot.key.clone());
    treated.collect::<HotKeys>().with_splits(splits).with_copies(copied).with_counted(all)
}

fn splitting(hot: &AgentHotKey) -> Option<Splitting> {
    let split = hot.split.as_ref()?;
    let layout = Arc::new(lifecycle::layout(split)?);
    Some(match split.phase {
        Phase::Freezing => {
            let permit = placement::permit_name(&hot.key, &split.id).into();
            Splitting::Freezing { layout, permit }
        }
        Phase::Split => Splitting::Split(layout),
        Phase::Draining => Splitting::Draining(layout),
    })
}

/// By what the proxy's caches hear of changes.
fn guard(proxy: &ProxyHandle) -> Option<Guard> {
    match proxy.guard() {
        ProxyGuard::Tracking => Some(Guard::Tracking),
        ProxyGuard::Broadcast => Some(Guard::Announcements),
        ProxyGuard::Nothing => None,
    }
}

fn own_stats(proxy: &ProxyHandle, cooled: &Cooled) -> OwnStats {
    OwnStats {
        upstream_saved_total: cooled.saved(),
        cache_hits_total: cooled.hits,
        bytes_served_total: cooled.bytes_served,
        invalidations_total: cooled.invalidations,
        combined_writes_total: cooled.changes.saturating_sub(cooled.batches),
        guard: guard(proxy),
        invalidation_delay_ms: proxy.invalidation_delay().map(|delay| delay.as_secs_f64() * 1000.0),
    }
}

/// The side of the running control plane that the API sees.
pub(crate) struct ControlSide {
    state: Arc<State>,
    store: Store,
}

impl ControlSide {
    pub(crate) fn new(state: Arc<State>, store: Store) -> Self {
        Self { state, store }
    }

    /// With what keeps the copies here from growing old.
    fn guarded(&self, hot: HotKey) -> HotKey {
        let is_cached = !hot.entry.dry_run && hot.entry.mitigation == Mitigation::LocalCache;
        let proxy = self.state.proxy.as_ref().filter(|_| is_cached);
        HotKey { guard: proxy.and_then(guard), ..hot }
    }

    async fn put(&self, key: &[u8], promotion: Promotion) -> Result<HotKey, ControlError> {
        let wanted = self.manual_entry(key, promotion)?;
        let ttl = promotion.ttl_seconds.map(Duration::from_secs);
        let decide = |seen: Option<&Seen>| match seen {
            // Its value is somewhere else: that it wants something else does not change that.
            Some(seen) if seen.entry.split.is_some() => {
                Next::put(seen.entry.replaced_by(wanted.clone(), unix_ms()), None)
            }
            _ => Next::put(wanted.clone(), ttl),
        };
        let changed = change::change(&self.state, &self.store, key, decide).await;
        match changed.map_err(|error| not_changed(&error))? {
            Changed::Put(entry) => {
                let shown = hot_key(&self.state.lock(), key);
                Ok(shown.unwrap_or_else(|| recorded(key, &entry)))
            }
            Changed::Removed | Changed::Absent | Changed::Left => {
                Err(not_changed(&NotChanged::Contended))
            }
        }
    }

    fn manual_entry(&self, key: &[u8], promotion: Promotion) -> Result<Entry, ControlError> {
        let Promotion { mitigation, split_factor, ttl_seconds } = promotion;
        let inner = self.state.lock();
        let policy = inner.live.policies.of(key);
        if policy.own {
            return Err(ControlError::OwnKey);
        }
        if !policy.mode.allows(mitigation) {
            let (mode, rule) = (policy.mode.name(), policy.pattern());
            let why = format!("mode {mode} of the rule {rule} does not allow {mitigation}.");
            return Err(ControlError::NotAllowed { why });
        }
        if mitigation == Mitigation::ReplicaReads && !policy.rights.replica_reads {
            let why = "no rule with replica_reads matches the key.".to_owned();
            return Err(ControlError::NotAllowed { why });
        }
        let most = inner.live.split.max_factor;
        if let Some(factor) = split_factor.filter(|factor| *factor > most) {
            let why = format!("{factor} shards are too many, split.max_factor is {most}.");
            return Err(ControlError::Invalid { why });
        }
        let live = inner.aggregator.as_ref().and_then(|aggregator| aggregator.live(key));
        let heat = live.map(|live| live.heat).unwrap_or_default();
        let dry_run = !inner.live.available().contains(mitigation);
        let mut reason = format!("promoted by an operator to {mitigation}");
        if dry_run {
            reason.push_str("; a dry run, because nothing is done about it here");
        }
        let factor = match mitigation {
            Mitigation::Split => split_factor.unwrap_or(2),
            _ => 1,
        };
        Ok(Entry {
            mitigation,
            split_factor: factor,
            ttl_seconds,
            origin: Origin::Manual,
            status: Status::Active,
            reason,
            dry_run,
            frequency: heat.requests_per_second(),
            reads_per_second: heat.reads_per_second,
            writes_per_second: heat.writes_per_second,
            detected_at_ms: 0,
            split: None,
            pause: None,
        })
    }

    async fn remove(&self, key: &[u8]) -> Result<Demotion, ControlError> {
        let block = self.state.lock().live.block;
        let block_ms = block.as_millis() as u64;
        let decide = |seen: Option<&Seen>| match seen.and_then(|seen| seen.entry.leaving(block_ms))
        {
            // The removal follows when its value is whole again.
            Some(leaving) => Next::put(leaving, None),
            None => Next::Remove { block: Some(block) },
        };
        let changed = change::change(&self.state, &self.store, key, decide).await;
        if changed.map_err(|error| not_changed(&error))? == Changed::Absent {
            // What this proxy does on its own, the store knows nothing of; it has blocked
            // the key anyway.
            let inner = self.state.lock();
            let is_local = |(local, _): (&[u8], &Entry)| local == key;
            if !inner.agent.iter().flat_map(Agent::local).any(is_local) {
                return Err(ControlError::UnknownKey);
            }
        }
        Ok(Demotion { blocked_seconds: block.as_secs() })
    }
}

impl Control for ControlSide {
    fn hot_keys(&self) -> Vec<HotKey> {
        let keys = hot_keys(&self.state.lock());
        keys.into_iter().map(|hot| self.guarded(hot)).collect()
    }

    fn hot_key(&self, key: &[u8]) -> Option<HotKey> {
        let hot = hot_key(&self.state.lock(), key)?;
        Some(self.guarded(hot))
    }

    fn promote<'a>(&'a self, key: &'a [u8], promotion: Promotion) -> Answer<'a, HotKey> {
        Box::pin(self.put(key, promotion))
    }

    fn demote<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Demotion> {
        Box::pin(self.remove(key))
    }

    fn stats(&self, key: &[u8]) -> Option<Stats> {
        let inner = self.state.lock();
        let HotKey { entry, .. } = hot_key(&inner, key)?;
        let acts = !entry.dry_run;
        let live = inner.aggregator.as_ref().and_then(|aggregator| aggregator.live(key));
        let hit_ratio = live.filter(|_| acts).and_then(|live| {
            let requests = live.heat.requests_per_second();
            (requests > 0.0).then(|| (live.heat.absorbed_per_second / requests).min(1.0))
        });
        let proxy = self.state.proxy.as_ref().filter(|_| acts);
        let cooled = proxy.and_then(|proxy| proxy.cooled(key));
        let cached = cooled.filter(|_| entry.mitigation == Mitigation::LocalCache);
        let cached = cached.and_then(|cooled| {
            let reads = cooled.hits + cooled.joined + cooled.reads;
            (reads > 0).then(|| cooled.hits as f64 / reads as f64)
        });
        let own = proxy.zip(cooled).map(|(proxy, cooled)| own_stats(proxy, &cooled));
        let shards = shards(&self.state, &inner, key);
        Some(Stats {
            requests_per_second: entry.frequency,
            reads_per_second: entry.reads_per_second,
            writes_per_second: entry.writes_per_second,
            hit_ratio,
            local_cache_hit_ratio: cached,
            collapse_ratio: cooled.and_then(|cooled| cooled.collapse_ratio()),
            own,
            nodes: shards.as_deref().map(ShardNode::of_shards),
            shards,
        })
    }

    fn proxies(&self) -> Vec<Proxy> {
        members::proxies(self.state.now(), &self.state.id, &self.state.lock())
    }

    fn policy(&self, key: &[u8]) -> Policy {
        policy(&self.state.lock().live.policies.of(key))
    }

    fn policies(&self) -> Vec<Policy> {
        self.state.lock().live.policies.all().map(|one| policy(&one)).collect()
    }

    fn readiness(&self) -> Readiness {
        upstream::readiness(&self.state, self.state.now(), &self.state.lock())
    }

    fn metrics(&self) -> Metrics {
        figures::metrics(&self.state)
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.state.lock().news.listen()
    }
}

/// Whether the value of a key is in shards, rather than on its way, or at the key with copies.
pub(crate) fn is_in_shards(split: &SplitRecord) -> bool {
    split.phase == Phase::Split && !split.is_copies()
}

/// The shards of a key whose value is in them; what is in each, by the last look.
fn shards(state: &State, inner: &Inner, key: &[u8]) -> Option<Vec<Shard>> {
    let split = inner.registry.get(key)?.entry.split.as_ref()?;
    let layout = lifecycle::layout(split).filter(|_| split.phase == Phase::Split)?;
    let known = inner.splits.contents.get(key).filter(|(id, _)| *id == layout.id);
    let proxy = state.proxy.as_ref();
    let writes = proxy.map(|proxy| proxy.shard_writes(&layout.id));
    let shard = |index: usize| Shard {
        index: index as u32,
        name: String::from_utf8_lossy(layout.name(index, Names::Live)).into_owned(),
        node: proxy.and_then(|proxy| proxy.server_of_slot(layout.slot(index))).unwrap_or_default(),
        content: known.and_then(|(_, contents)| contents.get(index).copied().flatten()),
        writes_total: writes.as_ref().map(|writes| writes.get(index).copied().unwrap_or(0)),
    };
    Some((0..layout.len()).map(shard).collect())
}

fn not_changed(error: &NotChanged) -> ControlError {
    match error {
        NotChanged::Full => ControlError::Full,
        NotChanged::Contended => ControlError::Conflict { why: format!("{error}.") },
        NotChanged::Store(error) => ControlError::StoreUnavailable { why: format!("{error}.") },
    }
}

fn policy(policy: &Effective<'_>) -> Policy {
    let rights = policy.rights;
    let mut settings = vec![
        ("replica_reads".to_owned(), rights.replica_reads.to_string()),
        ("whole_traffic".to_owned(), rights.whole_traffic.to_string()),
    ];
    if let Some(threshold) = rights.hot_threshold {
        settings.push(("hot_threshold".to_owned(), threshold.to_string()));
    }
    let allowed = Mitigation::ALL.iter().copied().filter(|one| policy.allows(*one));
    Policy {
        mode: policy.mode.name().to_owned(),
        rule: policy.rule.map(|(index, pattern)| PolicyRule {
            number: index as u32 + 1,
            pattern: pattern.to_vec(),
        }),
        allowed: allowed.collect(),
        settings,
    }
}

/// A registered key as it is shown. Without an aggregator the rates of the whole fleet are those
/// of the decision: what one proxy sees now is not what people ask for.
fn registered(inner: &Inner, key: &[u8], entry: &Entry) -> HotKey {
    match &inner.aggregator {
        Some(aggregator) => measured(key, entry, aggregator.live(key).as_ref()),
        None => recorded(key, entry),
    }
}

/// The hot keys that are known here.
pub(crate) fn hot_keys(inner: &Inner) -> Vec<HotKey> {
    let records = inner.registry.iter();
    let mut shown: Vec<_> =
        records.map(|(key, record)| registered(inner, key, &record.entry)).collect();
    for (key, entry) in inner.agent.iter().flat_map(Agent::local) {
        if inner.registry.get(key).is_none() {
            shown.push(local(inner, key, entry));
        }
    }
    shown.sort_by(|a, b| {
        b.entry.frequency.total_cmp(&a.entry.frequency).then_with(|| a.key.cmp(&b.key))
    });
    shown
}

fn hot_key(inner: &Inner, key: &[u8]) -> Option<HotKey> {
    if let Some(record) = inner.registry.get(key) {
        return Some(registered(inner, key, &record.entry));
    }
    let mut local_keys = inner.agent.iter().flat_map(Agent::local);
    let (key, entry) = local_keys.find(|(local, _)| *local == key)?;
    Some(local(inner, key, entry))
}

/// A key that this proxy alone has found hot.
fn local(inner: &Inner, key: &[u8], entry: &Entry) -> HotKey {
    let mut hot = recorded(key, entry);
    hot.entry.detected_at_ms = inner.local_since.get(key).copied().unwrap_or_default();
    if let Some(heat) = inner.report.keys.iter().find(|heat| heat.key == key) {
        set_rates(&mut hot.entry, heat);
    }
    hot
}

/// A registered key with what the aggregator measures of it right now: rates of zero if nobody
/// reports it, and `cooling` while it is below the retire fraction.
fn measured(key: &[u8], entry: &Entry, live: Option<&KeyLive>) -> HotKey {
    let mut hot = recorded(key, entry);
    let is_warm = live.is_some_and(|live| live.warm);
    if hot.entry.status == Status::Active && entry.origin == Origin::Auto && !is_warm {
        hot.entry.status = Status::Cooling;
    }
    set_rates(&mut hot.entry, live.map_or(&KeyHeat::default(), |live| &live.heat));
    hot
}

fn set_rates(entry: &mut Entry, heat: &KeyHeat) {
    entry.frequency = heat.requests_per_second();
    entry.reads_per_second = heat.reads_per_second;
    entry.writes_per_second = heat.writes_per_second;
}

/// A key as its record says, with the rates of the decision.
fn recorded(key: &[u8], entry: &Entry) -> HotKey {
    let entry = Entry { status: entry.shown_status(), reason: reason(entry), ..entry.clone() };
    HotKey { key: key.to_vec(), entry, guard: None }
}

/// Why, and why it is not so yet, or still is.
fn reason(entry: &Entry) -> String {
    let now_ms = unix_ms();
    let is_late = entry.is_pending() || entry.outgrew_split(now_ms) || entry.split.is_some();
    let pause = entry.pause.as_ref().filter(|pause| is_late && pause.until_ms > now_ms);
    match pause {
        Some(pause) => format!("{}; {}", entry.reason, pause.why),
        None => entry.reason.clone(),
    }
}

/// How long it is told that something was ignored.
const IGNORED_SHOWN: Duration = Duration::from_secs(60);

/// Whether this process should be given traffic.
pub(crate) fn readiness(now: Duration, inner: &Inner) -> Readiness {
    let synced = inner.registry.is_synced();
    let registry_version = synced.then(|| inner.registry.version());
    let (degraded, words) = if let Some(agent) = &inner.agent {
        let state = agent.readiness(now);
        (state.is_degraded, state.is_degraded.then_some(state.words))
    } else {
        let trouble = inner.hearing.trouble(now, inner.live.control.store_patience);
        (trouble.is_some(), trouble)
    };
    let counts = &inner.counts;
    let is_recent = counts.ignored_at.is_some_and(|at| now.saturating_sub(at) < IGNORED_SHOWN);
    let ignored = is_recent.then(|| {
        let what =
            words::count(counts.ignored as usize, "record or message", "records or messages");
        format!(
            "{what} of the coordination store ignored so far: not understood, or not signed with \
             the fleet's secret"
        )
    });
    // An aggregator without the store has nothing to add up.
    let ready = inner.agent.is_some() || !degraded;
    let reasons = words.into_iter().chain(ignored).collect();
    Readiness { ready, degraded, reasons, registry_version, ..Readiness::default() }
}

#[cfg(test)]
mod tests {
    use heatsink_control::value::ValueKind;

    use super::*;

    fn entry(origin: Origin, mitigation: Mitigation) -> Entry {
        Entry {
            mitigation,
            split_factor: if mitigation == Mitigation::Split { 4 } else { 1 },
            ttl_seconds: Some(60),
            origin,
            status: Status::Active,
            reason: "hot".to_owned(),
            dry_run: false,
            frequency: 2000.0,
            reads_per_second: 1900.0,
            writes_per_second: 100.0,
            detected_at_ms: 7,
            split: None,
            pause: None,
        }
    }

    fn live(reads_per_second: f64, warm: bool) -> KeyLive {
        let heat = KeyHeat { reads_per_second, writes_per_second: 1.0, ..KeyHeat::default() };
        KeyLive { heat, proxies: 2, value: ValueKind::String, warm }
    }

    #[test]
    fn a_record_is_shown_with_what_its_key_does_right_now() {
        let found = entry(Origin::Auto, Mitigation::LocalCache);
        for (record, live, status, frequency) in [
            (&found, Some(live(599.0, true)), Status::Active, 600.0),
            (&found, Some(live(498.0, false)), Status::Cooling, 499.0),
            (&found, None, Status::Cooling, 0.0),
            // An operator's entry stays whatever its key does.
            (&entry(Origin::Manual, Mitigation::LocalCache), None, Status::Active, 0.0),
            // Its value has not been moved yet.
            (&entry(Origin::Auto, Mitigation::Split), None, Status::Candidate, 0.0),
        ] {
            let shown = measured(b"k", record, live.as_ref()).entry;
            assert_eq!((shown.status, shown.frequency), (status, frequency), "{record:?} {live:?}");
        }
        let shown = measured(b"k", &found, Some(&live(599.0, true)));
        assert_eq!((shown.entry.reads_per_second, shown.entry.writes_per_second), (599.0, 1.0));
        assert_eq!((shown.key.as_slice(), shown.entry.detected_at_ms), (b"k".as_slice(), 7));
        let shown = recorded(b"k", &found).entry;
        assert_eq!(shown, found, "without an aggregator, the record is all that is known");
    }
}
