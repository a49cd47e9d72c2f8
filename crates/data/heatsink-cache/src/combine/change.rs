//! Writes that can be combined, as found in their arguments.
//!
//! Invariant: a number is read exactly as a server reads it, so that nothing is combined
//! that the server would refuse.

use std::io::Write;

use super::guarded::WHOLE_MAX;

/// How an increment was asked for; sent alone, it is sent like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `INCR key`
    Incr,
    /// `DECR key`
    Decr,
    /// `INCRBY key number`
    IncrBy,
    /// `DECRBY key number`
    DecrBy,
    /// `HINCRBY key field number`
    HIncrBy,
    /// `ZINCRBY key number member`
    ZIncrBy,
    /// `INCRBYFLOAT key number`
    IncrByFloat,
}

/// What is combined with each other, if the key is the same, and the field or member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `SET`
    Set,
    /// `INCR` and its kin, `HINCRBY`
    Integer,
    /// `ZINCRBY`
    Score,
    /// `INCRBYFLOAT`
    Float,
}

impl Family {
    /// Whether several are carried out by a script that looks at the value first; see
    /// [`super::guarded`].
    pub(super) fn is_guarded(self) -> bool {
        matches!(self, Self::Score | Self::Float)
    }
}

/// A write that can be combined with others like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// An increment by a whole number: of a string, of a field of a hash, or of the score of a
    /// member.
    Add {
        /// The key.
        key: &'a [u8],
        /// The field of a hash, or the member of a sorted set.
        field: Option<&'a [u8]>,
        /// By how much.
        delta: i64,
        /// The command used.
        form: Form,
    },
    /// A `SET` without options.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
}

impl<'a> Change<'a> {
    /// Reads a command; `args` starts with its name. `None` if it is none of these, one that
    /// the server would refuse, or an increment that rounds: it goes the ordinary way.
    pub fn parse<A: AsRef<[u8]>>(args: &'a [A]) -> Option<Self> {
        let is = |name: &str| args[0].as_ref().eq_ignore_ascii_case(name.as_bytes());
        let arg = |index: usize| args[index].as_ref();
        let add = |delta, form| Some(Self::Add { key: arg(1), field: None, delta, form });
        let whole = |index| {
            integer(arg(index)).filter(|delta| delta.unsigned_abs() <= WHOLE_MAX.unsigned_abs())
        };
        match args.len() {
            2 if is("INCR") => add(1, Form::Incr),
            2 if is("DECR") => add(-1, Form::Decr),
            3 if is("INCRBY") => add(integer(arg(2))?, Form::IncrBy),
            3 if is("DECRBY") => add(integer(arg(2))?.checked_neg()?, Form::DecrBy),
            3 if is("SET") => Some(Self::Set { key: arg(1), value: arg(2) }),
            4 if is("HINCRBY") => Some(Self::Add {
                key: arg(1),
                field: Some(arg(2)),
                delta: integer(arg(3))?,
                form: Form::HIncrBy,
            }),
            3 if is("INCRBYFLOAT") => add(whole(2)?, Form::IncrByFloat),
            4 if is("ZINCRBY") => Some(Self::Add {
                key: arg(1),
                field: Some(arg(3)),
                delta: whole(2)?,
                form: Form::ZIncrBy,
            }),
            _ => None,
        }
    }

    /// The key that it changes.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Self::Add { key, .. } | Self::Set { key, .. } => key,
        }
    }

    /// The field or member of the key, if it is one of many.
    pub(super) fn field(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Add { field, .. } => field,
            Self::Set { .. } => None,
        }
    }

    pub(super) fn family(&self) -> Family {
        match self {
            Self::Set { .. } => Family::Set,
            Self::Add { form: Form::ZIncrBy, .. } => Family::Score,
            Self::Add { form: Form::IncrByFloat, .. } => Family::Float,
            Self::Add { .. } => Family::Integer,
        }
    }

    /// Whether several of it need a server that runs scripts, and a value that is whole.
    pub fn is_guarded(&self) -> bool {
        self.family().is_guarded()
    }

    /// Appends the request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Set { key, value } => request(out, &[b"SET", key, value]),
            Self::Add { key, field, delta, form } => {
                let mut buffer = [0; 20];
                match form {
                    Form::Incr => request(out, &[b"INCR", key]),
                    Form::Decr => request(out, &[b"DECR", key]),
                    Form::IncrBy => request(out, &[b"INCRBY", key, text(&mut buffer, delta)]),
                    Form::DecrBy => {
                        request(out, &[b"DECRBY", key, text(&mut buffer, delta.wrapping_neg())]);
                    }
                    Form::HIncrBy => {
                        let field = field.unwrap_or_default();
                        request(out, &[b"HINCRBY", key, field, text(&mut buffer, delta)]);
                    }
                    Form::ZIncrBy => {
                        let member = field.unwrap_or_default();
                        request(out, &[b"ZINCRBY", key, text(&mut buffer, delta), member]);
                    }
                    Form::IncrByFloat => {
                        request(out, &[b"INCRBYFLOAT", key, text(&mut buffer, delta)]);
                    }
                }
            }
        }
    }
}

pub(super) fn text(buffer: &mut [u8; 20], number: i64) -> &[u8] {
    let mut rest = &mut buffer[..];
    let _ = write!(rest, "{number}"); // 20 bytes hold every i64
    let left = rest.len();
    &buffer[..20 - left]
}

pub(super) fn request(out: &mut Vec<u8>, args: &[&[u8]]) {
    let _ = write!(out, "*{}\r\n", args.len());
    for arg in args {
        let _ = write!(out, "${}\r\n", arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// A number as a server reads it: no sign but a minus, no leading zeros, no spaces, and
/// within 64 bits.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" => return (text == b"0").then_some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_a_server_reads_them() {
        for (text, number) in [
            ("0", 0),
            ("7", 7),
            ("-7", -7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "+1",
            "-0",
            "01",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_sent_is_what_was_asked() {
        for command in [
            "INCR k",
            "DECR k",
            "INCRBY k -9223372036854775808",
            "DECRBY k 9223372036854775807",
            "HINCRBY k f 12",
            "ZINCRBY k -3 m",
            "INCRBYFLOAT k 1000000000000000",
            "SET k v",
        ] {
            let args: Vec<&str> = command.split(' ').collect();
            let (mut sent, mut asked) = (Vec::new(), Vec::new());
            Change::parse(&args).unwrap().encode(&mut sent);
            request(&mut asked, &args.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>());
            assert_eq!(sent, asked);
        }
    }

    #[test]
    fn what_the_server_refuses_or_rounds_is_not_combined() {
        for command in [
            "INCR",
            "INCR k 1",
            "INCRBY k x",
            "DECRBY k -9223372036854775808",
            "HINCRBY k f 01",
            "SET k v NX",
            "INCRBYFLOAT k 1.5",
            "INCRBYFLOAT k 1.0",
            "INCRBYFLOAT k 1000000000000001",
            "INCRBYFLOAT k -9223372036854775808",
            "ZINCRBY k 0.1 m",
            "ZINCRBY k 1e3 m",
            "ZINCRBY k inf m",
            "ZINCRBY k +1 m",
            "ZINCRBY k -1000000000000001 m",
        ] {
            assert_eq!(Change::parse(&command.split(' ').collect::<Vec<_>>()), None, "{command}");
        }
    }
}
