//! Limits and endings of connections, over TLS.

use std::time::Duration;

use heatsink_proxy::config::Auth;
use heatsink_testkit::{
    Certificates, RawClient, RedisServer, RedisServerBuilder, Reply, encode, eventually,
};
use heatsink_users::{Users, hash};

use crate::support::{Listening, noise, pong};

const SOON: Duration = Duration::from_secs(10);

#[track_caller]
fn are_small(connect: &dyn Fn() -> RawClient, login: &[&str]) {
    for (bytes, error) in [
        (encode(&["x"; 11]), "unauthenticated multibulk length"),
        (encode(&["GET", &"x".repeat(16_385)]), "unauthenticated bulk length"),
    ] {
        let mut client = connect();
        assert!(client.command(&["GET", "a"]).error().starts_with("NOAUTH"));
        client.send_raw(&bytes);
        assert_eq!(client.read_reply().error(), format!("ERR Protocol error: {error}"));
        client.expect_closed();
    }
    let mut client = connect();
    assert_eq!(client.command(login), Reply::ok());
    assert_eq!(client.command(&["SET", "a", &"x".repeat(100_000)]), Reply::ok());
}

#[test]
fn before_authentication_at_the_server() {
    let server: RedisServerBuilder = RedisServer::builder().arg("requirepass", "secret");
    let listening = Listening::with(Certificates::generate(), server.start(), |_| {}, |_| {});
    let mut first = listening.client();
    assert!(first.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    are_small(&|| listening.client(), &["AUTH", "secret"]);
}

#[test]
fn before_authentication_here() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("[[user]]\nname = \"app\"\nhash = \"{}\"\n", hash(b"app-pw"));
    std::fs::write(file.path(), text).expect("a written file");
    let users = Users::load(file.path()).expect("a valid file");
    let listening = Listening::with(
        Certificates::generate(),
        RedisServer::start(),
        |_| {},
        |config| config.auth = Auth::Service(users),
    );
    are_small(&|| listening.client(), &["AUTH", "app", "app-pw"]);
    // Before it has said a word, too.
    let mut client = listening.client();
    client.send_raw(b"*11\r\n");
    assert!(client.read_reply().is_error());
    client.expect_closed();
}

#[test]
fn a_client_that_does_not_read_is_closed_at_the_limit() {
    let listening = Listening::with(
        Certificates::generate(),
        RedisServer::start(),
        |_| {},
        |config| config.live.limits.max_output_bytes = 8 << 20,
    );
    let mut other = listening.client();
    other.command(&[&b"SET"[..], b"big", &noise(1 << 20)]);
    let mut slow = listening.client();
    slow.send_raw(&encode(&["GET", "big"]).repeat(200));
    eventually(SOON, || {
        assert_eq!(other.command(&["PING"]), pong());
        listening.heatsink.proxy().client_count() == 1
    });
    // What it can still read is right, as far as it goes.
    let value = Reply::bulk(noise(1 << 20));
    let mut replies = 0;
    while let Ok(reply) = slow.try_read_reply() {
        assert!(reply == value, "another value");
        replies += 1;
    }
    assert!(replies < 200, "{replies}");
    assert_eq!(other.command(&["PING"]), pong());
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let listening = Listening::new();
    let mut client = listening.client();
    let value = noise(1 << 20);
    assert_eq!(client.command(&[&b"SET"[..], b"big", &value]), Reply::ok());
    client.send_raw(&encode(&["GET", "big"]).repeat(60));
    // Not a byte is read before all of it has been asked for and answered by the server.
    eventually(SOON, || listening.server.calls("get") > 0);
    let value = Reply::bulk(&value);
    for n in 0..60 {
        assert!(client.read_reply() == value, "reply {n}");
    }
}

#[test]
fn a_client_that_has_said_all_is_answered_and_closed() {
    let listening = Listening::new();
    let mut client = listening.client();
    let mut burst = encode(&["INCR", "n"]).repeat(2000);
    burst.extend(encode(&["GET", "n"]));
    client.send_raw(&burst);
    client.shutdown_write();
    for n in 1..=2000 {
        assert_eq!(client.read_reply().integer(), n);
    }
    assert_eq!(client.read_reply(), Reply::bulk("2000"));
    client.expect_closed();
    // Without having said anything.
    let mut client = listening.client();
    client.shutdown_write();
    client.expect_closed();
    // In the middle of a blocking command.
    let mut client = listening.client();
    client.send(&["BLPOP", "none", "0"]);
    eventually(SOON, || listening.server.info_u64("clients", "blocked_clients") == 1);
    client.shutdown_write();
    client.expect_closed();
    eventually(SOON, || listening.server.info_u64("clients", "blocked_clients") == 0);
    eventually(SOON, || listening.heatsink.proxy().client_count() == 0);
}

#[test]
fn quit_ends_the_connection_properly() {
    let listening = Listening::new();
    let mut client = listening.client();
    client.send(&["QUIT"]);
    assert_eq!(client.read_reply(), Reply::ok());
    // With a proper end of TLS: a cut connection would be an error here.
    assert_eq!(client.read_to_close(), b"");
}
