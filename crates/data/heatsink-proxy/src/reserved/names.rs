//! Names that belong to the fleet: its registry, shards, copies and channels. Clients may not use
//! them.
//!
//! Called by: `intake` with every request of a client; `dedicated` with messages for a subscriber.
//! Bound: one comparison an argument. What is compared further names something of the fleet's.
//! Invariant: no request of a client that names such a key or channel reaches a server, whoever
//! the client is. The control plane's own connections ([`crate::Handle::connect`]) are exempt.
//!
//! What cannot be seen: names that a script puts together while it runs. Against those the fleet
//! signs what it writes (`coordination.secret`).

use heatsink_resp::command::{Command, Role};

use crate::downstream::request::Request;

/// What all names of the fleet begin with, those of other namespaces included.
pub(crate) const PREFIX: &[u8] = b"heatsink:{";

/// The channel on which Heatsinks tell each other of writes, see `hot::broadcast`.
const WRITTEN: &[u8] = b"heatsink:written";

/// What a client is told.
pub(crate) const REFUSAL: &str =
    "NOPERM heatsink: keys and channels that begin with heatsink:{ are Heatsink's own";

/// The key is one of the fleet's.
#[inline]
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// The channel is one of the fleet's.
fn is_channel(name: &[u8]) -> bool {
    is_reserved(name) || name == WRITTEN
}

/// The request names a key or a channel of the fleet.
#[inline]
pub(crate) fn is_named(command: Option<&Command>, request: Request<'_>) -> bool {
    let begins = request.args_from(1).any(|arg| arg.starts_with(b"heatsink:"));
    begins && is_meant(command, request) || command.is_some_and(|one| is_in_script(one, request))
}

/// An argument that begins like a name of the fleet is one, and not a value.
#[cold]
fn is_meant(command: Option<&Command>, request: Request<'_>) -> bool {
    // Nobody knows which of its arguments are keys.
    let Some(command) = command else { return request.args_from(1).any(is_channel) };
    let named = |index| request.arg(index).is_some_and(is_reserved);
    if let Role::Subscription(subscription) = command.role {
        return subscription.subscribe && request.args_from(1).any(is_channel);
    }
    match &*command.name {
        // Patterns among the options name keys as well, and scripts use any argument as one.
        "sort" | "sort_ro" | "migrate" | "georadius" | "georadiusbymember" | "eval" | "eval_ro"
        | "evalsha" | "evalsha_ro" | "fcall" | "fcall_ro" => {
            return request.args_from(1).any(is_channel);
        }
        "publish" | "spublish" => return request.arg(1).is_some_and(is_channel),
        _ => {}
    }
    let mut found = false;
    let arg = |index| request.arg(index).unwrap_or_default();
    command.for_each_key(request.len(), arg, |index| found |= named(index));
    found
}

/// A script whose text holds such a name.
#[inline]
fn is_in_script(command: &Command, request: Request<'_>) -> bool {
    let text = match &*command.name {
        "eval" | "eval_ro" => 1..2,
        "script|load" | "function|load" => 2..request.len(),
        _ => return false,
    };
    text.filter_map(|index| request.arg(index))
        .any(|text| memchr::memmem::find(text, PREFIX).is_some())
}

/// A message of pub/sub that only the fleet should hear: of one of its channels, or an event of
/// one of its keys. `frame` may be the beginning of a large one.
pub(crate) fn is_message(frame: &[u8]) -> bool {
    let mut strings = Strings(frame);
    let channel = match strings.next() {
        Some(b"message") => strings.next(),
        Some(b"pmessage") => strings.nth(1),
        _ => None,
    };
    let Some(channel) = channel else { return false };
    if is_channel(channel) {
        return true;
    }
    if channel.starts_with(b"__keyspace@") {
        let name = channel.iter().position(|byte| *byte == b':').map(|at| &channel[at + 1..]);
        return name.is_some_and(is_reserved);
    }
    channel.starts_with(b"__keyevent@") && strings.next().is_some_and(is_reserved)
}

/// The strings of an array, as far as they are there.
struct Strings<'a>(&'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if matches!(self.0.first(), Some(b'*' | b'>')) {
            self.0 = &self.0[memchr::memchr(b'\n', self.0)? + 1..];
        }
        let end = memchr::memchr(b'\n', self.0)?;
        let length = self.0[..end].strip_prefix(b"$")?.strip_suffix(b"\r")?;
        let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
        let rest = &self.0[end + 1..];
        // Of a string that has not come whole, its beginning tells enough.
        let string = &rest[..length.min(rest.len())];
        self.0 = rest.get(length + 2..).unwrap_or_default();
        Some(string)
    }
}

