//! The flags of `heatsink scan`.

use std::time::Duration;

use clap::ValueEnum;
use heatsink_scan::{Method, Options};
use heatsink_upstream::address::Url;

use super::tls::TlsArgs;
use super::uses_tls;
use crate::exit::Failure;

/// What was typed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ScanArgs {
    /// The server (redis://) or the cluster (redis+cluster://) to look at
    #[arg(value_name = "URL")]
    url: String,
    /// Look at all primaries of the cluster that a redis:// server belongs to
    #[arg(long)]
    all_nodes: bool,
    /// How to look: HOTKEYS costs little, MONITOR works everywhere; auto takes HOTKEYS if
    /// every node has it
    #[arg(long, value_name = "NAME", default_value = "auto")]
    method: MethodName,
    /// How long to look at most
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// How many commands to look at at most, all nodes together (MONITOR)
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    max_commands: u64,
    /// Keys to show
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    keys: u16,
    /// Requests/s from which Heatsink would call a key hot
    #[arg(long, value_name = "N", default_value_t = 1_000.0)]
    hot_threshold: f64,
    /// Timeout for connecting and for each reply
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print JSON, for scripts
    #[arg(long)]
    pub(crate) json: bool,
    /// Accept the cost without being asked
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MethodName {
    Auto,
    Monitor,
    Hotkeys,
}

impl ScanArgs {
    /// What they mean; nothing is connected to.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let url: Url =
            self.url.parse().map_err(|error| Failure::Usage(format!("the URL: {error}")))?;
        let wrong = |what: &str| Err(Failure::Usage(what.to_owned()));
        if self.duration.is_zero() {
            return wrong("--duration must be above 0");
        }
        if !(self.hot_threshold.is_finite() && self.hot_threshold > 0.0) {
            return wrong("--hot-threshold must be above 0");
        }
        let tls = self.tls.load(uses_tls(&url))?;
        Ok(Options {
            all_nodes: self.all_nodes,
            tls,
            method: match self.method {
                MethodName::Auto => Method::Auto,
                MethodName::Monitor => Method::Monitor,
                MethodName::Hotkeys => Method::Hotkeys,
            },
            duration: self.duration,
            commands_max: self.max_commands,
            keys: self.keys.into(),
            hot_threshold: self.hot_threshold,
            timeout: self.timeout,
            ..Options::new(url)
        })
    }
}
