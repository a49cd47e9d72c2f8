//! Kinds of values: what a key takes, and the words for what it does not take.
//!
//! Called by: `merge`, for every value that was given and for every default.
//! Invariant: a message never contains the password of a URL.

use std::net::{Ipv6Addr, SocketAddr};

use heatsink_upstream::address::Url;

use super::nearest::{nearest, suggestion};
use super::raw::RawValue;
use super::secret::without_password;
use super::size;
use super::value::Value;
use crate::logging;

/// What values a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// This kind, or an empty text for nothing.
    Optional(&'static Kind),
    /// IP address (or `localhost`) and port.
    Address,
    /// Name or address of a host, and port.
    HostPort,
    /// Name or address of a host.
    Host,
    /// Where a file is.
    Path,
    /// Yes or no.
    Switch,
    /// Where a Redis is.
    Url,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A name that becomes part of key names, within a hash tag.
    Name,
    /// What to log.
    Filter,
    /// A glob; every text is one.
    Pattern,
    /// A whole number in this range.
    Whole {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A size in this range.
    Bytes {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// Above 0 and at most 1.
    Fraction,
}

impl Kind {
    /// Stands for the value in `--help`.
    pub(crate) fn value_name(self) -> String {
        match self {
            Self::Optional(kind) => kind.value_name(),
            Self::Address => "ADDR".to_owned(),
            Self::HostPort => "HOST:PORT".to_owned(),
            Self::Host => "HOST".to_owned(),
            Self::Path => "PATH".to_owned(),
            Self::Switch => "true|false".to_owned(),
            Self::Url => "URL".to_owned(),
            Self::Choice(words) => words.join("|"),
            Self::Name => "NAME".to_owned(),
            Self::Filter => "FILTER".to_owned(),
            Self::Pattern => "GLOB".to_owned(),
            Self::Whole { .. } => "N".to_owned(),
            Self::Bytes { .. } => "SIZE".to_owned(),
            Self::Fraction => "FRACTION".to_owned(),
        }
    }

    /// The value meant by `raw`, or what is wrong with it.
    pub(crate) fn parse(self, raw: &RawValue) -> Result<Value, String> {
        match self {
            Self::Url => parse_url(raw),
            _ => self.read(raw).ok_or_else(|| self.complaint(raw)),
        }
    }

    fn read(self, raw: &RawValue) -> Option<Value> {
        let text = raw.text();
        let number = raw.number();
        match self {
            Self::Optional(_) if text == Some("") => Some(Value::Nothing),
            Self::Optional(kind) => kind.read(raw),
            Self::Address => parse_address(text?).map(Value::Address),
            Self::HostPort => parse_host_port(text?),
            Self::Host => text.filter(|text| is_host(text)).map(Value::text),
            Self::Path => {
                text.filter(|text| !text.is_empty() && !text.contains('\0')).map(Value::text)
            }
            Self::Switch => raw.switch().map(Value::Switch),
            Self::Url => parse_url(raw).ok(),
            Self::Choice(words) => {
                words.iter().find(|word| text == Some(word)).map(|word| Value::Word(word))
            }
            Self::Name => text.filter(|text| is_name(text)).map(Value::text),
            Self::Filter => text.filter(|text| logging::is_filter(text)).map(Value::text),
            Self::Pattern => text.filter(|text| !text.is_empty()).map(Value::text),
            Self::Whole { min, max } => {
                let whole = number?.parse().ok()?;
                (min..=max).contains(&whole).then_some(Value::Whole(whole))
            }
            Self::Bytes { min, max } => {
                let bytes = size::parse(text.or(number)?)?;
                (min..=max).contains(&bytes).then_some(Value::Bytes(bytes))
            }
            Self::Fraction => {
                let fraction: f64 = number?.parse().ok()?;
                (fraction > 0.0 && fraction <= 1.0).then_some(Value::Fraction(fraction))
            }
        }
    }

    /// Why `raw` was not taken: the value, and what would have been.
    fn complaint(self, raw: &RawValue) -> String {
        if let RawValue::Quoted(text) = raw
            && self.read(&RawValue::Untyped(text.clone())).is_some()
        {
            return format!("{raw} is text; write {text} without the quotes");
        }
        match self {
            Self::Optional(kind) => kind.complaint(raw),
            Self::HostPort => {
                format!("{raw} is not a host with a port, such as \"cache.example:6380\"")
            }
            Self::Host => format!("{raw} is not the name or address of a host"),
            Self::Path => format!("{raw} is not the path of a file"),
            Self::Switch => format!("{raw} is neither true nor false"),
            Self::Address => {
                format!("{raw} is not an IP address with a port, such as \"127.0.0.1:6380\"")
            }
            Self::Url => format!("{raw} is not a URL in quotes"),
            Self::Choice(words) => {
                let close = raw.text().and_then(|text| nearest(text, words.iter().copied()));
                format!("{raw} is not one of {}{}", words.join(", "), suggestion(close))
            }
            Self::Name => {
                format!(
                    "{raw} is not a name of 1 to {NAME_MAX} letters, digits, \"-\", \"_\", \".\""
                )
            }
            Self::Filter => format!(
                "{raw} is neither a level (off, error, warn, info, debug, trace) nor directives \
                 such as \"warn,heatsink_proxy=debug\""
            ),
            Self::Pattern => format!("{raw} is not a pattern, such as \"user:*\""),
            Self::Whole { min, max } => format!("{raw} is not a whole number from {min} to {max}"),
            Self::Bytes { min, max } => format!(
                "{raw} is not a size from {} to {} (bytes, or with KiB, MiB, GiB, KB, MB, GB)",
                size::show(min),
                size::show(max)
            ),
            Self::Fraction => format!("{raw} is not a number above 0 and up to 1"),
        }
    }
}

impl RawValue {
    /// The text where a text is wanted.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Untyped(text) | Self::Quoted(text) => Some(text),
            Self::Number(_) | Self::Boolean(_) | Self::Other(_) => None,
        }
    }

    /// The digits where a number is wanted.
    fn number(&self) -> Option<&str> {
        match self {
            Self::Untyped(text) | Self::Number(text) => Some(text),
            Self::Quoted(_) | Self::Boolean(_) | Self::Other(_) => None,
        }
    }

    /// Yes or no where that is wanted.
    fn switch(&self) -> Option<bool> {
        match self {
            Self::Boolean(switch) => Some(*switch),
            Self::Untyped(text) => text.parse().ok(),
            Self::Quoted(_) | Self::Number(_) | Self::Other(_) => None,
        }
    }
}

