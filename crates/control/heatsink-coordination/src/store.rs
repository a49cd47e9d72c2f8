//! The store as its users see it, whichever it is.
//!
//! Called by: the control plane's runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use heatsink_upstream::address::Url;

use crate::error::StoreError;
use crate::inbox::Subscription;
use crate::memory::Memory;
use crate::model::{
    Channel, Expects, Member, Put, PutOutcome, RemoveOutcome, RenewOutcome, Snapshot,
};
use crate::remote::Remote;
use crate::remote::alone::{Home, Quiet};
use crate::remote::tls::TlsFiles;
use crate::settings::{Names, Settings, SettingsError};

/// A handle to a coordination store; clones are handles to the same one.
///
/// Calls need a Tokio runtime with I/O and time enabled, and all handles of a store belong to
/// one runtime.
#[derive(Clone)]
pub struct Store {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Memory(Arc<Memory>),
    Remote(Arc<Remote>),
    Quiet(Arc<Quiet>),
}

impl Store {
    /// A store within this process, which its clones share.
    pub fn memory(settings: Settings) -> Self {
        Self { inner: Inner::Memory(Arc::new(Memory::new(settings))) }
    }

    /// A store on Redis or Valkey; connects with the first call. `tls` is used when `target`
    /// says so; without it, the system's authorities are trusted.
    pub fn redis(
        target: &Url,
        tls: Option<&TlsFiles>,
        settings: Settings,
    ) -> Result<Self, SettingsError> {
        Ok(Self { inner: Inner::Remote(Arc::new(Remote::new(target, tls, settings)?)) })
    }

    /// Like [`Store::redis`], for a process that serves: while it is alone, its records are in its memory,
    /// and nothing is written to the server. It is alone while nobody else subscribes there, no fleet has left
    /// records, and nothing was put that must survive the process.
    ///
    /// [`Store::subscribe`] finds out whether that is so. It must be called once; other calls wait for it.
    pub fn quiet(
        target: &Url,
        tls: Option<&TlsFiles>,
        settings: Settings,
    ) -> Result<Self, SettingsError> {
        let remote = Remote::new(target, tls, settings)?;
        Ok(Self { inner: Inner::Quiet(Arc::new(Quiet::new(remote))) })
    }

    /// Where a call goes now.
    async fn home(&self, survives: bool) -> Result<Home, StoreError> {
        Ok(match &self.inner {
            Inner::Memory(memory) => Home::Memory(Arc::clone(memory)),
            Inner::Remote(remote) => Home::Remote(Arc::clone(remote)),
            Inner::Quiet(quiet) => quiet.home(survives).await?,
        })
    }

    /// Writes a record.
    pub async fn put(&self, key: &[u8], put: Put) -> Result<PutOutcome, StoreError> {
        let settings = self.settings();
        settings.check_size(key)?;
        settings.check_size(&put.body)?;
        match self.home(put.survives).await? {
            Home::Memory(memory) => Ok(memory.put(key, put)),
            Home::Remote(remote) => remote.put(key, &put).await,
        }
    }

    /// Removes a record, and keeps the key from being put automatically for `block_for`.
    pub async fn remove(
        &self,
        key: &[u8],
        expects: Expects,
        block_for: Option<Duration>,
    ) -> Result<RemoveOutcome, StoreError> {
        self.settings().check_size(key)?;
        match self.home(false).await? {
            Home::Memory(memory) => Ok(memory.remove(key, expects, block_for)),
            Home::Remote(remote) => remote.remove(key, expects, block_for).await,
        }
    }

    /// Gives the record with this epoch a new time to live. No change: it has no version, and
    /// subscribers are not told.
    pub async fn renew(
        &self,
        key: &[u8],
        epoch: u64,
        ttl: Duration,
    ) -> Result<RenewOutcome, StoreError> {
        self.settings().check_size(key)?;
        match self.home(false).await? {
            Home::Memory(memory) => Ok(memory.renew(key, epoch, ttl)),
            Home::Remote(remote) => remote.renew(key, epoch, ttl).await,
        }
    }

