//! The form in which reports and watch lists go through the coordination store, and the
//! form in which entries lie in it.
//!
//! Called by: agents write reports, aggregators read them; the other way round for watch
//! lists; every process writes and reads entries.
//! Bound: [`MAX_KEYS`] keys of [`MAX_KEY_BYTES`] each; anything beyond is an error. What is
//! written is bounded in bytes as well, for the store takes no message of any size.
//! Invariant: whatever the bytes are, reading gives a value or an error, never a panic, and
//! never a value beyond the bounds. A version of another release is an error that names it.
//!
//! Rates are whole numbers: sums of them are exact and can be taken back (see
//! [`crate::sums`]). What is an upper bound is rounded up, what is a lower bound down.

mod bytes;

use std::fmt;

use heatsink_detect::heat::KeyHeat;

use crate::entry::Entry;
use crate::value::ValueKind;
use bytes::{Reader, number_bytes, put_bytes, put_number, string_bytes};

/// The version that this release writes and reads.
pub const VERSION: u8 = 1;
/// Keys in one report or watch list.
pub const MAX_KEYS: usize = 4096;
/// Bytes of one key.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Bytes of a watch list.
pub const MAX_WATCH_BYTES: usize = 512 << 10;
/// Bytes of a member's id.
pub const MAX_MEMBER_BYTES: usize = 256;

const REPORT: u8 = 1;
const WATCH: u8 = 2;

/// What one proxy saw in its last window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report<'a> {
    /// Whose it is.
    pub member: &'a str,
    /// A number that differs each time the member starts.
    pub boot: u64,
    /// Counts up from report to report of one start.
    pub sequence: u64,
    /// Reads/s of all keys together.
    pub reads_per_second: u64,
    /// Writes/s of all keys together.
    pub writes_per_second: u64,
    /// The keys that are worth telling.
    pub keys: Vec<KeyRecord<'a>>,
}

/// One key of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRecord<'a> {
    /// The raw key.
    pub key: &'a [u8],
    /// What it holds.
    pub value: ValueKind,
    /// What it does.
    pub counts: Counts,
}

/// The measures of a key as whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads/s, at most.
    pub reads: u64,
    /// Writes/s, at most.
    pub writes: u64,
    /// By how much the two together may be too high.
    pub error: u64,
    /// Requests/s that a mitigation answered.
    pub absorbed: u64,
    /// Bytes/s, at least.
    pub bytes: u64,
    /// Misses/s, at least.
    pub misses: u64,
    /// Most writes at once.
    pub writes_in_flight: u64,
}

impl Counts {
    /// Rounded so that upper bounds stay upper bounds, and lower ones lower.
    pub fn from_heat(heat: &KeyHeat) -> Self {
        let reads = heat.reads_per_second.ceil() as u64;
        let writes = heat.writes_per_second.ceil() as u64;
        let certain = heat.certain_per_second().floor() as u64;
        Self {
            reads,
            writes,
            error: reads.saturating_add(writes).saturating_sub(certain),
            absorbed: heat.absorbed_per_second as u64,
            bytes: heat.bytes_per_second as u64,
            misses: heat.misses_per_second as u64,
            writes_in_flight: u64::from(heat.writes_in_flight),
        }
    }

    /// The same as the detector's own type, without the key.
    pub fn heat(&self) -> KeyHeat {
        KeyHeat {
            reads_per_second: self.reads as f64,
            writes_per_second: self.writes as f64,
            error_per_second: self.error as f64,
            absorbed_per_second: self.absorbed as f64,
            bytes_per_second: self.bytes as f64,
            misses_per_second: self.misses as f64,
            writes_in_flight: u32::try_from(self.writes_in_flight).unwrap_or(u32::MAX),
            ..KeyHeat::default()
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        for number in self.numbers() {
            put_number(out, number);
        }
    }

    fn numbers(&self) -> [u64; 7] {
        let Self { reads, writes, error, absorbed, bytes, misses, writes_in_flight } = *self;
        [reads, writes, error, absorbed, bytes, misses, writes_in_flight]
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            reads: reader.number()?,
            writes: reader.number()?,
            error: reader.number()?,
            absorbed: reader.number()?,
            bytes: reader.number()?,
            misses: reader.number()?,
            writes_in_flight: reader.number()?,
        })
    }
}

impl KeyRecord<'_> {
    /// Bytes that it takes in a report.
    pub fn encoded_bytes(&self) -> usize {
        let counts: usize = self.counts.numbers().into_iter().map(number_bytes).sum();
        string_bytes(self.key) + 1 + counts
    }
}

