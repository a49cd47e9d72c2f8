//! Commands, a module a type of value or topic; all of them are listed in `table`.

pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod counters;
pub(crate) mod databases;
pub(crate) mod expiry;
pub(crate) mod hashes;
pub(crate) mod hyperloglog;
pub(crate) mod introspection;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod picks;
pub(crate) mod scan;
pub(crate) mod sets;
pub(crate) mod sorted_ranges;
pub(crate) mod sorted_sets;
pub(crate) mod strings;
