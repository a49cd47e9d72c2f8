//! The log names keys, or only their hashes if they are to be hidden.

use heatsink_testkit::{RedisServer, Reply, eventually};

use crate::node::Node;
use crate::split::{rests_split, split};
use crate::support::{PATIENCE, Place};

/// The line that is logged when somebody has written to the marker of the split `secret:set`, and
/// everything that was logged.
fn mended(privacy: &str) -> (String, String) {
    let (place, server) = (Place::empty(), RedisServer::start());
    let node = Node::start(&place, &["--upstream", &server.url(), "--privacy", privacy]);
    assert_eq!(node.client().command(&["SADD", "secret:set", "a", "b", "c"]), Reply::Integer(3));
    node.api().promote(b"secret:set", split(4)).expect("promoted");
    eventually(PATIENCE, || rests_split(&node, "secret:set", 4));
    server.client().command(&["APPEND", "secret:set", "x"]);
    let line = node.process.wait_for_line("wrote to the marker of a split key", PATIENCE);
    (line, node.process.stderr())
}

#[test]
fn a_key_is_named_in_the_log() {
    let (line, _) = mended("none");
    assert!(line.contains("key=\"secret:set\""), "{line}");
}

#[test]
fn a_key_that_is_to_be_hidden_is_nowhere_in_the_log() {
    let (line, log) = mended("hash");
    // printf %s secret:set | sha256sum | cut -c1-16
    assert!(line.contains("key=\"hash:f0516197e69a59be\""), "{line}");
    assert!(!log.contains("secret"), "{log}");
}
