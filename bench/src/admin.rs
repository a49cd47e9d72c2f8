//! What a process says over its admin API: one answer, or events as they come.
//!
//! Called by: every measurement of `fleet`; `hot`, `cold`, `viral` and `split`, which
//! promote keys.
//! Bound: one connection an answer, one thread a stream of events, which ends with the process;
//! events are kept, a few for each key that becomes hot.
//! Invariant: an event has the time at which its line was read here, so delays are never too
//! short.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(200);

/// An event about a key.
struct Told {
    /// Which of the processes told it.
    node: usize,
    at: Instant,
    what: What,
    key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It is registered, or what is registered has changed.
    Registered,
    Removed,
}

/// The body of an answer.
pub(crate) fn get(addr: SocketAddr, path: &str) -> Result<String, String> {
    body(addr, path, ask(addr, path))
}

/// Makes a key hot until it is removed. Its name needs no escapes in an address.
pub(crate) fn promote(addr: SocketAddr, key: &str, mitigation: &str) -> Result<(), String> {
    wish(addr, key, &format!("{{\"mitigation_type\":\"{mitigation}\"}}"))
}

/// Has a key split until it is removed.
pub(crate) fn promote_to_split(addr: SocketAddr, key: &str, factor: u32) -> Result<(), String> {
    wish(addr, key, &format!("{{\"mitigation_type\":\"split\",\"split_factor\":{factor}}}"))
}

fn wish(addr: SocketAddr, key: &str, wish: &str) -> Result<(), String> {
    let path = format!("/hotkeys/{key}/promote");
    order(addr, "POST", &path, wish)
}

/// Has a key no longer treated.
pub(crate) fn remove(addr: SocketAddr, key: &str) -> Result<(), String> {
    let path = format!("/hotkeys/{key}");
    order(addr, "DELETE", &path, "")
}

/// Has something done. A store that was too busy to answer is asked again, as operators are told to.
fn order(addr: SocketAddr, method: &str, path: &str, wish: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match answer(addr, path, send(addr, method, path, wish))? {
            (status, _) if status == "200" => return Ok(()),
            (status, _) if status == "503" && begun.elapsed() < PATIENCE => {
                thread::sleep(AGAIN);
            }
            (status, body) => {
                return Err(format!("http://{addr}{path} answered {status}: {body}"));
            }
        }
    }
}

/// In which phase of a split a key is; `None` if its value is at its own name.
pub(crate) fn split_phase(addr: SocketAddr, key: &str) -> Result<Option<String>, String> {
    let path = format!("/hotkeys/{key}");
    let (status, body) = answer(addr, &path, ask(addr, &path))?;
    if status == "404" {
        return Ok(None);
    }
    let hot: Value = serde_json::from_str(&body).map_err(|error| format!("{path}: {error}"))?;
    Ok(hot["split"]["phase"].as_str().map(str::to_owned))
}

/// The body of what the stream answers, if that is a success.
fn body(addr: SocketAddr, path: &str, stream: io::Result<TcpStream>) -> Result<String, String> {
    match answer(addr, path, stream)? {
        (status, body) if status == "200" => Ok(body),
        (status, body) => Err(format!("http://{addr}{path} answered {status}: {body}")),
    }
}

/// The status and the body of what the stream answers.
fn answer(
    addr: SocketAddr,
    path: &str,
    stream: io::Result<TcpStream>,
) -> Result<(String, String), String> {
    let mut text = String::new();
    stream
        .and_then(|mut stream| stream.read_to_string(&mut text))
        .map_err(|error| format!("http://{addr}{path}: {error}"))?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).unwrap_or("nothing");
    Ok((status.to_owned(), body.to_owned()))
}

/// Whether the process says that it works as part of a fleet.
pub(crate) fn is_well(addr: SocketAddr) -> bool {
    let state = get(addr, "/readyz").ok().and_then(|body| serde_json::from_str(&body).ok());
    state.is_some_and(|state: Value| state["degraded"] == Value::Bool(false))
}

/// A sample of `/metrics` by its name and labels.
pub(crate) fn metric(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// The least upper bound of a histogram's buckets that so large a part of the values is within.
pub(crate) fn quantile(metrics: &str, name: &str, part: f64) -> Option<f64> {
    let total = metric(metrics, &format!("{name}_count"))?;
    let start = format!("{name}_bucket{{le=\"");
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix(&start)?.split_once("\"} "))
        .filter_map(|(bound, count)| Some((bound, count.parse::<f64>().ok()?)))
        .find(|(_, count)| total > 0.0 && *count >= total * part)
        .map(|(bound, _)| bound.parse().unwrap_or(f64::INFINITY))
}

