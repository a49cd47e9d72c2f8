//! What a raw client's bytes travel over: plain TCP, or TLS on top of it.
//!
//! Called by: `client`.
//! Bound: what rustls buffers for one connection.
//! Invariant: a read that times out loses nothing; a record received in part stays with the
//! connection. The server's name and chain are always checked.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::certificates::Identity;

#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// Shakes hands over `socket`. A server that speaks TLS 1.3 and dislikes the client's
    /// certificate says so only at the first read after this.
    pub(crate) fn tls(
        mut socket: TcpStream,
        ca: &Path,
        client: Option<&Identity>,
        server_name: &str,
        timeout: Duration,
    ) -> io::Result<Self> {
        let config = client_config(ca, client)?;
        let name = ServerName::try_from(server_name.to_owned()).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(timeout))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        self.socket().shutdown(Shutdown::Write)
    }

    pub(crate) fn peer_certificate(&self) -> Option<Vec<u8>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(stream.conn.peer_certificates()?.first()?.to_vec()),
        }
    }

    pub(crate) fn tls_version(&self) -> Option<String> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(format!("{:?}", stream.conn.protocol_version()?)),
        }
    }
}

fn client_config(ca: &Path, client: Option<&Identity>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(ca).map_err(io::Error::other)?;
    roots.add(ca).map_err(io::Error::other)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let Some(identity) = client else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::from_pem_file(identity.certificate()).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(identity.key()).map_err(io::Error::other)?;
    builder.with_client_auth_cert(vec![chain], key).map_err(io::Error::other)
}
