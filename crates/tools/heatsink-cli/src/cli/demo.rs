//! The flags of `heatsink demo`.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_demo::Options;
use heatsink_upstream::address::Url;

use super::tls::TlsArgs;
use super::uses_tls;
use crate::exit::Failure;

/// What was typed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Real servers instead of the embedded cluster: redis://, redis+cluster://,
    /// redis+sentinel://; keys begin with heatsink:demo: and are removed at the end
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// How long the demo runs
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// Requests/s of the shop
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    rate: u32,
    /// Requests/s that a node of the embedded cluster can answer [default: half the rate]
    #[arg(long, value_name = "N", conflicts_with = "upstream")]
    capacity: Option<u32>,
    /// Seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Address of the page and of the admin API; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    admin: SocketAddr,
    /// Print lines instead of drawing; always so where there is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

impl DemoArgs {
    /// What they mean, checked; nothing is started.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let wrong = |why: String| Failure::Usage(why);
        let url = self.upstream.as_deref().map(str::parse::<Url>).transpose();
        let url = url.map_err(|error| wrong(format!("--upstream: {error}")))?;
        let tls = self.tls.load(url.as_ref().is_some_and(uses_tls))?;
        let options = Options {
            upstream: url.filter(|url| *url != Url::Embedded).map(|url| (url, tls)),
            rate_per_second: self.rate,
            capacity_per_second: self.capacity.unwrap_or(self.rate / 2),
            duration: self.duration,
            seed: self.seed,
            admin: self.admin,
        };
        options.check().map_err(wrong)?;
        Ok(options)
    }
}
