//! Combining: writes to one thing that arrive while one is out go out as one.
//!
//! Called by: the proxy, for `INCR`, `DECR`, `INCRBY`, `DECRBY`, `HINCRBY`, `ZINCRBY` and
//! `INCRBYFLOAT` by whole numbers, and `SET` without options, on keys whose entry says so, in every mode that is at least `exact`.
//! Bound: one batch out per identity; [`BatchLimits`] for members, for bytes and for waits.
//! Invariant: every batch is executed at one instant between the arrival of its last member
//! and its answer, so any order of its members is a real one, and the replies are those of
//! the order in which they came; every waiter comes back exactly once; nothing is sent twice
//! unless the server refused it as a whole.
//!
//! A batch holds increments of one sign. Then the sums on the way lie between the value
//! before and the value after, and an overflow on the way is one at the end, which the server
//! refuses. It changed nothing then, and the members go one by one, as they were asked for:
//! each gets the reply or the error that is its own.
//!
//! `ZINCRBY` and `INCRBYFLOAT` round, and whether the sum of several rounds as they would one by
//! one depends on a value that is not known when it is sent. So their batches look at it first
//! (`guarded.rs`).

mod change;
mod guarded;
mod hold;
mod pool;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use change::Family;
pub use change::{Change, Form, integer};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
pub use hold::Hold;
use slab::Slab;

use crate::identity::LoginId;
use hold::Crowd;
use pool::{Batch, Member, Pool};

/// Bounds of one worker's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Writes that wait or are out, over all identities; one beyond that is refused.
    pub members: usize,
    /// Writes of one batch.
    pub batch_members: usize,
    /// Longest value of a `SET` that is combined.
    pub value_bytes: usize,
    /// Longest wait of a write that was not sent yet.
    pub max_wait: Duration,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            members: 65_536,
            batch_members: 4096,
            value_bytes: 64 << 10,
            max_wait: Duration::from_secs(1),
        }
    }
}

/// Places in which it is remembered whether a crowd writes what nobody waits for at the moment.
const REMEMBERED: usize = 16;

/// One batch that is out; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId {
    pool: u32,
    serial: u64,
}

/// What is combined with each other: the changes of one login to one number, or its `SET`s of
/// one key. The same as long as any of them is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(u32);

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Added<W> {
    /// Nothing of its kind is out: see to it that [`Batches::depart`] is called, as soon as
    /// nothing more can be gathered without waiting.
    Ready(PoolId),
    /// It goes out with others, later.
    Waiting {
        /// What it goes out with.
        pool: PoolId,
        /// It is the first of those.
        is_first: bool,
    },
    /// It does not fit: the caller sends it on its own, behind those that wait.
    Refused(W),
}

/// A reply, from the server or to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `+OK`
    Ok,
    /// A number.
    Integer(i64),
}

/// How the reply to a batch looks, and what its members are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An [`Answer`], to the batch and to each member.
    Plain,
    /// Anything: it is for the only member, see [`Batches::relayed`].
    AsIs,
    /// A whole number in a bulk string; each member gets one as a score.
    Score,
    /// A whole number in a bulk string, also to each member.
    Text,
}

/// The batches of one worker; `W` says whom to answer.
#[derive(Debug)]
pub struct Batches<W> {
    limits: BatchLimits,
    pools: Slab<Pool<W>>,
    table: HashTable<u32>,
    state: RandomState,
    serials: u64,
    members: usize,
    combined: u64,
    /// By hash, of pools that were closed: a crowd may all have its answers for a moment.
    crowds: [(u64, Crowd); REMEMBERED],
}

