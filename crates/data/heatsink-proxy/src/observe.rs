//! The stage that counts: every key of every request that is sent on, and what the replies
//! show of it.
//!
//! Called by: `intake` and `cluster::route` when a request is taken, `replies` when it is
//! answered, the worker's loop when a tick is due.
//! Bound: the counter's memory is fixed; requests that name several keys keep a list of tags
//! until they are answered.
//! Invariant: a request is counted once, when it is taken. One that has to wait is parsed
//! again later, and is not counted before. The keys of a transaction are counted when the
//! server has executed it.
//!
//! Nothing here is shared with another thread but the mailbox into which a snapshot is put at
//! each tick. The ticks of all workers fall on the same moments, so that whoever adds the
//! snapshots up a little later finds them all fresh.

mod detector;
mod queued;
mod writers;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heatsink_detect::config::Settings;
use heatsink_detect::handover::Outbox;
use heatsink_detect::heat::Kind;
use heatsink_detect::heavy::{Tag, WorkerCounter};
use heatsink_detect::key::{Key, KeyHasher};
use heatsink_resp::command::{Access, Command, ValueKind};
use heatsink_resp::glob;
use heatsink_resp::reply::{ReplyScan, Status};
use slab::Slab;

use crate::config::{Live, Rule};
use crate::downstream::connection::ClientKey;
use crate::downstream::request::Request;
use crate::runtime::clock::Clock;
pub use detector::Detector;
pub(crate) use detector::{Station, stations};
pub(crate) use queued::QueuedKeys;
pub(crate) use writers::Writer;
use writers::Writers;

/// Requests whose counters are fetched before the first of them is counted.
const TOGETHER: usize = 16;

/// What is remembered of a request until it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing: it names no key, or its keys are not counted.
    #[default]
    Nothing,
    /// It names one key.
    One(Tag),
    /// It writes one, and others of this client may be under way.
    Write(Tag, Writer),
    /// It names several; where their tags are.
    Several(u32),
    /// It touches hot keys; see [`crate::hot`].
    Hot(u32),
}

impl Mark {
    fn of((tag, writer): (Tag, Option<Writer>)) -> Self {
        writer.map_or(Self::One(tag), |writer| Self::Write(tag, writer))
    }
}

/// A request that is counted with its batch.
#[derive(Debug)]
struct Awaited {
    /// Where its key stands in the client's bytes.
    name: Range<usize>,
    bytes: usize,
    kind: Kind,
    value: ValueKind,
    /// Its place in the batch.
    place: usize,
}

/// A request that is passed on piece by piece.
#[derive(Debug)]
pub(crate) struct Upload {
    tags: Vec<Tag>,
    /// Bytes that are still to be passed on, and were counted when it began.
    counted: u64,
    /// Bytes that were passed on.
    total: u64,
}

/// The tags of a request that names several keys.
#[derive(Debug)]
struct Group {
    /// Each with who has it in flight, if it is a write.
    tags: Vec<(Tag, Option<Writer>)>,
    /// The reply has one element for each key (`MGET`).
    by_element: bool,
}

/// What a reply on a dedicated connection has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) mark: Mark,
    pub(crate) bytes: u64,
    pub(crate) miss: bool,
}

/// The counting of one worker.
#[derive(Debug)]
pub(crate) struct Observer {
    counter: WorkerCounter,
    hasher: KeyHasher,
    outbox: Outbox,
    groups: Slab<Group>,
    writers: Writers,
    /// Requests that are counted when their batch is sent.
    awaited: Vec<Awaited>,
    /// Set if some keys are not to be counted.
    policy: Option<(Arc<[Rule]>, bool)>,
    /// The reporting threshold as the ticker wants it, and as the counter knows it.
    wanted_threshold: Arc<AtomicU32>,
    threshold: u32,
    /// The number of proxies, likewise.
    wanted_proxies: Arc<AtomicU32>,
    proxies: u32,
    clock: Clock,
    origin: Instant,
    tick: Duration,
    window: Duration,
    /// When the next snapshot is due; `None` while nothing was counted for a whole window.
    due: Option<Instant>,
    /// When something was last counted, as of the ticks.
    busy_at: Instant,
    counted: u64,
    counted_before: u64,
}

