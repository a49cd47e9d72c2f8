//! Makes every split key whole: for the end of a fleet, or of splitting.
//!
//! Called by: `heatsink drain`, with a proxy of its own and no other part in the fleet.
//! Bound: [`MAX_ROUNDS`] rounds over what is left, [`AT_ONCE`] values in memory.
//! Invariant: may be begun again at any time, and beside a running fleet. Needs only the upstream: moved
//! values are in its index, and those that are not are found by a scan of all keys. Every key that was
//! split, or had copies, when it began is named once. These keys are looked up before any proxy is told
//! to make them whole:
//!
//! ```text
//! drain                              a proxy
//! index: k; marker at k: it is split
//! registry: k drains                 hears it, makes k whole, drops it from the index
//! index: nothing of k                so k was made whole, and not by us
//! ```
//!
//! If the proxy has committed and not yet changed the index, there is no marker, and the remains are
//! dropped here; the key is named nevertheless, because it was looked up. A marker that clients have
//! changed past all proxies counts as a marker. One that they have renamed is searched for, and its value
//! is made whole under the new name.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use heatsink_control::entry::{Entry, Phase};
use heatsink_coordination::{Store, StoreError};
use heatsink_proxy::Handle as ProxyHandle;
use heatsink_split::Layout;
use tokio::task::JoinSet;

use super::change::{self, Next, NotChanged};
use super::data::DataError;
use super::lifecycle::{self, Mover};
use super::marker::Search;
use super::names::{self, Known};
use super::steps::{Fate, Steps};
use super::whole::Whole;
use crate::members::{Card, Present};
use crate::state::State;
use crate::{Live, Role, figures, records};

/// Rounds over what is left.
const MAX_ROUNDS: usize = 10;
/// Time between two of them.
const PAUSE: Duration = Duration::from_millis(500);
/// Splits that are made whole at the same time.
const AT_ONCE: usize = 4;
/// How long this process counts as a member after its last heartbeat.
const MEMBER_LIFE: Duration = Duration::from_secs(10);

/// What is said of an entry of the index that another release has made.
const NOT_UNDERSTOOD: &str = "its manifest is not understood; drain with the release that wrote it";

/// What is said of shards that belong to no marker.
const ORPHANED: &str =
    "neither the index nor a marker knows of it. If nothing of it is needed, remove";

/// What happens while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The store cannot be reached, and why; the upstream's index is all there is.
    WithoutStore(String),
    /// A key that was split, or had copies, is so no more.
    Done {
        /// The key.
        key: Vec<u8>,
        /// What happened to it.
        how: How,
        /// How many are done, with this one.
        done: usize,
        /// How many there are.
        of: usize,
    },
    /// What an ended or given up split of a key had left was dropped.
    Dropped(Vec<u8>),
    /// An entry that would have been split, or have had copies, was removed.
    Removed(Vec<u8>),
    /// It did not work yet.
    Failed(Vec<u8>, String),
    /// The upstream did not answer.
    Trouble(String),
}

/// How a key came to be plain again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// It was made whole here.
    Whole,
    /// It was made whole here, under the names that others had given it past all proxies.
    WholeAs(Vec<Vec<u8>>),
    /// A proxy has made it whole meanwhile.
    WholeByProxy,
    /// Nothing is left of it: the server has evicted its marker, or a part of its value.
    Evicted,
    /// Its copies are read no more, and expire.
    CopiesRemoved,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Keys that were made whole.
    pub whole: usize,
    /// Keys that proxies have made whole meanwhile.
    pub by_proxies: usize,
    /// Keys of which the server has evicted a part, so that nothing is left.
    pub evicted: usize,
    /// Keys whose copies were removed.
    pub copies: usize,
    /// Splits whose remains were dropped.
    pub dropped: usize,
    /// Splits, and keys with copies, that are left.
    pub left: usize,
    /// The keys of splits that are left, and why.
    pub failed: Vec<(Vec<u8>, String)>,
    /// Nobody knows whether anything is left.
    pub unknown: bool,
}

/// Where the value of a split is.
enum Outcome {
    /// At its key: made whole here.
    Here,
    /// At the names that its marker was given, made whole here; with none, it was made whole by
    /// others, or overwritten.
    Elsewhere(Vec<Vec<u8>>),
    /// A part of it was evicted, and nothing is left.
    Evicted,
}

/// What there was when it began and is still there, by the ids of splits.
struct Ledger<'a, F> {
    splits: BTreeMap<String, (Vec<u8>, Layout)>,
    copies: BTreeMap<String, Vec<u8>>,
    done: usize,
    drained: Drained,
    told: &'a mut F,
}

