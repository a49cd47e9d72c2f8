//! `heatsink hash-password`, and `auth = "service"` with what it printed.

use heatsink_testkit::{Process, RawClient, RedisServer, Reply, eventually};

use crate::support::{Finished, PATIENCE, Place, address, start};

/// `printf TEXT | heatsink hash-password`.
fn hash_password(text: &str) -> Finished {
    let pipe = ["-c", "printf \"$1\" | \"$2\" hash-password", "sh", text];
    let heatsink = env!("CARGO_BIN_EXE_heatsink");
    Finished::of(&mut Process::builder("sh").args(pipe).arg(heatsink).spawn())
}

fn hash_line(password: &str) -> String {
    let run = hash_password(password);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with("hash = \"$argon2id$v=19$"), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 1, "{run:?}");
    run.stdout
}

fn user(name: &str, password: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\n{}", hash_line(password))
}

#[test]
fn an_empty_password_is_refused() {
    for text in ["", "\\n"] {
        let run = hash_password(text);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{run:?}");
        assert_eq!(run.stderr, "heatsink: no password on stdin\n");
    }
}

#[test]
fn clients_are_checked_against_the_users_file_and_its_changes() {
    let server = RedisServer::builder().line("requirepass upstream-secret").start();
    let url = format!("redis://:upstream-secret@{}", server.addr());
    let place = Place::with_file("auth = \"service\"\nusers = \"users.toml\"\nlog = \"info\"\n");
    // The newline at the end is not part of the password.
    place.replace("users.toml", &user("app", "first\\n"));
    let args =
        ["serve", "--config", "heatsink.toml", "--listen", "127.0.0.1:0", "--upstream", &url];
    let (process, ready) = start(place.heatsink(&args));
    let connect = || RawClient::connect(address(&ready));
    let mut client = connect();
    assert!(client.command(&["GET", "k"]).error().starts_with("NOAUTH"), "not checked");
    assert!(client.command(&["AUTH", "app", "second"]).error().starts_with("WRONGPASS"));
    assert!(client.command(&["AUTH", "app", "upstream-secret"]).error().starts_with("WRONGPASS"));
    assert_eq!(client.command(&["AUTH", "app", "first"]), Reply::ok());
    assert_eq!(client.command(&["SET", "k", "v"]), Reply::ok());

    place.replace("users.toml", "[[user]]\nname = \"app\"\nhash = \"plain\"\n");
    let line = process.wait_for_line("the old one stays: ", PATIENCE);
    assert!(line.contains("heatsink.toml:2: users: users.toml:3: not a hash"), "{line}");
    assert_eq!(connect().command(&["AUTH", "app", "first"]), Reply::ok());

    place.replace("users.toml", &user("app", "second"));
    process.wait_for_line("configuration reloaded: users", PATIENCE);
    eventually(PATIENCE, || connect().command(&["AUTH", "app", "second"]) == Reply::ok());
    assert!(connect().command(&["AUTH", "app", "first"]).error().starts_with("WRONGPASS"));
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("v"));
}

#[test]
fn a_users_file_that_cannot_be_used_is_named() {
    let place = Place::with_file("auth = \"service\"\nusers = \"users.toml\"\n");
    for command in [&["serve", "--config", "heatsink.toml"][..], &["check", "heatsink.toml"]] {
        let missing = place.run(command);
        assert_eq!((missing.code, missing.stdout.as_str()), (Some(1), ""), "{missing:?}");
        let message = "heatsink: heatsink.toml:2: users: users.toml: no such file\n";
        assert_eq!(missing.stderr, message);
    }
    place.replace("users.toml", "[[user]]\nname = \"a\"\nhash = \"hunter2\"\n");
    for command in [&["serve", "--config", "heatsink.toml"][..], &["check", "heatsink.toml"]] {
        let wrong = place.run(command);
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(3), ""), "{wrong:?}");
        assert!(wrong.stderr.starts_with("heatsink.toml:2: users: users.toml:3: "), "{wrong:?}");
        assert!(!wrong.stderr.contains("hunter2"), "{wrong:?}");
    }
}
