//! Logs: structured, on stderr, quiet unless something deserves attention.
//!
//! Called by: `commands::serve`, once, before anything else may log, and on reload;
//! `config::kind`, to refuse a filter before it is used; `exit`, for the last words.
//! Invariant: whoever logs never waits for stderr and never fails because of it, see `queue`; no
//! kind of line floods the log, see `limit`.

mod limit;
mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write as _};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{panic, thread};

use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, reload};

use limit::Limit;
use queue::{Queue, Writer, write_to_stderr};

/// How long the end of the process waits for lines that are not written yet.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked whether lines were left out that nobody was told of.
const REPORT_LOOK: Duration = Duration::from_secs(1);

/// Set once a thread writes what is logged.
static RUNNING: OnceLock<(Queue, Limit)> = OnceLock::new();

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Whether `filter` is a level, or directives such as `warn,heatsink_proxy=debug`.
///
/// A bare word that is no level would be taken for the name of a module and silence
/// everything else, so a misspelt level is refused here.
pub(crate) fn is_filter(filter: &str) -> bool {
    filter.split(',').all(|directive| {
        directive.contains(['=', '['])
            || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(directive))
    }) && EnvFilter::builder().parse(filter).is_ok()
}

/// The way to change what is logged.
pub(crate) struct Log {
    set: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error>>,
}

impl Log {
    /// Logs by `filter`, which has passed [`is_filter`], from now on.
    pub(crate) fn set(&self, filter: &str) {
        if let Err(error) = (self.set)(EnvFilter::builder().parse_lossy(filter)) {
            tracing::error!(%error, "cannot change what is logged");
        }
    }
}

/// Installs the subscriber for the whole process. `filter` has passed [`is_filter`].
pub(crate) fn start(filter: &str, format: Format) -> io::Result<Log> {
    let (queue, limit) = RUNNING.get_or_init(Default::default);
    let tell = |lines| tracing::warn!(lines, "log lines were dropped: stderr did not take them");
    let mut writer = Writer::new(queue.clone(), write_to_stderr, tell);
    let write = move || {
        loop {
            writer.write_next(REPORT_LOOK);
            limit.report(Instant::now());
        }
    };
    thread::Builder::new().name("log".to_owned()).spawn(write)?;
    panic::set_hook(Box::new(|info| {
        // As the standard hook would, but for the wait if stderr is stuck: then the process would
        // neither go on nor end.
        queue.push(format!("heatsink: {info}\n").as_bytes());
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            queue.push(backtrace.to_string().as_bytes());
        }
        queue.flush(LAST_WAIT);
    }));
    let (filter, handle) = reload::Layer::new(EnvFilter::builder().parse_lossy(filter));
    let lines = tracing_subscriber::fmt::layer()
        // Or a line that cannot be formatted would be reported with a print that may panic.
        .log_internal_errors(false)
        .with_writer(queue.clone());
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines).with(filter).with(limit.clone()).init();
    Ok(Log { set: Box::new(move |filter| handle.reload(filter)) })
}

/// How many log lines were dropped so far.
pub(crate) fn dropped_lines() -> Arc<AtomicU64> {
    RUNNING.get_or_init(Default::default).0.dropped()
}

/// Prints lines that are no log on stderr, behind what was logged. Nothing fails if nobody reads
/// them, and the end of a process that logs is not held up for long.
pub(crate) fn print_last(lines: &[String]) {
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    match RUNNING.get() {
        Some((queue, limit)) => {
            limit.report_all();
            queue.push(text.as_bytes());
            queue.flush(LAST_WAIT);
        }
        None => drop(io::stderr().write_all(text.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_filters_and_other_words_are_not() {
        for good in ["warn", "WARN", "off", "warn,heatsink_proxy=debug", "info,mio=off"] {
            assert!(is_filter(good), "{good}");
        }
        for bad in ["", "wran", "warn,", "heatsink_proxy=loud", "warn,debugg", "info, mio=off"] {
            assert!(!is_filter(bad), "{bad}");
        }
    }
}
