//! The admin API of the binary: who is answered, and what the log says of operators.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use heatsink_testkit::Process;

use crate::support::{Finished, PATIENCE, Place, start};

/// A `serve` of its own store, with these further arguments, and its admin address.
fn serve(place: &Place, args: &[&str]) -> (Process, SocketAddr) {
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--upstream", "embedded://"];
    let (process, ready) = start(place.heatsink(&fixed).args(args));
    let (_, admin) = ready.split_once("admin http://").expect("an admin address");
    (process, admin.trim_end_matches(')').parse().expect("an address"))
}

/// The status of an answer that comes within `patience`.
fn ask(admin: SocketAddr, request: &str, body: &str, patience: Duration) -> u16 {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    stream.set_read_timeout(Some(patience)).expect("not zero");
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\
         Authorization: Bearer s3cret\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered in time");
    answer.split(' ').nth(1).expect("a status").parse().expect("a number")
}

#[test]
fn health_is_answered_beside_hundreds_of_silent_connections() {
    let place = Place::empty();
    let (_process, admin) = serve(&place, &[]);
    let connect = |_| TcpStream::connect(admin).expect("it listens");
    let _silent: Vec<TcpStream> = (0..600).map(connect).collect();
    // Less than the time after which a silent connection is closed in any case.
    let patience = Duration::from_secs(8);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(ask(admin, &format!("GET {path}"), "", patience), 200, "{path}");
    }
}

/// What is logged of a promotion, a removal and one that fails, of the key `secret:key`; the
/// removal comes when `line` is logged.
fn logged(args: &[&str], line: &str) -> String {
    let place = Place::empty();
    let (mut process, admin) = serve(&place, args);
    let promotion = r#"{"mitigation_type":"local_cache","ttl_seconds":60}"#;
    let promote = "POST /hotkeys/secret:key/promote";
    assert_eq!(ask(admin, promote, promotion, PATIENCE), 200);
    process.wait_for_line(line, PATIENCE);
    assert_eq!(ask(admin, "DELETE /hotkeys/secret:key", "", PATIENCE), 200);
    assert_eq!(ask(admin, "DELETE /hotkeys/secret:key", "", PATIENCE), 404);
    process.terminate();
    Finished::of(&mut process).stderr
}

#[test]
fn what_operators_do_is_logged_with_the_key_and_who_asked() {
    let log = logged(&[], "by hand: promoted");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("by hand: ")).collect();
    let [promoted, demoted, refused] = lines[..] else { panic!("{log}") };
    assert!(promoted.contains("promoted to local_cache for 60 s: done"), "{promoted}");
    assert!(demoted.contains("demoted: done"), "{demoted}");
    assert!(refused.contains("demoted: refused") && refused.contains("status=404"), "{refused}");
    for line in lines {
        for part in ["WARN", "key=\"secret:key\"", "address=127.0.0.1:", "token=false"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}

#[test]
fn keys_are_hidden_in_the_log_if_they_are_to_be() {
    let place = Place::empty();
    let token = place.path().join("token");
    std::fs::write(&token, "s3cret\n").expect("written");
    let token = token.to_str().expect("text");
    // Everything that is ever logged.
    let args = ["--privacy", "hash", "--log", "debug", "--admin-token-file", token];
    let log = logged(&args, "a hot key:");
    assert!(!log.contains("secret:key") && !log.contains("s3cret"), "{log}");
    // printf %s secret:key | sha256sum | cut -c1-16
    let hash = "key=\"hash:919ef5238d0e9ecd\"";
    let by_hand = |line: &&str| line.contains("by hand: ") && line.contains("token=true");
    assert_eq!(log.lines().filter(by_hand).filter(|line| line.contains(hash)).count(), 3, "{log}");
    assert!(log.lines().any(|line| line.contains("a hot key:") && line.contains(hash)), "{log}");
}
