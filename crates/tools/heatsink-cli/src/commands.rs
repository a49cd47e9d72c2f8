//! The commands, one module a verb.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod hash_password;
mod interrupt;
pub(crate) mod keys;
pub(crate) mod load;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod top;
