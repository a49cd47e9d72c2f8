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

use heatsink_resp::value::Value;
use heatsink_split::Layout;
use heatsink_split::layout::Names;

use super::data::{Data, DataError, command};
use super::steps::Steps;

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

    /// Bytes that may still be used; none if there is no end, or others are evicted for them.
    fn room(&self) -> Option<u64> {
        let is_hard = self.max > 0 && self.policy == "noeviction";
        is_hard.then(|| self.max.saturating_sub(self.used))
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
        let memory = match self.memory_of_servers(&live_names(layout)).await {
            Err(error) if is_not_allowed(&error) => return Ok(false),
            memory => memory?,
        };
        let evicts = |memory: &Memory| memory.evicted > 0 && memory.forbids_parts(false).is_some();
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

    /// Why a value in shards cannot be built at its key, if there is no room for it.
    pub(crate) async fn lacks_room(
        &self,
        key: &[u8],
        layout: &Layout,
    ) -> Result<Option<String>, DataError> {
        let mut data = self.connect()?;
        let Some(room) = memory_at(&mut data, key).await?.room() else { return Ok(None) };
        let ask = |name: &[u8]| command(&[b"MEMORY", b"USAGE", name]);
        let questions: Vec<_> = live_names(layout).into_iter().map(ask).collect();
        let sizes = data.values(&questions).await?;
        let needed: i64 = sizes.iter().filter_map(Value::integer).sum();
        let needed = u64::try_from(needed).unwrap_or(0);
        Ok((needed > room).then(|| {
            format!(
                "its value takes about {needed} bytes, and maxmemory leaves {room} at its server"
            )
        }))
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
    fn room_is_short_only_where_nothing_is_evicted() {
        assert_eq!(memory("noeviction", 100).room(), Some(30));
        assert_eq!(memory("noeviction", 50).room(), Some(0));
        assert_eq!(memory("noeviction", 0).room(), None);
        assert_eq!(memory("volatile-lru", 100).room(), None);
    }
}
