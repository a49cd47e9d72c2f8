//! Signatures by which members of a fleet recognise what one of them has written.
//!
//! Called by: `remote`, for every body that it writes or reads; `subscriber`, for messages.
//! Invariant: with a secret, nothing is handed on that was not sealed with it, for this namespace,
//! in this place and under this name. Without one, bodies are as they are.
//!
//! A seal is an HMAC-SHA-256 over the namespace, the kind of body, its name and the body itself. It does
//! not cover what the server itself adds (versions, times, blocks, removals). Nor does it protect against
//! replay: somebody who can write to the server can put an old sealed body back in its place.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::settings::Settings;

/// The prefix of a sealed body, in front of the seal.
const HEAD: &[u8] = b"sealed1 ";
const SEAL_BYTES: usize = 32;
const LEAST_SECRET_BYTES: usize = 16;

/// What the members of a fleet know and nobody else does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of 16 bytes or more; `None` for less.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() >= LEAST_SECRET_BYTES).then_some(Self(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// What is sealed: a seal of one kind says nothing in the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of<'a> {
    /// The record of a key.
    Record(&'a [u8]),
    /// What a member says of itself.
    Member(&'a [u8]),
    /// A member's acknowledgement of a topic.
    Ack(&'a [u8]),
    /// A message of the channel of this name.
    Message(&'a [u8]),
}

impl<'a> Of<'a> {
    fn parts(self) -> (&'static [u8], &'a [u8]) {
        match self {
            Self::Record(name) => (b"record", name),
            Self::Member(name) => (b"member", name),
            Self::Ack(name) => (b"ack", name),
            Self::Message(name) => (b"message", name),
        }
    }
}

/// Seals what is written, and opens what is read.
#[derive(Debug)]
pub(crate) struct Seal {
    keyed: Option<Hmac<Sha256>>,
    /// How many bodies were ignored because they were not understood, or not sealed by this fleet.
    ignored: AtomicU64,
}

impl Seal {
    pub(crate) fn new(settings: &Settings) -> Self {
        let keyed = settings.secret.as_ref().map(|secret| {
            let mut mac = Hmac::new_from_slice(&secret.0).expect("a key may have any length");
            field(&mut mac, settings.namespace().as_bytes());
            mac
        });
        Self { keyed, ignored: AtomicU64::new(0) }
    }

    /// There is a secret.
    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed.is_some()
    }

    /// How much was ignored so far.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    /// Something was not understood.
    pub(crate) fn ignore(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }

    /// A body as it is written.
    pub(crate) fn close(&self, of: Of<'_>, body: &[u8]) -> Vec<u8> {
        let Some(mac) = self.mac(of, body) else { return body.to_vec() };
        [HEAD, mac.finalize().as_bytes(), body].concat()
    }

    /// A body that was read; nothing, and counted, if no member has sealed it.
    pub(crate) fn open(&self, of: Of<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let opened = self.opened(of, sealed);
        if opened.is_none() {
            self.ignore();
        }
        opened.map(<[u8]>::to_vec)
    }

    fn opened<'a>(&self, of: Of<'_>, sealed: &'a [u8]) -> Option<&'a [u8]> {
        if self.keyed.is_none() {
            return Some(sealed);
        }
        let (seal, body) = sealed.strip_prefix(HEAD)?.split_at_checked(SEAL_BYTES)?;
        self.mac(of, body)?.verify_slice(seal).ok()?;
        Some(body)
    }

    fn mac(&self, of: Of<'_>, body: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = self.keyed.clone()?;
        let (kind, name) = of.parts();
        field(&mut mac, kind);
        field(&mut mac, name);
        field(&mut mac, body);
        Some(mac)
    }
}

/// Adds a field with its length, so that no two lists of fields make the same bytes.
fn field(mac: &mut Hmac<Sha256>, bytes: &[u8]) {
    mac.update(&(bytes.len() as u64).to_be_bytes());
    mac.update(bytes);
}

/// Bytes as text, for places that hold text only.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| text.as_bytes().chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(namespace: &str, secret: Option<&str>) -> Seal {
        let mut settings = Settings::new(namespace).expect("a namespace");
        settings.secret = secret.map(|text| Secret::new(text).expect("long enough"));
        Seal::new(&settings)
    }

    #[test]
    fn what_a_member_sealed_is_opened_in_its_place_only() {
        let ours = seal("a", Some("a secret of the fleet"));
        let sealed = ours.close(Of::Record(b"k"), b"body");
        assert_eq!(ours.open(Of::Record(b"k"), &sealed).as_deref(), Some(&b"body"[..]));
        assert_eq!(ours.ignored(), 0);
        let mut changed = sealed.clone();
        *changed.last_mut().expect("bytes") ^= 1;
        for (of, bytes) in [
            (Of::Record(b"other"), &sealed[..]),
            (Of::Member(b"k"), &sealed),
            (Of::Record(b"k"), &changed),
            (Of::Record(b"k"), &sealed[..20]),
            (Of::Record(b"k"), b"body"),
            (Of::Record(b"k"), b""),
        ] {
            assert_eq!(ours.open(of, bytes), None);
        }
        assert_eq!(ours.ignored(), 6);
        for other in
            [seal("b", Some("a secret of the fleet")), seal("a", Some("another secret, long"))]
        {
            assert_eq!(other.open(Of::Record(b"k"), &sealed), None);
        }
    }

    #[test]
    fn without_a_secret_bodies_are_as_they_are() {
        let open = seal("a", None);
        assert_eq!(open.close(Of::Message(b"c"), b"body"), b"body");
        assert_eq!(open.open(Of::Message(b"c"), b"anything").as_deref(), Some(&b"anything"[..]));
    }

    #[test]
    fn a_secret_is_not_shown_and_not_short() {
        assert_eq!(Secret::new("fifteen letters"), None);
        let secret = Secret::new("sixteen letters!").expect("long enough");
        assert_eq!(format!("{secret:?}"), "Secret(***)");
    }

    #[test]
    fn text_holds_any_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!((from_hex("0"), from_hex("zz"), from_hex("+1")), (None, None, None));
    }
}
