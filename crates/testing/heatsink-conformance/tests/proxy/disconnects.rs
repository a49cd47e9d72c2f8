//! Clients that leave at any byte of a pipeline: no reply ever reaches another client.
//!
//! `HEATSINK_DISCONNECTS=100000` runs the long form.

use std::sync::atomic::{AtomicUsize, Ordering};

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, encode};

/// Requests whose replies name the client that asked.
fn pipeline(rng: &mut fastrand::Rng, nonce: &str) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len()).into_bytes();
    for n in 0..rng.usize(1..30) {
        let word = format!("{nonce}:{n}:{}", "x".repeat(rng.usize(0..300)));
        match rng.u8(0..12) {
            0 => {
                for command in [&["MULTI"][..], &["ECHO", &word], &["EXEC"]] {
                    bytes.extend(encode(command));
                }
                replies.extend([b"+OK\r\n".to_vec(), b"+QUEUED\r\n".to_vec()]);
                replies.push([&b"*1\r\n"[..], &bulk(&word)].concat());
            }
            1 => {
                bytes.extend(encode(&["BLPOP", &word, "0.001"]));
                replies.push(b"*-1\r\n".to_vec());
            }
            2 => {
                bytes.extend(encode(&["SELECT", &rng.u8(0..3).to_string()]));
                replies.push(b"+OK\r\n".to_vec());
            }
            3 => {
                let big = word.repeat(rng.usize(1..2000));
                bytes.extend(encode(&["ECHO", &big]));
                replies.push(bulk(&big));
            }
            _ => {
                bytes.extend(encode(&["ECHO", &word]));
                replies.push(bulk(&word));
            }
        }
    }
    (bytes, replies)
}

#[test]
fn no_reply_reaches_the_wrong_client() {
    let wanted: usize = std::env::var("HEATSINK_DISCONNECTS")
        .map_or(4000, |text| text.parse().expect("HEATSINK_DISCONNECTS is a number"));
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let rig = Rig::new(2);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (rig, next) = (&rig, &next);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ thread);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= wanted {
                        return;
                    }
                    leave_somewhere(rig, &mut rng, number);
                }
            });
        }
    });
    // Nothing is left behind either: the pipelines still answer, for whoever comes next.
    let mut last = rig.client();
    assert_eq!(last.command(&["ECHO", "still here"]).text(), "still here");
}

/// Sends a pipeline and leaves after some of its bytes, or reads some or all of the replies:
/// whatever is read must be the client's own.
fn leave_somewhere(rig: &Rig, rng: &mut fastrand::Rng, number: usize) {
    let mut client = RawClient::connect(rig.addr());
    let (bytes, replies) = pipeline(rng, &format!("nonce-{number}"));
    let cut = if rng.bool() { bytes.len() } else { rng.usize(0..bytes.len()) };
    client.send_raw(&bytes[..cut]);
    if cut == bytes.len() {
        let read = if rng.u8(0..3) == 0 { replies.len() } else { rng.usize(0..replies.len()) };
        for (n, expected) in replies[..read].iter().enumerate() {
            let frame = client.read_frame();
            assert!(
                frame == *expected,
                "client {number}, reply {n}: {} instead of {}",
                frame.escape_ascii(),
                expected.escape_ascii()
            );
        }
    }
}
