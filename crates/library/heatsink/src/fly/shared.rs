//! A flight with a shared tier: who loads is agreed on by a lease in the store.
//!
//! Called by: `fly`; `cache`, for `put` and `invalidate`.
//! Bound: a flight waits for another process for `lease_wait` in all; it holds its own lease, which
//! it renews, as long as its loader runs, and that is bounded by the flight's deadline.
//! Invariant: what is stored replaces exactly what was seen before the load began: the own marker,
//! or the value that was to be refreshed. See [`heatsink_cache::stampede::lease`].

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use heatsink_cache::stampede::freshness::Life;
use heatsink_cache::stampede::lease::{Reader, Seen, Step};
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::{Job, Judged, alone, run, time_to_refresh};
use crate::builder::Fallback;
use crate::clock::whole_ms;
use crate::counters::Count;
use crate::entry::Source;
use crate::envelope::{self, HEAD, Opened};
use crate::error::{Failure, Unconfirmed};
use crate::fence::NO_LINK;
use crate::flight::{Flight, Outcome};
use crate::inner::{Inner, Making};
use crate::observer::Event;
use crate::record::{Payload, Record, Version};
use crate::shared::Shared;
use crate::store::{Core, Down, Looked, Span, Watch};
use crate::sync::{AtomicBool, Ordering, Spawner};

/// What one look at the store showed.
pub(crate) struct Sight<V> {
    pub(crate) seen: Seen,
    pub(crate) record: Option<Arc<Record<V>>>,
    /// The first bytes of what lies there: what a refresh replaces.
    pub(crate) head: Vec<u8>,
}

