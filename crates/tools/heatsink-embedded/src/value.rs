//! Value: what a key can hold.
//!
//! Called by: `db`, and handlers through the typed accessors of `Db`.
//! Invariant: a collection stored under a key is never empty (`Db::changed` removes it).

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};

use crate::sorted_set::SortedSet;

/// Keys, fields, members and values are plain bytes.
pub(crate) type Bytes = Vec<u8>;
/// A map that can be walked by position, for `SCAN` and random picks.
pub(crate) type Map<V> = IndexMap<Bytes, V, RandomState>;
/// Fields and their values.
pub(crate) type Hash = Map<Bytes>;
/// Members without order.
pub(crate) type Set = IndexSet<Bytes, RandomState>;
/// Elements in order of the list.
pub(crate) type List = VecDeque<Bytes>;

/// Up to here Redis may keep a hash in one compact block, and so in insertion order.
pub(crate) const COMPACT_LEN: usize = 512;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    String(Bytes),
    Hash(Hash),
    List(List),
    Set(Set),
    SortedSet(SortedSet),
}

impl Value {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
        }
    }

    /// Whether this is a collection that must not stay in the database.
    pub(crate) fn is_empty_collection(&self) -> bool {
        match self {
            Self::String(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::SortedSet(sorted) => sorted.is_empty(),
        }
    }
}

/// One of the types a key can hold.
pub(crate) trait Typed: Default {
    fn wrap(self) -> Value;
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! typed {
    ($type:ty, $variant:ident) => {
        impl Typed for $type {
            fn wrap(self) -> Value {
                Value::$variant(self)
            }
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
        }
    };
}

typed!(Bytes, String);
typed!(Hash, Hash);
typed!(List, List);
typed!(Set, Set);
typed!(SortedSet, SortedSet);

/// Removes from a map; a small one keeps its order, as it would in Redis.
pub(crate) fn remove<V>(map: &mut Map<V>, key: &[u8]) -> Option<V> {
    if map.len() <= COMPACT_LEN { map.shift_remove(key) } else { map.swap_remove(key) }
}
