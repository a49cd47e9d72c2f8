//! What is wanted and what is, brought together: values are moved, what dead movers left is
//! finished, and markers are looked at.
//!
//! Called by: two tasks of each process with a proxy, beside the loop.
//! Bound: [`MAX_MOVES`] moves at a time, one for a key, and as many of those that clients may wait
//! for, so that none of these waits for a move that the store keeps waiting.
//! Invariant: any number of processes may do this at once. One is the first choice for a key;
//! the others step in when nothing happens. What is known of split keys is relied on only after
//! a look at all of them; after a pause of the process, only after the registry was read anew:
//!
//! ```text
//! 1. paused for an hour; a key was split and made whole meanwhile
//! 2. woken: the lease is over
//! 3. a look finds nothing split        would renew the lease
//! 4. the old message "it is split" is read: its shards are long gone, and would be written to
//! ```
//!
//! While the store is away, nobody can be told of anything. Then no split begins, one that has begun
//! is given up, and what commands need whole is made whole by whoever is asked, as the data allows:
//!
//! ```text
//! this process                        another                     the store
//! SET permit; registry: freezing      holds writes
//!                                                                 is away
//!                                     DEL permit; no marker: the key is as before, its writes go on
//! EXEC: nil; permit, marker: the same
//! ```

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heatsink_control::entry::{Mitigation, Phase, SplitRecord};
use heatsink_split::{Layout, placement};
use tokio::sync::{Notify, Semaphore};

use super::lifecycle::{self, Mover};
use super::marker::Marker;
use super::names::{Known, Manifest};
use crate::state::{Inner, unix_ms};

/// Moves of this process that are under way at once, of those that clients may wait for, and of the
/// others.
const MAX_MOVES: usize = 4;
/// Time between two looks at the markers.
const LOOK: Duration = Duration::from_secs(1);
/// The same while the store is away: what others have ended is seen nowhere else.
const LOOK_AWAY: Duration = Duration::from_millis(250);
/// How long what was seen there may be relied on.
pub(super) const BELIEF: Duration = Duration::from_secs(10);
/// Time for the first choice to begin.
pub(super) const STEP_IN: Duration = Duration::from_secs(2);
/// Time for a mover that is alive to come to an end.
const SLOW: Duration = Duration::from_secs(10);
/// Time for it while the store is away: writes are held, and nobody can be told of anything.
const UNTOLD: Duration = Duration::from_secs(1);
/// Time for the registry to tell of a split that only the upstream seems to know.
const STRANGE: Duration = Duration::from_secs(5);
/// Shards that are not where they should be are left there for this long: slots may still move.
const UNEVEN: Duration = Duration::from_secs(10);
/// A key with less than this to live is made whole.
const LAST_MS: i64 = 30_000;
/// Servers are asked at every tenth look whether they may evict a part of a value.
const EVICTIONS: u32 = 10;
/// Time after which making a value whole is tried again: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Shards are measured at every fifth look, and the index is read then while nothing is split.
const MEASURE: u32 = 5;
/// A look that comes later than this shows that the process was paused.
const PAUSED: Duration = Duration::from_secs(4);
/// How long the registry has to be read anew after that.
const UNSURE: Duration = Duration::from_secs(10);

/// What both tasks know.
pub(crate) struct Reconciler {
    pub(super) mover: Mover,
    /// Of moves that clients may wait for, and of others.
    waited_for: Semaphore,
    others: Semaphore,
    /// There is a split that nobody here has looked at.
    unseen: Notify,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Keys that this process moves.
    busy: HashSet<Vec<u8>>,
    /// Since when something waits to be done, by key and what.
    since: HashMap<(Vec<u8>, String), Instant>,
    /// Splits whose shards are not where they should be, and since when.
    uneven: HashMap<String, Instant>,
    /// Commands that wait for keys to be whole.
    wanted: HashMap<Vec<u8>, String>,
    /// Keys that could not be made whole, until when they are left alone, and for how long.
    later: HashMap<Vec<u8>, (Instant, Duration)>,
    /// Ids of the splits that were last looked at.
    seen: HashSet<String>,
    /// The registry beside which the index was found empty.
    index_beside: Option<Vec<u8>>,
}