impl Observer {
    pub(crate) fn new(
        station: Station,
        settings: &Settings,
        workers: usize,
        live: &Live,
        clock: Clock,
    ) -> Self {
        let now = clock.now().saturating_duration_since(station.origin);
        let mut observer = Self {
            counter: WorkerCounter::new(settings, workers, now),
            hasher: station.hasher,
            outbox: station.outbox,
            groups: Slab::new(),
            writers: Writers::default(),
            awaited: Vec::new(),
            policy: None,
            threshold: settings.report_threshold,
            wanted_threshold: station.threshold,
            wanted_proxies: station.proxies,
            proxies: 1,
            origin: station.origin,
            clock,
            tick: settings.slot_length(),
            window: settings.window(),
            due: None,
            busy_at: station.origin,
            counted: 0,
            counted_before: 0,
        };
        observer.apply(live);
        observer
    }

    /// Takes over settings that were changed.
    pub(crate) fn apply(&mut self, live: &Live) {
        let all = live.counts_others && live.policy.iter().all(|rule| rule.counted);
        self.policy = (!all).then(|| (Arc::clone(&live.policy), live.counts_others));
        if let Some(settings) = &live.detect {
            self.counter.apply(settings);
        }
    }

    /// Counts these keys exactly, however few requests they get.
    pub(crate) fn follow<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) {
        let hasher = &self.hasher;
        self.counter.follow(names.map(|name| hasher.key(name)));
    }

    /// Keys counted so far.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// When [`Self::tick`] wants to be called.
    #[inline]
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Puts a snapshot where the ticker finds it, if one is due.
    #[inline]
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.due.is_some_and(|due| now >= due) {
            self.publish(now);
        }
    }

    fn publish(&mut self, now: Instant) {
        let threshold = self.wanted_threshold.load(Ordering::Relaxed);
        if threshold != self.threshold {
            self.threshold = threshold;
            self.counter.set_report_threshold(threshold);
        }
        let proxies = self.wanted_proxies.load(Ordering::Relaxed);
        if proxies != self.proxies {
            self.proxies = proxies;
            self.counter.set_proxies(proxies as usize);
        }
        let since = now.saturating_duration_since(self.origin);
        self.outbox.publish(since, &mut self.counter);
        if self.counted != self.counted_before {
            self.counted_before = self.counted;
            self.busy_at = now;
        }
        let next = now + until_next(since, self.tick);
        let busy = now.saturating_duration_since(self.busy_at) <= self.window + 2 * self.tick;
        self.due = busy.then_some(next.max(now + self.tick / 4));
    }

    /// The first request after a time of silence: the counter's clock has stood still.
    #[cold]
    fn wake(&mut self) {
        let now = self.clock.now();
        self.busy_at = now;
        self.publish(now);
    }

    #[inline]
    fn counts(&self, name: &[u8]) -> bool {
        match &self.policy {
            None => true,
            Some((rules, others)) => {
                let rule = rules.iter().find(|rule| glob::matches(&rule.pattern, name));
                rule.map_or(*others, |rule| rule.counted)
            }
        }
    }

    #[inline]
    fn begin(&mut self, key: Key<'_>, kind: Kind, bytes: u64, value: ValueKind) -> Tag {
        if self.due.is_none() {
            self.wake();
        }
        self.counted += 1;
        self.counter.begin(key, kind, bytes, value as u8)
    }

    /// Begins to count a write by a client that may have other writes of the key under way.
    #[inline]
    fn begin_write(
        &mut self,
        writer: Writer,
        key: Key<'_>,
        bytes: u64,
        value: ValueKind,
    ) -> (Tag, Option<Writer>) {
        if self.due.is_none() {
            self.wake();
        }
        self.counted += 1;
        self.writers.begin(&mut self.counter, writer, key, bytes, value as u8)
    }

    /// Counts the keys of a request of a client that is sent on now.
    #[inline]
    pub(crate) fn sent(&mut self, from: Writer, command: &Command, request: Request<'_>) -> Mark {
        let Some(kind) = kind(command) else { return Mark::Nothing };
        if let Some(index) = command.single_key_index() {
            return match request.arg(index) {
                Some(name) if self.counts(name) => {
                    let (bytes, key) = (request.bytes.len() as u64, self.hasher.key(name));
                    match kind {
                        Kind::Read => Mark::One(self.begin(key, kind, bytes, command.value_kind)),
                        Kind::Write => {
                            Mark::of(self.begin_write(from, key, bytes, command.value_kind))
                        }
                    }
                }
                _ => Mark::Nothing,
            };
        }
        self.sent_several(from, command, request, kind)
    }

    fn sent_several(
        &mut self,
        from: Writer,
        command: &Command,
        request: Request<'_>,
        kind: Kind,
    ) -> Mark {
        let mut names = Names::default();
        names.collect(command, request, &self.hasher);
        let bytes = request.bytes.len() / names.found.len().max(1);
        let mut tags = Vec::with_capacity(names.found.len());
        for index in names.found {
            let name = request.arg(index).unwrap_or_default();
            if self.counts(name) {
                let key = self.hasher.key(name);
                tags.push(match kind {
                    Kind::Read => (self.begin(key, kind, bytes as u64, command.value_kind), None),
                    Kind::Write => self.begin_write(from, key, bytes as u64, command.value_kind),
                });
            }
        }
        match tags.as_slice() {
            [] => Mark::Nothing,
            [tag] => Mark::of(*tag),
            _ => {
                let by_element = &*command.name == "mget" && tags.len() + 1 == request.len();
                Mark::Several(self.groups.insert(Group { tags, by_element }) as u32)
            }
        }
    }

    /// Counts the keys of a request on a client's dedicated connection. Only of a read of one key is
    /// anything remembered: it does no harm if that is lost with the connection.
    pub(crate) fn sent_apart(
        &mut self,
        from: Writer,
        command: &Command,
        request: Request<'_>,
    ) -> Mark {
        let mark = self.sent(from, command, request);
        self.kept_apart(mark)
    }

    fn kept_apart(&mut self, mark: Mark) -> Mark {
        match mark {
            Mark::One(tag) if !tag.is_write() => mark,
            mark => {
                self.given_up(mark);
                Mark::Nothing
            }
        }
    }

    /// Counts the keys of a request that is passed on before it is complete, by what is there.
    /// Of its reply as much is remembered as of any other's on a client's dedicated connection.
    pub(crate) fn upload_begins(
        &mut self,
        from: Writer,
        command: &Command,
        request: Request<'_>,
    ) -> (Upload, Mark) {
        let mark = self.sent(from, command, request);
        let tags = match mark {
            Mark::One(tag) | Mark::Write(tag, _) => vec![tag],
            Mark::Several(group) => {
                let group = self.groups.get(group as usize);
                group.map_or_else(Vec::new, |group| group.tags.iter().map(|tag| tag.0).collect())
            }
            Mark::Nothing | Mark::Hot(_) => Vec::new(),
        };
        let upload = Upload { tags, counted: request.bytes.len() as u64, total: 0 };
        (upload, self.kept_apart(mark))
    }

    /// More of it was passed on.
    pub(crate) fn uploaded(&mut self, upload: &mut Upload, bytes: usize) {
        upload.total += bytes as u64;
        let known = upload.counted.min(bytes as u64);
        upload.counted -= known;
        let count = upload.tags.len().max(1) as u64;
        for tag in &upload.tags {
            self.counter.moved(*tag, (bytes as u64 - known) / count, upload.total / count);
        }
    }

    /// A read on a client's dedicated connection is answered.
    pub(crate) fn answered_apart(&mut self, answer: &Answer) {
        if let Mark::One(tag) = answer.mark {
            self.counter.answered(tag, answer.bytes, answer.miss);
        }
    }

    /// Counts a request of one key that is answered here.
    #[inline]
    pub(crate) fn absorbed(&mut self, command: &Command, request: Request<'_>, reply: usize) {
        let (Some(kind), Some(index)) = (kind(command), command.single_key_index()) else { return };
        let Some(name) = request.arg(index) else { return };
        if self.due.is_none() {
            self.wake();
        }
        self.counted += 1;
        let bytes = (request.bytes.len() + reply) as u64;
        self.counter.record_absorbed(self.hasher.key(name), kind, bytes);
    }

    /// Counts keys that a transaction has named.
    pub(crate) fn executed(&mut self, keys: &QueuedKeys) {
        keys.for_each(|name, kind, bytes, value| {
            if self.counts(name) {
                let tag = self.begin(self.hasher.key(name), kind, bytes, value);
                self.counter.answered(tag, 0, false);
            }
        });
    }

    /// A request is answered; `before` bytes of the reply came before `reply`.
    #[inline]
    pub(crate) fn answered(&mut self, mark: &Mark, reply: &[u8], before: u64) {
        match *mark {
            Mark::Nothing | Mark::Hot(_) => {}
            Mark::One(tag) => {
                let miss = !tag.is_write() && before == 0 && is_nothing(reply);
                self.counter.answered(tag, before + reply.len() as u64, miss);
            }
            Mark::Write(tag, writer) => {
                let bytes = before + reply.len() as u64;
                self.writers.answered(&mut self.counter, writer, tag, bytes);
            }
            Mark::Several(group) => self.answered_several(group, reply, before),
        }
    }

    fn answered_several(&mut self, group: u32, reply: &[u8], before: u64) {
        let Some(group) = self.groups.try_remove(group as usize) else { return };
        let count = group.tags.len() as u64;
        let mut elements = group.by_element.then(|| Elements::of(reply)).flatten();
        if before > 0 {
            elements = None;
        }
        for (tag, writer) in group.tags {
            if let Some(writer) = writer {
                let bytes = (before + reply.len() as u64) / count;
                self.writers.answered(&mut self.counter, writer, tag, bytes);
                continue;
            }
            match elements.as_mut().map(Elements::next) {
                Some(Some(element)) => {
                    self.counter.answered(tag, element.len() as u64, is_nothing(element));
                }
                Some(None) => self.counter.answered(tag, 0, false),
                None => self.counter.answered(tag, (before + reply.len() as u64) / count, false),
            }
        }
    }

    /// A request will not be answered, or its answer does not matter.
    pub(crate) fn given_up(&mut self, mark: Mark) {
        match mark {
            Mark::Nothing | Mark::Hot(_) => {}
            Mark::One(tag) => self.counter.answered(tag, 0, false),
            Mark::Write(tag, writer) => self.writers.answered(&mut self.counter, writer, tag, 0),
            Mark::Several(group) => {
                if let Some(group) = self.groups.try_remove(group as usize) {
                    for tag in group.tags {
                        self.given_up(Mark::of(tag));
                    }
                }
            }
        }
    }
}

