//! Accepts clients and deals them out to the workers in turn.
//!
//! Bound: `limits.max_clients`; one more is told so and closed.

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::shared::{Message, Shared};

/// Runs until `stop` is set and the listener is shut.
pub(crate) fn accept_clients(listener: &TcpListener, shared: &Arc<Shared>, stop: &AtomicBool) {
    let mut next = 0;
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((socket, addr)) => {
                let count = shared.client_count.fetch_add(1, Ordering::AcqRel);
                if count >= shared.config.limits.max_clients {
                    shared.client_count.fetch_sub(1, Ordering::AcqRel);
                    turn_away(&socket);
                    continue;
                }
                next = (next + 1) % shared.mailboxes.len();
                shared.mailboxes[next].send(Message::Accept(socket, addr));
            }
            Err(error) => {
                // Out of descriptors, most likely: clients wait in the backlog meanwhile.
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!(%error, "a client could not be accepted");
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

fn turn_away(socket: &TcpStream) {
    tracing::warn!("a client was turned away: limits.max_clients is reached");
    let _ = socket.set_nonblocking(true);
    let _ = (&*socket).write_all(b"-ERR max number of clients reached\r\n");
    let _ = socket.shutdown(Shutdown::Write);
}