    /// Removes the records that have expired and returns how many; each removal is a change. If there are
    /// very many, the next sweep removes the rest. A process has to call this now and then: an expired record
    /// counts as absent at once, but subscribers learn of it only by a sweep.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        match self.home(false).await? {
            Home::Memory(memory) => Ok(memory.sweep()),
            Home::Remote(remote) => remote.sweep().await,
        }
    }

    /// Everything at one moment.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        match self.home(false).await? {
            Home::Memory(memory) => Ok(memory.snapshot()),
            Home::Remote(remote) => remote.snapshot().await,
        }
    }

    /// Says that member `id` is there for another `ttl`; returns all that are, this one too.
    /// What the others say of themselves may be from a second ago, in a large fleet from ten.
    pub async fn heartbeat(
        &self,
        id: &str,
        body: &[u8],
        ttl: Duration,
    ) -> Result<Vec<Member>, StoreError> {
        let settings = self.settings();
        settings.check_size(id.as_bytes())?;
        settings.check_size(body)?;
        match self.home(false).await? {
            Home::Memory(memory) => memory.heartbeat(id, body, ttl),
            Home::Remote(remote) => remote.heartbeat(id, body, ttl).await,
        }
    }

    /// Says that member `id` is gone.
    pub async fn leave(&self, id: &str) -> Result<(), StoreError> {
        match self.home(false).await? {
            Home::Memory(memory) => {
                memory.leave(id);
                Ok(())
            }
            Home::Remote(remote) => remote.leave(id).await,
        }
    }

    /// Says that `member` has done what `topic` asks of everybody; it counts for `ttl`.
    pub async fn acknowledge(
        &self,
        topic: &str,
        member: &str,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let settings = self.settings();
        settings.check_size(topic.as_bytes())?;
        settings.check_size(member.as_bytes())?;
        match self.home(false).await? {
            Home::Memory(memory) => {
                memory.acknowledge(topic, member, ttl);
                Ok(())
            }
            Home::Remote(remote) => remote.acknowledge(topic, member, ttl).await,
        }
    }

    /// Who has acknowledged `topic`, in no order.
    pub async fn acknowledged(&self, topic: &str) -> Result<Vec<String>, StoreError> {
        match self.home(false).await? {
            Home::Memory(memory) => Ok(memory.acknowledged(topic)),
            Home::Remote(remote) => remote.acknowledged(topic).await,
        }
    }

    /// Sends a message to whoever listens on `channel` at this moment.
    pub async fn publish(&self, channel: Channel, body: Vec<u8>) -> Result<(), StoreError> {
        self.settings().check_size(&body)?;
        match self.home(false).await? {
            Home::Memory(memory) => {
                memory.publish(channel, &body);
                Ok(())
            }
            Home::Remote(remote) => remote.publish(channel, &body).await,
        }
    }

    /// Listens to all changes, and to the messages of `channels`, until the subscription is
    /// dropped. The first notice says whether it worked; it is tried again for ever.
    pub fn subscribe(&self, channels: &[Channel]) -> Subscription {
        match &self.inner {
            Inner::Memory(memory) => memory.subscribe(channels),
            Inner::Remote(remote) => remote.subscribe(channels),
            Inner::Quiet(quiet) => quiet.subscribe(channels),
        }
    }

    /// The keys that it may have on a server; none if it is in memory.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        if let Inner::Memory(_) = self.inner {
            return Vec::new();
        }
        let names = Names::new(self.settings().namespace(), 0);
        names.keys().iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    /// How many records and messages were ignored so far, because they were not understood or, if
    /// there is a secret, because no member has sealed them. One that stays is counted each time.
    pub fn ignored(&self) -> u64 {
        match &self.inner {
            Inner::Memory(_) => 0,
            Inner::Remote(remote) => remote.ignored(),
            Inner::Quiet(quiet) => quiet.remote().ignored(),
        }
    }

    /// The limits it was made with.
    pub fn settings(&self) -> &Settings {
        match &self.inner {
            Inner::Memory(memory) => memory.settings(),
            Inner::Remote(remote) => remote.settings(),
            Inner::Quiet(quiet) => quiet.settings(),
        }
    }
}

/// Where the store is, without credentials.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Memory(_) => f.write_str("memory"),
            Inner::Remote(remote) => remote.fmt(f),
            Inner::Quiet(quiet) => quiet.remote().fmt(f),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({self})")
    }
}
