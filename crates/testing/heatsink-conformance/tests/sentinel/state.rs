//! Clients in the middle of something when the primary changes.

use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_testkit::{Reply, SentinelRig, eventually};

use crate::turns::my_turn;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn whoever_is_in_the_middle_of_something_is_told() {
    let _turn = my_turn();
    let mut rig = SentinelRig::start();
    let heatsink = Heatsink::before_url(&rig.url(), |config| config.workers = 2);
    let mut client = heatsink.client();
    eventually(SOON, || client.command(&["SET", "a", "0"]) == Reply::ok());
    // So that it outlives the primary.
    assert_eq!(client.command(&["WAIT", "1", "5000"]).integer(), 1);

    let mut queueing = heatsink.client();
    queueing.command(&["MULTI"]);
    assert_eq!(queueing.command(&["SET", "a", "1"]).text(), "QUEUED");
    let mut watching = heatsink.client();
    assert_eq!(watching.command(&["WATCH", "a"]), Reply::ok());
    let mut blocked = heatsink.client();
    blocked.send(&["BLPOP", "list", "0"]);
    let mut subscriber = heatsink.client();
    subscriber.command(&["SUBSCRIBE", "news"]);
    let mut modern = heatsink.client();
    modern.command(&["HELLO", "3"]);
    modern.command(&["SUBSCRIBE", "news"]);
    let mut direct = rig.primary().client();
    direct.command(&["SUBSCRIBE", "news"]);
    eventually(SOON, || rig.primary().info_u64("clients", "blocked_clients") == 1);

    let new = rig.hand_over();
    for gone in [&mut direct, &mut subscriber, &mut modern] {
        gone.set_timeout(SOON);
        gone.expect_closed();
    }
    blocked.set_timeout(SOON);
    // An error, or the end of the connection as at a server whose clients are cut off.
    assert!(blocked.try_read_reply().map_or(true, |reply| reply.is_error()));

    assert!(queueing.command(&["SET", "b", "1"]).is_error());
    assert!(queueing.command(&["EXEC"]).error().starts_with("EXECABORT"));
    let port = rig.servers()[new].port();
    eventually(SOON, || {
        let info = client.command(&["INFO", "server"]);
        !info.is_error() && info.text().contains(&format!("tcp_port:{port}\r\n"))
    });
    assert_eq!(
        client.command(&["MGET", "a", "b"]),
        Reply::Array(vec![Reply::bulk("0"), Reply::Null])
    );
    // Nobody knows whether the key was written to in between.
    assert_eq!(watching.command(&["MULTI"]), Reply::ok());
    watching.command(&["SET", "a", "2"]);
    let outcome = watching.command(&["EXEC"]);
    assert!(outcome.is_error() || outcome == Reply::Null, "{outcome}");
    assert_eq!(client.command(&["GET", "a"]), Reply::bulk("0"));
    // From then on everything is as before.
    let mut again = heatsink.client();
    again.command(&["SUBSCRIBE", "news"]);
    assert_eq!(client.command(&["PUBLISH", "news", "x"]).integer(), 1);
    assert_eq!(again.read_reply().items()[2], Reply::bulk("x"));
    for client in [&mut queueing, &mut watching] {
        client.command(&["MULTI"]);
        client.command(&["INCR", "c"]);
        assert_eq!(client.command(&["EXEC"]).items().len(), 1);
    }
}
