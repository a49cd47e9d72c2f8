//! The second stage: settings that fit together, in the types the components take.
//!
//! Called by: the commands, after `merge`.
//! Invariant: whoever holds a [`Config`] need not check anything again.

use std::net::SocketAddr;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use heatsink_proxy::config::{Limits, Timeouts};
use heatsink_upstream::address::{Upstream, Url};

use super::merge::Settings;
use super::raw::{Mistake, Place};
use super::value::Value;
use crate::logging::Format;

/// What `serve` runs with.
#[derive(Debug)]
pub(crate) struct Config {
    /// Address to accept clients on.
    pub(crate) listen: SocketAddr,
    /// The Redis side.
    pub(crate) upstream: Url,
    /// Worker threads, at least one.
    pub(crate) workers: usize,
    /// Bounds on what a client may use.
    pub(crate) limits: Limits,
    /// Bounds on how long the upstream may take.
    pub(crate) timeouts: Timeouts,
    /// Bound on finishing what is in flight at the end.
    pub(crate) shutdown: Duration,
    /// What to log.
    pub(crate) log: String,
    /// How to log it.
    pub(crate) log_format: Format,
}

impl Config {
    /// Checks what spans several keys, and converts.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<Mistake>> {
        let mistakes = contradictions(settings);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let duration = |path, unit_ms| Duration::from_millis(settings.whole(path) * unit_ms);
        let unless_zero = |time: Duration| (!time.is_zero()).then_some(time);
        Ok(Self {
            listen: settings.address("listen"),
            upstream: settings.url("upstream"),
            workers: match settings.whole("workers") {
                0 => thread::available_parallelism().map_or(1, NonZero::get),
                count => count as usize,
            },
            limits: Limits {
                max_clients: settings.whole("limits.max_clients") as usize,
                max_request_bytes: settings.whole("limits.max_request_bytes"),
                max_bulk_bytes: settings.whole("limits.max_bulk_bytes"),
                max_args: settings.whole("limits.max_args"),
                unauthenticated_max_args: settings.whole("limits.unauthenticated_max_args"),
                unauthenticated_max_bytes: settings.whole("limits.unauthenticated_max_bytes"),
                max_output_bytes: settings.whole("limits.max_output_bytes"),
                idle: unless_zero(duration("limits.idle_seconds", 1000)),
            },
            timeouts: Timeouts {
                connect: duration("timeouts.connect_ms", 1),
                silence: unless_zero(duration("timeouts.silence_ms", 1)),
            },
            shutdown: duration("timeouts.shutdown_ms", 1),
            log: settings.text("log"),
            log_format: match settings.text("log_format").as_str() {
                "json" => Format::Json,
                _ => Format::Text,
            },
        })
    }

    /// The settings of the data plane before `upstream`, once that is known.
    pub(crate) fn proxy(&self, upstream: Upstream) -> heatsink_proxy::Config {
        heatsink_proxy::Config {
            listen: self.listen,
            upstream,
            workers: self.workers,
            limits: self.limits.clone(),
            timeouts: self.timeouts.clone(),
        }
    }
}

/// Values that are fine alone and wrong together, or wrong in this version.
fn contradictions(settings: &Settings) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut refuse = |path: &str, text: &str| {
        let setting = settings.get(path);
        mistakes.push(Mistake::of(setting.key, setting.place.clone(), text));
    };
    if settings.text("role") == "aggregator" {
        refuse("role", "\"aggregator\" does not exist in this version; use \"all\" or \"proxy\"");
    }
    let (window, tick) = (settings.whole("detect.window_ms"), settings.whole("detect.tick_ms"));
    if window < tick {
        // Blamed on the one that somebody set, since a default cannot be corrected.
        if settings.get("detect.window_ms").place == Place::Default {
            let text = format!("{tick} is more than detect.window_ms, which is {window}");
            refuse("detect.tick_ms", &text);
        } else {
            let text = format!("{window} is less than detect.tick_ms, which is {tick}");
            refuse("detect.window_ms", &text);
        }
    }
    mistakes
}

/// Typed reading of the table. A key of another kind is a slip in this crate, which the test
/// below finds, since every key that is read is read on every run.
impl Settings {
    fn whole(&self, path: &str) -> u64 {
        match &self.get(path).value {
            Value::Whole(number) | Value::Bytes(number) => *number,
            other => unreachable!("{path} is {other}, not a number"),
        }
    }

    fn text(&self, path: &str) -> String {
        match &self.get(path).value {
            Value::Text(text) => text.clone(),
            Value::Word(word) => (*word).to_owned(),
            other => unreachable!("{path} is {other}, not a text"),
        }
    }

    fn address(&self, path: &str) -> SocketAddr {
        match &self.get(path).value {
            Value::Address(address) => *address,
            other => unreachable!("{path} is {other}, not an address"),
        }
    }

    fn url(&self, path: &str) -> Url {
        match &self.get(path).value {
            Value::Url { url, .. } => url.clone(),
            other => unreachable!("{path} is {other}, not a URL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{merge, toml_file};
    use super::*;

    fn config(file: &str) -> Result<Config, Vec<Mistake>> {
        let settings = merge(vec![toml_file::read("h.toml", file.as_bytes())]).expect("merges");
        Config::new(&settings)
    }

    #[test]
    fn defaults_are_those_of_the_components() {
        let config = config("").expect("valid");
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.timeouts, Timeouts::default());
        assert_eq!(config.upstream, Url::Embedded);
        assert!(config.workers >= 1);
    }

    #[test]
    fn every_setting_arrives_where_it_belongs() {
        let config = config(
            "listen = \"[::1]:7000\"\nupstream = \"redis://h:1/2\"\nworkers = 3\n\
             log = \"debug\"\nlog_format = \"json\"\n\
             [limits]\nmax_clients = 11\nmax_request_bytes = 2001\nmax_bulk_bytes = 2002\n\
             max_args = 2003\nunauthenticated_max_args = 12\nunauthenticated_max_bytes = 2004\n\
             max_output_bytes = \"4KiB\"\nidle_seconds = 13\n\
             [timeouts]\nconnect_ms = 14\nsilence_ms = 0\nshutdown_ms = 15\n",
        )
        .expect("valid");
        assert_eq!(config.listen.to_string(), "[::1]:7000");
        assert_eq!(config.upstream.to_string(), "redis://h:1/2");
        assert_eq!(config.workers, 3);
        assert_eq!((config.log.as_str(), config.log_format), ("debug", Format::Json));
        assert_eq!(
            config.limits,
            Limits {
                max_clients: 11,
                max_request_bytes: 2001,
                max_bulk_bytes: 2002,
                max_args: 2003,
                unauthenticated_max_args: 12,
                unauthenticated_max_bytes: 2004,
                max_output_bytes: 4096,
                idle: Some(Duration::from_secs(13)),
            }
        );
        let timeouts = Timeouts { connect: Duration::from_millis(14), silence: None };
        assert_eq!(config.timeouts, timeouts);
        assert_eq!(config.shutdown, Duration::from_millis(15));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let mistakes =
            config("role = \"aggregator\"\n[detect]\nwindow_ms = 40\n").expect_err("two");
        let shown: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "h.toml:1: role: \"aggregator\" does not exist in this version; use \"all\" or \
                 \"proxy\"",
                "h.toml:3: detect.window_ms: 40 is less than detect.tick_ms, which is 50",
            ]
        );
    }
}
