//! Short fixed sequences, for what chance meets too seldom or may not do.
//!
//! Called by: `tests/sequences.rs`.
//! Bound: a sequence costs `QUIET` a step on the plain server.
//! Invariant: the plain server says what is expected; how it is read from there decides only
//! how much is compared, never whether the comparison is right.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_testkit::{RawClient, encode};

use super::check::Check;

/// The plain server has said all it has to say when it was silent this long.
const QUIET: Duration = Duration::from_millis(40);

/// What a server answered, and whether it hung up then.
struct Answers {
    frames: Vec<Vec<u8>>,
    closed: bool,
}

/// One connection's requests: a command a string, words split at blanks; a string that ends
/// with a line feed goes out as it is.
fn requests(sequence: &[&str]) -> Vec<Vec<u8>> {
    sequence
        .iter()
        .map(|text| {
            if text.ends_with('\n') {
                text.as_bytes().to_vec()
            } else {
                encode(&text.split(' ').collect::<Vec<_>>())
            }
        })
        .collect()
}

/// Sends a sequence to both, request by request and then all in one write, on connections of
/// its own; the first difference, if there is one.
pub fn difference(plain: SocketAddr, tested: SocketAddr, sequence: &[&str]) -> Option<String> {
    let single = requests(sequence);
    let whole = vec![single.concat()];
    [single, whole].into_iter().find_map(|writes| {
        let mut clients = (RawClient::connect(plain), RawClient::connect(tested));
        writes.iter().find_map(|bytes| {
            let _ = clients.0.try_send_raw(bytes);
            let _ = clients.1.try_send_raw(bytes);
            let expected = listen(&mut clients.0);
            compare(&expected, &mut clients.1)
                .map(|what| format!("{sequence:?}, at {}: {what}", bytes.escape_ascii()))
        })
    })
}

fn listen(client: &mut RawClient) -> Answers {
    let mut frames = Vec::new();
    loop {
        match client.try_read_frame(QUIET) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return Answers { frames, closed: false },
            Err(_) => return Answers { frames, closed: true },
        }
    }
}

fn compare(expected: &Answers, client: &mut RawClient) -> Option<String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    for frame in &expected.frames {
        let got = client.try_read_frame(PATIENCE);
        match &got {
            Ok(Some(got)) if Check::Hello.same(frame, got) => {}
            _ => return Some(format!("expected {}, got {}", frame.escape_ascii(), shown(&got))),
        }
    }
    if expected.closed {
        let got = client.try_read_frame(PATIENCE);
        if got.is_ok() {
            return Some(format!("expected it to hang up, got {}", shown(&got)));
        }
    }
    None
}

fn shown(read: &std::io::Result<Option<Vec<u8>>>) -> String {
    match read {
        Ok(Some(frame)) => frame.escape_ascii().to_string(),
        Ok(None) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}
