//! Requests: scanned whole, in pieces and passed on piece by piece, the result is the same.

use std::ops::Range;

use fastrand::Rng;
use heatsink_resp::request::{Limits, ProtocolError, RequestScan, Status};
use heatsink_resp::{encode, inline};

use crate::pieces::{ends, rng_of};

/// What a scan came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    status: Result<Status, ProtocolError>,
    args: Vec<Range<usize>>,
}

/// Checks every property of request framing on `data`.
pub fn check(data: &[u8]) {
    let mut rng = rng_of(data);
    // Limits that ordinary input keeps, and limits that small input can break.
    check_within(data, &Limits::default(), &mut rng);
    let tight = Limits {
        max_args: 4,
        max_bulk_bytes: 64,
        max_request_bytes: 160,
        unauthenticated: rng.bool(),
    };
    check_within(data, &tight, &mut rng);
    check_words(data);
}

fn check_within(data: &[u8], limits: &Limits, rng: &mut Rng) {
    let whole = scanned(data, &[data.len()], limits);
    check_extent(data, &whole);
    let cuts = ends(data.len(), rng);
    assert_eq!(whole, scanned(data, &cuts, limits), "cut at {cuts:?}");
    check_passing(data, &whole, &cuts, limits, rng);
}

/// Scans `data` as it would grow in a buffer, up to each of `cuts`.
fn scanned(data: &[u8], cuts: &[usize], limits: &Limits) -> Outcome {
    let mut scan = RequestScan::default();
    let mut args = Vec::new();
    for &end in cuts {
        let status = scan.advance(&data[..end], limits, |span| args.push(span));
        if status != Ok(Status::Incomplete) {
            return Outcome { status, args };
        }
    }
    Outcome { status: Ok(Status::Incomplete), args }
}

/// What was found lies within `data` and means what its bytes say.
fn check_extent(data: &[u8], whole: &Outcome) {
    let mut from = 0;
    for span in &whole.args {
        assert!(from < span.start && span.start <= span.end && span.end <= data.len(), "{span:?}");
        from = span.end;
    }
    match whole.status {
        Ok(Status::Complete { len }) => {
            assert!(from < len && len <= data.len(), "{len} of {}", data.len());
            // There is one way to write a request, so what is accepted is that one.
            let args: Vec<_> = whole.args.iter().map(|span| &data[span.clone()]).collect();
            let mut written = Vec::new();
            encode::command(&mut written, &args);
            assert_eq!(written.escape_ascii().to_string(), data[..len].escape_ascii().to_string());
        }
        Ok(Status::Inline { len }) => {
            assert!(len <= data.len() && data[..len].ends_with(b"\n"), "{len}");
            check_words(&data[..len]);
        }
        Ok(Status::Empty { len }) => {
            assert!(len > 0 && len <= data.len() && data[..len].ends_with(b"\n"), "{len}");
        }
        Ok(Status::Incomplete) | Err(_) => {}
    }
}

/// The words of a line are no longer than the line, and survive being sent on as a request.
fn check_words(line: &[u8]) {
    let Ok(words) = inline::split(line) else { return };
    assert!(words.iter().map(Vec::len).sum::<usize>() <= line.len());
    if words.is_empty() {
        return;
    }
    let mut request = Vec::new();
    encode::command(&mut request, &words);
    let again = scanned(&request, &[request.len()], &Limits::default());
    assert_eq!(again.status, Ok(Status::Complete { len: request.len() }));
    assert!(again.args.into_iter().map(|span| &request[span]).eq(&words));
}

/// Passed on before it is complete, a request has the same bytes, the same end and the same
/// error, whenever passing on began.
fn check_passing(data: &[u8], whole: &Outcome, cuts: &[usize], limits: &Limits, rng: &mut Rng) {
    let mut scan = RequestScan::default();
    let mut buffer = Vec::new();
    let mut passed = Vec::new();
    let mut passing = false;
    let mut from = 0;
    for &end in cuts {
        buffer.extend_from_slice(&data[from..end]);
        from = end;
        passing |= scan.is_within_request() && rng.bool();
        if !passing {
            let status = scan.advance(&buffer, limits, |_| {});
            if status == Ok(Status::Incomplete) {
                continue;
            }
            assert_eq!(whole.status, status);
            return;
        }
        match scan.pass(&buffer, limits) {
            Ok((count, done)) => {
                passed.extend(buffer.drain(..count));
                assert!(data.starts_with(&passed));
                if done {
                    assert_eq!(whole.status, Ok(Status::Complete { len: passed.len() }));
                    assert!(!scan.is_within_request());
                    return;
                }
            }
            Err(error) => {
                assert_eq!(whole.status, Err(error));
                return;
            }
        }
    }
    assert_eq!(whole.status, Ok(Status::Incomplete));
}
