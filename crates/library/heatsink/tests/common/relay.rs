//! A network between a process and its server that can keep what was sent for a while.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// Passes bytes on between a port of its own and a server's.
pub(crate) struct Relay {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Relay {
    pub(crate) fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let gate = Arc::new(Gate::default());
        let waits = Arc::clone(&gate);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (client_too, server_too) = (client.try_clone(), server.try_clone());
                let (Ok(client_too), Ok(server_too)) = (client_too, server_too) else { continue };
                let gate = Arc::clone(&waits);
                std::thread::spawn(move || pass(client, server, &gate));
                let open = Gate::default();
                std::thread::spawn(move || pass(server_too, client_too, &open));
            }
        });
        Self { port, gate }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on nothing that clients send arrives.
    pub(crate) fn hold(&self) {
        *self.gate.is_closed.lock().unwrap() = true;
    }

    /// Everything arrives, also what was sent on connections that are closed by now.
    pub(crate) fn release(&self) {
        *self.gate.is_closed.lock().unwrap() = false;
        self.gate.opened.notify_all();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let held = gate.opened.wait_while(gate.is_closed.lock().unwrap(), |closed| *closed);
        drop(held.unwrap());
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
