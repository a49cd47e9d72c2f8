//! When fields of a hash end by themselves (`HEXPIRE`; Redis 7.4, Valkey 9).
//!
//! Called by: `reads`, for replies about hashes that are to be cached.
//! Bound: one question a reply, about as many fields as the request names or the reply shows.
//! Invariant: a reply is kept only if each of its fields was asked about, and no longer than the cache
//! keeps what ends when the first of them does. `PTTL` does not know of them, and the server's
//! invalidation comes only when it gets round to removing the field:
//!
//! ```text
//! 0 ms     HGETALL h: f, g; f ends at 100 ms; PTTL h: -1
//! 100 ms   the server shows f to nobody any more
//! 100 to   f may be read from the cache
//!  200 ms  the server removes f, and says that h has changed
//! ```

use std::time::Duration;

use heatsink_cache::commands::{Fields, KEY_INDEX};
use heatsink_cluster::frame::{Aggregate, is_nil, text};
use heatsink_resp::encode;

/// The question.
pub(in crate::hot) const HPTTL: &[u8] = b"HPTTL";
const FIELDS: &[u8] = b"FIELDS";

/// A reply that no server gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hot) struct Strange;

/// Asks about the fields that a request names; nothing if it names none, which the server refuses.
pub(in crate::hot) fn about_named(request: &[u8]) -> Option<Vec<u8>> {
    let args: Vec<&[u8]> =
        Aggregate::parse(request)?.elements().map(text).collect::<Option<_>>()?;
    let (key, fields) = (args.get(KEY_INDEX)?, args.get(KEY_INDEX + 1..)?);
    question(key, fields)
}

/// Asks about the fields that a reply shows; nothing if there are none.
pub(in crate::hot) fn about_told(
    key: &[u8],
    reply: &[u8],
    shown: Fields,
) -> Result<Option<Vec<u8>>, Strange> {
    if is_nil(reply) {
        return Ok(None);
    }
    let elements = Aggregate::parse(reply).ok_or(Strange)?;
    let each = if shown == Fields::Paired { 2 } else { 1 };
    let fields = elements.elements().step_by(each).map(text).collect::<Option<Vec<_>>>();
    Ok(question(key, &fields.ok_or(Strange)?))
}

fn question(key: &[u8], fields: &[&[u8]]) -> Option<Vec<u8>> {
    if fields.is_empty() {
        return None;
    }
    let count = fields.len().to_string();
    let mut args = vec![HPTTL, key, FIELDS, count.as_bytes()];
    args.extend(fields);
    let mut request = Vec::new();
    encode::command(&mut request, &args);
    Some(request)
}

/// How long the first field to end still lives, by what was said of them behind this reply; nothing if
/// none ends. A server that does not know the question has no such fields.
///
/// A field that is shown and is not there any more has ended in between:
///
/// ```text
/// 99 ms    HKEYS h: f, g
/// 100 ms   f ends
/// 101 ms   HPTTL h FIELDS 2 f g: -2, -1
/// ```
pub(in crate::hot) fn first_end(
    told: &[u8],
    reply: &[u8],
    about: Fields,
) -> Result<Option<Duration>, Strange> {
    if told.starts_with(b"-ERR unknown command") {
        return Ok(None);
    }
    let told = Aggregate::parse(told).ok_or(Strange)?;
    let mut shown = shown_one_by_one(reply, about);
    let mut first = None;
    for element in told.elements() {
        let is_shown = shown.next().ok_or(Strange)?;
        match number(element).ok_or(Strange)? {
            -2 if is_shown => return Err(Strange),
            -2 | -1 => {}
            left_ms => {
                let left = Duration::from_millis(u64::try_from(left_ms).map_err(|_| Strange)?);
                first = Some(first.map_or(left, |first: Duration| first.min(left)));
            }
        }
    }
    Ok(first)
}