#[cfg(test)]
mod tests {
    use heatsink_resp::command::CommandTable;
    use heatsink_resp::encode;

    use super::*;
    use crate::downstream::request::spans;

    fn refused(words: &[&str]) -> bool {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, words);
        let args = spans(&bytes).expect("a request");
        let request = Request { bytes: &bytes, args: &args };
        let table = CommandTable::default();
        is_named(table.lookup(request.name(), request.arg(1)), request)
    }

    #[test]
    fn whatever_names_a_key_or_a_channel_of_the_fleet_is_refused() {
        let dedicated = "heatsink:{default}:state";
        for request in [
            &["GET", dedicated][..],
            &["MSET", "a", "1", dedicated, "2"],
            &["RENAME", "a", dedicated],
            &["EVAL", "return 1", "1", dedicated],
            &["EVAL", "return redis.call('get', KEYS[1])", "0", dedicated],
            &["EVAL", "redis.call('PUBLISH', 'heatsink:{default}:changes', 'x')", "0"],
            &["SCRIPT", "LOAD", "return redis.call('get', 'heatsink:{a}:1:0')"],
            &["MIGRATE", "host", "1", "", "0", "5", "KEYS", "a", dedicated],
            &["RESTORE", dedicated, "0", "x"],
            &["SORT", "a", "STORE", dedicated],
            &["SORT", "a", "BY", "heatsink:{*}:x"],
            &["GEORADIUS", "a", "1", "1", "1", "m", "STORE", dedicated],
            &["XREAD", "STREAMS", dedicated, "0"],
            &["OBJECT", "ENCODING", dedicated],
            &["PUBLISH", dedicated, "x"],
            &["SPUBLISH", dedicated, "x"],
            &["SUBSCRIBE", "a", dedicated],
            &["PSUBSCRIBE", "heatsink:{*"],
            &["SSUBSCRIBE", dedicated],
            &["PUBLISH", "heatsink:written", "k"],
            &["WATCH", dedicated],
            &["SOME.MODULE", "a", dedicated],
        ] {
            assert!(refused(request), "{request:?}");
        }
    }

    #[test]
    fn a_value_that_looks_like_such_a_name_is_a_value() {
        let dedicated = "heatsink:{default}:state";
        for request in [
            &["SET", "k", dedicated][..],
            &["MSET", "a", dedicated, "b", dedicated],
            &["PUBLISH", "k", dedicated],
            &["ECHO", dedicated],
            &["GET", "heatsink"],
            &["GET", "heatsink:other"],
            &["GET", "heatsink:written"],
            &["SOME.MODULE", "heatsink:other"],
            &["SUBSCRIBE", "heatsink:other"],
            &["UNSUBSCRIBE", dedicated],
            &["EVAL", "return 1", "1", "k"],
        ] {
            assert!(!refused(request), "{request:?}");
        }
    }

    #[test]
    fn messages_of_the_fleet_are_told_from_others() {
        let frame = |strings: &[&str]| {
            let mut bytes = Vec::new();
            encode::command(&mut bytes, strings);
            bytes
        };
        for ours in [
            &["message", "heatsink:{default}:changes", "x"][..],
            &["pmessage", "*", "heatsink:{default}:db3:reports", "x"],
            &["pmessage", "*", "__keyspace@0__:heatsink:{default}:state", "hset"],
            &["pmessage", "*", "__keyevent@0__:hset", "heatsink:{default}:state"],
        ] {
            let bytes = frame(ours);
            assert!(is_message(&bytes), "{ours:?}");
            let push = [b">", &bytes[1..]].concat();
            assert!(is_message(&push), "{ours:?}");
        }
        for theirs in [
            &["message", "news", "heatsink:{default}:changes"][..],
            &["pmessage", "heatsink:{x", "news", "x"],
            &["pmessage", "*", "__keyspace@0__:k", "heatsink:{"],
            &["pmessage", "*", "__keyevent@0__:set", "k"],
            &["subscribe", "heatsink:{default}:changes", "1"],
        ] {
            assert!(!is_message(&frame(theirs)), "{theirs:?}");
        }
        assert!(!is_message(b"*3\r\n$7\r\nmess"), "a frame that has only begun");
    }
}
