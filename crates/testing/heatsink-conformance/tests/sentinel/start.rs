//! How Heatsink finds the primary: passwords, TLS, and Sentinels that are not there yet.

use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Upstream;
use heatsink_testkit::{Certificates, RawClient, Reply, SentinelRig, eventually};
use heatsink_tls::{ClientFiles, ClientTls};

use crate::turns::my_turn;

const SOON: Duration = Duration::from_secs(10);

fn is_served(client: &mut RawClient) -> bool {
    client.command(&["SET", "k", "v"]) == Reply::ok()
}

#[test]
fn passwords_of_servers_and_sentinels() {
    let _turn = my_turn();
    let mut rig =
        SentinelRig::builder().password("server-pw").sentinel_password("sentinel-pw").start();
    let with = |password: &str| {
        let url = rig.url().replace("://", "://:server-pw@");
        format!("{url}?sentinel_password={password}")
    };
    let heatsink = Heatsink::before_url(&with("sentinel-pw"), |_| {});
    let mut client = heatsink.client();
    eventually(SOON, || is_served(&mut client));
    // A wrong one: the primary is never found, and clients are told so in a line.
    let lost = Heatsink::before_url(&with("wrong"), |_| {});
    let error = lost.client().command(&["GET", "k"]).error();
    assert!(error.starts_with("ERR heatsink: upstream primary kit unavailable: "), "{error}");
    assert!(!error.contains("wrong") && !error.contains("server-pw"), "{error}");
    // The new primary wants the same passwords.
    let new = rig.hand_over();
    let port = rig.servers()[new].port();
    eventually(SOON, || {
        let info = client.command(&["INFO", "server"]);
        !info.is_error() && info.text().contains(&format!("tcp_port:{port}\r\n"))
    });
    eventually(SOON, || is_served(&mut client));
}

#[test]
fn sentinels_that_come_later() {
    let _turn = my_turn();
    let mut rig = SentinelRig::start();
    for index in 0..3 {
        rig.kill_sentinel(index);
    }
    let heatsink = Heatsink::before_url(&rig.url(), |config| config.workers = 2);
    let mut clients: Vec<_> = (0..4).map(|_| heatsink.client()).collect();
    for client in &mut clients {
        for command in [&["GET", "k"][..], &["BLPOP", "l", "0"], &["SELECT", "1"]] {
            let error = client.command(command).error();
            let start = "ERR heatsink: upstream primary kit unavailable: ";
            assert!(error.starts_with(start), "{error}");
        }
    }
    // One is enough to be told, and the last of the list at that.
    rig.restart_sentinel(2);
    for client in &mut clients {
        eventually(SOON, || is_served(client));
    }
    // Without any, what is known goes on to hold.
    rig.kill_sentinel(2);
    for client in &mut clients {
        assert!(is_served(client));
    }
}

#[test]
fn over_tls() {
    let _turn = my_turn();
    let certificates = Certificates::generate();
    let mut rig = SentinelRig::builder().tls(&certificates).start();
    let files = ClientFiles { ca: Some(certificates.ca().into()), ..ClientFiles::default() };
    let tls = ClientTls::load(files).expect("valid files");
    let url = rig.url().parse().expect("a URL");
    let upstream = Upstream::from_url(url, Some(tls)).expect("not the embedded store");
    let heatsink = Heatsink::before(upstream, |_| {});
    let mut client = heatsink.client();
    eventually(SOON, || is_served(&mut client));
    let old = rig.primary_index();
    let new = rig.hand_over();
    assert_ne!(old, new);
    eventually(SOON, || is_served(&mut client) && rig.servers()[new].calls("set") > 0);
}
