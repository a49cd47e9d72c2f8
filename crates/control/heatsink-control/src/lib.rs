//! The control plane's logic: what is hot in the whole fleet, and what is done about it.
//! No I/O, no clock, no thread: messages and time are passed in, intents come out.
//!
//! - [`entry`]: what the registry holds of a hot key.
//! - [`policy`]: what a key may get, by rules on its name.
//! - [`decision`]: from heat and policy to a mitigation, with the reason.
//! - [`wire`]: the form of reports, watch lists and entries in the coordination store.
//! - [`agent`]: a proxy's side: what it tells, and what its data plane treats as hot.
//! - [`sums`], [`aggregate`]: the fleet's side: reports added up, decisions proposed.
//! - [`registry`]: the copy of the registry that every process holds.
//! - [`member`], [`settings`], [`value`], [`words`]: plain data and how it is told.
//!
//! # What is promised
//!
//! - **Found by the sum.** A key over the threshold in the whole fleet is found however its
//!   requests are spread: a proxy tells of a key from its share of the threshold on, and the
//!   others tell their counts of it once it is watched.
//! - **No leader.** Any number of aggregators come to the same decisions; each change names the
//!   epoch it is based on, so that it takes effect once, and never on newer data.
//! - **People first.** What an operator promoted or removed is not changed by a decision, and
//!   an acknowledged manual entry outlives the loss of the store's data as long as a process
//!   that knows it lives.
//! - **No clocks.** Only times of receipt matter; processes may be seconds apart.
//! - **Bounded.** Every map, list and message has a limit, stated where it is defined.
//! - **Cost.** 200 proxies that each report 100 keys 20 times a second take one aggregator less
//!   than a tenth of a core (`examples/aggregator_load.rs` measures it).
//!
//! # Example
//!
//! A key that no proxy sees at the threshold of 1000 requests/s, but both together do:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use heatsink_control::aggregate::{Aggregator, Intent};
//! use heatsink_control::entry::Mitigation;
//! use heatsink_control::policy::Policies;
//! use heatsink_control::registry::{Registry, Snapshot};
//! use heatsink_control::settings::Settings;
//! use heatsink_control::value::ValueKind;
//! use heatsink_control::wire::{Counts, KeyRecord, Report};
//!
//! let now = Duration::from_secs(1);
//! let policies = Arc::new(Policies::default());
//! let mut aggregator = Aggregator::new(now, Settings::default(), policies);
//!
//! // The copy of the registry, read from the store: empty.
//! let mut registry = Registry::new();
//! registry.begin_snapshot();
//! registry.on_snapshot(now, Snapshot { incarnation: vec![1], ..Snapshot::default() });
//!
//! for member in ["proxy-1", "proxy-2"] {
//!     let counts = Counts { reads: 590, writes: 10, ..Counts::default() };
//!     let keys = vec![KeyRecord { key: b"user:9999", value: ValueKind::Hash, counts }];
//!     let message = Report { member, boot: 1, sequence: 1, keys, ..Report::default() }.encode();
//!     // ... through the coordination store ...
//!     aggregator.on_report(now, &Report::decode(&message).expect("of this version"));
//! }
//!
//! let intents = aggregator.tick(now, &mut registry);
//! let [Intent::Put { key, entry, expects_epoch: 0, .. }] = intents.as_slice() else {
//!     panic!("one entry is proposed, if there is none yet");
//! };
//! assert_eq!(key, b"user:9999");
//! assert_eq!(entry.mitigation, Mitigation::LocalCache);
//! assert_eq!(entry.reason, "1 200 req/s over 2 proxies, threshold 1 000; 98.3 % reads");
//! ```

pub mod agent;
pub mod aggregate;
pub mod decision;
pub mod entry;
pub mod member;
pub mod policy;
pub mod registry;
pub mod settings;
pub mod sums;
pub mod value;
pub mod wire;
pub mod words;
