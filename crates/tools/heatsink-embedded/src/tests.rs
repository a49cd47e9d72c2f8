//! Tests of the engine in virtual time, a module a topic.

mod expiry;
mod pubsub;
mod requests;
mod robustness;
mod tracking;
mod transactions;

use crate::{ConnId, Engine};

/// An engine with a clock that only moves when told to.
struct Store {
    engine: Engine,
    now_ms: u64,
}

impl Store {
    fn new() -> Self {
        Self { engine: Engine::new(42, 1_000_000), now_ms: 1_000_000 }
    }

    fn connect(&mut self) -> ConnId {
        self.engine.connect(self.now_ms)
    }

    /// A connection that speaks RESP3.
    fn connect_resp3(&mut self) -> ConnId {
        let conn = self.connect();
        self.ask(conn, "HELLO 3");
        conn
    }

    /// Sends a line and returns everything that waits for the connection then.
    fn ask(&mut self, conn: ConnId, line: &str) -> String {
        self.engine.feed(conn, format!("{line}\r\n").as_bytes(), self.now_ms);
        self.heard(conn)
    }

    /// What waits for the connection, with `|` for the end of a line.
    fn heard(&mut self, conn: ConnId) -> String {
        let output = self.engine.take_output(conn);
        String::from_utf8(output).expect("text").replace("\r\n", "|")
    }

    fn pass(&mut self, duration_ms: u64) {
        self.now_ms += duration_ms;
    }

    /// Lets the engine do what it does by itself.
    fn tick(&mut self) {
        self.engine.tick(self.now_ms);
    }
}
