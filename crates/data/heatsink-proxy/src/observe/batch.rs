//! Requests that came together are counted together.
//!
//! Called by: `intake`, with each request of one key that goes on as it is, and when the batch
//! that it belongs to is sent.
//! Bound: the requests of a batch.
//! Invariant: the batch is not sent before its requests are counted; none is counted twice.
//!
//! By the time a client is heard again, the counters have left the near caches. If each request
//! waited for its own, that would be most of what counting costs; the fetches of several
//! overlap.

use std::hint::black_box;
use std::ops::Range;

use heatsink_detect::heat::Kind;
use heatsink_resp::command::{Command, ValueKind};

use super::{Mark, Observer, Writer, kind};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;

/// Requests whose counters are fetched before the first of them is counted.
const TOGETHER: usize = 16;

/// A request that is counted with its batch.
#[derive(Debug)]
pub(super) struct Awaited {
    /// Where its key stands in the client's bytes.
    name: Range<usize>,
    bytes: usize,
    kind: Kind,
    value: ValueKind,
    /// Its place in the batch.
    place: usize,
}

impl Observer {
    /// Counts the keys of a request in a batch, of which it is at `place`; it begins at `at` of
    /// the client's bytes. If it has one key, it is counted when the batch is sent.
    #[inline]
    pub(crate) fn sent_in_batch(
        &mut self,
        from: ClientKey,
        command: &Command,
        request: Request<'_>,
        at: usize,
        place: usize,
    ) -> Mark {
        let Some(kind) = kind(command) else { return Mark::Nothing };
        let span = command.single_key_index().and_then(|index| request.args.get(index));
        let Some(span) = span else { return self.sent(Writer(from.slot), command, request) };
        let name = at + span.start..at + span.end;
        let (bytes, value) = (request.bytes.len(), command.value_kind);
        self.awaited.push(Awaited { name, bytes, kind, value, place });
        Mark::Nothing
    }

    /// Counts the requests of a client's batch and sets their marks.
    #[inline]
    pub(crate) fn count_batch(&mut self, from: ClientKey, buf: &[u8], marks: &mut [Mark]) {
        if self.awaited.is_empty() {
            return;
        }
        let mut awaited = std::mem::take(&mut self.awaited);
        for some in awaited.chunks(TOGETHER) {
            let keys: [_; TOGETHER] = std::array::from_fn(|place| {
                some.get(place).map(|request| self.hasher.key(&buf[request.name.clone()]))
            });
            if some.len() > 1 {
                let seen = some.iter().zip(&keys).fold(0, |seen, (request, key)| {
                    let hash = key.map_or(0, heatsink_detect::key::Key::hash);
                    seen ^ self.counter.foresee(hash, request.kind)
                });
                black_box(seen);
            }
            for (request, key) in some.iter().zip(keys) {
                let Some(key) = key.filter(|key| self.counts(key.bytes())) else { continue };
                let bytes = request.bytes as u64;
                marks[request.place] = match request.kind {
                    Kind::Read => Mark::One(self.begin(key, request.kind, bytes, request.value)),
                    Kind::Write => {
                        Mark::of(self.begin_write(Writer(from.slot), key, bytes, request.value))
                    }
                };
            }
        }
        awaited.clear();
        self.awaited = awaited;
    }
}
