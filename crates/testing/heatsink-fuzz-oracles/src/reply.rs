//! Replies: scanned whole, in pieces and passed on, they end at the same place; decoded, they
//! mean what the plain reading in [`crate::model`] says.

use heatsink_resp::reply::{NotAReply, ReplyScan, Status};
use heatsink_resp::value::Value;

use crate::model::{self, Reading};
use crate::pieces::{ends, rng_of};

/// Checks every property of reply framing and decoding on `data`.
pub fn check(data: &[u8]) {
    let mut rng = rng_of(data);
    let whole = ReplyScan::default().advance(data);
    let cuts = ends(data.len(), &mut rng);
    assert_eq!(whole, scanned(data, &cuts), "cut at {cuts:?}");
    assert_eq!(whole, passed_on(data, &cuts), "passed on, cut at {cuts:?}");
    // Whatever it is, looking into it must not harm.
    let _ = Value::decode(data);
    if let Ok(Status::Complete(len)) = whole {
        assert!(len > 0 && len <= data.len(), "{len} of {}", data.len());
        check_value(&data[..len]);
    }
}

/// Scans `data` as it would grow in a buffer, up to each of `cuts`.
fn scanned(data: &[u8], cuts: &[usize]) -> Result<Status, NotAReply> {
    let mut scan = ReplyScan::default();
    for &end in cuts {
        let status = scan.advance(&data[..end]);
        if status != Ok(Status::Incomplete) {
            return status;
        }
    }
    Ok(Status::Incomplete)
}

/// Passes `data` on in pieces; the status is as if it had stayed in one buffer.
fn passed_on(data: &[u8], cuts: &[usize]) -> Result<Status, NotAReply> {
    let mut scan = ReplyScan::default();
    let mut buffer = Vec::new();
    let mut passed = Vec::new();
    let mut from = 0;
    for &end in cuts {
        buffer.extend_from_slice(&data[from..end]);
        from = end;
        match scan.advance(&buffer)? {
            Status::Complete(len) => {
                passed.extend(buffer.drain(..len));
                assert!(data.starts_with(&passed));
                return Ok(Status::Complete(passed.len()));
            }
            Status::Incomplete => {
                let count = scan.pass(buffer.len());
                passed.extend(buffer.drain(..count));
            }
        }
    }
    assert!(data.starts_with(&passed));
    Ok(Status::Incomplete)
}

/// A complete reply decodes to what it says.
fn check_value(frame: &[u8]) {
    match (Value::decode(frame), model::read(frame)) {
        (Ok(value), Reading::Value(expected, len)) => {
            assert_eq!(value, expected);
            assert_eq!(len, frame.len(), "the scan and the reading end apart");
            assert!(weight(&value) <= frame.len(), "more is held than was sent");
            check_consumed(frame, &value);
        }
        (Err(NotAReply), Reading::Nonsense) => {}
        (decoded, expected) => panic!("{decoded:?}, expected {expected:?}"),
    }
}

/// Decoding ends where the frame ends: what stands behind it is read next.
fn check_consumed(frame: &[u8], value: &Value) {
    let mut pair = b"*2\r\n".to_vec();
    pair.extend_from_slice(frame);
    pair.extend_from_slice(b":7\r\n");
    match Value::decode(&pair) {
        Ok(Value::Array(both)) => assert_eq!(both, [value.clone(), Value::Integer(7)]),
        // One level more was one too many.
        Err(NotAReply) => assert_eq!(model::read(&pair), Reading::Nonsense),
        other => panic!("{other:?}"),
    }
}

/// Values and bytes held.
fn weight(value: &Value) -> usize {
    1 + match value {
        Value::Nil | Value::Integer(_) => 0,
        Value::Status(text) | Value::Error(text) | Value::Bulk(text) => text.len(),
        Value::Array(elements) => elements.iter().map(weight).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| weight(key) + weight(value)).sum(),
    }
}
