//! The flags of `heatsink load`.

use std::path::PathBuf;
use std::time::Duration;

use heatsink_load::options::{Options, Pace, Target};
use heatsink_load::scenario::Scenario;
use heatsink_load::workload::Shape;
use heatsink_upstream::address::Url;

use super::tls::TlsArgs;
use super::uses_tls;
use crate::exit::Failure;

/// What was typed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Server or proxy to load; several are compared, in rounds that take turns
    #[arg(long, value_name = "[NAME=]URL", num_args = 1.., required = true)]
    target: Vec<String>,
    /// Scenario to play: zipf, viral, moving, stampede, counter, flash-sale
    #[arg(long, value_name = "NAME", default_value = "viral")]
    scenario: Scenario,
    /// Requests/s, sent by the clock [default: as many as the connections manage]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Connections to each target
    #[arg(long, value_name = "N", default_value_t = 50)]
    connections: u32,
    /// Requests of one connection that may be in flight at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: u32,
    /// Threads that drive the connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Measured time of each target, all rounds together
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// Unmeasured time before each round
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    warmup: Duration,
    /// Rounds, in which the targets take turns [default: 1, or 3 with several targets]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    keys: u32,
    /// Exponent of the Zipf law by which keys are chosen
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    exponent: f64,
    /// Share of the requests that write, 0 to 1
    #[arg(long, value_name = "X", default_value_t = 0.05)]
    write_share: f64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_size: usize,
    /// Seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Share of all requests that go to hot keys, 0 to 1
    #[arg(long, value_name = "X", default_value_t = 0.5)]
    hot_share: f64,
    /// When keys become hot, from the start of a round [default: after a third of it]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    onset: Option<Duration>,
    /// Scenario counter: number of counters
    #[arg(long, value_name = "N", default_value_t = 1)]
    counters: u32,
    /// Scenario stampede: time to live of the hot key
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Scenario stampede: how long it takes to recompute its value
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = humantime::parse_duration)]
    recompute: Duration,
    /// Scenario flash-sale: how many items there are to sell
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    stock: u64,
    /// Server behind the targets whose commands are counted (INFO commandstats)
    #[arg(long, value_name = "URL", num_args = 1..)]
    upstream: Vec<String>,
    /// Prefix of all keys
    #[arg(long, value_name = "TEXT", default_value = "heatsink:load:")]
    prefix: String,
    /// Leave the keys on the servers
    #[arg(long)]
    keep_keys: bool,
    /// Timeout for connecting, and for replies that are outstanding at the end of a round
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Write the results as JSON; - writes them to stdout instead of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the results as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

impl LoadArgs {
    /// What they mean, checked; nothing is connected to.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let targets = self.target.iter().map(|text| {
            Target::parse(text).map_err(|error| Failure::Usage(format!("--target: {error}")))
        });
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let upstreams = self.upstream.iter().map(|text| {
            text.parse::<Url>().map_err(|error| Failure::Usage(format!("--upstream: {error}")))
        });
        let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
        let secured =
            targets.iter().any(|target| target.server.tls) || upstreams.iter().any(uses_tls);
        let mut options = Options::new(self.scenario, targets);
        options.upstreams = upstreams;
        options.tls = self.tls.load(secured)?;
        options.pace = self.rate.map_or(Pace::Closed, Pace::Rate);
        options.connections = self.connections;
        options.pipeline = self.pipeline;
        options.threads = self.threads;
        options.duration = self.duration;
        options.warmup = self.warmup;
        options.rounds = self.rounds.unwrap_or(options.rounds);
        options.shape = Shape {
            keys: self.keys,
            exponent: self.exponent,
            write_share: self.write_share,
            seed: self.seed,
        };
        options.value_bytes = self.value_size;
        options.hot_share = self.hot_share;
        options.onset = self.onset;
        options.counters = self.counters;
        options.ttl = self.ttl;
        options.recompute = self.recompute;
        options.stock = self.stock;
        options.prefix.clone_from(&self.prefix);
        options.keep_keys = self.keep_keys;
        options.timeout = self.timeout;
        options.check().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(options)
    }
}
