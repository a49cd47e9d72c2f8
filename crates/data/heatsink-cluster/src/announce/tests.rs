use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::value::Value;

use super::*;
use crate::topology::Topology;

fn asked(request: &str, resp3: bool) -> Option<String> {
    let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    let reply = answer(&args, "10.0.0.1", 17912, resp3)?;
    assert_eq!(ReplyScan::default().advance(&reply), Ok(Status::Complete(reply.len())));
    Some(String::from_utf8(reply).unwrap())
}

/// The replies of a Redis 7.0 that is a cluster of one node, its id and its host replaced.
#[test]
fn as_a_server_answers() {
    let id = node_id("10.0.0.1", 17912);
    for (request, resp3, expected) in [
        (
            "CLUSTER SLOTS",
            false,
            "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.1\r\n:17912\r\n$40\r\nID\r\n*0\r\n",
        ),
        (
            "cluster slots",
            true,
            "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.1\r\n:17912\r\n$40\r\nID\r\n%0\r\n",
        ),
        (
            "CLUSTER SHARDS",
            false,
            "*1\r\n*4\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n*14\r\n\
             $2\r\nid\r\n$40\r\nID\r\n$4\r\nport\r\n:17912\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n\
             $8\r\nendpoint\r\n$8\r\n10.0.0.1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
             $18\r\nreplication-offset\r\n:0\r\n$6\r\nhealth\r\n$6\r\nonline\r\n",
        ),
        (
            "CLUSTER SHARDS",
            true,
            "*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n%7\r\n\
             $2\r\nid\r\n$40\r\nID\r\n$4\r\nport\r\n:17912\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n\
             $8\r\nendpoint\r\n$8\r\n10.0.0.1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
             $18\r\nreplication-offset\r\n:0\r\n$6\r\nhealth\r\n$6\r\nonline\r\n",
        ),
        (
            "CLUSTER NODES",
            false,
            "$102\r\nID 10.0.0.1:17912@27912 myself,master - 0 0 1 connected 0-16383\n\r\n",
        ),
        (
            "CLUSTER NODES",
            true,
            "=106\r\ntxt:ID 10.0.0.1:17912@27912 myself,master - 0 0 1 connected 0-16383\n\r\n",
        ),
        ("CLUSTER MYID", false, "$40\r\nID\r\n"),
        ("CLUSTER LINKS", true, "*0\r\n"),
        ("CLUSTER KEYSLOT foo", false, ":12182\r\n"),
    ] {
        assert_eq!(asked(request, resp3).unwrap(), expected.replace("ID", &id), "{request}");
    }
    let info = asked("CLUSTER INFO", false).unwrap();
    assert!(info.starts_with("$312\r\ncluster_state:ok\r\ncluster_slots_assigned:16384\r\n"));
    assert!(asked("CLUSTER INFO", true).unwrap().starts_with("=316\r\ntxt:cluster_state:ok\r\n"));
    assert_eq!(asked(&format!("CLUSTER REPLICAS {id}"), false).unwrap(), "*0\r\n");
}

#[test]
fn what_is_left_to_the_caller() {
    for request in [
        "CLUSTER",
        "CLUSTER RESET",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER GETKEYSINSLOT 1 1",
        "CLUSTER SLOTS x",
        "CLUSTER KEYSLOT",
        "CLUSTER REPLICAS x",
        "CLUSTER a-subcommand-longer-than-any",
        "CLUSTER ",
    ] {
        assert_eq!(asked(request, false), None, "{request}");
    }
}

#[test]
fn an_id_is_of_an_address() {
    let id = node_id("::1", 6379);
    assert_eq!(id.len(), 40);
    assert!(id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    assert_eq!(id, node_id("::1", 6379));
    assert_ne!(id, node_id("::1", 6380));
    assert_ne!(id, node_id("::2", 6379));
    let chunks: Vec<&str> = (0..5).map(|at| &id[at * 8..at * 8 + 8]).collect();
    assert!((1..5).all(|at| chunks[at] != chunks[0]));
}

#[test]
fn what_is_announced_is_understood() {
    let reply = answer(&[b"CLUSTER", b"SLOTS"], "::1", 60000, true).unwrap();
    let topology = Topology::parse(&Value::decode(&reply).unwrap(), "asked").unwrap();
    assert_eq!(topology.covered(), slot::COUNT);
    assert_eq!(topology.shards[0].primary.to_string(), "[::1]:60000");
    let nodes = answer(&[b"CLUSTER", b"NODES"], "::1", 60000, false).unwrap();
    let nodes = String::from_utf8(nodes).unwrap();
    assert!(nodes.contains(" ::1:60000@65535 myself,master "), "{nodes}");
}
