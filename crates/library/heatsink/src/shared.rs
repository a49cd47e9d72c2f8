//! The shared tier of one cache: its keys and values on a store.
//!
//! Called by: flights, `put` and `invalidate`.
//! Invariant: keys of two caches never fall together: a name has no `:`, and leases to refresh have
//! a `~` there, which no name has.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::clock::Clock;
use crate::codec::Codec;
use crate::error::BuildError;
use crate::fence::Fences;
use crate::key::Key;
use crate::store::{Core, Store, StoreState};

type WriteKey<K> = fn(&K, &mut Vec<u8>);

/// What a builder knows of the shared tier to be.
pub(crate) struct Plan<K, V> {
    place: Place,
    codec: Arc<dyn Codec<V>>,
    write_key: WriteKey<K>,
}

enum Place {
    Url(String),
    Store(Store),
}

pub(crate) struct Shared<K, V> {
    store: Store,
    pub(crate) codec: Arc<dyn Codec<V>>,
    write_key: WriteKey<K>,
    prefix: Box<[u8]>,
    refresh_prefix: Box<[u8]>,
}

impl<K: Key, V> Plan<K, V> {
    pub(crate) fn at(url: String, codec: impl Codec<V>) -> Self {
        Self { place: Place::Url(url), codec: Arc::new(codec), write_key: K::write_to }
    }

    pub(crate) fn on(store: Store, codec: impl Codec<V>) -> Self {
        Self { place: Place::Store(store), codec: Arc::new(codec), write_key: K::write_to }
    }
}

impl<K, V> Plan<K, V> {
    pub(crate) async fn open(self, name: &str, clock: &Clock) -> Result<Shared<K, V>, BuildError> {
        let store = match self.place {
            Place::Url(url) => Store::builder(url).clock(clock.clone()).connect().await?,
            Place::Store(store) => store,
        };
        Ok(Shared {
            store,
            codec: self.codec,
            write_key: self.write_key,
            prefix: [name.as_bytes(), b":"].concat().into(),
            refresh_prefix: [name.as_bytes(), b"~"].concat().into(),
        })
    }
}

impl<K, V> Shared<K, V> {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.store.core
    }

    pub(crate) fn fences(&self) -> Arc<Fences> {
        Arc::clone(&self.store.core.fences)
    }

    pub(crate) fn state(&self) -> StoreState {
        self.store.state()
    }

    /// Where the value lies.
    pub(crate) fn key<Q>(&self, key: &Q) -> Vec<u8>
    where
        Q: Borrow<K>,
    {
        self.with(&self.prefix, key.borrow())
    }

    /// Where the lease to replace it lies.
    pub(crate) fn refresh_key(&self, key: &K) -> Vec<u8> {
        self.with(&self.refresh_prefix, key)
    }

    pub(crate) fn stripe(&self, key: &K) -> u32 {
        self.store.core.stripe(&self.key(key))
    }

    fn with(&self, prefix: &[u8], key: &K) -> Vec<u8> {
        let mut out = Vec::with_capacity(prefix.len() + 32);
        out.extend_from_slice(prefix);
        (self.write_key)(key, &mut out);
        out
    }
}
