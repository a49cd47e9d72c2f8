//! A model of the coordination store: what its scripts promise, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use heatsink_control::entry::{Entry, Origin};
use heatsink_control::member::Member;
use heatsink_control::registry::{Change, Snapshot, Stored, What};

/// How long a heartbeat counts.
const PRESENCE: Duration = Duration::from_secs(2);

/// What a process asks of the store.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few of them at a time")]
pub(crate) enum Request {
    Snapshot,
    Beat(Member),
    Sweep,
    Put {
        key: Vec<u8>,
        entry: Entry,
        expects: Option<u64>,
        ttl: Option<Duration>,
        respects_block: bool,
    },
    Remove {
        key: Vec<u8>,
        expects: Option<u64>,
        block_for: Option<Duration>,
    },
    Renew {
        key: Vec<u8>,
        epoch: u64,
        ttl: Duration,
    },
    Report(Vec<u8>),
    Watch(Vec<u8>),
}

/// What the store answers.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few of them at a time")]
pub(crate) enum Reply {
    Snapshot(Snapshot),
    Members(Vec<Member>),
    Applied(Change),
    Refused,
    Renewed { key: Vec<u8>, epoch: u64, ttl: Duration },
    Done,
    Unreachable,
}

#[derive(Clone, Debug)]
struct Kept {
    epoch: u64,
    entry: Entry,
    expires_at: Option<Duration>,
}

/// The store's data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    incarnation: u64,
    version: u64,
    records: BTreeMap<Vec<u8>, Kept>,
    blocked: BTreeMap<Vec<u8>, Duration>,
    members: BTreeMap<String, (Duration, Member)>,
    /// Every change that took effect, with its time, for the tests to look at.
    pub(crate) history: Vec<(Duration, Change)>,
    pub(crate) is_down: bool,
}

impl Store {
    /// Loses everything, as a server without persistence that was restarted.
    pub(crate) fn lose(&mut self) {
        *self = Self {
            incarnation: self.incarnation + 1,
            history: std::mem::take(&mut self.history),
            ..Self::default()
        };
    }

    /// Goes back to an earlier state, as after a failover to a replica that was behind.
    pub(crate) fn roll_back(&mut self, earlier: Self) {
        let history = std::mem::take(&mut self.history);
        *self = Self { history, ..earlier };
    }

    pub(crate) fn epoch(&self, key: &[u8]) -> Option<u64> {
        self.records.get(key).map(|kept| kept.epoch)
    }

    pub(crate) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.records.get(key).map(|kept| &kept.entry)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn epochs(&self) -> BTreeMap<Vec<u8>, u64> {
        self.records.iter().map(|(key, kept)| (key.clone(), kept.epoch)).collect()
    }

    /// Runs a request; the changes it made.
    pub(crate) fn run(&mut self, now: Duration, request: Request) -> (Reply, Vec<Change>) {
        match request {
            Request::Snapshot => (Reply::Snapshot(self.snapshot(now)), Vec::new()),
            Request::Beat(member) => {
                self.members.insert(member.id.clone(), (now, member));
                self.members.retain(|_, (seen, _)| now.saturating_sub(*seen) <= PRESENCE);
                let live = self.members.values().map(|(_, member)| member.clone()).collect();
                (Reply::Members(live), Vec::new())
            }
            Request::Sweep => {
                let over = |kept: &Kept| kept.expires_at.is_some_and(|end| end <= now);
                let dead: Vec<Vec<u8>> = self
                    .records
                    .iter()
                    .filter(|(_, kept)| over(kept))
                    .map(|(key, _)| key.clone())
                    .collect();
                let changes = dead.into_iter().map(|key| self.remove(now, key, None)).collect();
                (Reply::Done, changes)
            }
            Request::Put { key, entry, expects, ttl, respects_block } => {
                let blocked = self.blocked.get(&key).is_some_and(|until| *until > now);
                if self.is_stale(&key, expects) || respects_block && blocked {
                    return (Reply::Refused, Vec::new());
                }
                self.blocked.remove(&key);
                self.version += 1;
                let kept = Kept {
                    epoch: self.version,
                    entry: entry.clone(),
                    expires_at: ttl.map(|ttl| now + ttl),
                };
                self.records.insert(key.clone(), kept);
                let what = What::Put { entry, remaining: ttl };
                self.applied(now, Change { version: self.version, key, what })
            }
            Request::Remove { key, expects, block_for } => {
                if self.is_stale(&key, expects) {
                    return (Reply::Refused, Vec::new());
                }
                if !self.records.contains_key(&key) {
                    let blocks = block_for.is_some().then(|| self.remove(now, key, block_for));
                    return (Reply::Refused, blocks.into_iter().collect());
                }
                let change = self.remove(now, key, block_for);
                (Reply::Applied(change.clone()), vec![change])
            }
            Request::Renew { key, epoch, ttl } => match self.records.get_mut(&key) {
                Some(kept) if kept.epoch == epoch => {
                    kept.expires_at = Some(now + ttl);
                    (Reply::Renewed { key, epoch, ttl }, Vec::new())
                }
                _ => (Reply::Refused, Vec::new()),
            },
            Request::Report(_) | Request::Watch(_) => (Reply::Done, Vec::new()),
        }
    }

    fn is_stale(&self, key: &[u8], expects: Option<u64>) -> bool {
        expects.is_some_and(|epoch| self.epoch(key).unwrap_or(0) != epoch)
    }

    fn remove(&mut self, now: Duration, key: Vec<u8>, blocked_for: Option<Duration>) -> Change {
        self.records.remove(&key);
        if let Some(time) = blocked_for {
            self.blocked.insert(key.clone(), now + time);
        }
        self.version += 1;
        let change = Change { version: self.version, key, what: What::Removed { blocked_for } };
        self.history.push((now, change.clone()));
        change
    }

    fn applied(&mut self, now: Duration, change: Change) -> (Reply, Vec<Change>) {
        self.history.push((now, change.clone()));
        (Reply::Applied(change.clone()), vec![change])
    }

    fn snapshot(&self, now: Duration) -> Snapshot {
        let left = |end: Duration| end.saturating_sub(now);
        let stored = |kept: &Kept| Stored {
            epoch: kept.epoch,
            entry: kept.entry.clone(),
            remaining: kept.expires_at.map(left),
        };
        Snapshot {
            incarnation: self.incarnation.to_be_bytes().to_vec(),
            version: self.version,
            records: self.records.iter().map(|(key, kept)| (key.clone(), stored(kept))).collect(),
            blocked: self
                .blocked
                .iter()
                .filter(|(_, until)| **until > now)
                .map(|(key, until)| (key.clone(), left(*until)))
                .collect(),
        }
    }

    /// Puts of a key that took effect, and whether each was automatic.
    pub(crate) fn puts(&self, key: &[u8]) -> Vec<(Duration, Origin)> {
        let of_key = self.history.iter().filter(|(_, change)| change.key == key);
        of_key
            .filter_map(|(at, change)| match &change.what {
                What::Put { entry, .. } => Some((*at, entry.origin)),
                What::Removed { .. } => None,
            })
            .collect()
    }

    /// When a key was removed.
    pub(crate) fn removals(&self, key: &[u8]) -> Vec<Duration> {
        let removed = |change: &Change| matches!(change.what, What::Removed { .. });
        let of_key = self.history.iter().filter(|(_, change)| change.key == key);
        of_key.filter(|(_, change)| removed(change)).map(|(at, _)| *at).collect()
    }
}
