//! The watch list: keys that are not hot by what was reported, but might be in the sum.
//!
//! A proxy tells of a key only from its floor on, a share of the threshold. So a key may be
//! reported by some proxies and be over the threshold with what the others do not tell. Such
//! keys are put on this list; then every proxy tells its count, and the sum is exact.
//!
//! Called by: the aggregator, each tick.
//! Bound: `watch_keys`. A full list is chosen anew at most once in `watch_interval`; in
//! between only free places are filled, so that a crowd near the floor makes no traffic.

use std::collections::HashSet;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::larger_first;
use crate::settings::Settings;
use crate::sums::KeySum;

/// The list as it was last published.
#[derive(Debug, Default)]
pub(super) struct Watch {
    list: Vec<Vec<u8>>,
    published_at: Option<Duration>,
}

impl Watch {
    /// Chooses from the keys that are near; the list, if it has to be published.
    pub(super) fn choose(
        &mut self,
        now: Duration,
        settings: &Settings,
        mut near: Vec<&KeySum>,
    ) -> Option<Vec<Vec<u8>>> {
        let most = settings.watch_keys;
        let due =
            self.published_at.is_none_or(|at| now.saturating_sub(at) >= settings.watch_interval);
        if !due && self.list.len() >= most {
            return None;
        }
        if due {
            if near.len() > most && most > 0 {
                near.select_nth_unstable_by(most - 1, |a, b| larger_first(a, b));
                near.truncate(most);
            }
            near.sort_unstable_by(|a, b| larger_first(a, b));
            self.list = near.into_iter().map(|sum| sum.key().to_vec()).take(most).collect();
        } else {
            let known: HashSet<&[u8], RandomState> = self.list.iter().map(Vec::as_slice).collect();
            near.retain(|sum| !known.contains(sum.key()));
            if near.is_empty() {
                return None;
            }
            near.sort_unstable_by(|a, b| larger_first(a, b));
            let room = most - self.list.len();
            self.list.extend(near.into_iter().take(room).map(|sum| sum.key().to_vec()));
        }
        if self.list.is_empty() {
            return None;
        }
        self.published_at = Some(now);
        Some(self.list.clone())
    }

    /// The keys on it.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().map(Vec::as_slice)
    }
}
