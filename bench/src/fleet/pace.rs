//! Reads at an even pace, and when exactly they were sent.
//!
//! Called by: `node`, for the background and for keys that become hot.
//! Bound: a thread a sender; what it is behind by more than `ARREARS` is never sent.
//! Invariant: requests are due at times that do not depend on answers: a slow answer delays
//! the next request, but does not lower the rate.

use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply, encode};

const ARREARS: Duration = Duration::from_millis(200);

/// A thread that reads keys.
pub(crate) struct Sender {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Instant>, String>>>,
}

impl Sender {
    /// Begins to read the keys that `next` names, so many a second; the first one after
    /// `phase` of the time between two.
    pub(crate) fn start(
        addr: SocketAddr,
        per_second: u32,
        phase: f64,
        next: impl FnMut() -> String + Send + 'static,
    ) -> Result<Self, String> {
        let client = RawClient::try_connect(addr).map_err(|error| format!("{addr}: {error}"))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let interval = Duration::from_secs(1) / per_second;
        let thread = thread::spawn(move || {
            send(client, interval, interval.mul_f64(phase), next, &over)
                .map_err(|error| format!("{addr}: {error}"))
        });
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// Ends it; when each request was sent.
    pub(crate) fn stop(mut self) -> Result<Vec<Instant>, String> {
        self.end().unwrap_or_else(|| Ok(Vec::new()))
    }

    fn end(&mut self) -> Option<Result<Vec<Instant>, String>> {
        self.is_over.store(true, Ordering::Relaxed);
        let panicked = |_| Err("a sender panicked".to_owned());
        self.thread.take().map(|thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}

fn send(
    mut client: RawClient,
    interval: Duration,
    phase: Duration,
    mut next: impl FnMut() -> String,
    is_over: &AtomicBool,
) -> std::io::Result<Vec<Instant>> {
    let mut sent_at = Vec::new();
    let mut bytes = Vec::new();
    let mut due = Instant::now() + phase;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        if now > due + ARREARS {
            due = now;
        }
        bytes.clear();
        let mut count = 0;
        while due <= now {
            bytes.extend(encode(&["GET", &next()]));
            count += 1;
            due += interval;
        }
        sent_at.extend(iter::repeat_n(Instant::now(), count));
        client.try_send_raw(&bytes)?;
        for _ in 0..count {
            if let Reply::Error(error) = client.try_read_reply()? {
                return Err(std::io::Error::other(error));
            }
        }
    }
    Ok(sent_at)
}

/// When so many requests had been sent within `window` for the first time.
pub(crate) fn crossing(sent_at: &mut [Instant], count: usize, window: Duration) -> Option<Instant> {
    sent_at.sort_unstable();
    let ends = sent_at.iter().skip(count - 1);
    let crossed = sent_at.iter().zip(ends).find(|(first, last)| **last - **first <= window);
    crossed.map(|(_, last)| *last)
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::RedisServer;

    use super::*;

    #[test]
    fn the_count_crosses_where_enough_lie_close_together() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut slow_then_fast: Vec<Instant> =
            (0..10).map(|n| at(n * 300)).chain((0..10).map(|n| at(3000 + n))).collect();
        slow_then_fast.reverse();
        let second = Duration::from_secs(1);
        assert_eq!(crossing(&mut slow_then_fast, 4, second), Some(at(900)));
        assert_eq!(crossing(&mut slow_then_fast, 6, second), Some(at(3002)));
        assert_eq!(crossing(&mut slow_then_fast, 20, second), None);
        assert_eq!(crossing(&mut [], 1, second), None);
    }

    #[test]
    fn as_many_are_sent_as_are_due() {
        let redis = RedisServer::start();
        let begun = Instant::now();
        let sender =
            Sender::start(redis.addr(), 1_000, 0.0, || "k".to_owned()).expect("it listens");
        heatsink_testkit::eventually(Duration::from_secs(10), || redis.calls("get") >= 50);
        let sent = sender.stop().expect("answers");
        let most = begun.elapsed().as_millis() as usize + 1;
        assert!((50..=most).contains(&sent.len()), "{} of {most}", sent.len());
        assert_eq!(redis.calls("get"), sent.len() as u64);
    }
}
