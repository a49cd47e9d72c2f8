//! The store within a process: for a single proxy, and for tests with a stopped clock.
//!
//! Called by: `store`.
//! Bound: the same limits as on a server; a call takes a lock and never waits.
//! Invariant: the same outcomes, versions and notices as the scripts give, in the same order;
//! one suite of tests runs against both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::error::StoreError;
use crate::inbox::{Inbox, Subscription};
use crate::model::{
    Blocked, Channel, Expects, Member, Notice, Put, PutOutcome, Record, RemoveOutcome,
    RenewOutcome, Snapshot, whole_ms,
};
use crate::settings::Settings;

/// The place of this store, in words for subscribers.
const PLACE: &str = "memory";
/// A subscription in memory is never given up, so one session is all it has.
const SESSION: u64 = 1;

pub(crate) struct Memory {
    settings: Settings,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    incarnation: String,
    version: u64,
    records: HashMap<Vec<u8>, Kept>,
    /// Key -> until when.
    blocked: HashMap<Vec<u8>, u64>,
    /// Id -> body and until when.
    members: HashMap<String, (Vec<u8>, u64)>,
    /// Topic and member -> until when.
    acks: HashMap<(String, String), u64>,
    listeners: Vec<Listener>,
}

struct Kept {
    epoch: u64,
    created_at_ms: u64,
    expires_at_ms: Option<u64>,
    body: Vec<u8>,
}

struct Listener {
    inbox: Arc<Inbox>,
    channels: Vec<Channel>,
    session: u64,
}

/// Unix time that goes on as the runtime's clock does, which a test can stop and advance.
/// Starts with the first call, because a store may be made outside of a runtime.
struct Clock {
    start: std::sync::OnceLock<(u64, Instant)>,
}

