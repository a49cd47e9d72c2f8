//! What the next request of a connection is.
//!
//! Called by: `runner`, once per request.
//! Bound: a transaction is left with probability 1/6 at each command, so it stays short.
//! Invariant: with each request it says exactly how many replies will come, and to whom.

use heatsink_testkit::encode;

use super::Keys;
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
    pub(super) fn new(seed: u64, connections: usize, resp3: bool, keys: Keys) -> Self {
        Self {
            words: Words::new(seed, keys),
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
            15..=44 if !words.clustered() || !connection.subscribed() => return inline(words),
            _ => {}
        }
        if connection.in_multi {
            return in_transaction(words, connection);
        }
        if connection.listens_only() && words.chance(30) {
            return self.unsubscribe(index);
        }
        if words.clustered() && connection.subscribed() {
            return match words.below(6) {
                0 => self.subscribe(index),
                1..=3 => self.unsubscribe(index),
                _ => Request::exact(&["PING"]),
            };
        }
        match words.below(100) {
            0..=2 => self.subscribe(index),
            3..=4 => self.unsubscribe(index),
            5..=8 if !words.clustered() => self.publish(index),
            // A connection that watches leads to one node of a cluster.
            9..=10 if !words.clustered() || !connection.watches => hello(words, connection),
            11..=15 if !words.spread() => {
                let listens_only = connection.listens_only();
                connection.in_multi = !listens_only;
                Request::exact(&["MULTI"])
            }
            16 => Request::exact(words.pick(&OUT_OF_PLACE)),
            17 if !words.clustered() || !connection.watches => authenticate(words),
            18 if !connection.listens_only() && !words.clustered() => silent(words),
            _ => {
                let command = commands::any(words);
                connection.watches |= command.args[0].eq_ignore_ascii_case(b"WATCH");
                Request::one(&command.args, command.check)
            }
        }
    }

    /// The ways to subscribe that one connection can mix.
    fn kinds(&self) -> &'static [Subscription] {
        if self.words.clustered() { &Subscription::ALL[..2] } else { &Subscription::ALL }
    }

    fn subscribe(&mut self, index: usize) -> Request {
        let kind = self.words.pick(self.kinds());
        let mut args = vec![kind.commands().0];
        for _ in 0..=self.words.below(2) {
            let name = self.words.pick(kind.names());
            self.connections[index].of(kind).insert(name);
            args.push(name);
        }
        Request::raw(encode(&args), vec![Check::Exact; args.len() - 1])
    }

    fn unsubscribe(&mut self, index: usize) -> Request {
        let kind = self.words.pick(self.kinds());
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
            (connection.in_multi, connection.watches) = (false, false);
            Request::exact(&["EXEC"])
        }
        4 => {
            (connection.in_multi, connection.watches) = (false, false);
            Request::exact(&["DISCARD"])
        }
        5 => match words.below(3) {
            0 => Request::exact(&["MULTI"]),
            // However wrong, it is the end.
            1 => {
                (connection.in_multi, connection.watches) = (false, false);
                Request::exact(&["EXEC", "x"])
            }
            _ => Request::exact(&["DISCARD", "x"]),
        },
        // What EXEC answers is compared byte for byte, so only exact commands go in; and no login, which
        // Heatsink refuses there.
        _ => loop {
            let command = for_one_node(words);
            let is_login = command.args[0].eq_ignore_ascii_case(b"AUTH");
            if command.check == Check::Exact && !is_login {
                return Request::one(&command.args, Check::Exact);
            }
        },
    }
}

/// A command that concerns one node, if there is a cluster: that of its key, or any.
fn for_one_node(words: &mut Words) -> commands::Command {
    const ANYWHERE: [&[u8]; 3] = [b"PING", b"ECHO", b"NOPE"];
    loop {
        let command = commands::any(words);
        if !words.clustered() || command.keyed || ANYWHERE.contains(&&*command.args[0]) {
            return command;
        }
    }
}

/// A request as a person types it.
fn inline(words: &mut Words) -> Request {
    let mut text = words.pick(&INLINE).to_owned();
    for name in ["text:1", "text:2", "list:1"] {
        let key = words.named(name.as_bytes());
        text = text.replace(name, &String::from_utf8_lossy(&key));
    }
    Request::raw(text.into_bytes(), vec![Check::Exact])
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
