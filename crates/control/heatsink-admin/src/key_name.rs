//! How keys are written in JSON, addresses, labels and errors, and how they are hidden.
//!
//! Called by: everything that shows a key or reads one from a request.
//! Bound: a key longer than [`SHOWN_BYTES`] is shown by its hash, so that a page of the list
//! stays of bounded size whatever clients use as keys.
//! Invariant: with [`Privacy::Hash`] no byte of a raw key leaves through this module.
//!
//! `key_hash` is the first eight bytes of the SHA-256 of the key, as sixteen hexadecimal
//! digits: the same in every process and version, and anybody can work it out
//! (`printf %s user:9999 | sha256sum | cut -c1-16`). That also says what hiding is worth: it
//! keeps keys out of screens, logs and time series, but whoever guesses a key can check it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest as _, Sha256};

/// Longest key that is shown in full.
pub const SHOWN_BYTES: usize = 4096;

/// Longest key that is a label of a metric in full.
const LABEL_BYTES: usize = 256;

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether people may see raw keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privacy {
    /// Keys are shown.
    #[default]
    Plain,
    /// Keys are shown as `hash:` and their hash.
    Hash,
}

/// A key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName {
    /// The key as text: itself if it is UTF-8, else percent-encoded; `hash:<16 hex>` if it is
    /// hidden or too long.
    pub key: String,
    /// The key in base64, exactly if `key` is the percent-encoded form.
    pub key_base64: Option<String>,
    /// See the module's documentation.
    pub key_hash: String,
}

/// The hash of a key.
pub fn key_hash(key: &[u8]) -> String {
    let digest = Sha256::digest(key);
    let mut hex = String::with_capacity(16);
    for byte in &digest[..8] {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// A key as one segment of a path.
pub fn encode(key: &[u8]) -> String {
    percent_encode(key, RESERVED).to_string()
}

/// The bytes that a segment of a path stands for. A percent sign that begins no escape stands
/// for itself.
pub fn decode(segment: &str) -> Vec<u8> {
    percent_decode_str(segment).collect()
}

/// The hash in `hash:<16 hex>`, in lower case.
pub fn hash_address(name: &[u8]) -> Option<String> {
    let hex = name.strip_prefix(b"hash:")?;
    let fits = hex.len() == 16 && hex.iter().all(u8::is_ascii_hexdigit);
    fits.then(|| String::from_utf8_lossy(hex).to_ascii_lowercase())
}

impl Privacy {
    /// How `key` is shown.
    pub fn name(self, key: &[u8]) -> KeyName {
        let key_hash = key_hash(key);
        if self == Self::Hash || key.len() > SHOWN_BYTES {
            return KeyName { key: format!("hash:{key_hash}"), key_base64: None, key_hash };
        }
        match str::from_utf8(key) {
            Ok(text) => KeyName { key: text.to_owned(), key_base64: None, key_hash },
            Err(_) => {
                KeyName { key: encode(key), key_base64: Some(STANDARD.encode(key)), key_hash }
            }
        }
    }

    /// How `key` is shown as a label. Not unique by itself: the hash stands beside it.
    pub fn label(self, key: &[u8]) -> String {
        if key.len() > LABEL_BYTES { Self::Hash } else { self }.name(key).key
    }

    /// How `key` is named in the log: on one line, whatever clients use as keys, and not longer
    /// than a label.
    pub fn log_name(self, key: &[u8]) -> String {
        let name = self.label(key);
        if name.chars().any(char::is_control) { encode(key) } else { name }
    }

    /// A text about `key` that was written elsewhere. Those texts promise not to quote keys;
    /// this is the second lock. Short keys are left alone: they occur in ordinary words.
    pub fn text(self, text: String, key: &[u8]) -> String {
        match str::from_utf8(key) {
            Ok(raw) if self == Self::Hash && raw.len() >= 4 && text.contains(raw) => {
                text.replace(raw, &self.name(key).key)
            }
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_sha256sum_prints() {
        assert_eq!(key_hash(b"test"), "9f86d081884c7d65");
        assert_eq!(key_hash(b""), "e3b0c44298fc1c14");
    }

    #[test]
    fn every_byte_string_survives_a_path() {
        let all: Vec<u8> = (0..=255).collect();
        let segment = encode(&all);
        assert!(segment.bytes().all(|b| b.is_ascii_graphic() && !b"/?#:".contains(&b)));
        assert_eq!(decode(&segment), all);
        assert_eq!(decode("100%"), b"100%");
        assert_eq!(decode("a+b"), b"a+b");
    }

    #[test]
    fn a_key_that_is_not_text_is_told_from_one_that_looks_like_it() {
        let binary = Privacy::Plain.name(b"\xff");
        let text = Privacy::Plain.name(b"%FF");
        assert_eq!(binary.key, text.key);
        assert_eq!(binary.key_base64.as_deref(), Some("/w=="));
        assert_eq!(text.key_base64, None);
        assert_ne!(binary.key_hash, text.key_hash);
    }

    #[test]
    fn a_key_in_the_log_is_one_line_without_control_characters() {
        assert_eq!(Privacy::Plain.log_name(b"user:1"), "user:1");
        assert_eq!(Privacy::Hash.log_name(b"test"), "hash:9f86d081884c7d65");
        assert_eq!(Privacy::Plain.log_name(b"a\nERROR forged"), "a%0AERROR%20forged");
        assert_eq!(Privacy::Plain.log_name(b"\x1b[2J"), "%1B%5B2J");
        assert_eq!(Privacy::Plain.log_name(b"\xff"), "%FF");
        assert!(Privacy::Plain.log_name(&[b'k'; LABEL_BYTES + 1]).starts_with("hash:"));
    }

    #[test]
    fn hidden_and_very_long_keys_are_hashes() {
        assert_eq!(Privacy::Hash.name(b"test").key, "hash:9f86d081884c7d65");
        assert!(Privacy::Plain.name(&[b'k'; SHOWN_BYTES + 1]).key.starts_with("hash:"));
        assert!(Privacy::Plain.label(&[b'k'; LABEL_BYTES + 1]).starts_with("hash:"));
        assert_eq!(Privacy::Hash.text("about user:1".into(), b"user:1").len(), 6 + 21);
        assert_eq!(Privacy::Plain.text("about user:1".into(), b"user:1"), "about user:1");
    }

    #[test]
    fn only_a_whole_hash_is_an_address() {
        assert_eq!(hash_address(b"hash:9F86D081884C7D65").as_deref(), Some("9f86d081884c7d65"));
        for other in [&b"hash:9f86"[..], b"9f86d081884c7d65", b"hash:9f86d081884c7dzz"] {
            assert_eq!(hash_address(other), None);
        }
    }
}
