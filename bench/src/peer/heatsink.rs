//! Heatsink as a peer: the binary of this checkout, or one that was named.
//!
//! Called by: `proxy` and `cluster`; `fleet`, which starts several that know each other.
//! Bound: one build, then 10 s until it serves.
//! Invariant: it runs with one worker, so that CPU per request is that of one event loop, and
//! by itself: no admin API and no store shared with others, unless the arguments ask for them.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use heatsink_testkit::{Process, free_port, poll_until};

use super::{Backend, Peer};
use crate::admin;
use crate::benchmark::{Access, Target};

const PATIENCE: Duration = Duration::from_secs(10);
/// What is set unless the arguments set it.
const ALONE: [(&str, &str); 2] = [("--admin", ""), ("--coordination-url", "embedded://")];

/// Which Heatsink to start.
pub(crate) struct HeatsinkChoice {
    pub(crate) program: Option<PathBuf>,
    pub(crate) args: Vec<String>,
}

impl HeatsinkChoice {
    /// The binary, built first if it is that of this checkout.
    pub(crate) fn program(&self) -> Result<PathBuf, String> {
        self.program.as_ref().map_or_else(build, |program| Ok(program.clone()))
    }

    /// Starts it before `redis`.
    pub(crate) fn start(&self, name: &str, redis: Backend, access: Access) -> Result<Peer, String> {
        let left_out = |error: &str| format!("{name} is left out: {error}");
        let program = self.program().map_err(|error| left_out(&error))?;
        let upstream = match &redis {
            Backend::Unknown => return Err(left_out("nothing is known to stand before")),
            Backend::Server(server) => server.url(),
            Backend::Cluster(cluster) => cluster.seed_url(),
        };
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = Process::builder(&program)
            .args(["serve", "--listen", &addr.to_string(), "--upstream", &upstream])
            .args(["--workers", "1"])
            .args(self.alone())
            .args(&self.args)
            .try_spawn()
            .map_err(|error| left_out(&format!("{}: {error}", program.display())))?;
        Peer::proxy(name, Target { addr, access }, process, redis, None)
    }

    /// Starts it before `redis`, with an admin API and these further arguments; returns the
    /// address of the API, too, once it says that all is well.
    pub(crate) fn start_with_admin(
        &self,
        name: &str,
        redis: Backend,
        args: &[&str],
    ) -> Result<(Peer, SocketAddr), String> {
        let api = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let own = ["--admin".to_owned(), api.to_string()];
        let given = args.iter().map(ToString::to_string);
        let args = own.into_iter().chain(given).chain(self.args.iter().cloned()).collect();
        let choice = Self { program: self.program.clone(), args };
        let peer = choice.start(name, redis, Access::Server)?;
        match poll_until(PATIENCE, || admin::is_well(api)) {
            Some(()) => Ok((peer, api)),
            None => Err(format!("{name}: it is not well after {PATIENCE:?}")),
        }
    }

    /// Those of [`ALONE`] that the arguments say nothing about.
    fn alone(&self) -> impl Iterator<Item = &'static str> {
        let is_given = |name: &str| {
            let given = |arg: &String| arg.split('=').next() == Some(name);
            self.args.iter().any(given)
        };
        ALONE
            .into_iter()
            .filter(move |(name, _)| !is_given(name))
            .flat_map(|(name, value)| [name, value])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_alone_unless_told_otherwise() {
        let alone = |args: &[&str]| {
            let args = args.iter().map(ToString::to_string).collect();
            HeatsinkChoice { program: None, args }.alone().collect::<Vec<_>>()
        };
        assert_eq!(alone(&["--mode", "off"]), ["--admin", "", "--coordination-url", "embedded://"]);
        assert_eq!(alone(&["--admin", "x"]), ["--coordination-url", "embedded://"]);
        assert!(alone(&["--coordination-url=y", "--admin=x"]).is_empty());
    }
}
