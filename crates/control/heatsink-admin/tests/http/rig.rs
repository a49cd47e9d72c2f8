//! A server on a free port over a control plane in memory, and plain HTTP to it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use heatsink_admin::control::{
    Answer, Change, Control, ControlError, Demotion, Event, Guard, HotKey, Load, NodeRate,
    OwnStats, Policy, PolicyRule, Promotion, Proxy, Readiness, Shard, ShardContent, ShardNode,
    Stats,
};
use heatsink_admin::metrics::Metrics;
use heatsink_admin::{Server, Settings};
use heatsink_control::entry::{Entry, Mitigation, Origin, Status};
use serde_json::Value;
use tokio::sync::{broadcast, oneshot};

use crate::metrics::filled;

/// A control plane in memory.
pub(crate) struct Fake {
    pub(crate) hot: Mutex<Vec<HotKey>>,
    /// What the next changes fail with.
    pub(crate) fails_with: Mutex<Option<ControlError>>,
    /// If there is one, changes are never answered, and it is told of each.
    pub(crate) hangs: Mutex<Option<mpsc::Sender<()>>>,
    pub(crate) readiness: Mutex<Readiness>,
    /// What the members say that they serve.
    pub(crate) rate: Mutex<Option<f64>>,
    /// What each member says that it takes and sends.
    pub(crate) loads: Mutex<[Option<Load>; 2]>,
    pub(crate) events: broadcast::Sender<Event>,
}

pub(crate) fn hot(key: &[u8], frequency: f64) -> HotKey {
    let entry = Entry {
        mitigation: Mitigation::LocalCache,
        split_factor: 1,
        ttl_seconds: Some(60),
        origin: Origin::Auto,
        status: Status::Active,
        reason: "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads".into(),
        dry_run: false,
        frequency,
        reads_per_second: frequency - 21.0,
        writes_per_second: 21.0,
        detected_at_ms: 1_767_225_600_120,
        split: None,
        pause: None,
    };
    HotKey { key: key.to_vec(), entry, guard: None }
}

/// What a member takes from clients, and what it sends to each of two nodes.
pub(crate) fn load(served_per_second: f64, first: f64, second: f64) -> Load {
    let node =
        |node: &str, commands_per_second| NodeRate { node: node.into(), commands_per_second };
    Load {
        served_per_second,
        upstream_per_second: first + second,
        nodes: vec![node("n1:1", first), node("n2:1", second)],
        other_nodes_per_second: 0.0,
    }
}

/// One of each kind, which no key has.
fn shards() -> Vec<Shard> {
    let shard = |(index, content): (usize, Option<ShardContent>)| Shard {
        index: index as u32,
        name: format!("heatsink:{{a}}:1:{index}"),
        node: format!("10.0.0.{}:6379", 1 + index / 3),
        content,
        writes_total: Some(if index < 3 { 10 } else { 90 }),
    };
    let contents = [
        Some(ShardContent::Count(3)),
        Some(ShardContent::Value(-775)),
        Some(ShardContent::Bytes(12)),
        None,
    ];
    contents.into_iter().enumerate().map(shard).collect()
}

impl Control for Fake {
    fn hot_keys(&self) -> Vec<HotKey> {
        self.hot.lock().unwrap().clone()
    }

    fn promote<'a>(&'a self, key: &'a [u8], promotion: Promotion) -> Answer<'a, HotKey> {
        Box::pin(async move {
            self.fail().await?;
            let mut promoted = hot(key, 100.0);
            promoted.entry.mitigation = promotion.mitigation;
            promoted.entry.split_factor = promotion.split_factor.unwrap_or(1);
            promoted.entry.ttl_seconds = promotion.ttl_seconds;
            promoted.entry.origin = Origin::Manual;
            let mut all = self.hot.lock().unwrap();
            all.retain(|other| other.key != key);
            all.push(promoted.clone());
            Ok(promoted)
        })
    }

    fn demote<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Demotion> {
        Box::pin(async move {
            self.fail().await?;
            let mut all = self.hot.lock().unwrap();
            let before = all.len();
            all.retain(|hot| hot.key != key);
            if all.len() == before {
                return Err(ControlError::UnknownKey);
            }
            Ok(Demotion { blocked_seconds: 300 })
        })
    }

    fn stats(&self, key: &[u8]) -> Option<Stats> {
        let hot = self.hot_key(key)?;
        Some(Stats {
            requests_per_second: hot.entry.frequency,
            reads_per_second: hot.entry.reads_per_second,
            writes_per_second: hot.entry.writes_per_second,
            hit_ratio: Some(0.75),
            local_cache_hit_ratio: None,
            collapse_ratio: Some(12.5),
            own: Some(OwnStats {
                upstream_saved_total: 5,
                cache_hits_total: 4,
                bytes_served_total: 400,
                invalidations_total: 2,
                combined_writes_total: 1,
                guard: Some(Guard::Tracking),
                invalidation_delay_ms: Some(0.25),
            }),
            nodes: Some(ShardNode::of_shards(&shards())),
            shards: Some(shards()),
        })
    }