impl<F: FnMut(Progress)> Ledger<'_, F> {
    /// A key is plain again.
    fn done(&mut self, key: Vec<u8>, how: How) {
        self.done += 1;
        match how {
            How::Whole | How::WholeAs(_) => self.drained.whole += 1,
            How::WholeByProxy => self.drained.by_proxies += 1,
            How::Evicted => self.drained.evicted += 1,
            How::CopiesRemoved => self.drained.copies += 1,
        }
        let of = self.done + self.splits.len() + self.copies.len();
        (self.told)(Progress::Done { key, how, done: self.done, of });
    }

    /// What was tried at a split of the index.
    fn tried(&mut self, known: Known, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome::Here) => {
                self.splits.remove(&known.layout.id);
                self.done(known.key, How::Whole);
            }
            Ok(Outcome::Elsewhere(at)) if !at.is_empty() => {
                self.splits.remove(&known.layout.id);
                self.done(known.key, How::WholeAs(at));
            }
            Ok(Outcome::Evicted) if self.splits.remove(&known.layout.id).is_some() => {
                self.done(known.key, How::Evicted);
            }
            Ok(Outcome::Elsewhere(_) | Outcome::Evicted) => {
                if let Some((key, _)) = self.splits.remove(&known.layout.id) {
                    self.done(key, How::WholeByProxy);
                } else {
                    self.drained.dropped += 1;
                    (self.told)(Progress::Dropped(known.key));
                }
            }
            Err(why) => {
                self.drained.failed.push((known.key.clone(), why.clone()));
                return (self.told)(Progress::Failed(known.key, why));
            }
        }
        self.drained.left -= 1;
    }

    /// Those that the index knows no more were made whole by others, or found evicted.
    async fn compare(&mut self, steps: &Steps, known: &[Known]) -> Result<(), DataError> {
        let gone = |id: &String| known.iter().all(|known| known.layout.id != *id);
        let gone: Vec<_> = self.splits.keys().filter(|id| gone(id)).cloned().collect();
        for id in gone {
            let Some((key, layout)) = self.splits.get(&id).cloned() else { continue };
            let is_evicted = steps.was_evicted(&key, &layout).await?;
            self.splits.remove(&id);
            self.done(key, if is_evicted { How::Evicted } else { How::WholeByProxy });
        }
        Ok(())
    }
}

/// Makes every split key whole, and has all copies end. Blocks until it is done or given up.
pub fn drain(
    proxy: ProxyHandle,
    store: Store,
    live: Live,
    mut told: impl FnMut(Progress),
) -> std::io::Result<Drained> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let drained = runtime.block_on(run(proxy, store, live, &mut told));
    runtime.shutdown_background();
    Ok(drained)
}

async fn run(
    proxy: ProxyHandle,
    store: Store,
    live: Live,
    told: &mut impl FnMut(Progress),
) -> Drained {
    let id = format!("{:016x}", fastrand::u64(..));
    let block = live.block;
    let steps = Steps::new(proxy.clone(), store.settings().namespace());
    let state = Arc::new(State::new(&id, Role::Aggregator, None, live, Some(proxy), None));
    let mover = Mover { state, store, steps };
    let (splits, copies) = (BTreeMap::new(), BTreeMap::new());
    let mut ledger = Ledger { splits, copies, done: 0, drained: Drained::default(), told };
    let mut looked = false;
    for round in 0..MAX_ROUNDS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        if !looked {
            match marked(&mover).await {
                Ok(splits) => (ledger.splits, looked) = (splits, true),
                Err(error) => {
                    ledger.drained.unknown = true;
                    (ledger.told)(Progress::Trouble(error.to_string()));
                    continue;
                }
            }
        }
        if let Err(why) = forget_wishes(&mover, block, &mut ledger).await
            && round == 0
        {
            (ledger.told)(Progress::WithoutStore(why));
        }
        let (known, strange) = match mover.steps.entered().await {
            Ok(entered) => entered,
            Err(error) => {
                ledger.drained.unknown = true;
                (ledger.told)(Progress::Trouble(error.to_string()));
                continue;
            }
        };
        ledger.drained.unknown = false;
        if let Err(error) = ledger.compare(&mover.steps, &known).await {
            ledger.drained.unknown = true;
            (ledger.told)(Progress::Trouble(error.to_string()));
            continue;
        }
        // The index may have been lost, or be that of another moment than the keys.
        let unlisted = match unlisted(&mover, &known, &strange).await {
            Ok(unlisted) => unlisted,
            Err(error) => {
                ledger.drained.unknown = true;
                (ledger.told)(Progress::Trouble(error.to_string()));
                continue;
            }
        };
        if unlisted.is_partial {
            ledger.drained.unknown = true;
        }
        let known = [known, unlisted.known].concat();
        ledger.drained.left = known.len() + strange.len() + unlisted.orphans.len();
        let not_understood = |id| (format!("split {id}").into_bytes(), NOT_UNDERSTOOD.to_owned());
        let orphan = |(id, names)| {
            let why = format!("{ORPHANED}: {names}");
            (format!("split {id}").into_bytes(), why)
        };
        let orphans = unlisted.orphans.into_iter().map(orphan);
        ledger.drained.failed = strange.into_iter().map(not_understood).chain(orphans).collect();
        make_all_whole(&mover, known, &mut ledger).await;
        end_copies(&mover, &mut ledger).await;
        if ledger.drained.left == 0 && ledger.copies.is_empty() && round > 0 {
            break;
        }
    }
    let _ = mover.store.leave(&id).await;
    Drained { left: ledger.drained.left + ledger.copies.len(), ..ledger.drained }
}

