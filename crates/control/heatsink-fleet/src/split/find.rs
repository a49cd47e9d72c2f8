//! Splits that neither the registry nor the index knows: found by looking at the data.
//!
//! Called by: the reconciler, when a server has refused a worker's command because of a marker that the
//! worker does not know of; `heatsink drain`, which looks through all keys.
//! Bound: one key; or [`MAX_PAGES`] pages of a scan, and [`MAX_NAMED`] names to be reported.
//! Invariant: a marker has a manifest beside it, which is written and removed together with it. So a
//! marker that a failover has brought back comes with the names of its shards:
//!
//! ```text
//! mover                              key's node
//! EXEC: value for marker             one replica confirms, another is cut off
//! drops the split from the index     the one that was cut off takes over: marker and manifest
//!
//! worker                             reconciler
//! SADD key    WRONGTYPE
//! what is at the key? a marker       manifest; the shards are sealed: makes the value whole
//! SADD key    1
//! ```

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use heatsink_resp::value::Value;
use heatsink_split::moving;
use heatsink_split::placement;

use super::change;
use super::data::{Data, DataError, command, decode};
use super::lifecycle::Mover;
use super::names::{Known, Manifest};
use super::steps::Steps;

/// Pages of a scan that are read, of about [`PAGE`] keys each.
const MAX_PAGES: usize = 1_000_000;
const PAGE: &[u8] = b"1000";
/// At most this many names of one split are reported.
const MAX_NAMED: usize = 4;

/// What a look through all keys has found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Splits whose manifest stands beside a marker.
    pub(crate) known: Vec<Known>,
    /// Names that a split has left and that do not expire, by the split's id.
    pub(crate) names: BTreeMap<String, Vec<Vec<u8>>>,
    /// Not all keys were looked at.
    pub(crate) is_partial: bool,
}

impl Found {
    /// Names of splits that nobody knows, in words.
    pub(crate) fn orphans(&self, known: &HashSet<&str>) -> Vec<(String, String)> {
        let unknown = self.names.iter().filter(|(id, _)| !known.contains(id.as_str()));
        let told = |(id, names): (&String, &Vec<Vec<u8>>)| {
            let shown = names.iter().take(MAX_NAMED).map(|name| name.escape_ascii().to_string());
            let shown: Vec<_> = shown.collect();
            let more = if names.len() > MAX_NAMED { ", …" } else { "" };
            (id.clone(), format!("{}{more}", shown.join(", ")))
        };
        unknown.map(told).collect()
    }
}

impl Steps {
    /// The split whose marker stands at a key, if one does and says where its shards are.
    pub(crate) async fn split_at(&self, key: &[u8]) -> Result<Option<Known>, DataError> {
        let mut data = self.connect()?;
        let look = [command(&[b"GET", key]), command(&[b"LRANGE", key, b"0", b"-1"])];
        let replies = data.ask(&look).await?;
        let Some(id) = replies.iter().find_map(|reply| moving::id_of_fence(reply)) else {
            return Ok(None);
        };
        let manifest = data.ask(&[command(&[b"GET", &placement::manifest_name(key, &id)])]).await?;
        let beside =
            decode(&manifest[0])?.text().and_then(|body| Manifest::read(id.as_bytes(), body));
        if beside.is_some() {
            return Ok(beside);
        }
        Ok(self.known().await?.into_iter().find(|known| known.layout.id == id))
    }

    /// Looks through all keys for what splits have left.
    pub(crate) async fn look_everywhere(&self) -> Result<Found, DataError> {
        let mut data = self.connect()?;
        let mut found = Found::default();
        let mut seen = HashSet::new();
        let mut cursor = b"0".to_vec();
        for _ in 0..MAX_PAGES {
            let scan = command(&[b"SCAN", &cursor, b"MATCH", b"heatsink:{*", b"COUNT", PAGE]);
            let page = data.accepted(&[scan]).await?.remove(0);
            let [next, names] = page.array() else {
                return Err(DataError::Lost("no reply to SCAN".to_owned()));
            };
            for name in names.array().iter().filter_map(Value::text) {
                if let Some(part) = Part::of(name)
                    && seen.insert(name.to_vec())
                {
                    note(&mut data, name, &part, &mut found).await?;
                }
            }
            cursor = next.text().unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                return Ok(found);
            }
        }
        found.is_partial = true;
        Ok(found)
    }
}

