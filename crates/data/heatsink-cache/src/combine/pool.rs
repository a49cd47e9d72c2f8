//! The writes of one identity: the batch that is out, what must go alone, what fills.
//!
//! Invariant: members of one connection leave in the order in which they came.

use std::collections::VecDeque;
use std::mem::take;
use std::time::Duration;

use super::change::{Change, Family, Form, text};
use super::guarded;
use super::hold::Crowd;
use crate::identity::LoginId;

/// One write of a batch.
#[derive(Debug)]
pub(super) struct Member<W> {
    /// `None`: gone; its write is done nevertheless.
    pub(super) waiter: Option<W>,
    pub(super) delta: i64,
    form: Form,
    connection: u64,
    /// When it came.
    since: Duration,
}

impl<W> Member<W> {
    pub(super) fn new(waiter: W, connection: u64, since: Duration, change: &Change<'_>) -> Self {
        let (delta, form) = match *change {
            Change::Add { delta, form, .. } => (delta, form),
            Change::Set { .. } => (0, Form::Incr),
        };
        Self { waiter: Some(waiter), delta, form, connection, since }
    }
}

/// Writes that leave as one.
#[derive(Debug)]
pub(super) struct Batch<W> {
    pub(super) members: Vec<Member<W>>,
    /// Sum of the members' deltas, all of one sign.
    pub(super) total: i64,
    /// Of `SET`s, the value of the last.
    value: Vec<u8>,
}

impl<W> Batch<W> {
    fn empty(members: Vec<Member<W>>) -> Self {
        Self { members, total: 0, value: Vec::new() }
    }

    fn takes(&self, delta: i64, family: Family, limit: usize) -> bool {
        let one_sign = self.total == 0 || delta == 0 || (self.total < 0) == (delta < 0);
        let most = if family.is_guarded() { guarded::WHOLE_MAX.unsigned_abs() } else { 1 << 63 };
        let total = self.total.checked_add(delta);
        let fits = total.is_some_and(|total| total.unsigned_abs() <= most);
        one_sign && self.members.len() < limit && fits
    }

    fn push(&mut self, member: Member<W>) {
        self.total += member.delta;
        self.members.push(member);
    }
}

#[derive(Debug)]
pub(super) struct Pool<W> {
    pub(super) hash: u64,
    pub(super) login: LoginId,
    pub(super) key: Box<[u8]>,
    field: Option<Box<[u8]>>,
    pub(super) family: Family,
    pub(super) out: Option<(u64, Batch<W>)>,
    /// Members of a batch that the server refused: each goes alone, before all others.
    pub(super) singles: VecDeque<Member<W>>,
    filling: VecDeque<Batch<W>>,
    /// The empty buffer of a batch that ended, for the next.
    pub(super) spare: Vec<Member<W>>,
    /// Who writes it.
    pub(super) crowd: Crowd,
}

impl<W> Pool<W> {
    pub(super) fn new(hash: u64, login: LoginId, change: &Change<'_>) -> Self {
        Self {
            hash,
            login,
            key: change.key().into(),
            field: change.field().map(Into::into),
            family: change.family(),
            out: None,
            singles: VecDeque::new(),
            filling: VecDeque::new(),
            spare: Vec::new(),
            crowd: Crowd::default(),
        }
    }

    pub(super) fn is_of(&self, login: LoginId, change: &Change<'_>) -> bool {
        self.login == login
            && self.family == change.family()
            && *self.key == *change.key()
            && self.field.as_deref() == change.field()
    }

    /// Puts a member into the first batch that takes it. Batches before one that holds a
    /// write of the same connection are closed to it:
    ///   1. filling: [+1 of A] [-1 of B]    2. B increments by 1
    ///   3. in the first batch it would be executed before B's decrement.
    ///
    /// True if it is the first of its batch.
    pub(super) fn add(&mut self, member: Member<W>, change: &Change<'_>, limit: usize) -> bool {
        let is_own = |batch: &Batch<W>| {
            batch.members.iter().any(|other| other.connection == member.connection)
        };
        // The first batch is before nothing: with one batch there is nothing to look for.
        let first =
            (1..self.filling.len()).rev().find(|&at| is_own(&self.filling[at])).unwrap_or(0);
        let place = (first..self.filling.len())
            .find(|&at| self.filling[at].takes(member.delta, self.family, limit))
            .unwrap_or_else(|| {
                self.filling.push_back(Batch::empty(take(&mut self.spare)));
                self.filling.len() - 1
            });
        let batch = &mut self.filling[place];
        batch.push(member);
        if let Change::Set { value, .. } = change {
            batch.value.clear();
            batch.value.extend_from_slice(value);
        }
        batch.members.len() == 1
    }

