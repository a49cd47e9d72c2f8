//! Unmodified clients of other languages, first on a plain server or cluster, then through
//! Heatsink.
//!
//! The scripts are in `tests/clients`; `./test` installs what they need and says where it is.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use heatsink_conformance::{ClusterRig, Heatsink, Rig};
use heatsink_proxy::config::{Listen, Target, Upstream};
use heatsink_testkit::{Certificates, RedisCluster, RedisServer, free_port};
use heatsink_tls::{ServerFiles, ServerTls};
use heatsink_upstream::address::Endpoint;

const WORKERS: usize = 2;
const BOUND_SECONDS: &str = "300";

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/clients").join(path)
}

/// What `./test` puts into the environment.
fn installed(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run ./test, which installs the clients and sets it")
    })
}

/// A program that is ended from outside when it hangs.
fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([BOUND_SECONDS, program]);
    command
}

fn python(path: &str) -> Command {
    let mut command = bounded(&installed("HEATSINK_TEST_PYTHON"));
    command.arg("-B").arg(script(path));
    command
}

fn node(path: &str) -> Command {
    let modules = installed("HEATSINK_TEST_NODE_PATH");
    let mut command = bounded("node");
    command.arg(script(path)).env("NODE_PATH", modules);
    command
}

fn passes(mut client: Command, addr: SocketAddr, whose: &str) {
    let output = client
        .args([addr.ip().to_string(), addr.port().to_string()])
        .output()
        .unwrap_or_else(|error| panic!("cannot run {client:?}: {error}; run ./test"));
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && text.contains(" passed, 0 failed"),
        "{whose}: {client:?}: {}\n{text}",
        output.status
    );
}

/// The plain server comes first: what fails there is the script's fault, not Heatsink's.
fn passes_on_both(client: impl Fn() -> Command) {
    let plain = RedisServer::start();
    passes(client(), plain.addr(), "plain server");
    drop(plain);
    let rig = Rig::new(WORKERS);
    passes(client(), rig.addr(), "through Heatsink");
}

/// A client of clusters: on a plain one, and on one that Heatsink makes look like one node, at
/// the address that the client connected to or at one that was set.
fn passes_on_both_clusters(client: impl Fn() -> Command) {
    let plain = RedisCluster::start();
    passes(client(), plain.node(0).addr(), "plain cluster");
    drop(plain);
    let rig = ClusterRig::new(WORKERS);
    passes(client(), rig.heatsink.addr(), "through Heatsink");
    let port = free_port();
    let announcing = Heatsink::before_url(&rig.cluster.seed_url(), |config| {
        config.listen = Listen::Address((Ipv4Addr::LOCALHOST, port).into());
        config.announce = Some(("127.0.0.1".to_owned(), port));
        config.workers = WORKERS;
    });
    passes(client(), announcing.addr(), "through Heatsink at a set address");
}

/// A client that knows nothing of clusters: on one server, and on a cluster through Heatsink.
fn passes_before_a_cluster(client: impl Fn() -> Command) {
    let plain = RedisServer::start();
    passes(client(), plain.addr(), "plain server");
    drop(plain);
    let rig = ClusterRig::new(WORKERS);
    passes(client(), rig.heatsink.addr(), "through Heatsink");
}

#[test]
fn redis_py() {
    passes_on_both(|| python("python/sync_client.py"));
}

#[test]
fn redis_py_asyncio() {
    passes_on_both(|| python("python/asyncio_client.py"));
}

#[test]
fn node_redis() {
    passes_on_both(|| node("node/node_redis.js"));
}

#[test]
fn ioredis() {
    passes_on_both(|| node("node/ioredis.js"));
}

#[test]
fn redis_py_over_tls() {
    let certificates = Certificates::generate();
    let client = || {
        let mut client = python("python/sync_client.py");
        client.env("HEATSINK_TEST_CA", certificates.ca());
        // It reads all that the machine trusts for each connection, which takes longer than the
        // rest. Here that is one authority, and not ours.
        client.env("SSL_CERT_FILE", certificates.other_ca());
        client
    };
    let plain = RedisServer::builder().tls(&certificates).start();
    passes(client(), plain.addr(), "plain server");
    drop(plain);
    let server = RedisServer::start();
    let tls = ServerTls::load(ServerFiles {
        certificate: certificates.server().certificate().into(),
        key: certificates.server().key().into(),
        client_ca: None,
        require_client_certificate: false,
    });
    let target = Target::Server(Endpoint::tcp("127.0.0.1", server.port()));
    let heatsink = Heatsink::before(Upstream::new(target), |config| {
        let listen = Listen::Address((Ipv4Addr::LOCALHOST, 0).into());
        config.listen_tls = Some((listen, tls.expect("valid files")));
        config.workers = WORKERS;
    });
    let addr = heatsink.proxy().local_tls_addr().expect("a TLS listener");
    passes(client(), addr, "through Heatsink");
}

#[test]
fn redis_py_cluster() {
    passes_on_both_clusters(|| python("python/cluster_client.py"));
}

#[test]
fn ioredis_cluster() {
    passes_on_both_clusters(|| node("node/ioredis_cluster.js"));
}

#[test]
fn redis_py_before_a_cluster() {
    passes_before_a_cluster(|| python("python/one_server_client.py"));
}

#[test]
fn node_clients_before_a_cluster() {
    passes_before_a_cluster(|| node("node/one_server.js"));
}
