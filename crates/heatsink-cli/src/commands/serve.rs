//! `heatsink serve`: runs the proxy until a signal asks it to stop.
//!
//! Life: configuration -> logs -> descriptors -> upstream -> proxy -> ready line -> signal ->
//! shutdown within its bound.
//! Invariant: stdout carries the ready line and nothing else.

mod descriptors;
mod embedded;
mod signals;

use std::io::{self, Write};
use std::path::PathBuf;

use heatsink_proxy::Proxy;
use heatsink_upstream::address::{Upstream, Url};
use tracing::{info, warn};

use crate::config::{self, Config, Environment, RawConfig};
use crate::exit::Failure;
use crate::logging;

/// Runs the proxy with what `flags`, the environment, and the file say.
pub(crate) fn run(flags: RawConfig, file: Option<PathBuf>) -> Result<(), Failure> {
    let environment = Environment::read(std::env::vars_os());
    let mut layers = vec![flags, environment.raw];
    if let Some(file) = file.or(environment.file) {
        layers.push(config::read_file(&file)?);
    }
    let settings = config::merge(layers).map_err(Failure::Invalid)?;
    let config = Config::new(&settings).map_err(Failure::Invalid)?;

    logging::start(&config.log, config.log_format);
    for doubt in environment.doubts {
        warn!("{doubt}");
    }
    let without_effect = settings.without_effect();
    if !without_effect.is_empty() {
        warn!(settings = without_effect.join(", "), "accepted, but without effect in this version");
    }
    descriptors::raise(config.limits.max_clients);
    serve(&config)
}

fn serve(config: &Config) -> Result<(), Failure> {
    let mut signals = signals::Signals::register()
        .map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))?;
    // The store lives until the proxy has shut down.
    let (_store, upstream) = match &config.upstream {
        Url::Server(server) => (None, Upstream::from(server.clone())),
        Url::Embedded => {
            let (store, upstream) = embedded::start().map_err(|error| {
                Failure::Runtime(format!("cannot start the embedded store: {error}"))
            })?;
            (Some(store), upstream)
        }
    };
    let endpoint = upstream.endpoint.to_string();
    let proxy =
        Proxy::start(config.proxy(upstream)).map_err(|error| start_failure(config, &error))?;
    let address = proxy.local_addr();
    info!(%address, upstream = endpoint, workers = config.workers, "ready");
    let ready = format!(
        "heatsink {} ready: connect to redis://{address} (upstream {endpoint}, {} worker{})",
        env!("CARGO_PKG_VERSION"),
        config.workers,
        if config.workers == 1 { "" } else { "s" },
    );
    // Nobody may be listening on stdout any more; that is no reason not to serve.
    if let Err(error) = announce(&ready) {
        warn!(%error, "cannot write to stdout; {ready}");
    }

    if let Err(error) = signals.wait() {
        warn!(%error, "cannot wait for signals");
    }
    info!(bound = ?config.shutdown, "shutting down");
    let unanswered = proxy.shutdown(config.shutdown);
    if unanswered > 0 {
        warn!(unanswered, bound = ?config.shutdown, "requests were unanswered when time was up");
    }
    Ok(())
}

fn announce(ready: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{ready}")?;
    stdout.flush()
}

fn start_failure(config: &Config, error: &io::Error) -> Failure {
    let listen = config.listen;
    Failure::Runtime(match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("cannot listen on {listen}: another process listens there already")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("cannot listen on {listen}: not an address of this machine")
        }
        io::ErrorKind::PermissionDenied => format!("cannot listen on {listen}: {error}"),
        _ => format!("cannot start the proxy on {listen}: {error}"),
    })
}
