//! The program that is measured.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The binary beside the benchmark, built first so that it is never an old one: a build of the
/// benchmark alone does not make it. Where the whole workspace is tested, it has just been built.
pub(crate) static HEATSINK: LazyLock<PathBuf> = LazyLock::new(|| {
    let beside = Path::new(env!("CARGO_BIN_EXE_heatsink-bench")).with_file_name("heatsink");
    let is_release = beside.parent().is_some_and(|directory| directory.ends_with("release"));
    if std::env::var_os("HEATSINK_IS_BUILT").is_some() && beside.exists() {
        return beside;
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--bin", "heatsink"]);
    build.args(is_release.then_some("--release"));
    assert!(build.status().expect("cargo starts").success());
    beside
});
