//! What is in the shards of a key, for people to see.
//!
//! Called by: the reconciler, with its looks. Bound: one request a shard.

use heatsink_admin::control::ShardContent;
use heatsink_resp::number;
use heatsink_resp::value::Value;
use heatsink_split::layout::Names;
use heatsink_split::{Kind, Layout};

use super::data::{DataError, command};
use super::steps::Steps;

/// The contents of each shard of a key; none for a shard that did not answer.
pub(crate) type Contents = Vec<Option<ShardContent>>;

impl Steps {
    /// What is in each shard.
    pub(crate) async fn contents(&self, layout: &Layout) -> Result<Contents, DataError> {
        let ask = |shard| {
            let name = layout.name(shard, Names::Live);
            match layout.kind {
                Kind::Counter => command(&[b"GET", name]),
                kind => size(kind, name),
            }
        };
        let requests: Vec<_> = (0..layout.len()).map(ask).collect();
        let values = self.connect()?.values(&requests).await?;
        Ok(values.iter().map(|value| content(layout.kind, value)).collect())
    }
}

/// The request that asks how much a key holds: members, or the bytes of a string.
pub(super) fn size(kind: Kind, key: &[u8]) -> Vec<u8> {
    let ask: &[u8] = match kind {
        Kind::Counter | Kind::HyperLogLog => b"STRLEN",
        Kind::Set => b"SCARD",
        Kind::Hash => b"HLEN",
        Kind::SortedSet => b"ZCARD",
        Kind::List => b"LLEN",
    };
    command(&[ask, key])
}

/// The contents of a shard, by its reply; none if that is an error, as from a sealed shard.
fn content(kind: Kind, value: &Value) -> Option<ShardContent> {
    if kind == Kind::Counter {
        // One that nobody has written to is not there.
        let part = if *value == Value::Nil { Some(0) } else { number::parse(value.text()?) };
        return part.map(ShardContent::Value);
    }
    let size = u64::try_from(value.integer()?).ok()?;
    Some(match kind {
        Kind::HyperLogLog => ShardContent::Bytes(size),
        _ => ShardContent::Count(size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_shard_says_is_shown() {
        let text = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let counter = |value: &Value| content(Kind::Counter, value);
        assert_eq!(counter(&text("-775")), Some(ShardContent::Value(-775)));
        assert_eq!(counter(&Value::Nil), Some(ShardContent::Value(0)), "nobody wrote to it");
        assert_eq!(counter(&Value::Error(b"WRONGTYPE sealed".to_vec())), None);
        assert_eq!(content(Kind::Set, &Value::Integer(3)), Some(ShardContent::Count(3)));
        let registers = content(Kind::HyperLogLog, &Value::Integer(12_304));
        assert_eq!(registers, Some(ShardContent::Bytes(12_304)));
        assert_eq!(content(Kind::List, &Value::Error(b"WRONGTYPE sealed".to_vec())), None);
    }
}
