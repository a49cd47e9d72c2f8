//! Plain HTTP: for what the client of the command line has no method for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::support::PATIENCE;

/// The status and the body of an answer; `None` if nothing listens there.
pub(crate) fn get(address: SocketAddr, path: &str, token: Option<&str>) -> Option<(u16, String)> {
    let mut stream = request(address, path, token)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

fn request(address: SocketAddr, path: &str, token: Option<&str>) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let token = token.map_or_else(String::new, |it| format!("Authorization: Bearer {it}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{token}\r\n")
        .ok()?;
    Some(stream)
}

/// A stream of events, collected as it comes.
pub(crate) struct Events {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Events {
    /// Listens; returns once the server has said hello.
    pub(crate) fn of(address: SocketAddr) -> Self {
        let stream = request(address, "/events", None).expect("it listens");
        let text = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&text);
        // Ends with the process that sends.
        let reader = thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend([line.as_str(), "\n"]);
            }
        });
        let events = Self { text, reader };
        heatsink_testkit::eventually(PATIENCE, || events.text().contains("event: hello"));
        events
    }

    /// Whether the stream is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.reader.is_finished()
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
