//! Running the binary in a directory of its own, without the variables of the surroundings.

use std::path::Path;
use std::time::Duration;

use heatsink_testkit::{Process, ProcessBuilder};
use tempfile::TempDir;

/// Far more than anything here takes, also on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Tests run side by side, each process with an admin address of its own.
const OWN_ADMIN: &[&str] = &["--admin", "127.0.0.1:0"];

/// A directory, perhaps with a configuration file in it; the binary runs there.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// A directory without a file.
    pub(crate) fn empty() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A directory with this text in `heatsink.toml`.
    pub(crate) fn with_file(text: &str) -> Self {
        let place = Self::empty();
        std::fs::write(place.path().join("heatsink.toml"), text).expect("a file is written");
        place
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// `heatsink ARGS`, in this directory.
    pub(crate) fn heatsink(&self, args: &[&str]) -> ProcessBuilder {
        let binary = Process::builder(env!("CARGO_BIN_EXE_heatsink"));
        let surroundings =
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HEATSINK_"));
        surroundings
            .fold(binary, |binary, (name, _)| binary.env(name, ""))
            .directory(self.path())
            .args(args)
            .args(if args.first() == Some(&"serve") { OWN_ADMIN } else { &[] })
    }

    /// Replaces `name` in this directory, as editors do: written beside, then renamed.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let beside = self.path().join("beside");
        std::fs::write(&beside, text).expect("a file is written");
        std::fs::rename(beside, self.path().join(name)).expect("a file is renamed");
    }

    /// Runs `heatsink ARGS` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.heatsink(args).spawn())
    }
}

/// Starts `builder`, which is a `serve`, and waits for the ready line.
pub(crate) fn start(builder: ProcessBuilder) -> (Process, String) {
    let process = builder.spawn();
    let ready = process.wait_for_line(" ready: ", PATIENCE);
    (process, ready)
}

/// Where clients connect, from the ready line.
pub(crate) fn address(ready: &str) -> &str {
    let (_, rest) = ready.split_once("redis://").expect("an address");
    rest.split_once(' ').expect("an address").0
}

/// What a finished run left.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Waits for the end of `process`.
    pub(crate) fn of(process: &mut Process) -> Self {
        let code = process.wait_exit(PATIENCE).code();
        Self { code, stdout: process.stdout(), stderr: process.stderr() }
    }
}
