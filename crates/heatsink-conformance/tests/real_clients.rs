//! Unmodified clients of other languages, first on a plain server, then through Heatsink.
//!
//! The scripts are in `tests/clients`; `./test` installs what they need and says where it is.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use heatsink_conformance::Rig;
use heatsink_testkit::RedisServer;

const WORKERS: usize = 2;
const BOUND_SECONDS: &str = "300";

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients").join(path)
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
