//! Word of changes for clients that keep caches of their own.

use heatsink_testkit::{RawClient, RedisServer, Reply, eventually};

use crate::support::{PATIENCE, Place, address, start};

/// Whether something has come that was not read.
fn has_unread(client: &RawClient) -> bool {
    let stream = client.stream();
    stream.set_nonblocking(true).expect("a socket");
    let has_unread = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).expect("a socket");
    has_unread
}

/// ```text
/// 1. A keeps k in a cache of its own: the server is to tell it of changes
/// 2. B writes k; the server answers, and tells, while Heatsink does not look
/// 3. Heatsink finds both at once: A is told before B
/// ```
#[test]
fn a_client_is_told_of_a_change_before_the_write_is_acknowledged() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let (mut process, ready) = start(place.heatsink(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
        "--upstream",
        &url,
    ]));
    let mut direct = server.client();
    let [mut keeper, mut writer] = [(); 2].map(|()| RawClient::connect(address(&ready)));
    keeper.command(&["HELLO", "3"]);
    assert_eq!(keeper.command(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
    for round in 0..20 {
        let value = round.to_string();
        keeper.command(&["GET", "k"]);
        assert_eq!(direct.command(&["CLIENT", "PAUSE", "60000", "WRITE"]), Reply::ok());
        writer.send(&["SET", "k", &value]);
        // It has reached the server, which holds it.
        eventually(PATIENCE, || {
            let clients = direct.command(&["CLIENT", "LIST"]);
            clients
                .text()
                .lines()
                .any(|client| client.contains(" cmd=set ") && client.contains(" flags=b "))
        });
        process.pause();
        assert_eq!(direct.command(&["CLIENT", "UNPAUSE"]), Reply::ok());
        eventually(PATIENCE, || direct.command(&["GET", "k"]) == Reply::bulk(&value));
        // What a server has to say in one turn it says to all before it reads again.
        assert!(!direct.command(&["PING"]).is_error());
        process.resume();
        assert_eq!(writer.read_reply(), Reply::ok());
        assert!(has_unread(&keeper), "round {round}: the write was acknowledged first");
        keeper.read_frame();
    }
}
