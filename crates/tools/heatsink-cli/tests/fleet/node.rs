//! One process of a fleet, with its admin address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use heatsink_admin::HotKeyView;
use heatsink_admin::client::{Client, ClientError};
use heatsink_admin::control::Promotion;
use heatsink_control::entry::Mitigation;
use heatsink_testkit::{Load, Process, ProcessBuilder, RawClient, RedisServer, Reply, poll_until};
use serde_json::Value;

use crate::http;
use crate::support::{PATIENCE, Place, address};

/// What the tests promote to.
pub(crate) const CACHE: Promotion =
    Promotion { mitigation: Mitigation::LocalCache, split_factor: None, ttl_seconds: None };

/// A process that serves, or only aggregates.
pub(crate) struct Node {
    pub(crate) process: Process,
    /// Where clients connect; of an aggregator, nowhere.
    pub(crate) clients: Option<SocketAddr>,
    pub(crate) admin: SocketAddr,
}

impl Node {
    /// Starts `heatsink serve` with these arguments, on free ports.
    pub(crate) fn start(place: &Place, args: &[&str]) -> Self {
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--log", "info"];
        Self::of(place.heatsink(&fixed).args(args))
    }

    /// Starts one that meets others at `store`.
    pub(crate) fn member(place: &Place, role: &str, store: &str, upstream: &str) -> Self {
        let args = ["--role", role, "--coordination-url", store, "--upstream", upstream];
        Self::start(place, &args)
    }

    /// Starts `serve` and waits until it is ready.
    pub(crate) fn of(builder: ProcessBuilder) -> Self {
        let (process, ready) = crate::support::start(builder);
        let clients = ready.contains("redis://").then(|| address(&ready));
        let clients = clients.map(|address| address.parse().expect("an address"));
        let (_, admin) = ready.split_once("admin http://").expect("an admin address");
        let admin = admin.trim_end_matches(')').parse().expect("an address");
        Self { process, clients, admin }
    }

    pub(crate) fn clients(&self) -> SocketAddr {
        self.clients.expect("it takes clients")
    }

    pub(crate) fn client(&self) -> RawClient {
        RawClient::connect(self.clients())
    }

    /// Writes `key` once and reads it so many times a second.
    pub(crate) fn load(&self, key: &str, per_second: u32) -> Load {
        assert_eq!(self.client().command(&["SET", key, "value"]), Reply::ok());
        Load::start(self.clients(), &["GET", key], per_second, Reply::bulk("value"))
    }

    pub(crate) fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    pub(crate) fn api(&self) -> Client {
        Client::new(&self.admin_url(), None).expect("an address").with_timeout(PATIENCE)
    }

    /// The entry of a key, if there is one; nothing also while the API is not there.
    pub(crate) fn entry(&self, key: &str) -> Option<HotKeyView> {
        match self.api().show(key.as_bytes()) {
            Ok(entry) => Some(entry),
            Err(
                ClientError::Refused { status: 404 | 429, .. } | ClientError::Unreachable { .. },
            ) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether it says for certain that the key is not registered.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        matches!(self.api().show(key.as_bytes()), Err(ClientError::Refused { status: 404, .. }))
    }

    /// A page of JSON; nothing while the API is not there.
    pub(crate) fn json(&self, path: &str) -> Option<Value> {
        let (_, body) = http::get(self.admin, path, None)?;
        serde_json::from_str(&body).ok()
    }

    pub(crate) fn metrics(&self) -> String {
        http::get(self.admin, "/metrics", None).expect("it answers").1
    }

    /// `/readyz` says that it works with the others.
    pub(crate) fn is_well(&self) -> bool {
        self.json("/readyz").is_some_and(|state| state["degraded"] == Value::Bool(false))
    }

    /// Whether it sees so many members, all of which are well.
    pub(crate) fn sees(&self, members: usize) -> bool {
        let Some(fleet) = self.json("/proxies") else { return false };
        fleet["items"].as_array().is_some_and(|items| {
            items.len() == members
                && items.iter().all(|item| item["degraded"] == Value::Bool(false))
        })
    }
}

/// Waits until `check` holds for each of `nodes`; panics with what the one that lags says.
#[track_caller]
pub(crate) fn all<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    timeout: Duration,
    what: &str,
    mut check: impl FnMut(&Node) -> bool,
) -> Duration {
    let begun = Instant::now();
    for node in nodes {
        let left = timeout.saturating_sub(begun.elapsed());
        assert!(
            poll_until(left, || check(node)).is_some(),
            "not within {timeout:?}: {what}\nreadiness: {:?}\nlist: {:?}\nfleet: {:?}\n{}",
            http::get(node.admin, "/readyz", None),
            node.api().list(&[]),
            http::get(node.admin, "/proxies", None),
            node.process.tail(),
        );
    }
    begun.elapsed()
}

/// Waits until all of them see each other.
#[track_caller]
pub(crate) fn assemble(nodes: &[&Node]) {
    all(nodes.iter().copied(), PATIENCE, "the fleet is complete", |node| {
        node.is_well() && node.sees(nodes.len())
    });
}

/// A server for data and another for the fleet to meet in, so that one can fail alone.
pub(crate) struct Servers {
    pub(crate) upstream: RedisServer,
    pub(crate) store: RedisServer,
}

impl Servers {
    pub(crate) fn start() -> Self {
        Self { upstream: RedisServer::start(), store: RedisServer::start() }
    }

    pub(crate) fn member(&self, place: &Place, role: &str, args: &[&str]) -> Node {
        let (store, upstream) = (self.store.url(), self.upstream.url());
        let fixed = ["--role", role, "--coordination-url", &store, "--upstream", &upstream];
        Node::start(place, &[&fixed, args].concat())
    }
}
