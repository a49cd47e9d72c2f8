//! From a plain key to a split one and back ([decision 15](../../../../../docs/adr/0015-splitting.md)):
//! the registry, the fleet's acknowledgements, and the data steps, in their order.
//!
//! Called by: the reconciler, in a task a move; `heatsink drain`.
//! Bound: a few attempts; a later reconciler goes on with what is left. When a client waits for a value to
//! be made whole, it waits for at most one call to the store that gets no answer, and for none once the
//! store is known to be away ([`crate::hearing`]).
//! Invariant: a record says `split` only after the commit of the split, and loses the split only after the
//! commit of its end. A mover changes a record only while it names the mover's split, so a mover that
//! comes too late changes nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_control::entry::{Entry, Mitigation, Origin, Pause, Phase, SplitRecord, Status};
use heatsink_control::words;
use heatsink_coordination::Store;
use heatsink_split::{Kind, Layout};

use super::Left;
use super::change::{self, Changed, Next, NotChanged, Seen};
use super::data::DataError;
use super::fault;
use super::fit::{Bounds, Fit};
use super::names::{self, Known, Manifest};
use super::servers::live_names;
use super::steps::{Fate, NotSplit, Steps};
use super::whole::Whole;
use crate::state::{State, unix_ms};

/// Attempts to split a key that is written to by others.
const MAX_TRIES: usize = 5;
/// Attempts to make a value whole, before it is left to the reconciler.
const MAX_WHOLE_TRIES: usize = 5;
/// Attempts at a change of the registry that says what was done to the data, beside others who change
/// the same record.
const MAX_TELLS: usize = 20;
/// Time between two of them.
const RETRY: Duration = Duration::from_millis(100);
/// Time between two looks for acknowledgements.
const POLL: Duration = Duration::from_millis(1);
/// Freeze times for which the acknowledgements of an un-split are waited for at most.
const PATIENCE: u32 = 3;
/// A look at the markers, and what it may take: whoever was not told of the end of a split knows of it
/// then, unless it does not move on.
const TOMBSTONES: Duration = Duration::from_millis(1500);
/// A pause after a command that needed the key whole, and after a value that cannot be split.
pub(crate) const PAUSE_MS: (u64, u64) = (60_000, 600_000);
/// A pause after something went wrong.
pub(super) const TROUBLE_MS: (u64, u64) = (1_000, 60_000);
/// How long it is told that there is no room for a whole value: until it is tried again.
const ROOM_MS: (u64, u64) = (12_000, 12_000);

/// Of a list's elements that were there before: below whatever proxies give to new ones, whatever
/// their clocks say.
const FIRST_STAMP: u64 = 1;

/// Who moves values in this process.
#[derive(Clone)]
pub(crate) struct Mover {
    pub(crate) state: Arc<State>,
    pub(crate) store: Store,
    pub(crate) steps: Steps,
}

/// The topic by which proxies acknowledge that they hold writes.
pub(crate) fn topic(id: &str, phase: Phase) -> String {
    format!("{id}:{}", phase.name())
}

/// Where the parts of a split are; none if it is of a kind that this release does not know.
pub(crate) fn layout(split: &SplitRecord) -> Option<Layout> {
    let kind = Kind::from_name(&split.kind)?;
    (!split.tags.is_empty()).then(|| Layout::new(&split.id, kind, split.expires, &split.tags))
}

pub(super) fn is_of(seen: Option<&Seen>, id: &str) -> bool {
    let split = seen.and_then(|seen| seen.entry.split.as_ref());
    split.is_some_and(|split| split.id == id)
}

impl Mover {
    /// Splits a key, if its record still wants that.
    pub(crate) async fn split(&self, key: &[u8]) {
        for _ in 0..MAX_TRIES {
            match self.try_split(key).await {
                Ok(()) => return,
                Err(NotSplit::Disturbed) => self.count("split", "begun_again"),
                Err(NotSplit::Unfit(why)) => {
                    self.count("split", "refused");
                    return self.pause(key, PAUSE_MS, format!("not split: {why}")).await;
                }
                Err(NotSplit::PutOff(why)) => {
                    self.count("split", "put_off");
                    return self.pause(key, TROUBLE_MS, format!("not split yet: {why}")).await;
                }
                Err(NotSplit::Failed(error)) => {
                    self.count("split", "failed");
                    let named = self.state.named(key);
                    tracing::warn!(key = named, "a key could not be split: {error}");
                    return self.pause(key, TROUBLE_MS, format!("not split yet: {error}")).await;
                }
            }
        }
        let why = "not split yet: it is written to by clients that do not wait".to_owned();
        self.pause(key, TROUBLE_MS, why).await;
    }

