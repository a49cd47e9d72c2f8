//! Heatsink as a peer: the binary of this checkout, or one that was named.
//!
//! Called by: `proxy` and `cluster`.
//! Bound: one build, then 10 s until it serves.
//! Invariant: it runs with one worker, so that CPU per request is that of one event loop.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use heatsink_testkit::{Process, free_port};

use super::{Backend, Peer};
use crate::benchmark::{Access, Target};

/// Which Heatsink to start.
pub(crate) struct HeatsinkChoice {
    pub(crate) program: Option<PathBuf>,
    pub(crate) args: Vec<String>,
}

impl HeatsinkChoice {
    /// Starts it before `redis`.
    pub(crate) fn start(&self, name: &str, redis: Backend, access: Access) -> Result<Peer, String> {
        let left_out = |error: &str| format!("{name} is left out: {error}");
        let program = match &self.program {
            Some(program) => program.clone(),
            None => build().map_err(|error| left_out(&error))?,
        };
        let upstream = match &redis {
            Backend::Unknown => return Err(left_out("nothing is known to stand before")),
            Backend::Server(server) => server.url(),
            Backend::Cluster(cluster) => cluster.seed_url(),
        };
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = Process::builder(&program)
            .args(["serve", "--listen", &addr.to_string(), "--upstream", &upstream])
            .args(["--workers", "1"])
            .args(&self.args)
            .try_spawn()
            .map_err(|error| left_out(&format!("{}: {error}", program.display())))?;
        Peer::proxy(name, Target { addr, access }, process, redis, None)
    }
}

/// The release binary beside this one, built first so that it is never an old one.
fn build() -> Result<PathBuf, String> {
    // Set by `cargo run`; a copied binary measures what lies beside it.
    if let (Some(cargo), Some(directory)) =
        (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR"))
    {
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--quiet", "--package", "heatsink-cli"]);
        if !build.current_dir(directory).status().is_ok_and(|status| status.success()) {
            return Err("it does not build".to_owned());
        }
    }
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let mut places = own.ancestors().skip(1).take(2);
    let (beside, above) = (places.next(), places.next());
    let candidates =
        [above.map(|dir| dir.join("release/heatsink")), beside.map(|dir| dir.join("heatsink"))];
    candidates
        .into_iter()
        .flatten()
        .find(|file| file.is_file())
        .ok_or_else(|| "there is no release build; make one with: cargo build --release".to_owned())
}
