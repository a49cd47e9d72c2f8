//! What the servers that hold a value say of their memory.
//!
//! Called by: whoever is about to move a value, and the reconciler now and then.
//! Bound: one question for each server that holds a part.
//! Invariant: a server is asked in a transaction that names a key which lies there, so the answer is
//! of the server that has the key's slot.
//!
//! A value in several keys is lost in part if the server may evict one of them. So a key is not split
//! where that may happen, and made whole when the setting changes so that it may:
//!
//! | `maxmemory-policy` | may evict |
//! |---|---|
//! | `noeviction` | nothing |
//! | `volatile-*` | the marker of a key with a time to live; shards have none |
//! | `allkeys-*` | everything |
//!
//! A move needs room for a second value, and a server that evicts makes room for it, out of the shards if
//! need be. So a move begins only where there is room, whatever the policy, and stops when others take it:
//!
//! ```text
//! operator                       mover                          server
//! maxmemory-policy allkeys-lru                                  evicts nothing: there is room for half
//!                                seals the shards
//!                                SADD whole ...                 evicts shards, the marker, the whole
//! ```
//!
//! A server that evicts anyway is always full: there is never room, and any write costs others their keys.
//! There a move goes on, unless the value is so large that its own parts would be evicted for it.

use std::time::Duration;

use heatsink_resp::value::Value;
use heatsink_split::layout::Names;
use heatsink_split::{Kind, Layout};

use super::data::{Data, DataError, command};
use super::steps::Steps;

/// How long a server without room is watched for whether it evicts anyway, and how often it is asked.
const WATCHED: Duration = Duration::from_millis(500);
const WATCH_EVERY: Duration = Duration::from_millis(50);
/// Where any key may be evicted, a value that is moved takes at most this part of the memory.
const MOST_OF_FULL: u64 = 4;
/// What a stamp adds to an element of a list.
const STAMP_BYTES: u64 = 24;

/// What one server says of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes in use, and the most that may be; 0: without end.
    used: u64,
    max: u64,
    policy: String,
    /// Keys that were evicted since it was started.
    evicted: u64,
}

impl Memory {
    fn read(memory: &str, stats: &str) -> Self {
        let number = |text, name| field(text, name).and_then(|value| value.parse().ok());
        Self {
            used: number(memory, "used_memory").unwrap_or(0),
            max: number(memory, "maxmemory").unwrap_or(0),
            policy: field(memory, "maxmemory_policy").unwrap_or_default().to_owned(),
            evicted: number(stats, "evicted_keys").unwrap_or(0),
        }
    }

    /// Why a value must not be in several keys here, if that is so.
    fn forbids_parts(&self, expires: bool) -> Option<String> {
        let policy = &self.policy;
        if self.max == 0 {
            None
        } else if policy.starts_with("allkeys") {
            Some(format!("maxmemory-policy {policy} may evict a part of it"))
        } else if expires && policy.starts_with("volatile") {
            Some(format!("it has a time to live, and maxmemory-policy {policy} may evict a part"))
        } else {
            None
        }
    }

    /// Why a value that takes so many bytes, of which some are still to be written, does not fit into
    /// what is free.
    fn lacks(&self, bytes: u64, unwritten: u64) -> Option<String> {
        let room = self.max.saturating_sub(self.used);
        // What was counted is not all: tables grow, and small parts are kept more densely.
        let spare = bytes / 4;
        (self.max > 0 && unwritten + spare > room).then(|| {
            format!(
                "its value takes about {bytes} bytes, and maxmemory leaves {room} at its server, of \
                 which {spare} are spared"
            )
        })
    }

    /// Whether a value of that size may be moved although others are evicted for it: they are evicted
    /// anyway, and hardly its own parts.
    fn may_displace(&self, bytes: u64, before: &Self) -> bool {
        let takes_any = self.policy.starts_with("allkeys");
        self.evicted > before.evicted && (!takes_any || bytes <= self.max / MOST_OF_FULL)
    }
}

/// What a server has for a value that is built there.
#[derive(Debug)]
pub(crate) struct Room {
    /// What the value takes, about.
    bytes: u64,
    /// What the server said before; none if it is not to be asked.
    before: Option<Memory>,
    /// It evicts anyway.
    is_full: bool,
}

impl Room {
    /// Whether what is still to be written, of what there is to write, has room.
    pub(crate) async fn check(
        &self,
        data: &mut Data,
        at: &[u8],
        (unwritten, of): (usize, usize),
    ) -> Result<(), DataError> {
        if self.is_full || self.before.is_none() {
            return Ok(());
        }
        let unwritten = self.bytes * unwritten as u64 / of.max(1) as u64;
        let lacks = memory_at(data, at).await?.lacks(self.bytes, unwritten);
        lacks.map_or(Ok(()), |why| Err(DataError::NoRoom(why)))
    }

    /// How many keys the server has evicted since.
    pub(super) async fn evicted(&self, data: &mut Data, at: &[u8]) -> Result<u64, DataError> {
        let Some(before) = &self.before else { return Ok(0) };
        Ok(memory_at(data, at).await?.evicted.saturating_sub(before.evicted))
    }
}

