//! What stands at the name of a split key, and what becomes of it when somebody writes there past
//! all proxies.
//!
//! Called by: the reconciler with each look, whoever makes a value whole, `heatsink drain`; by
//! several at once.
//! Bound: a marker that is not at its key is searched for among [`MAX_IN_SLOT`] keys of its slot,
//! or [`MAX_PAGES`] pages of a server that is not a cluster's.
//! Invariant: what replaces a marker is the value, and nothing is the value if it was removed
//! (decision 15). A marker that was only changed is still a marker: what did that would have been
//! refused by a value of the key's type. A marker that was given another name is the value there.
//! Shards are let go only when nobody has a marker of theirs.
//!
//! A marker that was changed is written anew, beside others who move the value, and beside
//! strangers:
//!
//! ```text
//! mender                              others
//! WATCH key; a changed marker
//!                                     end of the split, EXEC: value for what stands there
//!                                     or a stranger: DEL, SET, RENAME
//! MULTI; DEL; marker; EXEC: nil
//! ```
//!
//! ```text
//! mender                              mover who ends the split
//!                                     WATCH key; a changed marker, as good as one
//! EXEC: marker
//!                                     EXEC: nil; there is a marker: tried again
//! ```
//!
//! A marker without an id must not be taken for that of an earlier split, of which something is left in
//! the index, nor for that of one which has just ended:
//!
//! ```text
//! whoever asks for A                  mover who ends B
//! reads the key: a marker without id
//!                                     EXEC: value for marker; drops B from the index
//! index: A alone
//! reads the key: something else       nothing is said of A
//! ```
//!
//! A marker that is gone may have been removed, replaced, or given another name; or the value was
//! made whole. Of the last there is proof: whoever commits it leaves a name beside the key.
//!
//! ```text
//! stranger            reconciler
//! RENAME key other    no marker at the key, and no proof
//!                     registry: split no more                      [killed: adopted by another]
//!                     search: a marker at other
//!                     seals the shards, builds the whole, EXEC at other          [the same]
//!                     search: nothing
//!                     retires the shards, and drops the split from the index
//! ```

use heatsink_cluster::slot;
use heatsink_resp::value::Value;
use heatsink_split::moving::Fence;
use heatsink_split::{Kind, Layout, moving};

use super::change::{Changed, Next};
use super::data::{Data, DataError, command, decode, refusal};
use super::fault;
use super::fit::deadline;
use super::lifecycle::{Mover, PAUSE_MS, is_in, is_of, pause_of};
use super::names;
use super::steps::{Steps, refusal_of};
use super::whole::Whole;

/// Keys of a slot that are looked through.
const MAX_IN_SLOT: usize = 100_000;
/// Pages of a server that are looked through, of about [`PAGE`] keys each.
const MAX_PAGES: usize = 5_000;
const PAGE: &[u8] = b"1000";
/// Keys that are looked at in one go.
const AT_ONCE: usize = 500;
/// Searches for a marker that is always somewhere else.
const MAX_SEARCHES: usize = 4;
/// What all names of our own begin with, those of tombstones among them.
const OURS: &[u8] = b"heatsink:{";

/// What stands at the name of a split key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The marker of this split.
    Intact,
    /// The same, changed by somebody past all proxies.
    Damaged,
    /// Something else, or nothing.
    Missing,
}

impl Marker {
    /// Whether the value is in the shards.
    pub(crate) fn is_there(self) -> bool {
        self != Self::Missing
    }
}

/// Keys at which a marker was found, and why not all were looked at.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) at: Vec<Vec<u8>>,
    pub(crate) gap: Option<String>,
}

impl Steps {
    /// What a reply to a read of a marker shows; an error other than that of a value of another
    /// type says nothing.
    pub(super) async fn judge(
        &self,
        key: &[u8],
        reply: &[u8],
        layout: &Layout,
    ) -> Result<Marker, DataError> {
        if reply.starts_with(b"-WRONGTYPE") {
            return Ok(Marker::Missing);
        }
        refusal_of(reply)?;
        match moving::fence(reply, &layout.id) {
            Fence::Intact => Ok(Marker::Intact),
            Fence::Missing => Ok(Marker::Missing),
            Fence::Damaged if has_id(reply, &layout.id) => Ok(Marker::Damaged),
            Fence::Damaged => self.judge_nameless(key, reply, layout, None).await,
            Fence::Another(id) => self.judge_nameless(key, reply, layout, Some(id)).await,
        }
    }

