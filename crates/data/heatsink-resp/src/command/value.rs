//! What a command's name tells of the value of its key.
//!
//! Called by: the table, once for each command. The names of a type's commands begin alike;
//! the few that do not are listed.

/// The kind of a key's value. The numbers are the same wherever they are passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// The name does not tell.
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

    /// What a command of that name, in lower case, works on. Reading a string says nothing:
    /// it may be a counter.
    pub(super) fn of_command(name: &str) -> Self {
        match name {
            "incr" | "decr" | "incrby" | "decrby" | "incrbyfloat" => Self::Counter,
            "set" | "setex" | "psetex" | "setnx" | "append" | "setrange" | "mset" | "msetnx"
            | "getset" | "setbit" | "bitfield" => Self::String,
            "sadd" | "srem" | "smembers" | "sismember" | "smismember" | "scard" | "spop"
            | "srandmember" | "smove" | "sscan" => Self::Set,
            "hello" => Self::Unknown,
            "rpush" | "rpushx" | "rpop" | "blpop" | "brpop" => Self::List,
            _ if name.starts_with("geo") => Self::SortedSet,
            _ if name.starts_with("pf") => Self::HyperLogLog,
            _ if is_of_type(name, 'h') => Self::Hash,
            _ if is_of_type(name, 'z') => Self::SortedSet,
            _ if is_of_type(name, 'x') => Self::Stream,
            "lpush" | "lpushx" | "lpop" | "lrange" | "lindex" | "linsert" | "llen" | "lrem"
            | "lset" | "ltrim" | "lpos" | "lmove" | "lmpop" => Self::List,
            _ => Self::Unknown,
        }
    }
}

/// `hget`, but not `hget.something` of a module.
fn is_of_type(name: &str, letter: char) -> bool {
    name.starts_with(letter) && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::ValueKind;
    use crate::command::CommandTable;

    #[test]
    fn names_tell_the_type() {
        let table = CommandTable::default();
        let kind = |name: &str| table.lookup(name.as_bytes(), None).expect(name).value_kind;
        assert_eq!(kind("INCRBY"), ValueKind::Counter);
        assert_eq!(kind("set"), ValueKind::String);
        assert_eq!(kind("get"), ValueKind::Unknown);
        assert_eq!(kind("hgetall"), ValueKind::Hash);
        assert_eq!(kind("smembers"), ValueKind::Set);
        assert_eq!(kind("zadd"), ValueKind::SortedSet);
        assert_eq!(kind("geoadd"), ValueKind::SortedSet);
        assert_eq!(kind("lrange"), ValueKind::List);
        assert_eq!(kind("blpop"), ValueKind::List);
        assert_eq!(kind("xadd"), ValueKind::Stream);
        assert_eq!(kind("pfadd"), ValueKind::HyperLogLog);
        assert_eq!(kind("hello"), ValueKind::Unknown);
        assert_eq!(kind("del"), ValueKind::Unknown);
    }

    #[test]
    fn every_kind_has_its_byte_and_others_are_unknown() {
        for kind in ValueKind::ALL {
            assert_eq!(ValueKind::from_byte(kind.byte()), kind);
        }
        assert_eq!(ValueKind::from_byte(9), ValueKind::Unknown);
        assert_eq!(ValueKind::from_byte(255), ValueKind::Unknown);
    }
}