/// What the index does not list.
struct Unlisted {
    known: Vec<Known>,
    /// Ids of splits of which there are names, but no manifest; and the names.
    orphans: Vec<(String, String)>,
    is_partial: bool,
}

/// Looks through all keys for splits that are not in the index, as it was read before or is now: one
/// that a running fleet has begun meanwhile is there before its first shard.
async fn unlisted(
    mover: &Mover,
    listed: &[Known],
    strange: &[String],
) -> Result<Unlisted, DataError> {
    let mut found = mover.steps.look_everywhere().await?;
    let (now, strange_now) = mover.steps.entered().await?;
    let mut ids: HashSet<&str> =
        listed.iter().chain(&now).map(|it| it.layout.id.as_str()).collect();
    let mut known = std::mem::take(&mut found.known);
    // One whose field in the index is damaged has another manifest beside its marker.
    known.retain(|known| !ids.contains(known.layout.id.as_str()));
    ids.extend(strange.iter().chain(&strange_now).map(String::as_str));
    ids.extend(known.iter().map(|known| known.layout.id.as_str()));
    let (orphans, is_partial) = (found.orphans(&ids), found.is_partial);
    Ok(Unlisted { known: known.clone(), orphans, is_partial })
}

/// The splits whose value is in shards, before anything is done about them.
async fn marked(mover: &Mover) -> Result<BTreeMap<String, (Vec<u8>, Layout)>, DataError> {
    let mut marked = BTreeMap::new();
    for Known { key, layout, .. } in mover.steps.known().await? {
        if mover.steps.is_marked(&key, &layout).await? {
            marked.insert(layout.id.clone(), (key, layout));
        }
    }
    Ok(marked)
}

/// Ends copies that nobody reads any more, unless a proxy has.
async fn end_copies(mover: &Mover, ledger: &mut Ledger<'_, impl FnMut(Progress)>) {
    for (id, key) in ledger.copies.clone() {
        let phase = async || {
            let seen = change::asked(&mover.state, &mover.store, &key).await?;
            let split = seen.and_then(|seen| seen.entry.split).filter(|split| split.id == id);
            Ok::<_, StoreError>(split.map(|split| split.phase))
        };
        // The store is away: the next round asks again.
        let Ok(found) = phase().await else { return };
        if let Some(found) = found {
            let topic = lifecycle::topic(&id, Phase::Draining);
            // As long as there are proxies, they begin copies and end them.
            let drains = found == Phase::Draining || !has_proxies(mover);
            if !drains || mover.missing(&topic, Duration::ZERO).await > 0 {
                continue;
            }
            mover.end_copies(&key, &id).await;
            if !matches!(phase().await, Ok(None)) {
                continue;
            }
        }
        ledger.copies.remove(&id);
        ledger.done(key, How::CopiesRemoved);
    }
}

fn has_proxies(mover: &Mover) -> bool {
    mover.state.lock().members.iter().any(|present| present.member().proxy)
}

