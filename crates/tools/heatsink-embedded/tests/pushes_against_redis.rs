//! Several connections at once against a real server: who is told what, and in which order.
//!
//! After each step every connection sends a `PING` with a marker; what it reads up to the
//! marker is everything it was told because of the step. Left out: expiry (two clocks; the
//! engine's own tests have it) and `BCAST` (Redis tells at the end of its event loop, so a
//! marker may overtake it).

use heatsink_embedded::{ConnId, Engine};
use heatsink_testkit::{RawClient, RedisServer, encode};

const NOW_MS: u64 = 1_900_000_000_000;

/// One step: requests sent by one connection in one go. `{id}` is the listener's id.
const STEPS: &[&[&str]] = &[
    &["GET {k}"],
    &["GET {k}"],
    &["MGET {k} {k} {k}"],
    &["EXISTS {k}"],
    &["SUNION {k} {k}"],
    &["EXPIRETIME {k}"],
    &["SET {k} v"],
    &["SET {k} v"],
    &["DEL {k}"],
    &["MSET {k} v {k} v"],
    &["RENAME {k} {k}"],
    &["EXPIRE {k} -1"],
    &["EXPIREAT {k} 2000000000"],
    &["GETDEL {k}"],
    &["APPEND {k} x"],
    &["SETRANGE {k} 0 "],
    &["FLUSHDB"],
    &["CLIENT CACHING YES", "GET {k}", "GET {k}"],
    &["CLIENT CACHING YES", "MULTI", "GET {k}", "SET {k} v", "GET {k}", "EXEC"],
    &["CLIENT CACHING NO", "GET {k}", "GET {k}"],
    &["MULTI", "SET {k} v", "GET {k}", "PUBLISH c m", "EXEC"],
    &["WATCH {k}", "GET {k}", "MULTI", "SET {k} w", "EXEC"],
    &["CLIENT TRACKING ON"],
    &["CLIENT TRACKING ON OPTIN"],
    &["CLIENT TRACKING ON OPTOUT"],
    &["CLIENT TRACKING ON NOLOOP"],
    &["CLIENT TRACKING ON REDIRECT {id}"],
    &["CLIENT TRACKING OFF"],
    &["SUBSCRIBE c d"],
    &["PSUBSCRIBE c*"],
    &["UNSUBSCRIBE c"],
    &["PUNSUBSCRIBE"],
    &["PUBLISH c hello"],
    &["PUBLISH d hello"],
    &["PUBSUB NUMSUB c d"],
    &["RESET", "HELLO 3 SETNAME x", "CLIENT TRACKING ON"],
];

struct Party {
    real: Vec<RawClient>,
    engine: Engine,
    conns: Vec<ConnId>,
}

impl Party {
    fn new(server: &RedisServer, count: usize) -> Self {
        let mut engine = Engine::new(1, NOW_MS);
        let conns = (0..count).map(|_| engine.connect(NOW_MS)).collect();
        Self { real: (0..count).map(|_| server.client()).collect(), engine, conns }
    }

    /// What the real connection reads up to the marker.
    fn heard_from_redis(&mut self, at: usize, requests: &[Vec<String>]) -> String {
        let client = &mut self.real[at];
        for request in requests {
            client.send(request);
        }
        client.send(&["PING", "marker"]);
        let mut heard = String::new();
        while !heard.contains("marker") {
            heard += &client.read_frame().escape_ascii().to_string();
        }
        heard
    }

    fn heard_from_engine(&mut self, at: usize, requests: &[Vec<String>]) -> String {
        let mut bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        bytes.extend(encode(&["PING", "marker"]));
        self.engine.feed(self.conns[at], &bytes, NOW_MS);
        self.engine.take_output(self.conns[at]).escape_ascii().to_string()
    }
}

fn fill(step: &[&str], keys: &[u8], listener: u64) -> Vec<Vec<String>> {
    let mut keys = keys.iter();
    let mut word = |word: &str| match word {
        "{k}" => format!("k{}", keys.next().expect("enough keys")),
        "{id}" => listener.to_string(),
        word => word.to_owned(),
    };
    step.iter().map(|line| line.split(' ').map(&mut word).collect()).collect()
}

/// A greeting names the connection's id, which differs. And Redis 7.0 redirects a flush with
/// the null of the protocol that the tracking connection speaks, not the listening one.
fn without_ids(heard: &str) -> String {
    let heard = heard.replace("__redis__:invalidate\\r\\n_", "__redis__:invalidate\\r\\n$-1");
    let mut parts = heard.split("$2\\r\\nid\\r\\n:");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    text
}

#[test]
fn the_same_connections_are_told_the_same() {
    let server = RedisServer::start();
    let mut rng = fastrand::Rng::with_seed(5);
    for _round in 0..20 {
        // The last one speaks the older protocol and listens for redirected invalidations.
        let count = 4;
        let mut party = Party::new(&server, count);
        party.real[0].command(&["FLUSHALL"]);
        let ids: Vec<u64> =
            party.real.iter_mut().map(|c| c.command(&["CLIENT", "ID"]).integer() as u64).collect();
        let listener = (ids[count - 1], party.conns[count - 1].0);
        let greeting = vec![vec!["HELLO".to_owned(), "3".to_owned()]];
        for at in 0..count - 1 {
            party.heard_from_redis(at, &greeting);
            party.heard_from_engine(at, &greeting);
        }
        let subscription = vec![vec!["SUBSCRIBE".to_owned(), "__redis__:invalidate".to_owned()]];
        party.heard_from_redis(count - 1, &subscription);
        party.heard_from_engine(count - 1, &subscription);
        let mut history = Vec::new();
        for _step in 0..200 {
            let step = STEPS[rng.usize(..STEPS.len())];
            let actor = rng.usize(..count - 1);
            let keys: Vec<u8> = (0..8).map(|_| rng.u8(..4)).collect();
            history.push(format!("{actor}: {}", fill(step, &keys, 0).concat().join(" ")));
            for at in std::iter::once(actor).chain((0..count).filter(|at| *at != actor)) {
                let acts = at == actor;
                let real = if acts { fill(step, &keys, listener.0) } else { Vec::new() };
                let own = if acts { fill(step, &keys, listener.1) } else { Vec::new() };
                let expected = party
                    .heard_from_redis(at, &real)
                    .replace(&format!(":{}\\r\\n", listener.0), &format!(":{}\\r\\n", listener.1));
                let got = party.heard_from_engine(at, &own);
                let recent = history[history.len().saturating_sub(30)..].join("\n");
                assert_eq!(without_ids(&got), without_ids(&expected), "{at} after\n{recent}");
            }
        }
    }
}
