//! What is wrong with a users file, with the line where that is known.
//!
//! Called by: `file`.
//! Invariant: no text of the file appears but user names and keys: a line may hold a hash,
//! or a password that somebody put there by mistake.

use std::path::PathBuf;
use std::{error, fmt, io};

/// A users file that cannot be used.
#[derive(Debug)]
pub struct UsersError {
    /// The file.
    pub path: PathBuf,
    /// Counted from one, where the problem has a place.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: UsersProblem,
}

/// What is wrong with a users file.
#[derive(Debug)]
#[non_exhaustive]
pub enum UsersProblem {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is no TOML, or has keys or types that a users file does not have.
    Malformed(String),
    /// A user has no name.
    EmptyName,
    /// A user's name is longer than [`crate::NAME_LIMIT_BYTES`].
    LongName,
    /// The user was named before.
    DuplicateUser(String),
    /// Not exactly one of `hash` and `hashes` is given.
    HashOrHashes,
    /// A user has no hash, or more than the limit.
    HashCount {
        /// How many a user may have.
        limit: usize,
    },
    /// A hash is no PHC string of Argon2id, version 19, with salt and output.
    NotArgon2id,
    /// A hash asks for more memory or time than is allowed.
    TooCostly,
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl fmt::Display for UsersProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("no such file")
            }
            Self::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Self::Malformed(why) => f.write_str(why),
            Self::EmptyName => f.write_str("a user needs a name"),
            Self::LongName => {
                write!(f, "a name has at most {} bytes", crate::NAME_LIMIT_BYTES)
            }
            Self::DuplicateUser(name) => write!(f, "user {name:?} was defined before"),
            Self::HashOrHashes => f.write_str("a user needs either `hash` or `hashes`"),
            Self::HashCount { limit } => write!(f, "`hashes` holds one to {limit} hashes"),
            Self::NotArgon2id => {
                f.write_str("not a hash of Argon2id in PHC form ($argon2id$v=19$m=...)")
            }
            Self::TooCostly => {
                f.write_str("hash too costly: at most m=262144 (256 MiB), t=16, p=16")
            }
        }
    }
}

impl error::Error for UsersError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.problem {
            UsersProblem::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
