//! What the registry holds of a key whose value is moved, or has been.
//!
//! Called by: movers and operators write a [`SplitRecord`], every proxy reads it.
//! Invariant: an entry with a split record is not removed and does not expire. The split ends by
//! draining: the value is made whole, and only then is the split record, or the whole entry, removed.
//! The mitigation and factor of an entry say what is wanted, and may change at any time; the split record
//! says where the value is.

use serde::{Deserialize, Serialize};

use super::{Entry, Mitigation, Status};

/// Where a split stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Writes are held; the value is at the key, and is about to be moved.
    Freezing,
    /// The value is in the shards.
    Split,
    /// Writes are held; the value is moved back.
    Draining,
}

impl Phase {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Freezing, Self::Split, Self::Draining];

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freezing => "freezing",
            Self::Split => "split",
            Self::Draining => "draining",
        }
    }
}

/// A split of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitRecord {
    /// Never used again.
    pub id: String,
    /// What the key holds, by its name in manifests.
    pub kind: String,
    /// The hash tag of each shard.
    pub tags: Vec<String>,
    /// The key has a time to live.
    #[serde(default)]
    pub expires: bool,
    /// Where it stands.
    pub phase: Phase,
    /// The member that moves the value; empty if nobody has begun.
    #[serde(default)]
    pub mover: String,
    /// When the entry ends, in milliseconds of Unix time: the store is not told, because the
    /// value has to be made whole first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at_ms: Option<u64>,
    /// The entry is removed once the value is whole, and its key is blocked for so many
    /// milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
}

impl SplitRecord {
    /// The kind of a record of copies: the value stays where it is, and is elsewhere, too.
    pub const COPIES: &str = "copies";

    /// Physical keys that the value is in; of copies, how many there are.
    pub fn shards(&self) -> u32 {
        u32::try_from(self.tags.len()).unwrap_or(u32::MAX)
    }

    /// Whether it is about copies.
    pub fn is_copies(&self) -> bool {
        self.kind == Self::COPIES
    }
}

/// What follows when the value is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// How long the key is not promoted automatically; 0: it may be at once.
    pub block_ms: u64,
}

/// Why a key that should be split is not, and until when that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// In milliseconds of Unix time.
    pub until_ms: u64,
    /// How long it is; the next one is longer.
    pub length_ms: u64,
    /// In words.
    pub why: String,
}

impl Pause {
    /// A pause from now on, twice as long as the one before if that was recent.
    pub fn after(
        before: Option<&Self>,
        now_ms: u64,
        shortest_ms: u64,
        longest_ms: u64,
        why: String,
    ) -> Self {
        let recent = before.filter(|pause| now_ms < pause.until_ms + longest_ms);
        let length_ms = recent.map_or(shortest_ms, |pause| pause.length_ms.saturating_mul(2));
        let length_ms = length_ms.clamp(shortest_ms, longest_ms);
        Self { until_ms: now_ms + length_ms, length_ms, why }
    }
}

impl Entry {
    /// Whether the value is to be in shards.
    pub fn wants_split(&self) -> bool {
        let goes = self.split.as_ref().is_some_and(|split| split.removal.is_some());
        self.mitigation == Mitigation::Split && !self.dry_run && self.split_factor > 1 && !goes
    }

    /// Whether there are to be copies of the value.
    pub fn wants_copies(&self) -> bool {
        let goes = self.split.as_ref().is_some_and(|split| split.removal.is_some());
        self.mitigation == Mitigation::Copies && !self.dry_run && !goes
    }

    /// Whether the value is to be moved or copied, and nothing of that has begun.
    pub fn is_pending(&self) -> bool {
        self.split.is_none() && (self.wants_split() || self.wants_copies())
    }

    /// The status of an entry by itself: while its value is to be moved and nobody has begun, it is a
    /// candidate.
    pub fn shown_status(&self) -> Status {
        if self.status == Status::Active && self.is_pending() {
            Status::Candidate
        } else {
            self.status
        }
    }

    /// Whether an operator brought it in.
    pub fn is_manual(&self) -> bool {
        self.origin == super::Origin::Manual
    }

    /// Whether the value is split or copied in a way that this entry does not want any more.
    pub fn outgrew_split(&self, now_ms: u64) -> bool {
        self.split.as_ref().is_some_and(|split| {
            let is_over = split.ends_at_ms.is_some_and(|end| end <= now_ms);
            let is_wanted = if split.is_copies() {
                self.wants_copies()
            } else {
                self.wants_split() && split.shards() == self.split_factor
            };
            !is_wanted || is_over
        })
    }

    /// This entry with its split draining, which no mover has begun yet; none if its value was not moved,
    /// or is on its way.
    #[must_use]
    pub fn draining(&self) -> Option<Self> {
        let split = self.split.as_ref().filter(|split| split.phase == Phase::Split)?;
        let split = SplitRecord { phase: Phase::Draining, mover: String::new(), ..split.clone() };
        Some(Self { status: Status::Draining, split: Some(split), ..self.clone() })
    }

    /// This entry, to be removed once its value is whole; none if the value was not moved.
    #[must_use]
    pub fn leaving(&self, block_ms: u64) -> Option<Self> {
        let mut entry = self.draining().unwrap_or_else(|| self.clone());
        entry.split.as_mut()?.removal = Some(Removal { block_ms });
        Some(entry)
    }

    /// The entry that takes the place of `self`: `wanted`, with the split record of `self`, because where the
    /// value is does not change with what is wanted.
    #[must_use]
    pub fn replaced_by(&self, wanted: Self, now_ms: u64) -> Self {
        let Some(split) = &self.split else { return wanted };
        let ends_at_ms = wanted.ttl_seconds.filter(|_| wanted.origin == super::Origin::Manual);
        let split = SplitRecord {
            ends_at_ms: ends_at_ms.map(|seconds| now_ms + seconds * 1000),
            removal: None,
            ..split.clone()
        };
        let status = match split.phase {
            Phase::Freezing => Status::Freezing,
            Phase::Split => Status::Active,
            Phase::Draining => Status::Draining,
        };
        let entry = Self { split: Some(split), status, ..wanted };
        if entry.outgrew_split(now_ms) { entry.draining().unwrap_or(entry) } else { entry }
    }
}

#[cfg(test)]
mod tests;
