//! The end of a split ([decision 15](../../../../../docs/adr/0015-splitting.md)): the shards are sealed,
//! the value is built beside its key, counted, and takes the place of the marker.
//!
//! Called by: the lifecycle, the reconciler and `heatsink drain`; by several at once.
//! Bound: one value in memory; [`SEALS_AT_ONCE`] shards are sealed at a time.
//! Invariant: what takes the marker's place is all that was sealed. A part that is missing, or of
//! another size than when it was sealed, ends the attempt: the marker stays.
//!
//! A server that is short of memory may refuse a part of what is built, or evict all of it, so that
//! later requests begin it anew. It has no time to live, so only `allkeys-*` evicts it, and what the
//! server has counted in is compared with what is there at the end:
//!
//! ```text
//! mover                              server
//! SADD whole a b     2
//!                                    evicts whole
//! SADD whole c d     2
//! WATCH key whole; SCARD whole       2, and not 4: given up, whole is removed
//! ```
//!
//! ```text
//! WATCH key whole; SCARD whole       4
//!                                    evicts whole: the watch is touched
//! MULTI; RENAME whole key; ... EXEC  nil
//! ```
//!
//! A shard that was sealed may be gone when it is read: its node has failed over to a replica that was
//! behind, or lost its data. Its guard was written in the transaction that sealed it:
//!
//! ```text
//! mover                              shard's node
//! MULTI; RENAME shard sealed; tombstone; guard: sealed 7; EXEC
//!                                    fails over, to before the EXEC: the shard is there again
//! sealed, guard?                     nothing, open: given up; the next attempt seals again
//! ```
//!
//! A value for which there is no room is not begun, or given up while it is built ([`super::servers`]).
//!
//! If the node has lost the shard for good, there is no guard either, and nobody makes a value of the
//! other shards. Where the server evicts any key (`allkeys-*`, set after the split), the value counts
//! as evicted as a whole.

use std::time::Duration;

use heatsink_split::layout::Names;
use heatsink_split::moving::{self, Guard};
use heatsink_split::{Kind, Layout, placement};

use super::contents::size;
use super::data::{DataError, command, decode};
use super::fault;
use super::fit::{deadline, number};
use super::marker::is_tombstone;
use super::names;
use super::reconcile::BELIEF;
use super::servers::{Room, live_names};
use super::steps::{Steps, apart, refusal_of};
use crate::state::unix_ms;

/// How long sealed shards and tombstones stay when nothing needs them any more.
const AFTERLIFE_MS: &[u8] = b"600000";
/// An attempt that began longer ago than this is that of a mover that has died.
const ATTEMPT_MS: u64 = 60_000;
/// Attempts to seal a shard that is written to meanwhile.
const MAX_SEALS: usize = 100;
/// Shards that are sealed at the same time.
const SEALS_AT_ONCE: usize = 8;
/// Requests of 64 KiB between two looks at the room that is left.
const REQUESTS_AT_ONCE: usize = 16;

/// What came of the end of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// The value is at the key again.
    Committed,
    /// A part of it was evicted, so nothing is at the key.
    Evicted,
    /// The marker was not there: somebody else has done it, or has overwritten it.
    NotOurs,
}

/// What the sealed shards hold.
enum Parts {
    /// All of them, and how much they hold together.
    All(Vec<Vec<u8>>, u64),
    /// One is missing, or was changed; which, in words.
    Missing(String),
}

/// A value that was built beside its key.
struct Built {
    name: Vec<u8>,
    size: u64,
}

impl Steps {
    /// Makes a value whole again: seals the shards, builds it, commits.
    pub(crate) async fn unsplit(&self, key: &[u8], layout: &Layout) -> Result<Whole, DataError> {
        self.unsplit_at(key, key, layout).await
    }

