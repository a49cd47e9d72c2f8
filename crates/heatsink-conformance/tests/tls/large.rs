//! A large request, alone on its connection, to a server that is slow to take it.

use std::io::Write;
use std::thread;
use std::time::Duration;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Upstream;
use heatsink_testkit::{
    Certificates, ClientAuth, RawClient, RedisCluster, RedisServer, Reply, encode,
};
use heatsink_tls::ClientTls;

use crate::support::{noise, trusting, upstream};

const MIB: u32 = 1 << 20;
/// Some fit into the buffers of the sockets, some just so, some not.
const SIZES_BYTES: [u32; 7] = [MIB / 2, 2 * MIB, 5 * MIB / 2, 3 * MIB, 4 * MIB, 6 * MIB, 12 * MIB];
/// For everything to be taken that will be.
const MOMENT: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Sends `SET` and ends the server's pause when nothing more is taken of it.
fn set_at_rest(client: &mut RawClient, key: &str, value: &[u8], resume: impl FnOnce()) -> Reply {
    let bytes = encode(&[&b"SET"[..], key.as_bytes(), value]);
    let mut sending = client.stream().try_clone().expect("a second handle");
    thread::scope(|scope| {
        scope.spawn(move || sending.write_all(&bytes).expect("all is taken in the end"));
        thread::sleep(MOMENT);
        resume();
        client.read_reply()
    })
}

/// Writes a value of each size, and reads it back.
#[track_caller]
fn check_sizes(heatsink: &Heatsink, key: &str, mut set_paused: impl FnMut(bool)) {
    for bytes in SIZES_BYTES {
        let value = noise(bytes);
        for pauses in [false, true] {
            let mut client = heatsink.client();
            client.set_timeout(LONGEST);
            assert_eq!(client.command(&["SET", key, ""]), Reply::ok());
            set_paused(pauses);
            let reply = set_at_rest(&mut client, key, &value, || set_paused(false));
            assert_eq!(reply, Reply::ok(), "{bytes} bytes, paused: {pauses}");
        }
        let got = heatsink.client().command(&["GET", key]);
        assert!(got == Reply::bulk(&value), "{bytes} bytes: another value");
    }
}

#[test]
fn to_a_server() {
    let certificates = Certificates::generate();
    let builder = RedisServer::builder().tls(&certificates);
    let mut server = builder.tls_auth_clients(ClientAuth::No).start();
    let upstream = upstream(server.tls_port(), trusting(certificates.ca()));
    let heatsink = Heatsink::before(upstream, |_| {});
    check_sizes(&heatsink, "large", |paused| match paused {
        true => server.pause(),
        false => server.resume(),
    });
}

#[test]
fn to_a_node_of_a_cluster() {
    let certificates = Certificates::generate();
    let builder = RedisCluster::builder().replicas_per_primary(0).tls(&certificates);
    let mut cluster = builder.tls_auth_clients(ClientAuth::No).start();
    let tls = ClientTls::load(trusting(certificates.ca())).expect("valid files");
    let url = cluster.seed_url().parse().expect("a URL");
    let upstream = Upstream::from_url(url, Some(tls)).expect("not the embedded store");
    let heatsink = Heatsink::before(upstream, |_| {});
    let key = cluster.key_on(1, "large");
    check_sizes(&heatsink, &key, |paused| match paused {
        true => cluster.pause(1),
        false => cluster.resume(1),
    });
}
