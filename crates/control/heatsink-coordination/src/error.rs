//! Why a call to the store failed.
//!
//! Called by: everything in this crate; matched on by the control plane, which degrades on the
//! first two and reports the others.
//! Invariant: no text in here holds a password.

use std::fmt;
use std::time::Duration;

/// Why a call to the store failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// There is no connection, or it broke; a change may have been made.
    Unreachable {
        /// What went wrong, and with which server.
        why: String,
    },
    /// No answer in time; a change may have been made.
    Timeout {
        /// The time that was allowed.
        after: Duration,
    },
    /// The server said no; nothing was changed.
    Refused {
        /// Its own words.
        words: String,
    },
    /// The server's answer was not understood: something else lives under our keys.
    Garbled {
        /// What was not understood.
        what: String,
    },
    /// A key or body is larger than allowed; nothing was sent.
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The allowed size.
        limit_bytes: usize,
    },
    /// There are as many members as allowed.
    TooManyMembers {
        /// The allowed number.
        limit: usize,
    },
}

impl StoreError {
    pub(crate) fn unreachable(why: impl Into<String>) -> Self {
        Self::Unreachable { why: why.into() }
    }

    pub(crate) fn garbled(what: impl Into<String>) -> Self {
        Self::Garbled { what: what.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { why } => {
                write!(f, "the coordination store cannot be reached: {why}")
            }
            Self::Timeout { after } => {
                write!(f, "the coordination store did not answer within {} ms", after.as_millis())
            }
            Self::Refused { words } => write!(f, "the coordination store refused: {words}"),
            Self::Garbled { what } => {
                write!(f, "the coordination store's answer was not understood: {what}")
            }
            Self::TooLarge { bytes, limit_bytes } => {
                write!(f, "{bytes} bytes are more than the allowed {limit_bytes}")
            }
            Self::TooManyMembers { limit } => {
                write!(f, "the coordination store has its {limit} members already")
            }
        }
    }
}

impl std::error::Error for StoreError {}
