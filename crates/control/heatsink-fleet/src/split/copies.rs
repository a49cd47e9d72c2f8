//! Copies of a value on several nodes: who has them made, filled and removed.
//!
//! Called by: a task of each process with a proxy, beside the reconciler's.
//! Bound: the copies of each key that has any, looked at every [`TURN`].
//! Invariant: copies are filled only after every live proxy has said that its writes remove them,
//! and writes do so until every one has said that it reads them no more. What a copy holds was
//! read from the key under the copy's lock, while nobody wrote (see `hot/copies.rs` of the
//! proxy). Nothing has to be tidied up: copies live for [`LIFE`] only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heatsink_control::entry::{Entry, Mitigation, Phase, SplitRecord, Status};
use heatsink_control::words;
use heatsink_proxy::hot_keys::Copies;
use heatsink_resp::value::Value;
use heatsink_split::{layout, placement};

use super::change::{Next, Seen};
use super::data::{Data, DataError, command};
use super::lifecycle::{self, PAUSE_MS, TROUBLE_MS, is_of, pause_of};
use super::names;
use super::reconcile::{Reconciler, STEP_IN, is_first_choice, shown};
use crate::state::unix_ms;

/// Time between two looks.
const TURN: Duration = Duration::from_millis(100);
/// How long a copy lives.
const LIFE: Duration = Duration::from_secs(1);
/// How long the lock of a copy lives, and so the time after which a copy is filled again.
const LOCK_MS: i64 = 300;
/// Whoever has not acknowledged by then is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A key that has copies, and where they are.
type Copied = (Vec<u8>, SplitRecord);

/// The copies of a record, as the data plane is told of them; none if it is of another kind.
pub(crate) fn copies(split: &SplitRecord) -> Option<Copies> {
    if !split.is_copies() || split.tags.is_empty() {
        return None;
    }
    let name = |(index, tag): (usize, &String)| layout::copy_name(tag, &split.id, index);
    let names = split.tags.iter().enumerate().map(name).collect();
    Some(Copies { names, read: split.phase == Phase::Split, life: LIFE })
}

impl Reconciler {
    /// Makes, fills and removes copies.
    pub(crate) async fn run_copies(self: Arc<Self>) {
        let mut since = HashMap::new();
        loop {
            tokio::time::sleep(TURN).await;
            let (copied, wanting) = self.about_copies();
            since.retain(|waits: &(String, Phase), _| {
                copied.iter().any(|(_, split)| split.id == waits.0 && split.phase == waits.1)
            });
            for key in wanting {
                self.begin_copies(&key).await;
            }
            for (key, split) in copied {
                let waits = (split.id.clone(), split.phase);
                let waited = since.entry(waits).or_insert_with(Instant::now).elapsed();
                self.see_to_copies(&key, &split, waited).await;
            }
        }
    }

    /// The records that have copies, and the keys that should have.
    fn about_copies(&self) -> (Vec<Copied>, Vec<Vec<u8>>) {
        let state = &self.mover.state;
        let now_ms = unix_ms();
        let inner = state.lock();
        let (mut copied, mut wanting) = (Vec::new(), Vec::new());
        if !inner.registry.is_synced() {
            return (copied, wanting);
        }
        for (key, record) in inner.registry.iter() {
            let entry = &record.entry;
            match &entry.split {
                Some(split) if split.is_copies() => copied.push((key.to_vec(), split.clone())),
                None if entry.wants_copies() => {
                    let paused = entry.pause.as_ref().is_some_and(|pause| now_ms < pause.until_ms);
                    let allowed = inner.live.policies.of(key).allows(Mitigation::Copies);
                    if !paused && allowed && is_first_choice(&inner, key, &state.id) {
                        wanting.push(key.to_vec());
                    }
                }
                _ => {}
            }
        }
        (copied, wanting)
    }