/// Sends what process `node` tells to `to`; returns once it has begun to listen.
fn listen(node: usize, addr: SocketAddr, to: Sender<Told>) -> Result<(), String> {
    let failed = |error: io::Error| format!("http://{addr}/events: {error}");
    let stream = ask(addr, "/events").map_err(failed)?;
    // A fleet in which nothing happens is silent for longer.
    stream.set_read_timeout(None).map_err(failed)?;
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    if !lines.any(|line| line == "event: hello") {
        return Err(format!("http://{addr}/events ended without a word"));
    }
    thread::spawn(move || {
        for line in lines {
            let at = Instant::now();
            let Some(told) = line.strip_prefix("data: ").and_then(parse) else { continue };
            let (what, key) = told;
            if to.send(Told { node, at, what, key }).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// What several processes have told.
pub(crate) struct Events {
    receiver: Receiver<Told>,
    told: Vec<Told>,
}

impl Events {
    /// Listens to all of them; the first is node 0.
    pub(crate) fn of(addrs: impl IntoIterator<Item = SocketAddr>) -> Result<Self, String> {
        let (to, receiver) = mpsc::channel();
        for (node, addr) in addrs.into_iter().enumerate() {
            listen(node, addr, to.clone())?;
        }
        Ok(Self { receiver, told: Vec::new() })
    }

    /// When process `node` first told this of the key, as far as was heard up to now.
    pub(crate) fn first(&mut self, node: usize, what: What, key: &str) -> Option<Instant> {
        self.told.extend(self.receiver.try_iter());
        let matches = |told: &&Told| told.node == node && told.what == what && told.key == key;
        self.told.iter().find(matches).map(|told| told.at)
    }

    /// When the last of `nodes` processes first told this of the key; nothing if not all did
    /// within `timeout`.
    pub(crate) fn last_of(
        &mut self,
        nodes: usize,
        what: What,
        key: &str,
        timeout: Duration,
    ) -> Option<Instant> {
        let until = Instant::now() + timeout;
        loop {
            let seen: Option<Vec<Instant>> =
                (0..nodes).map(|node| self.first(node, what, key)).collect();
            if seen.is_some() {
                return seen?.into_iter().max();
            }
            let left = until.saturating_duration_since(Instant::now());
            self.told.push(self.receiver.recv_timeout(left).ok()?);
        }
    }
}

fn parse(data: &str) -> Option<(What, String)> {
    let event: Value = serde_json::from_str(data).ok()?;
    let of = |name: &str| event[name]["key"].as_str().map(str::to_owned);
    let registered = of("hotkey").map(|key| (What::Registered, key));
    registered.or_else(|| Some((What::Removed, of("removed")?)))
}

fn ask(addr: SocketAddr, path: &str) -> io::Result<TcpStream> {
    send(addr, "GET", path, "")
}

/// HTTP 1.0, so that the answer comes as it is and not in chunks.
fn send(addr: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let len = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {addr}\r\nContent-Length: {len}\r\n\r\n");
    stream.write_all((head + body).as_bytes())?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_name() {
        let text = "a_total 7\na_total_more 9\nt_bucket{le=\"0.1\"} 98\nt_bucket{le=\"0.2\"} 99\n\
                    t_bucket{le=\"+Inf\"} 100\nt_count 100\nmembers{role=\"proxy\"} 3\n";
        assert_eq!(metric(text, "a_total"), Some(7.0));
        assert_eq!(metric(text, "members{role=\"proxy\"}"), Some(3.0));
        assert_eq!(metric(text, "a"), None);
        assert_eq!(quantile(text, "t", 0.5), Some(0.1));
        assert_eq!(quantile(text, "t", 0.99), Some(0.2));
        assert_eq!(quantile(text, "t", 0.995), Some(f64::INFINITY));
        assert_eq!(quantile(text, "u", 0.5), None);
    }

    #[test]
    fn events_name_a_key_that_came_or_went() {
        let came = parse(r#"{"at":"now","hotkey":{"key":"a","frequency":1.0}}"#);
        assert_eq!(came, Some((What::Registered, "a".to_owned())));
        let went = parse(r#"{"removed":{"key":"b","reason":"cold"}}"#);
        assert_eq!(went, Some((What::Removed, "b".to_owned())));
        assert_eq!(parse(r#"{"readiness":{"ready":true}}"#), None);
    }
}
