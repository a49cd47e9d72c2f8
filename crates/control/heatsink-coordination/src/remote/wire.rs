//! Replies of the scripts and messages of the changes channel, as values.
//!
//! Called by: `remote` and `subscriber`.
//! Invariant: whatever the bytes, the result is a value or an error that says what was wrong.

use std::time::Duration;

use redis::Value;

use super::roster::Beat;
use crate::error::StoreError;
use crate::model::{Blocked, Member, Notice, Record, Snapshot};
use crate::seal::{Of, Seal};

/// `{word, number}`.
pub(super) fn outcome(reply: &Value) -> Result<(&str, u64), StoreError> {
    match items(reply)? {
        [word, number_value] => {
            let word = std::str::from_utf8(bytes(word)?).map_err(|_| not_understood(reply))?;
            Ok((word, number(number_value)?))
        }
        _ => Err(not_understood(reply)),
    }
}

pub(super) fn number(value: &Value) -> Result<u64, StoreError> {
    let number = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(_) | Value::SimpleString(_) => parse_digits(bytes(value)?),
        _ => None,
    };
    number.ok_or_else(|| not_understood(value))
}

/// `{channel, number}` of a question about one channel.
pub(super) fn subscribers(reply: &Value) -> Result<u64, StoreError> {
    match reply {
        Value::Map(pairs) => pairs.first().map(|(_, count)| number(count)),
        _ => items(reply)?.get(1).map(number),
    }
    .unwrap_or_else(|| Err(not_understood(reply)))
}

/// `{text ...}`.
pub(super) fn texts(reply: &Value) -> Result<Vec<String>, StoreError> {
    items(reply)?.iter().map(text).collect()
}

/// `{incarnation, version}`.
pub(super) fn pulse(reply: &Value) -> Result<(String, u64), StoreError> {
    match items(reply)? {
        [incarnation, version] => Ok((text(incarnation)?, number(version)?)),
        _ => Err(not_understood(reply)),
    }
}

/// `{incarnation, version, now, {key, packed ...}, {key, until ...}}`.
pub(super) fn snapshot(reply: &Value, seal: &Seal) -> Result<Snapshot, StoreError> {
    let [incarnation, version, now_ms, records, blocked] = items(reply)? else {
        return Err(not_understood(reply));
    };
    let now_ms = number(now_ms)?;
    let mut snapshot = Snapshot {
        incarnation: text(incarnation)?,
        version: number(version)?,
        server_time_ms: now_ms,
        records: Vec::new(),
        blocked: Vec::new(),
    };
    for (key, packed) in pairs(records)? {
        let (key, packed) = (bytes(key)?, bytes(packed)?);
        // One that cannot be read counts as none, as the scripts take it; the next put of its
        // key replaces it.
        match unpack(key, packed, now_ms) {
            Some((record, is_expired)) if !is_expired => {
                snapshot.records.extend(opened(record, seal));
            }
            Some(_) => {}
            None => {
                seal.ignore();
                tracing::debug!(bytes = packed.len(), "a record cannot be read");
            }
        }
    }
    for (key, until_ms) in pairs(blocked)? {
        let left_ms = number(until_ms)?.saturating_sub(now_ms);
        if left_ms > 0 {
            let remaining = Duration::from_millis(left_ms);
            snapshot.blocked.push(Blocked { key: bytes(key)?.to_vec(), remaining });
        }
    }
    Ok(snapshot)
}

/// `{"applied", version, is full, {id ...}, {id, body ...}}`; `None` when there are too many.
pub(super) fn beat(reply: &Value) -> Result<Option<Beat>, StoreError> {
    let [word, version, is_full, ids, members] = items(reply)? else {
        return Err(not_understood(reply));
    };
    if bytes(word)? != b"applied" {
        return Ok(None);
    }
    let member =
        |(id, body): (&Value, &Value)| Ok(Member { id: text(id)?, body: bytes(body)?.to_vec() });
    Ok(Some(Beat {
        version: number(version)?,
        is_full: number(is_full)? == 1,
        ids: items(ids)?.iter().map(text).collect::<Result<_, _>>()?,
        members: pairs(members)?.map(member).collect::<Result<_, _>>()?,
    }))
}

/// A message of the changes channel; `None` when it is none of ours.
pub(super) fn change(message: &[u8]) -> Option<Notice> {
    let (kind, rest) = word(message)?;
    let (version, rest) = word(rest)?;
    let (now_ms, rest) = word(rest)?;
    let (key_length, rest) = word(rest)?;
    let (version, now_ms) = (parse_digits(version)?, parse_digits(now_ms)?);
    let key_length = usize::try_from(parse_digits(key_length)?).ok()?;
    let (key, packed) = rest.split_at_checked(key_length)?;
    let record = match kind {
        b"P" => Some(unpack(key, packed, now_ms)?.0),
        b"R" if packed.is_empty() => None,
        _ => return None,
    };
    Some(Notice::Change { version, key: key.to_vec(), record })
}

