//! One process's part in the fleet: a thread that joins the data plane, the coordination
//! store, the control plane's logic and the admin API.
//!
//! | what | module |
//! |---|---|
//! | the loop: ticks, notices of the store, heartbeats | `run` |
//! | what the loop and the API look at together | `state` |
//! | calls to the store, and what came of them | `calls` |
//! | from the store's records to the registry and back | `records` |
//! | what members say of themselves | `members`, `pace` |
//! | what the API is told | `control`, `figures` |
//! | whether the store answers, and reports are heard | `hearing` |
//! | what changed, for whoever listens | `news` |
//! | values moved between keys and their shards | `split` |
//!
//! What is promised: no request of a client waits for anything here. The thread takes the
//! counts of the workers from where they put them, and the workers take what is decided from
//! where it is put; if the thread hung, requests would go on as before.
//! Bound: one call of each kind to the store at a time, a fixed number of changes.

mod calls;
mod control;
mod figures;
mod hearing;
mod members;
mod news;
mod pace;
mod records;
mod run;
mod split;
mod state;
mod upstream;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heatsink_admin::Privacy;
use heatsink_control::entry::{Mitigation, Mitigations};
use heatsink_control::policy::Policies;
use heatsink_control::settings::Settings as ControlSettings;
use heatsink_coordination::Store;
use heatsink_proxy::{Detector, Handle as ProxyHandle};
use tokio::sync::{mpsc, oneshot};

use control::ControlSide;
use run::{Run, Told};
pub use split::drain::{Drained, How, Progress, drain};
use split::lifecycle::Mover;
use split::reconcile::Reconciler;
use split::steps::Steps;
use state::{Gate, State};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes clients, and adds up what all proxies report.
    All,
    /// Takes clients.
    Proxy,
    /// Adds up what all proxies report.
    Aggregator,
}

impl Role {
    /// As it is configured and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Proxy => "proxy",
            Self::Aggregator => "aggregator",
        }
    }

    fn is_proxy(self) -> bool {
        self != Self::Aggregator
    }

    fn is_aggregator(self) -> bool {
        self != Self::Proxy
    }
}

/// What can change while the process runs.
#[derive(Clone, Debug)]
pub struct Live {
    /// Thresholds and times.
    pub control: ControlSettings,
    /// What keys may be treated how.
    pub policies: Arc<Policies>,
    /// How long a key that an operator removed is not promoted automatically.
    pub block: Duration,
    /// Reads of hot keys are answered from the proxies' caches.
    pub caches: bool,
    /// Concurrent reads of hot keys share one, and concurrent increments, too.
    pub coalesces: bool,
    /// Whether and how values are split.
    pub split: SplitSettings,
    /// How keys are named in the log; the same for the whole life of the process.
    pub privacy: Privacy,
}

/// Whether and how values are split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitSettings {
    /// Values are moved at all.
    pub enabled: bool,
    /// How long proxies have to hold writes of a key, before a split is put off.
    pub freeze: Duration,
    /// Values with more members are not split.
    pub max_members: u64,
    /// Values with more bytes are not split.
    pub max_value_bytes: u64,
    /// Shards of one key at most.
    pub max_factor: u32,
}

impl Default for SplitSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            freeze: Duration::from_millis(200),
            max_members: 1_000_000,
            max_value_bytes: 64 << 20,
            max_factor: 64,
        }
    }
}

impl Live {
    /// What is done about hot keys; all else is a dry run.
    fn available(&self) -> Mitigations {
        let caches = self.caches.then_some(Mitigation::LocalCache);
        let coalesces = self.coalesces.then_some(Mitigation::Coalesce);
        let splits = self.split.enabled.then_some(Mitigation::Split);
        let copies = self.split.enabled.then_some(Mitigation::Copies);
        // The rule that allows it has it done.
        let replicas = Some(Mitigation::ReplicaReads);
        [caches, coalesces, splits, copies, replicas].into_iter().flatten().collect()
    }

    /// The settings of the control plane's logic.
    fn settings(&self) -> ControlSettings {
        let mut settings = self.control.clone();
        settings.decision.available = self.available();
        settings.decision.max_split_factor = self.split.max_factor;
        settings
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            control: ControlSettings::default(),
            policies: Arc::default(),
            block: Duration::from_secs(300),
            caches: true,
            coalesces: true,
            split: SplitSettings::default(),
            privacy: Privacy::default(),
        }
    }
}

/// What a process is told at its start.
#[derive(Debug)]
pub struct Settings {
    /// What it does.
    pub role: Role,
    /// Where its clients connect, for people to see.
    pub address: Option<SocketAddr>,
    /// The store is the upstream itself.
    pub store_is_upstream: bool,
    /// What can change.
    pub live: Live,
    /// Where the API listens, and how.
    pub admin: Option<(TcpListener, heatsink_admin::Settings)>,
    /// Where log lines that could not be written are counted, if they are.
    pub log_lines_dropped: Option<Arc<AtomicU64>>,
}

