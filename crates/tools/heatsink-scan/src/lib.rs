//! Hot keys of a Redis or Valkey that is not behind Heatsink.
//!
//! - [`plan`]: what to look at, and what looking will cost, before anything is done.
//! - [`scan`]: the look itself: `HOTKEYS` where the server has it, else bounded `MONITOR`.
//! - [`report`]: the hot keys as data, JSON and a table, each with what Heatsink would do.
//! - [`monitor_line`]: one line of `MONITOR`, taken apart exactly.
//! - [`nodes`]: the primaries of a cluster.
//!
//! # What is promised
//!
//! - **Bounded in time and in commands**: a scan ends at the duration or at the number of
//!   commands, whichever is first, over all nodes together.
//! - **Bounded in memory**: at most twice [`tally::CAPACITY`] names of at most 1 KiB. A key
//!   whose true count is more than the stated error is never missing.
//! - **Nothing is left behind**: the `MONITOR` connections are ended with `QUIT` and the end
//!   is waited for. A `HOTKEYS` session that somebody else runs is not touched.
//! - **No value is kept**: arguments that are not keys are measured and dropped.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use heatsink_scan::{Options, Plan, scan};
//!
//! let options = Options::new("redis://127.0.0.1:6379".parse()?);
//! let plan = Plan::make(options)?;
//! println!("{plan}"); // the cost, before it starts
//! let report = scan::run(&plan, &AtomicBool::new(false), &mut |_| {})?;
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advice;
pub mod hotkeys;
mod monitor;
pub mod monitor_line;
pub mod nodes;
pub mod plan;
pub mod report;
pub mod scan;
mod table;
pub mod tally;
mod value_size;

pub use plan::{Method, Options, Plan};
pub use report::ScanReport;
