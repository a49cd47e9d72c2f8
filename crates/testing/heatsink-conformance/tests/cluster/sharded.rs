//! One connection listens to sharded channels of any nodes, as on one server.

use std::collections::BTreeSet;
use std::time::Duration;

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, eventually, key_slot};

use crate::open::{OPEN, before_open, elsewhere, send_all};

const SOON: Duration = Duration::from_secs(10);
/// Passed on in pieces.
const LARGE_BYTES: usize = 1 << 20;

/// A channel of each node, by name.
fn channels(name: &str) -> [String; 3] {
    [0, 1, 2].map(|node| OPEN.key_on(node, name))
}

fn told(kind: &str, channel: &str, count: i64) -> Reply {
    Reply::Array(vec![Reply::bulk(kind), Reply::bulk(channel), Reply::Integer(count)])
}

/// Messages and confirmations look alike in both protocols, but for the first byte.
fn as_array(reply: Reply) -> Reply {
    match reply {
        Reply::Push(items) => Reply::Array(items),
        other => other,
    }
}

#[track_caller]
fn read(client: &mut RawClient) -> Reply {
    as_array(client.read_reply())
}

/// Sharded channels of a name that somebody listens to, at any node.
fn listened_to(name: &str) -> usize {
    let pattern = format!("*{name}*");
    let at = |node| OPEN.node(node).client().command(&["PUBSUB", "SHARDCHANNELS", &pattern]);
    (0..3).map(|node| at(node).items().len()).sum()
}

#[test]
fn one_connection_listens_to_channels_of_all_nodes() {
    let heatsink = before_open(|_| {});
    let mut publisher = heatsink.client();
    for protocol in ["2", "3"] {
        let name = format!("sharded {protocol}");
        let channels = channels(&name);
        let mut client = heatsink.client();
        client.command(&["HELLO", protocol]);
        for (n, channel) in channels.iter().enumerate() {
            client.send(&["SSUBSCRIBE", channel]);
            assert_eq!(read(&mut client), told("ssubscribe", channel, n as i64 + 1));
        }
        for channel in &channels {
            assert_eq!(publisher.command(&["SPUBLISH", channel, "x"]), Reply::Integer(1));
            assert_eq!(read(&mut client), Reply::bulks(["smessage", channel, "x"]));
        }
        // Once more, and one of none.
        client.send(&["SSUBSCRIBE", &channels[1]]);
        assert_eq!(read(&mut client), told("ssubscribe", &channels[1], 3));
        client.send(&["SUNSUBSCRIBE", &channels[2]]);
        assert_eq!(read(&mut client), told("sunsubscribe", &channels[2], 2));
        client.send(&["SUNSUBSCRIBE", &channels[2]]);
        assert_eq!(read(&mut client), told("sunsubscribe", &channels[2], 2));
        assert_eq!(publisher.command(&["SPUBLISH", &channels[2], "x"]), Reply::Integer(0));
        // Those that are left, in any order.
        client.send(&["SUNSUBSCRIBE"]);
        let left = [read(&mut client), read(&mut client)];
        let names: BTreeSet<_> = left.iter().map(|told| told.items()[1].text()).collect();
        assert_eq!(names, channels[..2].iter().cloned().collect());
        assert_eq!([1, 0], [&left[0], &left[1]].map(|told| told.items()[2].integer()));
        assert_eq!(listened_to(&name), 0);
        // An ordinary client again.
        assert_eq!(client.command(&["SET", &channels[2], "1"]), Reply::ok());
        client.send(&["SUNSUBSCRIBE"]);
        let none = read(&mut client);
        assert_eq!((none.items()[1].clone(), none.items()[2].integer()), (Reply::Null, 0));
    }
}

#[test]
fn sharded_channels_beside_others() {
    let heatsink = before_open(|_| {});
    let mut publisher = heatsink.client();
    let channels = channels("sharded beside");
    let mut client = heatsink.client();
    assert_eq!(client.command(&["SUBSCRIBE", "beside"]), told("subscribe", "beside", 1));
    assert_eq!(client.command(&["PSUBSCRIBE", "besid?"]), told("psubscribe", "besid?", 2));
    let commands = channels.each_ref().map(|channel| ["SSUBSCRIBE", channel]);
    send_all(&mut client, &commands.each_ref().map(|command| &command[..]));
    for (n, channel) in channels.iter().enumerate() {
        assert_eq!(client.read_reply(), told("ssubscribe", channel, n as i64 + 1));
    }
    for channel in &channels {
        assert_eq!(publisher.command(&["SPUBLISH", channel, "x"]), Reply::Integer(1));
        assert_eq!(client.read_reply(), Reply::bulks(["smessage", channel, "x"]));
    }
    publisher.command(&["PUBLISH", "beside", "y"]);
    let both = [client.read_reply(), client.read_reply()];
    assert!(both.contains(&Reply::bulks(["message", "beside", "y"])), "{both:?}");
    assert!(both.contains(&Reply::bulks(["pmessage", "besid?", "beside", "y"])), "{both:?}");
    // It is still a subscriber of the old kind.
    assert_eq!(client.command(&["PING", "there"]), Reply::bulks(["pong", "there"]));
    let refused = client.command(&["GET", &channels[1]]);
    assert!(refused.error().contains("allowed in this context"), "{refused}");
    assert_eq!(client.command(&["RESET"]).text(), "RESET");
    assert_eq!(client.command(&["GET", &channels[1]]), Reply::Null);
    eventually(SOON, || listened_to("sharded beside") == 0);
}

