use proptest::prelude::*;

use super::*;

fn parse(reply: &[u8]) -> Result<Topology, TopologyError> {
    Topology::parse(&Value::decode(reply).unwrap(), "asked")
}

fn at(host: &str, port: u16) -> NodeAddress {
    NodeAddress { host: host.to_owned(), port }
}

/// Three primaries, three replicas of a Redis 7.0; the first has a host name.
const SIX_NODES: &[u8] = b"*3\r\n\
    *4\r\n:0\r\n:5460\r\n\
    *4\r\n$9\r\n127.0.0.1\r\n:17921\r\n$40\r\n298c5cf0fb5dfecafe4cd65166afac741e7dcaae\r\n\
    *2\r\n$8\r\nhostname\r\n$14\r\nnode-a.example\r\n\
    *4\r\n$9\r\n127.0.0.1\r\n:17924\r\n$40\r\n2b6549992d3159a854d56526ef7caaea8e73aee3\r\n*0\r\n\
    *4\r\n:5461\r\n:10922\r\n\
    *4\r\n$9\r\n127.0.0.1\r\n:17922\r\n$40\r\n0f9b86e7dc6c1f75238418d1dca96cf8c8f8380a\r\n*0\r\n\
    *4\r\n$9\r\n127.0.0.1\r\n:17925\r\n$40\r\n464b3637b86eca4b29da6d8f478d4e0568288adc\r\n*0\r\n\
    *4\r\n:10923\r\n:16383\r\n\
    *4\r\n$9\r\n127.0.0.1\r\n:17923\r\n$40\r\n06a36d1d772827f436f4e76942a7d9b1121f985b\r\n*0\r\n\
    *4\r\n$9\r\n127.0.0.1\r\n:17926\r\n$40\r\nc6ee9c82540f0a59dd0d15e8e8762fd471543ef6\r\n*0\r\n";

#[test]
fn primaries_and_replicas() {
    let topology = parse(SIX_NODES).unwrap();
    assert_eq!(topology.covered(), slot::COUNT);
    assert_eq!(topology.shards.len(), 3);
    for (slot, primary, replica) in [
        (0, 17921, 17924),
        (5460, 17921, 17924),
        (5461, 17922, 17925),
        (10922, 17922, 17925),
        (16383, 17923, 17926),
    ] {
        let owner = topology.owner(slot).unwrap();
        assert_eq!(owner.primary, at("127.0.0.1", primary));
        assert_eq!(owner.replicas, [at("127.0.0.1", replica)]);
    }
    assert_eq!(topology.owner(16384), None);
}

/// A Redis 7.0 that prefers host names: only the first node has one. RESP2 and RESP3.
#[test]
fn nodes_told_by_name() {
    let resp2 = b"*3\r\n\
        *3\r\n:0\r\n:5460\r\n*4\r\n$14\r\nnode-a.example\r\n:17921\r\n\
        $40\r\n298c5cf0fb5dfecafe4cd65166afac741e7dcaae\r\n*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n\
        *3\r\n:5461\r\n:10922\r\n*4\r\n$1\r\n?\r\n:17922\r\n\
        $40\r\n0f9b86e7dc6c1f75238418d1dca96cf8c8f8380a\r\n*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n\
        *3\r\n:10923\r\n:16383\r\n*4\r\n$1\r\n?\r\n:17923\r\n\
        $40\r\n06a36d1d772827f436f4e76942a7d9b1121f985b\r\n*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n";
    let resp3 = String::from_utf8(resp2.to_vec()).unwrap().replace("*2\r\n$2", "%1\r\n$2");
    for reply in [&resp2[..], resp3.as_bytes()] {
        let topology = parse(reply).unwrap();
        let primaries: Vec<_> = topology.shards.iter().map(|s| s.primary.to_string()).collect();
        assert_eq!(primaries, ["node-a.example:17921", "127.0.0.1:17922", "127.0.0.1:17923"]);
    }
}

