//! How long a server has said nothing.
//!
//! A server that owes replies is silent if no bytes come, but not while it takes bytes which the
//! socket had refused: a large request may take longer than any reply may. See
//! [`Link::taking_time`].

use std::time::{Duration, Instant};

use crate::error::LinkError;
use crate::link::{Link, Waiter};

impl<W: Waiter> Link<W> {
    /// From now on the server is expected to say something.
    #[inline]
    pub fn expect_answer(&mut self, now: Instant) {
        self.since = now;
        self.taking = Duration::ZERO;
    }

    /// How much of the time in which nothing came is no silence, as the server took what the
    /// socket had refused. Word that a server should give by itself does not come from one that
    /// merely takes bytes; then this time counts, too.
    ///
    /// It is the time from bytes that were refused to bytes that were taken, and so on. A server
    /// that hangs is given up anyway:
    ///
    /// 1. Requests are small: its kernel takes them, and the socket refuses none. They do not
    ///    count, however many come; nobody knows whether they were read.
    /// 2. A large one comes: the socket refuses bytes, and takes more as long as the kernels have
    ///    room. Nobody makes any; when their few MiB are full, nothing is taken any more.
    /// 3. So it is given up after its silence and the time in which the buffers were filled, at
    ///    the speed of the network.
    pub fn taking_time(&self) -> Duration {
        self.taking
    }

    /// Called behind each attempt to write.
    #[inline]
    pub(super) fn note_taken(&mut self, now: Instant) {
        let is_full = self.stream.is_full();
        if !is_full && self.full_since.is_none() {
            return;
        }
        let took = self.stream.take_sign();
        let Some(from) = self.full_since else {
            self.full_since = Some(now);
            return;
        };
        if took {
            self.taking += now.saturating_duration_since(from.max(self.since));
            self.full_since = is_full.then_some(now);
        }
    }

    /// The server said something so recently, or was asked after a silence that it was free to
    /// keep.
    #[inline]
    pub fn was_heard_within(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < time
    }

    /// What is overdue at `now`, if anything; `silence` is `None` if nothing is expected.
    pub fn overdue(
        &self,
        now: Instant,
        connect: Duration,
        silence: Option<Duration>,
    ) -> Option<LinkError> {
        let age = now.saturating_duration_since(self.since);
        if !self.is_ready() {
            let error = if self.stream.is_handshaking() {
                LinkError::TlsTimeout
            } else {
                LinkError::ConnectTimeout
            };
            return (age >= connect).then_some(error);
        }
        silence.is_some_and(|silence| age >= silence).then_some(LinkError::Silent)
    }
}
