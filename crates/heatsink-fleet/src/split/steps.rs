//! The data steps of a split and of its end ([decision 15](../../../../docs/adr/0015-splitting.md)):
//! what is done on the upstream, and in which order.
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

use heatsink_proxy::Handle as ProxyHandle;
use heatsink_resp::value::Value;
use heatsink_split::layout::Names;
use heatsink_split::{Kind, Layout, moving, placement};

use super::contents::size;
use super::data::{Data, DataError, command, decode, refusal};
use super::fault;
use super::marker::is_tombstone;
use super::names::{self, Known, Manifest};

/// How long a mover may take from its first look to its commit.
const PERMIT_MS: &[u8] = b"60000";
/// How long sealed shards and tombstones stay when nothing needs them any more.
const AFTERLIFE_MS: &[u8] = b"600000";
/// A key with less to live is not split.
const LEAST_TTL_MS: i64 = 60_000;
/// Attempts to seal a shard that is written to meanwhile.
const MAX_SEALS: usize = 100;
/// Shards that are sealed at the same time.
const SEALS_AT_ONCE: usize = 8;

/// What may be split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_members: u64,
    pub(crate) max_value_bytes: u64,
}

/// What a key holds that may be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) kind: Kind,
    pub(crate) expires: bool,
}

/// Why a split did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotSplit {
    /// It makes no sense for this value.
    Unfit(String),
    /// The key was written to, or somebody forbade it: nothing has happened.
    Disturbed,
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

