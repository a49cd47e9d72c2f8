//! Certificates made for one test, as files.

use std::fs;
use std::path::{Path, PathBuf};

use heatsink_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A directory with files that vanish with the test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// A certificate for either side.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> Issued {
        self.issue_until(file, names, 2120)
    }

    pub(crate) fn issue_until(&self, file: &str, names: &[&str], year: i32) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let issued = Issued {
            certificate: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
        };
        fs::write(&issued.certificate, certificate.pem()).unwrap();
        fs::write(&issued.key, key.serialize_pem()).unwrap();
        issued
    }

    /// A server for `localhost` and 127.0.0.1 that asks for no client certificate.
    pub(crate) fn server(&self) -> ServerTls {
        let issued = self.issue("server", &["localhost", "127.0.0.1"]);
        ServerTls::load(server_files(&issued, None)).unwrap()
    }

    /// A client that trusts this authority and presents nothing.
    pub(crate) fn client(&self) -> ClientTls {
        ClientTls::load(ClientFiles { ca: Some(self.ca()), ..ClientFiles::default() }).unwrap()
    }

    /// A client that trusts this authority and presents `issued`.
    pub(crate) fn client_with(&self, issued: &Issued) -> ClientTls {
        ClientTls::load(ClientFiles {
            ca: Some(self.ca()),
            certificate: Some(issued.certificate.clone()),
            key: Some(issued.key.clone()),
            server_name: None,
        })
        .unwrap()
    }
}

pub(crate) fn server_files(issued: &Issued, required_ca: Option<&Path>) -> ServerFiles {
    ServerFiles {
        certificate: issued.certificate.clone(),
        key: issued.key.clone(),
        client_ca: required_ca.map(Path::to_owned),
        require_client_certificate: required_ca.is_some(),
    }
}
