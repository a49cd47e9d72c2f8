//! What kind of value a key holds, as far as a proxy can tell from the commands it sees.
//!
//! Called by: reports carry one byte of it for each key, decisions ask what can be combined
//! and what can be split.

/// The kind of a key's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// No command told it yet.
    #[default]
    Unknown = 0,
    /// A string that is incremented.
    Counter = 1,
    /// Any other string.
    String = 2,
    /// A hash.
    Hash = 3,
    /// A set.
    Set = 4,
    /// A sorted set.
    SortedSet = 5,
    /// A list.
    List = 6,
    /// A stream.
    Stream = 7,
    /// A `HyperLogLog`.
    HyperLogLog = 8,
}

impl ValueKind {
    /// All of them, each at the place of its byte.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Counter,
        Self::String,
        Self::Hash,
        Self::Set,
        Self::SortedSet,
        Self::List,
        Self::Stream,
        Self::HyperLogLog,
    ];

    /// The byte that stands for it in a report.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// The kind that a byte stands for; a kind of a newer version is not known here.
    pub fn from_byte(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or_default()
    }

    /// Whether concurrent writes can be made one write.
    pub fn combines_writes(self) -> bool {
        self == Self::Counter
    }

    /// Whether one logical key can be kept as several without a change of what single
    /// commands mean.
    pub fn splits(self) -> bool {
        matches!(self, Self::Counter | Self::Hash | Self::Set | Self::SortedSet | Self::HyperLogLog)
    }

    /// How it is called in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unknown => "a value of unknown type",
            Self::Counter => "a counter",
            Self::String => "a string",
            Self::Hash => "a hash",
            Self::Set => "a set",
            Self::SortedSet => "a sorted set",
            Self::List => "a list",
            Self::Stream => "a stream",
            Self::HyperLogLog => "a HyperLogLog",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ValueKind;

    #[test]
    fn every_kind_has_its_byte_and_others_are_unknown() {
        for kind in ValueKind::ALL {
            assert_eq!(ValueKind::from_byte(kind.byte()), kind);
        }
        assert_eq!(ValueKind::from_byte(9), ValueKind::Unknown);
        assert_eq!(ValueKind::from_byte(255), ValueKind::Unknown);
    }
}
