//! `heatsink serve`: runs the proxy until a signal or a successor asks it to stop.
//!
//! Life: configuration -> logs -> descriptors -> upstream -> sockets of a predecessor, if there
//! is one -> proxy -> what the fleet knows -> clients -> ready line -> reloads -> signal, or
//! successor and drain -> shutdown within its bound.
//! Invariant: stdout carries the ready line and nothing else.

mod descriptors;
mod events;
pub(super) mod fleet;
mod handover;
mod reload;
pub(super) mod upstream;
mod watch;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_fleet::{Fleet, Role};
use heatsink_proxy::Proxy;
use heatsink_proxy::config::{Auth, Listen};
use heatsink_upstream::address::Url;
use tracing::{info, warn};

use crate::config::{Config, Loaded, RawConfig, Sources};
use crate::exit::Failure;
use crate::logging;
use events::{Event, Events};
use handover::{Offer, Place, Predecessor};
use reload::Reload;

/// How long clients wait for this process to hear of the fleet, before it serves without.
const INFORMED: Duration = Duration::from_secs(2);
/// How often the last clients are counted while their leaving is waited for.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Runs the proxy with what `flags`, the environment, and the file say.
pub(crate) fn run(flags: RawConfig, file: Option<PathBuf>) -> Result<(), Failure> {
    let sources = Sources::new(flags, file);
    let mut loaded = sources.load()?;
    let log = logging::start(&loaded.config.log, loaded.config.log_format)
        .map_err(|error| Failure::Runtime(format!("cannot start to log: {error}")))?;
    for doubt in sources.doubts() {
        warn!("{doubt}");
    }
    let limits = &mut loaded.config.live.limits;
    limits.max_clients = descriptors::fit(limits.max_clients);

    let mut events = Events::register()
        .map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))?;
    let store = fleet::store(&loaded, true)?;
    let admin = fleet::admin_settings(&loaded.config)?;
    // The embedded store lives until the proxy has shut down.
    let (mut proxy, mut offer, mut upstream_words, mut _embedded) =
        (None, None, String::new(), None);
    if loaded.config.role != Role::Aggregator {
        let (upstream, embedded) =
            upstream::resolve(&loaded.config.upstream, loaded.files.client_tls.clone()).map_err(
                |error| Failure::Runtime(format!("cannot start the embedded store: {error}")),
            )?;
        upstream_words = upstream::describe(&upstream);
        let (started, offered) = start(&loaded, upstream, &events)?;
        (proxy, offer, _embedded) = (Some(started), offered, embedded);
    }
    let mut running = fleet::join(&loaded, store, admin, proxy, offer.is_some())?;
    accept(&mut running, &loaded.config)?;
    announce(&running, &upstream_words, loaded.config.workers);
    serve(running, offer, &mut events, Reload::new(sources, loaded, log));
    Ok(())
}

/// What runs: the data plane unless this process only aggregates, and its part in the fleet.
struct Running {
    proxy: Option<Proxy>,
    fleet: Fleet,
}

/// Starts the proxy, on the sockets of a predecessor where there is one, which from then on
/// does not accept any more.
fn start(
    loaded: &Loaded,
    upstream: heatsink_proxy::config::Upstream,
    events: &Events,
) -> Result<(Proxy, Option<Offer>), Failure> {
    let config = &loaded.config;
    let Some(path) = &config.handover else {
        return Ok((start_proxy(loaded, upstream, None)?, None));
    };
    let failure = |error: io::Error| unusable_path(path, &error);
    let mut predecessor = handover::take(path).map_err(failure)?;
    let place = Place::prepare(path).map_err(failure)?;
    let proxy = start_proxy(loaded, upstream, predecessor.as_mut())?;
    if let Some(predecessor) = predecessor {
        match predecessor.relieve() {
            Ok(()) => info!("took over from the previous process"),
            // It has ended, or will: its sockets are here in any case.
            Err(error) => warn!(%error, "the previous process did not confirm"),
        }
    }
    let sockets = proxy.listeners().map_err(failure)?;
    let announcer = events.announcer().map_err(failure)?;
    let offer = place.publish(sockets, announcer).map_err(failure)?;
    Ok((proxy, Some(offer)))
}

fn start_proxy(
    loaded: &Loaded,
    upstream: heatsink_proxy::config::Upstream,
    mut predecessor: Option<&mut Predecessor>,
) -> Result<Proxy, Failure> {
    let Loaded { config, files, .. } = loaded;
    let listen = match &mut predecessor {
        Some(predecessor) => predecessor.plain(config.listen),
        None => Listen::Address(config.listen),
    };
    let listen_tls = match (&config.tls, &files.server_tls) {
        (Some((address, _)), Some(tls)) => {
            let listen = match &mut predecessor {
                Some(predecessor) => predecessor.tls(*address),
                None => Listen::Address(*address),
            };
            Some((listen, tls.clone()))
        }
        _ => None,
    };
    let auth = match &files.users {
        Some(users) => Auth::Service(users.clone()),
        None => Auth::PassThrough,
    };
    Proxy::prepare(heatsink_proxy::Config {
        listen,
        listen_tls,
        upstream,
        auth,
        announce: config.announce.clone(),
        workers: config.workers,
        detect: Some(config.detect.clone()),
        max_links: descriptors::links(config.live.limits.max_clients),
        live: config.live.clone(),
    })
    .map_err(|error| start_failure(config, &error))
}

