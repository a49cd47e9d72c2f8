//! The queue between whoever logs and the one thread that writes to stderr.
//!
//! ```text
//! worker:  format -> push (full? count, go on)  -> next request
//! writer:  pop -> write (refused? count, go on) -> pop ...
//! ```
//!
//! Called by: `logging`, as the writer of the subscriber; `exit` and the panic hook, for last words.
//! Bound: [`MAX_BYTES`] of lines; one that does not fit is dropped and counted.
//! Invariant: nobody but the writer thread ever waits for stderr. A reader that is gone, a full
//! disk and a pipe that nobody drains cost lines, never a request and never the process.
//!
//! By hand rather than by `tracing-appender`: that one does not count lines that could not be
//! written, and prints (and so may panic) when it cannot stop its thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// How long the writer waits before it tries a stderr again that does not block and is full.
const FULL_WAIT: Duration = Duration::from_millis(10);

/// Lines on their way to stderr. A clone is another handle of the same queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    /// There is a line to write.
    filled: Condvar,
    /// Everything is written.
    emptied: Condvar,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<Vec<u8>>,
    /// Of those that wait.
    bytes: usize,
    /// The writer has taken a line that is not written yet.
    writing: bool,
}

impl Lines {
    fn is_busy(&self) -> bool {
        self.writing || !self.waiting.is_empty()
    }
}

impl Queue {
    /// Takes a line, or counts it as dropped if there is no room. Never waits for stderr.
    pub(super) fn push(&self, line: &[u8]) {
        let mut lines = self.lock();
        if lines.bytes + line.len() > MAX_BYTES {
            drop(lines);
            self.count_dropped();
            return;
        }
        lines.bytes += line.len();
        lines.waiting.push_back(line.to_vec());
        drop(lines);
        self.shared.filled.notify_one();
    }

