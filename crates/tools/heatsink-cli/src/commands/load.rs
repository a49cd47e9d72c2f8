//! `heatsink load`: plays a scenario against servers and proxies and prints what came of it.
//!
//! Invariant: stdout carries the results and nothing else, progress goes to stderr; replies
//! that were wrong make the run a failure.

mod progress;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use heatsink_load::report::html;
use heatsink_load::run::LoadError;
use heatsink_load::{Report, run as run_load};

use super::interrupt;
use crate::cli::load::LoadArgs;
use crate::exit::Failure;
use progress::Shown;

/// Runs it to its end or to a signal.
pub(crate) fn run(args: &LoadArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let stop = interrupt::stop_flag()?;
    let mut shown = Shown::new(&options);
    let report = run_load(&options, &stop, &mut shown).map_err(|error| match error {
        LoadError::Options(error) => Failure::Usage(error.to_string()),
        error => Failure::Runtime(error.to_string()),
    })?;
    shown.finish();
    write(&report, args)?;
    match report.mismatches() {
        0 => Ok(()),
        count => Err(Failure::Runtime(format!("{count} replies were wrong"))),
    }
}

fn write(report: &Report, args: &LoadArgs) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        let page = html::page(report)
            .map_err(|error| Failure::Runtime(format!("cannot draw the plots: {error}")))?;
        write_file(path, &page)?;
    }
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.json {
        let mut json = serde_json::to_string_pretty(report)
            .map_err(|error| Failure::Runtime(format!("cannot write JSON: {error}")))?;
        json.push('\n');
        if to_stdout {
            return print(&json);
        }
        write_file(path, &json)?;
    }
    print(&format!("{report}\n"))
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::Runtime(format!("cannot write {}: {error}", path.display())))
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}
