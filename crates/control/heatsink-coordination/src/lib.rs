//! The coordination store: what the processes of a fleet agree on, and how they hear of it.
//!
//! Records of opaque bytes under binary keys, each with the version that wrote it; changes
//! are conditional on that version, so that of two processes that decide on old data one is
//! refused. Every change is pushed to all subscribers. Members of the fleet are present while
//! they keep saying so. What the bytes mean is the control plane's business.
//!
//! Two implementations of one behaviour: [`Store::memory`] within a process, and
//! [`Store::redis`] on Redis 6.2 or newer or Valkey: one server, Sentinel or Cluster.
//!
//! Promises:
//! - A call returns within [`Settings::request_timeout`] and a few milliseconds, whatever the
//!   server does. When it fails with [`StoreError::Timeout`] or [`StoreError::Unreachable`]
//!   the change may have been made nevertheless; repeated with its [`Expects::Epoch`] it
//!   is made at most once.
//! - All times are measured by the store's clock; clocks of the fleet do not matter.
//! - A subscription tells every change in order, or says [`Notice::Lost`] and later
//!   [`Notice::Connected`]; whoever listens then reads a [`Snapshot`]. A connection that
//!   hangs is noticed within about 1.5 s.
//! - Records, blocked keys, members, sizes and queues are bounded: see [`Settings`].
//! - With a [`Secret`], records, members and messages that were not written by somebody who has it
//!   are ignored and counted. Without one, whoever can write to the server decides.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use heatsink_coordination::{Expects, Put, PutOutcome, Settings, Store};
//!
//! let store = Store::memory(Settings::new("default")?);
//! let put = Put { body: b"any bytes".to_vec(), expects: Expects::ABSENT, ..Put::default() };
//! let PutOutcome::Applied { version } = store.put(b"key", put.clone()).await? else { panic!() };
//! assert_eq!(store.put(b"key", put).await?, PutOutcome::Stale { epoch: version });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # On the server
//!
//! Keys start with `heatsink:{<namespace>}:` and so share one slot of a cluster:
//!
//! | key | type | holds |
//! |---|---|---|
//! | `state` | hash | `incarnation`, `version`, `count` of records |
//! | `registry` | hash | key -> `<epoch> <created ms> <expires ms> <body>` |
//! | `expiry` | sorted set | key by the time it expires, `+inf` for never |
//! | `blocked` | sorted set | key by the time until which it may not be put automatically |
//! | `members` | hash | id -> `<version it joined with> <body>` |
//! | `presence` | sorted set | id by the time at which it counts as gone |
//! | `roster` | hash | `version`, which counts those who came and went |
//! | `acks` | sorted set | topic and id of a member that has acknowledged it, by the time until which that counts |
//!
//! and channels `changes`, `reports` and `watch` (sharded ones on a cluster that has them;
//! behind a database other than 0 the prefix goes on with `db<n>:`). If some of the keys were
//! evicted or deleted, the rest is given up, and a new incarnation says so. Versions start at
//! the time in milliseconds, so that epochs of one incarnation mean nothing in the next.
//!
//! A user for it: `+@connection +@scripting +@pubsub +hmget +hset +hget +hdel +hlen +hgetall
//! +hincrby +zadd +zrem +zcard +zscore +zrange +zrangebyscore +zremrangebyscore
//! +zremrangebyrank +del +time ~heatsink:* &heatsink:*`; on a cluster also `+command|info
//! +cluster|slots`. Of `@scripting` only `eval` and `evalsha` are used.
//!
//! While a cluster moves the slot of these keys from node to node, it refuses scripts on them,
//! and calls fail after their time; the fleet goes on by itself until the move is done.
//! Replication is asynchronous: a failover can undo the changes of the last moments, which
//! every subscriber notices because it reads a snapshot after it.

mod error;
mod inbox;
mod memory;
mod model;
mod remote;
mod seal;
mod settings;
mod store;

pub use error::StoreError;
pub use inbox::Subscription;
pub use model::{
    Blocked, Channel, Expects, Member, Notice, Put, PutOutcome, Record, RemoveOutcome,
    RenewOutcome, Snapshot,
};
pub use remote::tls::{Tls, TlsFiles};
pub use seal::Secret;
pub use settings::{Settings, SettingsError};
pub use store::Store;