    fn proxies(&self) -> Vec<Proxy> {
        let loads = self.loads.lock().unwrap();
        let proxy = |id: &str, is_self: bool| Proxy {
            id: id.into(),
            role: "all".into(),
            address: Some("127.0.0.1:6380".into()),
            version: "0.1.0".into(),
            last_seen_ms: 1_767_225_600_000,
            registry_version: Some(7),
            requests_per_second: *self.rate.lock().unwrap(),
            load: loads[usize::from(is_self)].clone(),
            degraded: false,
            upstream_down: Vec::new(),
            is_self,
        };
        vec![proxy("b", false), proxy("a", true)]
    }

    fn policy(&self, key: &[u8]) -> Policy {
        let rule = key.starts_with(b"balance:");
        Policy {
            mode: if rule { "exact" } else { "coherent" }.into(),
            rule: rule.then(|| match key {
                b"balance:total" => PolicyRule { number: 1, pattern: key.to_vec() },
                _ => PolicyRule { number: 2, pattern: b"balance:*".to_vec() },
            }),
            allowed: vec![Mitigation::Coalesce],
            settings: vec![("hot_threshold".into(), "1000".into())],
        }
    }

    fn policies(&self) -> Vec<Policy> {
        [&b"balance:total"[..], b"balance:1", b"else"].map(|key| self.policy(key)).to_vec()
    }

    fn readiness(&self) -> Readiness {
        self.readiness.lock().unwrap().clone()
    }

    fn metrics(&self) -> Metrics {
        let keys: Vec<Vec<u8>> = self.hot_keys().into_iter().map(|hot| hot.key).collect();
        filled(&keys)
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }
}

impl Fake {
    async fn fail(&self) -> Result<(), ControlError> {
        let hung = self.hangs.lock().unwrap().clone();
        if let Some(hung) = hung {
            hung.send(()).unwrap();
            std::future::pending::<()>().await;
        }
        self.fails_with.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    /// From now on changes are never answered; the receiver is told of each.
    pub(crate) fn hang(&self) -> mpsc::Receiver<()> {
        let (hung, told) = mpsc::channel();
        *self.hangs.lock().unwrap() = Some(hung);
        told
    }

    pub(crate) fn tell(&self, id: u64, change: Change) {
        let _ = self.events.send(Event { id, at_ms: 1_767_225_600_000, change });
    }
}

/// A running server. Stops when dropped.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) fake: Arc<Fake>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Rig {
    pub(crate) fn start(settings: Settings) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), settings)
    }

    /// Starts where another has stopped.
    pub(crate) fn start_at(address: SocketAddr, settings: Settings) -> Self {
        let mut binary = hot(b"\xff\x00/bin", 10.0);
        binary.guard = Some(Guard::Tracking);
        let fake = Arc::new(Fake {
            hot: Mutex::new(vec![hot(b"user:9999", 48211.0), hot(b"cart:7/a b", 900.0), binary]),
            fails_with: Mutex::new(None),
            hangs: Mutex::new(None),
            readiness: Mutex::new(Readiness {
                ready: true,
                registry_version: Some(7),
                ..Readiness::default()
            }),
            rate: Mutex::new(None),
            loads: Mutex::new([Some(load(60.0, 5.0, 10.0)), Some(load(40.0, 25.0, 0.0))]),
            events: broadcast::channel(8).0,
        });
        let listener = TcpListener::bind(address).unwrap();
        let server = Server::new(listener, settings, Arc::clone(&fake) as Arc<_>).unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let shutdown = async {
                let _ = stopped.await;
            };
            runtime.block_on(server.run(shutdown)).unwrap();
        });
        Self { address, fake, stop: Some(stop), thread: Some(thread) }
    }

    /// Tells the server to stop, without waiting.
    pub(crate) fn begin_stop(&mut self) {
        self.stop.take();
    }

    /// Waits until the server has stopped.
    pub(crate) fn join(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends bytes as they are and reads to the end.
    pub(crate) fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        Reply::read(&mut stream)
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|header| header.to_ascii_lowercase().starts_with("host:")) {
            request.push_str("Host: localhost\r\n");
        }
        for header in headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        if !body.is_empty() {
            request.push_str("Content-Length: ");
            request.push_str(&body.len().to_string());
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn promote(&self, key: &str, body: &str) -> Reply {
        self.send("POST", &format!("/hotkeys/{key}/promote"), &[], body.as_bytes())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.begin_stop();
        } else {
            self.join();
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Self::parse(&bytes)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no head in {:?}", String::from_utf8_lossy(bytes));
        });
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self { status, headers, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that this is a problem document of the status and kind; its detail.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:heatsink:problem:{kind}"));
        assert_eq!(problem["status"], status);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.ends_with(['.', '}']), "{detail}");
        detail.to_owned()
    }
}
