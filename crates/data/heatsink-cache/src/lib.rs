//! Takes the heat off single keys, within one worker: a local cache, coalesced reads and
//! combined writes. No I/O, no threads, no clock: time is passed in, and each worker owns one
//! instance of each.
//!
//! - [`local`]: replies to reads of registered keys, kept as coherent as promised below.
//! - [`commands`]: which commands may be cached, and their replies in RESP2.
//! - [`flights`]: one upstream read for all that wait for it.
//! - [`joins`]: whether reads of a key find any to join.
//! - [`combine`]: increments that go out as one, and `SET`s of which the last goes out.
//! - [`identity`]: who reads.
//! - [`stampede`]: how long a value is good for, who refreshes it, and who loads what is missing.
//!
//! # What is promised
//!
//! The caller keeps the rules at the head of [`local`]. Then:
//!
//! - **Cache.** What one connection reads of a key never goes back in time and is never older
//!   than its own answered writes. Another's write is seen when its invalidation arrives, and
//!   nothing it replaced is served after that. Without any message, nothing is served longer
//!   than `max_ttl`, `ttl_fraction` of the key's remaining time to live, or the life of the
//!   link it came through. Entries are found by login, protocol and the whole request,
//!   compared in full. Not covered, and bounded by `max_ttl` only: a `SWAPDB` that does not
//!   come through this worker, since servers push nothing for it, and fields of a hash that
//!   expire by themselves. A connection that logs in as another user in between may see that
//!   user's older entry, by the delay of an invalidation.
//! - **Flights and batches.** Nothing can be noticed: every history stays linearizable. A read
//!   joins only what has not left; a batch is executed at one instant at which all of its
//!   members are waiting. Every waiter comes back exactly once.
//! - **Cost.** A hit is one hash of the request, one probe, one comparison; it allocates
//!   nothing and takes no lock. `--example hit_cost` prints it.
//! - **Memory.** Every table has its limits, and says what it does at them.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use heatsink_cache::identity::{LoginId, Protocol, Reader};
//! use heatsink_cache::local::{KeySettings, Limits, LocalCache, Lookup, Registered, Ttl};
//!
//! let now = Duration::ZERO;
//! let reader = Reader { login: LoginId(0), protocol: Protocol::Resp3 };
//! let command = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
//!
//! let mut cache = LocalCache::new(Limits::default());
//! let link = cache.link_opened(reader.login);
//! let Registered::New(settling) = cache.register(b"k", KeySettings::default()) else {
//!     unreachable!();
//! };
//! cache.write_done(settling); // nothing was under way
//!
//! // A miss: the read goes upstream, its reply is stored.
//! let Lookup::Miss(token) = cache.lookup(now, reader, b"k", command) else { unreachable!() };
//! assert!(cache.filled(now, token.sent_on(link), b"$1\r\nv\r\n", Ttl::Unlimited));
//! let Lookup::Hit { reply, .. } = cache.lookup(now, reader, b"k", command) else {
//!     unreachable!()
//! };
//! assert_eq!(reply, b"$1\r\nv\r\n");
//!
//! // A write: nothing is served or stored before it is answered.
//! let write = cache.write_sent(b"k").unwrap();
//! assert!(matches!(cache.lookup(now, reader, b"k", command), Lookup::Bypass(_)));
//! cache.write_done(write);
//! assert!(matches!(cache.lookup(now, reader, b"k", command), Lookup::Miss(_)));
//! ```

pub mod combine;
pub mod commands;
pub mod flights;
pub mod identity;
pub mod joins;
pub mod local;
#[cfg(test)]
mod simulation;
pub mod stampede;
