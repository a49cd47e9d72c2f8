//! Whether the value of a key can be split.
//!
//! Called by: a mover, before proxies hold writes of the key, and again while it watches the key.

use heatsink_resp::value::Value;
use heatsink_split::{Kind, moving};

use super::contents::size;
use super::data::{Data, DataError, command, decode, refusal};
use super::steps::NotSplit;

/// A key that expires sooner is not split.
const LEAST_TTL_MS: i64 = 60_000;

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
pub(super) async fn examine(
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
            return unfit("it is split, which the registry does not know yet".to_owned());
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

/// Whether a field of a hash expires by itself. Asked while the hash is watched: if a field is given a
/// time to live later, the commit fails; a command that gives one in a split hash makes it whole first.
pub(super) async fn has_field_ttls(
    data: &mut Data,
    key: &[u8],
    whole: &[u8],
) -> Result<bool, NotSplit> {
    let unfit = |unfit: moving::Unfit| NotSplit::Unfit(unfit.0);
    let mut questions = moving::ask_field_ttls(key, whole).map_err(unfit)?;
    if questions.is_empty() {
        return Ok(false);
    }
    // Most servers do not know the question: one is enough for them.
    let others = questions.split_off(1);
    let first = data.ask(&questions).await?;
    if first[0].starts_with(b"-ERR unknown command") {
        return Ok(false);
    }
    let replies = [first, data.ask(&others).await?].concat();
    for reply in &replies {
        if moving::tells_of_field_ttl(reply).map_err(unfit)? {
            return Ok(true);
        }
    }
    Ok(false)
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

pub(super) fn number(reply: &[u8]) -> Result<u64, DataError> {
    let value = decode(reply)?;
    refusal(&value)?;
    let number = value.integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| DataError::Lost("no number".to_owned()))
}
