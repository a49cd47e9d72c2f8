//! What becomes of keys that have a record: renewed, changed or retired.
//!
//! Called by: the aggregator, each tick, for each automatic record.
//! Invariant: a record is retired only after its key was below the retire fraction at every
//! tick of the hold time, all of them with every live proxy heard; ticks without that do not
//! count, and a quarter of the window is counted as hold, since it lags. A record that this aggregator did not propose is taken as hot since it was seen.

use std::time::Duration;

use heatsink_detect::heat::HeatKind;

use super::{Aggregator, Intent, MAX_INTENTS, reaches};
use crate::decision::Decision;
use crate::entry::{Entry, Mitigation, Origin};
use crate::registry::{Record, Registry};
use crate::sums::KeySum;

/// What this aggregator remembers of a record.
#[derive(Debug)]
pub(super) struct Track {
    epoch: u64,
    /// When a record of this epoch was first seen here.
    since: Duration,
    /// The first tick without a break that found the key below the retire fraction.
    below_since: Option<Duration>,
    /// The same for a decision other than what the record says.
    differs_since: Option<Duration>,
    asked_at: Option<Duration>,
    renewed_at: Option<Duration>,
    /// The tick that last saw the record.
    seen_at: Duration,
}

impl Track {
    fn new(epoch: u64, now: Duration) -> Self {
        Self {
            epoch,
            since: now,
            below_since: None,
            differs_since: None,
            asked_at: None,
            renewed_at: None,
            seen_at: now,
        }
    }
}

impl Aggregator {
    /// Looks at all records.
    pub(super) fn review(&mut self, now: Duration, registry: &Registry, intents: &mut Vec<Intent>) {
        let mut tracks = std::mem::take(&mut self.tracks);
        for (key, record) in registry.iter() {
            if record.entry.origin != Origin::Auto {
                continue;
            }
            if !tracks.contains_key(key) {
                tracks.insert(key.to_vec(), Track::new(record.epoch, now));
            }
            let Some(track) = tracks.get_mut(key) else { continue };
            if track.epoch != record.epoch {
                *track = Track::new(record.epoch, now);
            }
            track.seen_at = now;
            if let Some(intent) = self.review_one(now, key, record, track) {
                if intents.len() >= MAX_INTENTS {
                    continue;
                }
                match intent {
                    Intent::Renew { .. } => track.renewed_at = Some(now),
                    _ => track.asked_at = Some(now),
                }
                intents.push(intent);
            }
        }
        tracks.retain(|_, track| track.seen_at == now);
        self.tracks = tracks;
    }

    fn review_one(
        &self,
        now: Duration,
        key: &[u8],
        record: &Record,
        track: &mut Track,
    ) -> Option<Intent> {
        let retry = self.settings.retry;
        let rested = |at: Option<Duration>| at.is_none_or(|at| now.saturating_sub(at) >= retry);
        let expects_epoch = record.epoch;
        if self.is_cold(now, key, track) && rested(track.asked_at) {
            return Self::retire(key, record);
        }
        if rested(track.asked_at)
            && let Some(intent) = self.revise(now, key, record, track)
        {
            return Some(intent);
        }
        let ttl = self.settings.registry_ttl;
        let due = record.remaining(now).is_some_and(|left| left < ttl / 2);
        (due && rested(track.renewed_at)).then(|| Intent::Renew {
            key: key.to_vec(),
            expects_epoch,
            ttl,
        })
    }

    /// Ends a record; one whose value was moved ends when it is whole again. Nothing if it is
    /// on its way.
    fn retire(key: &[u8], record: &Record) -> Option<Intent> {
        let (key, expects_epoch) = (key.to_vec(), record.epoch);
        let Some(split) = &record.entry.split else {
            return Some(Intent::Remove { key, expects_epoch });
        };
        let entry = record.entry.leaving(0).filter(|_| split.removal.is_none())?;
        Some(Intent::Put { key, entry, expects_epoch, ttl: None })
    }

    /// Whether the key has cooled down for good.
    fn is_cold(&self, now: Duration, key: &[u8], track: &mut Track) -> bool {
        let thresholds = self.settings.thresholds(&self.policies.of(key));
        let fraction = self.settings.detect.retire_fraction;
        let warm =
            self.sums.get(key).is_some_and(|sum| reaches(&sum.heat(), &thresholds, fraction));
        if warm {
            track.below_since = None;
            return false;
        }
        // The window lags behind: a key that stopped is seen below only when most of a window
        // has passed. Part of that counts as hold, so that the end is not late by all of it.
        let lag = self.settings.detect.window() / 4;
        let since = track.below_since.get_or_insert(now.saturating_sub(lag));
        if self.is_deaf {
            // The hold time does not go on: the proxy that is not heard may see requests.
            *since = (*since + now.saturating_sub(self.last_tick)).min(now);
            return false;
        }
        now.saturating_sub(*since) >= self.settings.detect.hold()
    }

    /// Another decision that has held for long, or that new policies ask for.
    fn revise(
        &self,
        now: Duration,
        key: &[u8],
        record: &Record,
        track: &mut Track,
    ) -> Option<Intent> {
        let policy = self.policies.of(key);
        let by_policy = self.policies_since >= track.since;
        if policy.own {
            return Self::retire(key, record);
        }
        if !policy.mode.counts() {
            return if by_policy { Self::retire(key, record) } else { None };
        }
        let sum = self.sums.get(key)?;
        let heat = sum.heat();
        let thresholds = self.settings.thresholds(&policy);
        let fraction = self.settings.detect.retire_fraction;
        let kind = HeatKind::ALL
            .into_iter()
            .find(|kind| heat.level(*kind) >= thresholds.of(*kind) * fraction)?;
        let decision = self.decision(sum, &heat, kind, thresholds.of(kind), policy)?;
        if !self.differs(&record.entry, &decision, sum) {
            track.differs_since = None;
            return None;
        }
        let since = *track.differs_since.get_or_insert(now);
        let forbidden = record.entry.dry_run != decision.dry_run
            || !(policy.mode.allows(record.entry.mitigation) || decision.dry_run);
        let long = now.saturating_sub(since) >= self.settings.detect.hold();
        if !(long || forbidden && by_policy) {
            return None;
        }
        let mut entry = self.entry(decision, &heat);
        entry.pause.clone_from(&record.entry.pause);
        Some(self.put(key, entry, Some(record)))
    }

    /// Whether a decision is worth a change. A split moves data: it is not taken back, and
    /// not narrowed, for a write rate that only wavers.
    fn differs(&self, entry: &Entry, decision: &Decision, sum: &KeySum) -> bool {
        if entry.dry_run != decision.dry_run {
            return true;
        }
        if entry.mitigation == Mitigation::Split {
            let settings = &self.settings;
            let low = settings.decision.node_writes_per_second * settings.detect.retire_fraction;
            return match decision.mitigation {
                Mitigation::Split => decision.split_factor > entry.split_factor,
                _ => sum.heat().writes_per_second < low,
            };
        }
        entry.mitigation != decision.mitigation || entry.split_factor != decision.split_factor
    }
}
