//! The upstream that needs no server: a store in this process.

use std::io;

use heatsink_embedded::Server;
use heatsink_upstream::address::{Endpoint, Upstream};

/// Starts the store. It ends when it is dropped, so the caller keeps it as long as the proxy.
pub(super) fn start() -> io::Result<(Server, Upstream)> {
    let store = Server::start()?;
    let endpoint = Endpoint::InProcess(store.dialer());
    Ok((store, Upstream { endpoint, credentials: None, db: 0 }))
}
