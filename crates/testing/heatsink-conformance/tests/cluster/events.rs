//! What servers tell of their keys is heard of all nodes, as on one server.

use std::collections::BTreeMap;
use std::time::Duration;

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{RawClient, RedisCluster, Reply, eventually};

const SOON: Duration = Duration::from_secs(20);
/// Long enough for what is one too many to come.
const MOMENT: Duration = Duration::from_millis(200);
const SUBSCRIBERS: usize = 6;

fn telling_cluster() -> ClusterRig {
    let settings = RedisCluster::builder().line("notify-keyspace-events KEA");
    ClusterRig::with(settings, |config| config.workers = 2)
}

/// Keys of all nodes, some of each.
fn keys(rig: &ClusterRig, name: &str) -> Vec<String> {
    let primaries = rig.cluster.primaries();
    (0..9).map(|n| rig.cluster.key_on(primaries[n % 3], &format!("{name}{n}"))).collect()
}

fn as_array(reply: Reply) -> Reply {
    match reply {
        Reply::Push(items) => Reply::Array(items),
        other => other,
    }
}

/// What comes until nothing does: how often each text, by its last word.
fn hear(client: &mut RawClient, count: usize) -> BTreeMap<String, usize> {
    let mut heard = BTreeMap::new();
    for _ in 0..count {
        let message = as_array(client.read_reply());
        let items = message.items();
        let what = items[items.len() - 2..].iter().map(Reply::text).collect::<Vec<_>>().join(" ");
        *heard.entry(what).or_default() += 1;
    }
    let more = client.try_read_frame(MOMENT).expect("open");
    assert!(more.is_none(), "{}", more.unwrap_or_default().escape_ascii());
    heard
}

fn connections(rig: &ClusterRig) -> u64 {
    rig.cluster.primaries().iter().map(|node| rig.cluster.info_u64(*node, "pubsub_patterns")).sum()
}

#[test]
fn events_of_all_nodes_are_heard_once() {
    let rig = telling_cluster();
    let mut writer = rig.client();
    for protocol in ["2", "3"] {
        for _ in 0..SUBSCRIBERS {
            let mut client = rig.client();
            client.set_timeout(SOON);
            client.command(&["HELLO", protocol]);
            client.send(&["SUBSCRIBE", "news", "__keyevent@0__:del", "__keyevent@0__:set"]);
            for (n, name) in ["news", "__keyevent@0__:del", "__keyevent@0__:set"].iter().enumerate()
            {
                let confirmed = as_array(client.read_reply());
                assert_eq!(confirmed.items()[1].text(), *name);
                assert_eq!(confirmed.items()[2].integer(), n as i64 + 1);
            }
            // From the confirmation on nothing is missed.
            let keys = keys(&rig, protocol);
            for key in &keys {
                assert_eq!(writer.command(&["SET", key, "1"]), Reply::ok());
            }
            writer.command(&["PUBLISH", "news", "x"]);
            let heard = hear(&mut client, keys.len() + 1);
            let told = keys.iter().map(|key| (format!("__keyevent@0__:set {key}"), 1));
            assert_eq!(heard, told.chain([("news x".to_owned(), 1)]).collect());
            client.send(&["PSUBSCRIBE", "__keyspace@0__:*", "n*"]);
            for n in 4..6 {
                assert_eq!(as_array(client.read_reply()).items()[2].integer(), n);
            }
            client.send(&["UNSUBSCRIBE", "__keyevent@0__:set"]);
            assert_eq!(as_array(client.read_reply()).items()[2].integer(), 4);
            for key in &keys {
                assert_eq!(writer.command(&["DEL", key]), Reply::Integer(1));
            }
            let heard = hear(&mut client, 2 * keys.len());
            let of_space = keys.iter().map(|key| (format!("__keyspace@0__:{key} del"), 1));
            let of_event = keys.iter().map(|key| (format!("__keyevent@0__:del {key}"), 1));
            assert_eq!(heard, of_space.chain(of_event).collect());
            client.send(&["UNSUBSCRIBE"]);
            client.send(&["PUNSUBSCRIBE"]);
            let left: Vec<_> =
                (0..4).map(|_| as_array(client.read_reply()).items()[2].integer()).collect();
            assert_eq!(left, [3, 2, 1, 0]);
            // An ordinary client again.
            assert_eq!(writer.command(&["SET", &keys[0], "1"]), Reply::ok());
            assert_eq!(client.command(&["GET", &keys[0]]), Reply::bulk("1"));
        }
    }
    eventually(SOON, || connections(&rig) == 0);
}

