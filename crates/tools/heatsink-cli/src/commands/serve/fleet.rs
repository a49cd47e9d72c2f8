//! This process's part in the fleet: the store it meets the others in, the admin API.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use heatsink_admin::Token;
use heatsink_coordination::{Secret, Settings, Store, TlsFiles};
use heatsink_fleet::{DataPlane, Fleet};
use heatsink_proxy::Proxy;
use heatsink_tls::ClientFiles;
use heatsink_upstream::address::Url;

use super::Running;
use crate::config::{Config, Loaded};
use crate::exit::Failure;
use crate::logging;

/// How long a new process waits for the admin address of the one that it takes over from.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);
const ADDRESS_LOOK: Duration = Duration::from_millis(20);

/// Where the fleet meets. Nothing is connected to yet. A process that serves is `quiet`: it writes
/// nothing there while it is alone.
pub(in crate::commands) fn store(loaded: &Loaded, quiet: bool) -> Result<Store, Failure> {
    let config = &loaded.config;
    let failure =
        |why: String| Failure::Runtime(format!("cannot use the coordination store: {why}"));
    let mut settings =
        Settings::new(&config.namespace).map_err(|error| failure(error.to_string()))?;
    settings.max_records = config.max_records;
    settings.secret = config.coordination_secret.as_deref().map(read_secret).transpose()?;
    if config.coordination == Url::Embedded {
        return Ok(Store::memory(settings));
    }
    let tls = match &config.coordination_tls {
        Some(files) => Some(read(files).map_err(|error| failure(error.to_string()))?),
        None => None,
    };
    let open = if quiet { Store::quiet } else { Store::redis };
    open(&config.coordination, tls.as_ref(), settings).map_err(|error| failure(error.to_string()))
}

fn read_secret(path: &Path) -> Result<Secret, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::Runtime(format!("cannot read the fleet's secret {shown}: {error}"))
    })?;
    Secret::new(text.trim())
        .ok_or_else(|| Failure::Runtime(format!("{shown} holds no secret: 16 characters or more")))
}

fn read(files: &ClientFiles) -> io::Result<TlsFiles> {
    let read = |path: &Option<std::path::PathBuf>| path.as_deref().map(fs::read).transpose();
    Ok(TlsFiles {
        ca_pem: read(&files.ca)?,
        certificate_pem: read(&files.certificate)?,
        key_pem: read(&files.key)?,
        server_name: files.server_name.clone(),
    })
}

/// Starts the control plane beside the data plane. With `patient`, another process may be
/// about to give up the address of the API; if it does not, this one serves clients without an
/// API, because nobody else does any more.
pub(super) fn join(
    loaded: &Loaded,
    store: Store,
    admin: Option<heatsink_admin::Settings>,
    mut proxy: Option<Proxy>,
    patient: bool,
) -> Result<Running, Failure> {
    let config = &loaded.config;
    let listener = match config.admin.map(|address| bind(address, patient)) {
        Some(Ok(listener)) => Some(listener),
        Some(Err(Failure::Runtime(why))) if patient => {
            tracing::error!("no admin API: {why}");
            None
        }
        Some(Err(failure)) => return Err(failure),
        None => None,
    };
    let admin = listener.zip(admin);
    let settings = heatsink_fleet::Settings {
        role: config.role,
        address: proxy.as_ref().map(Proxy::local_addr),
        store_is_upstream: config.coordination.is_same_server(&config.upstream),
        live: config.fleet.clone(),
        admin,
        log_lines_dropped: Some(logging::dropped_lines()),
    };
    let data_plane = proxy.as_mut().and_then(|proxy| {
        let detector = proxy.take_detector()?;
        Some(DataPlane { detector, proxy: proxy.handle() })
    });
    let fleet = Fleet::start(settings, store, data_plane)
        .map_err(|error| Failure::Runtime(format!("cannot start the control plane: {error}")))?;
    Ok(Running { proxy, fleet })
}

/// How the admin API is set up, if there is one. Read before clients are taken over.
pub(super) fn admin_settings(config: &Config) -> Result<Option<heatsink_admin::Settings>, Failure> {
    if config.admin.is_none() {
        return Ok(None);
    }
    let token = config.admin_token.as_deref().map(read_token).transpose()?;
    Ok(Some(heatsink_admin::Settings {
        token,
        privacy: config.privacy,
        ..heatsink_admin::Settings::default()
    }))
}

fn read_token(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::Runtime(format!("cannot read the admin token {shown}: {error}"))
    })?;
    Token::new(text.trim()).ok_or_else(|| {
        Failure::Runtime(format!("{shown} holds no admin token: one line of visible characters"))
    })
}

fn bind(address: SocketAddr, patient: bool) -> Result<TcpListener, Failure> {
    let until = Instant::now() + ADDRESS_PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error)
                if patient
                    && error.kind() == io::ErrorKind::AddrInUse
                    && Instant::now() < until =>
            {
                thread::sleep(ADDRESS_LOOK);
            }
            Err(error) => return Err(refused(address, &error)),
        }
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there already".to_owned(),
        io::ErrorKind::AddrNotAvailable => "not an address of this machine".to_owned(),
        _ => error.to_string(),
    };
    Failure::Runtime(format!(
        "cannot listen on {address} for the admin API: {why}; set admin to another address, or to \
         \"\" for none"
    ))
}