impl Memory {
    /// A value was made whole, or could not be.
    fn note(&mut self, key: &[u8], is_done: bool) {
        if is_done {
            self.later.remove(key);
            return;
        }
        let (shortest, longest) = AGAIN;
        let before = self.later.get(key).map(|(_, pause)| *pause * 2);
        let pause = before.unwrap_or(shortest).min(longest);
        self.later.insert(key.to_vec(), (Instant::now() + pause, pause));
    }
}

/// What is to be done about a key.
#[derive(Clone, Debug, PartialEq)]
enum Task {
    Split,
    Unsplit(String, Option<String>),
    Thaw(Layout),
    Mend(Layout),
    Overwritten(Layout),
    Adopt(Known),
    Find,
}

impl Task {
    /// Whether a client may wait for it.
    fn is_waited_for(&self) -> bool {
        matches!(self, Self::Unsplit(..) | Self::Thaw(_) | Self::Find)
    }
}

impl Reconciler {
    pub(crate) fn new(mover: Mover) -> Arc<Self> {
        let memory = Mutex::default();
        let unseen = Notify::new();
        let semaphore = || Semaphore::new(MAX_MOVES);
        let (waited_for, others) = (semaphore(), semaphore());
        Arc::new(Self { mover, waited_for, others, unseen, memory })
    }

    /// Begins what the registry asks for, whenever it changed, and what commands ask for.
    pub(crate) async fn run_moves(self: Arc<Self>) {
        loop {
            let changed = self.mover.state.moves.notified();
            let _ = tokio::time::timeout(LOOK / 4, changed).await;
            self.take_wanted();
            self.take_markers();
            for (key, task) in self.due() {
                self.begin(key, task);
            }
        }
    }

