//! Load for Redis and for what stands before it: hot keys on purpose, replies verified.
//!
//! - [`workload`]: which connection does what to which key; a pure function of a seed.
//! - [`scenario`]: the named workloads.
//! - [`options`]: what can be chosen, checked before anything is sent.
//! - [`run`](mod@run): all targets, in interleaved rounds.
//! - [`report`]: the results as data, JSON, a table and a page with plots.
//! - [`stamp`], [`ledger`], [`memory`]: how a reply is known to be right.
//!
//! # What is promised
//!
//! - **Repeatable**: the operations of a connection depend on the seed and its number alone;
//!   at a given rate their times do, too.
//! - **No coordinated omission**: at a given rate a request's time counts from when it was
//!   due, not from when the connection was free to send it.
//! - **A mismatch is a mismatch**: a value of another key, a damaged value, a version that
//!   nobody wrote, a version that goes back on one connection, a counter's reply that was
//!   given twice or goes back. Writes that overlapped are never held against a server.
//! - **Light**: one thread drives all connections unless told otherwise.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use heatsink_load::options::{Options, Target};
//! use heatsink_load::scenario::Scenario;
//!
//! let direct = Target::parse("direct=redis://127.0.0.1:6379")?;
//! let heatsink = Target::parse("heatsink=redis://127.0.0.1:6380")?;
//! let options = Options::new(Scenario::Viral, vec![direct, heatsink]);
//! let report = heatsink_load::run(&options, &AtomicBool::new(false), &mut ())?;
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod engine;
pub mod ledger;
pub mod memory;
pub mod options;
pub mod pipe;
mod preparation;
pub mod progress;
mod recorder;
pub mod report;
mod round;
pub mod run;
pub mod scenario;
mod socket;
pub mod stamp;
pub mod timer;
mod upstream;
pub mod verdict;
pub mod workload;

pub use options::{Options, Pace, Target};
pub use progress::{Event, Progress};
pub use report::Report;
pub use run::run;
