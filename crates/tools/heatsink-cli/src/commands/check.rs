//! `heatsink check FILE`: is the file valid, and what does it amount to?
//!
//! Reads the file and the files it names, not the environment, so that the answer is about the
//! file. After the first line the output is TOML again, with the origin of each value as a comment.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use crate::config::{self, Default, Loaded, Place, Setting, Settings};
use crate::exit::Failure;

/// Validates `file` and prints what is in effect.
pub(crate) fn run(file: &Path) -> Result<(), Failure> {
    let raw = config::read_file(file)?;
    let loaded = Loaded::new(vec![raw])?;
    let report = format!("{}: ok\n{}", file.display(), report(&loaded.settings));
    io::stdout()
        .write_all(report.as_bytes())
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}

fn report(settings: &Settings) -> String {
    let mut report = String::new();
    for setting in &settings.all {
        line(&mut report, setting.key.path, setting);
    }
    for policy in &settings.policies {
        report.push_str("[[policy]]\n");
        for setting in policy {
            line(&mut report, setting.key.leaf(), setting);
        }
    }
    report
}

fn line(report: &mut String, name: &str, setting: &Setting) {
    let origin = match (&setting.place, setting.key.default) {
        (Place::File { line, .. }, _) => format!("file, line {line}"),
        (Place::Default, Default::SameAs(path)) => format!("default, that of {path}"),
        (place, _) => place.to_string(),
    };
    let assignment = format!("{name} = {}", setting.value);
    // Writing to a `String` cannot fail.
    let _ = writeln!(report, "{assignment:<42} # {origin}");
}