/// What came of the end of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// The value is at the key again.
    Committed,
    /// The marker was not there: somebody else has done it, or has overwritten it.
    NotOurs,
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

    /// Notes a split in the index, before anything is written for it.
    pub(crate) async fn enter(&self, id: &str, manifest: &Manifest) -> Result<(), DataError> {
        let body = manifest.to_bytes();
        let enter = command(&[b"HSET", &self.index, id.as_bytes(), &body]);
        self.connect()?.accepted(&[enter]).await?;
        fault::point("split:entered");
        Ok(())
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
        let whole = data.ask(&[moving::read_whole(layout.kind, key)]).await?.remove(0);
        refusal_of(&whole)?;
        let (plan, filled) = (layout.clone(), whole);
        let requests = apart(move || moving::fill_shards(&plan, &filled, stamp)).await?;
        let requests = requests.map_err(|unfit| NotSplit::Unfit(unfit.0))?;
        // Apart from the watch, which would have to stay in one slot.
        self.connect()?.accepted(&requests).await?;
        fault::point("split:copied");
        let mut commit = vec![
            command(&[b"DEL", key]),
            command(&[b"DEL", &permit]),
            moving::write_fence(layout.kind, key, &layout.id),
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
        let drop = |shard| command(&[b"UNLINK", layout.name(shard, Names::Live)]);
        let requests: Vec<_> = (0..layout.len()).map(drop).collect();
        self.connect()?.accepted(&requests).await?;
        fault::point("split:dropped");
        self.forget(&layout.id).await
    }

    /// Makes a value whole again: seals the shards, builds it, commits.
    pub(crate) async fn unsplit(&self, key: &[u8], layout: &Layout) -> Result<Whole, DataError> {
        let proof = names::proof(key, &layout.id);
        self.unsplit_at(key, layout, Some(&proof)).await
    }

    /// The same, wherever the marker is. With a proof, that is left there when it is done.
    pub(crate) async fn unsplit_at(
        &self,
        key: &[u8],
        layout: &Layout,
        proof: Option<&[u8]>,
    ) -> Result<Whole, DataError> {
        if !self.is_marked(key, layout).await? {
            return Ok(Whole::NotOurs);
        }
        self.seal(layout).await?;
        fault::point("unsplit:sealed");
        let mut data = self.connect()?;
        let sealed = data.ask(&moving::read_shards(layout, Names::Sealed)).await?;
        for reply in &sealed {
            refusal_of(reply)?;
        }
        let whole = names::whole(key, &layout.id);
        let (plan, to) = (layout.clone(), whole.clone());
        let built = apart(move || moving::build_whole(&plan, &sealed, &to)).await?;
        let built = built.map_err(|unfit| DataError::Refused(unfit.0))?;
        // Nobody clears up behind a mover that dies; so what it builds has an end.
        let mut requests = Vec::with_capacity(built.len() + 1);
        let end = command(&[b"PEXPIRE", &whole, AFTERLIFE_MS]);
        for (number, request) in built.into_iter().enumerate() {
            requests.push(request);
            if number == 0 {
                requests.push(end.clone());
            }
        }
        let is_empty = requests.is_empty();
        data.accepted(&requests).await?;
        fault::point("unsplit:built");
        let watch = [
            command(&[b"WATCH", key]),
            moving::read_fence(layout.kind, key),
            command(&[b"PEXPIRETIME", key]),
            command(&[b"PTTL", key]),
        ];
        let watched = data.ask(&watch).await?;
        refusal_of(&watched[0])?;
        let commit = if self.judge(key, &watched[1], layout).await?.is_there() {
            let deadline = deadline(&decode(&watched[2])?, &decode(&watched[3])?)?;
            let mut commit = if is_empty {
                vec![command(&[b"DEL", key])]
            } else {
                vec![command(&[b"RENAME", &whole, key]), command(&[b"PERSIST", key])]
            };
            commit.extend(deadline.filter(|_| !is_empty).map(|deadline| deadline.request(key)));
            let prove = |proof: &[u8]| command(&[b"SET", proof, b"1", b"PX", AFTERLIFE_MS]);
            commit.extend(proof.map(prove));
            data.transaction(&commit).await?
        } else {
            None
        };
        if commit.is_none() {
            // Somebody was faster, or something else is there now.
            self.connect()?.accepted(&[command(&[b"UNLINK", &whole])]).await?;
            return if self.is_marked(key, layout).await? {
                Err(DataError::Refused("the key was written to".to_owned()))
            } else {
                Ok(Whole::NotOurs)
            };
        }
        fault::point("unsplit:committed");
        Ok(Whole::Committed)
    }

    /// Seals every shard: what it holds gets another name, and a tombstone is in its place.
    pub(crate) async fn seal(&self, layout: &Layout) -> Result<(), DataError> {
        let mut under_way = tokio::task::JoinSet::new();
        let mut shards = 0..layout.len();
        loop {
            while under_way.len() < SEALS_AT_ONCE
                && let Some(shard) = shards.next()
            {
                let (steps, layout) = (self.clone(), layout.clone());
                under_way.spawn(async move { steps.seal_one(&layout, shard).await });
            }
            match under_way.join_next().await {
                None => return Ok(()),
                Some(Ok(sealed)) => sealed?,
                Some(Err(error)) => return Err(DataError::Lost(error.to_string())),
            }
            fault::point("unsplit:sealing");
        }
    }

    async fn seal_one(&self, layout: &Layout, shard: usize) -> Result<(), DataError> {
        let live = layout.name(shard, Names::Live);
        let sealed = layout.name(shard, Names::Sealed);
        let mut data = self.connect()?;
        for _ in 0..MAX_SEALS {
            let look = [
                command(&[b"WATCH", live, sealed]),
                moving::read_fence(layout.kind, live),
                command(&[b"EXISTS", live]),
                command(&[b"EXISTS", sealed]),
            ];
            let replies = data.ask(&look).await?;
            refusal_of(&replies[0])?;
            if is_tombstone(&replies[1], &layout.id)? {
                data.accepted(&[command(&[b"UNWATCH"])]).await?;
                return Ok(());
            }
            let is_there = |reply: &[u8]| Ok::<_, DataError>(number(reply)? == 1);
            let mut commands = Vec::new();
            if is_there(&replies[2])? {
                if is_there(&replies[3])? {
                    let why = format!("shard {shard} is there twice: somebody else wrote to it");
                    return Err(DataError::Refused(why));
                }
                commands.push(command(&[b"RENAME", live, sealed]));
            }
            commands.push(moving::write_fence(layout.kind, live, &layout.id));
            if data.transaction(&commands).await?.is_some() {
                return Ok(());
            }
        }
        Err(DataError::Refused(format!("shard {shard} is written to all the time")))
    }

    /// Lets the rest of a split that has ended go: nobody may write to its shards, and what is
    /// left of them ends by itself.
    pub(crate) async fn retire(&self, layout: &Layout) -> Result<(), DataError> {
        self.seal(layout).await?;
        let mut requests = Vec::with_capacity(layout.len() * 2);
        for shard in 0..layout.len() {
            for names in [Names::Live, Names::Sealed] {
                requests.push(command(&[b"PEXPIRE", layout.name(shard, names), AFTERLIFE_MS]));
            }
        }
        self.connect()?.accepted(&requests).await?;
        fault::point("unsplit:retired");
        self.forget(&layout.id).await
    }

    async fn forget(&self, id: &str) -> Result<(), DataError> {
        let forget = command(&[b"HDEL", &self.index, id.as_bytes()]);
        self.connect()?.accepted(&[forget]).await.map(drop)
    }
}

/// When a key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    AtMs(i64),
    InMs(i64),
}

impl Deadline {
    pub(super) fn request(self, key: &[u8]) -> Vec<u8> {
        match self {
            Self::AtMs(at) => command(&[b"PEXPIREAT", key, at.to_string().as_bytes()]),
            Self::InMs(left) => command(&[b"PEXPIRE", key, left.to_string().as_bytes()]),
        }
    }
}