/// A record with its body as the member who wrote it meant it; nothing if no member did.
pub(super) fn opened(record: Record, seal: &Seal) -> Option<Record> {
    let body = seal.open(Of::Record(&record.key), &record.body)?;
    Some(Record { body, ..record })
}

/// `epoch created expires body`, and whether it has expired.
fn unpack(key: &[u8], packed: &[u8], now_ms: u64) -> Option<(Record, bool)> {
    let (epoch, rest) = word(packed)?;
    let (created_at_ms, rest) = word(rest)?;
    let (expires_at_ms, body) = word(rest)?;
    let expires_at_ms = parse_digits(expires_at_ms)?;
    let left = Duration::from_millis(expires_at_ms.saturating_sub(now_ms));
    let record = Record {
        key: key.to_vec(),
        epoch: parse_digits(epoch)?,
        created_at_ms: parse_digits(created_at_ms)?,
        expires_in: (expires_at_ms != 0).then_some(left),
        body: body.to_vec(),
    };
    Some((record, expires_at_ms != 0 && left.is_zero()))
}

/// What stands before the first space, and what behind it.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == b' ')?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.first() == Some(&b'+') {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn bytes(value: &Value) -> Result<&[u8], StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.as_bytes()),
        _ => Err(not_understood(value)),
    }
}

pub(super) fn text(value: &Value) -> Result<String, StoreError> {
    String::from_utf8(bytes(value)?.to_vec()).map_err(|_| not_understood(value))
}

pub(super) fn items(value: &Value) -> Result<&[Value], StoreError> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(not_understood(value)),
    }
}

fn pairs(value: &Value) -> Result<impl Iterator<Item = (&Value, &Value)>, StoreError> {
    Ok(items(value)?.chunks_exact(2).map(|pair| (&pair[0], &pair[1])))
}

fn not_understood(value: &Value) -> StoreError {
    StoreError::garbled(shape(value))
}

/// What kind of value it is and how large, without what it holds: that may be anybody's data.
pub(super) fn shape(value: &Value) -> String {
    match value {
        Value::Nil => "nothing".to_owned(),
        Value::Int(_) => "a number".to_owned(),
        Value::BulkString(bytes) => format!("a string of {} bytes", bytes.len()),
        Value::SimpleString(text) => format!("a string of {} bytes", text.len()),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Map(pairs) => format!("a map of {}", pairs.len()),
        _ => "a value of another kind".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_change_holds_any_bytes() {
        let message = b"P 12 1000 4 a \0\n12 900 1250 \xff body";
        let record = Record {
            key: b"a \0\n".to_vec(),
            epoch: 12,
            created_at_ms: 900,
            expires_in: Some(Duration::from_millis(250)),
            body: b"\xff body".to_vec(),
        };
        let key = record.key.clone();
        assert_eq!(
            change(message),
            Some(Notice::Change { version: 12, key, record: Some(record) })
        );
        let removal = Notice::Change { version: 13, key: b" ".to_vec(), record: None };
        assert_eq!(change(b"R 13 1000 1  "), Some(removal));
    }

    #[test]
    fn an_answer_that_is_not_understood_is_described_but_not_shown() {
        let secret = Value::BulkString(vec![b's'; 1 << 20]);
        let seal = Seal::new(&Settings::new("a").expect("a namespace"));
        let errors = [
            outcome(&secret).unwrap_err(),
            number(&secret).unwrap_err(),
            items(&secret).map(<[Value]>::len).unwrap_err(),
            snapshot(&Value::Array(vec![secret.clone(); 1000]), &seal).unwrap_err(),
            text(&Value::BulkString(b"\xff raw".to_vec())).unwrap_err(),
        ];
        for error in errors {
            let words = error.to_string();
            assert!(
                words.len() < 120 && !words.contains("ss") && !words.contains("raw"),
                "{words}"
            );
        }
    }

    #[test]
    fn what_is_no_change_is_none() {
        for bad in [
            &b""[..],
            b"P",
            b"P 1 2 3",
            b"P 1 2 9 key1 2 3 b",
            b"P 1 2 3 key1 2 ",
            b"P +1 2 3 key1 2 3 b",
            b"P 1 2 3 key1 -2 3 b",
            b"R 1 2 3 key?",
            b"X 1 2 3 key",
            b"R 99999999999999999999 2 3 key",
        ] {
            assert_eq!(change(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