/// The registry wants nothing split or copied any more: entries whose value was moved begin to
/// drain, so that live proxies hold writes; others are removed.
async fn forget_wishes(
    mover: &Mover,
    block: Duration,
    ledger: &mut Ledger<'_, impl FnMut(Progress)>,
) -> Result<(), String> {
    let Mover { state, store, .. } = mover;
    let card =
        Card { role: "drain".to_owned(), version: figures::VERSION.to_owned(), ..Card::default() };
    let card = serde_json::to_vec(&card).unwrap_or_default();
    let members = store.heartbeat(&state.id, &card, MEMBER_LIFE).await;
    let members = members.map_err(|error| error.to_string())?;
    {
        let mut inner = state.lock();
        inner.members = members.into_iter().map(Present::of).collect();
        inner.hearing.on_answer(state.now(), None);
    }
    let snapshot = store.snapshot().await.map_err(|error| error.to_string())?;
    let block_ms = block.as_millis() as u64;
    let records = records::snapshot(snapshot).records;
    let copies = records.iter().filter_map(|(key, stored)| {
        let split = stored.entry.split.as_ref().filter(|split| split.is_copies())?;
        Some((split.id.clone(), key.clone()))
    });
    ledger.copies.extend(copies);
    for (key, stored) in records {
        if !wants_any(&stored.entry) && stored.entry.split.is_none() {
            continue;
        }
        let decide = |seen: Option<&change::Seen>| match seen.map(|seen| &seen.entry) {
            Some(entry) if entry.split.as_ref().is_some_and(|split| split.removal.is_some()) => {
                Next::Leave
            }
            Some(entry) => match entry.leaving(block_ms) {
                Some(leaving) => Next::put(leaving, None),
                None if wants_any(entry) => Next::Remove { block: Some(block) },
                None => Next::Leave,
            },
            None => Next::Leave,
        };
        match change::change(state, store, &key, decide).await {
            Ok(change::Changed::Removed) => (ledger.told)(Progress::Removed(key)),
            Ok(_) | Err(NotChanged::Contended) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Whether its value would be moved, or copied.
fn wants_any(entry: &Entry) -> bool {
    entry.wants_split() || entry.wants_copies()
}

/// Makes the values of these splits whole, a few at a time.
async fn make_all_whole(
    mover: &Mover,
    known: Vec<Known>,
    ledger: &mut Ledger<'_, impl FnMut(Progress)>,
) {
    let mut waiting = known.into_iter();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(known) = waiting.next()
        {
            let mover = mover.clone();
            under_way.spawn(async move {
                let outcome = make_whole(&mover, &known).await;
                (known, outcome)
            });
        }
        match under_way.join_next().await {
            None => return,
            Some(Ok((known, outcome))) => ledger.tried(known, outcome),
            // It is counted as left.
            Some(Err(error)) => (ledger.told)(Progress::Trouble(error.to_string())),
        }
    }
}

/// Makes the value of one split whole, or finds that it is.
async fn make_whole(mover: &Mover, known: &Known) -> Result<Outcome, String> {
    let Known { key, layout, .. } = known;
    let id = &layout.id;
    let registered = match change::asked(&mover.state, &mover.store, key).await {
        Ok(seen) => seen.and_then(|seen| seen.entry.split).filter(|split| split.id == *id),
        Err(_) => None,
    };
    let said = |error: DataError| error.to_string();
    // A split that is not committed yet never will be.
    let fate = mover.steps.forbid(key, layout).await.map_err(said)?;
    let is_marked = fate == Fate::Committed;
    if let Some(split) = registered.filter(|_| is_marked) {
        if split.phase == Phase::Freezing {
            mover.tell_split(key, id).await;
        }
        mover.hold(id).await;
    }
    let made = if is_marked {
        mover.steps.unsplit(key, layout).await.map_err(said)?
    } else {
        Whole::NotOurs
    };
    let outcome = if made == Whole::Committed {
        Outcome::Here
    } else if fate == Fate::Never {
        Outcome::Elsewhere(Vec::new())
    } else if made == Whole::Evicted {
        Outcome::Evicted
    } else {
        let Search { at, gap } = mover.follow(key, layout).await.map_err(said)?;
        if let Some(gap) = gap {
            let proof = names::proof(key, id);
            let proof = proof.escape_ascii();
            return Err(format!(
                "its marker is gone, and nobody knows whether it was renamed: {gap}. If the key was \
                 removed or overwritten, say so by SET {proof} 1, and the shards are let go"
            ));
        }
        if at.is_empty() && mover.steps.was_evicted(key, layout).await.map_err(said)? {
            Outcome::Evicted
        } else {
            Outcome::Elsewhere(at)
        }
    };
    mover.tell_whole_once(key, layout).await;
    mover.steps.retire_late(key, layout).await.map_err(said)?;
    Ok(outcome)
}
