//! Real servers and a raw client: what the integration tests stand on.
//!
//! Called by: tests and the benchmark, never by the product.
//! Bound: every wait in here has a deadline, and every process started is ended when its
//! guard is dropped.
//! Invariant: a test sleeps nowhere but inside this crate; it waits for what it wants with
//! [`eventually`], [`Process::wait_for_line`] or a reply.
//!
//! Functions panic with what they saw instead of returning errors, because in a test that is
//! the wanted end; those whose name starts with `try_` return the error.
//!
//! ```
//! use heatsink_testkit::{RedisServer, Reply};
//!
//! let mut server = RedisServer::start();
//! assert_eq!(server.client().command(&["SET", "k", "v"]), Reply::ok());
//! server.restart(); // the same port, nothing kept
//! assert_eq!(server.client().command(&["GET", "k"]), Reply::Null);
//! ```
//!
//! [`RedisCluster`] and [`SentinelRig`] are many such servers put together; [`Certificates`]
//! makes any of them speak TLS.
//!
//! ```no_run
//! use heatsink_testkit::{RedisCluster, Reply, key_slot};
//!
//! let mut cluster = RedisCluster::start(); // three primaries with a replica each, 2 s
//! let key = cluster.key_on(0, "k");
//! assert_eq!(cluster.node(0).client().command(&["SET", &key, "v"]), Reply::ok());
//! cluster.move_slot(key_slot(&key), 1);
//! assert_eq!(cluster.node(1).client().command(&["GET", &key]), Reply::bulk("v"));
//! cluster.kill(2);
//! cluster.wait_until_ok(); // its replica has taken over
//! ```

#[cfg(feature = "browser")]
pub mod browser;
mod certificates;
mod client;
mod hash_slot;
mod load;
mod output;
mod port;
mod proc_stats;
mod process;
mod redis_cluster;
mod redis_server;
mod reply;
mod seed;
mod sentinel_rig;
mod transport;
mod wait;
mod wire;

pub use certificates::{Certificates, Identity};
pub use client::{RawClient, encode};
pub use hash_slot::{SLOTS, key_for_slot, key_slot};
pub use load::{Load, SLOW, Tally};
pub use port::free_port;
pub use proc_stats::{ProcStats, cpu_time, open_fds};
pub use process::{Process, ProcessBuilder};
pub use redis_cluster::{RedisCluster, RedisClusterBuilder};
pub use redis_server::{ClientAuth, CommandStats, RedisServer, RedisServerBuilder};
pub use reply::Reply;
pub use seed::seed_from;
pub use sentinel_rig::{SentinelRig, SentinelRigBuilder};
pub use wait::{Outcome, eventually, eventually_ok, poll_until};

/// Lua for a script that takes its time: a function `now`, in milliseconds. From Redis 7.2 on `TIME`
/// stands still within a script, and before 7.4 there is no `os`.
pub const LUA_NOW_MS: &str = "local has_os, clock = pcall(function() return os.clock end) \
    local function now() \
        if has_os then return clock() * 1000 end \
        local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 \
    end";
