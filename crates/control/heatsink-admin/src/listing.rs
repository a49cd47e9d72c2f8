//! Which hot keys a list shows, in which order, and where the next page begins.
//!
//! Called by: `GET /hotkeys`.
//! Bound: one pass and one sort over the registry, which is bounded; a page of at most
//! [`LIMIT_MAX`] items.
//! Invariant: a page begins strictly behind the item where the page before ended, by value and
//! not by number, so that keys which come and go between two pages make no other key appear
//! twice or not at all. (A key whose own rate changes may move across the boundary.) A cursor
//! holds no more of a key than the list itself shows.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use heatsink_control::entry::{Mitigation, Origin, Status};
use heatsink_resp::glob;

use crate::control::HotKey;
use crate::key_name::{Privacy, key_hash};
use crate::problem::Problem;
use crate::query::Query;

/// Most items on a page.
pub(crate) const LIMIT_MAX: usize = 1000;

/// Items on a page, if the request does not say.
pub(crate) const LIMIT_DEFAULT: usize = 100;

/// Bytes of a key that its place in the order of keys depends on.
const ORDERED_BYTES: usize = 256;

/// The parameters of the list.
pub(crate) const PARAMETERS: &[&str] =
    &["limit", "cursor", "sort", "status", "origin", "mitigation_type", "prefix", "match"];

/// What a request wants to see.
#[derive(Debug)]
pub(crate) struct Listing {
    limit: usize,
    sort: Sort,
    after: Option<Rank>,
    statuses: Option<Vec<Status>>,
    origins: Option<Vec<Origin>>,
    mitigations: Option<Vec<Mitigation>>,
    prefix: Option<Vec<u8>>,
    pattern: Option<Vec<u8>>,
    privacy: Privacy,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// Most requests first.
    Frequency,
    /// Newest first.
    DetectedAt,
    /// By the key's bytes; by its hash if keys are hidden.
    Key,
}

impl Sort {
    const ALL: [(Self, &'static str, u8); 3] = [
        (Self::Frequency, "frequency", b'f'),
        (Self::DetectedAt, "detected_at", b'd'),
        (Self::Key, "key", b'k'),
    ];
}

/// The place of an item in the order: ascending, and no two keys have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    value: Vec<u8>,
    hash: String,
}

/// One page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its items.
    pub(crate) items: Vec<HotKey>,
    /// Where the next one begins.
    pub(crate) next_cursor: Option<String>,
    /// Items on all pages.
    pub(crate) total: usize,
}

impl Listing {
    /// Reads the parameters of a request.
    pub(crate) fn parse(raw_query: Option<&str>, privacy: Privacy) -> Result<Self, Problem> {
        let query = Query::parse(raw_query, PARAMETERS)?;
        let sort = match query.text("sort")? {
            None => Sort::Frequency,
            Some(name) => Sort::ALL
                .iter()
                .find(|(_, known, _)| *known == name)
                .map(|(sort, _, _)| *sort)
                .ok_or_else(|| {
                    Problem::bad_request("sort must be one of frequency, detected_at, key.")
                })?,
        };
        let [prefix, pattern] =
            ["prefix", "match"].map(|name| query.bytes(name).map(<[u8]>::to_vec));
        if privacy == Privacy::Hash && (prefix.is_some() || pattern.is_some()) {
            // Asking for one longer prefix after the other would spell out every key.
            return Err(Problem::unprocessable(
                "keys-hidden",
                "Keys are hidden (privacy = \"hash\"), so prefix and match cannot be used; \
                 address a key you know by itself.",
            ));
        }
        Ok(Self {
            limit: parse_limit(&query)?,
            sort,
            after: query.text("cursor")?.map(|cursor| Rank::parse(cursor, sort)).transpose()?,
            statuses: parse_names(&query, "status", Status::ALL)?,
            origins: parse_names(&query, "origin", Origin::ALL)?,
            mitigations: parse_names(&query, "mitigation_type", Mitigation::ALL)?,
            prefix,
            pattern,
            privacy,
        })
    }

