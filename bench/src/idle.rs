//! What an idle connection costs.
//!
//! Called by: `main`.
//! Bound: the number of connections asked for, and `ACCEPT_TIMEOUT`.
//! Invariant: the figure is growth of the process's resident memory divided by connections
//! that the process has really accepted; the kernel's memory for sockets is not in it.

use std::fmt::Write as _;
use std::time::Duration;

use heatsink_testkit::{ProcStats, RawClient, Reply, open_fds, poll_until};

use crate::machine::Machine;
use crate::peer::Peer;

const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);
const PINGED: usize = 100;

/// What was seen at one peer.
pub(crate) struct Idle {
    peer: String,
    outcome: Result<Memory, String>,
}

struct Memory {
    before_bytes: u64,
    /// With all connections open that have not sent anything.
    opened_bytes: u64,
    /// After each of them has sent one PING and read the answer.
    used_bytes: u64,
    /// Of `PINGED` random connections, how many answered at the end.
    answered: usize,
}

/// Opens `connections` to the peer and looks at its memory.
pub(crate) fn measure(peer: &Peer, connections: usize) -> Idle {
    eprintln!("opening {connections} connections to {}", peer.name);
    let outcome = memory(peer, connections).map_err(|error| error.to_string());
    Idle { peer: peer.name.clone(), outcome }
}

fn memory(peer: &Peer, connections: usize) -> std::io::Result<Memory> {
    // No peer here is a cluster, so there is one.
    let pid = *peer.pids().first().ok_or_else(|| std::io::Error::other("no process"))?;
    let rss_bytes = || ProcStats::of(pid).map(|stats| stats.rss_bytes);
    // What is allocated once, at the first client, is no cost of a connection.
    ping(&mut RawClient::try_connect(peer.target.addr)?)?;
    let before_bytes = rss_bytes()?;
    let fds_before = open_fds(pid)?;
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(RawClient::try_connect(peer.target.addr)?);
    }
    // The connection above may have been counted and closed since.
    let accepted = || open_fds(pid).is_ok_and(|now| now + 1 >= fds_before + connections);
    poll_until(ACCEPT_TIMEOUT, accepted)
        .ok_or_else(|| std::io::Error::other("not all connections were accepted"))?;
    let opened_bytes = rss_bytes()?;
    for client in &mut clients {
        ping(client)?;
    }
    let used_bytes = rss_bytes()?;
    let answered = (0..PINGED.min(connections))
        .filter(|_| ping(&mut clients[fastrand::usize(..connections)]).is_ok())
        .count();
    Ok(Memory { before_bytes, opened_bytes, used_bytes, answered })
}

fn ping(client: &mut RawClient) -> std::io::Result<()> {
    match client.try_command(&["PING"])? {
        Reply::Simple(text) if text == "PONG" => Ok(()),
        other => Err(std::io::Error::other(format!("PING answered {other}"))),
    }
}

/// The result for a reader.
pub(crate) fn markdown(machine: &Machine, connections: usize, rows: &[Idle]) -> String {
    let mut text = format!(
        "## {connections} idle connections\n\n{machine}\n\
         | peer | resident before, KiB | bytes per connection, opened | after one PING each | random PINGs answered |\n\
         |---|--:|--:|--:|--:|\n"
    );
    for Idle { peer, outcome } in rows {
        let _ = match outcome {
            Ok(memory) => {
                let each = |bytes: u64| {
                    (bytes as f64 - memory.before_bytes as f64) / connections.max(1) as f64
                };
                writeln!(
                    text,
                    "| {peer} | {} | {:.0} | {:.0} | {} |",
                    memory.before_bytes / 1024,
                    each(memory.opened_bytes),
                    each(memory.used_bytes),
                    memory.answered,
                )
            }
            Err(error) => writeln!(text, "| {peer} | failed: {error} | - | - | - |"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy;

    #[test]
    fn connections_are_held_and_answer() {
        let idle = measure(&proxy::plain().expect("a server"), 300);
        let memory = idle.outcome.expect("measured");
        assert_eq!(memory.answered, PINGED);
        assert!(memory.used_bytes > memory.before_bytes);
    }
}