    /// Whether anything waits to be sent.
    pub(super) fn has_next(&self) -> bool {
        !self.singles.is_empty() || !self.filling.is_empty()
    }

    /// Members of the batch that is next; none if a single one is.
    pub(super) fn waiting(&self) -> usize {
        let next = self.filling.front().filter(|_| self.singles.is_empty());
        next.map_or(0, |batch| batch.members.len())
    }

    pub(super) fn take_next(&mut self) -> Option<Batch<W>> {
        let Some(single) = self.singles.pop_front() else { return self.filling.pop_front() };
        let mut alone = Batch::empty(take(&mut self.spare));
        alone.push(single);
        Some(alone)
    }

    pub(super) fn encode(&self, request: &mut Vec<u8>) {
        let Some((_, batch)) = &self.out else { return };
        let (key, field) = (&*self.key, self.field.as_deref());
        let change = match &*batch.members {
            _ if self.family == Family::Set => Change::Set { key, value: &batch.value },
            [one] => Change::Add { key, field, delta: one.delta, form: one.form },
            _ if self.family.is_guarded() => {
                let mut buffer = [0; 20];
                return guarded::encode(request, key, field, text(&mut buffer, batch.total));
            }
            _ => {
                let form = if field.is_some() { Form::HIncrBy } else { Form::IncrBy };
                Change::Add { key, field, delta: batch.total, form }
            }
        };
        change.encode(request);
    }

    /// Members of a batch that the server refused go alone; so do, of a family that is refused
    /// for its value or for the script, those who wait: it would be the same with them.
    pub(super) fn single_out(&mut self, refused: Vec<Member<W>>) {
        self.singles.extend(refused);
        if self.family.is_guarded() {
            self.singles.extend(self.filling.drain(..).flat_map(|batch| batch.members));
        }
    }

    /// Removes what came at `since` or before; returns how many members that were.
    ///
    /// What counts is when each came, not a deadline that it was given then. Of `SET`s only the value
    /// of the last is kept, so the last must not go before the others:
    ///
    /// 1. A's `SET` waits, with a second to go       2. the longest wait is lowered
    /// 3. B's `SET` joins, with a deadline before A's: B is told that it was not carried out
    /// 4. the batch leaves for A, with B's value
    pub(super) fn expire(&mut self, since: Duration, waiters: &mut Vec<W>) -> usize {
        let mut count = 0;
        let mut is_late = |member: &mut Member<W>| {
            let late = member.since <= since;
            if late {
                count += 1;
                waiters.extend(member.waiter.take());
            }
            late
        };
        self.singles.retain_mut(|member| !is_late(member));
        for batch in &mut self.filling {
            batch.members.retain_mut(|member| !is_late(member));
            batch.total = batch.members.iter().map(|member| member.delta).sum();
        }
        self.filling.retain(|batch| !batch.members.is_empty());
        count
    }

    /// When the first of those who wait came.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let filling = self.filling.iter().flat_map(|batch| &batch.members);
        self.singles.iter().chain(filling).map(|member| member.since).min()
    }

    pub(super) fn leave(&mut self, is_gone: &mut impl FnMut(&W) -> bool) -> usize {
        let out = self.out.iter_mut().flat_map(|(_, batch)| &mut batch.members);
        let filling = self.filling.iter_mut().flat_map(|batch| &mut batch.members);
        let mut left = 0;
        for member in out.chain(&mut self.singles).chain(filling) {
            if member.waiter.as_ref().is_some_and(&mut *is_gone) {
                member.waiter = None;
                left += 1;
            }
        }
        left
    }
}
