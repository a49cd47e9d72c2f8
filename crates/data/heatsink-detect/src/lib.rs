//! Finds hot keys: every request is counted, the keys that take a disproportionate share of
//! the traffic are named within milliseconds. No I/O and no clock: time is passed in.
//!
//! - [`key`]: a key with its hash.
//! - [`heavy`]: the counter of one worker, called for every request.
//! - [`handover`], [`snapshot`]: how a worker's counts get to the ticker.
//! - [`report`]: the counts of all workers added up at each tick.
//! - [`tracker`]: from reports to "hot now" and "cooled down".
//! - [`sketch`], [`window`]: the Count-Min sketch, and the same over the last second.
//! - [`truth`]: the error of the sketch, measured in production.
//! - [`hot_ring`]: a lock-free frequency ring, a component of its own.
//! - [`config`], [`heat`]: settings, and the plain data of reports.
//!
//! # What is promised
//!
//! With the default settings (window 1 s in slots of 50 ms, sketch of 4 x 2048, threshold
//! 1000 requests/s):
//!
//! - **Nobody is missed.** A reported rate is never below the truth, and a key that reaches
//!   the reporting threshold is reported at the next tick: at twice the threshold after
//!   500 ms, at ten times after 100 ms, plus at most one tick. Exceptions: a key longer than
//!   1 KiB; more than eight hotter keys whose hashes fall into one set of a worker's table;
//!   and a key that rises while a worker's sketch is so full (over 250 000 requests/s of one
//!   kind with two workers) that its cells hold more than the key has. Keys that were named
//!   before keep their name and their exact count then, too.
//! - **Nobody is accused.** A key with less than half of the threshold in the window is never
//!   hot by rate, whatever the sketch says, because half must be counted exactly. A key that
//!   was known by name for a whole window has an exact rate.
//! - **Followed keys are exact.** Those that the caller names ([`heavy::WorkerCounter::follow`])
//!   keep their names, so that what is shown of them is what they got, however much else is
//!   counted.
//! - **Error.** The sketch overestimates by at most e/2048 of a worker's requests of one kind
//!   in the window with probability 98 %; [`truth`] measures what it really is.
//! - **Cost.** A request costs one hash, four counters of two bytes (16 KiB in all) and one
//!   look at a cache line of tags; nothing is allocated, nothing shared is written.
//! - **Memory.** About 2.3 MiB per worker, whatever the number of keys, plus at most 1024
//!   names of at most 1 KiB ([`heavy::WorkerCounter::memory_bytes`] tells).
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use heatsink_detect::config::Settings;
//! use heatsink_detect::heat::{HeatKind, Kind};
//! use heatsink_detect::heavy::WorkerCounter;
//! use heatsink_detect::key::KeyHasher;
//! use heatsink_detect::report::Merger;
//! use heatsink_detect::snapshot::Snapshot;
//! use heatsink_detect::tracker::{Event, Tracker};
//!
//! let settings = Settings::default();
//! let hasher = KeyHasher::random();
//! let mut counter = WorkerCounter::new(&settings, 1, Duration::ZERO);
//! let (mut merger, mut tracker) = (Merger::new(), Tracker::new(&settings));
//!
//! // 50 ms of traffic: one key in 1200 requests, others in one each.
//! for number in 0..1200 {
//!     counter.record(hasher.key(b"user:9999"), Kind::Read, 100, false);
//!     counter.record(hasher.key(format!("user:{number}").as_bytes()), Kind::Read, 100, false);
//! }
//!
//! // The tick.
//! let now = Duration::from_millis(50);
//! let mut snapshot = Snapshot::new();
//! counter.drain_into(now, &mut snapshot);
//! let report = merger.merge(now, &[&snapshot]);
//! assert_eq!(report.top(1)[0].key, b"user:9999");
//!
//! let events = tracker.tick(now, &report);
//! let [Event::Hot { heat, kind: HeatKind::Rate, level, .. }] = events.as_slice() else {
//!     panic!("one key is hot");
//! };
//! assert_eq!(heat.key, b"user:9999");
//! assert!(*level >= 1200.0);
//! ```

mod clock;
pub mod config;
pub mod handover;
pub mod heat;
pub mod heavy;
pub mod hot_ring;
pub mod key;
pub mod report;
pub mod sketch;
pub mod snapshot;
mod table;
pub mod tracker;
pub mod truth;
pub mod window;