/// Lets clients in, once this process knows what the fleet has done about keys; or after
/// [`INFORMED`], because the store may be away. Those who connect earlier wait.
fn accept(running: &mut Running, config: &Config) -> Result<(), Failure> {
    let Some(proxy) = &mut running.proxy else { return Ok(()) };
    if config.coordination != Url::Embedded && !running.fleet.wait_until_informed(INFORMED) {
        warn!(
            waited = ?INFORMED,
            "clients are accepted before the registry of the fleet was read, or before split \
             keys could be looked at; commands on split keys may be refused with WRONGTYPE"
        );
    }
    proxy.accept().map_err(|error| start_failure(config, &error))
}

fn announce(running: &Running, upstream: &str, workers: usize) {
    let admin = running.fleet.admin_addr();
    let admin = admin.map_or_else(String::new, |address| format!(", admin http://{address}"));
    let version = env!("CARGO_PKG_VERSION");
    let ready = if let Some(proxy) = &running.proxy {
        let address = proxy.local_addr();
        let tls_address = proxy.local_tls_addr();
        let tls: Option<String> = tls_address.as_ref().map(SocketAddr::to_string);
        info!(%address, tls, upstream, workers, "ready");
        let tls = tls.map_or_else(String::new, |address| format!(" or rediss://{address}"));
        let plural = if workers == 1 { "" } else { "s" };
        format!(
            "heatsink {version} ready: connect to redis://{address}{tls} (upstream {upstream}, \
             {workers} worker{plural}{admin})"
        )
    } else {
        info!("ready to aggregate");
        format!("heatsink {version} ready: aggregator{admin}")
    };
    print_ready(ready);
}

/// Prints the ready line from a thread of its own: nobody may be reading stdout, or it may be
/// full, and that is no reason not to serve, nor not to end when asked.
fn print_ready(ready: String) {
    let print = move || {
        let mut stdout = io::stdout().lock();
        if let Err(error) = writeln!(stdout, "{ready}").and_then(|()| stdout.flush()) {
            warn!(%error, "cannot write to stdout; {ready}");
        }
    };
    if let Err(error) = thread::Builder::new().name("ready".to_owned()).spawn(print) {
        warn!(%error, "the ready line cannot be printed");
    }
}

/// From the ready line to the end.
fn serve(mut running: Running, offer: Option<Offer>, events: &mut Events, mut reload: Reload) {
    loop {
        match events.wait(reload.next_look()) {
            Ok(Event::Tick) => reload.look(&running),
            Ok(Event::Reload) => reload.reload(&running),
            Ok(Event::Stop) => break,
            Ok(Event::Successor(successor)) => {
                if let Some(offer) = offer {
                    offer.given();
                }
                hand_over(&mut running, &successor, events, reload.config().drain);
                return shut_down(running, reload.config().shutdown);
            }
            Err(error) => {
                warn!(%error, "cannot wait for signals");
                break;
            }
        }
    }
    // Nobody is given sockets any more that are about to be closed.
    drop(offer);
    shut_down(running, reload.config().shutdown);
}

/// Leaves new connections to `successor` and serves those there are, until they have left,
/// `bound` has passed, or a signal comes.
fn hand_over(running: &mut Running, successor: &UnixStream, events: &mut Events, bound: Duration) {
    let Some(proxy) = &mut running.proxy else { return };
    proxy.stop_accepting();
    // The new process waits for the address.
    running.fleet.close_admin();
    if let Err(error) = handover::confirm(successor) {
        warn!(%error, "the new process cannot be told that this one has stopped accepting");
    }
    info!(clients = proxy.client_count(), ?bound, "handed over; serving until clients have left");
    let until = Instant::now() + bound;
    while proxy.client_count() > 0 && Instant::now() < until {
        match events.wait(until.min(Instant::now() + DRAIN_LOOK)) {
            Ok(Event::Tick | Event::Successor(_)) => {}
            Ok(Event::Reload) => info!("not reloaded: another process has taken over"),
            Ok(Event::Stop) | Err(_) => break,
        }
    }
    let clients = proxy.client_count();
    if clients > 0 {
        warn!(clients, "clients are disconnected after the handover");
    }
}

fn shut_down(running: Running, bound: Duration) {
    info!(?bound, "shutting down");
    let Running { proxy, fleet } = running;
    let unanswered = proxy.map_or(0, |proxy| proxy.shutdown(bound));
    fleet.shutdown();
    if unanswered > 0 {
        warn!(unanswered, ?bound, "requests were unanswered when time was up");
    }
}

fn unusable_path(path: &Path, error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot hand over at {}: {error}", path.display()))
}

fn start_failure(config: &Config, error: &io::Error) -> Failure {
    let listen = match &config.tls {
        Some((tls, _)) => format!("{} and {tls}", config.listen),
        None => config.listen.to_string(),
    };
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
