//! The real binary, as a user meets it: what it prints, where, and how it exits.

mod check;
mod embedded;
mod help;
mod memory;
mod serve;
mod support;
