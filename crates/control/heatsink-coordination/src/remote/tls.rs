//! TLS to the store.
//!
//! Called by: `connect`; the library `heatsink`, for its shared tier.
//! Invariant: the certificate is always verified, name included. The cryptography is the same
//! as on the data path; see `heatsink-tls`, whose streams need no runtime and so do not fit
//! here.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::settings::SettingsError;

/// What TLS to the store needs, as PEM text. `Debug` does not show the key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities to trust. `None`: those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// Certificate to present. Needs `key_pem`.
    pub certificate_pem: Option<Vec<u8>>,
    /// The private key of the certificate.
    pub key_pem: Option<Vec<u8>>,
    /// The name to send and to verify instead of the host that was dialled.
    pub server_name: Option<String>,
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsFiles")
            .field("has_ca", &self.ca_pem.is_some())
            .field("has_certificate", &self.certificate_pem.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// TLS to a server, ready to use.
pub struct Tls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    /// From PEM text.
    pub fn new(files: &TlsFiles) -> Result<Self, SettingsError> {
        let server_name = files.server_name.as_deref().map(server_name).transpose()?;
        let roots = match &files.ca_pem {
            Some(pem) => given_authorities(pem)?,
            None => system_authorities()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_root_certificates(roots);
        let config = match (&files.certificate_pem, &files.key_pem) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                // Not the error's own words: they may quote the key.
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| problem("the private key is not valid PEM"))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| unusable(&error))?
            }
            _ => return Err(problem("a client certificate and its key go together")),
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name })
    }

    /// Speaks TLS on a connection to `host`, whose name is verified.
    pub async fn connect(
        &self,
        socket: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(host).map_err(|error| error.to_string())?,
        };
        self.connector.connect(name, socket).await.map_err(|error| format!("TLS: {error}"))
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, SettingsError> {
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(ServerName::from(address)),
        Err(_) => ServerName::try_from(host.to_owned())
            .map_err(|_| problem(&format!("{host:?} is neither a host name nor an address"))),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(problem("there is no certificate in the PEM text")),
        Err(_) => Err(problem("a certificate is not valid PEM")),
    }
}

fn given_authorities(pem: &[u8]) -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    Ok(roots)
}

fn system_authorities() -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (usable, _unusable) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        return Err(problem("the system trusts no certificate authorities; name some"));
    }
    Ok(roots)
}

fn problem(why: &str) -> SettingsError {
    SettingsError::Tls(why.to_owned())
}

fn unusable(error: &rustls::Error) -> SettingsError {
    SettingsError::Tls(error.to_string())
}
