//! Certificates made for one test: good ones and each kind of bad one.
//!
//! Called by: `redis_server` and the cluster and Sentinel rigs when they speak TLS, tests of
//! TLS listeners and upstreams.
//! Bound: two authorities and five certificates, made once (a few milliseconds); the directory
//! goes with the last clone.
//! Invariant: a path stays the same for life. [`Certificates::renew_server`] changes what is in
//! the files and replaces each one whole, so that no reader sees half a file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

/// The names a server certificate is good for.
const SERVER_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

type Authority = CertifiedIssuer<'static, KeyPair>;

/// The files of one certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    certificate: PathBuf,
    key: PathBuf,
}

impl Identity {
    /// The file with the certificate.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The file with the private key.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// The certificate now in the file, as it goes over the wire; compare with
    /// [`RawClient::peer_certificate`](crate::RawClient::peer_certificate).
    #[track_caller]
    pub fn certificate_der(&self) -> Vec<u8> {
        match CertificateDer::from_pem_file(&self.certificate) {
            Ok(certificate) => certificate.to_vec(),
            Err(error) => panic!("{}: {error}", self.certificate.display()),
        }
    }
}

/// What a certificate is for and how long it holds.
#[derive(Clone, Copy)]
enum Kind {
    Server,
    ExpiredServer,
    Client,
}

/// A set of certificates in a directory of their own; clones share it.
#[derive(Clone)]
pub struct Certificates(Arc<Files>);

struct Files {
    authority: Authority,
    ca: PathBuf,
    other_ca: PathBuf,
    server: Identity,
    expired_server: Identity,
    client: Identity,
    other_server: Identity,
    other_client: Identity,
    directory: TempDir,
}

impl Certificates {
    /// Makes all of them.
    pub fn generate() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = directory.path();
        let authority = authority("Kit Authority");
        let other = self::authority("Unrelated Authority");
        let ca = at.join("ca.crt");
        replace(&ca, &authority.pem());
        let other_ca = at.join("other-ca.crt");
        replace(&other_ca, &other.pem());
        Self(Arc::new(Files {
            ca,
            other_ca,
            server: issue(at, "server", Kind::Server, &authority),
            expired_server: issue(at, "expired-server", Kind::ExpiredServer, &authority),
            client: issue(at, "client", Kind::Client, &authority),
            other_server: issue(at, "other-server", Kind::Server, &other),
            other_client: issue(at, "other-client", Kind::Client, &other),
            authority,
            directory,
        }))
    }

    /// The authority that signed [`server`](Self::server), [`client`](Self::client) and
    /// [`expired_server`](Self::expired_server).
    pub fn ca(&self) -> &Path {
        &self.0.ca
    }

    /// An authority that has nothing to do with the first.
    pub fn other_ca(&self) -> &Path {
        &self.0.other_ca
    }

    /// For a server at 127.0.0.1, `::1` or localhost. Servers that dial each other may use it
    /// as a client certificate too.
    pub fn server(&self) -> &Identity {
        &self.0.server
    }

    /// As [`server`](Self::server), but it ran out years ago.
    pub fn expired_server(&self) -> &Identity {
        &self.0.expired_server
    }

    /// For a client.
    pub fn client(&self) -> &Identity {
        &self.0.client
    }

    /// As [`server`](Self::server), signed by [`other_ca`](Self::other_ca).
    pub fn other_server(&self) -> &Identity {
        &self.0.other_server
    }

    /// As [`client`](Self::client), signed by [`other_ca`](Self::other_ca).
    pub fn other_client(&self) -> &Identity {
        &self.0.other_client
    }

    /// The directory that holds them all.
    pub fn directory(&self) -> &Path {
        self.0.directory.path()
    }

    /// Writes a new certificate and a new key over the files of [`server`](Self::server). For
    /// a moment the files do not belong together, as when an operator renews them.
    pub fn renew_server(&self) {
        issue(self.directory(), "server", Kind::Server, &self.0.authority);
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificates").field(&self.directory()).finish()
    }
}

fn authority(name: &str) -> Authority {
    let mut params = lasting(Vec::new());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    Authority::self_signed(params, key).expect("a certificate of an authority")
}

fn issue(directory: &Path, name: &str, kind: Kind, authority: &Authority) -> Identity {
    let names = match kind {
        Kind::Server | Kind::ExpiredServer => SERVER_NAMES.map(str::to_owned).to_vec(),
        Kind::Client => Vec::new(),
    };
    let mut params = lasting(names);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    if !matches!(kind, Kind::Client) {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if matches!(kind, Kind::ExpiredServer) {
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let identity = Identity {
        certificate: directory.join(format!("{name}.crt")),
        key: directory.join(format!("{name}.key")),
    };
    replace(&identity.certificate, &certificate.pem());
    replace(&identity.key, &key.serialize_pem());
    identity
}

fn lasting(names: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(names).expect("valid names");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 1, 1);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("write into the temporary directory");
    fs::rename(&new, path).expect("rename within a directory");
}
