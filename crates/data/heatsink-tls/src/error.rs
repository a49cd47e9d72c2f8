//! What went wrong, in words for a log line: handshakes ([`TlsError`]) and files
//! ([`TlsFileError`]).
//!
//! Called by: `stream`, `server`, `client`.
//! Bound: texts name what the peer presented only as far as rustls bounds it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::{error, fmt, io};

use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

/// A handshake or a connection that failed for reasons of TLS. Found inside the
/// [`io::Error`] of a [`crate::TlsStream`], of kind `InvalidData`.
#[derive(Debug, Clone)]
pub struct TlsError(pub(crate) rustls::Error);

impl TlsError {
    /// What rustls says about it.
    pub fn cause(&self) -> &rustls::Error {
        &self.0
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", in_words(&self.0))
    }
}

impl error::Error for TlsError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// A certificate, key or authority file that cannot be used.
#[derive(Debug)]
pub struct TlsFileError {
    /// The file, or what stands for it where there is none (the system's trust store).
    pub file: PathBuf,
    /// What is wrong with it.
    pub problem: FileProblem,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileProblem {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is not valid PEM.
    Malformed(String),
    /// It has no `CERTIFICATE` section.
    NoCertificate,
    /// It has no `PRIVATE KEY` section.
    NoKey,
    /// A certificate in it is not usable.
    BadCertificate(String),
    /// Its key is of a kind that is not supported.
    BadKey(String),
    /// Its key does not belong to the certificate.
    KeyMismatch,
    /// It is given without, or needs, another setting.
    Incomplete(&'static str),
    /// The name to verify is neither a host name nor an address.
    BadServerName,
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.problem)
    }
}

impl error::Error for TlsFileError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.problem {
            FileProblem::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => {
                f.write_str("no such file")
            }
            Self::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Self::Malformed(why) => write!(f, "not valid PEM: {why}"),
            Self::NoCertificate => f.write_str("no certificate in it"),
            Self::NoKey => f.write_str("no private key in it"),
            Self::BadCertificate(why) => write!(f, "certificate not usable: {why}"),
            Self::BadKey(why) => write!(f, "private key not usable: {why}"),
            Self::KeyMismatch => f.write_str("the key does not belong to the certificate"),
            Self::Incomplete(what) => f.write_str(what),
            Self::BadServerName => f.write_str("neither a host name nor an address"),
        }
    }
}

/// `io::Error` cannot be cloned, and a failed stream fails again on every call.
pub(crate) fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The failure in words that need no knowledge of TLS where that is possible.
pub(crate) fn in_words(error: &rustls::Error) -> Cow<'static, str> {
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(problem) => certificate_in_words(problem),
        E::NoCertificatesPresented => "client certificate required, none presented".into(),
        E::AlertReceived(alert) => {
            format!("refused by the peer: {}", alert_in_words(*alert)).into()
        }
        E::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not speak TLS".into()
        }
        E::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "the peer supports neither TLS 1.2 nor TLS 1.3".into(),
        E::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "no cipher in common with the peer".into()
        }
        E::DecryptError => "a record does not decrypt: damaged or forged on the way".into(),
        E::PeerSentOversizedRecord => "the peer sent an oversized record".into(),
        other => other.to_string().into(),
    }
}

fn certificate_in_words(problem: &CertificateError) -> Cow<'static, str> {
    use CertificateError as C;
    match problem {
        C::Expired | C::ExpiredContext { .. } => "certificate expired".into(),
        C::NotValidYet | C::NotValidYetContext { .. } => "certificate not valid yet".into(),
        C::Revoked => "certificate revoked".into(),
        C::UnknownIssuer => "certificate not issued by a trusted authority".into(),
        C::BadEncoding => "certificate malformed".into(),
        C::BadSignature => "certificate has a wrong signature".into(),
        C::NotValidForName => "certificate issued for another name".into(),
        C::NotValidForNameContext { expected, presented } => format!(
            "certificate issued for another name: wanted {}, it names {}",
            expected.to_str(),
            if presented.is_empty() { "none".to_owned() } else { presented.join(", ") },
        )
        .into(),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "certificate not meant for this side of a connection".into()
        }
        other => format!("certificate refused: {other}").into(),
    }
}

fn alert_in_words(alert: AlertDescription) -> Cow<'static, str> {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => "client certificate required".into(),
        A::CertificateExpired => "certificate expired".into(),
        A::CertificateRevoked => "certificate revoked".into(),
        A::UnknownCA => "certificate not issued by an authority it trusts".into(),
        A::BadCertificate | A::CertificateUnknown | A::UnsupportedCertificate => {
            "certificate not acceptable".into()
        }
        A::AccessDenied => "access denied".into(),
        A::ProtocolVersion => "no TLS version in common".into(),
        A::HandshakeFailure | A::InsufficientSecurity => {
            "handshake failed (no cipher in common, or client certificate required)".into()
        }
        A::UnrecognisedName => "server name not known there".into(),
        A::InternalError => "internal error".into(),
        other => format!("alert {other:?}").into(),
    }
}