    /// Looks at the markers.
    pub(crate) async fn run_looks(self: Arc<Self>) {
        let mut number = 0_u32;
        let mut unsure_until = None;
        loop {
            let (begun, awake_at) = (Instant::now(), heatsink_proxy::uptime());
            let is_synced = self.mover.state.lock().registry.is_synced();
            unsure_until = unsure_until.filter(|until| !is_synced && begun < *until);
            if unsure_until.is_none()
                && let Err(error) = self.look(number).await
            {
                tracing::debug!("split keys could not be looked at: {error}");
            }
            number = number.wrapping_add(1);
            let period = if self.mover.state.is_store_away() { LOOK_AWAY } else { LOOK };
            let rest = period.saturating_sub(begun.elapsed());
            let _ = tokio::time::timeout(rest, self.unseen.notified()).await;
            // The sleep of a machine counts, too.
            if heatsink_proxy::uptime().saturating_sub(awake_at) > PAUSED {
                self.mover.state.lock().registry.desync();
                unsure_until = Some(Instant::now() + UNSURE);
            }
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command that wants a key whole, if any does.
    pub(super) fn wanted(&self, key: &[u8]) -> Option<String> {
        self.memory().wanted.get(key).cloned()
    }

    fn take_wanted(&self) {
        let Some(proxy) = &self.mover.state.proxy else { return };
        let wanted = proxy.take_wholes_wanted();
        let mut memory = self.memory();
        for whole in wanted {
            memory.wanted.insert(whole.key, whole.command);
        }
    }

    /// Markers that workers were refused by, and that nobody has told them of.
    fn take_markers(self: &Arc<Self>) {
        let Some(proxy) = &self.mover.state.proxy else { return };
        for key in proxy.take_unknown_markers() {
            self.begin(key, Task::Find);
        }
    }

    /// What the registry asks for.
    fn due(&self) -> Vec<(Vec<u8>, Task)> {
        let state = &self.mover.state;
        let (now, now_ms) = (Instant::now(), unix_ms());
        let inner = state.lock();
        let is_synced = inner.registry.is_synced();
        if is_synced && !state.informed.is_open() {
            self.unseen.notify_one();
        }
        let can_tell = is_synced && !inner.hearing.is_away();
        let mut memory = self.memory();
        let Memory { busy, since, wanted, seen, later, .. } = &mut *memory;
        later.retain(|key, _| inner.registry.get(key).is_some());
        wanted.retain(|key, _| {
            let split = inner.registry.get(key).and_then(|record| record.entry.split.as_ref());
            split.is_some_and(|split| !inner.splits.is_over(&split.id))
        });
        let mut tasks = Vec::new();
        let mut waiting = HashSet::new();
        for (key, record) in inner.registry.iter() {
            let entry = &record.entry;
            let what = match &entry.split {
                None if entry.wants_split() => "split".to_owned(),
                None => continue,
                Some(split) => format!("{} {}", split.id, split.phase.name()),
            };
            let looked_into = inner.splits.contents.get(key).map(|(id, _)| id);
            let is_unseen = |split: &SplitRecord| {
                let is_dark = split.phase == Phase::Split && looked_into != Some(&split.id);
                !seen.contains(&split.id) || is_dark && !split.is_copies()
            };
            if entry.split.as_ref().is_some_and(is_unseen) {
                self.unseen.notify_one();
            }
            let waits = (key.to_vec(), what);
            let since = *since.entry(waits.clone()).or_insert(now);
            waiting.insert(waits);
            if busy.contains(key) || later.get(key).is_some_and(|(until, _)| now < *until) {
                continue;
            }
            let waited = now.saturating_duration_since(since);
            let is_mine = waited >= STEP_IN || is_first_choice(&inner, key, &state.id);
            let policy = inner.live.policies.of(key);
            let allowed = inner.live.split.enabled && policy.allows(Mitigation::Split);
            let task = match &entry.split {
                // What is known may be old: only what somebody waits for is done, and what was begun.
                Some(split) if !can_tell => {
                    let is_away = inner.hearing.is_away();
                    let is_left = is_away && split.mover == state.id;
                    let task = without_registry(split, waited, is_away, is_left, wanted.get(key));
                    task.filter(|_| !inner.splits.is_over(&split.id))
                }
                None if !can_tell => None,
                None => {
                    let paused = entry.pause.as_ref().is_some_and(|pause| now_ms < pause.until_ms);
                    (is_mine && allowed && !paused).then_some(Task::Split)
                }
                Some(split) => {
                    let needed = wanted.get(key);
                    let outgrown = entry.outgrew_split(now_ms) || !allowed;
                    unfinished(&inner, &state.id, split, waited, is_mine, needed, outgrown)
                }
            };
            tasks.extend(task.map(|task| (key.to_vec(), task)));
        }
        since.retain(|waits, _| waiting.contains(waits) || waits.1.starts_with("known "));
        drop(memory);
        drop(inner);
        tasks
    }

    fn begin(self: &Arc<Self>, key: Vec<u8>, task: Task) {
        if !self.memory().busy.insert(key.clone()) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            {
                let _free = Free { reconciler: &this, key: key.clone() };
                let limit = if task.is_waited_for() { &this.waited_for } else { &this.others };
                let Ok(_permit) = limit.acquire().await else { return };
                let mover = &this.mover;
                match task {
                    Task::Split => mover.split(&key).await,
                    Task::Unsplit(id, why) => {
                        let is_done = mover.unsplit(&key, &id, why).await;
                        this.memory().note(&key, is_done);
                    }
                    Task::Thaw(layout) => mover.thaw(&key, &layout).await,
                    Task::Mend(layout) => mover.mend(&key, &layout).await,
                    Task::Overwritten(layout) => mover.overwritten(&key, &layout).await,
                    Task::Adopt(known) => mover.adopt(&known).await,
                    Task::Find => mover.find(&key).await,
                }
            }
            this.mover.state.moves.notify_one();
        });
    }

    /// Splits that the registry knows, each with where its parts are.
    fn registered(&self) -> Vec<(Vec<u8>, Layout, Phase)> {
        let inner = self.mover.state.lock();
        let split = |(key, record): (&[u8], &heatsink_control::registry::Record)| {
            let split = record.entry.split.as_ref()?;
            Some((key.to_vec(), lifecycle::layout(split)?, split.phase))
        };
        inner.registry.iter().filter_map(split).collect()
    }

