//! Values as bytes of the shared tier.

use std::fmt;

/// Why a value could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecError(String);

impl CodecError {
    /// In words that are logged; they should not show the value.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CodecError {}

/// Turns values into bytes and back.
///
/// Bytes that do not decode count as absent: they are loaded again and replaced, and counted in
/// [`Counts::undecodable`](crate::Counts::undecodable). So a type may change between versions of an
/// application; [`format`](Self::format) tells formats apart where an old one might decode by
/// chance.
pub trait Codec<V>: Send + Sync + 'static {
    /// Another format, another number; values of other formats are not decoded. Below 16 are this
    /// crate's own.
    fn format(&self) -> u8;
    /// The bytes of a value.
    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError>;
    /// The value of these bytes.
    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError>;
}

/// JSON.
#[cfg(feature = "json")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

#[cfg(feature = "json")]
impl<V: serde::Serialize + serde::de::DeserializeOwned> Codec<V> for Json {
    fn format(&self) -> u8 {
        1
    }

    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError> {
        serde_json::to_vec(value).map_err(|error| CodecError::new(error.to_string()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError> {
        // The place and the kind of the fault, not the words: they may quote the value.
        serde_json::from_slice(bytes).map_err(|error| {
            let (kind, line, column) = (error.classify(), error.line(), error.column());
            CodecError::new(format!("{kind:?} error at line {line}, column {column}"))
        })
    }
}

/// Postcard: binary, smaller than JSON and faster to read. It does not describe itself, so a type
/// that changes needs another name of the cache, or a format of its own.
#[cfg(feature = "postcard")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Postcard;

#[cfg(feature = "postcard")]
impl<V: serde::Serialize + serde::de::DeserializeOwned> Codec<V> for Postcard {
    fn format(&self) -> u8 {
        2
    }

    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError> {
        postcard::to_stdvec(value).map_err(|error| CodecError::new(error.to_string()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError> {
        postcard::from_bytes(bytes).map_err(|error| CodecError::new(error.to_string()))
    }
}

/// Values that are bytes already.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bytes;

impl<V> Codec<V> for Bytes
where
    V: AsRef<[u8]> + for<'a> TryFrom<&'a [u8]>,
{
    fn format(&self) -> u8 {
        3
    }

    fn encode(&self, value: &V) -> Result<Vec<u8>, CodecError> {
        Ok(value.as_ref().to_vec())
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, CodecError> {
        V::try_from(bytes).map_err(|_| CodecError::new("bytes that are no such value"))
    }
}
