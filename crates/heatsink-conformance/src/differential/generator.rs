//! What the next request of a connection is.
//!
//! Called by: `runner`, once per request.
//! Bound: a transaction is left with probability 1/6 at each command, so it stays short.
//! Invariant: with each request it says exactly how many replies will come, and to whom.

use heatsink_testkit::encode;

use super::check::Check;
use super::commands;
use super::model::{Connection, Subscription};
use super::words::Words;

/// The user whose rights are fewer; made by `runner` before the first request.
pub(super) const LIMITED_USER: &str = "limited";
/// That user's password.
pub(super) const LIMITED_PASSWORD: &str = "secret";

const INLINE: [&str; 10] = [
    "PING\r\n",
    "PING\n",
    "SET text:1 \"a b\\x00\\xff\\r\\n\"\r\n",
    "GET text:1\r\n",
    "  ECHO   'single quoted \\' '  \r\n",
    "echo \"tab\\there\"\r\n",
    "LRANGE list:1 0 -1\r\n",
    "nope a b\r\n",
    "get\r\n",
    "SET text:2 \"\"\r\n",
];
/// Requests that get no reply at all.
const EMPTY: [&str; 4] = ["\r\n", "\n", "*0\r\n", "*-1\r\n"];
/// Requests after which a server says why and hangs up.
const MALFORMED: [&str; 7] = [
    "*x\r\n",
    "*1\r\n+PING\r\n",
    "*1\r\n$x\r\n",
    "*1\r\n$-5\r\n",
    "*1\r\n$999999999999\r\n",
    "*2147483648\r\n",
    "SET \"unbalanced\r\n",
];
/// Commands about a state that is not there, or with an argument too many.
const OUT_OF_PLACE: [&[&str]; 5] =
    [&["EXEC"], &["DISCARD"], &["MULTI", "x"], &["RESET", "x"], &["UNWATCH", "x"]];
const HELLO: [&str; 8] = [
    "HELLO",
    "HELLO 2",
    "HELLO 3",
    "HELLO 4",
    "HELLO x",
    "HELLO 3 SETNAME named",
    "HELLO 2 AUTH default any",
    "HELLO 3 AUTH nobody wrong",
];

/// Bytes to send and what comes back.
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// One for each reply on the connection itself.
    pub(super) checks: Vec<Check>,
    /// Messages that other connections get: which, and how many.
    pub(super) deliveries: Vec<(usize, usize)>,
    /// Whether the server hangs up afterwards.
    pub(super) closes: bool,
}

impl Request {
    fn one(args: &[Vec<u8>], check: Check) -> Self {
        Self::raw(encode(args), vec![check])
    }

    fn exact(args: &[&str]) -> Self {
        Self::raw(encode(args), vec![Check::Exact])
    }

    fn raw(bytes: Vec<u8>, checks: Vec<Check>) -> Self {
        Self { bytes, checks, deliveries: Vec::new(), closes: false }
    }

    fn closing(text: &str) -> Self {
        Self { closes: true, ..Self::raw(text.as_bytes().to_vec(), vec![Check::Exact]) }
    }
}

/// Makes requests and follows the state they leave behind.
pub(super) struct Generator {
    pub(super) words: Words,
    pub(super) connections: Vec<Connection>,
    resp3: bool,
}

impl Generator {
    pub(super) fn new(seed: u64, connections: usize, resp3: bool) -> Self {
        Self {
            words: Words::new(seed),
            connections: vec![Connection::new(resp3); connections],
            resp3,
        }
    }

    /// The next request of connection `index`.
    pub(super) fn next(&mut self, index: usize) -> Request {
        let words = &mut self.words;
        let connection = &mut self.connections[index];
        match words.below(1000) {
            0..=4 => {
                *connection = Connection::new(false);
                return Request::exact(&["RESET"]);
            }
            5..=7 if !connection.subscribed() => {
                *connection = Connection::new(self.resp3);
                return match words.below(3) {
                    0 => Request::closing("QUIT\r\n"),
                    _ => Request::closing(words.pick(&MALFORMED)),
                };
            }
            8..=14 => return Request::raw(words.pick(&EMPTY).into(), Vec::new()),
            15..=44 => return Request::raw(words.pick(&INLINE).into(), vec![Check::Exact]),
            _ => {}
        }
        if connection.in_multi {
            return in_transaction(words, connection);
        }
        if connection.listens_only() && words.chance(30) {
            return self.unsubscribe(index);
        }
        match words.below(100) {
            0..=2 => self.subscribe(index),
            3..=4 => self.unsubscribe(index),
            5..=8 => self.publish(index),
            9..=10 => hello(words, connection),
            11..=15 => {
                let listens_only = connection.listens_only();
                connection.in_multi = !listens_only;
                Request::exact(&["MULTI"])
            }
            16 => Request::exact(words.pick(&OUT_OF_PLACE)),
            17 => authenticate(words),
            18 if !connection.listens_only() => silent(words),
            _ => {
                let command = commands::any(words);
                Request::one(&command.args, command.check)
            }
        }
    }

