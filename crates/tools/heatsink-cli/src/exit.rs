//! How a run ends: the one place that knows the exit codes and prints the last words.
//!
//! Called by: `main`, with the outcome of a command; `cli`, for the text in `--help`.
//! A usage error that clap can tell ends there, with the same code as the others (2).

use std::fmt;
use std::process::ExitCode;

use crate::config::Mistake;
use crate::logging;

/// Shown below the help of the binary and of each command.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done, stopped by SIGTERM or SIGINT, or handed over to another process
  1  failure at run time: address in use, file unreadable, second signal, wrong
     replies, claims of the demo that do not hold
  2  wrong usage: unknown command or flag, a cost that was not accepted
  3  invalid configuration: file, environment, value of a flag, certificate, users file";

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration is fine, the world is not.
    Runtime(String),
    /// What was typed makes no sense, or wants a word more.
    Usage(String),
    /// Everything that is wrong with the configuration, in the order to be shown.
    Invalid(Vec<Mistake>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(reason) | Self::Usage(reason) => f.write_str(reason),
            Self::Invalid(mistakes) => {
                let texts: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("; "))
            }
        }
    }
}

/// Prints why the command failed, if it did, one line a reason, and gives the exit code.
pub(crate) fn finish(outcome: Result<(), Failure>) -> ExitCode {
    let (lines, code) = match outcome {
        Ok(()) => (Vec::new(), 0),
        Err(Failure::Runtime(reason)) => (vec![format!("heatsink: {reason}")], 1),
        Err(Failure::Usage(reason)) => (vec![format!("heatsink: {reason}")], 2),
        Err(Failure::Invalid(mistakes)) => (mistakes.iter().map(ToString::to_string).collect(), 3),
    };
    logging::print_last(&lines);
    ExitCode::from(code)
}
