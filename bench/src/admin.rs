//! What a process says over its admin API: one answer, or events as they come.
//!
//! Called by: every measurement of `fleet`; `hot`, `cold`, `viral` and `split`, which
//! promote keys.
//! Bound: one connection an answer, one thread a stream of events, which ends with the process;
//! events are kept, a few for each key that becomes hot.
//! Invariant: an event has the time at which it was read here, so delays are never too short.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_admin::HotKeyView;
use heatsink_admin::client::{Client, ClientError};
use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
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

fn client(addr: SocketAddr) -> Result<Client, String> {
    let client = Client::new(&addr.to_string(), None).map_err(|error| error.to_string())?;
    Ok(client.with_timeout(PATIENCE))
}

/// The text of `/metrics`.
pub(crate) fn metrics(addr: SocketAddr) -> Result<String, String> {
    client(addr)?.metrics().map_err(|error| format!("http://{addr}/metrics: {error}"))
}

/// Makes a key hot until it is removed.
pub(crate) fn promote(addr: SocketAddr, key: &str, mitigation: Mitigation) -> Result<(), String> {
    wish(addr, key, Promotion { mitigation, split_factor: None, ttl_seconds: None })
}

/// Has a key split until it is removed.
pub(crate) fn promote_to_split(addr: SocketAddr, key: &str, factor: u32) -> Result<(), String> {
    let mitigation = Mitigation::Split;
    wish(addr, key, Promotion { mitigation, split_factor: Some(factor), ttl_seconds: None })
}

fn wish(addr: SocketAddr, key: &str, promotion: Promotion) -> Result<(), String> {
    order(addr, key, |client| client.promote(key.as_bytes(), promotion).map(drop))
}

/// Has a key no longer treated.
pub(crate) fn remove(addr: SocketAddr, key: &str) -> Result<(), String> {
    order(addr, key, |client| client.demote(key.as_bytes()).map(drop))
}

/// Has something done. A store that was too busy to answer is asked again, as operators are told to.
fn order(
    addr: SocketAddr,
    key: &str,
    order: impl Fn(&Client) -> Result<(), ClientError>,
) -> Result<(), String> {
    let client = client(addr)?;
    let begun = Instant::now();
    loop {
        match order(&client) {
            Ok(()) => return Ok(()),
            Err(ClientError::Refused { status: 503, .. }) if begun.elapsed() < PATIENCE => {
                thread::sleep(AGAIN);
            }
            Err(error) => return Err(format!("{key} at {addr}: {error}")),
        }
    }
}

/// A key as it is registered; `None` if it is not.
pub(crate) fn hot_key(addr: SocketAddr, key: &str) -> Result<Option<HotKeyView>, String> {
    match client(addr)?.show(key.as_bytes()) {
        Ok(hot) => Ok(Some(hot)),
        Err(ClientError::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(format!("{key} at {addr}: {error}")),
    }
}

/// In which phase of a split a key is; `None` if its value is at its own name.
pub(crate) fn split_phase(addr: SocketAddr, key: &str) -> Result<Option<String>, String> {
    let hot = hot_key(addr, key)?;
    Ok(hot.and_then(|hot| hot.split).map(|split| split.phase))
}

/// Whether the process says that it works as part of a fleet.
pub(crate) fn is_well(addr: SocketAddr) -> bool {
    let state = client(addr).ok().and_then(|client| client.readiness().ok());
    state.is_some_and(|state| state["degraded"] == Value::Bool(false))
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
    let events = client(addr)?.events();
    let mut events = events.map_err(|error| format!("http://{addr}/events: {error}"))?;
    // The first event says that it listens.
    if events.next().is_none() {
        return Err(format!("http://{addr}/events ended without a word"));
    }
    thread::spawn(move || {
        for event in events {
            let at = Instant::now();
            let Some((what, key)) = about_key(&event) else { continue };
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

fn about_key(event: &Value) -> Option<(What, String)> {
    let of = |name: &str| event[name]["key"].as_str().map(str::to_owned);
    let registered = of("hotkey").map(|key| (What::Registered, key));
    registered.or_else(|| Some((What::Removed, of("removed")?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let came = about_key(&json!({"at": "now", "hotkey": {"key": "a", "frequency": 1.0}}));
        assert_eq!(came, Some((What::Registered, "a".to_owned())));
        let went = about_key(&json!({"removed": {"key": "b", "reason": "cold"}}));
        assert_eq!(went, Some((What::Removed, "b".to_owned())));
        assert_eq!(about_key(&json!({"readiness": {"ready": true}})), None);
    }
}
