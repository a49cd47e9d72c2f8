//! The commands, one module a verb.

pub(crate) mod check;
pub(crate) mod hash_password;
pub(crate) mod serve;
