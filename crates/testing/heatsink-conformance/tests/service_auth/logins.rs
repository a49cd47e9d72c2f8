//! Right and wrong logins, their order, and what they leave behind.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply, encode, eventually, open_fds};

use crate::support::{Fixture, entry, same};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_wrong_login_looks_as_it_does_at_a_server() {
    let fixture = Fixture::new();
    let mut pair = fixture.pair();
    let long = "x".repeat(5000);
    let wrong: [&[&str]; 16] = [
        &["AUTH", "wrong"],
        &["AUTH", ""],
        &["AUTH", "app", "wrong"],
        &["AUTH", "app", ""],
        &["AUTH", "App", "app-pw"],
        &["AUTH", "nobody", "app-pw"],
        &["AUTH", "", "app-pw"],
        &["AUTH", "off", "off-pw"],
        &["AUTH", "app", &long],
        &["AUTH", &long, "app-pw"],
        &["HELLO", "3", "AUTH", "app", "wrong"],
        &["HELLO", "2", "AUTH", "nobody", "x", "SETNAME", "n"],
        &["HELLO", "3", "AUTH", "off", "off-pw"],
        &["HELLO", "3", "AUTH", "app"],
        &["HELLO", "3", "NOSUCH"],
        &["HELLO", "4", "AUTH", "app", "app-pw"],
    ];
    for command in wrong {
        assert!(same(&mut pair, command).starts_with('-'), "{command:?}");
        assert!(same(&mut pair, &["GET", "a"]).starts_with("-NOAUTH"), "{command:?}");
    }
    // A wrong login does not undo a right one.
    assert_eq!(same(&mut pair, &["AUTH", "app", "app-pw"]), "+OK\r\n");
    for command in [&["AUTH", "app", "wrong"][..], &["HELLO", "3", "AUTH", "nobody", "x"]] {
        assert!(same(&mut pair, command).starts_with("-WRONGPASS"), "{command:?}");
        assert_eq!(same(&mut pair, &["GET", "a"]), "$-1\r\n");
    }
}

#[test]
fn every_form_of_a_right_login() {
    let fixture = Fixture::new();
    let mut pair = fixture.pair();
    assert_eq!(same(&mut pair, &["AUTH", "default-pw"]), "+OK\r\n");
    assert_eq!(same(&mut pair, &["SET", "a", "1"]), "+OK\r\n");
    let mut pair = fixture.pair();
    assert_eq!(same(&mut pair, &["AUTH", "app", "app-pw"]), "+OK\r\n");
    assert_eq!(same(&mut pair, &["GET", "a"]), "$1\r\n1\r\n");
    // As another user, on the same connection.
    assert_eq!(same(&mut pair, &["AUTH", "default", "default-pw"]), "+OK\r\n");
    let mut pair = fixture.pair();
    let replies = pair.each_mut().map(|client| {
        client.command(&["HELLO", "3", "AUTH", "app", "app-pw", "SETNAME", "worker"])
    });
    for field in ["server", "version", "proto", "mode", "role"] {
        assert_eq!(replies[0].get(field), replies[1].get(field), "{field}");
    }
    assert_eq!(same(&mut pair, &["CLIENT", "GETNAME"]), "$6\r\nworker\r\n");
    assert_eq!(same(&mut pair, &["GET", "none"]), "_\r\n");
    // Telnet's form.
    let mut client = fixture.heatsink.client();
    client.send_raw(b"AUTH app app-pw\r\nGET a\r\n");
    assert_eq!([client.read_reply(), client.read_reply()], [Reply::ok(), Reply::bulk("1")]);
}

#[test]
fn what_is_sent_behind_a_login_waits_for_its_verdict() {
    let fixture = Fixture::new();
    let commands: [&[&str]; 14] = [
        &["SET", "k", "never"],
        &["AUTH", "app", "wrong"],
        &["SET", "k", "never"],
        &["AUTH", "app", "app-pw"],
        &["SET", "k", "v"],
        &["GET", "k"],
        &["AUTH", "nobody", "x"],
        &["INCR", "n"],
        &["MULTI"],
        &["INCR", "n"],
        &["EXEC"],
        &["RESET"],
        &["GET", "k"],
        &["AUTH", "default-pw"],
    ];
    let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
    let mut rng = 7_usize;
    for round in 0..4 {
        let [mut through, mut direct] = fixture.pair();
        direct.send_raw(&bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // In one piece first, then cut anywhere.
            rng = rng.wrapping_mul(1_103_515_245).wrapping_add(12345) % 0x8000_0000;
            let len = if round == 0 { rest.len() } else { rest.len().min(1 + rng % 40) };
            through.send_raw(&rest[..len]);
            rest = &rest[len..];
        }
        for command in commands {
            assert_eq!(through.read_reply(), direct.read_reply(), "{command:?}");
        }
    }
    // Many behind one: none may be executed if the login fails, all if it does not.
    for (password, granted) in [("app-pw", true), ("wrong", false)] {
        let mut client = fixture.heatsink.client();
        let mut burst = encode(&["AUTH", "app", password]);
        burst.extend(encode(&["INCR", "many"]).repeat(5000));
        client.send_raw(&burst);
        assert_eq!(client.read_reply() == Reply::ok(), granted);
        for n in 1..=5000 {
            match client.read_reply() {
                Reply::Integer(value) => assert!(granted && value == n, "{value}, {n}"),
                reply => assert!(!granted && reply.error().starts_with("NOAUTH"), "{reply}"),
            }
        }
    }
    assert_eq!(fixture.app().command(&["GET", "many"]), Reply::bulk("5000"));
}

