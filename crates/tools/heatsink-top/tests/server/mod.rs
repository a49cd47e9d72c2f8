//! An admin server on a free port, over a registry in memory.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use heatsink_admin::control::{
    Answer, Control, ControlError, Demotion, Event, HotKey, Load, NodeRate, Policy, Promotion,
    Proxy, Readiness, Stats,
};
use heatsink_admin::metrics::Metrics;
use heatsink_admin::{Server, Settings, Token};
use heatsink_control::entry::{Entry, Mitigation, Origin, Status};
use tokio::sync::{broadcast, oneshot};

/// The registry.
struct Registry {
    keys: Mutex<Vec<HotKey>>,
    events: broadcast::Sender<Event>,
}

fn hot(key: &[u8], frequency: f64, mitigation: Mitigation) -> HotKey {
    let entry = Entry {
        mitigation,
        split_factor: 1,
        ttl_seconds: None,
        origin: Origin::Auto,
        status: Status::Active,
        reason: "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads".into(),
        dry_run: false,
        frequency,
        reads_per_second: frequency,
        writes_per_second: 0.0,
        detected_at_ms: 1_767_225_600_120,
        split: None,
        pause: None,
    };
    HotKey { key: key.to_vec(), entry, guard: None }
}

impl Control for Registry {
    fn hot_keys(&self) -> Vec<HotKey> {
        self.keys.lock().unwrap().clone()
    }

    fn promote<'a>(&'a self, key: &'a [u8], promotion: Promotion) -> Answer<'a, HotKey> {
        Box::pin(async move {
            let mut promoted = hot(key, 1.0, promotion.mitigation);
            promoted.entry.ttl_seconds = promotion.ttl_seconds;
            self.keys.lock().unwrap().push(promoted.clone());
            Ok(promoted)
        })
    }

    fn demote<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Demotion> {
        Box::pin(async move {
            let mut keys = self.keys.lock().unwrap();
            let place = keys.iter().position(|hot| hot.key == key);
            keys.remove(place.ok_or(ControlError::UnknownKey)?);
            Ok(Demotion { blocked_seconds: 300 })
        })
    }

    fn stats(&self, key: &[u8]) -> Option<Stats> {
        self.hot_key(key).map(|_| Stats { hit_ratio: Some(0.985), ..Stats::default() })
    }

    fn proxies(&self) -> Vec<Proxy> {
        let proxy = |id: &str, nodes: [f64; 2]| Proxy {
            id: id.into(),
            role: "all".into(),
            address: Some("10.0.0.1:6380".into()),
            version: "0.1.0".into(),
            last_seen_ms: 1_767_225_600_120,
            registry_version: None,
            requests_per_second: Some(800.0),
            load: Some(Load {
                served_per_second: 800.0,
                upstream_per_second: nodes.iter().sum(),
                nodes: ["n1:6379", "n2:6379"]
                    .into_iter()
                    .zip(nodes)
                    .map(|(node, commands_per_second)| NodeRate {
                        node: node.into(),
                        commands_per_second,
                    })
                    .collect(),
                other_nodes_per_second: 0.0,
            }),
            degraded: false,
            upstream_down: Vec::new(),
            is_self: id == "a",
        };
        vec![proxy("a", [250.0, 0.0]), proxy("b", [50.0, 100.0])]
    }

    fn policies(&self) -> Vec<Policy> {
        vec![self.policy(b"")]
    }

    fn policy(&self, _: &[u8]) -> Policy {
        let allowed = Mitigation::ALL.to_vec();
        Policy { mode: "coherent".into(), rule: None, allowed, settings: Vec::new() }
    }

    fn readiness(&self) -> Readiness {
        Readiness { ready: true, ..Readiness::default() }
    }

    fn metrics(&self) -> Metrics {
        Metrics::default()
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }
}

/// A running server. Stops when dropped.
pub(crate) struct Served {
    address: SocketAddr,
    registry: Arc<Registry>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Starts on a free port, or where another has stopped.
    pub(crate) fn start(address: Option<SocketAddr>, token: Option<&str>) -> Self {
        let registry = Arc::new(Registry {
            keys: Mutex::new(vec![
                hot(b"user:9999", 48_211.0, Mitigation::LocalCache),
                hot(b"count:views", 9_300.0, Mitigation::Coalesce),
            ]),
            events: broadcast::channel(8).0,
        });
        let listener = TcpListener::bind(address.unwrap_or(([127, 0, 0, 1], 0).into())).unwrap();
        let settings = Settings {
            token: token.and_then(Token::new),
            sample_interval: Duration::from_millis(50),
            ..Settings::default()
        };
        let server = Server::new(listener, settings, Arc::clone(&registry) as Arc<_>).unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let shutdown = async {
                let _ = stopped.await;
            };
            runtime.block_on(server.run(shutdown)).unwrap();
        });
        Self { address, registry, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<HotKey>)) {
        change(&mut self.registry.keys.lock().unwrap());
    }

    /// The names of the hot keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.registry.keys.lock().unwrap();
        keys.iter().map(|hot| String::from_utf8(hot.key.clone()).unwrap()).collect()
    }

    /// How long a key's entry lives.
    pub(crate) fn ttl_seconds(&self, key: &str) -> Option<u64> {
        let keys = self.registry.keys.lock().unwrap();
        keys.iter().find(|hot| hot.key == key.as_bytes())?.entry.ttl_seconds
    }

    /// Stops, and says where it was.
    pub(crate) fn stop(self) -> SocketAddr {
        self.address
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}
