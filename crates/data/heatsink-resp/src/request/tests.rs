use proptest::prelude::*;

use super::*;
use crate::encode;

fn scan(bytes: &[u8]) -> Result<Status, ProtocolError> {
    RequestScan::default().advance(bytes, &Limits::default(), |_| {})
}

#[test]
fn complete_empty_and_inline() {
    assert_eq!(scan(b"*1\r\n$4\r\nPING\r\n"), Ok(Status::Complete { len: 14 }));
    assert_eq!(scan(b"*0\r\nrest"), Ok(Status::Empty { len: 4 }));
    assert_eq!(scan(b"*-1\r\n"), Ok(Status::Empty { len: 5 }));
    assert_eq!(scan(b"\r\n"), Ok(Status::Empty { len: 2 }));
    assert_eq!(scan(b"PING\r\nx"), Ok(Status::Inline { len: 6 }));
    assert_eq!(scan(b"*1\r\n$0\r\n\r\n"), Ok(Status::Complete { len: 10 }));
}

#[test]
fn malformed_requests_are_refused() {
    for (bytes, error) in [
        (&b"*x\r\n"[..], ProtocolError::MultibulkLength),
        (b"*1048577\r\n", ProtocolError::MultibulkLength),
        (b"*1\r\n:4\r\n", ProtocolError::ExpectedDollar(b':')),
        (b"*1\r\n$-1\r\n", ProtocolError::BulkLength),
        (b"*1\r\n$536870913\r\n", ProtocolError::BulkLength),
        (b"*1\r\n$1\r\nabc", ProtocolError::ExpectedCrlf),
        (b"*111111111111111111111111", ProtocolError::MultibulkLength),
    ] {
        assert_eq!(scan(bytes), Err(error), "{}", bytes.escape_ascii());
    }
    let line = vec![b'a'; MAX_INLINE_BYTES];
    assert_eq!(scan(&line), Err(ProtocolError::InlineTooBig));
}

#[test]
fn limits_before_authentication_have_their_own_error() {
    let limits = Limits {
        max_args: 10,
        max_bulk_bytes: 16 << 10,
        unauthenticated: true,
        ..Limits::default()
    };
    let mut scan = RequestScan::default();
    let error = scan.advance(b"*11\r\n", &limits, |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "Protocol error: unauthenticated multibulk length");
    let mut scan = RequestScan::default();
    let error = scan.advance(b"*2\r\n$16385\r\n", &limits, |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "Protocol error: unauthenticated bulk length");
}

/// Passing on must see what scanning sees: every argument's end, not only the last one's, and
/// the limits by the same name.
#[test]
fn passing_on_refuses_what_scanning_refuses() {
    let unauthenticated = Limits { max_bulk_bytes: 8, unauthenticated: true, ..Limits::default() };
    for (bytes, limits) in [
        (&b"*3\r\n$3\r\nSET\r\n$1\r\nkey$1\r\nv\r\n"[..], Limits::default()),
        (b"*3\r\n$3\r\nSETxx$1\r\nk\r\n$1\r\nv\r\n", Limits::default()),
        (b"*3\r\n$3\r\nSETxx$1", Limits::default()),
        (b"*2\r\n$3\r\nGET\r\n$9\r\n", unauthenticated),
    ] {
        let mut scan = RequestScan::default();
        let error = scan.advance(bytes, &limits, |_| {}).unwrap_err();
        let mut scan = RequestScan::default();
        scan.advance(&bytes[..4], &limits, |_| {}).unwrap();
        assert_eq!(scan.pass(bytes, &limits), Err(error), "{}", bytes.escape_ascii());
    }
}

/// Nothing new has come since everything so far was passed on.
#[test]
fn passing_on_nothing_is_no_error() {
    let limits = Limits::default();
    let mut scan = RequestScan::default();
    let header = b"*1\r\n";
    assert_eq!(scan.advance(header, &limits, |_| {}), Ok(Status::Incomplete));
    assert_eq!(scan.pass(header, &limits), Ok((4, false)));
    assert_eq!(scan.pass(b"", &limits), Ok((0, false)));
    assert_eq!(scan.pass(b"$4\r\nPING\r\n", &limits), Ok((10, true)));
}

fn requests() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let arg = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec(proptest::collection::vec(arg, 1..6), 1..6)
}

proptest! {
    /// Fed byte by byte, each request is found at its last byte and with its arguments.
    #[test]
    fn split_at_every_byte(requests in requests()) {
        for request in &requests {
            let mut bytes = Vec::new();
            encode::command(&mut bytes, request);
            let mut scan = RequestScan::default();
            let mut args = Vec::new();
            for end in 0..bytes.len() {
                let status = scan.advance(&bytes[..end], &Limits::default(), |s| args.push(s));
                prop_assert_eq!(status, Ok(Status::Incomplete));
            }
            let status = scan.advance(&bytes, &Limits::default(), |s| args.push(s));
            prop_assert_eq!(status, Ok(Status::Complete { len: bytes.len() }));
            let found: Vec<_> = args.iter().map(|s| bytes[s.clone()].to_vec()).collect();
            prop_assert_eq!(&found, request);
        }
    }

    /// Passed on in pieces cut anywhere, the bytes are the same and end at the same place.
    #[test]
    fn passing_on_keeps_every_byte(
        request in requests(),
        cuts in proptest::collection::vec(1usize..50, 1..40),
    ) {
        let request: Vec<Vec<u8>> = request.concat();
        let mut bytes = Vec::new();
        encode::command(&mut bytes, &request);
        let total = bytes.len();
        bytes.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        let mut scan = RequestScan::default();
        let mut buffer = Vec::new();
        let mut passed = Vec::new();
        let mut fed = 0;
        let mut cuts = cuts.iter().cycle();
        let limits = Limits::default();
        let done = loop {
            let end = (fed + cuts.next().unwrap()).min(bytes.len());
            buffer.extend_from_slice(&bytes[fed..end]);
            fed = end;
            if !scan.is_within_request() {
                match scan.advance(&buffer, &limits, |_| {}).unwrap() {
                    Status::Incomplete if scan.is_within_request() => {}
                    Status::Incomplete => continue,
                    Status::Complete { len } => {
                        passed.extend_from_slice(&buffer[..len]);
                        break true;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let (count, done) = scan.pass(&buffer, &limits).unwrap();
            passed.extend(buffer.drain(..count));
            if done {
                break true;
            }
            if fed == bytes.len() {
                break false;
            }
        };
        prop_assert!(done);
        prop_assert_eq!(&passed, &bytes[..total]);
    }

    /// Any bytes at all: no panic, and a request that is found lies within the buffer.
    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        match scan(&bytes) {
            Ok(Status::Complete { len } | Status::Inline { len } | Status::Empty { len }) => {
                prop_assert!(len <= bytes.len() && len > 0);
            }
            Ok(Status::Incomplete) | Err(_) => {}
        }
    }
}
