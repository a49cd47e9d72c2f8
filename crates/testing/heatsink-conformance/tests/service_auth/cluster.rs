//! The same before a cluster.

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Auth;
use heatsink_testkit::{RedisCluster, Reply, encode};

use crate::support::UsersFile;

fn start() -> (Heatsink, RedisCluster) {
    let cluster =
        RedisCluster::builder().replicas_per_primary(0).password("cluster-secret").start();
    let users = UsersFile::new().users;
    let url = cluster.seed_url().replace("://", "://:cluster-secret@");
    let heatsink = Heatsink::before_url(&url, |config| {
        config.auth = Auth::Service(users);
        config.workers = 2;
    });
    (heatsink, cluster)
}

#[test]
fn logins_before_a_cluster() {
    let (heatsink, cluster) = start();
    let keys = [0, 1, 2].map(|node| cluster.key_on(node, "k"));
    let [a, b, c] = keys.each_ref().map(String::as_str);
    let mut client = heatsink.client();
    for command in [
        &["GET", a][..],
        &["MGET", a, b, c],
        &["MULTI"],
        &["SUBSCRIBE", "x"],
        &["CLUSTER", "SLOTS"],
        &["CLUSTER", "KEYSLOT", "a"],
        &["READONLY"],
        &["SCAN", "0"],
        &["DBSIZE"],
        &["MONITOR"],
        &["BLPOP", a, "0"],
    ] {
        assert!(client.command(command).error().starts_with("NOAUTH"), "{command:?}");
    }
    assert!(client.command(&["AUTH", "cluster-secret"]).error().starts_with("WRONGPASS"));
    let mut burst = encode(&["AUTH", "app", "app-pw"]);
    for command in [&["MSET", a, "1", b, "2", c, "3"][..], &["MGET", a, b, c]] {
        burst.extend(encode(command));
    }
    client.send_raw(&burst);
    assert_eq!([client.read_reply(), client.read_reply()], [Reply::ok(), Reply::ok()]);
    assert_eq!(client.read_reply(), Reply::bulks(["1", "2", "3"]));
    assert_eq!(client.command(&["DBSIZE"]).integer(), 3);
    for key in [a, b, c] {
        assert_eq!(client.command(&["MULTI"]), Reply::ok());
        assert_eq!(client.command(&["INCR", key]), Reply::Simple("QUEUED".into()));
        assert_eq!(client.command(&["EXEC"]).items().len(), 1);
    }
    assert_eq!(client.command(&["CLUSTER", "SLOTS"]).items().len(), 1);
    let hello = ["HELLO", "3", "AUTH", "default", "default-pw", "SETNAME", "n"];
    assert!(!client.command(&hello).is_error());
    assert_eq!(client.command(&["MGET", a, b, c]), Reply::bulks(["2", "3", "4"]));
    assert!(client.command(&["CLIENT", "INFO"]).text().contains(" user=default "));
    assert!(client.command(&["AUTH", "app", "wrong"]).error().starts_with("WRONGPASS"));
    assert_eq!(client.command(&["RESET"]).text(), "RESET");
    assert!(client.command(&["GET", a]).error().starts_with("NOAUTH"));
}

#[test]
fn a_login_while_keys_are_watched() {
    let (heatsink, _cluster) = start();
    let mut client = heatsink.client();
    assert_eq!(client.command(&["AUTH", "app", "app-pw"]), Reply::ok());
    assert_eq!(client.command(&["WATCH", "a"]), Reply::ok());
    assert!(client.command(&["AUTH", "app", "wrong"]).error().starts_with("WRONGPASS"));
    assert_eq!(client.command(&["AUTH", "default-pw"]), Reply::ok());
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    client.command(&["INCR", "a"]);
    assert_eq!(client.command(&["EXEC"]).items(), [Reply::Integer(1)]);
}
