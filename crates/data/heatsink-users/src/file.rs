//! From the text of a users file to a checked [`Table`].
//!
//! Called by: `Users`, on load and reload.
//! Bound: [`FILE_LIMIT_BYTES`], [`HASHES_LIMIT`] per user, and limits on what a hash may ask
//! for, as a verification allocates what its hash says.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use argon2::Params;
use argon2::password_hash::phc::PasswordHash;
use serde::Deserialize;
use toml::Spanned;

use crate::NAME_LIMIT_BYTES;
use crate::error::{UsersError, UsersProblem};
use crate::table::{Hash, Table, User};

/// Some hundred thousand users.
const FILE_LIMIT_BYTES: u64 = 32 * 1024 * 1024;
/// A rotation needs two; a refusal costs as many verifications as the user with most has.
const HASHES_LIMIT: usize = 4;

const MEMORY_LIMIT_KIB: u32 = 256 * 1024;
const PASSES_LIMIT: u32 = 16;
const LANES_LIMIT: u32 = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    user: Vec<RawUser>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUser {
    name: Spanned<String>,
    hash: Option<Spanned<String>>,
    hashes: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default = "enabled_default")]
    enabled: bool,
}

fn enabled_default() -> bool {
    true
}

/// A problem and the byte at which it is.
type Located = (Option<usize>, UsersProblem);

pub(crate) fn read(path: &Path) -> Result<Table, UsersError> {
    let error = |line, problem| UsersError { path: path.to_owned(), line, problem };
    let text = contents(path).map_err(|why| error(None, UsersProblem::Unreadable(why)))?;
    parse(&text).map_err(|(at, problem)| error(at.map(|at| line_of(&text, at)), problem))
}

fn contents(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(FILE_LIMIT_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > FILE_LIMIT_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 32 MiB"));
    }
    Ok(text)
}

fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

fn parse(text: &str) -> Result<Table, Located> {
    let raw: RawFile = toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        (at, UsersProblem::Malformed(unquoted(error.message())))
    })?;
    let mut users = HashMap::with_capacity(raw.user.len());
    for raw in raw.user {
        let at = Some(raw.name.span().start);
        let name = raw.name.get_ref().clone();
        if name.is_empty() {
            return Err((at, UsersProblem::EmptyName));
        }
        if name.len() > NAME_LIMIT_BYTES {
            return Err((at, UsersProblem::LongName));
        }
        let user = User { enabled: raw.enabled, hashes: hashes(raw)? };
        match users.entry(name.into_bytes().into_boxed_slice()) {
            Entry::Vacant(entry) => drop(entry.insert(user)),
            Entry::Occupied(entry) => {
                let name = String::from_utf8_lossy(entry.key()).into_owned();
                return Err((at, UsersProblem::DuplicateUser(name)));
            }
        }
    }
    Ok(Table::new(users))
}

/// The message of the parser without the value that it is about, which may be a secret. (Its
/// `Display` quotes the whole line.)
fn unquoted(message: &str) -> String {
    let about_value = message.starts_with("invalid ");
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if about_value => format!("wrong type of value, expected {expected}"),
        _ => message.to_owned(),
    }
}

fn hashes(raw: RawUser) -> Result<Vec<Hash>, Located> {
    match (raw.hash, raw.hashes) {
        (Some(one), None) => Ok(vec![hash(&one)?]),
        (None, Some(several)) => {
            let at = Some(several.span().start);
            let several = several.into_inner();
            if several.is_empty() || several.len() > HASHES_LIMIT {
                return Err((at, UsersProblem::HashCount { limit: HASHES_LIMIT }));
            }
            several.iter().map(hash).collect()
        }
        _ => Err((Some(raw.name.span().start), UsersProblem::HashOrHashes)),
    }
}

fn hash(text: &Spanned<String>) -> Result<Hash, Located> {
    let at = Some(text.span().start);
    let unusable = || (at, UsersProblem::NotArgon2id);
    let parsed = PasswordHash::new(text.get_ref()).map_err(|_| unusable())?;
    let params = Params::try_from(&parsed).map_err(|_| unusable())?;
    let whole = parsed.algorithm.as_str() == "argon2id"
        && parsed.version == Some(19)
        && parsed.salt.is_some()
        && parsed.hash.is_some();
    if !whole {
        return Err(unusable());
    }
    if params.m_cost() > MEMORY_LIMIT_KIB
        || params.t_cost() > PASSES_LIMIT
        || params.p_cost() > LANES_LIMIT
    {
        return Err((at, UsersProblem::TooCostly));
    }
    let cost = u64::from(params.m_cost()) * u64::from(params.t_cost());
    Ok(Hash { text: text.get_ref().clone(), parsed, cost })
}
