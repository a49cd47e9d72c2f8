//! `HOTKEYS`: the server's own tracking of hot keys, by CPU time and bytes (Redis 8.6).
//!
//! Called by: [`crate::plan`] to find out whether there is one, [`crate::scan`] to use it.
//! Bound: at most [`KEYS_MAX`] keys; the server ends the session itself after the duration,
//! even if this process is gone.
//! Invariant: a session that runs already is somebody else's and is not touched.
//!
//! Other servers use the same name for another command (one that has no `START`); for them
//! `MONITOR` is used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_resp::value::Value;

use heatsink_upstream::client::{Client, ClientError};

/// Keys that a session can follow.
pub const KEYS_MAX: usize = 64;

const LOOK: Duration = Duration::from_millis(50);

/// What a server has to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// No `HOTKEYS START`.
    None,
    /// It is there, and nobody uses it.
    Ready,
    /// It is there, and a session is under way.
    Busy,
}

/// A key of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKey {
    /// The raw key.
    pub key: Vec<u8>,
    /// CPU time spent on it.
    pub cpu_us: Option<u64>,
    /// Bytes in and out for it.
    pub net_bytes: Option<u64>,
}

/// What a session found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// By CPU time, then by bytes, highest first.
    pub keys: Vec<HotKey>,
    /// CPU time of all commands.
    pub cpu_us: u64,
    /// Bytes of all commands.
    pub net_bytes: u64,
    /// How long it was.
    pub duration_ms: u64,
}

/// Asks what the server can do.
pub fn support(client: &mut Client) -> Result<Support, ClientError> {
    let info = client.ask(&["COMMAND", "INFO", "HOTKEYS"])?;
    if !has_start(&info) {
        return Ok(Support::None);
    }
    let session = client.ask(&["HOTKEYS", "GET"])?;
    let active = fields(&session).and_then(|fields| number(fields, b"tracking-active"));
    Ok(match (session, active) {
        // Without the right to use it, it is as good as not there.
        (Value::Error(_), _) => Support::None,
        (_, Some(1)) => Support::Busy,
        _ => Support::Ready,
    })
}

/// Runs a session: starts it, waits, reads and forgets it.
pub fn run(
    client: &mut Client,
    keys: usize,
    duration: Duration,
    stop: &AtomicBool,
) -> Result<Session, ClientError> {
    let keys = keys.clamp(1, KEYS_MAX).to_string();
    let seconds = duration.as_secs_f64().ceil().max(1.0).to_string();
    client.call(&[
        "HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", &keys, "DURATION", &seconds,
    ])?;
    let deadline = Instant::now() + duration;
    while !stop.load(Ordering::Relaxed) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // Nothing tells of the end; only of a wish to stop, which is looked for.
        thread::sleep(left.min(LOOK));
    }
    // An error only says that the server ended it first.
    let _ = client.ask(&["HOTKEYS", "STOP"])?;
    let reply = client.call(&["HOTKEYS", "GET"]);
    let _ = client.ask(&["HOTKEYS", "RESET"])?;
    parse(&reply?).ok_or_else(|| client.garbled())
}

/// Reads a `HOTKEYS GET` reply of either protocol.
pub fn parse(reply: &Value) -> Option<Session> {
    let fields = fields(reply)?;
    let mut session = Session {
        keys: Vec::new(),
        cpu_us: number(fields, b"all-commands-all-slots-us")?,
        net_bytes: number(fields, b"net-bytes-all-commands-all-slots")?,
        duration_ms: number(fields, b"collection-duration-ms")?,
    };
    for (list, by_cpu) in [(&b"by-cpu-time-us"[..], true), (b"by-net-bytes", false)] {
        for (key, value) in pairs(fields.get(list)) {
            let value = u64::try_from(value.integer()?).ok()?;
            let key = key.text()?;
            let known = session.keys.iter().position(|hot| hot.key == key);
            let at = known.unwrap_or_else(|| {
                session.keys.push(HotKey { key: key.to_vec(), ..HotKey::default() });
                session.keys.len() - 1
            });
            let hot = &mut session.keys[at];
            *(if by_cpu { &mut hot.cpu_us } else { &mut hot.net_bytes }) = Some(value);
        }
    }
    Some(session)
}

/// Whether a `COMMAND INFO` reply lists the subcommand `start`.
fn has_start(info: &Value) -> bool {
    let [command] = info.array() else { return false };
    let subcommands = command.array().get(9).map(Value::array).unwrap_or_default();
    subcommands.iter().any(|subcommand| {
        let name = subcommand.array().first().and_then(Value::text);
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"hotkeys|start"))
    })
}

/// The fields stand in an array of one, or by themselves.
fn fields(reply: &Value) -> Option<&Value> {
    match reply {
        Value::Array(outer) => match outer.as_slice() {
            [inner @ (Value::Array(_) | Value::Map(_))] => Some(inner),
            [] => None,
            _ => Some(reply),
        },
        Value::Map(_) => Some(reply),
        _ => None,
    }
}

fn number(fields: &Value, name: &[u8]) -> Option<u64> {
    fields.get(name)?.integer().and_then(|number| u64::try_from(number).ok())
}

fn pairs(list: Option<&Value>) -> Vec<(&Value, &Value)> {
    match list {
        Some(Value::Map(pairs)) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Some(Value::Array(flat)) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn reply() -> Vec<Value> {
        vec![
            text("tracking-active"),
            Value::Integer(0),
            text("all-commands-all-slots-us"),
            Value::Integer(220),
            text("net-bytes-all-commands-all-slots"),
            Value::Integer(2000),
            text("collection-duration-ms"),
            Value::Integer(6408),
            text("by-cpu-time-us"),
            Value::Array(vec![text("x"), Value::Integer(104), text("y"), Value::Integer(98)]),
            text("by-net-bytes"),
            Value::Array(vec![text("y"), Value::Integer(900), text("z"), Value::Integer(500)]),
        ]
    }

    #[test]
    fn a_session_in_both_protocols() {
        let flat = Value::Array(vec![Value::Array(reply())]);
        let pairs = reply().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let map = Value::Array(vec![Value::Map(pairs)]);
        let session = parse(&flat).unwrap();
        assert_eq!(parse(&map).unwrap(), session);
        assert_eq!(parse(&Value::Array(reply())).unwrap(), session);
        assert_eq!((session.cpu_us, session.net_bytes, session.duration_ms), (220, 2000, 6408));
        let key = |key: &str, cpu_us, net_bytes| HotKey { key: key.into(), cpu_us, net_bytes };
        let expected =
            [key("x", Some(104), None), key("y", Some(98), Some(900)), key("z", None, Some(500))];
        assert_eq!(session.keys, expected);
        assert_eq!(parse(&Value::Nil), None);
        assert_eq!(parse(&Value::Array(Vec::new())), None);
    }

    #[test]
    fn only_the_command_with_start_counts() {
        let command = |subcommands: &[&str]| {
            let mut fields = vec![Value::Integer(0); 9];
            let named = subcommands.iter().map(|name| Value::Array(vec![text(name)])).collect();
            fields.push(Value::Array(named));
            Value::Array(vec![Value::Array(fields)])
        };
        assert!(has_start(&command(&["hotkeys|get", "hotkeys|start"])));
        assert!(!has_start(&command(&["hotkeys|get", "hotkeys|reset"])));
        assert!(!has_start(&Value::Array(vec![Value::Nil])));
    }
}