    /// Tells every proxy that its writes of a key remove copies from now on.
    async fn begin_copies(&self, key: &[u8]) {
        let mover = &self.mover;
        let Some(tags) = self.elsewhere(key) else {
            let why = "no copies: there is no other node".to_owned();
            return mover.pause(key, PAUSE_MS, why).await;
        };
        let id = names::new_id(unix_ms());
        // Every write would wait for a node that is down.
        if let Err(error) = self.reach(&tags, &id).await {
            let why = format!("no copies yet: {error}");
            return mover.pause(key, TROUBLE_MS, why).await;
        }
        let name = |(index, tag): (usize, &String)| layout::copy_name(tag, &id, index);
        let names: Vec<_> = tags.iter().enumerate().map(name).collect();
        match mover.steps.evicts_guards(&names).await {
            Ok(None) => {}
            Ok(Some(why)) => return mover.pause(key, PAUSE_MS, format!("no copies: {why}")).await,
            Err(error) => {
                let why = format!("no copies yet: {error}");
                return mover.pause(key, TROUBLE_MS, why).await;
            }
        }
        mover
            .tell(key, |seen| {
                let Some(seen) = seen.filter(|seen| seen.entry.wants_copies()) else {
                    return Next::Leave;
                };
                if seen.entry.split.is_some() {
                    return Next::Leave;
                }
                let ends = seen.remaining.filter(|_| seen.entry.is_manual());
                let split = SplitRecord {
                    id: id.clone(),
                    kind: SplitRecord::COPIES.to_owned(),
                    tags: tags.clone(),
                    expires: false,
                    phase: Phase::Freezing,
                    mover: mover.state.id.clone(),
                    ends_at_ms: ends.map(|left| unix_ms() + left.as_millis() as u64),
                    removal: None,
                };
                let split_factor = u32::try_from(tags.len() + 1).unwrap_or(u32::MAX);
                let split = Some(split);
                Next::put(
                    Entry { status: Status::Freezing, split, split_factor, ..seen.entry.clone() },
                    None,
                )
            })
            .await;
    }

    /// Asks each node that is to have a copy.
    async fn reach(&self, tags: &[String], id: &str) -> Result<(), DataError> {
        let mut data = self.mover.steps.connect()?;
        for (index, tag) in tags.iter().enumerate() {
            let copy = layout::copy_name(tag, id, index);
            data.accepted(&[command(&[b"EXISTS", &copy])]).await?;
        }
        Ok(())
    }

    /// A tag on each primary but the key's own; none if there is no other.
    fn elsewhere(&self, key: &[u8]) -> Option<Vec<String>> {
        let owners = self.mover.state.proxy.as_ref()?.slot_owners()?;
        let owner = |name: &[u8]| owners[usize::from(heatsink_cluster::slot::of_key(name))];
        let mut nodes: Vec<_> = owners.iter().filter(|one| **one != placement::UNOWNED).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let tags = placement::tags(Some(&owners), nodes.len(), key);
        let others: Vec<_> =
            tags.into_iter().filter(|tag| owner(tag.as_bytes()) != owner(key)).collect();
        (!others.is_empty()).then_some(others)
    }

    async fn see_to_copies(&self, key: &[u8], split: &SplitRecord, waited: Duration) {
        let mover = &self.mover;
        let is_first = is_first_choice(&mover.state.lock(), key, &mover.state.id);
        let is_mine = is_first || waited >= STEP_IN;
        match split.phase {
            Phase::Freezing if is_mine => {
                let missing = self.unacknowledged(split).await;
                if missing == 0 {
                    self.set_phase(key, split, Phase::Split, None).await;
                } else if waited > PATIENCE {
                    let missing = words::count(missing, "proxy", "proxies");
                    let why = format!("no copies yet: {missing} did not answer in time");
                    self.set_phase(key, split, Phase::Draining, Some(why)).await;
                }
            }
            Phase::Split => {
                let command = self.wanted(key);
                let entry = super::change::seen(&mover.state, key).map(|seen| seen.entry);
                let outgrown = entry.is_some_and(|entry| entry.outgrew_split(unix_ms()));
                let evicts =
                    if is_time_to_ask(waited) { self.evicts_guards(split).await } else { None };
                if command.is_some() || evicts.is_some() || outgrown && is_mine {
                    let why = command.map(|command| {
                        format!("no copies: {} does not remove them", shown(&command))
                    });
                    self.set_phase(key, split, Phase::Draining, why.or(evicts)).await;
                } else if let Some(copies) = copies(split)
                    && let Err(error) = self.fill(key, &copies).await
                {
                    let key = mover.state.named(key);
                    tracing::debug!(key, "copies are not filled: {error}");
                }
            }
            Phase::Draining if is_mine => {
                // Those who do not answer read what expires soon.
                if self.unacknowledged(split).await == 0 || waited > PATIENCE {
                    mover.end_copies(key, &split.id).await;
                }
            }
            Phase::Freezing | Phase::Draining => {}
        }
    }

