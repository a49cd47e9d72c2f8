//! What the caller holds while a fill or a write is under way.
//!
//! Invariant: a token says what the world was like when it was made; the cache compares. A
//! token may be dropped at any time: a fill is then not stored.

use std::time::Duration;

use super::links::LinkId;
use crate::identity::Reader;

/// A registered key; another one after the key was deregistered and registered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId {
    pub(super) slot: u32,
    pub(super) registration: u64,
}

/// A read that is about to be sent on a tracked link. Nothing is allocated for one whose
/// reply may not be stored.
#[derive(Debug)]
#[must_use = "the reply can only be stored with it"]
pub struct FillToken {
    pub(super) key: KeyId,
    /// `None`: not storable. Boxed because a hit returns the type that holds it.
    pub(super) fill: Option<Box<Fill>>,
}

/// What a reply that is stored needs.
#[derive(Debug)]
pub(super) struct Fill {
    /// Epoch of the key when the token was made; no other key and no other time has it.
    pub(super) epoch: u64,
    pub(super) made_at: Duration,
    pub(super) reader: Reader,
    pub(super) hash: u64,
    pub(super) command: Box<[u8]>,
    pub(super) link: Option<LinkId>,
}

impl FillToken {
    /// Says which tracked link the fill is sent on, right before it is. Without it the reply
    /// is not stored.
    pub fn sent_on(mut self, link: LinkId) -> Self {
        if let Some(fill) = &mut self.fill {
            fill.link = Some(link);
        }
        self
    }

    /// Whether the reply may be stored at all; if not, opting in to tracking is needless.
    pub fn is_storable(&self) -> bool {
        self.fill.is_some()
    }

    /// The key that is read.
    pub fn key(&self) -> KeyId {
        self.key
    }
}

/// Something under way that may change a key. Nothing of the key is served or stored before
/// it was given back with [`super::LocalCache::write_done`]; dropping it instead leaves the
/// key uncached until it is registered anew.
#[derive(Debug)]
#[must_use = "the key stays pending until it is given back"]
pub struct WriteToken {
    /// `None`: all keys.
    pub(super) key: Option<KeyId>,
}

/// What a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<'a> {
    /// That key.
    Key(&'a [u8]),
    /// Any.
    All,
    /// None that is registered still.
    Nothing,
}

impl WriteToken {
    /// Whether the write may change that key.
    pub fn concerns(&self, key: KeyId) -> bool {
        self.key.is_none_or(|own| own == key)
    }
}
