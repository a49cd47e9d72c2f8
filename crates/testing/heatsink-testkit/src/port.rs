//! Ports for servers under test.
//!
//! Called by: `redis_server`, and tests that start other programs.
//! Bound: `TRIES` ports are tried before the kernel is asked for any.
//! Invariant: a port handed out lies below the range the kernel takes client ports from. A
//! port inside that range can be taken by anybody's outgoing connection while its server is
//! down, and a client that keeps dialling it can even connect to itself.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const LOWEST: u32 = 10_000;
const TRIES: usize = 200;

/// A port on 127.0.0.1 that nobody listens on at this moment, never given twice to the same
/// test program unless the range is used up.
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let count = client_ports_start().saturating_sub(LOWEST);
    if count > 0 {
        // A random start keeps test programs that run at the same time apart.
        let next = NEXT.get_or_init(|| AtomicU32::new(fastrand::u32(..count)));
        for _ in 0..TRIES {
            let port = (LOWEST + next.fetch_add(1, Ordering::Relaxed) % count) as u16;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return port;
            }
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind to any port");
    listener.local_addr().expect("a bound listener has an address").port()
}

fn client_ports_start() -> u32 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(LOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ports_are_distinct_and_can_be_bound() {
        let ports: HashSet<u16> = (0..20).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 20);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).expect("bind");
        assert_ne!(taken.local_addr().expect("address").port(), free_port());
    }
}
