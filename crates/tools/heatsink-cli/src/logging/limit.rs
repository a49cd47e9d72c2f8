//! No kind of log line may flood the log: clients that nobody knows can cause some of them.
//!
//! A kind is a place in the program that logs. Of each kind [`BURST`] lines pass at once, and one
//! every [`PERIOD`] after that; the others are left out, and every [`REPORT`] a line says how many.
//!
//! Called by: the subscriber, for each line that the filter lets pass; the thread that writes, for
//! what was left out.
//! Bound: as many kinds as there are places that log.
//! Invariant: what somebody asked to see in detail (`debug`, `trace`) and what operators
//! have changed is never left out.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

const BURST: u32 = 30;
const PERIOD: Duration = Duration::from_secs(1);
const REPORT: Duration = Duration::from_secs(10);
/// What is told of a line that was left out.
const EXAMPLE_CHARS: usize = 120;
/// Who is never limited: what operators do by hand, reloads, and this module.
const EXEMPT: [&str; 3] =
    ["heatsink_admin::audit", "heatsink::commands::serve::reload", module_path!()];

/// What was logged recently. A clone is another handle to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    kinds: Arc<Mutex<HashMap<Identifier, Kind>>>,
}

#[derive(Debug)]
struct Kind {
    /// Lines that may pass now.
    allowed: u32,
    /// When one more was last allowed.
    refilled: Instant,
    left_out: u64,
    /// When lines began to be left out that were not told of.
    since: Instant,
    level: Level,
    example: String,
}

/// Lines of one kind that were left out.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    count: u64,
    level: Level,
    example: String,
}

impl Limit {
    /// Logs how many lines were left out, for each kind that it is time for.
    pub(super) fn report(&self, now: Instant) {
        // Not while the lock is held: what is logged here is looked at in `event_enabled`.
        let found: Vec<LeftOut> =
            self.lock().values_mut().filter_map(|kind| kind.left_out(now)).collect();
        for LeftOut { count, level, example } in found {
            if level == Level::INFO {
                tracing::info!(count, "log lines like this were suppressed: {example}");
            } else {
                tracing::warn!(count, "log lines like this were suppressed: {example}");
            }
        }
    }

    /// The same for every kind, because the process ends.
    pub(super) fn report_all(&self) {
        self.report(Instant::now() + REPORT);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identifier, Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let level = *metadata.level();
        if level > Level::INFO || EXEMPT.contains(&metadata.target()) {
            return true;
        }
        let now = Instant::now();
        let mut kinds = self.lock();
        let kind = kinds.entry(metadata.callsite()).or_insert_with(|| Kind::new(level, now));
        kind.takes(now, || {
            let mut message = Message::default();
            event.record(&mut message);
            message.0.chars().take(EXAMPLE_CHARS).collect()
        })
    }
}

impl Kind {
    fn new(level: Level, now: Instant) -> Self {
        let example = String::new();
        Self { allowed: BURST, refilled: now, left_out: 0, since: now, level, example }
    }

    /// Whether one more line passes.
    fn takes(&mut self, now: Instant, example: impl FnOnce() -> String) -> bool {
        let periods = now.saturating_duration_since(self.refilled).as_millis() / PERIOD.as_millis();
        if periods > 0 {
            let more = u32::try_from(periods).unwrap_or(u32::MAX);
            self.allowed = self.allowed.saturating_add(more).min(BURST);
            self.refilled = now;
        }
        if self.allowed > 0 {
            self.allowed -= 1;
            return true;
        }
        if self.left_out == 0 {
            self.since = now;
            self.example = example();
        }
        self.left_out += 1;
        false
    }

    /// What was left out, if it is time to say so.
    fn left_out(&mut self, now: Instant) -> Option<LeftOut> {
        if self.left_out == 0 || now.saturating_duration_since(self.since) < REPORT {
            return None;
        }
        let count = std::mem::take(&mut self.left_out);
        Some(LeftOut { count, level: self.level, example: std::mem::take(&mut self.example) })
    }
}

/// The message of an event, without its other fields.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> String {
        "x".to_owned()
    }

    #[test]
    fn a_flood_leaves_a_burst_a_trickle_and_counts() {
        let start = Instant::now();
        let mut kind = Kind::new(Level::WARN, start);
        // 1000 lines a second for 25 seconds.
        let (mut passed, mut told) = (0, 0);
        for ms in 0..25_000 {
            let now = start + Duration::from_millis(ms);
            passed += u64::from(kind.takes(now, example));
            if let Some(LeftOut { count, level: Level::WARN, example }) = kind.left_out(now) {
                assert_eq!(example, "x");
                told += count;
            }
        }
        assert_eq!(passed, u64::from(BURST) + 24);
        let end = start + Duration::from_secs(60);
        let last = kind.left_out(end).expect("it is time");
        assert_eq!(passed + told + last.count, 25_000);
        assert_eq!(kind.left_out(end), None);
    }

    #[test]
    fn a_line_now_and_then_is_never_left_out() {
        let start = Instant::now();
        let mut kind = Kind::new(Level::INFO, start);
        for second in 0..1000 {
            assert!(kind.takes(start + second * PERIOD, example));
        }
        // As many as at first, after a rest.
        let later = start + Duration::from_secs(2000);
        let passed = (0..100).filter(|_| kind.takes(later, example)).count();
        assert_eq!(passed, BURST as usize);
    }
}