    fn subscribe(&mut self, index: usize) -> Request {
        let kind = self.words.pick(&Subscription::ALL);
        let mut args = vec![kind.commands().0];
        for _ in 0..=self.words.below(2) {
            let name = self.words.pick(kind.names());
            self.connections[index].of(kind).insert(name);
            args.push(name);
        }
        Request::raw(encode(&args), vec![Check::Exact; args.len() - 1])
    }

    fn unsubscribe(&mut self, index: usize) -> Request {
        let kind = self.words.pick(&Subscription::ALL);
        let connection = &mut self.connections[index];
        let mut args = vec![kind.commands().1];
        if connection.of(kind).len() < 2 && self.words.chance(50) {
            connection.of(kind).clear();
            return Request::exact(&args);
        }
        for _ in 0..=self.words.below(3) {
            let name = self.words.pick(kind.names());
            connection.of(kind).remove(name);
            args.push(name);
        }
        Request::raw(encode(&args), vec![Check::Exact; args.len() - 1])
    }

    fn publish(&mut self, index: usize) -> Request {
        let kind = self.words.pick(&[Subscription::Channel, Subscription::Shard]);
        let name = if kind == Subscription::Shard { "SPUBLISH" } else { "PUBLISH" };
        let channel = self.words.pick(kind.names());
        let message = self.words.value();
        let mut request = Request::one(&[name.into(), channel.into(), message], Check::Exact);
        if self.connections[index].listens_only() {
            return request;
        }
        for (other, connection) in self.connections.iter().enumerate() {
            let copies = connection.copies(channel, kind);
            if other == index {
                request.checks.extend(vec![Check::Exact; copies]);
            } else if copies > 0 {
                request.deliveries.push((other, copies));
            }
        }
        request
    }
}

fn in_transaction(words: &mut Words, connection: &mut Connection) -> Request {
    match words.below(30) {
        0..=3 => {
            connection.in_multi = false;
            Request::exact(&["EXEC"])
        }
        4 => {
            connection.in_multi = false;
            Request::exact(&["DISCARD"])
        }
        5 => Request::exact(words.pick(&[&["MULTI"][..], &["EXEC", "x"], &["DISCARD", "x"]])),
        // What EXEC answers is compared byte for byte, so only exact commands go in.
        _ => loop {
            let command = commands::any(words);
            if command.check == Check::Exact {
                return Request::one(&command.args, Check::Exact);
            }
        },
    }
}

fn hello(words: &mut Words, connection: &mut Connection) -> Request {
    let text = words.pick(&HELLO);
    let args: Vec<&str> = text.split(' ').collect();
    if !connection.listens_only() && !text.contains("wrong") {
        match args.get(1) {
            Some(&"2") => connection.resp3 = false,
            Some(&"3") => connection.resp3 = true,
            _ => {}
        }
    }
    Request::raw(encode(&args), vec![Check::Hello])
}

fn authenticate(words: &mut Words) -> Request {
    Request::exact(words.pick(&[
        &["AUTH", LIMITED_USER, LIMITED_PASSWORD][..],
        &["AUTH", LIMITED_USER, "wrong"],
        &["AUTH", "default", "any"],
        &["AUTH", "nobody", "any"],
        &["AUTH", "any"],
    ]))
}

/// A few commands whose replies the client does not want, and one that it does.
fn silent(words: &mut Words) -> Request {
    let (key, value) = (words.any_key(), words.value());
    let set = encode(&[b"SET".to_vec(), key, value]);
    let reply = |what: &str| encode(&["CLIENT", "REPLY", what]);
    let parts = match words.below(2) {
        0 => [reply("SKIP"), set, encode(&["PING"])].concat(),
        _ => [reply("OFF"), set, encode(&["PING"]), reply("ON")].concat(),
    };
    Request::raw(parts, vec![Check::Exact])
}
