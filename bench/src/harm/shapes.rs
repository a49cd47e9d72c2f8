//! The shapes of traffic on one hot key.
//!
//! Called by: `harm`.
//! Bound: a hot key of at most [`MANY`] members for each shape.
//! Invariant: each shape has a hot key of its own, so none meets what was decided about another's.

use std::io;

use heatsink_testkit::{RawClient, Reply, encode};

/// As many different arguments as no cache of one key holds.
const MANY: usize = 100_000;
const SOME: usize = 1_000;
const COLD_KEYS: usize = 100_000;
const BATCH: usize = 1_000;
const SCRIPT: &str = "return redis.call('GET', KEYS[1])";

/// The value of a hot key before anything is sent.
#[derive(Clone, Copy)]
enum Value {
    /// So many bytes.
    Text(usize),
    Number,
    /// So many fields `m:0`, `m:1` and so on, or members.
    Hash(usize),
    Set(usize),
    Sorted(usize),
    List(usize),
    Stream,
}

/// A piece of a request.
#[derive(Clone, Copy)]
enum Arg {
    Word(&'static str),
    /// The hot key.
    Key,
    /// One of the cold keys.
    Cold,
    /// `m:` and a number below this.
    Member(usize),
    /// A number below this.
    Number(usize),
    /// So many bytes, as the value had from the start.
    Bytes(usize),
}

use Arg::{Bytes, Cold, Key, Member, Number, Word as W};

/// Requests, each with how many of a hundred it is.
type Mix = &'static [(u32, &'static [Arg])];

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    title: &'static str,
    value: Value,
    mix: Mix,
    pub(crate) clients: usize,
    pub(crate) depth: usize,
    /// CPU at most so much of plain Redis, when that is a goal.
    pub(crate) of_plain: Option<f64>,
}

impl Shape {
    pub(crate) fn title(&self) -> String {
        let pipelined = if self.depth > 1 { format!(", -P {}", self.depth) } else { String::new() };
        let few = if self.clients < CLIENTS {
            format!(", {} clients", self.clients)
        } else {
            String::new()
        };
        format!("{}{few}{pipelined}", self.title)
    }

    /// Writes the hot key, whose name is `key`.
    pub(crate) fn prepare(&self, client: &mut RawClient, key: &str) -> io::Result<()> {
        send(client, &[vec!["DEL".to_owned(), key.to_owned()]])?;
        let members = |head: &[&str], count: usize, member: &dyn Fn(usize) -> Vec<String>| {
            let numbers: Vec<usize> = (0..count).collect();
            let command = |numbers: &[usize]| {
                let head = head.iter().map(ToString::to_string);
                head.chain(numbers.iter().flat_map(|number| member(*number))).collect()
            };
            numbers.chunks(BATCH).map(command).collect::<Vec<Vec<String>>>()
        };
        let name = |number: usize| format!("m:{number}");
        let commands = match self.value {
            Value::Text(bytes) => vec![vec!["SET".to_owned(), key.to_owned(), "v".repeat(bytes)]],
            Value::Number => vec![vec!["SET".to_owned(), key.to_owned(), "1".to_owned()]],
            Value::Hash(count) => {
                members(&["HSET", key], count, &|number| vec![name(number), "v".repeat(20)])
            }
            Value::Set(count) => members(&["SADD", key], count, &|number| vec![name(number)]),
            Value::Sorted(count) => {
                members(&["ZADD", key], count, &|number| vec![number.to_string(), name(number)])
            }
            Value::List(count) => members(&["RPUSH", key], count, &|number| vec![name(number)]),
            Value::Stream => Vec::new(),
        };
        send(client, &commands)
    }

    /// Appends a request.
    pub(crate) fn request(&self, key: &str, random: &mut fastrand::Rng, to: &mut Vec<u8>) {
        let mut drawn = random.u32(..100);
        let args = self.mix.iter().find(|(part, _)| {
            let is_it = drawn < *part;
            drawn = drawn.saturating_sub(*part);
            is_it
        });
        let (_, args) = args.expect("the parts of a mix are a hundred");
        push_number(to, b'*', args.len());
        for arg in *args {
            match *arg {
                W(word) => push(to, word.as_bytes()),
                Key => push(to, key.as_bytes()),
                Cold => push(to, cold(random.usize(..COLD_KEYS)).as_bytes()),
                Member(below) => push(to, format!("m:{}", random.usize(..below)).as_bytes()),
                Number(below) => push(to, random.usize(..below).to_string().as_bytes()),
                Bytes(bytes) => {
                    push_number(to, b'$', bytes);
                    to.resize(to.len() + bytes, b'v');
                    to.extend(b"\r\n");
                }
            }
        }
    }
}

