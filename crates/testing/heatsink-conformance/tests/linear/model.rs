//! The plain server that a history has to be explained by: a few keys that hold strings.
//!
//! Called by: `search`, many times for each operation, and `recorder`, for the words.
//! Bound: none needed.
//! Invariant: replies are those of a real server, byte for byte; errors that change nothing are
//! among them.

use std::fmt;

use heatsink_testkit::Reply;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const NOT_A_FLOAT: &str = "ERR value is not a valid float";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

const SCRIPT: &str = "return redis.pcall('INCRBY', KEYS[1], ARGV[1])";

/// What is done to one key, or to several at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Command {
    Get,
    Strlen,
    Exists,
    Set(String),
    SetNx(String),
    GetSet(String),
    Append(String),
    Del,
    GetDel,
    Incr,
    Decr,
    IncrBy(i64),
    DecrBy(i64),
    /// An `INCRBYFLOAT` by a whole number.
    FloatBy(i64),
    /// An increment by a script, which nothing is known of but the key.
    Script(i64),
    MGet,
    /// The same text for all of them.
    MSet(String),
}

impl Command {
    /// What a server would answer, and what the values are then; most commands have one.
    pub(crate) fn execute(&self, values: &mut [Option<String>]) -> Reply {
        let bulk = |value: &Option<String>| value.as_ref().map_or(Reply::Null, Reply::bulk);
        let yes_or_no = |yes: bool| Reply::Integer(i64::from(yes));
        match self {
            Self::MGet => return Reply::Array(values.iter().map(bulk).collect()),
            Self::MSet(new) => {
                values.fill(Some(new.clone()));
                return Reply::ok();
            }
            _ => {}
        }
        let value = &mut values[0];
        match self {
            Self::Get => bulk(value),
            Self::Strlen => Reply::Integer(value.as_ref().map_or(0, String::len) as i64),
            Self::Exists => yes_or_no(value.is_some()),
            Self::Set(new) => {
                *value = Some(new.clone());
                Reply::ok()
            }
            Self::SetNx(new) => {
                let is_new = value.is_none();
                value.get_or_insert_with(|| new.clone());
                yes_or_no(is_new)
            }
            Self::GetSet(new) => bulk(&value.replace(new.clone())),
            Self::Append(more) => {
                let value = value.get_or_insert_default();
                value.push_str(more);
                Reply::Integer(value.len() as i64)
            }
            Self::Del => yes_or_no(value.take().is_some()),
            Self::GetDel => bulk(&value.take()),
            Self::Incr => add(value, 1),
            Self::Decr => add(value, -1),
            Self::IncrBy(by) | Self::Script(by) => add(value, *by),
            Self::DecrBy(by) => add(value, -*by),
            Self::FloatBy(by) => add_float(value, *by),
            Self::MGet | Self::MSet(_) => unreachable!("seen to above"),
        }
    }

    /// Whether it is about all keys of the history.
    pub(crate) fn is_about_all(&self) -> bool {
        matches!(self, Self::MGet | Self::MSet(_))
    }

    /// Whether it changes nothing, whatever the value is.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Get | Self::Strlen | Self::Exists | Self::MGet)
    }

    /// Whether its reply is the value that was there before.
    pub(crate) fn shows_value(&self) -> bool {
        matches!(self, Self::Get | Self::GetSet(_) | Self::GetDel | Self::MGet)
    }

    /// As it is sent.
    pub(crate) fn words(&self, keys: &[&str]) -> Vec<String> {
        let (name, value) = self.parts();
        let before = if matches!(self, Self::Script(_)) { vec![SCRIPT, "1"] } else { Vec::new() };
        let words = [name].into_iter().chain(before);
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        for key in keys {
            words.push((*key).to_owned());
            words.extend(value.clone());
        }
        words
    }

    fn parts(&self) -> (&'static str, Option<String>) {
        match self {
            Self::Get => ("GET", None),
            Self::Strlen => ("STRLEN", None),
            Self::Exists => ("EXISTS", None),
            Self::Set(value) => ("SET", Some(value.clone())),
            Self::SetNx(value) => ("SETNX", Some(value.clone())),
            Self::GetSet(value) => ("GETSET", Some(value.clone())),
            Self::Append(value) => ("APPEND", Some(value.clone())),
            Self::Del => ("DEL", None),
            Self::GetDel => ("GETDEL", None),
            Self::Incr => ("INCR", None),
            Self::Decr => ("DECR", None),
            Self::IncrBy(by) => ("INCRBY", Some(by.to_string())),
            Self::DecrBy(by) => ("DECRBY", Some(by.to_string())),
            Self::FloatBy(by) => ("INCRBYFLOAT", Some(by.to_string())),
            Self::Script(by) => ("EVAL", Some(by.to_string())),
            Self::MGet => ("MGET", None),
            Self::MSet(value) => ("MSET", Some(value.clone())),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, None) => f.write_str(name),
            (name, Some(value)) => write!(f, "{name} {value}"),
        }
    }
}

fn add(value: &mut Option<String>, by: i64) -> Reply {
    let number = value.as_ref().map_or(Some(0), |text| {
        // A server takes a number only as it would write it.
        text.parse::<i64>().ok().filter(|number| number.to_string() == *text)
    });
    let Some(number) = number else { return Reply::Error(NOT_AN_INTEGER.into()) };
    let Some(sum) = number.checked_add(by) else { return Reply::Error(OVERFLOW.into()) };
    *value = Some(sum.to_string());
    Reply::Integer(sum)
}

/// The numbers in a history are whole or halves, and short: none of them is rounded.
fn add_float(value: &mut Option<String>, by: i64) -> Reply {
    let number = value.as_ref().map_or(Some(0.0), |text| text.parse::<f64>().ok());
    let Some(number) = number else { return Reply::Error(NOT_A_FLOAT.into()) };
    let sum = (number + by as f64).to_string();
    *value = Some(sum.clone());
    Reply::bulk(sum)
}

/// Whether an error is an answer to what was asked, not word of a failure.
pub(crate) fn is_own_error(text: &str) -> bool {
    [NOT_AN_INTEGER, NOT_A_FLOAT, OVERFLOW].contains(&text)
}
