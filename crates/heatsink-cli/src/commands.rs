//! The commands, one module a verb.

pub(crate) mod check;
pub(crate) mod serve;