    /// The same, with the marker at another name than the key that was split.
    pub(crate) async fn unsplit_at(
        &self,
        key: &[u8],
        at: &[u8],
        layout: &Layout,
    ) -> Result<Whole, DataError> {
        if !self.is_marked(at, layout).await? {
            return Ok(Whole::NotOurs);
        }
        // Once a shard is sealed, writes wait: what has no room is not begun.
        let mut room = None;
        if !self.is_sealing(layout).await? {
            room = Some(self.room_for_whole(at, layout).await?);
        }
        self.seal(layout).await?;
        // If one is taken back, the next attempt finds that out; but a proxy that does not hold could
        // write to it meanwhile. Nobody waits for longer than that for replicas that are slow.
        let _ = self.unreplicated(&live_names(layout)).await;
        fault::point("unsplit:sealed");
        let parts = match self.sealed_parts(layout).await? {
            Parts::All(parts, size) => Some((parts, size)),
            Parts::Missing(why) if self.has_evicted(layout).await? => {
                let id = &layout.id;
                tracing::warn!("the value of split {id} counts as evicted: {why}");
                None
            }
            Parts::Missing(why) => return Err(DataError::Refused(why)),
        };
        let (whole, proof) = match &parts {
            Some(_) => (Whole::Committed, names::MADE_WHOLE),
            None => (Whole::Evicted, names::EVICTED),
        };
        let attempt = names::new_id(unix_ms());
        let made = match self.build(at, layout, parts, room, &attempt).await {
            Ok(built) => self.commit_whole(key, at, layout, built.as_ref(), &attempt, proof).await,
            Err(error) => Err(error),
        };
        if made != Ok(true) {
            // Somebody was faster, something else is there now, or there is no room. What cannot be
            // removed now is removed with the next attempt, or with the split.
            let clear = [
                command(&[b"UNLINK", &names::whole(at, &layout.id, &attempt)]),
                command(&[b"SREM", &names::attempts(at, &layout.id), attempt.as_bytes()]),
            ];
            let cleared = async { self.connect()?.accepted(&clear).await };
            if let Err(error) = cleared.await {
                tracing::debug!("what was built in vain is removed later: {error}");
            }
        }
        if made? {
            fault::point("unsplit:committed");
            Ok(whole)
        } else if self.is_marked(at, layout).await? {
            Err(DataError::Refused("the key was written to".to_owned()))
        } else {
            Ok(Whole::NotOurs)
        }
    }

    /// Reads the sealed shards, and compares them with their guards.
    async fn sealed_parts(&self, layout: &Layout) -> Result<Parts, DataError> {
        let mut data = self.connect()?;
        let is_guarded = names::is_guarded(&layout.id);
        let mut questions = moving::read_shards(layout, Names::Sealed);
        questions.extend((0..layout.len()).map(|shard| command(&[b"GET", &layout.guard(shard)])));
        let mut replies = data.ask(&questions).await?;
        replies.iter().try_for_each(|reply| refusal_of(reply))?;
        let guards = replies.split_off(layout.len());
        let is_string = matches!(layout.kind, Kind::Counter | Kind::HyperLogLog);
        let (mut all, mut has_empty) = (0, false);
        for (shard, (reply, guard)) in replies.iter().zip(&guards).enumerate() {
            let size = moving::size_of(layout.kind, reply);
            let size = size.map_err(|unfit| DataError::Refused(unfit.0))?;
            all += size;
            has_empty |= size == 0;
            let lost = match Guard::read(guard) {
                Some(Guard::Sealed(sealed)) => sealed != size,
                // Sealed by an earlier release, or not sealed any more.
                Some(Guard::Open) => size == 0,
                None => is_guarded,
            };
            if lost || is_string && size == 0 {
                return Ok(Parts::Missing(format!("shard {shard} has lost its data")));
            }
        }
        if has_empty && self.has_evicted(layout).await? {
            return Ok(Parts::Missing("an empty shard may have been evicted".to_owned()));
        }
        Ok(Parts::All(replies, all))
    }

    /// Builds a value beside its key; none if nothing is left of it.
    async fn build(
        &self,
        at: &[u8],
        layout: &Layout,
        parts: Option<(Vec<Vec<u8>>, u64)>,
        room: Option<Room>,
        attempt: &str,
    ) -> Result<Option<Built>, DataError> {
        let Some((parts, in_shards)) = parts else { return Ok(None) };
        let name = names::whole(at, &layout.id, attempt);
        let (plan, to) = (layout.clone(), name.clone());
        let requests = apart(move || moving::build_whole(&plan, &parts, &to)).await?;
        let requests = requests.map_err(|unfit| DataError::Refused(unfit.0))?;
        if requests.is_empty() {
            return Ok(None);
        }
        let now_ms = unix_ms();
        let is_dead = |one: &str| names::time(one) + ATTEMPT_MS < now_ms;
        self.clear_attempts(at, layout, is_dead).await?;
        let room = match room {
            Some(room) => room,
            None => self.room_for_whole(at, layout).await?,
        };
        let mut data = self.connect()?;
        let attempts = names::attempts(at, &layout.id);
        data.accepted(&[command(&[b"SADD", &attempts, attempt.as_bytes()])]).await?;
        let (mut replies, mut unsent) = (Vec::new(), requests.len());
        for some in requests.chunks(REQUESTS_AT_ONCE) {
            room.check(&mut data, at, (unsent, requests.len())).await?;
            replies.extend(data.accepted(some).await?);
            unsent -= some.len();
        }
        let evicted = room.evicted(&mut data, at).await?;
        if evicted > 0 {
            let id = &layout.id;
            tracing::warn!(
                evicted,
                "the server evicted keys while the value of split {id} was made whole"
            );
        }
        fault::point("unsplit:built");
        let size = match layout.kind {
            // How many were new. Not what was in the shards: strangers may have put one there twice.
            Kind::Set | Kind::Hash | Kind::SortedSet => {
                replies.iter().filter_map(heatsink_resp::value::Value::integer).sum::<i64>() as u64
            }
            Kind::List => in_shards,
            Kind::Counter | Kind::HyperLogLog => 1,
        };
        Ok(Some(Built { name, size }))
    }