    async fn look(self: &Arc<Self>, number: u32) -> Result<(), super::data::DataError> {
        let steps = &self.mover.steps;
        let measure = number.is_multiple_of(MEASURE);
        // A split that came while others were looked at is looked at as well, before anything
        // is relied on: its message may be an old one.
        let (splits, seen, begun, was_synced) = loop {
            let begun = heatsink_proxy::uptime();
            let was_synced = self.mover.state.lock().registry.is_synced();
            let splits = self.registered();
            let asked: Vec<_> =
                splits.iter().map(|(key, layout, _)| (key.clone(), layout.clone())).collect();
            let seen = if asked.is_empty() { Vec::new() } else { steps.look(&asked).await? };
            let is_known =
                |one: &(Vec<u8>, Layout, Phase)| splits.iter().any(|other| other.1.id == one.1.id);
            if self.registered().iter().all(is_known) {
                break (splits, seen, begun, was_synced);
            }
        };
        if was_synced {
            // The workers know it already; see `Run::refresh_hot_keys`.
            self.mover.state.informed.open();
        }
        // A marker that is gone means that others know more than this process: tombstones keep it
        // from harm only for so long.
        let is_current =
            |((_, layout, phase), (marker, _)): (&(_, Layout, Phase), &(Marker, _))| {
                let is_over = || self.mover.state.lock().splits.is_over(&layout.id);
                marker.is_there() || *phase == Phase::Freezing || is_over()
            };
        if let Some(proxy) = &self.mover.state.proxy
            && splits.iter().zip(&seen).all(is_current)
        {
            proxy.believe_splits_since(begun, BELIEF);
        }
        self.mover.state.lock().splits.looked_at_ms = unix_ms();
        self.memory().seen = splits.iter().map(|(_, layout, _)| layout.id.clone()).collect();
        let is_known = |id: &str| splits.iter().any(|(_, layout, _)| layout.id == id);
        self.mover.state.lock().splits.retain_over(is_known);
        for ((key, layout, phase), (marker, left_ms)) in splits.iter().zip(seen) {
            if *phase == Phase::Draining && marker == Marker::Missing {
                // Its value is at the key, whoever may not have been told of that yet.
                self.mover.note_marker(&layout.id, false);
            }
            if *phase != Phase::Split {
                continue;
            }
            // Looked at once more: it may have been over only after it was looked at.
            if marker.is_there()
                && self.mover.state.lock().splits.is_over(&layout.id)
                && steps.is_marked(key, layout).await?
            {
                self.mover.note_marker(&layout.id, true);
            }
            if marker == Marker::Damaged {
                self.begin(key.clone(), Task::Mend(layout.clone()));
            } else if marker == Marker::Missing {
                // Once more, with what the registry says now: it may have ended meanwhile.
                let now = self.registered();
                let is_split = now.iter().any(|one| one.1.id == layout.id && one.2 == Phase::Split);
                if is_split && !steps.is_marked(key, layout).await? {
                    self.mover.note_marker(&layout.id, false);
                    if !self.mover.state.is_store_away() {
                        self.begin(key.clone(), Task::Overwritten(layout.clone()));
                    }
                }
            } else if self.is_uneven(layout) {
                // Split again, its shards are where the nodes are now.
                self.begin(key.clone(), Task::Unsplit(layout.id.clone(), None));
            } else if left_ms.is_some_and(|left| left < LAST_MS) {
                let why = "not split: its time to live ends soon".to_owned();
                self.begin(key.clone(), Task::Unsplit(layout.id.clone(), Some(why)));
            } else if left_ms.is_some() != layout.expires {
                // Somebody has set or removed its end past all proxies: split again, they know.
                self.begin(key.clone(), Task::Unsplit(layout.id.clone(), None));
            } else if number.is_multiple_of(EVICTIONS)
                && let Ok(Some(why)) = steps.evicts_parts(key, layout).await
            {
                let why = format!("not split: {why}");
                self.begin(key.clone(), Task::Unsplit(layout.id.clone(), Some(why)));
            }
        }
        if self.is_index_due(measure, !splits.is_empty()) {
            self.look_at_index().await?;
        }
        self.measure(&splits, measure).await
    }

