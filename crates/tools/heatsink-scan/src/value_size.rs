//! What a hot key holds and how big it is, asked after the sampling.
//!
//! Called by: [`crate::scan`], for the keys that are shown only.
//! Bound: three questions a key, each answered in constant time (`MEMORY USAGE` looks at five
//! members).
//! Invariant: a question that is refused leaves a blank, it does not end the scan.

use heatsink_resp::value::Value;
use serde::Serialize;

use heatsink_upstream::client::{Client, ClientError};

/// What a key holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ValueReport {
    /// As `TYPE` says it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes of a string, or an estimate of the memory that anything else takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Members, fields or elements; nothing for a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<u64>,
}

/// Asks for the value of `key` in the database that `client` has selected. Nothing if there
/// is none (any more).
pub(crate) fn measure(client: &mut Client, key: &[u8]) -> Result<Option<ValueReport>, ClientError> {
    let kind = match client.ask(&[b"TYPE", key])?.text() {
        None | Some(b"none") => return Ok(None),
        Some(text) => String::from_utf8_lossy(text).into_owned(),
    };
    let count: Option<&[u8]> = match kind.as_str() {
        "string" => Some(b"STRLEN"),
        "hash" => Some(b"HLEN"),
        "list" => Some(b"LLEN"),
        "set" => Some(b"SCARD"),
        "zset" => Some(b"ZCARD"),
        "stream" => Some(b"XLEN"),
        _ => None,
    };
    let counted = match count {
        Some(command) => number(&client.ask(&[command, key])?),
        None => None,
    };
    if kind == "string" {
        return Ok(Some(ValueReport { kind, bytes: counted, elements: None }));
    }
    let bytes = number(&client.ask(&[&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", b"5"])?);
    Ok(Some(ValueReport { kind, bytes, elements: counted }))
}

fn number(reply: &Value) -> Option<u64> {
    reply.integer().and_then(|number| u64::try_from(number).ok())
}
