//! A cache that a popular key cannot break: memory, Redis and your loader, with one load for all.
//!
//! When a popular key expires, everybody who wants it asks the database at once. This crate lets one
//! of them through, over all processes, and serves the others what they may be served meanwhile.
//!
//! ```
//! use std::time::Duration;
//!
//! use heatsink::Cache;
//!
//! # async fn find(id: u64) -> Result<Option<String>, std::io::Error> { Ok(Some(format!("user {id}"))) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let users = Cache::<u64, String>::builder("users")
//!     .ttl(Duration::from_secs(300))
//!     .stale(Duration::from_secs(600)) // served for so long while one refresh runs
//!     .early(1.0) // and most of the time refreshed before that
//!     // .redis("redis://127.0.0.1:6379") // shared by all processes
//!     .build()
//!     .await?;
//!
//! let id = 42;
//! let user = users.get(&id).load(move |_| find(id)).await?;
//! assert_eq!(user.as_deref().map(String::as_str), Some("user 42"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! A `get` is answered with the best there is: the fresh value from this process's memory or from
//! the shared tier; else a stale one, within its window, while one refresh runs; else it waits for
//! the one who loads, which may be itself. The loader returns `V`, `Option<V>` or [`Loaded<V>`].
//!
//! # What is promised
//!
//! - **One load** for each key at a time: in this process always, over all processes as long as the
//!   shared tier can be asked. If the process that loads dies, one other follows, within
//!   [`lease`](Builder::lease).
//! - **A load is a task of its own.** A caller that gives up does not end it, and what it finds is
//!   kept. A panic or an error reaches each waiting caller once. That is why a loader owns what it
//!   uses.
//! - **Staleness.** When [`invalidate`](Cache::invalidate) or [`put`](Cache::put) has returned,
//!   nobody in this process gets what was there before, and nobody in another one after the time of
//!   a push (well under 5 ms in a data centre). A process that cannot hear the shared tier serves
//!   nothing from its memory that is older than a second ([`StoreBuilder::silence`]). A value is
//!   never served past its windows, and a deleted one never as stale.
//! - **Nothing comes back.** What was loaded before a deletion is not stored after it, however late
//!   the loader is, by no process.
//! - **Bounds.** Every wait has a timeout; loaders, keys on their way, entries and bytes have limits,
//!   and what happens at them is said at the setting.
//! - **Trouble with Redis is not yours**, unless you ask for it ([`Fallback::Fail`]): without it, each
//!   process makes one load for each key, and [`Cache::shared_state`] tells. Only who writes is told:
//!   [`Unconfirmed`].
//! - **Cost.** A hit in memory allocates nothing, stale or fresh, and takes no lock but a shared one;
//!   every 64th look at a key also tells the detector, under a lock of its own. A hit in Redis is one
//!   round trip, a load with its lease three or four, a `put` two. A cache takes 2.3 MiB for its
//!   detector ([`Builder::detector`] with `None` saves them).
//!
//! Not promised: that two processes see a change at the same moment, and protection from a loader
//! that reads a replica which is behind. Time that a machine spends suspended does not count as age.
//!
//! # Which option when
//!
//! | you want | use |
//! |---|---|
//! | nobody to wait when a value expires | [`stale`](Builder::stale), [`early`](Builder::early) |
//! | values as fresh as can be, but no stampede | neither; callers wait for the one load |
//! | fresh if that is quick, else stale | [`stale`](Builder::stale) with [`soft_timeout`](Builder::soft_timeout) |
//! | to survive a database that is down | [`stale_if_error`](Builder::stale_if_error) |
//! | keys that were stored together not to expire together | [`jitter`](Builder::jitter) |
//! | absent keys not to reach the database | return an `Option`; [`negative_ttl`](Builder::negative_ttl) |
//! | a value's life to come from its source | [`Loaded::ttl`], [`Loaded::no_store`] |
//! | a conditional query | [`Context::stale`] and [`Loaded::not_modified`] |
//! | many keys with one query | [`Cache::get_many`] |
//! | memory only for what is hot | [`Local::hot`] |
//! | never a stale value in this call | [`Get::no_stale`] |
//!
//! `docs/library.md` has recipes: axum with Postgres, invalidation after a commit, and how to come
//! from other caches.
//!
//! # Features
//!
//! `redis` (default): the shared tier. `json` (default), `postcard`: codecs. `metrics`: an observer
//! for the `metrics` facade. `fleet`: a place in a fleet of Heatsinks (`Fleet`). Without `redis` it is a
//! cache in one process, with few dependencies.
//!
//! The detector of hot keys is usable by itself: [`detect`], and in it [`detect::hot_ring`].

// Without the shared tier some of what serves it is idle.
#![cfg_attr(not(feature = "redis"), allow(dead_code, clippy::unused_async, clippy::unused_self))]

mod batch;
mod builder;
mod cache;
mod clock;
mod codec;
mod counters;
mod entry;
#[cfg(feature = "redis")]
mod envelope;
mod error;
mod fence;
#[cfg(feature = "fleet")]
mod fleet;
mod flight;
mod fly;
mod heat;
mod inner;
mod key;
mod load;
mod loaded;
mod local;
#[cfg(feature = "metrics")]
mod meter;
mod observer;
mod record;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(feature = "redis")]
mod shared;
#[cfg(feature = "redis")]
mod store;
mod sync;

pub use batch::GetMany;
pub use builder::{Builder, Fallback};
pub use cache::{Cache, Get};
pub use clock::Clock;
#[cfg(feature = "json")]
pub use codec::Json;
#[cfg(feature = "postcard")]
pub use codec::Postcard;
pub use codec::{Bytes, Codec, CodecError};
pub use counters::Counts;
pub use entry::{Entry, Source};
pub use error::{BuildError, Error, Unconfirmed};
#[cfg(feature = "fleet")]
pub use fleet::{Fleet, FleetBuilder};
#[cfg(feature = "fleet")]
pub use heatsink_control::policy;
#[cfg(feature = "fleet")]
pub use heatsink_coordination::Secret;
pub use heatsink_detect as detect;
pub use key::Key;
pub use loaded::{Context, LoadResult, Loaded};
pub use local::Local;
#[cfg(feature = "metrics")]
pub use meter::{Meter, publish};
pub use observer::{Event, Observer};
#[cfg(feature = "redis")]
pub use store::{Store, StoreBuilder, StoreState, TlsFiles};

/// The recipes compile, and those that need no server run.
#[cfg(all(doctest, feature = "redis", feature = "json"))]
#[doc = include_str!("../../../../docs/library.md")]
struct Recipes;