    /// A marker that has lost its id, or has one that is not this split's: it is that of the latest
    /// split of the key, unless it was renamed from the key of another one. A split is in the index
    /// for longer than its marker is anywhere, so the index is asked while the marker is there.
    async fn judge_nameless(
        &self,
        key: &[u8],
        reply: &[u8],
        layout: &Layout,
        id: Option<Vec<u8>>,
    ) -> Result<Marker, DataError> {
        let known = self.known().await?;
        let again = self.connect()?.ask(&[moving::read_fence(layout.kind, key)]).await?;
        if again[0] != reply {
            return Err(DataError::Refused("the key was written to".to_owned()));
        }
        if known.iter().any(|known| id.as_deref() == Some(known.layout.id.as_bytes())) {
            return Ok(Marker::Missing);
        }
        let mut of_key = known.iter().filter(|known| known.key == key);
        let is_latest =
            of_key.all(|known| names::time(&known.layout.id) <= names::time(&layout.id));
        Ok(if is_latest { Marker::Damaged } else { Marker::Missing })
    }

    /// Whether the marker of a split is at its key.
    pub(crate) async fn is_marked(&self, key: &[u8], layout: &Layout) -> Result<bool, DataError> {
        let request = moving::read_fence(layout.kind, key);
        let replies = self.connect()?.ask(&[request]).await?;
        Ok(self.judge(key, &replies[0], layout).await?.is_there())
    }

    /// What stands at several keys, in one go; with how many milliseconds each has left.
    pub(crate) async fn look(
        &self,
        splits: &[(Vec<u8>, Layout)],
    ) -> Result<Vec<(Marker, Option<i64>)>, DataError> {
        let mut requests = Vec::with_capacity(splits.len() * 2);
        for (key, layout) in splits {
            requests.push(moving::read_fence(layout.kind, key));
            requests.push(command(&[b"PTTL", key]));
        }
        let replies = self.connect()?.ask(&requests).await?;
        let mut seen = Vec::with_capacity(splits.len());
        for ((key, layout), replies) in splits.iter().zip(replies.chunks_exact(2)) {
            let left = decode(&replies[1])?;
            refusal(&left)?;
            let left = left.integer().filter(|left| *left >= 0);
            seen.push((self.judge(key, &replies[0], layout).await?, left));
        }
        Ok(seen)
    }

    /// Writes a marker anew that somebody has changed; whether it was done.
    pub(crate) async fn mend(&self, key: &[u8], layout: &Layout) -> Result<bool, DataError> {
        let watch = [
            command(&[b"WATCH", key]),
            moving::read_fence(layout.kind, key),
            command(&[b"PEXPIRETIME", key]),
            command(&[b"PTTL", key]),
        ];
        let mut data = self.connect()?;
        let watched = data.ask(&watch).await?;
        refusal_of(&watched[0])?;
        if self.judge(key, &watched[1], layout).await? != Marker::Damaged {
            return Ok(false);
        }
        let deadline = deadline(&decode(&watched[2])?, &decode(&watched[3])?)?;
        let marker = moving::write_fence(layout.kind, key, &layout.id);
        let mut anew = vec![command(&[b"DEL", key]), marker];
        anew.extend(deadline.map(|deadline| deadline.request(key)));
        Ok(data.transaction(&anew).await?.is_some())
    }

    /// Whether the value was made whole at its key, as far back as anybody remembers.
    async fn was_made_whole(&self, key: &[u8], layout: &Layout) -> Result<bool, DataError> {
        let proof = names::proof(key, &layout.id);
        let there = self.connect()?.accepted(&[command(&[b"EXISTS", &proof])]).await?;
        Ok(there[0].integer() == Some(1))
    }