fn push(to: &mut Vec<u8>, arg: &[u8]) {
    push_number(to, b'$', arg.len());
    to.extend(arg);
    to.extend(b"\r\n");
}

fn push_number(to: &mut Vec<u8>, sign: u8, number: usize) {
    to.push(sign);
    to.extend(number.to_string().as_bytes());
    to.extend(b"\r\n");
}

fn cold(number: usize) -> String {
    format!("cold:{number:06}")
}

/// Writes the cold keys.
pub(crate) fn prepare_cold(client: &mut RawClient) -> io::Result<()> {
    let set = |number| vec!["SET".to_owned(), cold(number), "v".repeat(100)];
    send(client, &(0..COLD_KEYS).map(set).collect::<Vec<_>>())
}

fn send(client: &mut RawClient, commands: &[Vec<String>]) -> io::Result<()> {
    for batch in commands.chunks(BATCH) {
        let bytes: Vec<u8> = batch.iter().flat_map(|command| encode(command)).collect();
        client.try_send_raw(&bytes)?;
        for _ in batch {
            if let Reply::Error(error) = client.try_read_reply()? {
                return Err(io::Error::other(error));
            }
        }
    }
    Ok(())
}

const CLIENTS: usize = 50;

const fn shape(title: &'static str, value: Value, mix: Mix) -> Shape {
    Shape { title, value, mix, clients: CLIENTS, depth: 1, of_plain: None }
}

/// What is asked for one by one and in pipelines of 16.
const BOTH: &[Shape] = &[
    // Reads that repeat.
    shape("GET", Value::Text(100), &[(100, &[W("GET"), Key])]),
    shape("GET of 20 KiB", Value::Text(20_480), &[(100, &[W("GET"), Key])]),
    shape("STRLEN", Value::Text(100), &[(100, &[W("STRLEN"), Key])]),
    shape("EXISTS", Value::Text(100), &[(100, &[W("EXISTS"), Key])]),
    shape("HGET of one field", Value::Hash(SOME), &[(100, &[W("HGET"), Key, W("m:7")])]),
    shape("HGETALL of 100 fields", Value::Hash(100), &[(100, &[W("HGETALL"), Key])]),
    shape("LRANGE of 10", Value::List(SOME), &[(100, &[W("LRANGE"), Key, W("0"), W("9")])]),
    shape("EVAL that reads", Value::Text(100), &[(100, &[W("EVAL"), W(SCRIPT), W("1"), Key])]),
    // Reads of a thousand different things, and of a hundred thousand.
    shape("HGET of 1 000 fields", Value::Hash(SOME), &[(100, &[W("HGET"), Key, Member(SOME)])]),
    shape(
        "ZSCORE of 1 000 members",
        Value::Sorted(SOME),
        &[(100, &[W("ZSCORE"), Key, Member(SOME)])],
    ),
    shape(
        "SISMEMBER of 1 000 members",
        Value::Set(SOME),
        &[(100, &[W("SISMEMBER"), Key, Member(SOME)])],
    ),
    shape("HGET of 100 000 fields", Value::Hash(MANY), &[(100, &[W("HGET"), Key, Member(MANY)])]),
    shape(
        "ZSCORE of 100 000 members",
        Value::Sorted(MANY),
        &[(100, &[W("ZSCORE"), Key, Member(MANY)])],
    ),
    shape(
        "SISMEMBER of 100 000 members",
        Value::Set(MANY),
        &[(100, &[W("SISMEMBER"), Key, Member(MANY)])],
    ),
    // Writes.
    shape("SET", Value::Text(100), &[(100, &[W("SET"), Key, Bytes(100)])]),
    shape("INCR", Value::Number, &[(100, &[W("INCR"), Key])]),
    shape("HINCRBY of one field", Value::Hash(0), &[(100, &[W("HINCRBY"), Key, W("f"), W("1")])]),
    shape(
        "HSET of different fields",
        Value::Hash(SOME),
        &[(100, &[W("HSET"), Key, Member(MANY), Bytes(20)])],
    ),
    shape("SADD of different members", Value::Set(SOME), &[(100, &[W("SADD"), Key, Member(MANY)])]),
    shape(
        "ZADD of different members",
        Value::Sorted(SOME),
        &[(100, &[W("ZADD"), Key, Number(MANY), Member(MANY)])],
    ),
    shape("LPUSH", Value::List(1), &[(100, &[W("LPUSH"), Key, Member(SOME)])]),
    shape(
        "XADD",
        Value::Stream,
        &[(100, &[W("XADD"), Key, W("MAXLEN"), W("~"), W("1000"), W("*"), W("f"), Member(SOME)])],
    ),
    shape("EXPIRE", Value::Text(100), &[(100, &[W("EXPIRE"), Key, W("1000")])]),
    // Of several keys.
    shape("MGET of it and a cold key", Value::Text(100), &[(100, &[W("MGET"), Key, Cold])]),
    shape(
        "MSET of it and a cold key",
        Value::Text(100),
        &[(100, &[W("MSET"), Key, Bytes(100), Cold, Bytes(100)])],
    ),
    // Mixed.
    shape(
        "GET and SET, 99 to 1",
        Value::Text(100),
        &[(99, &[W("GET"), Key]), (1, &[W("SET"), Key, Bytes(100)])],
    ),
    shape(
        "GET and SET, 90 to 10",
        Value::Text(100),
        &[(90, &[W("GET"), Key]), (10, &[W("SET"), Key, Bytes(100)])],
    ),
    shape(
        "GET and SET, 50 to 50",
        Value::Text(100),
        &[(50, &[W("GET"), Key]), (50, &[W("SET"), Key, Bytes(100)])],
    ),
    shape(
        "GET and INCR, 50 to 50",
        Value::Number,
        &[(50, &[W("GET"), Key]), (50, &[W("INCR"), Key])],
    ),
    shape(
        "HGET and HSET of 1 000 fields, 90 to 10",
        Value::Hash(SOME),
        &[(90, &[W("HGET"), Key, Member(SOME)]), (10, &[W("HSET"), Key, Member(SOME), Bytes(20)])],
    ),
    shape(
        "GET of it and of cold keys, 50 to 50",
        Value::Text(100),
        &[(50, &[W("GET"), Key]), (50, &[W("GET"), Cold])],
    ),
];

