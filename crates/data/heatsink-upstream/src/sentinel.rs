//! Sentinels: which server is the primary now, and to be told when it is another.
//!
//! Called by: whoever dials the upstream of a `redis+sentinel://` URL.
//! Two threads with blocking sockets: one asks a sentinel at every poll interval, at a nudge
//! and at an event; the other waits for events on a sentinel and rings for the first.
//! Bound: two connections to sentinels and, for a moment, one to a server; `MAX_SENTINELS`
//! names; nothing is asked more often than every 20 ms.
//! Invariant: only what a sentinel answered to a question is reported, never what an event
//! said: events have no epoch, so two of them cannot be put in order.

mod line;
mod question;
mod search;
mod shared;
mod subscription;
mod trouble;

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::address::{Endpoint, SentinelUrl};
pub use crate::client::ReadWrite;

use self::line::Dialing;
use self::search::Search;
use self::shared::Shared;
use self::subscription::Subscription;

/// How long a drop waits for the threads. One that looks up a name or connects cannot be
/// interrupted and ends on its own later, without a word.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// Where a server or a sentinel is, as the sentinels call it: an address, or a name where
/// they announce names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocketName {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Endpoint::tcp(&self.host, self.port).fmt(f)
    }
}

/// Makes a connection of a connected socket and the name of the host: the TLS handshake.
///
/// The socket has a read and a write timeout. The result must pass `WouldBlock` on and be
/// readable again after it.
pub type Connector = Arc<dyn Fn(TcpStream, &str) -> io::Result<Box<dyn ReadWrite>> + Send + Sync>;

/// Knows the primary until it is dropped.
pub struct SentinelWatch {
    shared: Arc<Shared>,
}

impl SentinelWatch {
    /// Starts to look for the primary of `url`, and calls `on_primary` with it as soon as it
    /// is found, and again with every other one that takes its place.
    ///
    /// `connect_timeout` bounds connecting and every answer. `connector` is used for sentinels
    /// and servers alike; without one, the connections are plain, which a URL that asks for
    /// TLS does not allow. `on_primary` runs on a thread of the watch, should be short, and
    /// must not drop the watch. It is not called any more once the watch is dropped.
    pub fn start(
        url: SentinelUrl,
        connect_timeout: Duration,
        poll_interval: Duration,
        connector: Option<Connector>,
        on_primary: impl Fn(SocketName) + Send + 'static,
    ) -> io::Result<Self> {
        if url.tls && connector.is_none() {
            let what = "a URL with TLS needs a connector";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let given = url.sentinels.iter();
        let given =
            given.map(|(host, port)| SocketName { host: host.clone(), port: *port }).collect();
        let shared = Arc::new(Shared::new(given));
        // From here on, an error stops the thread that runs already.
        let watch = Self { shared: Arc::clone(&shared) };
        let dialing = Dialing { timeout: connect_timeout, connector, shared };
        let subscription = Subscription::new(&url, dialing.clone());
        let search = Search::new(url, dialing, poll_interval, on_primary);
        watch.spawn("sentinel-poll", move || search.run())?;
        watch.spawn("sentinel-events", move || subscription.run())?;
        Ok(watch)
    }

    /// Asks at once: a connection to the primary was lost, or it answered `-READONLY`.
    pub fn nudge(&self) {
        self.shared.nudge(None);
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let running = Shared::running(&self.shared);
        let run = move || {
            let _running = running;
            run();
        };
        thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }
}

impl Drop for SentinelWatch {
    fn drop(&mut self) {
        self.shared.stop(STOP_WAIT);
    }
}

impl fmt::Debug for SentinelWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelWatch").field("sentinels", &self.shared.known()).finish()
    }
}