/// From the replies to `PEXPIRETIME`, which servers before 7.0 do not know, and `PTTL`.
pub(super) fn deadline(at: &Value, left: &Value) -> Result<Option<Deadline>, DataError> {
    refusal(left)?;
    let left = left.integer().unwrap_or(-1);
    if left < 0 {
        return Ok(None);
    }
    Ok(Some(match at.integer() {
        Some(at) if at >= 0 => Deadline::AtMs(at),
        _ => Deadline::InMs(left.max(1)),
    }))
}

/// What a key holds, whether it can be split, and when it ends.
async fn examine(
    data: &mut Data,
    key: &[u8],
    bounds: &Bounds,
) -> Result<(Fit, Option<Deadline>), NotSplit> {
    let unfit = |why: String| Err(NotSplit::Unfit(why));
    let look =
        [command(&[b"TYPE", key]), command(&[b"PEXPIRETIME", key]), command(&[b"PTTL", key])];
    let values = data.values(&look).await?;
    refusal(&values[0])?;
    let deadline = deadline(&values[1], &values[2])?;
    if values[2].integer().is_some_and(|left| (0..LEAST_TTL_MS).contains(&left)) {
        return unfit("it has less than a minute left".to_owned());
    }
    let of_type = values[0].text().unwrap_or_default();
    let kind = match of_type {
        b"string" => {
            let bytes = number(&data.ask(&[command(&[b"STRLEN", key])]).await?[0])?;
            // A HyperLogLog is of 16 KiB at most, and a number of 20 digits.
            if bytes > 16 * 1024 {
                return unfit("a string that is neither a number nor a HyperLogLog".to_owned());
            }
            let value = data.values(&[command(&[b"GET", key])]).await?;
            match value[0].text().and_then(moving::kind_of_string) {
                Some(kind) => kind,
                None => {
                    return unfit("a string that is neither a number nor a HyperLogLog".to_owned());
                }
            }
        }
        b"none" => return unfit("there is no value".to_owned()),
        other => {
            let of_type = |kind: &&Kind| kind.server_type().as_bytes() == other;
            let Some(kind) = Kind::ALL.iter().find(of_type) else {
                let other = String::from_utf8_lossy(other);
                return unfit(format!("a value of type {other} cannot be split"));
            };
            *kind
        }
    };
    if kind == Kind::List {
        let first = data.ask(&[command(&[b"LINDEX", key, b"0"])]).await?;
        if moving::tells_of_fence(&first[0]) {
            return unfit("it is split, and nobody knows of it yet".to_owned());
        }
    }
    if !matches!(kind, Kind::Counter | Kind::HyperLogLog) {
        let members = number(&data.ask(&[size(kind, key)]).await?[0])?;
        if members > bounds.max_members {
            let most = bounds.max_members;
            return unfit(format!("{members} members, split.max_members is {most}"));
        }
        let bytes = sample_bytes(data, kind, key, members).await?;
        if bytes > bounds.max_value_bytes {
            let most = bounds.max_value_bytes;
            return unfit(format!("about {bytes} bytes, split.max_value_bytes is {most}"));
        }
    }
    Ok((Fit { kind, expires: deadline.is_some() }, deadline))
}

/// About how many bytes a value has, by some of its members.
async fn sample_bytes(
    data: &mut Data,
    kind: Kind,
    key: &[u8],
    members: u64,
) -> Result<u64, DataError> {
    let ask = match kind {
        Kind::Set => command(&[b"SRANDMEMBER", key, b"-32"]),
        Kind::Hash => command(&[b"HRANDFIELD", key, b"-32", b"WITHVALUES"]),
        Kind::SortedSet => command(&[b"ZRANDMEMBER", key, b"-32", b"WITHSCORES"]),
        Kind::List => command(&[b"LRANGE", key, b"0", b"31"]),
        Kind::Counter | Kind::HyperLogLog => return Ok(0),
    };
    let sample = data.accepted(&[ask]).await?.remove(0);
    let texts = sample.array().iter().filter_map(Value::text);
    let bytes: usize = texts.map(<[u8]>::len).sum();
    let each = if matches!(kind, Kind::Hash | Kind::SortedSet) { 2 } else { 1 };
    let taken = (sample.array().len() / each).max(1) as u64;
    Ok(bytes as u64 * members / taken)
}

fn number(reply: &[u8]) -> Result<u64, DataError> {
    let value = decode(reply)?;
    refusal(&value)?;
    let number = value.integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| DataError::Lost("no number".to_owned()))
}

pub(super) fn refusal_of(reply: &[u8]) -> Result<(), DataError> {
    if reply.first() == Some(&b'-') { refusal(&decode(reply)?) } else { Ok(()) }
}

/// Does what takes long for a large value where nobody waits for it.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DataError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| DataError::Lost(error.to_string()))
}
