//! The data steps of a split ([decision 15](../../../../../docs/adr/0015-splitting.md)): what is done on
//! the upstream, and in which order. Those of its end are in `whole`.
//!
//! Called by: the lifecycle, the reconciler and `heatsink drain`; by several at once.
//! Invariant: before the commit of a split its key is untouched; after it the shards are the
//! value, until the commit of its end. Each step may be done again by anybody.
//!
//! A mover that was paused must not commit a split that others have given up:
//!
//! ```text
//! mover A                               mover B
//! SET permit; registry: freezing
//! WATCH key permit; permit is there
//! writes the shards
//!   ... paused ...                      A is gone: DEL permit
//!                                       the key has no marker of A: drops the shards
//! MULTI; ...; EXEC: nil, the permit was changed
//! ```
//!
//! If A commits just before the `DEL`, B finds the marker when it looks afterwards. The permit is
//! there before anybody can know of the split, and is never written again: once it is gone, the
//! split cannot be committed any more.

use heatsink_cluster::slot;
use heatsink_proxy::Handle as ProxyHandle;
use heatsink_split::layout::Names;
use heatsink_split::moving::{self, Guard};
use heatsink_split::{Kind, Layout, placement};

use super::contents::size;
use super::data::{Data, DataError, command, decode, refusal};
use super::fault;
use super::fit::{Bounds, Fit, examine, has_field_ttls, number};
use super::names::{self, Known, Manifest};
use super::servers::live_names;
use crate::state::unix_ms;

/// How long a mover may take from its first look to its commit.
const PERMIT_MS: &[u8] = b"60000";

/// Why a split did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotSplit {
    /// It makes no sense for this value.
    Unfit(String),
    /// The key was written to, or somebody forbade it: nothing has happened.
    Disturbed,
    /// It may come about later: nothing has happened.
    PutOff(String),
    /// The upstream is in trouble. It is not known whether it was committed if it says so.
    Failed(DataError),
}

impl From<DataError> for NotSplit {
    fn from(error: DataError) -> Self {
        Self::Failed(error)
    }
}

/// What is known of a split that cannot be committed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its marker is there: the value is in the shards.
    Committed,
    /// It was not committed.
    Never,
    /// There is no marker: it was not committed, it has ended, or its marker was taken away.
    Unmarked,
}

/// The upstream, as movers see it.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    proxy: ProxyHandle,
    index: Vec<u8>,
}

impl Steps {
    pub(crate) fn new(proxy: ProxyHandle, namespace: &str) -> Self {
        Self { proxy, index: names::index(namespace) }
    }

    pub(crate) fn connect(&self) -> Result<Data, DataError> {
        Data::open(&self.proxy)
    }

    pub(crate) fn new_tags(&self, key: &[u8], factor: u32) -> Vec<String> {
        placement::tags(self.proxy.slot_owners().as_deref(), factor as usize, key)
    }

    /// What a key holds, and whether that can be split.
    pub(crate) async fn examine(&self, key: &[u8], bounds: &Bounds) -> Result<Fit, NotSplit> {
        examine(&mut self.connect()?, key, bounds).await.map(|(fit, _)| fit)
    }

    /// Allows a split to be committed, before anybody can know of it; see [`Self::forbid`].
    pub(crate) async fn permit(&self, key: &[u8], id: &str) -> Result<(), DataError> {
        let permit = placement::permit_name(key, id);
        let allow = command(&[b"SET", &permit, b"1", b"PX", PERMIT_MS]);
        self.connect()?.accepted(&[allow]).await.map(drop)
    }

    /// Takes a permit back of which no use was made. If that fails, it ends by itself.
    pub(crate) async fn withdraw(&self, key: &[u8], id: &str) {
        let forget = command(&[b"DEL", &placement::permit_name(key, id)]);
        if let Ok(mut data) = self.connect() {
            let _ = data.accepted(&[forget]).await;
        }
    }

    /// Notes a split in the index, before anything is written for it.
    pub(crate) async fn enter(&self, id: &str, manifest: &Manifest) -> Result<(), DataError> {
        let body = manifest.to_bytes();
        let enter = command(&[b"HSET", &self.index, id.as_bytes(), &body]);
        self.connect()?.accepted(&[enter]).await.map(drop)
    }

    /// All splits that the index knows.
    pub(crate) async fn known(&self) -> Result<Vec<Known>, DataError> {
        let (known, strange) = self.entered().await?;
        for id in strange {
            tracing::warn!(id, "a manifest is not understood");
        }
        Ok(known)
    }

    /// The same, with the ids of those that are not understood.
    pub(super) async fn entered(&self) -> Result<(Vec<Known>, Vec<String>), DataError> {
        let all = self.connect()?.accepted(&[command(&[b"HGETALL", &self.index])]).await?;
        let (mut known, mut strange) = (Vec::new(), Vec::new());
        for pair in all[0].array().chunks_exact(2) {
            let [id, body] = [&pair[0], &pair[1]].map(|part| part.text().unwrap_or_default());
            match Manifest::read(id, body) {
                Some(manifest) => known.push(manifest),
                None => strange.push(id.escape_ascii().to_string()),
            }
        }
        Ok((known, strange))
    }

    /// The server that has a key, if that is known.
    pub(super) fn server_of(&self, name: &[u8]) -> Option<String> {
        self.proxy.server_of_slot(slot::of_key(name))
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.proxy.slot_owners().is_some()
    }