#[test]
fn clients_are_listed_as_who_they_are_here() {
    let fixture = Fixture::with(|config| config.workers = 2);
    let mut watcher = fixture.app();
    let mut other = fixture.heatsink.client();
    assert_eq!(other.command(&["AUTH", "default-pw"]), Reply::ok());
    let id = other.command(&["CLIENT", "ID"]).integer();
    let mut line_of = |id: i64| {
        let list = watcher.command(&["CLIENT", "LIST"]).text();
        let start = format!("id={id} ");
        list.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
    };
    assert!(line_of(id).contains(" user=default "), "{}", line_of(id));
    assert_eq!(other.command(&["AUTH", "app", "app-pw"]), Reply::ok());
    assert!(line_of(id).contains(" user=app "), "{}", line_of(id));
    assert!(other.command(&["CLIENT", "INFO"]).text().contains(" user=app "));
    assert!(other.command(&["AUTH", "default", "wrong"]).is_error());
    assert!(line_of(id).contains(" user=app "), "{}", line_of(id));
    assert_eq!(other.command(&["RESET"]).text(), "RESET");
    assert!(other.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    assert!(line_of(id).contains(" user=default "), "after RESET: {}", line_of(id));
}

#[test]
fn two_hundred_logins_at_once_are_all_answered() {
    let fixture = Fixture::with(|config| config.workers = 4);
    let mut clients: Vec<RawClient> = (0..200).map(|_| fixture.heatsink.client()).collect();
    let wrong = |n: usize| n % 20 == 19;
    for (n, client) in clients.iter_mut().enumerate() {
        client.set_timeout(SOON);
        client.send(&["AUTH", "app", if wrong(n) { "wrong" } else { "app-pw" }]);
        client.send(&["PING"]);
    }
    for (n, client) in clients.iter_mut().enumerate() {
        let [verdict, ping] = [client.read_reply(), client.read_reply()];
        assert_eq!((verdict.is_error(), ping.is_error()), (wrong(n), wrong(n)), "{verdict} {ping}");
        assert!(!wrong(n) || verdict.error().starts_with("WRONGPASS"), "{verdict}");
    }
    assert_eq!(fixture.heatsink.proxy().client_count(), 200);
}

#[test]
fn guesses_are_slowed_down_and_known_logins_are_not() {
    let fixture = Fixture::new();
    drop(fixture.app());
    let mut client = fixture.heatsink.client();
    client.set_timeout(SOON);
    let guesses = (0..23).flat_map(|n| encode(&["AUTH", "app", &format!("guess {n}")]));
    let start = Instant::now();
    client.send_raw(&guesses.collect::<Vec<u8>>());
    for _ in 0..23 {
        assert!(client.read_reply().error().starts_with("WRONGPASS"));
    }
    // Twenty are free, and two more each second.
    assert!(start.elapsed() >= Duration::from_millis(1500), "{:?}", start.elapsed());
    // From the same address, but as somebody who was let in before.
    assert_eq!(fixture.app().command(&["PING"]).text(), "PONG");
}

#[test]
fn others_are_served_while_a_password_is_checked() {
    let fixture = Fixture::new();
    let mut served = fixture.app();
    let mut pending: Vec<RawClient> = (0..12).map(|_| fixture.heatsink.client()).collect();
    for client in &mut pending {
        client.send(&["AUTH", "app", "wrong"]);
    }
    // All on one thread and one after another: were they checked in the event loop, this
    // answer would come behind a dozen of them.
    let start = Instant::now();
    assert_eq!(served.command(&["PING"]).text(), "PONG");
    let ping = start.elapsed();
    for client in &mut pending {
        client.set_timeout(SOON);
        assert!(client.read_reply().error().starts_with("WRONGPASS"));
    }
    assert!(ping < start.elapsed() / 2, "{ping:?} of {:?}", start.elapsed());
}

#[test]
fn a_client_that_leaves_during_its_login_leaves_nothing() {
    let fixture = Fixture::new();
    let mut witness = fixture.app();
    let descriptors = open_fds(std::process::id()).expect("own descriptors");
    for n in 0..16 {
        let mut client = fixture.heatsink.client();
        client.send(&["AUTH", "app", if n % 2 == 0 { "app-pw" } else { "wrong" }]);
        client.send(&["INCR", "left"]);
        if n % 4 < 2 {
            client.shutdown_write();
        }
        drop(client);
    }
    eventually(SOON, || fixture.heatsink.proxy().client_count() == 1);
    // In its place, somebody whose login is still to come.
    let mut next = fixture.heatsink.client();
    assert!(next.command(&["GET", "a"]).error().starts_with("NOAUTH"));
    assert_eq!(witness.command(&["PING"]).text(), "PONG");
    drop(next);
    eventually(SOON, || open_fds(std::process::id()).is_ok_and(|count| count <= descriptors + 2));
}

#[test]
fn half_closed_clients_still_get_their_verdict() {
    let fixture = Fixture::new();
    let mut client = fixture.heatsink.client();
    let mut bytes = encode(&["AUTH", "app", "app-pw"]);
    bytes.extend(encode(&["ECHO", "last"]));
    client.send_raw(&bytes);
    client.shutdown_write();
    assert_eq!([client.read_reply(), client.read_reply()], [Reply::ok(), Reply::bulk("last")]);
    client.expect_closed();
}

#[test]
fn a_reloaded_file_holds_for_the_next_login() {
    let fixture = Fixture::new();
    let mut inside = fixture.app();
    let login = |user: &str, password: &str| {
        fixture.heatsink.client().command(&["AUTH", user, password]) == Reply::ok()
    };
    fixture.file.write(&[entry(("new", "new-pw", true)), entry(("app", "changed", true))].concat());
    fixture.file.users.reload().expect("a valid file");
    assert!(login("new", "new-pw") && login("app", "changed"));
    assert!(!login("app", "app-pw"), "remembered from before");
    assert!(!login("default", "default-pw"));
    assert_eq!(inside.command(&["PING"]).text(), "PONG");
    fixture.file.write("[[user]]\nname = ");
    assert!(fixture.file.users.reload().is_err());
    assert!(login("new", "new-pw"));
    // Reloaded over and over while others log in.
    fixture.file.write(&entry(("new", "new-pw", true)));
    thread::scope(|scope| {
        let logins: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..10).all(|_| login("new", "new-pw")))).collect();
        while !logins.iter().all(thread::ScopedJoinHandle::is_finished) {
            fixture.file.users.reload().expect("a valid file");
        }
        for all in logins {
            assert!(all.join().expect("no panic"));
        }
    });
}