    /// Whether nothing is at the key because a part of the split was evicted, or the marker. If clients
    /// removed a marker past all proxies, where keys are evicted, nobody knows that from an eviction.
    pub(crate) async fn was_evicted(&self, key: &[u8], layout: &Layout) -> Result<bool, DataError> {
        let proof = command(&[b"GET", &names::proof(key, &layout.id)]);
        let asked = self.connect()?.accepted(&[proof, command(&[b"EXISTS", key])]).await?;
        if let Some(proof) = asked[0].text() {
            return Ok(proof == names::EVICTED);
        }
        Ok(asked[1].integer() == Some(0) && self.have_evicted(&[key], layout.expires).await?)
    }

    /// Looks for a marker that is not at its key. In a cluster it cannot have left its slot.
    pub(crate) async fn search(&self, key: &[u8], layout: &Layout) -> Result<Search, DataError> {
        match self.search_all(key, layout).await {
            // It is not for this user to ask, say, or the server does not know how to answer.
            Err(DataError::Refused(why)) => {
                Ok(Search { at: Vec::new(), gap: Some(format!("the upstream refused: {why}")) })
            }
            searched => searched,
        }
    }

    async fn search_all(&self, key: &[u8], layout: &Layout) -> Result<Search, DataError> {
        let mut data = self.connect()?;
        let mut search = Search::default();
        if self.is_cluster() {
            let slot = slot::of_key(key).to_string();
            let most = (MAX_IN_SLOT + 1).to_string();
            let ask: [&[u8]; 4] = [b"CLUSTER", b"GETKEYSINSLOT", slot.as_bytes(), most.as_bytes()];
            let keys = data.accepted(&[command(&ask)]).await?.remove(0);
            if keys.array().len() > MAX_IN_SLOT {
                search.gap = Some(format!("there are more than {MAX_IN_SLOT} keys in its slot"));
            }
            look_through(&mut data, keys.array(), layout, &mut search.at).await?;
            return Ok(search);
        }
        let of_type: &[u8] = match layout.kind {
            Kind::Counter | Kind::HyperLogLog => b"list",
            _ => b"string",
        };
        let mut cursor = b"0".to_vec();
        for _ in 0..MAX_PAGES {
            let scan = command(&[b"SCAN", &cursor, b"COUNT", PAGE, b"TYPE", of_type]);
            let page = data.accepted(&[scan]).await?.remove(0);
            let [next, keys] = page.array() else {
                return Err(DataError::Lost("no reply to SCAN".to_owned()));
            };
            look_through(&mut data, keys.array(), layout, &mut search.at).await?;
            cursor = next.text().unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                return Ok(search);
            }
        }
        search.gap = Some("there are too many keys".to_owned());
        Ok(search)
    }
}

/// Whether a reply to a read of a shard is its tombstone, or what strangers have made of it: the
/// name of a shard tells which split it belongs to.
pub(super) fn is_tombstone(reply: &[u8], id: &str) -> Result<bool, DataError> {
    if reply.starts_with(b"-WRONGTYPE") {
        return Ok(false);
    }
    refusal_of(reply)?;
    Ok(moving::fence(reply, id) != Fence::Missing)
}

/// Finds those among `keys` that are a marker of this split.
async fn look_through(
    data: &mut Data,
    keys: &[Value],
    layout: &Layout,
    found: &mut Vec<Vec<u8>>,
) -> Result<(), DataError> {
    let ask = |key: &&[u8]| match layout.kind {
        Kind::Counter | Kind::HyperLogLog => command(&[b"LRANGE", key, b"0", b"1"]),
        _ => command(&[b"GETRANGE", key, b"0", b"63"]),
    };
    let keys: Vec<&[u8]> =
        keys.iter().filter_map(Value::text).filter(|key| !key.starts_with(OURS)).collect();
    for keys in keys.chunks(AT_ONCE) {
        let replies = data.ask(&keys.iter().map(ask).collect::<Vec<_>>()).await?;
        for (key, reply) in keys.iter().zip(&replies) {
            let is_marker = match moving::fence(reply, &layout.id) {
                Fence::Intact => true,
                Fence::Damaged => moving::tells_of_fence(reply) && has_id(reply, &layout.id),
                Fence::Another(_) | Fence::Missing => false,
            };
            if is_marker && !found.iter().any(|found| found == key) {
                found.push(key.to_vec());
            }
        }
    }
    Ok(())
}

