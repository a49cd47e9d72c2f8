//! Logs: structured, on stderr, quiet unless something deserves attention.
//!
//! Called by: `commands::serve`, once, before anything else may log; `config::kind`, to
//! refuse a filter before it is used.

use tracing_subscriber::EnvFilter;

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

/// Installs the subscriber for the whole process. `filter` has passed [`is_filter`].
pub(crate) fn start(filter: &str, format: Format) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(std::io::stderr);
    match format {
        Format::Text => subscriber.init(),
        Format::Json => subscriber.json().init(),
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