    /// Puts what was built in the place of the marker; whether that was done.
    async fn commit_whole(
        &self,
        key: &[u8],
        at: &[u8],
        layout: &Layout,
        built: Option<&Built>,
        attempt: &str,
        proof: &[u8],
    ) -> Result<bool, DataError> {
        let mut data = self.connect()?;
        let mut watch = vec![&b"WATCH"[..], at];
        watch.extend(built.map(|built| &built.name[..]));
        let mut look = vec![
            command(&watch),
            moving::read_fence(layout.kind, at),
            command(&[b"PEXPIRETIME", at]),
            command(&[b"PTTL", at]),
        ];
        look.extend(built.map(|built| size(layout.kind, &built.name)));
        let watched = data.ask(&look).await?;
        refusal_of(&watched[0])?;
        if !self.judge(at, &watched[1], layout).await?.is_there() {
            return Ok(false);
        }
        let deadline = deadline(&decode(&watched[2])?, &decode(&watched[3])?)?;
        let mut commit = match built {
            None => vec![command(&[b"DEL", at])],
            Some(built) => {
                let found = number(&watched[4])?;
                let is_string = matches!(layout.kind, Kind::Counter | Kind::HyperLogLog);
                let is_complete = if is_string { found > 0 } else { found == built.size };
                if !is_complete {
                    let why =
                        format!("{found} of {} members are left of what was built", built.size);
                    return Err(DataError::Refused(why));
                }
                let mut commit =
                    vec![command(&[b"RENAME", &built.name, at]), command(&[b"PERSIST", at])];
                commit.extend(deadline.map(|deadline| deadline.request(at)));
                commit
            }
        };
        commit.push(command(&[b"SREM", &names::attempts(at, &layout.id), attempt.as_bytes()]));
        commit.push(command(&[b"DEL", &placement::manifest_name(key, &layout.id)]));
        if at == key {
            let name = names::proof(key, &layout.id);
            commit.push(command(&[b"SET", &name, proof, b"PX", AFTERLIFE_MS]));
        }
        Ok(data.transaction(&commit).await?.is_some())
    }

    /// Removes what attempts have built that are over.
    async fn clear_attempts(
        &self,
        at: &[u8],
        layout: &Layout,
        is_over: impl Fn(&str) -> bool,
    ) -> Result<(), DataError> {
        let mut data = self.connect()?;
        let attempts = names::attempts(at, &layout.id);
        let begun = data.accepted(&[command(&[b"SMEMBERS", &attempts])]).await?;
        let mut clear = Vec::new();
        for attempt in begun[0].array().iter().filter_map(|attempt| attempt.text()) {
            let text = String::from_utf8_lossy(attempt);
            if is_over(&text) {
                clear.push(command(&[b"UNLINK", &names::whole(at, &layout.id, &text)]));
                clear.push(command(&[b"SREM", &attempts, attempt]));
            }
        }
        data.accepted(&clear).await.map(drop)
    }

    /// Seals every shard: what it holds gets another name, and a tombstone is in its place.
    pub(crate) async fn seal(&self, layout: &Layout) -> Result<(), DataError> {
        let mut under_way = tokio::task::JoinSet::new();
        let mut shards = 0..layout.len();
        loop {
            while under_way.len() < SEALS_AT_ONCE
                && let Some(shard) = shards.next()
            {
                let (steps, layout) = (self.clone(), layout.clone());
                under_way.spawn(async move { steps.seal_one(&layout, shard).await });
            }
            match under_way.join_next().await {
                None => return Ok(()),
                Some(Ok(sealed)) => sealed?,
                Some(Err(error)) => return Err(DataError::Lost(error.to_string())),
            }
            fault::point("unsplit:sealing");
        }
    }