    /// Whether slots have moved so that one node has had more than twice its share of the shards
    /// for a while.
    fn is_uneven(&self, layout: &Layout) -> bool {
        let owners = self.mover.state.proxy.as_ref().and_then(heatsink_proxy::Handle::slot_owners);
        let uneven = owners.is_some_and(|owners| placement::is_uneven(&owners, layout));
        let mut memory = self.memory();
        if !uneven {
            memory.uneven.remove(&layout.id);
            return false;
        }
        let since = *memory.uneven.entry(layout.id.clone()).or_insert_with(Instant::now);
        let is_over = since.elapsed() >= UNEVEN;
        if is_over {
            memory.uneven.remove(&layout.id);
        }
        is_over
    }

    /// Whether there is reason to read the index: something is split, or was left; or, at every [`MEASURE`]th
    /// look, the registry is not the one that it was read beside, after a start or a loss, or the
    /// index had something last time. Otherwise nobody has written to it: it is not read for ever
    /// for nothing, which the user may not even be allowed to.
    fn is_index_due(&self, measure: bool, is_split: bool) -> bool {
        let inner = self.mover.state.lock();
        let memory = self.memory();
        let is_read = memory.index_beside.as_deref() == inner.registry.incarnation();
        is_split || !inner.splits.left.is_empty() || measure && !is_read
    }

    /// Splits that the upstream knows and the registry does not; and those that the index has lost, because
    /// it was evicted or its server has failed over:
    ///
    /// ```text
    /// mover                              the index                     a replica of the key
    /// k is split                         manifest of k
    ///                                    evicted
    /// k is whole                                                       does not confirm that
    /// keeps the sealed shards: who will ever find them?
    /// ```
    async fn look_at_index(self: &Arc<Self>) -> Result<(), super::data::DataError> {
        let beside = self.mover.state.lock().registry.incarnation().map(<[u8]>::to_vec);
        let known = match self.mover.steps.known().await {
            // Who may not read it has not written to it either.
            Err(super::data::DataError::Refused(_)) => Vec::new(),
            known => known?,
        };
        self.memory().index_beside = beside.filter(|_| known.is_empty());
        let splits = self.registered();
        let registered: HashSet<&str> =
            splits.iter().map(|(_, layout, _)| &layout.id[..]).collect();
        let listed: HashSet<String> = known.iter().map(|known| known.layout.id.clone()).collect();
        let now = Instant::now();
        let mut tasks = Vec::new();
        let mut lost: Vec<(Vec<u8>, Layout)>;
        {
            let mut inner = self.mover.state.lock();
            let mut memory = self.memory();
            if !inner.registry.is_synced() || inner.hearing.is_away() {
                return Ok(());
            }
            let left = &mut inner.splits.left;
            left.retain(|id, left| left.is_under_way || !listed.contains(id));
            let unlisted = left.values().filter(|left| !listed.contains(&left.layout.id));
            lost = unlisted.map(|left| (left.key.clone(), left.layout.clone())).collect();
            let strange = known.into_iter().filter(|known| !registered.contains(&*known.layout.id));
            let mut waiting = HashSet::new();
            for known in strange {
                let waits = (known.key.clone(), format!("known {}", known.layout.id));
                let since = *memory.since.entry(waits.clone()).or_insert(now);
                waiting.insert(waits);
                let first = is_first_choice(&inner, &known.key, &self.mover.state.id);
                let patience = if first { STRANGE } else { STRANGE + SLOW };
                if now.saturating_duration_since(since) >= patience {
                    tasks.push((known.key.clone(), Task::Adopt(known)));
                }
            }
            memory
                .since
                .retain(|waits, _| !waits.1.starts_with("known ") || waiting.contains(waits));
        }
        for (key, task) in tasks {
            self.begin(key, task);
        }
        // One that is about to begin is entered by its mover.
        let begun = splits.iter().filter(|(_, _, phase)| *phase != Phase::Freezing);
        let begun = begun.filter(|(_, layout, _)| !listed.contains(&layout.id));
        lost.extend(begun.map(|(key, layout, _)| (key.clone(), layout.clone())));
        for (key, layout) in lost {
            // Others may have let it go: `heatsink drain`, or who found it in the index.
            if !self.mover.steps.is_kept(&layout).await? {
                self.mover.state.lock().splits.left.remove(&layout.id);
                continue;
            }
            let manifest = Manifest::new(&key, &layout, unix_ms());
            self.mover.steps.enter(&layout.id, &manifest).await?;
        }
        Ok(())
    }