/// A primary hands over to its replica, which would tell everything, too, before and behind it.
#[test]
fn events_are_heard_of_a_new_primary() {
    let rig = telling_cluster();
    let mut subscribers: Vec<_> = (0..SUBSCRIBERS).map(|_| rig.client()).collect();
    for client in &mut subscribers {
        client.set_timeout(SOON);
        let confirmed = client.command(&["PSUBSCRIBE", "__key*__:*"]);
        assert_eq!(confirmed.items()[2].integer(), 1);
    }
    let keys = keys(&rig, "handed");
    let old = rig.cluster.primaries()[0];
    let heir = rig.cluster.replicas_of(old)[0];
    rig.cluster.failover(heir);
    let mut writer = rig.client();
    writer.set_timeout(SOON);
    // The map of each worker is new when its clients have been told of a write there.
    let mut closed = 0;
    let mut left = Vec::new();
    for mut client in subscribers {
        let open = loop {
            // Some events are missed meanwhile, as on a server that is replaced.
            assert_eq!(writer.command(&["SET", &keys[0], "0"]), Reply::ok());
            match client.try_read_frame(MOMENT) {
                Ok(Some(frame)) => {
                    let text = frame.escape_ascii().to_string();
                    assert!(text.contains("__key"), "{text}");
                    if text.contains(&keys[0]) {
                        break true;
                    }
                }
                Ok(None) => {}
                Err(_) => break false,
            }
        };
        if open {
            left.push(client);
        } else {
            closed += 1;
        }
    }
    // One that has heard of the new primary may still lose its own connection, to the old one.
    left.retain_mut(|client| {
        loop {
            match client.try_read_frame(MOMENT) {
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => {
                    closed += 1;
                    break false;
                }
            }
        }
    });
    // Those whose own connection was to it, and they alone.
    assert!(closed < SUBSCRIBERS, "{closed} closed");
    for key in &keys {
        assert_eq!(writer.command(&["SET", key, "1"]), Reply::ok());
    }
    for client in &mut left {
        let heard = hear(client, 2 * keys.len());
        assert!(heard.values().all(|count| *count == 1), "{heard:?}");
    }
}

/// A primary that stands still is not waited for longer than a connection may take to open, and is
/// listened to when it goes on.
#[test]
fn a_primary_that_stands_still_does_not_silence_the_others() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let settings = settings.line("notify-keyspace-events KEA");
    let mut rig = ClusterRig::with(settings, |config| {
        config.live.timeouts.connect = Duration::from_millis(300);
    });
    let keys = [0, 1, 2].map(|node| rig.cluster.key_on(node, "still"));
    assert_eq!(rig.client().command(&["MSET", &keys[0], "0", &keys[1], "0"]), Reply::ok());
    rig.cluster.pause(2);
    // Those whose own connection would be to that node are told so.
    let mut client = eventually(SOON, || {
        let mut client = rig.client();
        client.set_timeout(SOON);
        (!client.command(&["SUBSCRIBE", "__keyevent@0__:set"]).is_error()).then_some(client)
    });
    let mut writer = rig.client();
    for key in &keys[..2] {
        assert_eq!(writer.command(&["SET", key, "1"]), Reply::ok());
        let told = Reply::bulks(["message", "__keyevent@0__:set", key]);
        assert_eq!(client.read_reply(), told);
    }
    rig.cluster.resume(2);
    eventually(SOON, || {
        writer.command(&["SET", &keys[2], "1"]);
        let heard = client.try_read_frame(MOMENT).expect("open");
        heard.is_some_and(|frame| frame.escape_ascii().to_string().contains(&keys[2]))
    });
}