    /// The page of `hot_keys` that was asked for.
    pub(crate) fn page(&self, mut hot_keys: Vec<HotKey>) -> Page {
        hot_keys.retain(|hot| self.shows(hot));
        let total = hot_keys.len();
        let mut ranked: Vec<(Rank, HotKey)> = hot_keys
            .into_iter()
            .map(|hot| (self.rank(&hot), hot))
            .filter(|(rank, _)| self.after.as_ref().is_none_or(|after| rank > after))
            .collect();
        ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
        let has_more = ranked.len() > self.limit;
        ranked.truncate(self.limit);
        let next_cursor =
            ranked.last().filter(|_| has_more).map(|(rank, _)| rank.cursor(self.sort));
        Page { items: ranked.into_iter().map(|(_, hot)| hot).collect(), next_cursor, total }
    }

    fn shows(&self, hot: &HotKey) -> bool {
        self.statuses.as_ref().is_none_or(|some| some.contains(&hot.entry.status))
            && self.origins.as_ref().is_none_or(|some| some.contains(&hot.entry.origin))
            && self.mitigations.as_ref().is_none_or(|some| some.contains(&hot.entry.mitigation))
            && self.prefix.as_ref().is_none_or(|prefix| hot.key.starts_with(prefix))
            && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, &hot.key))
    }

    fn rank(&self, hot: &HotKey) -> Rank {
        let value = match self.sort {
            // The bits of a number that is not negative ascend with it.
            Sort::Frequency => (!hot.entry.frequency.max(0.0).to_bits()).to_be_bytes().to_vec(),
            Sort::DetectedAt => (!hot.entry.detected_at_ms).to_be_bytes().to_vec(),
            Sort::Key if self.privacy == Privacy::Hash => Vec::new(),
            Sort::Key => hot.key[..hot.key.len().min(ORDERED_BYTES)].to_vec(),
        };
        Rank { value, hash: key_hash(&hot.key) }
    }
}

impl Rank {
    fn cursor(&self, sort: Sort) -> String {
        let mut bytes = vec![sort_letter(sort)];
        bytes.extend_from_slice(self.hash.as_bytes());
        bytes.extend_from_slice(&self.value);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn parse(cursor: &str, sort: Sort) -> Result<Self, Problem> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap_or_default();
        match bytes.split_at_checked(17) {
            Some(([letter, hash @ ..], value)) if *letter == sort_letter(sort) => {
                Ok(Self { value: value.to_vec(), hash: String::from_utf8_lossy(hash).into_owned() })
            }
            _ => Err(Problem::bad_request(
                "cursor must be the next_cursor of a page that was asked for with the same sort; \
                 begin again without a cursor.",
            )),
        }
    }
}

fn sort_letter(sort: Sort) -> u8 {
    Sort::ALL.iter().find(|(known, _, _)| *known == sort).map_or(0, |(_, _, letter)| *letter)
}

fn parse_limit(query: &Query) -> Result<usize, Problem> {
    match query.text("limit")?.map(str::parse) {
        None => Ok(LIMIT_DEFAULT),
        Some(Ok(limit)) if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
        Some(_) => {
            Err(Problem::bad_request(format!("limit must be a number from 1 to {LIMIT_MAX}.")))
        }
    }
}

/// A list of names between commas.
fn parse_names<T>(query: &Query, parameter: &str, all: &[T]) -> Result<Option<Vec<T>>, Problem>
where
    T: Copy + ToString + std::str::FromStr,
{
    let Some(text) = query.text(parameter)? else { return Ok(None) };
    let parsed: Result<Vec<T>, _> = text.split(',').map(str::parse).collect();
    parsed.map(Some).map_err(|_| {
        let known: Vec<String> = all.iter().map(ToString::to_string).collect();
        Problem::bad_request(format!("{parameter} must be of {}.", known.join(", ")))
    })
}

#[cfg(test)]
mod tests;