    async fn try_split(&self, key: &[u8]) -> Result<(), NotSplit> {
        let (bounds, most, freeze) = {
            let inner = self.state.lock();
            let split = &inner.live.split;
            (split.bounds(), split.max_factor, split.freeze)
        };
        let Some(seen) = change::seen(&self.state, key) else { return Ok(()) };
        let factor = seen.entry.split_factor;
        if factor > most {
            return Err(NotSplit::Unfit(format!("{factor} shards, split.max_factor is {most}")));
        }
        let fit = self.steps.examine(key, &bounds).await?;
        let id = names::new_split_id(unix_ms());
        let tags = self.steps.new_tags(key, factor);
        let layout = Layout::new(&id, fit.kind, fit.expires, &tags);
        if let Some(why) = self.steps.evicts_parts(key, &layout).await? {
            return Err(NotSplit::Unfit(why));
        }
        self.steps.has_room_for_shards(key, &layout).await?;
        let mut parts = live_names(&layout);
        parts.push(key);
        if let Some(why) = self.steps.deserted(&parts).await? {
            return Err(NotSplit::PutOff(why));
        }
        self.steps.permit(key, &id).await?;
        let begun = Instant::now();
        if !self.freeze(key, &id, fit, &tags).await? {
            self.steps.withdraw(key, &id).await;
            return Ok(());
        }
        fault::point("split:frozen");
        let missing = self.missing(&topic(&id, Phase::Freezing), freeze).await;
        if missing > 0 {
            self.count("split", "put_off");
            let missing = words::count(missing, "proxy", "proxies");
            let why = format!("not split yet: {missing} did not hold writes in time");
            self.give_up(key, &id, Some((TROUBLE_MS, why))).await;
            self.steps.withdraw(key, &id).await;
            return Ok(());
        }
        let manifest = Manifest::new(key, &layout, unix_ms());
        let moved = match self.steps.enter(&id, &manifest).await {
            Ok(()) => {
                fault::point("split:entered");
                self.steps.split(key, &layout, &bounds, FIRST_STAMP).await
            }
            Err(error) => Err(error.into()),
        };
        let fate = match &moved {
            Ok(()) => Fate::Committed,
            // If this is not answered either, the reconciler asks again.
            Err(_) => self.steps.forbid(key, &layout).await?,
        };
        if fate == Fate::Committed {
            if let Some(why) = self.unconfirmed(key, &layout).await {
                self.count("split", "put_off");
                self.go_back(key, &layout, &why).await;
                return Ok(());
            }
            if !self.tell_split(key, &id).await {
                // Nobody will hear of it until the store is back: the key serves better whole.
                self.make_whole(key, &layout, begun).await;
                return Ok(());
            }
            self.observe_freeze(begun);
            self.count("split", "done");
            return Ok(());
        }
        // Writes go on at the key. What is left the index knows of.
        self.give_up(key, &id, None).await;
        self.observe_freeze(begun);
        if fate == Fate::Unmarked && matches!(moved, Err(NotSplit::Failed(_))) {
            self.let_go(key, &layout).await;
        } else {
            self.drop_shards(key, &layout).await;
        }
        moved
    }

    /// Drops the shards of a split that was never committed, now or later.
    async fn drop_shards(&self, key: &[u8], layout: &Layout) {
        if let Err(error) = self.steps.drop_shards(layout).await {
            self.leave(key, layout, &error);
        }
    }

    /// What is left of a split is dropped later, by whoever finds it in the index.
    pub(super) fn leave(&self, key: &[u8], layout: &Layout, why: &DataError) {
        self.note_left(key, layout, false);
        let key = self.state.named(key);
        tracing::debug!(key, "what is left of a split is dropped later: {why}");
    }

    /// The registry does not know of a split any more: the reconciler sees to it that the index does.
    fn note_left(&self, key: &[u8], layout: &Layout, is_under_way: bool) {
        let left = Left { key: key.to_vec(), layout: layout.clone(), is_under_way };
        self.state.lock().splits.left.insert(layout.id.clone(), left);
    }