impl Steps {
    /// Why a value must not be in these shards and a marker, if a server may evict one of them.
    pub(crate) async fn evicts_parts(
        &self,
        key: &[u8],
        layout: &Layout,
    ) -> Result<Option<String>, DataError> {
        let mut names = live_names(layout);
        names.push(key);
        for memory in self.memory_of_servers(&names).await? {
            if let Some(why) = memory.forbids_parts(layout.expires) {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Whether a shard that is not there may have been evicted.
    pub(super) async fn has_evicted(&self, layout: &Layout) -> Result<bool, DataError> {
        self.have_evicted(&live_names(layout), false).await
    }

    /// Whether one of the servers that have these names may have evicted one of them.
    pub(super) async fn have_evicted(
        &self,
        names: &[&[u8]],
        expires: bool,
    ) -> Result<bool, DataError> {
        let memory = match self.memory_of_servers(names).await {
            Err(error) if is_not_allowed(&error) => return Ok(false),
            memory => memory?,
        };
        let evicts =
            |memory: &Memory| memory.evicted > 0 && memory.forbids_parts(expires).is_some();
        Ok(memory.iter().any(evicts))
    }

    /// Why a key must not have these copies, if a server may evict what keeps them from growing old: the
    /// word of those who write, which expires.
    pub(crate) async fn evicts_guards(
        &self,
        copies: &[Vec<u8>],
    ) -> Result<Option<String>, DataError> {
        let names: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
        let memory = match self.memory_of_servers(&names).await {
            Err(error) if is_not_allowed(&error) => return Ok(None),
            memory => memory?,
        };
        let evicts = memory.iter().find(|memory| memory.forbids_parts(true).is_some());
        Ok(evicts
            .map(|memory| format!("maxmemory-policy {} may evict what guards them", memory.policy)))
    }

    /// Whether a server may evict a tombstone because it expires.
    pub(super) async fn evicts_tombstones(&self, layout: &Layout) -> Result<bool, DataError> {
        match self.memory_of_servers(&live_names(layout)).await {
            Err(error) if is_not_allowed(&error) => Ok(false),
            memory => Ok(memory?.iter().any(|memory| memory.forbids_parts(true).is_some())),
        }
    }

    /// The room for a value in shards at its key, or [`DataError::NoRoom`]. If a shard is gone because it
    /// was evicted, nothing will be built, and no room is needed.
    pub(crate) async fn room_for_whole(
        &self,
        at: &[u8],
        layout: &Layout,
    ) -> Result<Room, DataError> {
        let names = |shard| [Names::Live, Names::Sealed].map(|names| layout.name(shard, names));
        let ask = |name: &[u8]| command(&[b"MEMORY", b"USAGE", name]);
        let questions: Vec<_> = (0..layout.len()).flat_map(names).map(ask).collect();
        let sizes = self.connect()?.values(&questions).await?;
        let bytes = sizes.iter().filter_map(Value::integer).sum::<i64>();
        let bytes = u64::try_from(bytes).unwrap_or(0);
        let room = self.room(at, bytes).await;
        let is_gone = |shard: &[Value]| shard.iter().all(|size| *size == Value::Nil);
        if matches!(room, Err(DataError::NoRoom(_)))
            && sizes.chunks_exact(2).any(is_gone)
            && self.has_evicted(layout).await?
        {
            return Ok(Room { bytes, before: None, is_full: true });
        }
        room
    }

    /// Whether there is room for the shards of a key beside it, or [`DataError::NoRoom`].
    pub(crate) async fn room_for_shards(
        &self,
        key: &[u8],
        layout: &Layout,
    ) -> Result<(), DataError> {
        let mut questions = vec![command(&[b"MEMORY", b"USAGE", key])];
        if layout.kind == Kind::List {
            questions.push(command(&[b"LLEN", key]));
        }
        let told = self.connect()?.values(&questions).await?;
        let number = |value: &Value| value.integer().and_then(|number| u64::try_from(number).ok());
        let elements = told.get(1).and_then(number).unwrap_or(0);
        let bytes = number(&told[0]).unwrap_or(0) + elements * STAMP_BYTES;
        let mut servers: Vec<(Option<String>, &[u8], u64)> = Vec::new();
        for name in live_names(layout) {
            let server = self.server_of(name);
            match servers.iter_mut().find(|known| known.0 == server) {
                Some((_, _, shards)) => *shards += 1,
                None => servers.push((server, name, 1)),
            }
        }
        for (_, name, shards) in servers {
            self.room(name, bytes * shards / layout.len() as u64).await?;
        }
        Ok(())
    }

    /// The room for so many bytes at the server that has a name, or [`DataError::NoRoom`].
    async fn room(&self, at: &[u8], bytes: u64) -> Result<Room, DataError> {
        let mut data = self.connect()?;
        let before = match memory_at(&mut data, at).await {
            Err(error) if is_not_allowed(&error) => {
                return Ok(Room { bytes, before: None, is_full: false });
            }
            memory => memory?,
        };
        let Some(why) = before.lacks(bytes, bytes) else {
            return Ok(Room { bytes, before: Some(before), is_full: false });
        };
        let mut watched = Duration::ZERO;
        while before.policy != "noeviction" && watched < WATCHED {
            tokio::time::sleep(WATCH_EVERY).await;
            watched += WATCH_EVERY;
            if memory_at(&mut data, at).await?.may_displace(bytes, &before) {
                return Ok(Room { bytes, before: Some(before), is_full: true });
            }
        }
        Err(DataError::NoRoom(why))
    }

    async fn memory_of_servers(&self, names: &[&[u8]]) -> Result<Vec<Memory>, DataError> {
        let mut data = self.connect()?;
        let mut all = Vec::new();
        for name in self.one_a_server(names) {
            all.push(memory_at(&mut data, name).await?);
        }
        Ok(all)
    }

    /// Of these names one that lies on each server that has any.
    pub(super) fn one_a_server<'a>(&self, names: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut servers = Vec::new();
        let mut one_each = Vec::new();
        for name in names {
            let server = self.server_of(name);
            if server.is_none() || !servers.contains(&server) {
                servers.push(server);
                one_each.push(*name);
            }
        }
        one_each
    }
}

pub(super) fn live_names(layout: &Layout) -> Vec<&[u8]> {
    (0..layout.len()).map(|shard| layout.name(shard, Names::Live)).collect()
}

async fn memory_at(data: &mut Data, name: &[u8]) -> Result<Memory, DataError> {
    let told = info(data, name, &[b"memory", b"stats"]).await?;
    Ok(Memory::read(&told[0], &told[1]))
}

/// Sections of what the server says that has a key.
pub(super) async fn info(
    data: &mut Data,
    name: &[u8],
    sections: &[&[u8]],
) -> Result<Vec<String>, DataError> {
    let mut questions = vec![command(&[b"EXISTS", name])];
    questions.extend(sections.iter().map(|section| command(&[b"INFO", section])));
    let told = data.transaction(&questions).await?;
    let told = told.ok_or_else(|| DataError::Lost("no reply to EXEC".to_owned()))?;
    let text =
        |value: &Value| String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned();
    Ok(told[1..].iter().map(text).collect())
}

/// Whether the question is not for this user to ask, or not known to the server.
pub(super) fn is_not_allowed(error: &DataError) -> bool {
    let DataError::Refused(why) = error else { return false };
    why.starts_with("NOPERM") || why.starts_with("ERR unknown")
}

/// The value of a field of `INFO`.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.trim_end().strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(policy: &str, max: u64) -> Memory {
        let text = format!("used_memory:70\r\nmaxmemory:{max}\r\nmaxmemory_policy:{policy}\r\n");
        Memory::read(&text, "# Stats\r\nevicted_keys:3\r\n")
    }