/// Two nodes send large messages at the same time: none stands in the middle of another.
#[test]
fn large_messages_of_several_nodes_are_whole() {
    let heatsink = before_open(|_| {});
    let channels = channels("sharded large");
    let mut client = heatsink.client();
    client.set_timeout(SOON);
    for (n, channel) in channels.iter().enumerate() {
        let confirmed = client.command(&["SSUBSCRIBE", channel]);
        assert_eq!(confirmed, told("ssubscribe", channel, n as i64 + 1));
    }
    let rounds = 20;
    std::thread::scope(|scope| {
        for (node, channel) in channels.iter().enumerate() {
            let byte = b'a' + node as u8;
            let message = vec![byte; LARGE_BYTES];
            scope.spawn(move || {
                let mut publisher = OPEN.node(node).client();
                let command = [&b"SPUBLISH"[..], channel.as_bytes(), &message];
                for _ in 0..rounds {
                    assert_eq!(publisher.command(&command), Reply::Integer(1));
                }
            });
        }
        let mut came = [0; 3];
        for _ in 0..3 * rounds {
            let message = client.read_reply();
            let [kind, channel, text] = message.items() else { panic!("{message}") };
            assert_eq!(kind.text(), "smessage");
            let node = channels.iter().position(|name| *name == channel.text()).expect("known");
            let text = text.text();
            let right = text.len() == LARGE_BYTES && text.bytes().all(|b| b == b'a' + node as u8);
            assert!(right, "{} bytes of {node}", text.len());
            came[node] += 1;
        }
        assert_eq!(came, [rounds; 3]);
    });
    assert_eq!(client.command(&["PING"]), Reply::bulks(["pong", ""]));
}

/// The server ends a subscription whose slot it gives away, and says so.
#[test]
fn a_channel_whose_slot_moves_is_subscribed_to_again() {
    let heatsink = before_open(|_| {});
    let channels = channels("sharded moving");
    let mut client = heatsink.client();
    for (n, channel) in channels.iter().enumerate() {
        let confirmed = client.command(&["SSUBSCRIBE", channel]);
        assert_eq!(confirmed, told("ssubscribe", channel, n as i64 + 1));
    }
    for channel in &channels {
        OPEN.move_slot(key_slot(channel), elsewhere(channel));
        assert_eq!(client.read_reply(), told("sunsubscribe", channel, 2));
        assert_eq!(client.command(&["SSUBSCRIBE", channel]), told("ssubscribe", channel, 3));
    }
    let mut publisher = heatsink.client();
    for channel in &channels {
        assert_eq!(publisher.command(&["SPUBLISH", channel, "x"]), Reply::Integer(1));
        assert_eq!(client.read_reply(), Reply::bulks(["smessage", channel, "x"]));
    }
}

#[test]
fn a_subscriber_is_closed_with_any_of_its_nodes() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let mut rig = ClusterRig::with(settings.line("cluster-require-full-coverage no"), |_| {});
    let channels = [0, 1, 2].map(|node| rig.cluster.key_on(node, "sharded"));
    let mut client = rig.client();
    for (n, channel) in channels[..2].iter().enumerate() {
        let confirmed = client.command(&["SSUBSCRIBE", channel]);
        assert_eq!(confirmed, told("ssubscribe", channel, n as i64 + 1));
    }
    // One that cannot be reached is an error, and no more.
    rig.cluster.kill(2);
    client.send_raw(&encode(&["SSUBSCRIBE", &channels[2]]));
    let refused = client.read_reply();
    assert!(refused.is_error(), "{refused}");
    assert_eq!(client.command(&["PING"]), Reply::bulks(["pong", ""]));
    rig.cluster.kill(1);
    client.set_timeout(SOON);
    assert!(client.read_to_close().is_empty());
    let mut source = rig.cluster.node(0).client();
    let left = || source.command(&["PUBSUB", "SHARDCHANNELS"]).items().is_empty();
    eventually(SOON, left);
}

/// Messages are no replies: they come to a client that wants none, whatever it asks meanwhile.
#[test]
fn messages_come_to_a_client_that_wants_no_replies() {
    const MESSAGES: usize = 100;
    let rig = ClusterRig::new(1);
    let (mut client, mut publisher) = (rig.client(), rig.client());
    assert!(!client.command(&["HELLO", "3"]).is_error());
    client.command(&["SUBSCRIBE", "news"]);
    client.send(&["CLIENT", "REPLY", "OFF"]);
    let keys: Vec<Vec<u8>> =
        (0..MESSAGES).map(|n| encode(&["GET".to_owned(), format!("key{n}")])).collect();
    for n in 0..MESSAGES {
        client.send_raw(&keys.concat());
        publisher.command(&["PUBLISH", "news", &n.to_string()]);
    }
    for n in 0..MESSAGES {
        let told = client.read_reply();
        assert_eq!(told.items()[2], Reply::bulk(n.to_string()), "{told:?}");
    }
    client.send(&["CLIENT", "REPLY", "ON"]);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.command(&["PING"]).text(), "PONG");
}