impl Clock {
    fn now_ms(&self) -> u64 {
        let (start_ms, start) = self.start.get_or_init(|| (unix_ms(), Instant::now()));
        start_ms + start.elapsed().as_millis() as u64
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

impl Memory {
    pub(crate) fn new(settings: Settings) -> Self {
        let state = State {
            incarnation: format!("{:032x}", fastrand::u128(..)),
            version: unix_ms(),
            records: HashMap::new(),
            blocked: HashMap::new(),
            members: HashMap::new(),
            acks: HashMap::new(),
            listeners: Vec::new(),
        };
        let clock = Clock { start: std::sync::OnceLock::new() };
        Self { settings, clock, state: Mutex::new(state) }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn put(&self, key: &[u8], put: Put) -> PutOutcome {
        let (mut state, now_ms) = self.lock();
        let epoch = state.live_epoch(key, now_ms);
        if !put.expects.allows(epoch) {
            return PutOutcome::Stale { epoch };
        }
        if put.respects_block
            && let Some(remaining) = state.block_left(key, now_ms)
        {
            return PutOutcome::Blocked { remaining };
        }
        if epoch == 0 && state.records.len() >= self.settings.max_records {
            state.sweep(now_ms);
            if state.records.len() >= self.settings.max_records {
                return PutOutcome::Full;
            }
        }
        if !put.respects_block {
            state.blocked.remove(key);
        }
        let replaced = state.records.get(key).filter(|_| put.keep_created);
        let created_at_ms = replaced.map_or(now_ms, |old| old.created_at_ms);
        state.version += 1;
        let kept = Kept {
            epoch: state.version,
            created_at_ms,
            expires_at_ms: put.ttl.map(|ttl| now_ms + whole_ms(ttl)),
            body: put.body,
        };
        let record = kept.to_record(key, now_ms);
        state.records.insert(key.to_vec(), kept);
        state.tell(key, Some(&record));
        PutOutcome::Applied { version: record.epoch }
    }

    pub(crate) fn remove(
        &self,
        key: &[u8],
        expects: Expects,
        block_for: Option<Duration>,
    ) -> RemoveOutcome {
        let (mut state, now_ms) = self.lock();
        let epoch = state.live_epoch(key, now_ms);
        if !expects.allows(epoch) {
            return if epoch == 0 { RemoveOutcome::Absent } else { RemoveOutcome::Stale { epoch } };
        }
        if let Some(ttl) = block_for {
            state.block(key, now_ms, now_ms + whole_ms(ttl), self.settings.max_records);
        }
        if epoch == 0 {
            if block_for.is_some() {
                state.drop_record(key);
            }
            return RemoveOutcome::Absent;
        }
        RemoveOutcome::Applied { version: state.drop_record(key) }
    }

    pub(crate) fn renew(&self, key: &[u8], epoch: u64, ttl: Duration) -> RenewOutcome {
        let (mut state, now_ms) = self.lock();
        let found = state.live_epoch(key, now_ms);
        match state.records.get_mut(key) {
            Some(kept) if found == epoch => {
                kept.expires_at_ms = Some(now_ms + whole_ms(ttl));
                RenewOutcome::Applied
            }
            _ => RenewOutcome::Stale { epoch: found },
        }
    }

    pub(crate) fn sweep(&self) -> usize {
        let (mut state, now_ms) = self.lock();
        state.blocked.retain(|_, until_ms| *until_ms > now_ms);
        state.sweep(now_ms)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let (state, now_ms) = self.lock();
        let live = state.records.iter().filter(|(_, kept)| !kept.is_expired(now_ms));
        let left = |until_ms: u64| {
            let left_ms = until_ms.saturating_sub(now_ms);
            (left_ms > 0).then(|| Duration::from_millis(left_ms))
        };
        let blocked = state.blocked.iter().filter_map(|(key, until_ms)| {
            left(*until_ms).map(|remaining| Blocked { key: key.clone(), remaining })
        });
        Snapshot {
            incarnation: state.incarnation.clone(),
            version: state.version,
            server_time_ms: now_ms,
            records: live.map(|(key, kept)| kept.to_record(key, now_ms)).collect(),
            blocked: blocked.collect(),
        }
    }

    pub(crate) fn heartbeat(
        &self,
        id: &str,
        body: &[u8],
        ttl: Duration,
    ) -> Result<Vec<Member>, StoreError> {
        let (mut state, now_ms) = self.lock();
        let members = &mut state.members;
        members.retain(|_, (_, until_ms)| *until_ms > now_ms);
        let limit = self.settings.max_members;
        if !members.contains_key(id) && members.len() >= limit {
            return Err(StoreError::TooManyMembers { limit });
        }
        members.insert(id.to_owned(), (body.to_vec(), now_ms + whole_ms(ttl)));
        let member = |(id, (body, _)): (&String, &(Vec<u8>, u64))| Member {
            id: id.clone(),
            body: body.clone(),
        };
        Ok(members.iter().map(member).collect())
    }

    pub(crate) fn leave(&self, id: &str) {
        self.lock().0.members.remove(id);
    }

    pub(crate) fn acknowledge(&self, topic: &str, member: &str, ttl: Duration) {
        let (mut state, now_ms) = self.lock();
        state.acks.retain(|_, until_ms| *until_ms > now_ms);
        state.acks.insert((topic.to_owned(), member.to_owned()), now_ms + whole_ms(ttl));
    }

    pub(crate) fn acknowledged(&self, topic: &str) -> Vec<String> {
        let (mut state, now_ms) = self.lock();
        state.acks.retain(|_, until_ms| *until_ms > now_ms);
        let of_topic = state.acks.keys().filter(|(of, _)| of == topic);
        of_topic.map(|(_, member)| member.clone()).collect()
    }

    pub(crate) fn publish(&self, channel: Channel, body: &[u8]) {
        let (state, _) = self.lock();
        for listener in state.listeners.iter().filter(|one| one.channels.contains(&channel)) {
            listener.inbox.message(listener.session, channel.notice(body.to_vec()));
        }
    }

    pub(crate) fn subscribe(&self, channels: &[Channel]) -> Subscription {
        let (inbox, subscription) = Inbox::new(self.settings.queue_length);
        let version = self.attach(&inbox, channels, SESSION);
        tokio::spawn(async move {
            inbox.connected(SESSION, PLACE.to_owned()).await;
            inbox.confirm(SESSION, version);
            tokio::select! {
                () = inbox.mend(SESSION, PLACE) => {}
                () = inbox.closed() => {}
            }
        });
        subscription
    }

    /// Delivers all notices to an inbox from now on, as that session. Returns the version of this moment.
    pub(crate) fn attach(&self, inbox: &Arc<Inbox>, channels: &[Channel], session: u64) -> u64 {
        let listener = Listener { inbox: Arc::clone(inbox), channels: channels.to_vec(), session };
        let (mut state, _) = self.lock();
        state.listeners.retain(|one| !one.inbox.is_closed());
        state.listeners.push(listener);
        state.version
    }

    /// Delivers nothing more to an inbox.
    pub(crate) fn detach(&self, inbox: &Arc<Inbox>) {
        self.lock().0.listeners.retain(|one| !Arc::ptr_eq(&one.inbox, inbox));
    }

    /// Every change up to now has been told to an inbox.
    pub(crate) fn confirm(&self, inbox: &Inbox, session: u64) {
        let (state, _) = self.lock();
        inbox.confirm(session, state.version);
    }

    fn lock(&self) -> (MutexGuard<'_, State>, u64) {
        let now_ms = self.clock.now_ms();
        (self.state.lock().unwrap_or_else(PoisonError::into_inner), now_ms)
    }
}

impl State {
    /// The epoch of a key's record, 0 for none. One that has expired is removed first.
    fn live_epoch(&mut self, key: &[u8], now_ms: u64) -> u64 {
        match self.records.get(key) {
            None => 0,
            Some(kept) if kept.is_expired(now_ms) => {
                self.drop_record(key);
                0
            }
            Some(kept) => kept.epoch,
        }
    }

    fn block_left(&self, key: &[u8], now_ms: u64) -> Option<Duration> {
        let left_ms = self.blocked.get(key)?.saturating_sub(now_ms);
        (left_ms > 0).then(|| Duration::from_millis(left_ms))
    }

    fn block(&mut self, key: &[u8], now_ms: u64, until_ms: u64, limit: usize) {
        self.blocked.retain(|_, until_ms| *until_ms > now_ms);
        self.blocked.insert(key.to_vec(), until_ms);
        if self.blocked.len() > limit {
            let first = self.blocked.iter().min_by_key(|(key, until_ms)| (**until_ms, *key));
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                self.blocked.remove(&first);
            }
        }
    }

    fn sweep(&mut self, now_ms: u64) -> usize {
        let mut expired: Vec<(Option<u64>, Vec<u8>)> = self
            .records
            .iter()
            .filter(|(_, kept)| kept.is_expired(now_ms))
            .map(|(key, kept)| (kept.expires_at_ms, key.clone()))
            .collect();
        expired.sort();
        for (_, key) in &expired {
            self.drop_record(key);
        }
        expired.len()
    }

    fn drop_record(&mut self, key: &[u8]) -> u64 {
        self.records.remove(key);
        self.version += 1;
        self.tell(key, None);
        self.version
    }

    /// Tells the change that made the present version.
    fn tell(&self, key: &[u8], record: Option<&Record>) {
        for listener in &self.listeners {
            let (key, record) = (key.to_vec(), record.cloned());
            let notice = Notice::Change { version: self.version, key, record };
            listener.inbox.change(listener.session, notice);
            listener.inbox.confirm(listener.session, self.version);
        }
    }
}

impl Kept {
    fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= now_ms)
    }

    fn to_record(&self, key: &[u8], now_ms: u64) -> Record {
        let left = |expires_at_ms: u64| Duration::from_millis(expires_at_ms - now_ms);
        Record {
            key: key.to_vec(),
            epoch: self.epoch,
            created_at_ms: self.created_at_ms,
            expires_in: self.expires_at_ms.map(left),
            body: self.body.clone(),
        }
    }
}
