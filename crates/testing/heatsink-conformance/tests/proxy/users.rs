//! Who a client is: passwords, users, and what they may see.

use std::time::{Duration, Instant};

use heatsink_conformance::{Heatsink, Log, Rig};
use heatsink_testkit::{RawClient, RedisServer, Reply, encode, eventually};
use heatsink_upstream::address::Credentials;

const SOON: Duration = Duration::from_secs(10);

fn with_users() -> Rig {
    let rig = Rig::new(1);
    let mut admin = rig.server().client();
    for rule in [
        &["ACL", "SETUSER", "ann", "on", ">ann-pw", ">ann-pw2", "~*", "&*", "+@all"][..],
        &["ACL", "SETUSER", "bob", "on", ">bob-pw", "~b:*", "+get", "+set", "+client|id"],
    ] {
        assert_eq!(admin.command(rule), Reply::ok());
    }
    rig
}

fn login(rig: &Rig, user: &str, password: &str) -> RawClient {
    let mut client = rig.client();
    assert_eq!(client.command(&["AUTH", user, password]), Reply::ok());
    client
}

#[test]
fn each_user_has_its_own_rights_and_pipeline() {
    let rig = with_users();
    let (mut ann, mut bob) = (login(&rig, "ann", "ann-pw"), login(&rig, "bob", "bob-pw"));
    assert_eq!(ann.command(&["SET", "a:1", "x"]), Reply::ok());
    assert!(bob.command(&["GET", "a:1"]).error().starts_with("NOPERM"));
    assert_eq!(bob.command(&["SET", "b:1", "y"]), Reply::ok());
    assert!(bob.command(&["DEL", "b:1"]).error().starts_with("NOPERM"));
    assert_eq!(ann.command(&["ACL", "WHOAMI"]), Reply::bulk("ann"));
    // A second client of the same user shares the pipeline; its other password is its own.
    let mut again = login(&rig, "ann", "ann-pw");
    assert_eq!(again.command(&["GET", "a:1"]), Reply::bulk("x"));
    let mut other = login(&rig, "ann", "ann-pw2");
    assert_eq!(other.command(&["GET", "a:1"]), Reply::bulk("x"));
    let list = rig.server().client().command(&["CLIENT", "LIST"]).text();
    assert_eq!(list.matches("user=ann").count(), 2, "{list}");
    assert_eq!(list.matches("user=bob").count(), 1, "{list}");
}

#[test]
fn what_is_answered_here_is_refused_where_the_server_would() {
    let rig = with_users();
    let mut bob = login(&rig, "bob", "bob-pw");
    assert!(bob.command(&["CLIENT", "ID"]).integer() > 0);
    for command in [
        &["CLIENT", "LIST"][..],
        &["CLIENT", "INFO"],
        &["CLIENT", "SETNAME", "x"],
        &["CLIENT", "KILL", "ID", "1"],
    ] {
        assert!(bob.command(command).error().starts_with("NOPERM"), "{command:?}");
    }
}

#[test]
fn a_failed_login_changes_nothing_and_says_what_the_server_says() {
    let rig = with_users();
    let mut client = login(&rig, "bob", "bob-pw");
    for command in [
        &["AUTH", "bob", "wrong"][..],
        &["AUTH", "nobody", "x"],
        &["HELLO", "3", "AUTH", "ann", "wrong"],
    ] {
        let direct = rig.server().client().command(command).error();
        assert_eq!(client.command(command).error(), direct);
        assert!(direct.starts_with("WRONGPASS"), "{direct}");
    }
    assert!(client.command(&["GET", "a:1"]).error().starts_with("NOPERM"));
    assert!(!client.command(&["HELLO", "3", "AUTH", "ann", "ann-pw", "SETNAME", "n"]).is_error());
    assert_eq!(client.command(&["ACL", "WHOAMI"]), Reply::bulk("ann"));
    assert_eq!(client.command(&["CLIENT", "GETNAME"]), Reply::bulk("n"));
    assert_eq!(client.command(&["RESET"]).text(), "RESET");
    assert_eq!(client.command(&["ACL", "WHOAMI"]), Reply::bulk("default"));
}

#[test]
fn requests_behind_a_login_run_as_that_user_or_not_at_all() {
    let rig = with_users();
    let mut client = rig.client();
    let mut bytes = encode(&["AUTH", "bob", "bob-pw"]);
    bytes.extend(encode(&["GET", "a:1"]));
    bytes.extend(encode(&["AUTH", "ann", "ann-pw"]));
    bytes.extend(encode(&["GET", "a:1"]));
    client.send_raw(&bytes);
    assert_eq!(client.read_reply(), Reply::ok());
    assert!(client.read_reply().error().starts_with("NOPERM"));
    assert_eq!(client.read_reply(), Reply::ok());
    assert_eq!(client.read_reply(), Reply::Null);
}

