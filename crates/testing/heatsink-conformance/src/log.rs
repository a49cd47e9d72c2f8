//! What is written to the log, for tests of what an operator is told.
//!
//! Called by: tests, before they start the Heatsink in question.
//! Invariant: all tests of a program share one log, so each looks for lines with an address
//! that is its own.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The log of this program, from the first call of [`Log::listen`] on: `INFO` and above.
#[derive(Clone, Copy, Debug)]
pub struct Log(());

impl Log {
    /// Listens from now on.
    pub fn listen() -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
                .with_ansi(false)
                .with_writer(|| Writer)
                .init();
        });
        Self(())
    }

    /// The lines so far that contain `part`.
    pub fn lines(self, part: &str) -> Vec<String> {
        let written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&written);
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
