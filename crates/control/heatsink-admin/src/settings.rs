//! What can be set about the HTTP side, each figure a bound.
//!
//! Called by: the process that starts a [`crate::Server`].

use std::time::Duration;

use crate::access::Token;
use crate::key_name::Privacy;

/// How the HTTP side works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bearer token. Without one the listener must be on loopback.
    pub token: Option<Token>,
    /// Names besides `localhost` and loopback addresses that a request without a token may be
    /// meant for, without a port: for a reverse proxy that passes the outer name on.
    pub allowed_hosts: Vec<String>,
    /// Whether people may see raw keys.
    pub privacy: Privacy,
    /// Hot keys that are written by name in the metrics; the rest are summed.
    pub metric_keys: usize,
    /// From one sample of the fleet to the next; see `/history`.
    pub sample_interval: Duration,
    /// The bounds.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            token: None,
            allowed_hosts: Vec::new(),
            privacy: Privacy::Plain,
            metric_keys: 50,
            sample_interval: Duration::from_secs(1),
            limits: Limits::default(),
        }
    }
}

/// What clients may use of the HTTP side.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time on which a request has passed the check of access; on further ones
    /// it is told to come later.
    pub connections: usize,
    /// Connections at a time on which none has; for one more, an older one is closed.
    pub strangers: usize,
    /// Connections at a time that listen for events; further ones are told to come later.
    pub event_clients: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Requests/s of all clients together; health checks do not count.
    pub requests_per_second: u32,
    /// Requests that may come at once before the rate holds.
    pub burst: u32,
    /// For a request's line and headers to arrive, also the first byte on an idle connection;
    /// again for its body; and for a peer to take what was sent to it.
    pub read_timeout: Duration,
    /// For an answer to be made, the store's part included.
    pub request_timeout: Duration,
    /// Between signs of life on a stream of events.
    pub event_keep_alive: Duration,
    /// For open requests to end when the server stops.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            strangers: 128,
            event_clients: 64,
            body_bytes: 16 * 1024,
            requests_per_second: 200,
            burst: 400,
            read_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            event_keep_alive: Duration::from_secs(15),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}