    /// Lines that were dropped since the start, because there was no room or because they could
    /// not be written.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.dropped)
    }

    /// Waits until everything is written, not for longer than `bound`.
    pub(super) fn flush(&self, bound: Duration) {
        let lines = self.lock();
        let _ = self.shared.emptied.wait_timeout_while(lines, bound, |lines| lines.is_busy());
    }

    /// There is room for many more lines.
    fn has_room(&self) -> bool {
        self.lock().bytes <= MAX_BYTES / 2
    }

    fn pop(&self, bound: Duration) -> Option<Vec<u8>> {
        let mut lines = self.lock();
        lines.writing = false;
        if lines.waiting.is_empty() {
            self.shared.emptied.notify_all();
            let waited = self
                .shared
                .filled
                .wait_timeout_while(lines, bound, |lines| lines.waiting.is_empty());
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let line = lines.waiting.pop_front()?;
        lines.bytes -= line.len();
        lines.writing = true;
        Some(line)
    }

    fn count_dropped(&self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the queue that lines are written from.
#[derive(Debug)]
pub(super) struct Writer<O, T> {
    queue: Queue,
    /// Writes some bytes, at least one, and says how many.
    output: O,
    /// Is called with how many lines were dropped, once lines can be written again.
    tell_dropped: T,
    /// Dropped lines that were told of.
    told: u64,
    /// A part of a line stands at the end of what was written.
    is_torn: bool,
}

impl<O: FnMut(&[u8]) -> io::Result<usize>, T: FnMut(u64)> Writer<O, T> {
    pub(super) fn new(queue: Queue, output: O, tell_dropped: T) -> Self {
        Self { queue, output, tell_dropped, told: 0, is_torn: false }
    }

    /// Waits for a line, not for longer than `bound`, and writes it or drops it.
    pub(super) fn write_next(&mut self, bound: Duration) {
        let Some(line) = self.queue.pop(bound) else { return };
        if self.write(&line).is_err() {
            return self.queue.count_dropped();
        }
        let dropped = self.queue.shared.dropped.load(Ordering::Relaxed);
        // What is told is a line as well, and must not be dropped again.
        if dropped > self.told && self.queue.has_room() {
            (self.tell_dropped)(dropped - self.told);
            self.told = dropped;
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_all(b"\n")?;
        }
        self.write_all(line)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (self.output)(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.is_torn = !bytes.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process has made the stream non-blocking for all who share it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL_WAIT),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes to the standard error stream without the lock of `std`: whoever holds that may wait for
/// ever, and others would wait with it.
pub(super) fn write_to_stderr(bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(io::stderr(), bytes)?)
}

/// The subscriber writes each line with one call.
impl io::Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    enum Step {
        /// Takes this many bytes at most.
        Take(usize),
        Refuse(io::ErrorKind),
    }
    use Step::{Refuse, Take};

    /// What is left of `lines` if writing goes as `steps` say: what was written, what was told of
    /// dropped ones, and how many were dropped.
    fn play<const N: usize>(lines: &[&str], steps: [Step; N]) -> (String, Vec<u64>, u64) {
        let queue = Queue::default();
        for line in lines {
            queue.push(line.as_bytes());
        }
        let (mut written, mut told) = (Vec::new(), Vec::new());
        let mut steps = steps.into_iter();
        let output = |bytes: &[u8]| match steps.next().expect("a step for each call") {
            Take(most) => {
                let taken = &bytes[..most.min(bytes.len())];
                written.extend_from_slice(taken);
                Ok(taken.len())
            }
            Refuse(kind) => Err(kind.into()),
        };
        let mut writer = Writer::new(queue.clone(), output, |count| told.push(count));
        for _ in lines {
            writer.write_next(LONG);
        }
        let written = String::from_utf8(written).expect("text");
        (written, told, queue.dropped().load(Ordering::Relaxed))
    }

    #[test]
    fn lines_are_written_in_pieces_and_in_order() {
        let steps = [
            Take(2),
            Refuse(io::ErrorKind::Interrupted),
            Take(1),
            Refuse(io::ErrorKind::WouldBlock),
            Take(9),
            Take(9),
        ];
        assert_eq!(play(&["first\n", "second\n"], steps), ("first\nsecond\n".into(), vec![], 0));
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_told_once_it_can_again() {
        let lines = ["a\n", "b\n", "c\n", "d\n"];
        let gone = || Refuse(io::ErrorKind::BrokenPipe);
        let (written, told, dropped) = play(&lines, [gone(), gone(), Take(9), Take(9)]);
        assert_eq!((written.as_str(), told, dropped), ("c\nd\n", vec![2], 2));
    }

    #[test]
    fn a_line_after_a_torn_one_begins_on_a_line_of_its_own() {
        let full = || Refuse(io::ErrorKind::StorageFull);
        // The newline cannot be written either at first.
        let steps = [Take(3), full(), full(), Take(1), Take(99)];
        let (written, told, dropped) = play(&["torn line\n", "lost\n", "whole\n"], steps);
        assert_eq!((written.as_str(), told, dropped), ("tor\nwhole\n", vec![2], 2));
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_does_not_wait() {
        let queue = Queue::default();
        let line = [b'x'; 1000];
        for _ in 0..2 * MAX_BYTES / line.len() {
            queue.push(&line);
        }
        let dropped = queue.dropped().load(Ordering::Relaxed) as usize;
        assert_eq!(dropped, 2 * MAX_BYTES / line.len() - MAX_BYTES / line.len());
        assert!(queue.lock().bytes <= MAX_BYTES);
        // Nobody writes: the wait ends anyway.
        queue.flush(Duration::from_millis(1));
    }

    #[test]
    fn a_flush_waits_for_the_line_that_is_being_written() {
        let queue = Queue::default();
        queue.push(b"line\n");
        let (release, released) = std::sync::mpsc::channel::<()>();
        let output = move |bytes: &[u8]| {
            released.recv().map(|()| bytes.len()).map_err(|_| io::ErrorKind::Other.into())
        };
        let mut writer = Writer::new(queue.clone(), output, |_| ());
        let thread = thread::spawn(move || {
            writer.write_next(LONG);
            writer.write_next(LONG);
        });
        queue.flush(Duration::from_millis(20));
        assert!(queue.lock().is_busy(), "not written yet");
        release.send(()).expect("it waits");
        queue.flush(Duration::from_secs(30));
        assert!(!queue.lock().is_busy());
        drop(release);
        queue.push(b"last\n");
        thread.join().expect("it ends");
    }
}
