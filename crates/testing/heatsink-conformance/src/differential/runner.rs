//! Sends requests to both sides and compares what comes back.
//!
//! Called by: `compare` and `compare_plain`.
//! Bound: `CONNECTIONS` connections a side; the last `SHOWN` requests are kept for the message.
//! Invariant: a connection's replies are all read before another connection sends.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use heatsink_testkit::{RawClient, encode};

use super::check::{Check, payload};
use super::generator::{Generator, LIMITED_PASSWORD, LIMITED_USER, Request};
use super::{BURST_BYTES, BURST_COMMANDS, Keys, Mode, Protocol};

const CONNECTIONS: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(30);
const SHOWN: usize = 12;
const SHOWN_BYTES: usize = 600;

/// The same connection to both sides.
struct Pair {
    reference: RawClient,
    tested: RawClient,
}

pub(super) struct Runner {
    addrs: [SocketAddr; 2],
    seed: u64,
    mode: Mode,
    generator: Generator,
    pairs: Vec<Pair>,
    /// Sends what the connections under test must hear about.
    helper: Pair,
    step: usize,
    shown: VecDeque<String>,
}

impl Runner {
    pub(super) fn new(
        reference: SocketAddr,
        tested: SocketAddr,
        seed: u64,
        mode: Mode,
        keys: Keys,
    ) -> Self {
        let addrs = [reference, tested];
        let mut runner = Self {
            addrs,
            seed,
            mode,
            generator: Generator::new(seed, CONNECTIONS, mode.protocol == Protocol::Resp3, keys),
            pairs: Vec::new(),
            helper: Pair::open(addrs),
            step: 0,
            shown: VecDeque::new(),
        };
        let user = limited_user();
        runner.ask_helper(&user.iter().map(String::as_str).collect::<Vec<_>>());
        for index in 0..CONNECTIONS {
            runner.pairs.push(Pair::open(addrs));
            runner.greet(index);
        }
        runner
    }

    pub(super) fn run(mut self, steps: usize) {
        while self.step < steps {
            let index = self.generator.words.below(CONNECTIONS as u64) as usize;
            self.burst(index, steps);
            if self.generator.words.chance(2) {
                self.invalidation(index);
            }
        }
        for index in 0..CONNECTIONS {
            self.exchange(index, &["RESET"], Check::Exact);
            self.exchange(index, &["ECHO", "the end"], Check::Exact);
            let last = self.pairs[index].reference.command(&["ECHO", "nothing left over"]);
            assert_eq!(last.text(), "nothing left over", "the model lost count of the replies");
        }
    }

    fn burst(&mut self, index: usize, steps: usize) {
        let most = match (self.mode.pipelined, self.generator.words.below(3)) {
            (false, _) => 1,
            (true, 0) => BURST_COMMANDS as u64,
            (true, _) => 20,
        };
        let count = 1 + self.generator.words.below(most) as usize;
        let mut bytes = Vec::new();
        let mut requests: Vec<(usize, Request)> = Vec::new();
        while requests.len() < count && bytes.len() < BURST_BYTES && self.step < steps {
            let request = self.generator.next(index);
            self.step += 1;
            bytes.extend_from_slice(&request.bytes);
            let closes = request.closes;
            requests.push((self.step, request));
            if closes {
                break;
            }
        }
        self.send_in_pieces(index, &bytes);
        let mut deliveries = [0; CONNECTIONS];
        let mut closed = false;
        for (step, request) in requests {
            self.show(&format!("step {step} connection {index}"), &request.bytes);
            for &check in &request.checks {
                self.receive(index, check);
            }
            for (other, copies) in request.deliveries {
                deliveries[other] += copies;
            }
            closed = request.closes;
        }
        for (other, copies) in deliveries.into_iter().enumerate() {
            for _ in 0..copies {
                self.show(&format!("a message for connection {other}"), b"");
                self.receive(other, Check::Exact);
            }
        }
        if closed {
            self.expect_closed(index);
            self.pairs[index] = Pair::open(self.addrs);
            self.greet(index);
        }
    }

    /// Cuts the stream at the same random places for both sides.
    fn send_in_pieces(&mut self, index: usize, bytes: &[u8]) {
        let words = &mut self.generator.words;
        let pieces = match words.below(10) {
            0 if bytes.len() < 200 => bytes.len(),
            0..=5 if self.mode.pipelined => 1 + words.below(8) as usize,
            _ => 1,
        };
        let mut cuts: Vec<usize> = match pieces {
            pieces if pieces == bytes.len() => (0..pieces).collect(),
            pieces => (1..pieces).map(|_| words.below(bytes.len() as u64) as usize).collect(),
        };
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let mut start = 0;
        for end in cuts {
            if end > start {
                self.pairs[index].send(&bytes[start..end]);
                start = end;
            }
        }
    }

