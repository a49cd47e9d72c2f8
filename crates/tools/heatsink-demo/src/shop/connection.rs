//! One customer connection: sends what is due, judges what comes back.
//!
//! Bound: [`PIPELINE`] requests out; what is due beyond waits for [`PATIENCE`].
//! Invariant: replies are judged in the order of the requests; a connection that is lost loses
//! its requests, and their writes are never acknowledged in the ledger.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use heatsink_load::memory::{Memory, Question};
use heatsink_load::pipe::Pipe;
use heatsink_load::stamp::{self, Stamp};
use heatsink_load::verdict::{Kind, Mismatches};
use heatsink_load::workload::{Action, KeyId, Operation, OperationStream};
use heatsink_resp::encode;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::{Ground, PATIENCE, PIPELINE, Tally};
use crate::options::{ITEM_BYTES, ITEMS};

const CONNECT_PATIENCE: Duration = Duration::from_millis(500);
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// Longer than any reply that is expected.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A request that is out.
#[derive(Clone, Copy, Debug)]
struct Sent {
    operation: Operation,
    due: Duration,
    /// Of a write.
    version: u64,
    floor: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    number: u32,
    proxy: SocketAddr,
    pipe: Option<Pipe>,
    reconnect_at: Duration,
    sent: VecDeque<Sent>,
    /// When those that wait were due.
    waiting: VecDeque<Duration>,
    operations: OperationStream,
    memory: Memory,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Connection {
    pub(super) fn new(number: u32, proxy: SocketAddr, operations: OperationStream) -> Self {
        Self {
            number,
            proxy,
            pipe: None,
            reconnect_at: Duration::ZERO,
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            operations,
            memory: Memory::new(ITEMS as usize, 1),
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// A request is due.
    pub(super) fn enqueue(&mut self, due: Duration) {
        self.waiting.push_back(due);
    }

    /// Nobody is waited on any more.
    pub(super) fn send_home(&mut self) {
        self.waiting.clear();
    }

    /// Nothing is out.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// Sends what may go.
    pub(super) fn serve(
        &mut self,
        ground: &Ground,
        now: Duration,
        registry: &Registry,
        tally: &mut Tally,
    ) {
        while self.waiting.front().is_some_and(|due| *due + PATIENCE < now) {
            self.waiting.pop_front();
            tally.given_up += 1;
            tally.record(PATIENCE);
        }
        if self.pipe.is_none() {
            if now < self.reconnect_at || self.waiting.is_empty() {
                return;
            }
            match self.connect(registry) {
                Ok(stream) => self.pipe = Some(Pipe::over(stream)),
                Err(error) => return self.lose(&error, ground, tally),
            }
        }
        while self.sent.len() < PIPELINE
            && let Some(due) = self.waiting.pop_front()
        {
            self.request(due, ground);
        }
        if let Some(Err(error)) = self.pipe.as_mut().map(Pipe::write) {
            self.lose(&error, ground, tally);
        }
    }

    fn connect(&self, registry: &Registry) -> io::Result<TcpStream> {
        let stream = std::net::TcpStream::connect_timeout(&self.proxy, CONNECT_PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, Token(self.number as usize), interest)?;
        Ok(stream)
    }

    fn request(&mut self, due: Duration, ground: &Ground) {
        let Some(pipe) = &mut self.pipe else { return };
        let operation = self.operations.next(due);
        let mut sent = Sent { operation, due, version: 0, floor: 0 };
        self.name.clear();
        operation.key.write_name(ground.prefix, &mut self.name);
        match (operation.action, operation.key) {
            (Action::Write, KeyId::Item(number)) => {
                (sent.version, sent.floor) = ground.ledger.issue(number as usize);
                let (run, version, floor) = (ground.ledger.run, sent.version, sent.floor);
                self.value.clear();
                let stamp = Stamp { run, version, floor };
                stamp::write(&mut self.value, &self.name, stamp, ITEM_BYTES);
                encode::command(pipe.outbox(), &[b"SET", &*self.name, &*self.value]);
            }
            (Action::Count, _) => {
                ground.ledger.counter(0).issue();
                encode::command(pipe.outbox(), &[b"INCR", &*self.name]);
            }
            _ => encode::command(pipe.outbox(), &[b"GET", &*self.name]),
        }
        self.sent.push_back(sent);
    }

    /// Reads and judges what has come.
    pub(super) fn receive(&mut self, ground: &Ground, tally: &mut Tally) {
        if let Err(error) = self.try_receive(ground, tally) {
            self.lose(&error, ground, tally);
        }
    }

    fn try_receive(&mut self, ground: &Ground, tally: &mut Tally) -> io::Result<()> {
        let Some(mut pipe) = self.pipe.take() else { return Ok(()) };
        let result = pipe.write().and_then(|()| {
            pipe.read(REPLY_BYTES_MAX, |frame| {
                let sent = self.sent.pop_front().ok_or(io::ErrorKind::InvalidData)?;
                tally.answered += 1;
                tally.record(ground.epoch.elapsed().saturating_sub(sent.due));
                self.judge(&sent, frame, ground, tally);
                Ok(())
            })
        });
        self.pipe = Some(pipe);
        result
    }

    fn judge(&mut self, sent: &Sent, frame: &[u8], ground: &Ground, tally: &mut Tally) {
        let key = sent.operation.key;
        if frame.starts_with(b"-") {
            return tally.errors.add(|| frame.escape_ascii().to_string());
        }
        let mismatches = &mut tally.mismatches;
        match (sent.operation.action, key) {
            (Action::Write, KeyId::Item(number)) if frame == b"+OK\r\n" => {
                ground.ledger.acknowledge(number as usize, sent.floor);
                self.memory.remember(number as usize, sent.version, sent.floor);
            }
            (Action::Read, KeyId::Item(number)) => {
                let name = key.name(ground.prefix);
                let Some(value) = bulk(frame) else {
                    return mismatches.add(Kind::Missing, || name.escape_ascii().to_string());
                };
                // What a cache may be behind by is not asked here.
                let question = Question { at: number as usize, key: &name, superseded: 0 };
                self.memory.judge_value(question, value, &ground.ledger, mismatches);
            }
            (Action::Read, KeyId::Counter(_)) => {
                let value = bulk(frame).and_then(number);
                self.judge_counter(value, false, ground, mismatches);
            }
            (Action::Count, KeyId::Counter(_)) => {
                let text = frame.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
                self.judge_counter(text.and_then(number), true, ground, mismatches);
            }
            _ => mismatches.add(Kind::Corrupted, || frame.escape_ascii().to_string()),
        }
    }

    fn judge_counter(
        &mut self,
        value: Option<u64>,
        is_increment: bool,
        ground: &Ground,
        mismatches: &mut Mismatches,
    ) {
        let Some(value) = value else {
            return mismatches.add(Kind::Corrupted, || "the counter is no number".to_owned());
        };
        self.memory.judge_counter(0, value, is_increment, &ground.ledger, mismatches);
    }

    /// The connection is gone, and with it what was out.
    fn lose(&mut self, error: &io::Error, ground: &Ground, tally: &mut Tally) {
        tally.errors.add(|| format!("a connection to {} was lost: {error}", self.proxy));
        self.pipe = None;
        self.reconnect_at = ground.epoch.elapsed() + RECONNECT_AFTER;
        self.sent.clear();
    }
}

/// The content of a bulk string.
fn bulk(frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(b"$")?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    rest.get(end + 1..)?.strip_suffix(b"\r\n")
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use heatsink_load::ledger::Ledger;
    use heatsink_load::workload::{Shape, Workload};

    use super::*;

    #[test]
    fn what_is_wrong_is_noticed_and_what_may_be_is_not() {
        let shape = Shape { keys: 1, exponent: 1.0, write_share: 0.0, seed: 1 };
        let workload = Workload::new(shape, Vec::new()).expect("a workload");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut connection = Connection::new(0, nowhere, workload.stream(0));
        let ground = Ground {
            prefix: "shop:",
            ledger: Ledger::new(7, ITEMS as usize, 1),
            epoch: Instant::now(),
            tally: Mutex::new(Tally::new()),
            stop: AtomicBool::new(false),
        };
        let mut tally = Tally::new();
        let mut judge = |action, key, frame: &[u8]| {
            let operation = Operation { key, action };
            let (version, floor) = match action {
                Action::Write => ground.ledger.issue(5),
                _ => (0, 0),
            };
            let sent = Sent { operation, due: Duration::ZERO, version, floor };
            connection.judge(&sent, frame, &ground, &mut tally);
            tally.mismatches.count()
        };
        let (item, counter) = (KeyId::Item(5), KeyId::Counter(0));
        let value = |version, floor| {
            let mut value = Vec::new();
            let stamp = Stamp { run: 7, version, floor };
            stamp::write(&mut value, &item.name("shop:"), stamp, ITEM_BYTES);
            [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()
        };
        assert_eq!(judge(Action::Write, item, b"+OK\r\n"), 0);
        assert_eq!(judge(Action::Write, item, b"+OK\r\n"), 0);
        assert_eq!(judge(Action::Read, item, &value(2, 1)), 0);
        assert_eq!(judge(Action::Read, item, &value(1, 0)), 1, "went back behind its own write");
        assert_eq!(judge(Action::Read, item, b"$-1\r\n"), 2, "missing");
        assert_eq!(judge(Action::Read, item, b"$1\r\nx\r\n"), 3, "damaged");
        ground.ledger.counter(0).issue();
        assert_eq!(judge(Action::Count, counter, b":1\r\n"), 3);
        assert_eq!(judge(Action::Read, counter, b"$1\r\n1\r\n"), 3);
        assert_eq!(judge(Action::Read, counter, b"$1\r\nx\r\n"), 4, "no number");
        assert_eq!(judge(Action::Count, counter, b":1\r\n"), 5, "given twice");
    }

    #[test]
    fn bulk_strings_are_unpacked() {
        assert_eq!(bulk(b"$5\r\na\r\nbc\r\n"), Some(&b"a\r\nbc"[..]));
        assert_eq!(bulk(b"$-1\r\n"), None);
        assert_eq!(bulk(b"+OK\r\n"), None);
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(b"-1"), None);
    }
}
