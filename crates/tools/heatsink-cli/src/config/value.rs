//! Values that passed the check of their kind.
//!
//! `Display` writes a value as the file would have it, and never shows a password.

use std::fmt;
use std::net::SocketAddr;

use heatsink_upstream::address::Url;

use super::size;

/// A value that passed the check of its kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// An optional one that was not given.
    Nothing,
    /// IP address and port.
    Address(SocketAddr),
    /// Host and port.
    HostPort {
        /// Without brackets.
        host: String,
        /// Not 0.
        port: u16,
    },
    /// Yes or no.
    Switch(bool),
    /// Where a Redis is.
    Url {
        /// With the password.
        url: Url,
        /// Without.
        shown: String,
    },
    /// One of a choice.
    Word(&'static str),
    /// Free text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A size.
    Bytes(u64),
    /// Above 0 and at most 1.
    Fraction(f64),
}

impl Value {
    /// Free text.
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("\"\""),
            Self::HostPort { host, port } if host.contains(':') => write!(f, "\"[{host}]:{port}\""),
            Self::HostPort { host, port } => write!(f, "\"{host}:{port}\""),
            Self::Switch(switch) => switch.fmt(f),
            Self::Address(address) => write!(f, "\"{address}\""),
            Self::Url { shown, .. } => quote(f, shown),
            Self::Word(word) => quote(f, word),
            Self::Text(text) => quote(f, text),
            Self::Whole(whole) => whole.fmt(f),
            Self::Bytes(bytes) => quote(f, &size::show(*bytes)),
            Self::Fraction(fraction) => write!(f, "{fraction:?}"),
        }
    }
}

/// Writes `text` as a basic string of TOML, whose escapes are not quite those of Rust.
fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for char in text.chars() {
        match char {
            '"' | '\\' => write!(f, "\\{char}")?,
            _ if char.is_control() => write!(f, "\\u{:04X}", u32::from(char))?,
            _ => write!(f, "{char}")?,
        }
    }
    f.write_str("\"")
}