/// Before one server and one worker.
pub(crate) fn of_server() -> Vec<Shape> {
    let mut shapes: Vec<Shape> = Vec::new();
    for depth in [1, 16] {
        shapes.extend(BOTH.iter().map(|shape| Shape { depth, ..*shape }));
    }
    for shape in &mut shapes {
        shape.of_plain = match (shape.title, shape.depth) {
            ("GET", 1) => Some(0.85),
            ("GET", _) => Some(0.60),
            ("INCR", _) => Some(0.9),
            _ => None,
        };
    }
    let get = BOTH[0];
    shapes.push(Shape { clients: 4, depth: 16, ..get });
    shapes
}

/// Those that are also tried with two workers, and before a cluster.
pub(crate) fn elsewhere() -> Vec<Shape> {
    let titles = [
        "GET",
        "INCR",
        "SISMEMBER of 100 000 members",
        "HSET of different fields",
        "MGET of it and a cold key",
        "GET and SET, 90 to 10",
    ];
    let mut shapes = of_server();
    shapes.retain(|shape| titles.contains(&shape.title) && shape.clients == CLIENTS);
    for shape in &mut shapes {
        shape.of_plain = None;
    }
    shapes
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::RedisServer;

    use super::*;

    #[test]
    fn every_request_of_every_shape_is_answered_without_an_error() {
        let redis = RedisServer::start();
        let mut client = redis.client();
        let mut random = fastrand::Rng::with_seed(1);
        let mut titles = Vec::new();
        for shape in of_server() {
            shape.prepare(&mut client, "hot").expect("a value");
            assert_eq!(shape.mix.iter().map(|(part, _)| part).sum::<u32>(), 100, "{}", shape.title);
            for _ in 0..20 {
                let mut request = Vec::new();
                shape.request("hot", &mut random, &mut request);
                client.try_send_raw(&request).expect("sent");
                let reply = client.try_read_reply().expect("a reply");
                assert!(!matches!(reply, Reply::Error(_)), "{}: {reply}", shape.title);
            }
            titles.push(shape.title());
        }
        titles.sort();
        titles.dedup();
        assert_eq!(titles.len(), of_server().len(), "{titles:?}");
        assert!(titles.len() + 2 * elsewhere().len() >= 40);
    }
}
