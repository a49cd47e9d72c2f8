//! Failure: why a command was refused, in the words a client of Redis expects.
//!
//! Called by: every handler; `engine` writes it as the error reply.
//! Invariant: the text starts with an error code (`ERR`, `WRONGTYPE`, ...) and holds no line
//! break once written (`Reply::error` replaces them).

use std::borrow::Cow;

/// An error reply without its leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(Cow<'static, [u8]>);

/// What a handler returns: its reply is written, or nothing is and this is the error.
pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    pub(crate) const WRONG_TYPE: Self =
        Self::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const NOT_AN_INTEGER: Self = Self::of("ERR value is not an integer or out of range");
    pub(crate) const NOT_A_FLOAT: Self = Self::of("ERR value is not a valid float");
    pub(crate) const SYNTAX: Self = Self::of("ERR syntax error");
    pub(crate) const NO_SUCH_KEY: Self = Self::of("ERR no such key");
    pub(crate) const INDEX: Self = Self::of("ERR index out of range");
    pub(crate) const NOT_POSITIVE: Self = Self::of("ERR value is out of range, must be positive");
    pub(crate) const OVERFLOW: Self = Self::of("ERR increment or decrement would overflow");
    pub(crate) const NAN_OR_INFINITY: Self =
        Self::of("ERR increment would produce NaN or Infinity");
    pub(crate) const TOO_LONG: Self =
        Self::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

    /// A fixed text.
    pub(crate) const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    /// A text made for the occasion.
    pub(crate) fn new(text: impl Into<Vec<u8>>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The count of arguments does not suit the command.
    pub(crate) fn arity(command: &str) -> Self {
        Self::new(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// The text as sent.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }
}
