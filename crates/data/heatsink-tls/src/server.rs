//! The listener's side: certificates that can be replaced while connections are open.
//!
//! Called by: the listener, for each accepted socket; the control plane, on reload.
//! Bound: one configuration in use plus those that open connections started with.
//! Invariant: a reload either takes all files or changes nothing.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::WebPkiClientVerifier;
use rustls::{Connection, ServerConfig, ServerConnection};

use crate::error::{FileProblem, TlsError, TlsFileError, in_words};
use crate::{TlsStream, pem};

/// The files of a TLS listener, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate, followed by those that lead to the authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Authorities whose client certificates are accepted. `None`: none is asked for.
    pub client_ca: Option<PathBuf>,
    /// Refuse clients that present no certificate. Needs `client_ca`.
    pub require_client_certificate: bool,
}

/// TLS of a listener. Clones share their certificates.
#[derive(Debug, Clone)]
pub struct ServerTls {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: ServerFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl ServerTls {
    /// Reads the files and checks that they fit together.
    pub fn load(files: ServerFiles) -> Result<Self, TlsFileError> {
        let current = RwLock::new(configuration(&files)?);
        Ok(Self { shared: Arc::new(Shared { files, current }) })
    }

    /// Reads the files again. New connections use them; if they are not valid, everything
    /// stays as it was.
    pub fn reload(&self) -> Result<(), TlsFileError> {
        let fresh = configuration(&self.shared.files)?;
        *self.shared.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Begins the server's side of a handshake; `stream` is connected and non-blocking.
    pub fn accept<S: Read + Write>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let current =
            Arc::clone(&self.shared.current.read().unwrap_or_else(PoisonError::into_inner));
        let connection = ServerConnection::new(current).map_err(TlsError)?;
        Ok(TlsStream::new(Connection::Server(connection), stream))
    }
}

fn configuration(files: &ServerFiles) -> Result<Arc<ServerConfig>, TlsFileError> {
    let certificates = pem::certificates(&files.certificate)?;
    let key = pem::key(&files.key)?;
    let internal = |error: &rustls::Error| {
        pem::problem(&files.certificate, FileProblem::BadCertificate(in_words(error).into_owned()))
    };
    let builder = ServerConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| internal(&error))?;
    let builder = match &files.client_ca {
        Some(client_ca) => {
            let roots = Arc::new(pem::authorities(client_ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, pem::provider());
            let verifier = if files.require_client_certificate {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| {
                pem::problem(client_ca, FileProblem::BadCertificate(error.to_string()))
            })?)
        }
        None if files.require_client_certificate => {
            return Err(pem::problem(
                &files.certificate,
                FileProblem::Incomplete(
                    "client certificates are required, but no client_ca is set",
                ),
            ));
        }
        None => builder.with_no_client_auth(),
    };
    let mut configuration = builder
        .with_single_cert(certificates, key)
        .map_err(|error| pem::pair_problem(&files.certificate, &files.key, &error))?;
    // Tickets are sealed with a key of this configuration: a client that an authority no
    // longer in `client_ca` vouched for cannot resume its session after a reload.
    configuration.ticketer =
        rustls::crypto::ring::Ticketer::new().map_err(|error| internal(&error))?;
    Ok(Arc::new(configuration))
}
