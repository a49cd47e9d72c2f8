//! Clients at the TLS listener: who is let in, and what they are shown.

use std::fs;
use std::time::Duration;

use heatsink_testkit::{Certificates, Process, RedisServer};

use crate::support::{Listening, pong};

const BOUND: Duration = Duration::from_secs(20);

#[test]
fn redis_cli() {
    let listening = Listening::new();
    let run = |args: &[&str]| {
        let mut cli = Process::builder("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &listening.addr().port().to_string(), "--tls"])
            .arg("--cacert")
            .arg(listening.certificates.ca())
            .args(args)
            .spawn();
        cli.wait_exit(BOUND);
        cli.output()
    };
    assert_eq!(run(&["SET", "k", "v"]).trim(), "OK");
    assert_eq!(run(&["-3", "TYPE", "k"]).trim(), "string");
    assert_eq!(run(&["GET", "k"]).trim(), "v");
    assert_eq!(listening.server.client().command(&["GET", "k"]).text(), "v");
}

#[test]
fn certificates_of_clients() {
    let cases = [
        // Asked for, demanded; let in: nobody, one of ours, a stranger.
        (false, false, [true, true, true]),
        (true, false, [true, true, false]),
        (true, true, [false, true, false]),
    ];
    for (asked, demanded, let_in) in cases {
        let certificates = Certificates::generate();
        let ca = certificates.ca().to_owned();
        let listening = Listening::with(
            certificates,
            RedisServer::start(),
            |files| {
                files.client_ca = asked.then_some(ca);
                files.require_client_certificate = demanded;
            },
            |_| {},
        );
        let certificates = &listening.certificates;
        let shown = [None, Some(certificates.client()), Some(certificates.other_client())];
        let answers = shown.map(|identity| listening.try_ping(identity));
        let pongs = answers.each_ref().map(|it| it.as_ref().is_ok_and(|reply| *reply == pong()));
        assert_eq!(pongs, let_in, "asked {asked}, demanded {demanded}: {answers:?}");
        if demanded {
            let reason = answers[0].as_ref().expect_err("refused").to_string();
            assert!(reason.contains("CertificateRequired"), "{reason}");
        }
        // Whoever is refused leaves nothing behind.
        heatsink_testkit::eventually(BOUND, || listening.heatsink.proxy().client_count() == 0);
        assert_eq!(listening.heatsink.client().command(&["PING"]), pong());
    }
}

#[test]
fn renewed_certificates() {
    let listening = Listening::new();
    let identity = listening.certificates.server();
    let mut clients = Vec::new();
    for n in 0..5 {
        let shown = identity.certificate_der();
        let client = listening.client();
        assert_eq!(client.peer_certificate(), Some(shown.clone()), "renewed {n} times");
        clients.push(client);
        listening.certificates.renew_server();
        assert_eq!(listening.client().peer_certificate(), Some(shown), "not loaded yet");
        listening.tls.reload().expect("valid files");
        for client in &mut clients {
            assert_eq!(client.command(&["PING"]), pong());
        }
    }
    // Files that do not fit together change nothing.
    let before = listening.client().peer_certificate();
    fs::copy(listening.certificates.client().key(), identity.key()).expect("a copy");
    assert!(listening.tls.reload().is_err());
    assert_eq!(listening.client().peer_certificate(), before);
    for client in &mut clients {
        assert_eq!(client.command(&["PING"]), pong());
    }
}
