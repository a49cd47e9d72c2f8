//! Stampede protection without I/O: how long a value is good for, when one reader refreshes it,
//! and what a reader that finds nothing does about the lease.
//!
//! Called by: the library's flights; the proxy's look-aside leases follow the same rules.
//! Bound: plain values and pure functions; nothing is kept here.
//! Invariant: of the states of a key (fresh, stale-servable, absent, loading under a lease) a
//! reader is given the best that exists: the fresh value, else a stale one, else it waits for the
//! holder of the lease, else it becomes the holder.
//!
//! - [`freshness`]: windows of a value's life, early refresh (`XFetch`), jitter.
//! - [`lease`]: the step a reader takes after it has looked at the shared store.

pub mod freshness;
pub mod lease;
