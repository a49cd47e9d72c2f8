//! What Heatsink itself says to servers, and how a client's `MONITOR` is kept from showing it.
//!
//! A server's `MONITOR` shows the address of whoever sent a command. Each upstream connection is noted
//! here under the address of this side, and lines that come from one of them are left out if they show
//! what no client's request can be there:
//!
//! | connection | left out |
//! |---|---|
//! | of the cache | `PING`, `CLIENT`, and how it logs in: clients' requests there are reads of keys |
//! | dedicated to a client | `HELLO`, by which each begins: spare ones are opened while a client looks on; `CLIENT SETNAME`: clients' names are kept in the proxy; `CLIENT ID`: it is answered here; within a transaction both are passed on in small messages |
//!
//! On shared connections clients' requests look the same, so everything is shown. If addresses are
//! translated on the way to the server, nothing is left out.
//!
//! Called by: `pools`, when connections are opened and closed; `dedicated`, with what a server tells.
//! Bound: an entry for each connection that is not shared.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cache,
    Dedicated,
}

/// Upstream connections of this process, by the address of this side.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Mutex<HashMap<SocketAddr, Kind>>);

impl Sockets {
    pub(crate) fn opened(&self, address: SocketAddr, kind: Kind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address, kind);
    }

    pub(crate) fn closed(&self, address: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    /// Heatsink said this, not a client.
    pub(crate) fn said(&self, line: &Line<'_>) -> bool {
        let kind = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&line.from).copied();
        match kind {
            Some(Kind::Cache) => {
                let own: [&[u8]; 6] =
                    [b"PING", b"CLIENT", b"HELLO", b"AUTH", b"SELECT", b"SUBSCRIBE"];
                own.contains(&line.command)
            }
            Some(Kind::Dedicated) => {
                let of_client: [&[u8]; 2] = [b"SETNAME", b"ID"];
                line.command == b"HELLO"
                    || line.command == b"CLIENT" && of_client.contains(&line.second)
            }
            None => false,
        }
    }
}

/// A line of `MONITOR`: `+1700000000.123456 [0 127.0.0.1:5000] "GET" "k"`, or its beginning.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Nobody's, if the command came from a script, or over a Unix socket.
    from: SocketAddr,
    command: &'a [u8],
    second: &'a [u8],
}

/// An address that no connection has.
const NOBODY: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0));

impl<'a> Line<'a> {
    /// `None` if a frame is anything else.
    pub(crate) fn of(frame: &'a [u8]) -> Option<Self> {
        let rest = frame.strip_prefix(b"+")?;
        let time = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        let rest = rest[time..].strip_prefix(b" [").filter(|_| time > 0)?;
        let (origin, rest) = split(rest, b"] ")?;
        let (_database, address) = split(origin, b" ")?;
        let from = std::str::from_utf8(address).ok().and_then(|text| text.parse().ok());
        let mut words = rest.split(|byte| *byte == b' ').map(unquoted);
        Some(Self {
            from: from.unwrap_or(NOBODY),
            command: words.next().unwrap_or_default(),
            second: words.next().unwrap_or_default(),
        })
    }
}

fn split<'a>(text: &'a [u8], by: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, by)?;
    Some((&text[..at], &text[at + by.len()..]))
}

/// A word without its quotes; one that has any inside is none of those that are looked for.
fn unquoted(word: &[u8]) -> &[u8] {
    let word = word.strip_suffix(b"\r\n").unwrap_or(word);
    word.strip_prefix(b"\"").and_then(|word| word.strip_suffix(b"\"")).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_client_can_have_sent_is_heatsinks_own() {
        let sockets = Sockets::default();
        let (cache, dedicated) = ("127.0.0.1:5000".parse().unwrap(), "[::1]:5001".parse().unwrap());
        sockets.opened(cache, Kind::Cache);
        sockets.opened(dedicated, Kind::Dedicated);
        let said = |text: &str| {
            let frame = format!("+1700000000.000001 [0 {text}\r\n");
            sockets.said(&Line::of(frame.as_bytes()).expect("a line"))
        };
        assert!(said("127.0.0.1:5000] \"PING\""));
        assert!(said("127.0.0.1:5000] \"CLIENT\" \"CACHING\" \"YES\""));
        assert!(said("[::1]:5001] \"CLIENT\" \"SETNAME\" \"a\""));
        assert!(!said("127.0.0.1:5000] \"GET\" \"PING\""));
        assert!(!said("127.0.0.1:5000] \"PTTL\" \"k\""));
        assert!(!said("[::1]:5001] \"PING\""));
        assert!(said("[::1]:5001] \"CLIENT\" \"ID\""));
        assert!(said("[::1]:5001] \"HELLO\" \"3\""));
        assert!(!said("[::1]:5001] \"client\" \"id\""));
        assert!(!said("[::1]:5001] \"SET\" \"a\" \"CLIENT SETNAME\""));
        assert!(!said("127.0.0.1:5002] \"PING\""));
        assert!(!said("lua] \"PING\""));
        assert!(!said("unix:/tmp/s] \"PING\""));
        sockets.closed(cache);
        assert!(!said("127.0.0.1:5000] \"PING\""));
    }

    #[test]
    fn replies_are_no_lines() {
        for frame in
            ["+OK\r\n", "+1.5\r\n", "-ERR 1.5 [0 x] \"\"\r\n", "$1\r\nx\r\n", "+ [0 x] y\r\n"]
        {
            assert_eq!(Line::of(frame.as_bytes()), None, "{frame:?}");
        }
    }
}