impl<W> Batches<W> {
    /// No batches.
    pub fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            pools: Slab::new(),
            table: HashTable::new(),
            state: RandomState::default(),
            serials: 0,
            members: 0,
            combined: 0,
            crowds: [(0, Crowd::default()); REMEMBERED],
        }
    }

    /// A write of `connection` arrived. Writes of one connection keep their order; of
    /// different ones, which are under way at the same time, it does not matter.
    pub fn add(
        &mut self,
        now: Duration,
        login: LoginId,
        connection: u64,
        change: &Change<'_>,
        waiter: W,
    ) -> Added<W> {
        if !self.takes(change) {
            return Added::Refused(waiter);
        }
        let hash = self.hash(login, change);
        let pool = self.table.find(hash, |&slot| self.pools[slot as usize].is_of(login, change));
        let slot = pool.copied().unwrap_or_else(|| self.open(hash, login, change));
        self.members += 1;
        let pool = &mut self.pools[slot as usize];
        pool.crowd.note(connection);
        let is_ready = pool.out.is_none() && !pool.has_next();
        let member = Member::new(waiter, connection, now, change);
        let is_first = pool.add(member, change, self.limits.batch_members);
        let pool = PoolId(slot);
        if is_ready { Added::Ready(pool) } else { Added::Waiting { pool, is_first } }
    }

    /// What a change would be combined with. A connection that waits for changes elsewhere must
    /// not send one here that could overtake them.
    pub fn pool_of(&self, login: LoginId, change: &Change<'_>) -> Option<PoolId> {
        let hash = self.hash(login, change);
        let found = self.table.find(hash, |&slot| self.pools[slot as usize].is_of(login, change));
        found.copied().map(PoolId)
    }

    /// Whether there is room for a write.
    pub fn takes(&self, change: &Change<'_>) -> bool {
        let too_long =
            matches!(change, Change::Set { value, .. } if value.len() > self.limits.value_bytes);
        self.members < self.limits.members && !too_long
    }

    /// Other bounds; the longest wait also for those who wait already.
    pub fn set_limits(&mut self, limits: BatchLimits) {
        self.limits = limits;
    }

    /// Closes what has gathered: the batch to be sent now; see [`Self::request`]. `None` if
    /// one is out, or all that was to be sent has expired.
    pub fn depart(&mut self, pool: PoolId) -> Option<BatchId> {
        let PoolId(slot) = pool;
        let pool = self.pools.get_mut(slot as usize).filter(|pool| pool.out.is_none())?;
        let Some(batch) = pool.take_next() else {
            self.close(slot);
            return None;
        };
        self.serials += 1;
        pool.out = Some((self.serials, batch));
        Some(BatchId { pool: slot, serial: self.serials })
    }

    /// A batch of `answered` members was answered, and more of its pool waits: whether that is
    /// held for company. If so, [`Self::depart`] is called when [`Self::is_over`] says so.
    pub fn hold(&self, now: Duration, pool: PoolId, answered: usize) -> Option<Hold> {
        let pool = self.pools.get(pool.0 as usize)?;
        Hold::begin(now, pool.crowd, answered, pool.waiting())
    }

    /// Whether what is held leaves now.
    pub fn is_over(&self, now: Duration, pool: PoolId, hold: &mut Hold) -> bool {
        let waiting = self.pools.get(pool.0 as usize).map_or(0, Pool::waiting);
        hold.is_over(now, waiting)
    }

    /// Appends the request of a batch that is out.
    pub fn request(&self, batch: BatchId, request: &mut Vec<u8>) -> bool {
        let Some(slot) = self.live(batch) else { return false };
        self.pools[slot as usize].encode(request);
        true
    }

    /// The login, the key and the number of members of a batch that is out.
    pub fn describe(&self, batch: BatchId) -> Option<(LoginId, &[u8], usize)> {
        let pool = &self.pools[self.live(batch)? as usize];
        Some((pool.login, &pool.key, pool.out.as_ref()?.1.members.len()))
    }

    /// How the reply to a batch that is out looks.
    pub fn shape(&self, batch: BatchId) -> Option<Shape> {
        let pool = &self.pools[self.live(batch)? as usize];
        let is_alone = pool.out.as_ref()?.1.members.len() == 1;
        Some(match pool.family {
            Family::Set | Family::Integer => Shape::Plain,
            Family::Score | Family::Float if is_alone => Shape::AsIs,
            Family::Score => Shape::Score,
            Family::Float => Shape::Text,
        })
    }

    /// The batch was answered: appends each waiter with its reply, in order. If there is
    /// more of its identity, [`Self::depart`] is to be called for it.
    pub fn answered(
        &mut self,
        batch: BatchId,
        answer: Answer,
        replies: &mut Vec<(W, Answer)>,
    ) -> Option<PoolId> {
        let slot = self.live(batch)?;
        let mut done = self.take_out(slot)?;
        let mut prefix: i64 = 0;
        self.combined += done.members.len() as u64 - 1;
        for member in done.members.drain(..) {
            prefix = prefix.wrapping_add(member.delta);
            let Some(waiter) = member.waiter else { continue };
            let reply = match answer {
                // Wrapping is exact: the value before and every sum are within 64 bits.
                Answer::Integer(result) => {
                    Answer::Integer(result.wrapping_sub(done.total).wrapping_add(prefix))
                }
                Answer::Ok => Answer::Ok,
            };
            replies.push((waiter, reply));
        }
        self.pools[slot as usize].spare = done.members;
        self.advance(slot)
    }

    /// The server refused the batch and changed nothing. Increments that were combined go out
    /// one by one, before anything else of their identity; a lone one, and all `SET`s of a
    /// batch (whatever refused the last refuses each), are appended to get the error.
    ///
    /// Not for `MOVED` and its kin: there the same request goes elsewhere.
    pub fn refused(&mut self, batch: BatchId, waiters: &mut Vec<W>) -> Option<PoolId> {
        let slot = self.live(batch)?;
        let refused = self.take_out(slot)?;
        let pool = &mut self.pools[slot as usize];
        if refused.members.len() > 1 && pool.family != Family::Set {
            self.members += refused.members.len();
            pool.single_out(refused.members);
        } else {
            waiters.extend(refused.members.into_iter().filter_map(|member| member.waiter));
        }
        self.advance(slot)
    }

    /// The batch was answered with something that its waiter, which is appended, gets as it is.
    pub fn relayed(&mut self, batch: BatchId, waiters: &mut Vec<W>) -> Option<PoolId> {
        debug_assert_eq!(self.shape(batch).unwrap_or(Shape::AsIs), Shape::AsIs, "one waiter");
        self.lost(batch, waiters)
    }

    /// Nobody knows whether the batch was executed: its waiters are appended to be told so.
    /// It is not sent again.
    pub fn lost(&mut self, batch: BatchId, waiters: &mut Vec<W>) -> Option<PoolId> {
        let slot = self.live(batch)?;
        let lost = self.take_out(slot)?;
        waiters.extend(lost.members.into_iter().filter_map(|member| member.waiter));
        self.advance(slot)
    }

    /// Appends those who have waited too long and were not sent: nothing of theirs was or
    /// will be executed.
    pub fn expired(&mut self, now: Duration, waiters: &mut Vec<W>) {
        let Some(since) = now.checked_sub(self.limits.max_wait) else { return };
        for (_, pool) in &mut self.pools {
            self.members -= pool.expire(since, waiters);
        }
    }

    /// When [`Self::expired`] has something to do next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let oldest = self.pools.iter().filter_map(|(_, pool)| pool.oldest()).min()?;
        Some(oldest.saturating_add(self.limits.max_wait))
    }

    /// Forgets waiters that are gone; returns how many. What they asked for is still done, as
    /// a server does with what it has received.
    pub fn leave(&mut self, mut is_gone: impl FnMut(&W) -> bool) -> usize {
        self.pools.iter_mut().map(|(_, pool)| pool.leave(&mut is_gone)).sum()
    }

    /// Whether a write of a key waits or is out, of a login that `counts`: the same name in another
    /// database is another key.
    pub fn concerns(&self, key: &[u8], counts: impl Fn(LoginId) -> bool) -> bool {
        self.pools.iter().any(|(_, pool)| *pool.key == *key && counts(pool.login))
    }

    /// Writes that wait or are out.
    pub fn len(&self) -> usize {
        self.members
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members == 0
    }

    /// Writes that were executed as part of another, since the start.
    pub fn combined(&self) -> u64 {
        self.combined
    }

    fn hash(&self, login: LoginId, change: &Change<'_>) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u32(login.0);
        hasher.write(change.key());
        hasher.write(change.field().unwrap_or_default());
        hasher.write_u8(change.family() as u8);
        hasher.finish()
    }

    fn open(&mut self, hash: u64, login: LoginId, change: &Change<'_>) -> u32 {
        let mut pool = Pool::new(hash, login, change);
        if let (of, crowd) = self.crowds[hash as usize % REMEMBERED]
            && of == hash
        {
            pool.crowd = crowd;
        }
        let slot = self.pools.insert(pool) as u32;
        let Self { pools, table, .. } = self;
        table.insert_unique(hash, slot, |&other| pools[other as usize].hash);
        slot
    }

    fn live(&self, batch: BatchId) -> Option<u32> {
        let pool = self.pools.get(batch.pool as usize)?;
        let (serial, _) = pool.out.as_ref()?;
        (*serial == batch.serial).then_some(batch.pool)
    }

    fn take_out(&mut self, slot: u32) -> Option<Batch<W>> {
        let (_, batch) = self.pools[slot as usize].out.take()?;
        self.members -= batch.members.len();
        Some(batch)
    }

    /// Whether there is more to send; a pool with nothing left is closed.
    fn advance(&mut self, slot: u32) -> Option<PoolId> {
        if self.pools[slot as usize].has_next() {
            return Some(PoolId(slot));
        }
        self.close(slot);
        None
    }

    fn close(&mut self, slot: u32) {
        let hash = self.pools[slot as usize].hash;
        if let Ok(found) = self.table.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        let pool = self.pools.remove(slot as usize);
        self.crowds[hash as usize % REMEMBERED] = (hash, pool.crowd);
    }
}
