//! The upstream's side: whom to trust, what to present, which name to expect.
//!
//! Called by: upstream links, for each connected socket; the control plane, on reload.
//! Bound: rustls remembers 256 upstreams for resumption.
//! Invariant: the certificate is always verified, name included.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, StreamOwned};

use crate::error::{FileProblem, TlsError, TlsFileError, in_words};
use crate::{TlsStream, pem};

/// What an error names where the authorities are those of the system.
const SYSTEM_TRUST: &str = "the system's trusted certificates";

/// The files for TLS towards an upstream, all PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities to trust. `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate to present. Needs `key`.
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`.
    pub key: Option<PathBuf>,
    /// The name to send and to verify instead of the host that was dialled.
    pub server_name: Option<String>,
}

/// TLS towards an upstream. Clones share their files and remembered sessions.
#[derive(Debug, Clone)]
pub struct ClientTls {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: ClientFiles,
    server_name: Option<ServerName<'static>>,
    current: RwLock<Arc<ClientConfig>>,
}

impl ClientTls {
    /// Reads the files and checks that they fit together.
    pub fn load(files: ClientFiles) -> Result<Self, TlsFileError> {
        let server_name = match &files.server_name {
            Some(name) => Some(
                server_name(name)
                    .ok_or_else(|| pem::problem(Path::new(name), FileProblem::BadServerName))?,
            ),
            None => None,
        };
        let current = RwLock::new(configuration(&files)?);
        Ok(Self { shared: Arc::new(Shared { files, server_name, current }) })
    }

    /// Reads the files again. New connections use them; if they are not valid, everything
    /// stays as it was.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        let fresh = configuration(&self.shared.files)?;
        *self.shared.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Begins the client's side of a handshake with `host`, a name or an address; `stream`
    /// is non-blocking and may still be connecting. The first bytes leave with the next
    /// `flush`, `read` or `write`.
    pub fn connect<S: Read + Write>(&self, stream: S, host: &str) -> io::Result<TlsStream<S>> {
        Ok(TlsStream::new(Connection::Client(self.connection(host)?), stream))
    }

    /// The same over a socket that blocks, for threads that may wait.
    pub fn connect_blocking<S: Read + Write>(
        &self,
        stream: S,
        host: &str,
    ) -> io::Result<StreamOwned<ClientConnection, S>> {
        Ok(StreamOwned::new(self.connection(host)?, stream))
    }

    fn connection(&self, host: &str) -> io::Result<ClientConnection> {
        let name = match &self.shared.server_name {
            Some(name) => name.clone(),
            None => server_name(host).ok_or_else(|| {
                let text = format!("TLS: {host:?} is neither a host name nor an address");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?,
        };
        let current =
            Arc::clone(&self.shared.current.read().unwrap_or_else(PoisonError::into_inner));
        Ok(ClientConnection::new(current, name).map_err(TlsError)?)
    }
}

/// Accepts `[::1]` as it stands in addresses with a port, too.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => Some(ServerName::from(address)),
        Err(_) => ServerName::try_from(host.to_owned()).ok(),
    }
}

fn configuration(files: &ClientFiles) -> Result<Arc<ClientConfig>, TlsFileError> {
    let roots = match &files.ca {
        Some(ca) => pem::authorities(ca)?,
        None => system_authorities()?,
    };
    let builder = ClientConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            let why = FileProblem::BadCertificate(in_words(&error).into_owned());
            pem::problem(Path::new(SYSTEM_TRUST), why)
        })?
        .with_root_certificates(roots);
    let configuration = match (&files.certificate, &files.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => builder
            .with_client_auth_cert(pem::certificates(certificate)?, pem::key(key)?)
            .map_err(|error| pem::pair_problem(certificate, key, &error))?,
        (Some(certificate), None) => {
            let what = "a client certificate needs its key, but no key is set";
            return Err(pem::problem(certificate, FileProblem::Incomplete(what)));
        }
        (None, Some(key)) => {
            let what = "a key needs its client certificate, but no certificate is set";
            return Err(pem::problem(key, FileProblem::Incomplete(what)));
        }
    };
    Ok(Arc::new(configuration))
}

fn system_authorities() -> Result<RootCertStore, TlsFileError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's store may hold oddities; one of them is no reason to trust none.
    let (usable, _unusable) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let problem = match found.errors.first() {
        Some(error) => FileProblem::BadCertificate(error.to_string()),
        None => FileProblem::NoCertificate,
    };
    Err(pem::problem(Path::new(SYSTEM_TRUST), problem))
}
