//! Reads certificates and keys from PEM files.
//!
//! Called by: `server` and `client`, on load and reload; never on the data path.
//! Bound: [`FILE_LIMIT_BYTES`] per file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{FileProblem, TlsFileError, in_words};

/// More than any bundle of authorities; a wrong path (a log, a device) does not fill memory.
const FILE_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// The cryptography used on both sides.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn problem(file: &Path, problem: FileProblem) -> TlsFileError {
    TlsFileError { file: file.to_owned(), problem }
}

/// All certificates of a file, in order.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = contents(file)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| problem(file, FileProblem::Malformed(pem_in_words(&error))))?;
    if certificates.is_empty() {
        return Err(problem(file, FileProblem::NoCertificate));
    }
    Ok(certificates)
}

/// The first private key of a file.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let text = contents(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => problem(file, FileProblem::NoKey),
        other => problem(file, FileProblem::Malformed(pem_in_words(&other))),
    })
}

/// The authorities of a file.
pub(crate) fn authorities(file: &Path) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| {
            problem(file, FileProblem::BadCertificate(in_words(&error).into_owned()))
        })?;
    }
    Ok(roots)
}

/// Names the file to which an error of rustls about a certificate and its key belongs.
pub(crate) fn pair_problem(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsFileError {
    match error {
        rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch) => {
            problem(key, FileProblem::KeyMismatch)
        }
        rustls::Error::InvalidCertificate(_) => {
            problem(certificate, FileProblem::BadCertificate(in_words(error).into_owned()))
        }
        other => problem(key, FileProblem::BadKey(in_words(other).into_owned())),
    }
}

fn contents(file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let mut text = Vec::new();
    let read = File::open(file)
        .and_then(|opened| opened.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut text))
        .and_then(|read| {
            if read as u64 > FILE_LIMIT_BYTES {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 16 MiB"));
            }
            Ok(())
        });
    read.map(|()| text).map_err(|error| problem(file, FileProblem::Unreadable(error)))
}

/// Without the lines themselves: they may be those of a key.
fn pem_in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section does not end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a section does not begin properly".to_owned(),
        pem::Error::Base64Decode(_) => "a section is not base64".to_owned(),
        _ => "not understood".to_owned(),
    }
}
