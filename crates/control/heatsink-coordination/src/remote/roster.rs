//! The members as last heard, so that a heartbeat need not list all of them.
//!
//! Called by: `remote`, for each heartbeat.
//! Bound: as many members as the store has. Between two full lists there are [`LEAST_PERIOD`]
//! to [`MOST_PERIOD`], longer the more members there are: what a fleet reads grows with its
//! size, not with the square of it.
//! Invariant: who is in the list is as the store said with the last heartbeat; what they say
//! of themselves may be as old as the last full list. A failover that undoes a join and counts
//! another in its place is noticed with the next full list.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::Member;

const LEAST_PERIOD: Duration = Duration::from_secs(1);
const MOST_PERIOD: Duration = Duration::from_secs(10);
const PERIOD_PER_MEMBER: Duration = Duration::from_millis(25);

/// What came with a heartbeat.
#[derive(Debug, Default)]
pub(super) struct Beat {
    /// The membership's version.
    pub(super) version: u64,
    /// The members are all there are.
    pub(super) is_full: bool,
    /// All ids, if they are not those that were known.
    pub(super) ids: Vec<String>,
    /// All members, or those that are new.
    pub(super) members: Vec<Member>,
}

/// The list.
#[derive(Default)]
pub(super) struct Roster {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    version: u64,
    bodies: BTreeMap<String, Vec<u8>>,
    full_at: Option<Instant>,
}

impl Roster {
    /// The version to tell the store; 0 when it is time for a full list.
    pub(super) fn known_version(&self) -> u64 {
        let list = self.lock();
        let members = u32::try_from(list.bodies.len()).unwrap_or(u32::MAX);
        let period = PERIOD_PER_MEMBER.saturating_mul(members).clamp(LEAST_PERIOD, MOST_PERIOD);
        let is_fresh = list.full_at.is_some_and(|at| at.elapsed() < period);
        if is_fresh { list.version } else { 0 }
    }

    /// The members, after a heartbeat of `id` that said that `known` was known; `None` if the
    /// store has to be asked for all of them.
    pub(super) fn take_in(
        &self,
        known: u64,
        beat: Beat,
        id: &str,
        body: &[u8],
    ) -> Option<Vec<Member>> {
        let mut list = self.lock();
        if beat.is_full {
            list.bodies.clear();
            list.full_at = Some(Instant::now());
        } else if list.version != known {
            // Another heartbeat through this handle was faster.
            return None;
        }
        let has_changed = beat.version != known;
        list.version = beat.version;
        let new = beat.members.into_iter().map(|member| (member.id, member.body));
        list.bodies.extend(new);
        list.bodies.insert(id.to_owned(), body.to_vec());
        if has_changed && !beat.is_full {
            if !beat.ids.iter().all(|id| list.bodies.contains_key(id)) {
                return None;
            }
            let mut ids = beat.ids;
            ids.sort_unstable();
            list.bodies.retain(|id, _| ids.binary_search(id).is_ok());
        }
        let member =
            |(id, body): (&String, &Vec<u8>)| Member { id: id.clone(), body: body.clone() };
        Some(list.bodies.iter().map(member).collect())
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