/// The data plane of this process.
#[derive(Debug)]
pub struct DataPlane {
    /// What its workers count.
    pub detector: Detector,
    /// The proxy itself.
    pub proxy: ProxyHandle,
}

/// A running part of the fleet. Dropped without [`Fleet::shutdown`], it ends at once.
#[derive(Debug)]
pub struct Fleet {
    told: mpsc::UnboundedSender<Told>,
    thread: Option<JoinHandle<()>>,
    admin: Option<SocketAddr>,
    id: String,
    /// Of a process that takes clients.
    informed: Option<Arc<Gate>>,
}

impl Fleet {
    /// Starts the thread. The store need not be there. Fails if the API must not listen where
    /// it is told to.
    pub fn start(
        settings: Settings,
        store: Store,
        data_plane: Option<DataPlane>,
    ) -> io::Result<Self> {
        let id = format!("{:016x}", fastrand::u64(..));
        let (told, tellings) = mpsc::unbounded_channel();
        let admin = match &settings.admin {
            Some((listener, _)) => Some(listener.local_addr()?),
            None => None,
        };
        let (started, has_started) = std::sync::mpsc::channel();
        let Settings { role, address, store_is_upstream, live, admin: api, log_lines_dropped } =
            settings;
        let (detector, proxy) = match data_plane {
            Some(DataPlane { detector, proxy }) => (Some(detector), Some(proxy)),
            None => (None, None),
        };
        let mut state = State::new(&id, role, address, live, proxy, log_lines_dropped);
        state.store_is_upstream = store_is_upstream;
        let state = Arc::new(state);
        let informed = role.is_proxy().then(|| Arc::clone(&state.informed));
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(run(state, store, detector, api, tellings, &started));
            // A name that is being looked up may take its time; nobody waits for it.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("control".to_owned()).spawn(body)?;
        has_started.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { told, thread: Some(thread), admin, id, informed })
    }

    /// Waits until the registry was read once, the workers know what it says, and the markers of
    /// split keys were looked at; not for longer than `bound`. Whether all that has happened.
    ///
    /// A client that is accepted before may be told of markers instead of values.
    pub fn wait_until_informed(&self, bound: Duration) -> bool {
        self.informed.as_ref().is_none_or(|informed| informed.wait(bound))
    }

    /// Where the API listens, with the real port.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// What this member is called.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Changes settings.
    pub fn reload(&self, live: Live) {
        let _ = self.told.send(Told::Reload(Box::new(live)));
    }

    /// Closes the listener of the API, so that another process can have its address.
    pub fn close_admin(&self) {
        let (done, is_done) = std::sync::mpsc::channel();
        if self.told.send(Told::CloseAdmin(done)).is_ok() {
            let _ = is_done.recv_timeout(Duration::from_secs(1));
        }
    }

    /// Says good-bye to the fleet and ends.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.told.send(Told::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end();
    }
}

/// The life of the thread.
async fn run(
    state: Arc<State>,
    store: Store,
    detector: Option<Detector>,
    admin: Option<(TcpListener, heatsink_admin::Settings)>,
    tellings: mpsc::UnboundedReceiver<Told>,
    started: &std::sync::mpsc::Sender<io::Result<()>>,
) {
    let (stop_admin, admin_stopped) = oneshot::channel();
    let mut admin_task = None;
    if let Some((listener, settings)) = admin {
        let control = ControlSide::new(Arc::clone(&state), store.clone());
        match heatsink_admin::Server::new(listener, settings, Arc::new(control)) {
            Ok(server) => {
                admin_task = Some(tokio::spawn(server.run(async {
                    let _ = admin_stopped.await;
                })));
            }
            Err(error) => {
                let error = io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
                return drop(started.send(Err(error)));
            }
        }
    }
    if let Some(proxy) = &state.proxy {
        proxy.set_own_keys(store.keys(), vec![split::index(store.settings().namespace())]);
        let steps = Steps::new(proxy.clone(), store.settings().namespace());
        let mover = Mover { state: Arc::clone(&state), store: store.clone(), steps };
        let reconciler = Reconciler::new(mover);
        let alarmed = Arc::clone(&state);
        proxy.on_whole_wanted(move || alarmed.moves.notify_one());
        tokio::spawn(Arc::clone(&reconciler).run_moves());
        tokio::spawn(Arc::clone(&reconciler).run_copies());
        tokio::spawn(reconciler.run_looks());
    }
    let _ = started.send(Ok(()));
    Run::new(state, store, detector, tellings, stop_admin, admin_task).run().await;
}