pub(super) async fn course<K, V>(
    inner: &Arc<Inner<K, V>>,
    shared: &Shared<K, V>,
    key: &K,
    flight: &Flight<V>,
    mut job: Job<V>,
    deadline: Instant,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let core = shared.core();
    let name = shared.key(key);
    let watch = Watch::new(core, &name);
    let patience_end = Instant::now() + inner.settings.lease_wait;
    // What is to be replaced, and the lease to do so.
    let refreshed = job.known.as_ref().filter(|_| job.refreshes && !job.anew);
    let mut claimed = refreshed.map(|record| head_of(record));
    let mut lease: Option<Lease> = None;
    // What will do if another process is replacing it, and what will not.
    let mut servable = refreshed.filter(|_| !job.insists).cloned();
    let mut refused = claimed.clone().filter(|_| job.insists);
    let mut epoch = watch.epoch();
    loop {
        if claimed.is_some() && lease.is_none() {
            let beside = shared.refresh_key(key);
            match Lease::beside(inner, core, &beside).await {
                Ok(Some(got)) => lease = Some(got),
                Ok(None) => {
                    // Another process is at it, and will tell when it is done.
                    if let Some(record) = servable.take() {
                        record.postpone_retry(inner.clock.now() + whole_ms(inner.pause()));
                        return Outcome::Value(record, Source::Shared);
                    }
                    inner.count(Count::LeasesWaited);
                    let left = patience_end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return without(inner, key, flight, job, deadline, None).await;
                    }
                    tokio::select! {
                        () = watch.changed_since(epoch) => {}
                        () = end_of(core, &beside, left) => {}
                    }
                    claimed = None;
                }
                Err(down) => return without(inner, key, flight, job, deadline, Some(down)).await,
            }
        }
        epoch = watch.epoch();
        // Who has been answered already was answered by an earlier look.
        if !flight.has_answered() {
            flight.begin_read(epoch);
        }
        let looked = match core.look(&name).await {
            Ok(looked) => looked,
            Err(down) => return without(inner, key, flight, job, deadline, Some(down)).await,
        };
        let sight = interpret(inner, shared, key, looked);
        if std::mem::take(&mut job.anew) && sight.record.is_some() {
            refused = Some(sight.head.clone());
        }
        if lease.is_none() && refused.as_ref() == Some(&sight.head) {
            claimed = Some(sight.head);
            continue;
        }
        let is_claimed = lease.is_some() && claimed.as_deref() == Some(&sight.head[..]);
        let patience = patience_end.saturating_duration_since(Instant::now());
        let reader = Reader { patience, refreshes: is_claimed };
        match (reader.step(sight.seen), sight.record) {
            (Step::Serve, Some(record)) => {
                inner.keep(key, &record, inner.clock.now());
                return Outcome::Value(record, Source::Shared);
            }
            (Step::ServeAndRefresh, Some(record)) => {
                inner.keep(key, &record, inner.clock.now());
                flight.answer_first(Outcome::Value(Arc::clone(&record), Source::Shared));
                if let (true, Some(lease)) = (is_claimed, lease.take()) {
                    // As any refresh, unless somebody waits for it: given up when its value is gone.
                    let mut deadline = deadline;
                    let is_awaited = job.insists;
                    if !is_awaited {
                        let most = time_to_refresh(inner, &record);
                        flight.is_due_by(inner.clock.now().saturating_add(whole_ms(most)));
                        deadline = deadline.min(Instant::now() + most);
                    }
                    job.refreshes = true;
                    job.is_background = true;
                    let known = Some(record);
                    let outcome =
                        load(inner, shared, key, flight, job, deadline, lease, sight.head, known);
                    return match outcome.await {
                        Outcome::Failed(Failure::Timeout) if !is_awaited => {
                            Outcome::Failed(Failure::Overdue)
                        }
                        outcome => outcome,
                    };
                }
                job.is_early = record.age(inner.clock.now()) < record.life.fresh_for;
                let will_do = job.is_early || !job.insists;
                if (lease.take().is_some() || !record.is_retry_due(inner.clock.now())) && will_do {
                    // Somebody has replaced what was to be refreshed.
                    return Outcome::Value(record, Source::Shared);
                }
                servable = will_do.then_some(record);
                claimed = Some(sight.head);
            }
            (Step::Replace, known) => {
                flight.spare(known.clone());
                if let (true, Some(lease)) = (is_claimed, lease.take()) {
                    return load(
                        inner, shared, key, flight, job, deadline, lease, sight.head, known,
                    )
                    .await;
                }
                servable = None;
                claimed = Some(sight.head);
            }
            (Step::Acquire, _) => {
                let version = Version(fastrand::u128(..).to_be_bytes());
                let marker = envelope::lease(version);
                match core.claim(&name, &marker, inner.settings.lease).await {
                    Ok(true) => {
                        let lease = Lease::new(inner, core, name.clone(), marker);
                        job.refreshes = false;
                        let head = marker.to_vec();
                        return load(inner, shared, key, flight, job, deadline, lease, head, None)
                            .await;
                    }
                    // Somebody was faster.
                    Ok(false) => {}
                    Err(down) => {
                        return without(inner, key, flight, job, deadline, Some(down)).await;
                    }
                }
            }
            (Step::Wait(wait), _) => {
                inner.count(Count::LeasesWaited);
                let _ = timeout(wait, watch.changed_since(epoch)).await;
            }
            (Step::GiveUp | Step::Serve | Step::ServeAndRefresh, _) => {
                return without(inner, key, flight, job, deadline, None).await;
            }
        }
    }
}

/// Waits for the end of the lease beside a key: given back, or run out.
async fn end_of(core: &Arc<Core>, beside: &[u8], at_most: Duration) {
    let watch = Watch::new(core, beside);
    let epoch = watch.epoch();
    let left = match core.look(beside).await {
        Ok(Looked { bytes: Some(_), left: Span::For(left), .. }) => left,
        Ok(Looked { bytes: None, .. }) => return,
        Ok(_) | Err(_) => at_most,
    };
    let _ = timeout(left.min(at_most), watch.changed_since(epoch)).await;
}

/// Loads under a lease, and stores what comes in place of what begins with `head`.
#[expect(clippy::too_many_arguments, reason = "the state of a flight at its last leg")]
async fn load<K, V>(
    inner: &Arc<Inner<K, V>>,
    shared: &Shared<K, V>,
    key: &K,
    flight: &Flight<V>,
    job: Job<V>,
    deadline: Instant,
    lease: Lease,
    head: Vec<u8>,
    known: Option<Arc<Record<V>>>,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let token = u128::from_be_bytes(lease.token());
    // What was deleted meanwhile is not even stale.
    let known = known
        .or_else(|| job.known.clone())
        .filter(|record| inner.fences.holds(record.fence(), inner.clock.now()));
    let loading = run(inner, job, known.as_ref(), deadline, Some(token));
    let judged = match lease.renewed_while(loading).await {
        Ok(judged) => judged,
        Err(failure) => {
            let now = inner.clock.now();
            let usable = known.filter(|record| record.age(now) < record.life.kept_for());
            return match usable {
                Some(record) if record.link != NO_LINK => {
                    inner.rest(key, &record, now);
                    Outcome::Instead(record, Source::Shared, failure)
                }
                _ => Outcome::Failed(failure),
            };
        }
    };
    store(inner, shared, key, flight, lease, &head, judged).await
}