    /// Tells whether a client that caches is told of changes.
    fn invalidation(&mut self, index: usize) {
        let connection = &self.generator.connections[index];
        if !connection.resp3 || connection.in_multi || self.generator.words.clustered() {
            return;
        }
        let how: &[&str] = self.generator.words.pick(&[
            &["CLIENT", "TRACKING", "ON"][..],
            &["CLIENT", "TRACKING", "ON", "NOLOOP"],
            &["CLIENT", "TRACKING", "ON", "OPTIN"],
            &["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "tracked"],
        ]);
        self.exchange(index, how, Check::Exact);
        self.exchange(index, &["CLIENT", "TRACKINGINFO"], Check::Exact);
        if how.contains(&"OPTIN") {
            self.exchange(index, &["CLIENT", "CACHING", "YES"], Check::Exact);
        }
        self.exchange(index, &["GET", "tracked"], Check::Exact);
        self.ask_helper(&["SET", "tracked", &self.step.to_string()]);
        self.receive(index, Check::Exact);
        self.exchange(index, &["CLIENT", "TRACKING", "OFF"], Check::Exact);
    }

    fn greet(&mut self, index: usize) {
        if self.mode.protocol == Protocol::Resp3 {
            self.exchange(index, &["HELLO", "3"], Check::Hello);
        }
    }

    fn exchange(&mut self, index: usize, args: &[&str], check: Check) {
        let bytes = encode(args);
        self.show(&format!("connection {index}"), &bytes);
        self.pairs[index].send(&bytes);
        self.receive(index, check);
    }

    fn ask_helper(&mut self, args: &[&str]) {
        let bytes = encode(args);
        self.show("helper", &bytes);
        let replies = (self.helper.reference.command(args), self.helper.tested.command(args));
        assert!(replies.0 == replies.1, "{}{replies:?}", self.story());
    }

    fn receive(&mut self, index: usize, check: Check) {
        let pair = &mut self.pairs[index];
        let reference = pair.reference.try_read_frame(TIMEOUT);
        let tested = pair.tested.try_read_frame(TIMEOUT);
        match (&reference, &tested) {
            (Ok(Some(one)), Ok(Some(other))) if check.same(one, other) => {
                if check == Check::Dump && !payload(one).is_empty() {
                    self.generator.words.dumped = Some(payload(one).to_vec());
                }
            }
            _ => panic!(
                "replies differ ({check:?})\n{}expected: {}\ngot:      {}\n",
                self.story(),
                describe(&reference),
                describe(&tested)
            ),
        }
    }

    fn expect_closed(&mut self, index: usize) {
        let pair = &mut self.pairs[index];
        let reference = pair.reference.try_read_frame(TIMEOUT);
        let tested = pair.tested.try_read_frame(TIMEOUT);
        assert!(
            reference.is_err() && tested.is_err(),
            "{}both should hang up\nexpected: {}\ngot:      {}\n",
            self.story(),
            describe(&reference),
            describe(&tested)
        );
    }

    fn show(&mut self, who: &str, bytes: &[u8]) {
        if self.shown.len() == SHOWN {
            self.shown.pop_front();
        }
        self.shown.push_back(format!("{who}: {}", escaped(bytes)));
    }

    fn story(&self) -> String {
        let shown: Vec<&str> = self.shown.iter().map(String::as_str).collect();
        let (seed, mode) = (self.seed, self.mode);
        format!("seed {seed}, {mode:?}; the last of these is the one:\n{}\n", shown.join("\n"))
    }
}

/// The command that makes the user whose rights are fewer.
pub(super) fn limited_user() -> Vec<String> {
    let password = format!(">{LIMITED_PASSWORD}");
    let user = ["ACL", "SETUSER", LIMITED_USER, "on", &password];
    user.into_iter().chain(["~*", "&*", "+@all", "-@dangerous"]).map(str::to_owned).collect()
}

impl Pair {
    fn open(addrs: [SocketAddr; 2]) -> Self {
        let [reference, tested] = addrs.map(RawClient::connect);
        Self { reference, tested }
    }

    /// A side that has hung up is noticed when its reply is read.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.reference.try_send_raw(bytes);
        let _ = self.tested.try_send_raw(bytes);
    }
}

fn describe(read: &io::Result<Option<Vec<u8>>>) -> String {
    match read {
        Ok(Some(frame)) => escaped(frame),
        Ok(None) => format!("nothing within {TIMEOUT:?}"),
        Err(error) => error.to_string(),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let rest = bytes.len() - shown.len();
    let more = if rest > 0 { format!("... and {rest} bytes") } else { String::new() };
    format!("{}{more}", shown.escape_ascii())
}