    #[test]
    fn a_value_is_not_parted_where_a_part_may_be_evicted() {
        assert_eq!(memory("allkeys-lru", 100).evicted, 3);
        for (policy, max, plain, expires) in [
            ("noeviction", 100, true, true),
            ("volatile-lru", 100, true, false),
            ("volatile-ttl", 0, true, true),
            ("allkeys-random", 100, false, false),
            ("allkeys-lfu", 0, true, true),
            // What a server does not tell is not held against it.
            ("", 0, true, true),
        ] {
            let memory = memory(policy, max);
            assert_eq!(memory.forbids_parts(false).is_none(), plain, "{policy} {max}");
            assert_eq!(memory.forbids_parts(true).is_none(), expires, "{policy} {max}");
        }
    }

    #[test]
    fn room_is_short_whatever_the_policy() {
        for policy in ["noeviction", "volatile-lru", "allkeys-lru"] {
            // 30 are free, and a quarter of the value is to be left.
            assert!(memory(policy, 100).lacks(24, 24).is_none(), "{policy}");
            assert!(memory(policy, 100).lacks(25, 25).is_some(), "{policy}");
            assert!(memory(policy, 100).lacks(40, 20).is_none(), "{policy}: half is written");
            assert!(memory(policy, 50).lacks(1, 1).is_some(), "{policy}");
            assert!(memory(policy, 0).lacks(1 << 40, 1 << 40).is_none(), "{policy}");
        }
    }

    #[test]
    fn only_where_others_are_evicted_anyway_they_are_evicted_for_a_move() {
        let later = |policy| Memory { evicted: 4, ..memory(policy, 100) };
        for policy in ["volatile-lru", "allkeys-lru"] {
            let before = memory(policy, 100);
            assert!(!before.may_displace(10, &before), "{policy}: not since it was asked first");
            assert!(later(policy).may_displace(25, &before), "{policy}");
        }
        assert!(!later("allkeys-lru").may_displace(26, &memory("allkeys-lru", 100)));
        assert!(later("volatile-lru").may_displace(26, &memory("volatile-lru", 100)));
    }
}