/// Stores what was loaded in place of what begins with `head`, and answers those who wait.
pub(crate) async fn store<K, V>(
    inner: &Arc<Inner<K, V>>,
    shared: &Shared<K, V>,
    key: &K,
    flight: &Flight<V>,
    lease: Lease,
    head: &[u8],
    judged: Judged<V>,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let version = Version(fastrand::u128(..).to_be_bytes());
    let Judged { payload, life, no_store } = judged;
    let sealed = seal(inner, shared, &payload, &life, version);
    let now = inner.clock.now();
    let link = match &sealed {
        Some(_) => shared.core().link_id(&shared.key(key)),
        None => NO_LINK,
    };
    let record = Arc::new(inner.record(
        key,
        payload,
        &Making {
            born: now,
            life,
            fence: None,
            stripe: flight.stripe,
            link,
            local_until: now.saturating_add(whole_ms(local_life(inner, &life))),
            version,
            bytes: sealed.as_ref().map_or(0, Vec::len),
        },
    ));
    flight.answer_first(Outcome::Value(Arc::clone(&record), Source::Loaded));
    let outcome = Outcome::Value(Arc::clone(&record), Source::Loaded);
    let Some(sealed) = sealed.filter(|_| !no_store) else { return outcome };
    let core = shared.core();
    let name = shared.key(key);
    let before = core.fences.epoch(flight.stripe);
    match core.replace(&name, head, &sealed, life.kept_for()).await {
        Ok(true) => {
            // Our own write does not keep others from joining, if there was no other.
            flight.renew(before, before + 1);
            lease.is_over();
            // Our own write is not a read: the server tells of changes from this look on.
            if inner.local.is_on()
                && let Ok(Some(fence)) = core.check(&name, &sealed[..HEAD]).await
                && fence.link == record.link
            {
                record.close(fence);
                inner.keep(key, &record, inner.clock.now());
            }
        }
        Ok(false) => {
            inner.count(Count::LeasesLost);
            inner.tell(Event::LeaseLost);
            tracing::debug!(cache = inner.name, "a load came too late to be stored");
        }
        Err(down) => trouble(inner, &down),
    }
    outcome
}

/// Loads, or not, without the store knowing: it cannot be asked, or another process holds the lease
/// for too long.
async fn without<K, V>(
    inner: &Arc<Inner<K, V>>,
    key: &K,
    flight: &Flight<V>,
    job: Job<V>,
    deadline: Instant,
    down: Option<Down>,
) -> Outcome<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    if let Some(down) = &down {
        trouble(inner, down);
    }
    match inner.settings.fallback {
        Fallback::Fail => {
            let words = down.map_or_else(|| "another process is loading".into(), |down| down.0);
            return Outcome::Failed(Failure::Unavailable(words));
        }
        Fallback::Stale if !job.insists => {
            let now = inner.clock.now();
            let known = job.known.clone().or_else(|| inner.local.peek(key));
            if let Some(record) = known
                && record.age(now) < record.life.kept_for()
            {
                let words = down.map_or_else(|| "another process is loading".into(), |down| down.0);
                return Outcome::Instead(record, Source::Local, Failure::Unavailable(words));
            }
        }
        Fallback::Stale | Fallback::Load => {}
    }
    // While the store cannot be asked, what is loaded is kept for as long as a store may be silent.
    let fence = down.map(|_| inner.fences.take(flight.stripe, NO_LINK));
    alone(inner, key, flight, job, deadline, fence, inner.keep_alone_for()).await
}

pub(crate) fn trouble<K, V>(inner: &Inner<K, V>, down: &Down)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    inner.count(Count::SharedErrors);
    inner.tell(Event::SharedFailed { words: &down.0 });
}

/// How long a record may be served from this process.
fn local_life<K, V>(inner: &Inner<K, V>, life: &Life) -> Duration {
    inner.settings.local_ttl.unwrap_or(life.fresh_for / 5)
}

fn head_of<V>(record: &Record<V>) -> Vec<u8> {
    let kind = if record.value().is_some() { b'V' } else { b'N' };
    envelope::head(kind, record.version).to_vec()
}