    /// Moves a value into shards that do not exist yet, and commits.
    pub(crate) async fn split(
        &self,
        key: &[u8],
        layout: &Layout,
        bounds: &Bounds,
        stamp: u64,
    ) -> Result<(), NotSplit> {
        let permit = placement::permit_name(key, &layout.id);
        let manifest = Manifest::new(key, layout, unix_ms()).to_bytes();
        let mut data = self.connect()?;
        let opening = [command(&[b"WATCH", key, &permit]), command(&[b"EXISTS", &permit])];
        let opened = data.accepted(&opening).await?;
        if opened[1].integer() != Some(1) {
            return Err(NotSplit::Disturbed);
        }
        let (fit, deadline) = examine(&mut data, key, bounds).await?;
        if fit.kind != layout.kind || fit.expires != layout.expires {
            return Err(NotSplit::Disturbed);
        }
        fault::point("split:watched");
        self.has_room_for_shards(key, layout).await?;
        let whole = data.ask(&[moving::read_whole(layout.kind, key)]).await?.remove(0);
        refusal_of(&whole)?;
        if layout.kind == Kind::Hash && has_field_ttls(&mut data, key, &whole).await? {
            return Err(NotSplit::Unfit("a field of it has a time to live".to_owned()));
        }
        let held =
            moving::size_of(layout.kind, &whole).map_err(|unfit| NotSplit::Unfit(unfit.0))?;
        let (plan, filled) = (layout.clone(), whole);
        let requests = apart(move || moving::fill_shards(&plan, &filled, stamp)).await?;
        let mut requests = requests.map_err(|unfit| NotSplit::Unfit(unfit.0))?;
        requests.extend((0..layout.len()).map(|shard| Guard::Open.write(&layout.guard(shard))));
        // Apart from the watch, which would have to stay in one slot.
        self.connect()?.accepted(&requests).await?;
        // What was safe at the key's replicas must be safe at those of the shards.
        if let Some(why) = self.unreplicated(&live_names(layout)).await? {
            return Err(NotSplit::PutOff(why));
        }
        self.count_shards(layout, held).await?;
        fault::point("split:copied");
        let mut commit = vec![
            command(&[b"DEL", key]),
            command(&[b"DEL", &permit]),
            moving::write_fence(layout.kind, key, &layout.id),
            command(&[b"SET", &placement::manifest_name(key, &layout.id), &manifest]),
        ];
        commit.extend(deadline.map(|deadline| deadline.request(key)));
        match data.transaction(&commit).await? {
            Some(_) => {
                fault::point("split:committed");
                Ok(())
            }
            None => Err(NotSplit::Disturbed),
        }
    }

    /// Whether the value of a key fits beside it once more, where its shards would be.
    pub(crate) async fn has_room_for_shards(
        &self,
        key: &[u8],
        layout: &Layout,
    ) -> Result<(), NotSplit> {
        match self.room_for_shards(key, layout).await {
            Err(DataError::NoRoom(why)) => Err(NotSplit::PutOff(why)),
            room => Ok(room?),
        }
    }

    /// Whether the shards hold what was read of the whole value: nothing that was written to them is
    /// given up for the original before it has been counted.
    async fn count_shards(&self, layout: &Layout, held: u64) -> Result<(), DataError> {
        let ask = |shard| size(layout.kind, layout.name(shard, Names::Live));
        let questions: Vec<_> = (0..layout.len()).map(ask).collect();
        let replies = self.connect()?.ask(&questions).await?;
        let sizes = replies.iter().map(|reply| number(reply)).collect::<Result<Vec<_>, _>>()?;
        let is_complete = match layout.kind {
            Kind::Counter | Kind::HyperLogLog => sizes.iter().all(|size| *size > 0),
            _ => sizes.iter().sum::<u64>() == held,
        };
        if is_complete {
            return Ok(());
        }
        let why = format!("the shards hold {sizes:?} of {held} members");
        Err(DataError::Refused(why))
    }

    /// Forbids a split that may not have been committed, and tells whether it was.
    pub(crate) async fn forbid(&self, key: &[u8], layout: &Layout) -> Result<Fate, DataError> {
        let permit = placement::permit_name(key, &layout.id);
        let mut data = self.connect()?;
        let removed = data.accepted(&[command(&[b"DEL", &permit])]).await?;
        let replies = data.ask(&[moving::read_fence(layout.kind, key)]).await?;
        if self.judge(key, &replies[0], layout).await?.is_there() {
            return Ok(Fate::Committed);
        }
        // The commit removes the permit.
        let was_open = removed[0].integer() == Some(1);
        Ok(if was_open { Fate::Never } else { Fate::Unmarked })
    }

    /// Drops the shards of a split that was never committed and cannot be any more.
    pub(crate) async fn drop_shards(&self, layout: &Layout) -> Result<(), DataError> {
        let drop =
            |shard| command(&[b"UNLINK", layout.name(shard, Names::Live), &layout.guard(shard)]);
        let requests: Vec<_> = (0..layout.len()).map(drop).collect();
        self.connect()?.accepted(&requests).await?;
        fault::point("split:dropped");
        self.forget(layout).await
    }

    /// Drops a split from the index, once no failover can bring its shards back as they were.
    pub(super) async fn forget(&self, layout: &Layout) -> Result<(), DataError> {
        if let Some(why) = self.unreplicated(&live_names(layout)).await? {
            let why = format!("{why}; that its shards are gone may be taken back");
            return Err(DataError::Refused(why));
        }
        let forget = command(&[b"HDEL", &self.index, layout.id.as_bytes()]);
        self.connect()?.accepted(&[forget]).await.map(drop)
    }
}

pub(super) fn refusal_of(reply: &[u8]) -> Result<(), DataError> {
    if reply.first() == Some(&b'-') { refusal(&decode(reply)?) } else { Ok(()) }
}

/// Does what takes long for a large value where nobody waits for it.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DataError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| DataError::Lost(error.to_string()))
}