/// A Redis 7.0 that tells no endpoints, and one of a single node that does not know its own.
#[test]
fn nodes_without_a_host_are_where_the_question_went() {
    let unknown = b"*1\r\n*3\r\n:0\r\n:5460\r\n*4\r\n$-1\r\n:17921\r\n\
        $40\r\n298c5cf0fb5dfecafe4cd65166afac741e7dcaae\r\n\
        *4\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$8\r\nhostname\r\n$14\r\nnode-a.example\r\n";
    assert_eq!(parse(unknown).unwrap().shards[0].primary, at("asked", 17921));
    let alone = b"*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$0\r\n\r\n:17912\r\n\
        $40\r\n4df1779954d928f95bccf2c592bbca2108c531fa\r\n*0\r\n";
    assert_eq!(parse(alone).unwrap().shards[0].primary, at("asked", 17912));
    let bare = b"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\n?\r\n:1\r\n";
    assert_eq!(parse(bare).unwrap().shards[0].primary, at("asked", 1));
}

#[test]
fn shards_are_merged_and_in_the_order_of_their_slots() {
    // As after resharding: ranges of `b` on both sides of `a`'s, in no order.
    let reply = b"*3\r\n\
        *4\r\n:10\r\n:19\r\n*2\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\nr\r\n:1\r\n\
        *4\r\n:100\r\n:100\r\n*2\r\n$1\r\nb\r\n:1\r\n*2\r\n$1\r\ns\r\n:1\r\n\
        *4\r\n:0\r\n:4\r\n*2\r\n$1\r\nb\r\n:1\r\n*2\r\n$1\r\ns\r\n:1\r\n";
    let topology = parse(reply).unwrap();
    let expected = [("b", "s"), ("a", "r")].map(|(primary, replica)| Shard {
        primary: at(primary, 1),
        replicas: vec![at(replica, 1)],
    });
    assert_eq!(topology.shards, expected);
    assert_eq!(topology.covered(), 16);
    let owners = [0, 4, 5, 10, 100].map(|slot| topology.owner_index(slot));
    assert_eq!(owners, [Some(0), Some(0), None, Some(1), Some(0)]);
    assert_eq!(topology.owner(5), None);
}

#[test]
fn what_is_no_topology() {
    let refused = b"-ERR This instance has cluster support disabled\r\n";
    assert_eq!(
        parse(refused),
        Err(TopologyError::Refused("ERR This instance has cluster support disabled".to_owned()))
    );
    for reply in [
        &b"+OK\r\n"[..],
        b"*1\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:5\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:9223372036854775807\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n",
        b"*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n",
    ] {
        assert_eq!(parse(reply), Err(TopologyError::Malformed), "{}", reply.escape_ascii());
    }
    assert_eq!(parse(b"*0\r\n").unwrap().covered(), 0);
}

#[test]
fn a_slot_that_moved() {
    let mut topology = parse(SIX_NODES).unwrap();
    topology.moved(7, &at("127.0.0.1", 17923));
    assert_eq!(topology.owner_index(7), Some(2));
    topology.moved(8, &at("new", 1));
    assert_eq!(topology.owner(8).unwrap().primary, at("new", 1));
    assert_eq!(topology.owner_index(9), Some(0));
    topology.moved(20000, &at("nobody", 1));
    assert_eq!(topology.shards.len(), 4);
    assert_ne!(topology, parse(SIX_NODES).unwrap());
}

#[test]
fn addresses_for_people() {
    assert_eq!(at("::1", 7000).to_string(), "[::1]:7000");
    assert_eq!(at("10.0.0.1", 7000).to_string(), "10.0.0.1:7000");
}

proptest! {
    /// Ranges in any order say the same.
    #[test]
    fn the_order_of_ranges_does_not_matter(
        owners in prop::collection::vec(0u16..6, 1..20),
        seed: u64,
    ) {
        let range = |(at, owner): (usize, &u16)| {
            let first = at as i64 * 100;
            Value::Array(vec![
                Value::Integer(first),
                Value::Integer(first + 99),
                Value::Array(vec![Value::Bulk(b"h".to_vec()), Value::Integer(i64::from(*owner))]),
            ])
        };
        let mut ranges: Vec<Value> = owners.iter().enumerate().map(range).collect();
        let ordered = Topology::parse(&Value::Array(ranges.clone()), "").unwrap();
        fastrand::Rng::with_seed(seed).shuffle(&mut ranges);
        prop_assert_eq!(&Topology::parse(&Value::Array(ranges), "").unwrap(), &ordered);
        for (at, owner) in owners.iter().enumerate() {
            let found = ordered.owner(at as u16 * 100 + 50).unwrap();
            prop_assert_eq!(found.primary.port, *owner);
        }
        prop_assert_eq!(ordered.covered(), owners.len() * 100);
    }
}