pub(crate) fn interpret<K, V>(
    inner: &Inner<K, V>,
    shared: &Shared<K, V>,
    key: &K,
    looked: Looked,
) -> Sight<V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let Some(bytes) = looked.bytes else {
        return Sight { seen: Seen::Nothing, record: None, head: Vec::new() };
    };
    let head = bytes[..bytes.len().min(HEAD)].to_vec();
    let foreign = |head| {
        inner.count(Count::Undecodable);
        inner.tell(Event::Undecodable);
        Sight { seen: Seen::Foreign, record: None, head }
    };
    let left = match looked.left {
        Span::For(left) => left,
        Span::ForEver => return foreign(head),
    };
    let (version, life, payload) = match envelope::open(&bytes) {
        Opened::Lease(_) => return Sight { seen: Seen::Lease(left), record: None, head },
        Opened::Foreign => return foreign(head),
        Opened::Absent { version, life } => (version, life, Payload::Absent),
        Opened::Value { version, life, format, bytes } => {
            let decoded = if format == shared.codec.format() {
                shared.codec.decode(bytes).map_err(|error| error.to_string())
            } else {
                Err(format!("format {format} where {} is expected", shared.codec.format()))
            };
            match decoded {
                Ok(value) => (version, life, Payload::Value(value)),
                Err(error) => {
                    tracing::debug!(cache = inner.name, error, "a value cannot be read");
                    return foreign(head);
                }
            }
        }
    };
    let now = inner.clock.now();
    let age = life.kept_for().saturating_sub(left);
    let born = now.saturating_sub(whole_ms(age));
    // A fifth of what is left by default, and never past it.
    let local =
        inner.settings.local_ttl.unwrap_or(life.fresh_for.saturating_sub(age) / 5).min(left);
    let record = inner.record(
        key,
        payload,
        &Making {
            born,
            life,
            fence: Some(looked.fence),
            stripe: looked.fence.stripe,
            link: looked.fence.link,
            local_until: now.saturating_add(whole_ms(local)),
            version,
            bytes: bytes.len(),
        },
    );
    let freshness = inner.freshness(&record, || inner.is_hot_here(key, &record), now);
    Sight { seen: Seen::Value(freshness), record: Some(Arc::new(record)), head }
}

/// The bytes to store; nothing if that cannot be.
fn seal<K, V>(
    inner: &Inner<K, V>,
    shared: &Shared<K, V>,
    payload: &Payload<V>,
    life: &Life,
    version: Version,
) -> Option<Vec<u8>>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let value = match payload {
        Payload::Absent => None,
        Payload::Value(value) => Some(value),
        Payload::Same(record) => record.value(),
    };
    let encoded = match value.map(|value| shared.codec.encode(value)).transpose() {
        Ok(encoded) => encoded,
        Err(error) => {
            tracing::warn!(cache = inner.name, %error, "a value cannot be encoded");
            return None;
        }
    };
    let bytes = encoded.as_ref().map_or(0, Vec::len);
    if bytes > inner.settings.max_value_bytes {
        inner.count(Count::TooLarge);
        inner.tell(Event::TooLarge { bytes });
        return None;
    }
    let format = shared.codec.format();
    Some(envelope::seal(version, life, encoded.as_deref().map(|bytes| (format, bytes))))
}

/// Writes a value, whatever is there; goes on if the caller gives up.
pub(crate) async fn put_shared<K, V>(
    inner: &Arc<Inner<K, V>>,
    key: K,
    value: V,
) -> Result<(), Unconfirmed>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let Some(shared) = &inner.shared else { return Ok(()) };
    let life = inner.settings.policy.life(None, Duration::ZERO, fastrand::f64());
    let version = Version(fastrand::u128(..).to_be_bytes());
    let sealed = seal(inner, shared, &Payload::Value(value), &life, version);
    write(inner, key, sealed, life.kept_for()).await
}

/// Deletes a key; goes on if the caller gives up.
pub(crate) async fn invalidate_shared<K, V>(
    inner: &Arc<Inner<K, V>>,
    key: K,
) -> Result<(), Unconfirmed>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    write(inner, key, None, Duration::ZERO).await
}

