//! Logs: structured, on stderr, quiet unless something deserves attention.
//!
//! Called by: `commands::serve`, once, before anything else may log, and on reload;
//! `config::kind`, to refuse a filter before it is used.

use tracing_subscriber::{EnvFilter, reload};

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
pub(crate) fn start(filter: &str, format: Format) -> Log {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(std::io::stderr);
    match format {
        Format::Text => {
            let subscriber = subscriber.with_filter_reloading();
            let handle = subscriber.reload_handle();
            subscriber.init();
            Log { set: Box::new(move |filter| handle.reload(filter)) }
        }
        Format::Json => {
            let subscriber = subscriber.json().with_filter_reloading();
            let handle = subscriber.reload_handle();
            subscriber.init();
            Log { set: Box::new(move |filter| handle.reload(filter)) }
        }
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
