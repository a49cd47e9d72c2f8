//! Why a caller gets no value.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Why [`load`](crate::Get::load) gave no value. Trouble with the shared tier is not among the
/// reasons, unless the cache was told to fail then ([`Fallback::Fail`](crate::Fallback::Fail)).
pub enum Error<E> {
    /// The loader's error; all callers that waited for it share it.
    Load(Arc<E>),
    /// The loader of another caller failed, with an error of another type than this caller's.
    LoadElsewhere,
    /// The loader panicked.
    Panicked(Arc<str>),
    /// The key is known to be absent, and this caller's loader cannot say so: it returns a value
    /// where others return an `Option`.
    Absent,
    /// Nothing came within the hard timeout. The load goes on.
    Timeout,
    /// More keys are being loaded than [`max_flights`](crate::Builder::max_flights) allows.
    Overloaded,
    /// The shared tier cannot be asked, and the cache was told to fail then.
    Unavailable(Arc<str>),
    /// The runtime on which the cache was built is shutting down.
    Closed,
}

impl<E> Clone for Error<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Load(error) => Self::Load(Arc::clone(error)),
            Self::LoadElsewhere => Self::LoadElsewhere,
            Self::Panicked(words) => Self::Panicked(Arc::clone(words)),
            Self::Absent => Self::Absent,
            Self::Timeout => Self::Timeout,
            Self::Overloaded => Self::Overloaded,
            Self::Unavailable(words) => Self::Unavailable(Arc::clone(words)),
            Self::Closed => Self::Closed,
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => f.debug_tuple("Load").field(error).finish(),
            Self::Panicked(words) => f.debug_tuple("Panicked").field(words).finish(),
            Self::Unavailable(words) => f.debug_tuple("Unavailable").field(words).finish(),
            Self::LoadElsewhere => f.write_str("LoadElsewhere"),
            Self::Absent => f.write_str("Absent"),
            Self::Timeout => f.write_str("Timeout"),
            Self::Overloaded => f.write_str("Overloaded"),
            Self::Closed => f.write_str("Closed"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::LoadElsewhere => f.write_str("another caller's load of the key failed"),
            Self::Panicked(words) => write!(f, "the loader panicked: {words}"),
            Self::Absent => f.write_str("the key is known to be absent"),
            Self::Timeout => f.write_str("no value within the hard timeout"),
            Self::Overloaded => f.write_str("too many keys are being loaded"),
            Self::Unavailable(words) => write!(f, "the shared tier cannot be asked: {words}"),
            Self::Closed => f.write_str("the runtime of the cache is shutting down"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Told in its words, so its cause is the next.
            Self::Load(error) => error.source(),
            _ => None,
        }
    }
}

/// The same, without knowing the type of the loader's error.
#[derive(Clone)]
pub(crate) enum Failure {
    Load(Arc<dyn Any + Send + Sync>),
    Panicked(Arc<str>),
    Timeout,
    /// A refresh took so long that the value which it was to replace is gone. Who waited for it may
    /// load by themselves.
    Overdue,
    Overloaded,
    Unavailable(Arc<str>),
    Closed,
}

impl Failure {
    pub(crate) fn typed<E: Send + Sync + 'static>(self) -> Error<E> {
        match self {
            Self::Load(error) => match error.downcast() {
                Ok(error) => Error::Load(error),
                Err(_) => Error::LoadElsewhere,
            },
            Self::Panicked(words) => Error::Panicked(words),
            Self::Timeout | Self::Overdue => Error::Timeout,
            Self::Overloaded => Error::Overloaded,
            Self::Unavailable(words) => Error::Unavailable(words),
            Self::Closed => Error::Closed,
        }
    }

    /// One word for logs and metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Load(_) => "error",
            Self::Panicked(_) => "panic",
            Self::Timeout | Self::Overdue => "timeout",
            Self::Overloaded => "overloaded",
            Self::Unavailable(_) => "unavailable",
            Self::Closed => "closed",
        }
    }
}

/// Why [`build`](crate::Builder::build) refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no tokio runtime here; loads are tasks of one.
    NoRuntime,
    /// A setting is out of its range: which, and what it has to be.
    Setting(&'static str, &'static str),
    /// The shared tier's URL or TLS files cannot be used.
    Shared(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRuntime => f.write_str("a cache needs a tokio runtime"),
            Self::Setting(name, range) => write!(f, "{name} {range}"),
            Self::Shared(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for BuildError {}

/// A change that the shared tier has not confirmed.
///
/// This process no longer serves what was there before. The shared tier and other processes may,
/// until the change is known there: the key is deleted as soon as the store can be reached, and until
/// then this process takes nothing of that key from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unconfirmed {
    pub(crate) words: Arc<str>,
}

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shared tier did not confirm the change: {}", self.words)
    }
}

impl std::error::Error for Unconfirmed {}
