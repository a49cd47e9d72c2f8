//! The server of the simulation: a string `k`, a field of a hash, one pipeline.

use std::collections::VecDeque;

use crate::combine::{BatchId, integer};
use crate::flights::FlightId;

/// What travels to the server.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Flight(FlightId),
    Batch(BatchId, Vec<u8>),
}

/// What was executed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Executed {
    /// Instant of execution; each has its own.
    pub(super) at: u64,
    /// The value before.
    pub(super) before: i64,
    /// The value after.
    pub(super) after: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Executed(Executed),
    /// Refused, nothing was changed.
    Error,
    /// To be asked elsewhere, nothing was changed.
    Moved,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) values: [i64; 2],
    pub(super) requests: VecDeque<Request>,
    pub(super) replies: VecDeque<(Request, Reply)>,
    /// What the next batch is answered with instead of being executed.
    pub(super) fault: Option<Reply>,
}

impl Server {
    pub(super) fn execute(&mut self, at: u64) {
        let Some(request) = self.requests.pop_front() else { return };
        let reply = match &request {
            Request::Flight(_) => {
                let value = self.values[0];
                Reply::Executed(Executed { at, before: value, after: value })
            }
            Request::Batch(_, bytes) => match self.fault.take() {
                Some(fault) => fault,
                None => self.write(bytes, at),
            },
        };
        self.replies.push_back((request, reply));
    }

    fn write(&mut self, request: &[u8], at: u64) -> Reply {
        let text = str::from_utf8(request).expect("plain text");
        let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
        let number = |text: &str| integer(text.as_bytes()).expect("a number");
        let (place, change) = match *words {
            ["INCR", "k"] => (0, Some(1)),
            ["DECR", "k"] => (0, Some(-1)),
            ["INCRBY", "k", by] => (0, Some(number(by))),
            ["DECRBY", "k", by] => (0, Some(-number(by))),
            ["HINCRBY", "h", "f", by] => (1, Some(number(by))),
            ["SET", "k", _] => (0, None),
            _ => panic!("{text:?}"),
        };
        let before = self.values[place];
        let after = match change {
            Some(by) => before.checked_add(by),
            None => Some(number(words[2])),
        };
        let Some(after) = after else { return Reply::Error };
        self.values[place] = after;
        Reply::Executed(Executed { at, before, after })
    }
}