/// Of each field that was asked about, whether the reply says that it is there.
fn shown_one_by_one(reply: &[u8], about: Fields) -> Box<dyn Iterator<Item = bool> + '_> {
    let is_there = |one: &[u8]| !is_nil(one) && one != b":0\r\n";
    match Aggregate::parse(reply) {
        // What a reply lists is there.
        _ if about != Fields::Named => Box::new(std::iter::repeat(true)),
        Some(each) => Box::new(each.elements().map(is_there)),
        None => Box::new(std::iter::once(is_there(reply))),
    }
}

fn number(frame: &[u8]) -> Option<i64> {
    let text = frame.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::encode;

    use super::*;

    #[test]
    fn fields_of_a_request_are_asked_about() {
        let ask = |request: &[&str]| about_named(&encode(request));
        let one = Some(encode(&["HPTTL", "h", "FIELDS", "1", "f"]));
        assert_eq!(ask(&["HGET", "h", "f"]), one);
        assert_eq!(
            ask(&["HMGET", "h", "f", "g"]),
            Some(encode(&["HPTTL", "h", "FIELDS", "2", "f", "g"]))
        );
        assert_eq!(ask(&["HMGET", "h"]), None);
        assert_eq!(about_named(b"HGET h f\r\n"), None, "in the inline form");
    }

    #[test]
    fn fields_of_a_reply_are_asked_about_in_both_protocols() {
        let both = Ok(Some(encode(&["HPTTL", "h", "FIELDS", "2", "f", "g"])));
        let flat = encode(&["f", "1", "g", "2"]);
        assert_eq!(about_told(b"h", &flat, Fields::Paired), both);
        let map = [b"%2".as_slice(), flat.strip_prefix(b"*4").expect("four")].concat();
        assert_eq!(about_told(b"h", &map, Fields::Paired), both);
        assert_eq!(about_told(b"h", &encode(&["f", "g"]), Fields::Listed), both);
        assert_eq!(about_told(b"h", b"*0\r\n", Fields::Listed), Ok(None));
        assert_eq!(about_told(b"h", b":1\r\n", Fields::Listed), Err(Strange));
    }

    #[test]
    fn the_first_end_counts() {
        let left = |ms| Ok(Some(Duration::from_millis(ms)));
        let of = |told: &[u8]| first_end(told, b"%0\r\n", Fields::Paired);
        assert_eq!(of(b"*3\r\n:-1\r\n:700\r\n:300\r\n"), left(300));
        assert_eq!(of(b"*2\r\n:-1\r\n:-1\r\n"), Ok(None));
        assert_eq!(of(b"*1\r\n:0\r\n"), left(0));
        let unknown = b"-ERR unknown command 'HPTTL', with args beginning with: 'h'\r\n";
        assert_eq!(of(unknown), Ok(None));
        for strange in [&b"-NOPERM no\r\n"[..], b"+OK\r\n", b"*1\r\n$1\r\nx\r\n"] {
            assert_eq!(of(strange), Err(Strange));
        }
    }

    #[test]
    fn a_field_that_is_shown_and_gone_has_just_ended() {
        let gone = b"*1\r\n:-2\r\n";
        assert_eq!(first_end(gone, &encode(&["f"]), Fields::Listed), Err(Strange));
        for shown in [&b"$1\r\nv\r\n"[..], b":1\r\n", b"*1\r\n$1\r\nv\r\n"] {
            assert_eq!(first_end(gone, shown, Fields::Named), Err(Strange));
        }
        for absent in [&b"$-1\r\n"[..], b"_\r\n", b":0\r\n", b"*1\r\n$-1\r\n"] {
            assert_eq!(first_end(gone, absent, Fields::Named), Ok(None));
        }
        // One of two; and a reply about fewer than were asked about.
        let two = b"*2\r\n:-2\r\n:50\r\n";
        let both = b"*2\r\n$-1\r\n$1\r\nv\r\n";
        assert_eq!(first_end(two, both, Fields::Named), Ok(Some(Duration::from_millis(50))));
        assert_eq!(first_end(two, b"$-1\r\n", Fields::Named), Err(Strange));
    }
}