/// A second login behind something that the server remembers of the connection.
#[test]
fn what_came_before_a_second_login_is_carried_out_and_answered() {
    let fixture = Fixture::new();
    for state in [&["CLIENT", "NO-EVICT", "ON"][..], &["CLIENT", "TRACKING", "ON"], &["WATCH", "w"]]
    {
        let pipeline: [&[&str]; 7] = [
            &["AUTH", "app", "app-pw"],
            &["INCR", "n"],
            state,
            &["INCR", "n"],
            &["AUTH", "default", "default-pw"],
            &["INCR", "n"],
            &["AUTH", "app", "wrong"],
        ];
        let sent: Vec<u8> = pipeline.iter().flat_map(|command| encode(command)).collect();
        let replies = fixture.pair().map(|mut client| {
            client.send_raw(&sent);
            pipeline.map(|_| String::from_utf8(client.read_frame()).unwrap())
        });
        assert_eq!(replies[0], replies[1], "{state:?}");
    }
    // The same behind a reply that nobody wants.
    let mut client = fixture.app();
    let pipeline: [&[&str]; 5] = [
        &["SET", "m", "1"],
        &["CLIENT", "REPLY", "SKIP"],
        &["INCR", "m"],
        &["INCR", "m"],
        &["AUTH", "app", "app-pw"],
    ];
    client.send_raw(&pipeline.iter().flat_map(|command| encode(command)).collect::<Vec<_>>());
    client.shutdown_write();
    assert_eq!(client.read_to_close(), b"+OK\r\n:3\r\n+OK\r\n");
    assert_eq!(fixture.app().command(&["GET", "m"]), Reply::bulk("3"));
}

/// A subscription to a name so long that its confirmation came in pieces was counted for ever. What
/// was sent behind it was passed on as on a connection that may only subscribe, logins too.
#[test]
fn no_login_gets_to_the_server_behind_a_subscription_to_a_long_name() {
    let fixture = Fixture::new();
    let guest = |client: &mut RawClient| {
        let who = client.command(&["ACL", "WHOAMI"]);
        assert!(who.is_error() || who.text() != "default", "{who:?}");
    };
    for length in [1_000, 20_000, 100_000, 300_000] {
        let name = "x".repeat(length);
        let mut client = fixture.app();
        for command in ["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"] {
            client.send(&[command, &name]);
            assert_eq!(client.read_reply().is_error(), length > 16_384, "{command} {length}");
        }
        for login in [&["AUTH", "default", "x"][..], &["HELLO", "3", "AUTH", "default", "x"]] {
            assert!(client.command(login).is_error(), "{login:?} {length}");
        }
        guest(&mut client);
        // Nor while it is subscribed.
        client.command(&["SUBSCRIBE", "short"]);
        assert!(client.command(&["AUTH", "default", "x"]).is_error());
        client.command(&["UNSUBSCRIBE", "short"]);
        guest(&mut client);
    }
}
