//! Who has writes to a key under way: a client that sends one behind the other does not contend
//! with itself.
//!
//! Called by: `observe`, with every write that is sent on and when it is answered.
//! Bound: [`MAX_PAIRS`] of a client and a key; a write beyond them is counted, but not as in
//! flight.
//! Invariant: of the writes of one client to one key that has a name exactly one is in flight,
//! from when the first is sent until the last is answered.
//!
//! Nothing is told of keys without a name, so their writes are in flight one by one, whoever
//! sends them: nearly all writes cost no look-up here. A pipeline of writes to one such key can
//! give it a name, and from then on clients count.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;
use heatsink_detect::heavy::{Tag, WorkerCounter};
use heatsink_detect::key::Key;

/// Pairs of a client and a key with unanswered writes.
const MAX_PAIRS: usize = 16 << 10;

/// A client of the worker, by its place: whoever takes the place of one that has left while
/// its writes are under way passes for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer(pub(crate) u32);

/// The writes that are under way, by client and key.
#[derive(Debug, Default)]
pub(super) struct Writers {
    pairs: HashMap<u64, Pair, FixedState>,
}

#[derive(Debug)]
struct Pair {
    unanswered: u32,
    /// The one that is in flight for all of them.
    first: Tag,
}

impl Writers {
    /// Counts a write that is sent on; `None` for the writer if there is no room to remember it.
    #[inline]
    pub(super) fn begin(
        &mut self,
        counter: &mut WorkerCounter,
        writer: Writer,
        key: Key<'_>,
        bytes: u64,
        value_kind: u8,
    ) -> (Tag, Option<Writer>) {
        let mut tag = counter.begin_behind(key, bytes, value_kind);
        if !tag.is_named() {
            tag = counter.take_off(key, tag, value_kind);
            if !tag.is_named() {
                return (tag, None);
            }
        }
        self.begin_named(counter, writer, key, tag, value_kind)
    }

    fn begin_named(
        &mut self,
        counter: &mut WorkerCounter,
        writer: Writer,
        key: Key<'_>,
        tag: Tag,
        value_kind: u8,
    ) -> (Tag, Option<Writer>) {
        let full = self.pairs.len() >= MAX_PAIRS;
        match self.pairs.entry(pair(writer, key.hash())) {
            // In flight by itself: it gave the key its name, which was lost in between.
            Entry::Occupied(_) if tag.is_in_flight() => (tag, None),
            Entry::Occupied(mut pair) => {
                pair.get_mut().unanswered += 1;
                (tag, Some(writer))
            }
            Entry::Vacant(_) if full => (tag, None),
            Entry::Vacant(place) => {
                let is_in_flight = tag.is_in_flight();
                let first = if is_in_flight { tag } else { counter.take_off(key, tag, value_kind) };
                place.insert(Pair { unanswered: 1, first });
                (first.grounded(), Some(writer))
            }
        }
    }

    /// A write is answered, with so many bytes, or will not be.
    #[inline]
    pub(super) fn answered(
        &mut self,
        counter: &mut WorkerCounter,
        writer: Writer,
        tag: Tag,
        bytes: u64,
    ) {
        counter.answered(tag, bytes, false);
        if let Entry::Occupied(mut pair) = self.pairs.entry(pair(writer, tag.hash())) {
            pair.get_mut().unanswered -= 1;
            if pair.get().unanswered == 0 {
                counter.answered(pair.remove().first, 0, false);
            }
        }
    }
}

/// The two in one number; that two pairs fall together is as likely as with any hash.
#[inline]
fn pair(writer: Writer, hash: u64) -> u64 {
    hash ^ u64::from(writer.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heatsink_detect::config::Settings;
    use heatsink_detect::heat::Kind;
    use heatsink_detect::key::KeyHasher;
    use heatsink_detect::report::Merger;
    use heatsink_detect::snapshot::Snapshot;

    use super::*;

    struct Rig {
        counter: WorkerCounter,
        writers: Writers,
        hasher: KeyHasher,
        now: Duration,
    }

    impl Rig {
        /// Keys are named by their first request.
        fn new() -> Self {
            let settings = Settings { report_threshold: 1, ..Settings::default() };
            Self {
                counter: WorkerCounter::new(&settings, 1, Duration::ZERO),
                writers: Writers::default(),
                hasher: KeyHasher::with_seed(1),
                now: Duration::ZERO,
            }
        }

        fn begin(&mut self, writer: u32) -> Tag {
            let key = self.hasher.key(b"k");
            self.writers.begin(&mut self.counter, Writer(writer), key, 10, 0).0
        }

        fn end(&mut self, writer: u32, tag: Tag) {
            self.writers.answered(&mut self.counter, Writer(writer), tag, 5);
        }

        /// The most that were in flight since the last look, and all that were counted.
        fn look(&mut self) -> (u32, f64) {
            self.now += Duration::from_millis(50);
            let mut snapshot = Snapshot::new();
            self.counter.drain_into(self.now, &mut snapshot);
            let report = Merger::new().merge(self.now, &[&snapshot]);
            let hotness = report.keys.first().expect("named");
            (hotness.writes_in_flight, hotness.writes_per_second)
        }
    }

    #[test]
    fn clients_count_and_not_their_pipelines() {
        let mut rig = Rig::new();
        let tags: Vec<_> = (0..40).map(|_| rig.begin(7)).collect();
        assert_eq!(rig.look(), (1, 40.0));
        let other = rig.begin(8);
        assert_eq!(rig.look(), (2, 41.0));
        for tag in &tags[..39] {
            rig.end(7, *tag);
        }
        rig.look();
        assert_eq!(rig.look().0, 2, "one of the forty is not answered");
        rig.end(7, tags[39]);
        rig.look();
        assert_eq!(rig.look().0, 1);
        rig.end(8, other);
        rig.look();
        assert_eq!(rig.look(), (0, 41.0));
        assert!(rig.writers.pairs.is_empty());
    }

    #[test]
    fn keys_without_a_name_are_not_followed_until_they_get_one() {
        let mut rig = Rig::new();
        rig.counter = WorkerCounter::new(&Settings::default(), 1, Duration::ZERO);
        let tags: Vec<_> = (0..40).map(|_| rig.begin(7)).collect();
        assert!(!tags[0].is_named() && tags[0].is_in_flight());
        assert!(tags[39].is_named(), "so many in flight give a name");
        assert_eq!(rig.writers.pairs.len(), 1);
        assert_eq!(rig.look().0, 1, "all of one client");
        let other = rig.begin(8);
        assert_eq!(rig.look().0, 2);
        for tag in tags {
            if tag.is_named() {
                rig.end(7, tag);
            } else {
                rig.counter.answered(tag, 5, false);
            }
        }
        rig.end(8, other);
        rig.look();
        assert_eq!(rig.look().0, 0);
        assert!(rig.writers.pairs.is_empty());
    }

    #[test]
    fn beyond_the_bound_writes_are_counted_but_not_in_flight() {
        let mut rig = Rig::new();
        for number in 0..MAX_PAIRS as u32 {
            let key = rig.hasher.key(b"other");
            let _ = rig.writers.begin(&mut rig.counter, Writer(number), key, 0, 0);
        }
        let key = rig.hasher.key(b"k");
        let (tag, writer) = rig.writers.begin(&mut rig.counter, Writer(1 << 20), key, 10, 0);
        assert_eq!(writer, None);
        rig.counter.answered(tag, 5, false);
        assert_eq!(rig.writers.pairs.len(), MAX_PAIRS);
        let more = rig.counter.begin(key, Kind::Write, 0, 0);
        rig.counter.answered(more, 0, false);
    }
}