/// Everybody's ticks fall on multiples of the tick since the origin.
pub(crate) fn until_next(since_origin: Duration, tick: Duration) -> Duration {
    let into = since_origin.as_nanos() % tick.as_nanos().max(1);
    tick.saturating_sub(Duration::from_nanos(into as u64))
}

/// How a command is counted; `None` if it touches no data.
#[inline]
pub(crate) fn kind(command: &Command) -> Option<Kind> {
    match command.access {
        Access::Read => Some(Kind::Read),
        Access::Write => Some(Kind::Write),
        Access::Neither => None,
    }
}

/// The keys of a request, each once.
#[derive(Default)]
struct Names {
    /// The arguments that are keys.
    found: Vec<usize>,
    hashes: Vec<u64>,
}

/// With more keys than this, one that is named twice is counted twice.
const MAX_COMPARED: usize = 64;

impl Names {
    fn collect(&mut self, command: &Command, request: Request<'_>, hasher: &KeyHasher) {
        let arg = |index| request.arg(index).unwrap_or_default();
        command.for_each_key(request.len(), arg, |index| {
            let hash = hasher.key(arg(index)).hash();
            if self.hashes.len() < MAX_COMPARED {
                if self.hashes.contains(&hash) {
                    return;
                }
                self.hashes.push(hash);
            }
            self.found.push(index);
        });
    }
}

/// A reply that says that there is nothing: null, or nothing in it.
#[inline]
pub(crate) fn is_nothing(reply: &[u8]) -> bool {
    matches!(reply, [b'$' | b'*', b'-', ..] | [b'_', ..] | [b'*' | b'%' | b'~', b'0', ..])
}

/// The elements of a reply that is an array.
struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    fn of(reply: &'a [u8]) -> Option<Self> {
        let head = reply.iter().position(|byte| *byte == b'\n')?;
        (reply.first() == Some(&b'*')).then(|| Self { rest: &reply[head + 1..] })
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        match ReplyScan::default().advance(self.rest) {
            Ok(Status::Complete(len)) => {
                let element;
                (element, self.rest) = self.rest.split_at(len);
                Some(element)
            }
            _ => None,
        }
    }
}

/// Requests that came together are counted together, right before they are sent.
///
/// By the time a client is heard again, the counters have left the near caches. If each request
/// waited for its own, that would be most of what counting costs; the fetches of several
/// overlap.
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
                    let hash = key.map_or(0, Key::hash);
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

#[cfg(test)]
mod tests;
