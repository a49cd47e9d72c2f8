//! The embedded store as an upstream: where `serve` meets `heatsink-embedded`.

use std::io;

use heatsink_upstream::address::Upstream;

/// A running store; it ends when dropped.
pub(super) struct Store;

/// Starts a store in this process.
pub(super) fn start() -> io::Result<(Store, Upstream)> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "it is not part of this version; name a server with --upstream redis://host:port",
    ))
}
