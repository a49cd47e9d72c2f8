//! Configuration in two stages: what was typed, and what it means.
//!
//! ```text
//! flags ------- cli ---------+
//! HEATSINK_... - environment +-- RawConfig -- merge --> Settings -- validate --> Config
//! FILE -------- toml_file ---+                             |                        |
//! keys (the table) ----------+                             +--> `heatsink check`    +--> Files
//! ```
//!
//! Called by: the commands. A flag wins over a variable, a variable over the file, the file
//! over the default.
//! Invariant: all mistakes of all sources are found in one run, even in values that another
//! source overrides.

mod contradictions;
mod environment;
mod files;
mod keys;
mod kind;
mod memory;
mod merge;
mod nearest;
mod raw;
mod secret;
mod size;
mod sources;
mod toml_file;
mod typed;
mod validate;
mod value;

pub(crate) use keys::{Default, Effect, KEYS, SECTIONS};
pub(crate) use merge::{Setting, Settings, merge};
pub(crate) use raw::{Mistake, Place, RawConfig, RawSetting, RawValue};
pub(crate) use sources::{Loaded, Sources};
pub(crate) use validate::Config;

use std::path::Path;

use crate::exit::Failure;

/// What the file at `path` says.
pub(crate) fn read_file(path: &Path) -> Result<RawConfig, Failure> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::Runtime(format!("cannot read {name}: {error}")))?;
    Ok(toml_file::read(&name, &bytes))
}
