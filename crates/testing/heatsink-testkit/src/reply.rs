//! A reply as a tree that owns its bytes.
//!
//! Called by: `wire`, which builds it, and tests, which compare it.
//! Bound: as large as the reply.
//! Invariant: what RESP2 and RESP3 spell differently but mean the same is equal only for
//! null; every other type keeps its own variant. Where spelling matters, tests compare
//! [`RawClient::read_frame`](crate::RawClient::read_frame).

use std::fmt;

/// One reply of a server, RESP2 or RESP3.
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// `+`: a status.
    Simple(String),
    /// `-`: an error.
    Error(String),
    /// `:`: an integer.
    Integer(i64),
    /// `$`: a string of any bytes.
    Bulk(Vec<u8>),
    /// `_`, or RESP2's `$-1` and `*-1`.
    Null,
    /// `*`: a list.
    Array(Vec<Reply>),
    /// `,`: a floating point number.
    Double(f64),
    /// `#`: true or false.
    Bool(bool),
    /// `(`: an integer of any size, as text.
    BigNumber(String),
    /// `!`: an error of any bytes.
    BulkError(Vec<u8>),
    /// `=`: text with a three-letter format.
    Verbatim {
        /// The format: `txt`, `mkd`.
        format: String,
        /// The text.
        text: Vec<u8>,
    },
    /// `%`: pairs, in the order sent.
    Map(Vec<(Reply, Reply)>),
    /// `~`: a set, in the order sent.
    Set(Vec<Reply>),
    /// `>`: a message that answers no request.
    Push(Vec<Reply>),
    /// `|`: attributes and the reply they belong to.
    Attribute {
        /// The attributes.
        pairs: Vec<(Reply, Reply)>,
        /// The reply itself.
        reply: Box<Reply>,
    },
}

impl Reply {
    /// `+OK`.
    pub fn ok() -> Self {
        Self::Simple("OK".into())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// An array of bulk strings.
    pub fn bulks<A: AsRef<[u8]>>(items: impl IntoIterator<Item = A>) -> Self {
        Self::Array(items.into_iter().map(Self::bulk).collect())
    }

    /// The bytes of a status, string, verbatim text, big number or error.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(text) | Self::Error(text) | Self::BigNumber(text) => Some(text.as_bytes()),
            Self::Bulk(bytes) | Self::BulkError(bytes) | Self::Verbatim { text: bytes, .. } => {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// What [`bytes`](Self::bytes) gives as text; panics when it is something else.
    #[track_caller]
    pub fn text(&self) -> String {
        match self.bytes() {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => panic!("expected text, got {self}"),
        }
    }

    /// The integer; panics when it is something else.
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(value) => *value,
            other => panic!("expected an integer, got {other}"),
        }
    }

    /// The elements of an array, set or push; panics when it is something else.
    #[track_caller]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => items,
            other => panic!("expected an array, set or push, got {other}"),
        }
    }

    /// The pairs of a map, or of a flat array as RESP2 sends it; panics when it is something
    /// else.
    #[track_caller]
    pub fn pairs(&self) -> Vec<(Self, Self)> {
        match self {
            Self::Map(pairs) => pairs.clone(),
            Self::Array(items) if items.len() % 2 == 0 => {
                items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
            }
            other => panic!("expected a map or pairs, got {other}"),
        }
    }

    /// The value that [`pairs`](Self::pairs) has under `key`.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<Self> {
        let pairs = self.pairs();
        pairs.into_iter().find(|(name, _)| name.bytes() == Some(key.as_bytes())).map(|pair| pair.1)
    }

    /// Whether it is an error of either kind.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_) | Self::BulkError(_))
    }

    /// The error's text; panics when it is something else.
    #[track_caller]
    pub fn error(&self) -> String {
        assert!(self.is_error(), "expected an error, got {self}");
        self.text()
    }
}

/// On one line, with RESP's own marks where the type would not show otherwise.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{}", text.escape_debug()),
            Self::Error(text) => write!(f, "-{}", text.escape_debug()),
            Self::Integer(value) => write!(f, ":{value}"),
            Self::Bulk(bytes) => quoted(f, bytes),
            Self::Null => f.write_str("null"),
            Self::Array(items) => list(f, "[", items, "]"),
            Self::Double(value) => write!(f, ",{value:?}"),
            Self::Bool(value) => write!(f, "#{value}"),
            Self::BigNumber(digits) => write!(f, "({digits}"),
            Self::BulkError(bytes) => {
                f.write_str("!")?;
                quoted(f, bytes)
            }
            Self::Verbatim { format, text } => {
                write!(f, "={format}:")?;
                quoted(f, text)
            }
            Self::Map(pairs) => map(f, "{", pairs),
            Self::Set(items) => list(f, "~{", items, "}"),
            Self::Push(items) => list(f, ">[", items, "]"),
            Self::Attribute { pairs, reply } => {
                map(f, "|{", pairs)?;
                write!(f, " {reply}")
            }
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) => write!(f, "{text:?}"),
        Err(_) => write!(f, "\"{}\"", bytes.escape_ascii()),
    }
}

fn list(f: &mut fmt::Formatter<'_>, open: &str, items: &[Reply], close: &str) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{item}")?;
    }
    f.write_str(close)
}

fn map(f: &mut fmt::Formatter<'_>, open: &str, pairs: &[(Reply, Reply)]) -> fmt::Result {
    f.write_str(open)?;
    for (index, (key, value)) in pairs.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{key}: {value}")?;
    }
    f.write_str("}")
}
