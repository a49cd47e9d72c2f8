//! Hits, and fills: the way of a reply into the cache.
//!
//! Invariant: a reply is stored only if nothing happened to its key and its link since the
//! token was made.

use std::time::Duration;

use super::entries::{NewEntry, entry_bytes};
use super::token::Fill;
use super::{FillToken, Hit, LocalCache, Lookup, Reason, Ttl};
use crate::identity::Reader;

/// The part of an entry's life at the end of which a refresh is asked for.
const REFRESH_FRACTION: f64 = 0.8;

impl LocalCache {
    /// Answers a read of `key`, which the caller has found cacheable for this reader.
    /// `command` is the whole request as received.
    #[inline]
    pub fn lookup(
        &mut self,
        now: Duration,
        reader: Reader,
        key: &[u8],
        command: &[u8],
    ) -> Lookup<'_> {
        let hash = self.entries.hash(reader, command);
        if let Some((slot, refresh)) = self.hit_slot(now, hash, reader, command) {
            return Lookup::Hit { reply: self.entries.at(slot).reply(), refresh };
        }
        match self.fill(now, hash, reader, key, command) {
            None => Lookup::NotRegistered,
            Some(token) if token.is_storable() => Lookup::Miss(token),
            Some(token) => Lookup::Bypass(token),
        }
    }

    /// The hit alone. An entry is there only for a cacheable command on a registered key, so a caller may try this first and classify
    /// only what missed.
    #[inline]
    pub fn hit(&mut self, now: Duration, reader: Reader, command: &[u8]) -> Option<Hit<'_>> {
        let hash = self.entries.hash(reader, command);
        let (slot, refresh) = self.hit_slot(now, hash, reader, command)?;
        let entry = self.entries.at(slot);
        Some(Hit { reply: entry.reply(), shared: entry.large_reply(), refresh })
    }

    /// A token for a fill that is sent now: a refresh, a read that may not be a hit, or one
    /// that was looked up some time ago. `None` if the key is not registered.
    pub fn fill_token(
        &mut self,
        now: Duration,
        reader: Reader,
        key: &[u8],
        command: &[u8],
    ) -> Option<FillToken> {
        let hash = self.entries.hash(reader, command);
        self.fill(now, hash, reader, key, command)
    }

    #[inline]
    fn hit_slot(
        &mut self,
        now: Duration,
        hash: u64,
        reader: Reader,
        command: &[u8],
    ) -> Option<(u32, bool)> {
        let slot = self.entries.find(hash, reader, command)?;
        let entry = self.entries.at(slot);
        if now >= entry.deadline {
            self.evict(slot, Reason::Deadline);
            return None;
        }
        let refresh = entry.touch(now);
        let (key, reply_len) = (entry.key, entry.reply().len());
        let key = self.keys.at(key);
        debug_assert!(key.pending == 0, "a pending key has no entries");
        key.counters.hits += 1;
        key.counters.bytes_served += reply_len as u64;
        key.counters.refreshes += u64::from(refresh);
        Some((slot, refresh))
    }

    #[cold]
    fn fill(
        &mut self,
        now: Duration,
        hash: u64,
        reader: Reader,
        key: &[u8],
        command: &[u8],
    ) -> Option<FillToken> {
        let slot = self.keys.find(key)?;
        let id = self.keys.id(slot);
        let key = self.keys.at(slot);
        let storable = key.pending == 0 && entry_bytes(command, &[]) <= self.limits.entry_bytes;
        if storable {
            key.counters.misses += 1;
        } else {
            key.counters.bypasses += 1;
        }
        let epoch = key.epoch;
        let fill = storable.then(|| {
            Box::new(Fill {
                epoch,
                made_at: now,
                reader,
                hash,
                command: command.into(),
                link: None,
            })
        });
        Some(FillToken { key: id, fill })
    }

    /// A fill was answered: with `reply`, in the bytes that this reader gets, and `ttl` right
    /// behind it. `true` if it was stored.
    ///
    /// The caller drops the token of a fill that was not answered.
    pub fn filled(&mut self, now: Duration, token: FillToken, reply: &[u8], ttl: Ttl) -> bool {
        let Some(fill) = token.fill else { return false };
        let Some(link) = fill.link else { return false };
        #[cfg(test)]
        let ignore_epoch = self.planted == super::model::Planted::StoreDespiteEpoch;
        #[cfg(not(test))]
        let ignore_epoch = false;
        let Some(key) = self.keys.get(token.key) else { return false };
        let is_overtaken = key.epoch != fill.epoch && !ignore_epoch;
        if is_overtaken || key.pending > 0 {
            key.counters.overtaken += 1;
            return false;
        }
        if !self.links.is_open_for(link, fill.reader.login) {
            return false;
        }
        let settings = key.settings;
        // What it replaces has to go in any case: a reply that cannot be stored is newer.
        if let Some(old) = self.entries.find(fill.hash, fill.reader, &fill.command) {
            self.remove(old);
        }
        let life = settings.life(ttl);
        let deadline = fill.made_at.saturating_add(life);
        let bytes = entry_bytes(&fill.command, reply);
        let is_error = matches!(reply.first(), None | Some(b'-' | b'!'));
        if is_error || deadline <= now || bytes > self.limits.entry_bytes.min(self.limits.bytes) {
            return false;
        }
        if self.limits.entries == 0 {
            return false;
        }
        self.make_room(self.limits.entries - 1, self.limits.bytes - bytes);
        let refresh_at = if settings.refresh_ahead {
            fill.made_at.saturating_add(life.mul_f64(REFRESH_FRACTION))
        } else {
            Duration::MAX
        };
        let key = self.keys.at(token.key.slot);
        key.counters.stored += 1;
        let new = NewEntry {
            hash: fill.hash,
            reader: fill.reader,
            command: &fill.command,
            reply,
            deadline,
            refresh_at,
            key: token.key.slot,
            link: link.slot(),
        };
        key.head = self.entries.insert(&new, key.head);
        true
    }
}