/// An own write. The epoch is advanced before it and after it:
///
/// ```text
/// put                         reader in this process
///   epoch 8, sends SET new
///                             takes the fence: epoch 8; reads old, from before the SET
///   answered: epoch 9
///                             keeps old under 8: never served
/// ```
async fn write<K, V>(
    inner: &Arc<Inner<K, V>>,
    key: K,
    sealed: Option<Vec<u8>>,
    life: Duration,
) -> Result<(), Unconfirmed>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let Some(shared) = &inner.shared else { return Ok(()) };
    let name = shared.key(&key);
    let core = Arc::clone(shared.core());
    core.key_changed(&name);
    inner.local.remove(&key);
    // A task of its own: a change that was begun is ended, and its epoch with it.
    let writing = inner.runtime.spawn(async move {
        match sealed {
            Some(sealed) => {
                let marker = envelope::lease(Version(fastrand::u128(..).to_be_bytes()));
                core.put(&name, &marker, &sealed, life).await
            }
            None => core.delete(&name).await,
        }
    });
    let result = writing.await.unwrap_or_else(|_| Err(Down("the runtime ended".into())));
    result.map_err(|down| {
        trouble(inner, &down);
        Unconfirmed { words: down.0 }
    })
}

/// A lease in the store, given back when it is dropped.
pub(crate) struct Lease {
    core: Arc<Core>,
    runtime: Spawner,
    key: Vec<u8>,
    marker: [u8; HEAD],
    life: Duration,
    is_held: AtomicBool,
    /// Whether what is stored overwrites it.
    is_in_place: bool,
}

impl Lease {
    pub(crate) fn new<K, V>(
        inner: &Inner<K, V>,
        core: &Arc<Core>,
        key: Vec<u8>,
        marker: [u8; HEAD],
    ) -> Self {
        Self {
            core: Arc::clone(core),
            runtime: inner.runtime.clone(),
            key,
            marker,
            life: inner.settings.lease,
            is_held: AtomicBool::new(true),
            is_in_place: true,
        }
    }

    /// The lease to replace a value, beside it.
    pub(crate) async fn beside<K, V>(
        inner: &Inner<K, V>,
        core: &Arc<Core>,
        key: &[u8],
    ) -> Result<Option<Self>, Down> {
        let marker = envelope::lease(Version(fastrand::u128(..).to_be_bytes()));
        let is_ours = core.claim(key, &marker, inner.settings.lease).await?;
        Ok(is_ours.then(|| {
            let mut lease = Self::new(inner, core, key.to_vec(), marker);
            lease.is_in_place = false;
            lease
        }))
    }

    fn token(&self) -> [u8; 16] {
        let mut token = [0; 16];
        token.copy_from_slice(&self.marker[HEAD - 16..]);
        token
    }

    /// What was stored has taken its place.
    fn is_over(&self) {
        if self.is_in_place {
            self.is_held.store(false, Ordering::Relaxed);
        }
    }

    async fn renew(&self) -> bool {
        !matches!(self.core.renew(&self.key, &self.marker, self.life).await, Ok(false))
    }

    /// Keeps the lease alive while the loader runs, so that a slow one is not run twice.
    async fn renewed_while<T>(&self, loading: impl Future<Output = T>) -> T {
        renewed_while(std::slice::from_ref(self), loading).await
    }
}

/// Keeps leases alive while a loader runs. One that is lost (the key was deleted or overwritten, or
/// the lease ran out) stays lost; what is loaded goes to those who wait.
pub(crate) async fn renewed_while<T>(leases: &[Lease], loading: impl Future<Output = T>) -> T {
    let mut loading = std::pin::pin!(loading);
    let Some(first) = leases.first() else { return loading.await };
    let period = first.life / 3;
    let mut renewals = interval_at((Instant::now() + period).into(), period);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut held = vec![true; leases.len()];
    loop {
        tokio::select! {
            biased;
            end = &mut loading => return end,
            _ = renewals.tick() => {}
        }
        // All at once: those of a large batch would take longer than they last, one by one.
        let renewing = join_all(held.iter_mut().zip(leases).map(async |(held, lease)| {
            if *held {
                *held = lease.renew().await;
            }
        }));
        tokio::select! {
            biased;
            end = &mut loading => return end,
            _ = renewing => {}
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_held.load(Ordering::Relaxed) {
            let (core, key, marker) = (Arc::clone(&self.core), self.key.clone(), self.marker);
            self.runtime.spawn(async move {
                let _ = core.release(&key, &marker).await;
            });
        }
    }
}
