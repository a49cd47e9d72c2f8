//! Where settings come from, kept so that they can be read again.
//!
//! Called by: `serve` at start and on reload.
//! Invariant: flags and variables are those of the start of the process; only the file is read
//! anew, so that their precedence over it stays.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::files::Files;
use super::raw::RawConfig;
use super::validate::Config;
use super::{Settings, merge};
use crate::exit::Failure;

/// Flags, environment and file.
#[derive(Debug)]
pub(crate) struct Sources {
    flags: RawConfig,
    environment: Environment,
    file: Option<PathBuf>,
}

/// A configuration that was read and found valid, files included.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Every key with its origin.
    pub(crate) settings: Settings,
    /// What they mean.
    pub(crate) config: Config,
    /// What they name.
    pub(crate) files: Files,
}

impl Sources {
    /// Of this process: `flags`, its environment, and `file` or that of the environment.
    pub(crate) fn new(flags: RawConfig, file: Option<PathBuf>) -> Self {
        let environment = Environment::read(std::env::vars_os());
        let file = file.or_else(|| environment.file.clone());
        Self { flags, environment, file }
    }

    /// The configuration file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Variables that are probably misspelt.
    pub(crate) fn doubts(&self) -> &[String] {
        &self.environment.doubts
    }

    /// Reads and checks everything.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        let mut layers = vec![self.flags.clone(), self.environment.raw.clone()];
        if let Some(file) = &self.file {
            layers.push(super::read_file(file)?);
        }
        Loaded::new(layers)
    }
}

impl Loaded {
    /// From `layers`, the strongest first.
    pub(crate) fn new(layers: Vec<RawConfig>) -> Result<Self, Failure> {
        let settings = merge(layers).map_err(Failure::Invalid)?;
        let config = Config::new(&settings).map_err(Failure::Invalid)?;
        let files = Files::load(&config, &settings)?;
        Ok(Self { settings, config, files })
    }
}
