//! Which reads may be answered from a cache, and how their replies look in RESP2.
//!
//! Called by: the proxy, for reads of registered keys that were no hit.
//! Bound: the table; a command that is not in it is never cached.
//! Invariant: every command here names one key, writes nothing, and gives the same reply as
//! long as the key is not changed, so that the server's invalidation of the key is all that
//! can make the reply wrong.
//!
//! Left out on purpose: `PFCOUNT` (it may write the cached cardinality), `TTL` and its kin
//! (the reply changes by itself), `*RANDMEMBER`, `*SCAN`, `DUMP`, `OBJECT` (not a function of
//! the value), the `GEO` commands (their RESP2 nulls differ by position).
//!
//! Fields of a hash may end by themselves (`HEXPIRE`; Redis 7.4, Valkey 9). A server leaves such a
//! field out from that moment on, but invalidates the key only when it gets round to removing the
//! field, which is up to a tenth of a second later, or more if many end at once. So the caller asks
//! when the fields of a reply end ([`Cacheable::fields`]). `HLEN` counts a field until it is removed.

mod resp2;

/// How a reply is written for a client that speaks RESP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resp2 {
    /// Type by type; a null is the null of a string.
    Plain,
    /// The same, but a null in place of the whole reply is the null of an array.
    ArrayOrNull,
    /// Pairs within the array stand one after the other.
    FlatPairs,
    /// Not known.
    Differs,
}

/// On which fields of a hash a reply depends, each of which may end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// On none, or only on what the server tells of when it changes.
    None,
    /// On those that stand in the request, behind the key.
    Named,
    /// On those in the reply: every other element, values between them.
    Paired,
    /// On those in the reply, which has nothing else.
    Listed,
    /// On some that stand nowhere.
    Untold,
}

/// A command whose reply may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cacheable {
    resp2: Resp2,
    fields: Fields,
}

impl Cacheable {
    /// Whether replies can be given to clients that speak RESP2. If not, such a client's
    /// command is to be treated like one that is not cacheable.
    pub fn is_known_in_resp2(self) -> bool {
        self.resp2 != Resp2::Differs
    }

    /// On which fields of a hash the reply depends.
    pub fn fields(self) -> Fields {
        self.fields
    }

    /// The bytes with which the server would have answered in RESP2 what it answered in
    /// RESP3. `None` for a reply of a shape that this command is not known to have.
    pub fn to_resp2(self, reply: &[u8]) -> Option<Vec<u8>> {
        match self.resp2 {
            Resp2::ArrayOrNull if reply == b"_\r\n" => Some(b"*-1\r\n".to_vec()),
            Resp2::Plain | Resp2::ArrayOrNull => resp2::convert(reply, false),
            Resp2::FlatPairs => resp2::convert(reply, true),
            Resp2::Differs => None,
        }
    }
}

/// Longest name in the table.
const MAX_NAME_BYTES: usize = 16;

/// Index of the one key of every cacheable command.
pub const KEY_INDEX: usize = 1;

/// Whether the reply to a command may be cached; `args` starts with its name, the key is at
/// [`KEY_INDEX`]. A command with wrong arguments may pass: its reply is an error then, and
/// errors are not stored.
pub fn cacheable<A: AsRef<[u8]>>(args: &[A]) -> Option<Cacheable> {
    let (name, rest) = args.split_first()?;
    let name = name.as_ref();
    let mut upper = [0; MAX_NAME_BYTES];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let resp2 = match &*upper {
        // One key only: with more, other keys count as well.
        b"EXISTS" | b"MGET" if rest.len() != 1 => return None,
        b"GET" | b"STRLEN" | b"GETRANGE" | b"SUBSTR" | b"EXISTS" | b"MGET" | b"TYPE"
        | b"GETBIT" | b"BITCOUNT" | b"BITPOS" | b"HGET" | b"HMGET" | b"HGETALL" | b"HLEN"
        | b"HEXISTS" | b"HKEYS" | b"HVALS" | b"HSTRLEN" | b"SMEMBERS" | b"SISMEMBER"
        | b"SMISMEMBER" | b"SCARD" | b"LRANGE" | b"LLEN" | b"LINDEX" | b"LPOS" | b"ZSCORE"
        | b"ZMSCORE" | b"ZCARD" | b"ZCOUNT" | b"ZLEXCOUNT" | b"ZRANGEBYLEX" | b"ZREVRANGEBYLEX"
        | b"XLEN" => Resp2::Plain,
        b"ZRANGE" | b"ZREVRANGE" | b"ZRANGEBYSCORE" | b"ZREVRANGEBYSCORE" => {
            if has_option(rest, 3, b"WITHSCORES") { Resp2::FlatPairs } else { Resp2::Plain }
        }
        b"ZRANK" | b"ZREVRANK" => {
            if rest.len() > 2 {
                Resp2::Differs
            } else {
                Resp2::Plain
            }
        }
        b"XRANGE" | b"XREVRANGE" => Resp2::ArrayOrNull,
        _ => return None,
    };
    let fields = match &*upper {
        b"HGET" | b"HEXISTS" | b"HSTRLEN" | b"HMGET" => Fields::Named,
        b"HGETALL" => Fields::Paired,
        b"HKEYS" => Fields::Listed,
        b"HVALS" => Fields::Untold,
        _ => Fields::None,
    };
    (!rest.is_empty()).then_some(Cacheable { resp2, fields })
}

fn has_option<A: AsRef<[u8]>>(args: &[A], from: usize, option: &[u8]) -> bool {
    args.iter().skip(from).any(|arg| arg.as_ref().eq_ignore_ascii_case(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_cacheable(command: &str) -> bool {
        cacheable(&command.split(' ').collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn single_key_reads_are_cacheable_whatever_their_case() {
        for command in ["GET k", "get k", "hGetAll k", "EXISTS k", "MGET k", "ZRANGE k 0 -1"] {
            assert!(is_cacheable(command), "{command}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for command in [
            "",
            "GET",
            "SET k v",
            "GETEX k",
            "EXISTS k l",
            "MGET k l",
            "PFCOUNT k",
            "TTL k",
            "PTTL k",
            "SRANDMEMBER k",
            "HSCAN k 0",
            "GETDEL k",
            "EVAL x 1 k",
            "SORT_RO k",
            "A-NAME-THAT-IS-LONGER-THAN-ANY-OTHER k",
        ] {
            assert!(!is_cacheable(command), "{command}");
        }
    }

    #[test]
    fn reads_of_hashes_say_which_fields_they_show() {
        let fields = |command: &str| {
            cacheable(&command.split(' ').collect::<Vec<_>>()).expect("cacheable").fields()
        };
        for command in ["HGET h f", "hmget h f g", "HEXISTS h f", "HSTRLEN h f"] {
            assert_eq!(fields(command), Fields::Named, "{command}");
        }
        assert_eq!(fields("hgetall h"), Fields::Paired);
        assert_eq!(fields("HKEYS h"), Fields::Listed);
        assert_eq!(fields("HVALS h"), Fields::Untold);
        for command in ["HLEN h", "GET k", "EXISTS h", "TYPE h", "SMEMBERS s"] {
            assert_eq!(fields(command), Fields::None, "{command}");
        }
    }

    #[test]
    fn a_score_with_a_rank_is_not_known_in_resp2() {
        let known = |command: &str| {
            cacheable(&command.split(' ').collect::<Vec<_>>()).unwrap().is_known_in_resp2()
        };
        assert!(known("ZRANK k m"));
        assert!(!known("ZRANK k m WITHSCORE"));
        assert!(known("ZRANGE k 0 -1 withscores"));
    }
}