    /// Why there must be no copies any more, if a server may evict what guards them.
    async fn evicts_guards(&self, split: &SplitRecord) -> Option<String> {
        let copies = copies(split)?;
        let why = self.mover.steps.evicts_guards(&copies.names).await.ok()??;
        Some(format!("no copies: {why}"))
    }

    async fn unacknowledged(&self, split: &SplitRecord) -> usize {
        self.mover.missing(&lifecycle::topic(&split.id, split.phase), Duration::ZERO).await
    }

    async fn set_phase(&self, key: &[u8], split: &SplitRecord, phase: Phase, why: Option<String>) {
        let from = split.phase;
        self.mover
            .tell(key, |seen: Option<&Seen>| {
                let Some(seen) = seen.filter(|seen| is_of(Some(seen), &split.id)) else {
                    return Next::Leave;
                };
                let mut entry = seen.entry.clone();
                match &mut entry.split {
                    Some(split) if split.phase == from => split.phase = phase,
                    _ => return Next::Leave,
                }
                entry.status = match phase {
                    Phase::Split => Status::Active,
                    _ => Status::Draining,
                };
                if let Some(why) = why.clone() {
                    let length = if from == Phase::Freezing { TROUBLE_MS } else { PAUSE_MS };
                    entry.pause = Some(pause_of(&entry, length, why));
                }
                Next::put(entry, None)
            })
            .await;
    }

    /// Fills the copies that were not filled recently.
    async fn fill(&self, key: &[u8], copies: &Copies) -> Result<(), DataError> {
        let mut data = self.mover.steps.connect()?;
        let token = names::new_id(unix_ms());
        for copy in &copies.names {
            fill_one(&mut data, key, copy, token.as_bytes()).await?;
        }
        Ok(())
    }
}

/// Fills one copy, unless that was done recently, or somebody writes.
async fn fill_one(data: &mut Data, key: &[u8], copy: &[u8], token: &[u8]) -> Result<(), DataError> {
    let (lock, writers) = (layout::lock_name(copy), layout::writers_name(copy));
    let lives = LOCK_MS.to_string();
    let take = command(&[b"SET", &lock, token, b"NX", b"PX", lives.as_bytes()]);
    let locked = data.accepted(&[take]).await?;
    if locked[0] == Value::Nil {
        return Ok(());
    }
    let read = data.accepted(&[command(&[b"DUMP", key]), command(&[b"PTTL", key])]).await?;
    let (Some(dump), Some(life)) = (read[0].text(), read[1].integer().and_then(life_of_copy))
    else {
        return Ok(());
    };
    let questions = [
        command(&[b"WATCH", &lock, &writers]),
        command(&[b"GET", &lock]),
        command(&[b"EXISTS", &writers]),
    ];
    let seen = data.accepted(&questions).await?;
    if seen[1].text() != Some(token) || seen[2].integer() != Some(0) {
        data.accepted(&[command(&[b"UNWATCH"])]).await?;
        return Ok(());
    }
    let life = life.to_string();
    let put = command(&[b"RESTORE", copy, life.as_bytes(), dump, b"REPLACE"]);
    data.transaction(&[put]).await.map(drop)
}

/// Whether servers are to be asked for their settings, at this turn: about every ten seconds.
fn is_time_to_ask(waited: Duration) -> bool {
    waited.as_millis() / TURN.as_millis() % 100 >= 97
}

/// How many milliseconds a copy lives, by those that its key has left (`PTTL`); none if the key has
/// gone since it was read, or goes before anybody can use the copy.
///
/// Between the question and the copy passes less time than the lock lives, because the copy is put
/// only while the lock is there:
///
/// ```text
/// 0 ms     lock
/// 1 ms     PTTL key: 700
/// 299 ms   EXEC: the lock is there; the copy lives for 400 ms
/// 699 ms   the copy ends
/// 701 ms   the key ends
/// ```
fn life_of_copy(left_ms: i64) -> Option<i64> {
    let longest = LIFE.as_millis() as i64;
    match left_ms {
        -1 => Some(longest),
        left => Some((left - LOCK_MS).min(longest)).filter(|life| *life > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::life_of_copy;

    #[test]
    fn a_copy_does_not_outlive_its_key() {
        let lives = [-1, 100_000, 1300, 1299, 301].map(life_of_copy);
        assert_eq!(lives, [1000, 1000, 1000, 999, 1].map(Some));
        // Read, and expired before its time was asked for; or about to, before the copy is put.
        assert_eq!([-2, 0, 300].map(life_of_copy), [None, None, None]);
    }
}
