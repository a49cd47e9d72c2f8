//! `heatsink completions SHELL`: what a shell needs to complete commands and flags.

use std::io::{self, Write as _};

use clap_complete::Shell;

use crate::cli;
use crate::exit::Failure;

/// Prints the script for `shell`.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "heatsink", &mut script);
    io::stdout()
        .write_all(&script)
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}
