//! Clients that each send one request after the other, and when each was answered.
//!
//! Called by: `split::freeze`.
//! Bound: a thread a client; what it notes grows with the requests, until it is stopped.
//! Invariant: a request that was refused, or answered with something wrong, is not among those
//! that were answered.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use heatsink_testkit::{RawClient, Reply};

/// A request and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

/// What a client has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// In order.
    pub(crate) exchanges: Vec<Exchange>,
    /// Errors, and answers that cannot be.
    pub(crate) refused: u64,
    /// One of them.
    pub(crate) refusal: Option<String>,
}

/// A client at work.
pub(crate) struct Caller {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Seen, String>>>,
}

impl Caller {
    /// Begins to send what `next` makes; `is_right` says whether an answer can be.
    pub(crate) fn start(
        addr: SocketAddr,
        next: impl FnMut() -> Vec<u8> + Send + 'static,
        is_right: impl FnMut(&Reply) -> bool + Send + 'static,
    ) -> Result<Self, String> {
        let failed = move |error: io::Error| format!("{addr}: {error}");
        let client = RawClient::try_connect(addr).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || call(client, next, is_right, &over).map_err(failed));
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> Result<Seen, String> {
        self.end().unwrap_or_else(|| Ok(Seen::default()))
    }

    fn end(&mut self) -> Option<Result<Seen, String>> {
        self.is_over.store(true, Ordering::Relaxed);
        let panicked = |_| Err("a client panicked".to_owned());
        self.thread.take().map(|thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.end();
    }
}

fn call(
    mut client: RawClient,
    mut next: impl FnMut() -> Vec<u8>,
    mut is_right: impl FnMut(&Reply) -> bool,
    is_over: &AtomicBool,
) -> io::Result<Seen> {
    let mut seen = Seen::default();
    while !is_over.load(Ordering::Relaxed) {
        let request = next();
        let sent = Instant::now();
        client.try_send_raw(&request)?;
        let reply = client.try_read_reply()?;
        if is_right(&reply) {
            seen.exchanges.push(Exchange { sent, answered: Instant::now() });
        } else {
            seen.refused += 1;
            seen.refusal.get_or_insert_with(|| reply.to_string());
        }
    }
    Ok(seen)
}

/// A stretch of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// Milliseconds of the longest time between two answers that touches the window.
pub(crate) fn longest_gap(exchanges: &[Exchange], window: Window) -> f64 {
    let first = exchanges.partition_point(|one| one.answered < window.from);
    let pairs = exchanges[first.saturating_sub(1)..].windows(2);
    let touching = pairs.take_while(|pair| pair[0].answered <= window.to);
    touching.map(|pair| ms(pair[0].answered, pair[1].answered)).fold(0.0, f64::max)
}

/// Milliseconds of the longest wait for an answer that touches the window.
pub(crate) fn longest_wait(exchanges: &[Exchange], window: Window) -> f64 {
    let first = exchanges.partition_point(|one| one.answered < window.from);
    let touching = exchanges[first..].iter().take_while(|one| one.sent <= window.to);
    touching.map(|one| ms(one.sent, one.answered)).fold(0.0, f64::max)
}

fn ms(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heatsink_testkit::{RedisServer, encode, eventually};

    use super::*;

    #[test]
    fn only_what_touches_a_window_counts() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let exchange = |(sent, answered)| Exchange { sent: at(sent), answered: at(answered) };
        let all = [(0, 10), (10, 50), (50, 60), (60, 65), (70, 100)].map(exchange);
        let window = |from, to| Window { from: at(from), to: at(to) };
        let both = |window| (longest_gap(&all, window), longest_wait(&all, window));
        assert_eq!(both(window(0, 200)), (40.0, 40.0));
        assert_eq!(both(window(52, 64)), (10.0, 10.0));
        assert_eq!(both(window(61, 69)), (35.0, 5.0));
        assert_eq!(both(window(45, 46)), (40.0, 40.0));
        assert_eq!(both(window(150, 200)), (0.0, 0.0));
    }

    #[test]
    fn what_is_refused_is_not_answered() {
        let redis = RedisServer::start();
        let mut number = 0;
        let next = move || {
            number += 1;
            encode(&["INCR", if number % 2 == 0 { "n" } else { "list" }])
        };
        redis.client().command(&["RPUSH", "list", "a"]);
        let is_right = |reply: &Reply| matches!(reply, Reply::Integer(_));
        let caller = Caller::start(redis.addr(), next, is_right).expect("it listens");
        eventually(Duration::from_secs(10), || redis.calls("incr") >= 20);
        let seen = caller.stop().expect("answers");
        let counted = redis.client().command(&["GET", "n"]).text();
        assert_eq!(counted, seen.exchanges.len().to_string());
        assert!(seen.refused >= 10 && seen.refusal.is_some_and(|why| why.contains("WRONGTYPE")));
    }
}
