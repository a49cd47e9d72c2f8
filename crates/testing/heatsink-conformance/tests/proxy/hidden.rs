//! Keys of the fleet are not seen by clients.

use std::collections::BTreeSet;

use heatsink_conformance::{ClusterRig, Heatsink, Rig};
use heatsink_testkit::{RawClient, RedisCluster, Reply};

const OWN: [&str; 3] =
    ["heatsink:{default}:state", "heatsink:{default}:members", "heatsink:{a}:1:0"];

fn know_own(heatsink: &Heatsink) {
    let own = OWN.map(|name| name.as_bytes().to_vec());
    heatsink.proxy().handle().set_own_keys(own.to_vec(), Vec::new());
}

fn scanned(client: &mut RawClient, args: &[&str]) -> BTreeSet<String> {
    let (mut found, mut cursor) = (BTreeSet::new(), "0".to_owned());
    for _ in 0..1000 {
        let reply = client.command(&[&["SCAN", &cursor], args].concat());
        found.extend(reply.items()[1].items().iter().map(Reply::text));
        cursor = reply.items()[0].text();
        if cursor == "0" {
            return found;
        }
    }
    panic!("the scan does not end");
}

/// What a client sees of keys, with those of the fleet among them on the server.
fn sees_only_its_own(client: &mut RawClient, keys: &[&str]) {
    let expected: BTreeSet<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(client.command(&["DBSIZE"]), Reply::Integer(keys.len() as i64));
    let listed = client.command(&["KEYS", "*"]);
    assert_eq!(listed.items().iter().map(Reply::text).collect::<BTreeSet<_>>(), expected);
    assert_eq!(client.command(&["KEYS", "heatsink:*"]).items(), []);
    assert_eq!(scanned(client, &[]), expected);
    assert_eq!(scanned(client, &["COUNT", "1"]), expected);
    assert_eq!(scanned(client, &["MATCH", "heatsink:*"]), BTreeSet::new());
    for _ in 0..20 {
        let key = client.command(&["RANDOMKEY"]);
        match keys {
            [] => assert_eq!(key, Reply::Null),
            _ => assert!(expected.contains(&key.text()), "{key:?}"),
        }
    }
    // In the telnet form, too.
    client.send_raw(b"DBSIZE\r\nKEYS heatsink:*\r\n");
    assert_eq!(client.read_reply(), Reply::Integer(keys.len() as i64));
    assert_eq!(client.read_reply().items(), []);
    // The server's own words on what is wrong.
    assert!(client.command(&["SCAN", "x"]).error().contains("invalid cursor"));
    assert!(client.command(&["KEYS"]).error().contains("wrong number of arguments"));
    // In order with what comes before and after.
    client.send(&["SET", "{o}rdered", "1"]);
    client.send(&["DBSIZE"]);
    client.send(&["DEL", "{o}rdered"]);
    client.send(&["DBSIZE"]);
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::Integer(keys.len() as i64 + 1));
    assert_eq!(client.read_reply(), Reply::Integer(1));
    assert_eq!(client.read_reply(), Reply::Integer(keys.len() as i64));
}

#[test]
fn on_one_server_clients_see_their_own_keys_only() {
    let rig = Rig::new(1);
    know_own(rig.heatsink());
    let mut direct = rig.server().client();
    for name in OWN {
        direct.command(&["SET", name, "x"]);
    }
    for protocol in ["2", "3"] {
        let mut client = rig.client();
        client.command(&["HELLO", protocol]);
        sees_only_its_own(&mut client, &[]);
        client.command(&["MSET", "a", "1", "b", "2", "heatsink", "3"]);
        sees_only_its_own(&mut client, &["a", "b", "heatsink"]);
        client.command(&["DEL", "a", "b", "heatsink"]);
        // Another database is the client's alone.
        client.command(&["SELECT", "1"]);
        client.command(&["SET", "c", "1"]);
        sees_only_its_own(&mut client, &["c"]);
        client.command(&["DEL", "c"]);
    }
    let mut subscriber = rig.server().client();
    subscriber.command(&["SUBSCRIBE", "heatsink:{default}:changes"]);
    assert_eq!(rig.client().command(&["PUBSUB", "CHANNELS"]).items(), []);
    // The control plane sees everything.
    let handle = rig.heatsink().proxy().handle();
    let mut within = RawClient::over_stream(handle.connect().expect("a connection within"));
    assert_eq!(within.command(&["KEYS", "*"]).items().len(), OWN.len());
    assert_eq!(within.command(&["DBSIZE"]), Reply::Integer(OWN.len() as i64));
}

#[test]
fn on_a_cluster_clients_see_their_own_keys_only() {
    let builder = RedisCluster::builder().replicas_per_primary(0);
    let rig = ClusterRig::with(builder, |config| config.workers = 1);
    know_own(&rig.heatsink);
    let handle = rig.heatsink.proxy().handle();
    let mut within = RawClient::over_stream(handle.connect().expect("a connection within"));
    for name in OWN {
        assert_eq!(within.command(&["SET", name, "x"]), Reply::ok());
    }
    let mut client = rig.client();
    sees_only_its_own(&mut client, &[]);
    let keys: Vec<String> = (0..30).map(|number| format!("key:{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for key in &keys {
        client.command(&["SET", key, "1"]);
    }
    sees_only_its_own(&mut client, &keys);
    assert_eq!(within.command(&["DBSIZE"]), Reply::Integer(33));
}