    async fn seal_one(&self, layout: &Layout, shard: usize) -> Result<(), DataError> {
        let live = layout.name(shard, Names::Live);
        let sealed = layout.name(shard, Names::Sealed);
        let guard = layout.guard(shard);
        let mut data = self.connect()?;
        for _ in 0..MAX_SEALS {
            let look = [
                command(&[b"WATCH", live, sealed, &guard]),
                moving::read_fence(layout.kind, live),
                command(&[b"EXISTS", live]),
                command(&[b"EXISTS", sealed]),
                command(&[b"EXISTS", &guard]),
            ];
            let replies = data.ask(&look).await?;
            refusal_of(&replies[0])?;
            if is_tombstone(&replies[1], &layout.id)? {
                data.accepted(&[command(&[b"UNWATCH"])]).await?;
                return Ok(());
            }
            let is_there = |reply: &[u8]| Ok::<_, DataError>(number(reply)? == 1);
            let is_sealed = is_there(&replies[3])?;
            let mut commands = Vec::new();
            if is_there(&replies[2])? {
                if is_sealed {
                    let why = format!("shard {shard} is there twice: somebody else wrote to it");
                    return Err(DataError::Refused(why));
                }
                let held = number(&data.ask(&[size(layout.kind, live)]).await?[0])?;
                commands.push(command(&[b"RENAME", live, sealed]));
                commands.push(Guard::Sealed(held).write(&guard));
            } else if !is_sealed && is_there(&replies[4])? {
                // Its last member was removed. Without a guard it was lost, which whoever reads finds.
                commands.push(Guard::Sealed(0).write(&guard));
            }
            commands.push(moving::write_fence(layout.kind, live, &layout.id));
            if data.transaction(&commands).await?.is_some() {
                return Ok(());
            }
        }
        Err(DataError::Refused(format!("shard {shard} keeps being written to")))
    }

    /// Whether a shard has been sealed.
    pub(crate) async fn is_sealing(&self, layout: &Layout) -> Result<bool, DataError> {
        let ask = |shard| moving::read_fence(layout.kind, layout.name(shard, Names::Live));
        let replies = self.connect()?.ask(&(0..layout.len()).map(ask).collect::<Vec<_>>()).await?;
        for reply in &replies {
            if is_tombstone(reply, &layout.id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same as [`Self::retire`] for a split that has just ended, whose tombstones somebody may need.
    ///
    /// A proxy that has not heard of the end believes in the shards for [`BELIEF`]. Its writes are
    /// refused by tombstones, so these must not be evicted before that. What has no time to live is
    /// not, where a server evicts what has one.
    pub(crate) async fn retire_late(&self, key: &[u8], layout: &Layout) -> Result<(), DataError> {
        if self.evicts_tombstones(layout).await? {
            tokio::time::sleep(BELIEF + Duration::from_secs(1)).await;
        }
        self.retire(key, layout).await
    }

    /// Whether anything of a split's shards stays until somebody lets it go.
    pub(super) async fn is_kept(&self, layout: &Layout) -> Result<bool, DataError> {
        let mut ask = Vec::new();
        for shard in 0..layout.len() {
            for name in [layout.name(shard, Names::Live), layout.name(shard, Names::Sealed)] {
                ask.push(command(&[b"PTTL", name]));
            }
            ask.push(command(&[b"PTTL", &layout.guard(shard)]));
        }
        let left = self.connect()?.accepted(&ask).await?;
        Ok(left.iter().any(|left| left.integer() == Some(-1)))
    }

    /// Lets the rest of a split that has ended go: nobody may write to its shards, and what is
    /// left of them ends by itself.
    pub(crate) async fn retire(&self, key: &[u8], layout: &Layout) -> Result<(), DataError> {
        if let Some(why) = self.unreplicated(&[key]).await? {
            let why = format!("{why}; what is needed to go back is kept");
            return Err(DataError::Refused(why));
        }
        if self.is_marked(key, layout).await? {
            return Err(DataError::Refused("its marker is back".to_owned()));
        }
        self.seal(layout).await?;
        self.clear_attempts(key, layout, |_| true).await?;
        let mut requests = vec![
            command(&[b"UNLINK", &placement::manifest_name(key, &layout.id)]),
            // An operator may have written it.
            command(&[b"PEXPIRE", &names::proof(key, &layout.id), AFTERLIFE_MS]),
        ];
        for shard in 0..layout.len() {
            for names in [Names::Live, Names::Sealed] {
                requests.push(command(&[b"PEXPIRE", layout.name(shard, names), AFTERLIFE_MS]));
            }
            requests.push(command(&[b"PEXPIRE", &layout.guard(shard), AFTERLIFE_MS]));
        }
        self.connect()?.accepted(&requests).await?;
        fault::point("unsplit:retired");
        self.forget(layout).await
    }
}