    /// Why nobody may rely on the commit of a split yet: a failover could take it back.
    async fn unconfirmed(&self, key: &[u8], layout: &Layout) -> Option<String> {
        match self.steps.unreplicated(&[key]).await {
            Ok(None) => {}
            Ok(why) => return why,
            Err(error) => return Some(error.to_string()),
        }
        // If there was a failover before that, it was another server that was asked.
        match self.steps.is_marked(key, layout).await {
            Ok(true) => None,
            Ok(false) => Some("its marker is gone".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// A split that was committed is undone. Nobody was told of it, and writes are held.
    async fn go_back(&self, key: &[u8], layout: &Layout, why: &str) {
        let begun = Instant::now();
        self.tell(key, |seen| {
            let Some(seen) = seen.filter(|seen| is_of(Some(seen), &layout.id)) else {
                return Next::Leave;
            };
            let mut entry = seen.entry.clone();
            match &mut entry.split {
                Some(split) if split.phase == Phase::Freezing => split.phase = Phase::Draining,
                _ => return Next::Leave,
            }
            entry.status = Status::Draining;
            entry.pause = Some(pause_of(&entry, TROUBLE_MS, format!("not split yet: {why}")));
            Next::put(entry, None)
        })
        .await;
        self.make_whole(key, layout, begun).await;
    }

    /// Has writes of a key held, for a split with this id; false if nobody wants it any more.
    async fn freeze(
        &self,
        key: &[u8],
        id: &str,
        fit: Fit,
        tags: &[String],
    ) -> Result<bool, NotSplit> {
        let now_ms = unix_ms();
        let decide = |seen: Option<&Seen>| {
            let Some(seen) = seen else { return Next::Leave };
            let entry = &seen.entry;
            let fits = tags.len() == entry.split_factor as usize;
            if is_of(Some(seen), id) || !entry.wants_split() || entry.split.is_some() || !fits {
                return Next::Leave;
            }
            let remaining = seen.remaining.filter(|_| entry.origin == Origin::Manual);
            let split = SplitRecord {
                id: id.to_owned(),
                kind: fit.kind.name().to_owned(),
                tags: tags.to_vec(),
                expires: fit.expires,
                phase: Phase::Freezing,
                mover: self.state.id.clone(),
                ends_at_ms: remaining.map(|left| now_ms + left.as_millis() as u64),
                removal: None,
            };
            let split = Some(split);
            Next::put(Entry { status: Status::Freezing, split, ..entry.clone() }, None)
        };
        match change::change(&self.state, &self.store, key, decide).await {
            Ok(Changed::Put(_)) => Ok(true),
            Ok(_) => Ok(false),
            // It may have been put nevertheless; the reconciler sees to that.
            Err(error) => Err(NotSplit::Failed(DataError::Lost(error.to_string()))),
        }
    }

    /// How many live proxies have not acknowledged a topic in time.
    pub(super) async fn missing(&self, topic: &str, time: Duration) -> usize {
        let end = Instant::now() + time;
        loop {
            let is_away = self.state.is_store_away();
            let mut acknowledged = HashSet::new();
            if !is_away {
                match self.store.acknowledged(topic).await {
                    Ok(members) => acknowledged.extend(members),
                    Err(error) => self.state.lock().hearing.on_failure(&error),
                }
            }
            let missing = {
                let inner = self.state.lock();
                let proxies = inner.members.iter().filter(|present| present.member().proxy);
                proxies.filter(|present| !acknowledged.contains(&present.id)).count()
            };
            if missing == 0 || is_away || Instant::now() >= end {
                return missing;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The split is committed; false if the registry could not be told.
    pub(crate) async fn tell_split(&self, key: &[u8], id: &str) -> bool {
        let told = self.tell(key, |seen| {
            let Some(seen) = seen.filter(|seen| is_of(Some(seen), id)) else { return Next::Leave };
            let mut entry = seen.entry.clone();
            match &mut entry.split {
                Some(split) if split.phase == Phase::Freezing => split.phase = Phase::Split,
                _ => return Next::Leave,
            }
            entry.status = Status::Active;
            // What is wanted may have changed meanwhile.
            let entry = match entry.draining() {
                Some(draining) if entry.outgrew_split(unix_ms()) => draining,
                _ => entry,
            };
            Next::put(entry, None)
        });
        let told = told.await;
        fault::point("split:told");
        told.is_some()
    }

    /// The value is at the key, and stays there for now.
    async fn give_up(&self, key: &[u8], id: &str, why: Option<((u64, u64), String)>) {
        self.tell(key, |seen| match seen.filter(|seen| is_of(Some(seen), id)) {
            Some(seen) => {
                let pause = why.clone().map(|(length, why)| pause_of(&seen.entry, length, why));
                self.whole_again(&seen.entry, pause)
            }
            None => Next::Leave,
        })
        .await;
    }

    /// What becomes of an entry whose value is whole again.
    pub(super) fn whole_again(&self, entry: &Entry, pause: Option<Pause>) -> Next {
        let now_ms = unix_ms();
        let split = entry.split.as_ref();
        if let Some(removal) = split.and_then(|split| split.removal) {
            let block = (removal.block_ms > 0).then(|| Duration::from_millis(removal.block_ms));
            return Next::Remove { block };
        }
        let ends_at_ms = split.and_then(|split| split.ends_at_ms);
        if ends_at_ms.is_some_and(|end| end <= now_ms) {
            return Next::Remove { block: None };
        }
        let ttl = match ends_at_ms {
            Some(end) => Some(Duration::from_millis(end - now_ms)),
            None if entry.origin == Origin::Manual => None,
            None => Some(self.state.lock().live.control.registry_ttl),
        };
        let pause = pause.or_else(|| entry.pause.clone());
        Next::put(Entry { split: None, status: Status::Active, pause, ..entry.clone() }, ttl)
    }

    /// Makes a key whole. With a reason, it is not split again for a while. False if it is to be tried
    /// again after a pause.
    pub(crate) async fn unsplit(&self, key: &[u8], id: &str, why: Option<String>) -> bool {
        let begun = Instant::now();
        let record = change::seen(&self.state, key).and_then(|seen| seen.entry.split);
        let record = record.filter(|split| split.id == id);
        if let Some(layout) = record.as_ref().and_then(layout)
            && let Some(why) = self.lacks_room(key, &layout).await
        {
            self.count("unsplit", "no_room");
            self.stay_split(key, id, &why).await;
            return false;
        }
        let is_needed = why.is_some() || record.as_ref().is_some_and(is_draining);
        let taken = self
            .tell(key, |seen| {
                let Some(seen) = seen.filter(|seen| is_of(Some(seen), id)) else {
                    return Next::Leave;
                };
                let begins = seen.entry.draining();
                let mut entry = begins.clone().unwrap_or_else(|| seen.entry.clone());
                let Some(split) = &mut entry.split else { return Next::Leave };
                if split.phase != Phase::Draining || split.mover == self.state.id {
                    return Next::Leave;
                }
                split.mover.clone_from(&self.state.id);
                if let Some(why) = why.clone().filter(|_| begins.is_some()) {
                    entry.pause = Some(pause_of(&entry, PAUSE_MS, why));
                }
                Next::put(entry, None)
            })
            .await;
        let split = match taken {
            Some(Changed::Put(entry)) => entry.split,
            // Nobody hears of it now, but somebody waits for it.
            None if is_needed => {
                let Some(layout) = record.as_ref().and_then(layout) else { return true };
                return self.make_whole(key, &layout, begun).await;
            }
            None => return false,
            // It is this process's already, or nobody's.
            Some(_) => change::seen(&self.state, key).and_then(|seen| seen.entry.split),
        };
        let split = split.filter(|split| split.id == id && split.phase == Phase::Draining);
        let Some(layout) = split.as_ref().and_then(layout) else { return true };
        fault::point("unsplit:draining");
        let missing = self.hold(id).await;
        if missing > 0 {
            // Nothing depends on it: the server refuses what they write.
            let key = self.state.named(key);
            tracing::info!(
                key,
                missing,
                "a key is made whole although some proxies have not acknowledged it"
            );
        }
        self.make_whole(key, &layout, begun).await
    }

    /// A marker was looked for: what the data plane believes follows.
    pub(super) fn note_marker(&self, id: &str, is_there: bool) {
        let mut inner = self.state.lock();
        let has_ended = inner.splits.note_marker(id, is_there) && !is_there;
        if let Some(proxy) = &self.state.proxy
            && has_ended
        {
            // A proxy that cannot be told, because it or the store is cut off, finds out by itself. Until
            // then nothing but tombstones stops it, and whether there is one nobody knows for certain.
            proxy.keep_tombstones(TOMBSTONES);
        }
        drop(inner);
        self.state.changed.notify_one();
    }

    /// Makes a value whole, and tells of it; false if it could not be done.
    ///
    /// Nobody who waits for the value waits for more than one call to the registry that gets no answer:
    /// then this process's clients go on. If the registry cannot be told, other proxies are refused by
    /// tombstones until they look at the marker, within a second; whoever reaches the registry next
    /// finds that the marker is gone, and tells it.
    ///
    /// ```text
    /// this process                       another proxy                the store
    /// DEL key: waits                                                  is away
    /// seals the shards, EXEC             SADD shard  WRONGTYPE: waits
    /// the split is over: DEL key
    ///                                    no marker: the split is over
    ///                                    SADD key
    ///                                                                 is back: "split"
    /// no marker: registry: split no more
    /// ```
    ///
    /// Without the registry nobody is the first choice: two proxies whose clients need the same key do
    /// the same work, each in names of its own, and the commit of one is seen by the other:
    ///
    /// ```text
    /// one proxy                          the other
    /// EVAL key x: waits                  EVAL key y: waits
    /// a marker: seals the shards         a marker: they are sealed already
    /// builds whole:1                     builds whole:2
    /// WATCH key: a marker                WATCH key: a marker
    /// EXEC: whole:1 for the marker
    /// the split is over: EVAL key x      EXEC: nil, or no marker at the WATCH; removes whole:2
    ///                                    no marker: the split is over: EVAL key y
    /// ```
    ///
    /// If the first has removed the key and all parts meanwhile (`FLUSHALL`), the other finds parts
    /// without what their guards say, does nothing, and finds at its next attempt that there is no
    /// marker.
    pub(super) async fn make_whole(&self, key: &[u8], layout: &Layout, begun: Instant) -> bool {
        for attempt in 1..=MAX_WHOLE_TRIES {
            match self.steps.unsplit(key, layout).await {
                Ok(whole) => {
                    self.observe_freeze(begun);
                    self.tell_whole(key, layout, whole).await;
                    return true;
                }
                Err(DataError::NoRoom(why)) => {
                    self.count("unsplit", "no_room");
                    self.note_trouble(key, &layout.id, &why).await;
                    return false;
                }
                Err(error) if attempt == MAX_WHOLE_TRIES => {
                    let named = self.state.named(key);
                    tracing::warn!(
                        key = named,
                        "a key could not be made whole, and is tried again: {error}"
                    );
                    self.count("unsplit", "failed");
                    self.note_trouble(key, &layout.id, &error.to_string()).await;
                }
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        false
    }

    /// Why a value stays in its shards for now: there is no room for it at its key, and nobody has
    /// begun to seal it. Once that is begun, writes wait until it is whole.
    async fn lacks_room(&self, key: &[u8], layout: &Layout) -> Option<String> {
        let room = self.steps.room_for_whole(key, layout).await;
        let Err(DataError::NoRoom(why)) = room else { return None };
        let is_sealing = self.steps.is_sealing(layout).await;
        (is_sealing == Ok(false)).then_some(why)
    }

    /// A key whose writes may be held already stays split: they go on at the shards.
    async fn stay_split(&self, key: &[u8], id: &str, why: &str) {
        self.tell(key, |seen| {
            let Some(seen) = seen.filter(|seen| is_of(Some(seen), id)) else { return Next::Leave };
            let mut entry = seen.entry.clone();
            if let Some(split) = &mut entry.split {
                (split.phase, split.mover) = (Phase::Split, String::new());
            }
            entry.status = Status::Active;
            entry.pause = Some(pause_of(&entry, ROOM_MS, format!("not made whole yet: {why}")));
            Next::put(entry, None)
        })
        .await;
    }

    /// Tells people why a key is not whole yet.
    async fn note_trouble(&self, key: &[u8], id: &str, why: &str) {
        self.tell(key, |seen| match seen.filter(|seen| is_of(Some(seen), id)) {
            Some(Seen { entry, remaining, .. }) => {
                let pause = pause_of(entry, TROUBLE_MS, format!("not made whole yet: {why}"));
                Next::put(Entry { pause: Some(pause), ..entry.clone() }, *remaining)
            }
            None => Next::Leave,
        })
        .await;
    }

    /// The value is at its key again, by us or by somebody else.
    pub(crate) async fn tell_whole(&self, key: &[u8], layout: &Layout, whole: Whole) {
        let told = self
            .tell(key, |seen| match seen.filter(|seen| is_of(Some(seen), &layout.id)) {
                Some(seen) => self.whole_again(&seen.entry, None),
                None => Next::Leave,
            })
            .await;
        // Only now, when it is known whether others will hear of it.
        self.note_marker(&layout.id, false);
        fault::point("unsplit:told");
        if told.is_none() {
            // Whoever reaches the registry next finds the key whole.
            return self.count("unsplit", "untold");
        }
        let outcome = match whole {
            Whole::Committed => "done",
            Whole::Evicted => "evicted",
            Whole::NotOurs => "found_done",
        };
        self.count("unsplit", outcome);
        if whole == Whole::NotOurs {
            return self.let_go(key, layout).await;
        }
        // It may take a while. If this process ends before, others find the split in the index.
        self.note_left(key, layout, true);
        let (mover, key, layout) = (self.clone(), key.to_vec(), layout.clone());
        tokio::spawn(async move {
            match mover.steps.retire_late(&key, &layout).await {
                Ok(()) => drop(mover.state.lock().splits.left.remove(&layout.id)),
                Err(error) => mover.leave(&key, &layout, &error),
            }
        });
    }

    /// The same, with one attempt to tell the registry, which may be out of reach.
    pub(crate) async fn tell_whole_once(&self, key: &[u8], layout: &Layout) {
        let decide = |seen: Option<&Seen>| match seen.filter(|seen| is_of(Some(seen), &layout.id)) {
            Some(seen) => self.whole_again(&seen.entry, None),
            None => Next::Leave,
        };
        if let Err(error) = change::change(&self.state, &self.store, key, decide).await {
            let key = self.state.named(key);
            tracing::debug!(key, "the registry is not told that a key is whole: {error}");
        }
    }

    /// The copies of a key are read no more.
    pub(crate) async fn end_copies(&self, key: &[u8], id: &str) {
        self.tell(key, |seen| match seen.filter(|seen| is_of(Some(seen), id)) {
            Some(seen) => self.whole_again(&seen.entry, None),
            None => Next::Leave,
        })
        .await;
    }

    /// Waits for the proxies to hold writes of a key that is made whole.
    pub(crate) async fn hold(&self, id: &str) -> usize {
        let freeze = self.state.lock().live.split.freeze;
        self.missing(&topic(id, Phase::Draining), freeze * PATIENCE).await
    }

    /// A split whose mover is gone: it is split if that was committed, else it never will be.
    pub(crate) async fn thaw(&self, key: &[u8], layout: &Layout) {
        match self.steps.forbid(key, layout).await {
            Ok(Fate::Committed) => {
                self.count("split", "taken_over");
                if !self.tell_split(key, &layout.id).await {
                    self.make_whole(key, layout, Instant::now()).await;
                }
            }
            Ok(Fate::Unmarked) => {
                self.note_marker(&layout.id, false);
                self.give_up(key, &layout.id, None).await;
                self.let_go(key, layout).await;
                self.count("split", "given_up");
            }
            Ok(Fate::Never) => {
                self.note_marker(&layout.id, false);
                self.give_up(key, &layout.id, None).await;
                self.drop_shards(key, layout).await;
                self.count("split", "given_up");
            }
            Err(error) => {
                let key = self.state.named(key);
                tracing::debug!(key, "a split is looked at later: {error}");
            }
        }
    }

    /// A split that the upstream knows, and the registry does not.
    pub(crate) async fn adopt(&self, known: &Known) {
        let Known { key, layout, tags } = known;
        match self.steps.forbid(key, layout).await {
            Ok(Fate::Committed) => {}
            Ok(Fate::Never | Fate::Unmarked) => return self.let_go(key, layout).await,
            Err(error) => {
                let key = self.state.named(key);
                return tracing::debug!(key, "a split is looked at later: {error}");
            }
        }
        match self.steps.is_sealing(layout).await {
            Ok(false) => {}
            Ok(true) => {
                // A failover has taken its end back, or nobody was left to commit it.
                self.state.lock().splits.drift_total += 1;
                self.make_whole(key, layout, Instant::now()).await;
                return;
            }
            Err(error) => {
                let key = self.state.named(key);
                return tracing::debug!(key, "a split is looked at later: {error}");
            }
        }
        let (ttl, is_blocked) = {
            let now = self.state.now();
            let inner = self.state.lock();
            let is_blocked = inner.registry.blocked_for(now, key).is_some();
            (inner.live.control.registry_ttl, is_blocked)
        };
        let split = SplitRecord {
            id: layout.id.clone(),
            kind: layout.kind.name().to_owned(),
            tags: tags.clone(),
            expires: layout.expires,
            phase: Phase::Split,
            mover: String::new(),
            ends_at_ms: None,
            removal: None,
        };
        let found = Entry {
            mitigation: Mitigation::Split,
            split_factor: u32::try_from(tags.len()).unwrap_or(u32::MAX),
            ttl_seconds: Some(ttl.as_secs()),
            origin: Origin::Auto,
            status: Status::Active,
            reason: "found split on the upstream; the registry did not know of it".to_owned(),
            dry_run: false,
            frequency: 0.0,
            reads_per_second: 0.0,
            writes_per_second: 0.0,
            detected_at_ms: 0,
            split: None,
            pause: None,
        };
        let adopted = self
            .tell(key, |seen| {
                let now_ms = unix_ms();
                let seen_entry = seen.map(|seen| &seen.entry);
                if seen_entry.is_some_and(|entry| entry.split.is_some()) {
                    return Next::Leave;
                }
                let mut entry = seen_entry.unwrap_or(&found).clone();
                let left = seen.and_then(|seen| seen.remaining);
                let left = left.filter(|_| entry.origin == Origin::Manual);
                let ends_at_ms = left.map(|left| now_ms + left.as_millis() as u64);
                entry.split = Some(SplitRecord { ends_at_ms, ..split.clone() });
                let goes = is_blocked && seen_entry.is_none();
                let leaving = if goes { entry.leaving(0) } else { None };
                let draining = entry.draining().filter(|_| entry.outgrew_split(now_ms));
                Next::put(leaving.or(draining).unwrap_or(entry), None)
            })
            .await;
        if matches!(adopted, Some(Changed::Put(_))) {
            self.state.lock().splits.drift_total += 1;
            self.count("split", "adopted");
        }
    }

    /// A key that should be split is not, for a while.
    pub(super) async fn pause(&self, key: &[u8], length: (u64, u64), why: String) {
        self.tell(key, |seen| match seen {
            Some(Seen { entry, remaining, .. }) if entry.is_pending() => {
                let pause = Some(pause_of(entry, length, why.clone()));
                Next::put(Entry { pause, ..entry.clone() }, *remaining)
            }
            _ => Next::Leave,
        })
        .await;
    }

    /// Changes the registry according to what was done. Nothing if it cannot be told, which takes one
    /// call at most: the reconciler comes back to it when the store answers.
    pub(super) async fn tell(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Seen>) -> Next,
    ) -> Option<Changed> {
        for _ in 0..MAX_TELLS {
            if self.state.is_store_away() {
                return None;
            }
            match change::change(&self.state, &self.store, key, &mut decide).await {
                Ok(changed) => return Some(changed),
                Err(NotChanged::Contended) => {}
                Err(NotChanged::Full) => return None,
                Err(NotChanged::Store(error)) => {
                    let key = self.state.named(key);
                    tracing::debug!(key, %error, "the registry is not told yet");
                    return None;
                }
            }
        }
        None
    }

    pub(super) fn count(&self, way: &'static str, outcome: &'static str) {
        *self.state.lock().splits.moves.entry((way, outcome)).or_default() += 1;
    }

    fn observe_freeze(&self, begun: Instant) {
        self.state.lock().splits.freeze_seconds.observe(begun.elapsed().as_secs_f64());
    }
}

fn is_draining(split: &SplitRecord) -> bool {
    split.phase == Phase::Draining
}

pub(super) fn is_in(seen: &Seen, phase: Phase) -> bool {
    seen.entry.split.as_ref().is_some_and(|split| split.phase == phase)
}

pub(super) fn pause_of(entry: &Entry, (shortest, longest): (u64, u64), why: String) -> Pause {
    Pause::after(entry.pause.as_ref(), unix_ms(), shortest, longest, why)
}

impl crate::SplitSettings {
    fn bounds(&self) -> Bounds {
        Bounds { max_members: self.max_members, max_value_bytes: self.max_value_bytes }
    }
}