impl<'a> Report<'a> {
    /// Bytes of a report without keys, at most.
    pub fn head_bytes(member: &str) -> usize {
        const NUMBERS: usize = 5 * 10;
        2 + string_bytes(member.as_bytes()) + NUMBERS
    }

    /// The bytes to publish. Keys beyond [`MAX_KEYS`] and keys longer than [`MAX_KEY_BYTES`]
    /// are left out. The member's id has at most [`MAX_MEMBER_BYTES`], or nobody reads it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.keys.len() * 48);
        out.extend_from_slice(&[VERSION, REPORT]);
        put_bytes(&mut out, self.member.as_bytes());
        for number in [self.boot, self.sequence, self.reads_per_second, self.writes_per_second] {
            put_number(&mut out, number);
        }
        let fits = |record: &&KeyRecord<'_>| record.key.len() <= MAX_KEY_BYTES;
        let count = self.keys.iter().filter(fits).take(MAX_KEYS).count();
        put_number(&mut out, count as u64);
        for record in self.keys.iter().filter(fits).take(MAX_KEYS) {
            put_bytes(&mut out, record.key);
            out.push(record.value.byte());
            record.counts.put(&mut out);
        }
        out
    }

    /// Reads what [`Report::encode`] wrote; keys are borrowed from the message.
    pub fn decode(message: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = open(message, REPORT)?;
        let member = reader.bytes(MAX_MEMBER_BYTES)?;
        let member = str::from_utf8(member).map_err(|_| WireError::Member)?;
        let boot = reader.number()?;
        let sequence = reader.number()?;
        let reads_per_second = reader.number()?;
        let writes_per_second = reader.number()?;
        let count = reader.count(MAX_KEYS)?;
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let key = reader.bytes(MAX_KEY_BYTES)?;
            let value = ValueKind::from_byte(reader.byte()?);
            keys.push(KeyRecord { key, value, counts: Counts::read(&mut reader)? });
        }
        reader.end()?;
        Ok(Self { member, boot, sequence, reads_per_second, writes_per_second, keys })
    }
}

/// The bytes of a watch list. What is beyond the bounds is left out, the last first.
pub fn encode_watch<K: AsRef<[u8]>>(keys: &[K]) -> Vec<u8> {
    let mut room = MAX_WATCH_BYTES - 16;
    let fits = |key: &&[u8]| {
        let bytes = string_bytes(key);
        let fits = key.len() <= MAX_KEY_BYTES && bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    };
    let told: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).filter(fits).take(MAX_KEYS).collect();
    let mut out = vec![VERSION, WATCH];
    put_number(&mut out, told.len() as u64);
    for key in told {
        put_bytes(&mut out, key);
    }
    out
}

/// Reads a watch list.
pub fn decode_watch(message: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let mut reader = open(message, WATCH)?;
    let count = reader.count(MAX_KEYS)?;
    let keys = (0..count).map(|_| reader.bytes(MAX_KEY_BYTES)).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(keys)
}

/// The bytes of an entry in the store. JSON: operators may look at it there, and a field of
/// a newer release is passed over by an older one.
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    // A struct of plain fields with string keys always has a JSON form; a rate that is not
    // a number becomes null, which is refused when it is read.
    serde_json::to_vec(entry).unwrap_or_default()
}

/// Reads an entry.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, WireError> {
    serde_json::from_slice(bytes).map_err(|error| WireError::Entry(error.to_string()))
}

fn open(message: &[u8], kind: u8) -> Result<Reader<'_>, WireError> {
    let mut reader = Reader::new(message);
    match reader.byte()? {
        VERSION => {}
        version => return Err(WireError::Version(version)),
    }
    match reader.byte()? {
        found if found == kind => Ok(reader),
        found => Err(WireError::Kind(found)),
    }
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// It ends too early.
    Short,
    /// There is more behind its end.
    Trailing,
    /// A number, length or count beyond the bounds.
    TooLarge,
    /// Written by another version.
    Version(u8),
    /// A message of another kind.
    Kind(u8),
    /// A member's id that is not text.
    Member,
    /// Not the JSON of an entry.
    Entry(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the message ends too early"),
            Self::Trailing => f.write_str("the message has bytes after its end"),
            Self::TooLarge => f.write_str("the message has a length beyond the bounds"),
            Self::Version(version) => write!(
                f,
                "the message has version {version}, this release reads version {VERSION}: are \
                 there processes of another release in this namespace?"
            ),
            Self::Kind(kind) => write!(f, "a message of kind {kind} does not belong here"),
            Self::Member => f.write_str("the id of the member is not text"),
            Self::Entry(error) => write!(f, "the record of a hot key cannot be read: {error}"),
        }
    }
}

impl std::error::Error for WireError {}

#[cfg(test)]
mod tests;