const NAME_MAX: usize = 64;

fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Names are not looked up: an address to listen on has to be the same on every start.
fn parse_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

/// A host as it stands in a certificate or is told to clients.
fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains(|char: char| char.is_whitespace() || "/@\"".contains(char))
}

fn parse_host_port(text: &str) -> Option<Value> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|rest| rest.parse::<Ipv6Addr>().is_ok())?,
        None => Some(host).filter(|host| !host.contains(':'))?,
    };
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    is_host(bare).then(|| Value::HostPort { host: bare.to_owned(), port })
}

fn parse_url(raw: &RawValue) -> Result<Value, String> {
    let Some(text) = raw.text() else { return Err(Kind::Url.complaint(raw)) };
    let shown = without_password(text);
    // Which part would be the password and which the parameters is anybody's guess.
    if text.rsplit_once('@').is_some_and(|(login, _)| login.contains('?')) {
        return Err(format!(
            "{shown:?}: \"?\" and \"@\" in a user or password are written as %3F and %40"
        ));
    }
    // The parser would take the rest of the password for a database and quote it.
    let slash_in_password = text.split_once("://").is_some_and(|(_, rest)| {
        matches!((rest.find('/'), rest.rfind('@')), (Some(slash), Some(at)) if slash < at)
    });
    if slash_in_password {
        return Err(format!("{shown:?}: a \"/\" in user or password is written as %2F"));
    }
    match text.parse::<Url>() {
        Ok(url) => Ok(Value::Url { url, shown }),
        Err(error) => Err(format!("{shown:?}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Kind = Kind::Whole { min: 1, max: 256 };
    const SIZE: Kind = Kind::Bytes { min: 1024, max: 1 << 30 };
    const MODE: Kind = Kind::Choice(&["exact", "relaxed"]);

    fn number(digits: &str) -> RawValue {
        RawValue::Number(digits.to_owned())
    }

    fn quoted(text: &str) -> RawValue {
        RawValue::Quoted(text.to_owned())
    }

    fn untyped(text: &str) -> RawValue {
        RawValue::Untyped(text.to_owned())
    }

    #[test]
    fn good_values_are_taken_in_every_form() {
        let address: SocketAddr = "127.0.0.1:0".parse().expect("valid");
        for (kind, raw, value) in [
            (COUNT, number("256"), Value::Whole(256)),
            (COUNT, untyped("1"), Value::Whole(1)),
            (SIZE, number("2048"), Value::Bytes(2048)),
            (SIZE, quoted("1MiB"), Value::Bytes(1 << 20)),
            (SIZE, untyped("1MiB"), Value::Bytes(1 << 20)),
            (Kind::Fraction, number("1"), Value::Fraction(1.0)),
            (Kind::Fraction, untyped("0.25"), Value::Fraction(0.25)),
            (Kind::Address, quoted("localhost:0"), Value::Address(address)),
            (Kind::Address, untyped("127.0.0.1:0"), Value::Address(address)),
            (MODE, quoted("exact"), Value::Word("exact")),
            (Kind::Name, quoted("eu-1.blue"), Value::text("eu-1.blue")),
            (Kind::Optional(&Kind::Address), quoted(""), Value::Nothing),
            (Kind::Optional(&Kind::Address), quoted("127.0.0.1:0"), Value::Address(address)),
            (Kind::Switch, RawValue::Boolean(true), Value::Switch(true)),
            (Kind::Switch, untyped("false"), Value::Switch(false)),
            (
                Kind::HostPort,
                quoted("cache.example:6380"),
                Value::HostPort { host: "cache.example".to_owned(), port: 6380 },
            ),
            (
                Kind::HostPort,
                quoted("[::1]:6380"),
                Value::HostPort { host: "::1".to_owned(), port: 6380 },
            ),
        ] {
            assert_eq!(kind.parse(&raw), Ok(value));
        }
    }

    #[test]
    fn bad_values_are_told_what_is_allowed() {
        for (kind, raw, message) in [
            (COUNT, quoted("many"), "\"many\" is not a whole number from 1 to 256"),
            (COUNT, number("0"), "0 is not a whole number from 1 to 256"),
            (COUNT, number("1.5"), "1.5 is not a whole number from 1 to 256"),
            (COUNT, quoted("12"), "\"12\" is text; write 12 without the quotes"),
            (COUNT, RawValue::Other("an array"), "an array is not a whole number from 1 to 256"),
            (
                SIZE,
                untyped("1KB"),
                "\"1KB\" is not a size from 1KiB to 1GiB (bytes, or with KiB, MiB, GiB, KB, MB, GB)",
            ),
            (Kind::Fraction, number("0.0"), "0.0 is not a number above 0 and up to 1"),
            (Kind::Fraction, number("nan"), "nan is not a number above 0 and up to 1"),
            (
                MODE,
                quoted("exakt"),
                "\"exakt\" is not one of exact, relaxed; did you mean \"exact\"?",
            ),
            (MODE, quoted("never"), "\"never\" is not one of exact, relaxed"),
            (
                Kind::Address,
                number("6380"),
                "6380 is not an IP address with a port, such as \"127.0.0.1:6380\"",
            ),
            (
                Kind::Name,
                quoted("a{b}"),
                "\"a{b}\" is not a name of 1 to 64 letters, digits, \"-\", \"_\", \".\"",
            ),
            (Kind::Switch, quoted("true"), "\"true\" is text; write true without the quotes"),
            (Kind::Switch, untyped("on"), "\"on\" is neither true nor false"),
            (COUNT, RawValue::Boolean(true), "true is not a whole number from 1 to 256"),
            (
                Kind::HostPort,
                quoted("::1:6380"),
                "\"::1:6380\" is not a host with a port, such as \"cache.example:6380\"",
            ),
            (
                Kind::Optional(&Kind::HostPort),
                quoted("cache.example"),
                "\"cache.example\" is not a host with a port, such as \"cache.example:6380\"",
            ),
            (Kind::Pattern, quoted(""), "\"\" is not a pattern, such as \"user:*\""),
        ] {
            assert_eq!(kind.parse(&raw), Err(message.to_owned()));
        }
    }

    #[test]
    fn a_bad_url_is_shown_without_its_password() {
        for text in [
            "redis://bob:hunter2@h:0",
            "redis://bob:x/hunter2@h:1",
            "redis://bob:hunter2@h/db",
            "http://bob:hunter2@h",
            "bob:hunter2@h",
            "redis://bob:x@hunter2@",
            "redis+sentinel://h/m?sentinel_password=x@hunter2",
            "redis+sentinel://bob:hunter2@h/m?sentinel_pass=hunter2",
        ] {
            let message = Kind::Url.parse(&quoted(text)).expect_err(text);
            assert!(!message.contains("hunter2"), "{message}");
            assert!(message.contains("***@"), "{message}");
        }
    }
}
