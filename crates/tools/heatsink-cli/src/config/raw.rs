//! What was typed: values with the place they stand at, not yet judged.
//!
//! Called by: the readers of file, environment and flags produce it; `merge` consumes it.
//! Bound: at most one setting per key and reader, and what a file holds of policies.

use std::fmt;
use std::sync::Arc;

use super::keys::Key;

/// Everything that one reader found.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawConfig {
    /// Known keys and what they were given.
    pub(crate) settings: Vec<RawSetting>,
    /// The `[[policy]]` tables, in order.
    pub(crate) policies: Vec<RawPolicy>,
    /// What could not even be read as a setting: unknown keys, broken syntax.
    pub(crate) mistakes: Vec<Mistake>,
}

/// A value that was given to a key.
#[derive(Clone, Debug)]
pub(crate) struct RawSetting {
    /// The key.
    pub(crate) key: &'static Key,
    /// The value.
    pub(crate) value: RawValue,
    /// Where.
    pub(crate) place: Place,
}

/// One `[[policy]]`.
#[derive(Clone, Debug)]
pub(crate) struct RawPolicy {
    /// Its header.
    pub(crate) place: Place,
    /// What stands in it.
    pub(crate) settings: Vec<RawSetting>,
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RawValue {
    /// From a flag, a variable or a default, where everything is text.
    Untyped(String),
    /// A string of the file.
    Quoted(String),
    /// A number of the file, in decimal.
    Number(String),
    /// `true` or `false` in the file.
    Boolean(bool),
    /// Something of the file that no key takes, in words: `a date`.
    Other(&'static str),
}

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Nowhere.
    Default,
    /// In the file.
    File {
        /// As the user named it.
        file: Arc<str>,
        /// Counted from one.
        line: usize,
    },
    /// In the environment.
    Variable(String),
    /// On the command line; the name without dashes.
    Flag(String),
}

/// Something that is wrong with the configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mistake {
    place: Place,
    text: String,
}

impl Mistake {
    /// A mistake in the file or in a name: `text` says it all.
    pub(crate) fn at(place: Place, text: String) -> Self {
        Self { place, text }
    }

    /// A mistake in the value of `key`. A variable or a flag names the key already.
    pub(crate) fn of(key: &Key, place: Place, text: &str) -> Self {
        let text = match place {
            Place::Default | Place::File { .. } => format!("{}: {text}", key.path),
            Place::Variable(_) | Place::Flag(_) => text.to_owned(),
        };
        Self { place, text }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untyped(text) | Self::Quoted(text) => write!(f, "{text:?}"),
            Self::Number(digits) => f.write_str(digits),
            Self::Boolean(switch) => switch.fmt(f),
            Self::Other(what) => f.write_str(what),
        }
    }
}