/// Takes a name into account, unless it ends by itself.
async fn note(
    data: &mut Data,
    name: &[u8],
    part: &Part<'_>,
    found: &mut Found,
) -> Result<(), DataError> {
    if part.what == "manifest" {
        let body = data.values(&[command(&[b"GET", name])]).await?;
        let known = body[0].text().and_then(|body| Manifest::read(part.id.as_bytes(), body));
        found.known.extend(known);
        return Ok(());
    }
    let left = data.accepted(&[command(&[b"PTTL", name])]).await?;
    if left[0].integer() == Some(-1) {
        found.names.entry(part.id.to_owned()).or_default().push(name.to_vec());
    }
    Ok(())
}

/// A name that belongs to a split.
#[derive(Debug, PartialEq)]
struct Part<'a> {
    id: &'a str,
    what: &'a str,
}

impl<'a> Part<'a> {
    /// From `heatsink:{TAG}:ID:WHAT`; the fleet's own keys have no such id.
    fn of(name: &'a [u8]) -> Option<Self> {
        let (_, behind) = std::str::from_utf8(name).ok()?.split_once("}:")?;
        let (id, what) = behind.split_once(':')?;
        let (time, number) = id.split_once('-')?;
        let number = number.strip_suffix('g').unwrap_or(number);
        let is_hexadecimal = |text: &str| u64::from_str_radix(text, 16).is_ok();
        (is_hexadecimal(time) && is_hexadecimal(number)).then_some(Self { id, what })
    }
}

impl Mover {
    /// A server has refused a worker's command because of a marker that the worker does not know of. If the
    /// registry does not know of the split either, it is adopted, or made whole.
    pub(crate) async fn find(&self, key: &[u8]) {
        let known = match self.steps.split_at(key).await {
            Ok(Some(known)) => known,
            Ok(None) => return,
            Err(error) => return tracing::debug!("a marker is looked at later: {error}"),
        };
        let is_of = |seen: Option<&change::Seen>| {
            let split = seen.and_then(|seen| seen.entry.split.as_ref());
            split.is_some_and(|split| split.id == known.layout.id)
        };
        // A worker may only be behind: then it hears of the split before long.
        let is_over = self.state.lock().splits.is_over(&known.layout.id);
        if !is_over && is_of(change::seen(&self.state, key).as_ref()) {
            return;
        }
        let Known { layout, .. } = &known;
        let id = &layout.id;
        let asked = change::asked(&self.state, &self.store, key).await;
        if asked.as_ref().is_ok_and(|seen| is_of(seen.as_ref())) {
            return;
        }
        tracing::warn!(
            "found the marker of split {id}, which neither the registry nor the index knows"
        );
        if asked.is_err() && known.key == key {
            // Nobody can be told. Those who know of it look at its marker.
            self.make_whole(key, layout, Instant::now()).await;
            return;
        }
        if known.key == key {
            return self.adopt(&known).await;
        }
        // It was renamed past all proxies.
        match self.steps.unsplit_at(&known.key, key, &known.layout).await {
            Ok(_) => self.let_go(&known.key, &known.layout).await,
            Err(error) => tracing::debug!("a marker is looked at later: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_splits_are_told_from_the_fleets_own() {
        let part = |name: &'static str| Part::of(name.as_bytes());
        for (name, what) in [
            ("heatsink:{3iv}:19f2c1a77d0-5e884898g:0", "0"),
            ("heatsink:{3iv}:19f2c1a77d0-5e884898:0:sealed", "0:sealed"),
            ("heatsink:{3iv}:19f2c1a77d0-5e884898g:manifest", "manifest"),
            (
                "heatsink:{3iv}:19f2c1a77d0-5e884898g:whole:19f2c1a77d1-00000001",
                "whole:19f2c1a77d1-00000001",
            ),
        ] {
            assert_eq!(part(name).map(|part| part.what), Some(what), "{name}");
        }
        for name in ["heatsink:{default}:splits", "heatsink:{default}:ack:x", "heatsink:{a", ""] {
            assert_eq!(part(name), None, "{name}");
        }
    }

    #[test]
    fn what_nobody_knows_is_named() {
        let names = |count: usize| (0..count).map(|name| format!("n{name}").into_bytes()).collect();
        let names = BTreeMap::from([("1-1".to_owned(), names(6)), ("2-2".to_owned(), names(1))]);
        let found = Found { names, ..Found::default() };
        let orphans = found.orphans(&HashSet::from(["2-2"]));
        assert_eq!(orphans, [("1-1".to_owned(), "n0, n1, n2, n3, …".to_owned())]);
    }
}