#[test]
fn transactions_and_blocking_commands_run_as_the_client() {
    let rig = with_users();
    let mut bob = login(&rig, "bob", "bob-pw");
    assert!(bob.command(&["MULTI"]).error().starts_with("NOPERM"));
    assert!(bob.command(&["BLPOP", "a:1", "1"]).error().starts_with("NOPERM"));
    assert!(bob.command(&["SUBSCRIBE", "x"]).error().starts_with("NOPERM"));
    assert_eq!(bob.command(&["SET", "b:1", "y"]), Reply::ok());
}

#[test]
fn a_password_is_demanded_by_the_server_and_small_requests_until_then() {
    let rig =
        Rig::one_server().servers(|server| server.arg("requirepass", "secret")).workers(1).start();
    let mut client = rig.client();
    assert!(client.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    assert!(client.command(&["CLIENT", "ID"]).error().starts_with("NOAUTH"));
    assert!(client.command(&["HELLO", "3"]).error().starts_with("NOAUTH"));
    assert!(client.command(&["AUTH", "wrong"]).error().starts_with("WRONGPASS"));
    client.send_raw(b"*11\r\n");
    assert_eq!(client.read_reply().error(), "ERR Protocol error: unauthenticated multibulk length");
    client.expect_closed();

    let mut client = rig.client();
    assert!(client.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    client.send_raw(b"*2\r\n$3\r\nGET\r\n$16385\r\n");
    assert_eq!(client.read_reply().error(), "ERR Protocol error: unauthenticated bulk length");
    client.expect_closed();

    let mut client = rig.client();
    assert_eq!(client.command(&["AUTH", "secret"]), Reply::ok());
    let value = "x".repeat(100_000);
    assert_eq!(client.command(&["SET", "a", &value]), Reply::ok());
    assert_eq!(
        client.command(&["MGET", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]).items().len(),
        10
    );
    assert_eq!(client.command(&["RESET"]).text(), "RESET");
    assert!(client.command(&["GET", "a"]).error().starts_with("NOAUTH"));
}

#[test]
fn credentials_of_the_upstream_serve_clients_that_give_none() {
    let server = RedisServer::builder().arg("requirepass", "secret");
    let rig = Rig::with(server, |config| {
        config.upstream.credentials =
            Some(Credentials { user: None, password: b"secret".to_vec() });
        config.upstream.db = 2;
    });
    let mut client = rig.client();
    assert_eq!(client.command(&["SET", "a", &"x".repeat(50_000)]), Reply::ok());
    assert!(client.command(&["CLIENT", "INFO"]).text().contains("db=2"));
    let mut direct = rig.server().client();
    direct.command(&["AUTH", "secret"]);
    direct.command(&["SELECT", "2"]);
    assert_eq!(direct.command(&["EXISTS", "a"]).integer(), 1);
}

#[test]
fn the_limits_before_authentication_hold_for_inline_requests() {
    let rig =
        Rig::one_server().servers(|server| server.arg("requirepass", "secret")).workers(1).start();
    let mut bystander = rig.client();
    assert!(bystander.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    let mut client = rig.client();
    client.send_raw(b"MGET a b c d e f g h i j k l m\r\n");
    assert_eq!(client.read_reply().error(), "ERR Protocol error: unauthenticated multibulk length");
    client.expect_closed();
    // The server would have closed the connection that the others use.
    assert!(bystander.command(&["GET", "a"]).error().starts_with("NOAUTH"));
}

/// Connections that the server was ever asked for.
fn connections(rig: &Rig) -> u64 {
    rig.server().info_u64("stats", "total_connections_received")
}

#[test]
fn any_number_of_passwords_shares_connections_where_none_is_needed() {
    let rig = Rig::new(1);
    let mut client = rig.client();
    // The default user has no password, so any will do, and each is a login of its own.
    for n in 0..1200 {
        assert_eq!(client.command(&["AUTH", "default", &n.to_string()]), Reply::ok());
    }
    let crowd: Vec<_> = (0..20).map(|n| login(&rig, "default", &format!("crowd {n}"))).collect();
    assert!(rig.server().info_u64("clients", "connected_clients") <= 12);
    assert!(connections(&rig) <= 20, "{}", connections(&rig));
    assert_eq!(client.command(&["PING"]).text(), "PONG");
    drop(crowd);
}

#[test]
fn who_shares_connections_has_nobody_elses_rights_and_a_new_password_holds() {
    let rig = with_users();
    let mut admin = rig.server().client();
    let guest = ["ACL", "SETUSER", "guest", "on", "nopass", "~g:*", "+get", "+set", "+acl|whoami"];
    assert_eq!(admin.command(&guest), Reply::ok());
    let mut ann = login(&rig, "ann", "ann-pw");
    assert_eq!(ann.command(&["SET", "a:1", "secret"]), Reply::ok());
    let mut guests: Vec<_> = (0..9).map(|n| login(&rig, "guest", &n.to_string())).collect();
    // The password of somebody else is one of many as well.
    guests.push(login(&rig, "guest", "ann-pw"));
    for guest in &mut guests {
        assert_eq!(guest.command(&["ACL", "WHOAMI"]), Reply::bulk("guest"));
        assert_eq!(guest.command(&["SET", "g:1", "x"]), Reply::ok());
        assert!(guest.command(&["GET", "a:1"]).error().starts_with("NOPERM"));
    }
    assert!(guests[9].command(&["AUTH", "ann", "wrong"]).error().starts_with("WRONGPASS"));
    assert_eq!(guests[9].command(&["ACL", "WHOAMI"]), Reply::bulk("guest"));
    let list = admin.command(&["CLIENT", "LIST"]).text();
    assert!(list.matches("user=guest").count() <= 6, "{list}");
    // From now on it needs one. Who is in stays in, as on a server, and nobody else comes in.
    assert_eq!(admin.command(&["ACL", "SETUSER", "guest", "resetpass", ">new"]), Reply::ok());
    assert_eq!(guests[9].command(&["GET", "g:1"]), Reply::bulk("x"));
    let mut late = rig.client();
    for wrong in ["10", "0", "heatsink: this user needs no password"] {
        assert!(late.command(&["AUTH", "guest", wrong]).error().starts_with("WRONGPASS"));
    }
    assert_eq!(late.command(&["AUTH", "guest", "new"]), Reply::ok());
    assert_eq!(late.command(&["GET", "g:1"]), Reply::bulk("x"));
    // Those whose connections the server ends are not let in again without it.
    admin.command(&["CLIENT", "KILL", "USER", "guest"]);
    for guest in &mut guests[..4] {
        assert!(guest.command(&["GET", "g:1"]).is_error(), "one of the first, with its own");
    }
    for guest in guests[4..].iter_mut().chain([&mut late]) {
        // Whether it shared them with the one whose password is right, nobody knows any more.
        eventually(SOON, || match guest.try_command(&["GET", "g:1"]) {
            Ok(reply) => reply.error().is_empty(),
            Err(_closed) => true,
        });
    }
    let mut again = login(&rig, "guest", "new");
    assert_eq!(again.command(&["GET", "g:1"]), Reply::bulk("x"));
}

#[test]
fn guesses_are_slowed_down_and_open_few_connections() {
    let rig = with_users();
    let mut ann = login(&rig, "ann", "ann-pw");
    let mut client = rig.client();
    let (begun, before) = (Instant::now(), connections(&rig));
    let guess = |n: u32| match n % 3 {
        0 => encode(&["AUTH", "ann", &n.to_string()]),
        1 => encode(&["HELLO", "3", "AUTH", "bob", &n.to_string()]),
        _ => encode(&["SELECT", &(1000 + n).to_string()]),
    };
    client.send_raw(&(0..3000).flat_map(guess).collect::<Vec<u8>>());
    for _ in 0..24 {
        assert!(client.read_reply().is_error());
    }
    // Twenty at once, and two more each second.
    assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
    let most = 22 + begun.elapsed().as_secs() * 2 + 5;
    assert!(connections(&rig) - before <= most, "{}", connections(&rig) - before);
    // Neither those who are in nor those who come with what is known are slowed down.
    assert_eq!(ann.command(&["SET", "a:1", "x"]), Reply::ok());
    let mut colleague = login(&rig, "ann", "ann-pw");
    assert_eq!(colleague.command(&["GET", "a:1"]), Reply::bulk("x"));
    // Whoever else comes from the same address with something new has to wait, but gets in.
    drop(client);
    let mut bob = login(&rig, "bob", "bob-pw");
    assert_eq!(bob.command(&["SET", "b:1", "y"]), Reply::ok());
}

/// A connection of the client's own is no way around.
#[test]
fn guesses_are_slowed_down_whatever_the_client_is_in_the_middle_of() {
    for state in [&["WATCH", "k"][..], &["CLIENT", "TRACKING", "ON"]] {
        let rig = with_users();
        let mut client = rig.client();
        assert_eq!(client.command(state), Reply::ok());
        // Who knows a password is not held up.
        let begun = Instant::now();
        for _ in 0..30 {
            assert_eq!(client.command(&["AUTH", "ann", "ann-pw"]), Reply::ok());
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        let begun = Instant::now();
        let guess = |n: u32| match n % 2 {
            0 => encode(&["AUTH", "bob", &n.to_string()]),
            _ => encode(&["HELLO", "2", "AUTH", "bob", &n.to_string()]),
        };
        client.send_raw(&(0..100).flat_map(guess).collect::<Vec<u8>>());
        for _ in 0..24 {
            let reply = client.read_reply();
            assert!(reply.error().starts_with("WRONGPASS"), "{reply}");
        }
        assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
    }
    // There the server would tell what it thinks of all of them at once.
    let rig = with_users();
    let mut client = rig.client();
    assert_eq!(client.command(&["MULTI"]), Reply::ok());
    let refused = client.command(&["AUTH", "ann", "ann-pw"]);
    assert!(refused.error().contains("heatsink"), "{refused}");
    assert!(client.command(&["EXEC"]).error().starts_with("EXECABORT"));
}

/// Those that are not answered yet count, too.
#[test]
fn guesses_of_many_clients_are_slowed_down_together() {
    let rig = with_users();
    let mut clients: Vec<RawClient> = (0..60).map(|_| rig.client()).collect();
    let begun = Instant::now();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&["AUTH", "ann", &n.to_string()]);
    }
    let mut refused = 0;
    eventually(SOON, || {
        for client in &mut clients {
            let told = client.try_read_frame(Duration::from_millis(1)).ok().flatten();
            refused += usize::from(told.is_some());
        }
        refused >= 24
    });
    assert!(begun.elapsed() >= Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn what_a_client_is_refused_is_no_outage() {
    let log = Log::listen();
    let rig = with_users();
    let address = rig.server().addr().to_string();
    let mut ann = login(&rig, "ann", "ann-pw");
    for round in 0..6 {
        let (mut client, wrong) = (rig.client(), format!("wrong-{round}"));
        for (command, error) in [
            (&["AUTH", "ann", &wrong][..], "WRONGPASS"),
            (&["HELLO", "3", "AUTH", "bob", &wrong], "WRONGPASS"),
            (&["SELECT", &(1000 + round).to_string()], "ERR DB index"),
        ] {
            let refused = client.command(command);
            assert!(refused.error().starts_with(error), "{command:?}: {refused}");
        }
    }
    // Nor one who was let in before and is not any more.
    rig.server().client().command(&["ACL", "SETUSER", "ann", "off"]);
    let refused = ann.command(&["BLPOP", "a:list", "0.01"]);
    assert!(refused.error().starts_with("WRONGPASS"), "{refused}");
    assert_eq!(log.lines(&address), Vec::<String>::new());
    rig.server().client().command(&["ACL", "SETUSER", "ann", "on"]);
    eventually(SOON, || ann.command(&["BLPOP", "a:list", "0.01"]) == Reply::Null);
    assert_eq!(log.lines(&address), Vec::<String>::new());
    // But if it is Heatsink itself that is refused, nobody is served.
    let url = format!("redis://ann:wrong@{address}");
    let heatsink = Heatsink::before_url(&url, |_| {});
    assert!(heatsink.client().command(&["GET", "k"]).is_error());
    eventually(SOON, || log.lines(&address).iter().any(|line| line.contains("WRONGPASS")));
}

/// Who has become somebody else in the middle of a watch may do what that user may.
#[test]
fn a_login_behind_a_watch_holds_for_what_is_about_clients() {
    let rig = Rig::new(1);
    let rule = ["ACL", "SETUSER", "limited", "on", "nopass", "~*", "+@all", "-client|kill"];
    assert_eq!(rig.server().client().command(&rule), Reply::ok());
    let (mut client, mut other) = (rig.client(), rig.client());
    let id = other.command(&["CLIENT", "ID"]).integer().to_string();
    assert_eq!(client.command(&["WATCH", "a"]), Reply::ok());
    assert_eq!(client.command(&["AUTH", "limited", "x"]), Reply::ok());
    for id in [&id, "999999999"] {
        let refused = client.command(&["CLIENT", "KILL", "ID", id]);
        assert!(refused.is_error(), "{refused:?}");
    }
    assert_eq!(client.command(&["ACL", "WHOAMI"]), Reply::bulk("limited"));
    assert_eq!(other.command(&["PING"]).text(), "PONG");
}
