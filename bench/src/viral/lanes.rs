//! Connections that each have one request under way.
//!
//! Called by: `viral::one_key` and `viral::zipf`.
//! Bound: one request a connection.
//! Invariant: the order in which requests are sent is that in which they were asked for; a reply
//! that is an error ends the measurement.

use std::io;
use std::net::SocketAddr;

use heatsink_testkit::{RawClient, Reply};

/// Connections to one peer.
pub(crate) struct Lanes(Vec<RawClient>);

impl Lanes {
    pub(crate) fn connect(addr: SocketAddr, connections: usize) -> Result<Self, String> {
        let clients: io::Result<Vec<_>> =
            (0..connections).map(|_| RawClient::try_connect(addr)).collect();
        clients.map(Self).map_err(|error| format!("{addr}: {error}"))
    }

    /// Sends one request on each connection, then reads all replies; how many these were.
    pub(crate) fn turn(&mut self, mut next: impl FnMut() -> Vec<u8>) -> Result<u64, String> {
        self.exchange(&mut next).map_err(|error| format!("a request failed: {error}"))
    }

    fn exchange(&mut self, next: &mut dyn FnMut() -> Vec<u8>) -> io::Result<u64> {
        for client in &mut self.0 {
            client.try_send_raw(&next())?;
        }
        for client in &mut self.0 {
            match client.try_read_reply()? {
                Reply::Error(error) => return Err(io::Error::other(error)),
                Reply::Null => return Err(io::Error::other("a key does not exist")),
                _ => {}
            }
        }
        Ok(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::{RedisServer, encode};

    use super::*;

    #[test]
    fn every_connection_has_its_turn_and_a_refusal_is_no_answer() {
        let redis = RedisServer::start();
        let mut lanes = Lanes::connect(redis.addr(), 7).expect("connections");
        assert_eq!(lanes.turn(|| encode(&["INCR", "n"])), Ok(7));
        assert_eq!(redis.calls("incr"), 7);
        assert!(lanes.turn(|| encode(&["GET", "other"])).is_err());
        assert!(lanes.turn(|| encode(&["HGET", "n", "field"])).is_err());
    }
}
