//! What a process under test printed, kept line by line.
//!
//! Called by: `process`, with a reader thread for each of the two streams.
//! Bound: the newest `LINES_KEPT` lines; older ones are forgotten.
//! Invariant: a stream counts as open until its reader thread has stored its last line, so
//! whoever sees both closed has seen everything.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const LINES_KEPT: usize = 20_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct Lines {
    lines: VecDeque<(Stream, String)>,
    streams_open: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Output(Arc<(Mutex<Lines>, Condvar)>);

impl Output {
    /// Starts to collect from `source` until it ends.
    pub(crate) fn collect(&self, stream: Stream, source: impl Read + Send + 'static) {
        self.lock().streams_open += 1;
        let output = self.clone();
        thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            while source.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&line);
                output.push(stream, text.trim_end_matches(['\n', '\r']));
                line.clear();
            }
            output.lock().streams_open -= 1;
            output.0.1.notify_all();
        });
    }

    /// The first line that contains `pattern`; `None` after `timeout` or when both streams
    /// have ended without it.
    pub(crate) fn wait_for(&self, pattern: &str, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        let mut lines = self.lock();
        loop {
            if let Some((_, line)) = lines.lines.iter().find(|(_, line)| line.contains(pattern)) {
                return Some(line.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || lines.streams_open == 0 {
                return None;
            }
            let woken = self.0.1.wait_timeout(lines, left);
            lines = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until both streams have ended; for a process that has exited.
    pub(crate) fn wait_for_end(&self, timeout: Duration) {
        let ended = |lines: &mut Lines| lines.streams_open > 0;
        drop(self.0.1.wait_timeout_while(self.lock(), timeout, ended));
    }

    /// The lines of one stream, or of both as they came.
    pub(crate) fn text(&self, only: Option<Stream>) -> String {
        let mut text = String::new();
        for (stream, line) in &self.lock().lines {
            if only.is_none_or(|only| only == *stream) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// The newest `count` lines, for messages.
    pub(crate) fn tail(&self, count: usize) -> String {
        let lines = self.lock();
        let skip = lines.lines.len().saturating_sub(count);
        let tail: Vec<&str> = lines.lines.iter().skip(skip).map(|(_, line)| &**line).collect();
        tail.join("\n")
    }

    fn push(&self, stream: Stream, line: &str) {
        let mut lines = self.lock();
        if lines.lines.len() == LINES_KEPT {
            lines.lines.pop_front();
        }
        lines.lines.push_back((stream, line.to_owned()));
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