    /// Looks into the shards of all splits, or of those only that nobody has looked into.
    async fn measure(
        &self,
        splits: &[(Vec<u8>, Layout, Phase)],
        all: bool,
    ) -> Result<(), super::data::DataError> {
        let mut contents = HashMap::new();
        for (key, layout, _) in splits.iter().filter(|(_, _, phase)| *phase == Phase::Split) {
            let known = (!all).then(|| {
                let inner = self.mover.state.lock();
                inner.splits.contents.get(key).filter(|(id, _)| *id == layout.id).cloned()
            });
            let content = match known.flatten() {
                Some(known) => known,
                None => (layout.id.clone(), self.mover.steps.contents(layout).await?),
            };
            contents.insert(key.clone(), content);
        }
        self.mover.state.lock().splits.contents = contents;
        Ok(())
    }
}

/// A key is free again, however its move ended.
struct Free<'a> {
    reconciler: &'a Reconciler,
    key: Vec<u8>,
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.reconciler.memory().busy.remove(&self.key);
    }
}

/// What is to be done about a split.
fn unfinished(
    inner: &Inner,
    me: &str,
    split: &SplitRecord,
    waited: Duration,
    is_mine: bool,
    needed: Option<&String>,
    outgrown: bool,
) -> Option<Task> {
    let layout = lifecycle::layout(split)?;
    // A mover that is not there has left it; nor is it this process, which would be busy.
    let is_live = inner.members.iter().any(|present| present.id == split.mover);
    let left = split.mover == me || waited >= SLOW || !split.mover.is_empty() && !is_live;
    match split.phase {
        Phase::Freezing => (left && is_mine).then_some(Task::Thaw(layout)),
        Phase::Draining => {
            let begins = left || split.mover.is_empty();
            (begins && is_mine).then(|| Task::Unsplit(split.id.clone(), None))
        }
        Phase::Split => {
            let begins = needed.is_some() || outgrown && is_mine;
            begins.then(|| {
                Task::Unsplit(split.id.clone(), needed.map(|command| needs_whole(command)))
            })
        }
    }
}

/// What is to be done about a split while the copy of the registry may be old, because it is being
/// read or because the store is away: several processes may do it at once.
fn without_registry(
    split: &SplitRecord,
    waited: Duration,
    is_away: bool,
    is_left: bool,
    needed: Option<&String>,
) -> Option<Task> {
    let layout = lifecycle::layout(split)?;
    let is_left = is_left || waited >= if is_away { UNTOLD } else { SLOW };
    let unsplit = Task::Unsplit(split.id.clone(), needed.map(|command| needs_whole(command)));
    match split.phase {
        Phase::Freezing => (is_away && is_left).then_some(Task::Thaw(layout)),
        Phase::Draining => (is_left || is_away && needed.is_some()).then_some(unsplit),
        Phase::Split => needed.is_some().then_some(unsplit),
    }
}

fn needs_whole(command: &str) -> String {
    format!("not split: {} needs the key whole", shown(command))
}

/// What wants a key whole: a command, or something else in words.
pub(super) fn shown(command: &str) -> String {
    if command.contains(' ') {
        command.to_owned()
    } else {
        command.to_uppercase().replace('|', " ")
    }
}

/// Whether this process is the one that is to begin with a key.
pub(super) fn is_first_choice(inner: &Inner, key: &[u8], me: &str) -> bool {
    let weight = |id: &str| {
        let mut hasher = std::hash::DefaultHasher::new();
        (key, id).hash(&mut hasher);
        (hasher.finish(), id.to_owned())
    };
    let proxies = inner.members.iter().filter(|present| present.member().proxy);
    let first = proxies.map(|present| weight(&present.id)).max();
    first.is_none_or(|first| first.1 == me)
}
