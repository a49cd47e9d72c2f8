//! A node is lost in the middle of a large reply: what other nodes say behind it is not taken for
//! the rest.

use std::time::Duration;

use heatsink_testkit::{Reply, encode, eventually};

use crate::open::{OPEN, before_open, doing};

const SOON: Duration = Duration::from_secs(20);
/// Takes longer to pass on than it takes to cut the connection.
const LARGE_BYTES: usize = 48 << 20;
const SMALL_BYTES: usize = 10 << 10;
const BEHIND: usize = 200;
/// How often the connection may turn out to have been cut too late.
const ATTEMPTS: usize = 20;

/// 1. `GETRANGE` of a large value at one node, reads of small ones at others behind it
/// 2. the large reply is passed on in pieces; those behind it wait here for their turn
/// 3. the connection to the first node is cut: the rest of the large value will not come
/// 4. those behind it, told now, would fill it up: a value of the right length, and wrong
#[test]
fn what_is_behind_half_a_reply_is_not_told() {
    let heatsink = before_open(|_| {});
    let mut setting = heatsink.client();
    setting.set_timeout(SOON);
    let (large, small) = (OPEN.key_on(0, "cut:large"), OPEN.key_on(1, "cut:small"));
    let value = vec![b'l'; LARGE_BYTES];
    assert_eq!(setting.command(&[&b"SET"[..], large.as_bytes(), &value]), Reply::ok());
    let behind = "s".repeat(SMALL_BYTES);
    assert_eq!(setting.command(&["SET", &small, &behind]), Reply::ok());
    let mut at_large = OPEN.node(0).client();
    let header = format!("${LARGE_BYTES}\r\n").into_bytes();
    let was_cut = (0..ATTEMPTS).any(|_| {
        let mut client = heatsink.client();
        client.set_timeout(SOON);
        let mut bytes = encode(&["GETRANGE", &large, "0", "-1"]);
        bytes.extend(encode(&["GET", &small]).repeat(BEHIND));
        client.send_raw(&bytes);
        // It is closed in the end, one way or the other.
        client.shutdown_write();
        // It has begun, and does not go on: nobody reads.
        assert_eq!(client.read_exact_bytes(header.len()), header);
        let connections = eventually(SOON, || {
            let connections = doing(0, "getrange");
            (!connections.is_empty()).then_some(connections)
        });
        for id in connections {
            at_large.command(&["CLIENT", "KILL", "ID", &id]);
        }
        let told = client.read_to_close();
        let end = told.len().min(LARGE_BYTES);
        if let Some(odd) = told[..end].iter().position(|byte| *byte != b'l') {
            let text = told[odd..].escape_ascii().to_string();
            panic!("{} bytes, then {text:.200}", header.len() + odd);
        }
        end < LARGE_BYTES
    });
    assert!(was_cut, "never cut in the middle");
    // Others go on.
    assert_eq!(setting.command(&["STRLEN", &large]), Reply::Integer(LARGE_BYTES as i64));
    assert_eq!(setting.command(&["DEL", &large]), Reply::Integer(1));
}