fn has_id(reply: &[u8], id: &str) -> bool {
    reply.windows(id.len().max(1)).any(|part| part == id.as_bytes())
}

impl Mover {
    /// A marker that was changed is written anew.
    pub(crate) async fn mend(&self, key: &[u8], layout: &Layout) {
        match self.steps.mend(key, layout).await {
            Ok(true) => {
                self.state.lock().splits.drift_total += 1;
                self.count("split", "mended");
                let key = self.state.named(key);
                tracing::warn!(
                    key,
                    "a client wrote to the marker of a split key; the marker was written anew"
                );
            }
            Ok(false) => {}
            Err(error) => {
                let key = self.state.named(key);
                tracing::debug!(key, "a marker is mended later: {error}");
            }
        }
    }

    /// Something else took the place of the marker: it is the value now.
    pub(crate) async fn overwritten(&self, key: &[u8], layout: &Layout) {
        let why = match self.steps.was_made_whole(key, layout).await {
            Ok(true) => "not split: it was made whole while the registry could not be told",
            _ => "not split: its value was overwritten",
        };
        let told = self
            .tell(key, |seen| match seen.filter(|seen| is_of(Some(seen), &layout.id)) {
                Some(seen) if is_in(seen, heatsink_control::entry::Phase::Split) => {
                    let pause = pause_of(&seen.entry, PAUSE_MS, why.to_owned());
                    self.whole_again(&seen.entry, Some(pause))
                }
                _ => Next::Leave,
            })
            .await;
        fault::point("marker:told");
        if matches!(told, Some(Changed::Put(_) | Changed::Removed)) {
            self.state.lock().splits.drift_total += 1;
            self.count("unsplit", "overwritten");
            self.let_go(key, layout).await;
        }
    }

    /// Lets the shards of a split go whose marker is not at its key; what cannot be done now is
    /// done by whoever finds the split in the index.
    pub(crate) async fn let_go(&self, key: &[u8], layout: &Layout) {
        let followed = match self.follow(key, layout).await {
            Ok(Search { at, gap }) => {
                if at.is_empty() && self.steps.was_evicted(key, layout).await == Ok(true) {
                    let (key, id) = (self.state.named(key), &layout.id);
                    tracing::warn!(
                        key,
                        "the value of split {id} counts as evicted: nothing is at its key"
                    );
                } else if let Some(gap) = gap {
                    let (key, id) = (self.state.named(key), &layout.id);
                    tracing::warn!(
                        key,
                        "the marker of a split key is gone, and it is not known whether it was \
                         renamed: {gap}; its shards (id {id}) are dropped in ten minutes"
                    );
                }
                self.steps.retire(key, layout).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            self.leave(key, layout, &error);
        }
    }

    /// Makes a value whole wherever its marker is, which is not at its key any more. Tells where
    /// that was done.
    pub(crate) async fn follow(&self, key: &[u8], layout: &Layout) -> Result<Search, DataError> {
        let mut followed = Search::default();
        if self.steps.was_made_whole(key, layout).await? {
            return Ok(followed);
        }
        for _ in 0..MAX_SEARCHES {
            let search = self.steps.search(key, layout).await?;
            if search.at.is_empty() {
                followed.gap = search.gap.filter(|_| followed.at.is_empty());
                return Ok(followed);
            }
            for at in search.at {
                if self.steps.unsplit_at(key, &at, layout).await? == Whole::Committed {
                    self.count("unsplit", "renamed");
                    followed.at.push(at);
                    fault::point("marker:followed");
                }
            }
        }
        Err(DataError::Refused("its marker keeps being renamed".to_owned()))
    }
}
