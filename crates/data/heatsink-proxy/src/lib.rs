//! The data plane: clients on one side, upstream pipelines on the other, a module a stage.
//!
//! | stage | module |
//! |---|---|
//! | accept, deal out to workers | `listener` |
//! | the event loop of one worker | `worker` |
//! | a client's connection and buffers | `connection` |
//! | bytes to requests | `intake` |
//! | the rooms that a request passes when nothing is done about its key | `relay` |
//! | what is done about hot keys | `hot`, each mitigation by the interface in `hot::mitigation` |
//! | every key counted | `observe` |
//! | what becomes of a request | `decide`, carried out by `apply` |
//! | the shared pipelines | `pools`, to the servers in `nodes`; who waits for what: `ticket` |
//! | a cluster behind: where a request goes, and what becomes of the replies | `cluster` |
//! | names that belong to the fleet | `names`, `listings` |
//! | a client's dedicated connection | `dedicated` (its state), `dedicated_link` (its life) |
//! | `AUTH`, `HELLO`, `SELECT`, `RESET` | `switch`, `service_auth` |
//! | which servers can be reached | `health` |
//! | `CLIENT …` | `client_command`, `client_tracking`, `directory` |
//! | replies back to clients, in order | `replies`, `clients`, `order` |
//! | large replies that several clients share | `shared_reply` |
//! | what a room wants from one above it | `effects` of `upstream`, `cluster`, `relay` |
//! | what `MONITOR` does not show a client | `monitor` |
//! | bounds on what all clients together have not read, and have sent of unfinished requests | `output`, `input`, both with `total` |
//! | timeouts, idle clients, the end | `upkeep` |
//!
//! What is promised: replies in request order per client; commands of one client executed in
//! its order; a reply is given to the client that asked or to nobody; clients share an
//! upstream connection only with clients of the same user; a request that may
//! have been executed is not sent twice, but for reads that a lost replica owed.

mod cluster;
pub mod config;
mod decide;
mod downstream;
mod hot;
pub mod hot_keys;
mod observe;
mod relay;
mod reserved;
mod runtime;
mod session;
#[cfg(test)]
mod simulation;
pub mod splits;
mod upstream;
#[cfg(test)]
mod walls;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heatsink_users::Verifier;
use mio::{Poll, Waker};

pub use config::Config;
use config::{Auth, Live, Target};
pub use downstream::input::InputFigures;
pub use downstream::output::OutputFigures;
use hot_keys::{Cooled, Guard, HotKeys, Told};
pub use observe::Detector;
use observe::Observer;
use runtime::clock::Clock;
pub use runtime::clock::uptime;
use runtime::listener::Acceptor;
use runtime::shared::{Mailbox, Message, OwnKeys, Shared};
use runtime::worker::{MAIL, Worker};
use runtime::world::World;
use splits::{FanOut, WholeWanted};
pub use upstream::health::UpstreamState;
pub use upstream::load::{NodeLoad, UpstreamLoad};

/// A running proxy: its acceptors and its workers. Dropped without [`Proxy::shutdown`], it
/// closes every connection at once.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    acceptor: Acceptor,
    tls_acceptor: Option<Acceptor>,
    workers: Vec<JoinHandle<()>>,
    detector: Option<Detector>,
}

impl Proxy {
    /// Binds the listeners and starts the threads. The upstream need not be up.
    pub fn start(config: Config) -> io::Result<Self> {
        let mut proxy = Self::prepare(config)?;
        proxy.accept()?;
        Ok(proxy)
    }

    /// Binds the listeners and starts the workers. Clients are not accepted before [`Self::accept`], so
    /// that the caller can find out first which keys are split.
    pub fn prepare(config: Config) -> io::Result<Self> {
        let mut mailboxes = Vec::new();
        let mut loops = Vec::new();
        for _ in 0..config.workers.max(1) {
            let poll = Poll::new()?;
            let waker = Arc::new(Waker::new(poll.registry(), MAIL)?);
            let (sender, mail) = mpsc::channel();
            mailboxes.push(Mailbox { sender, waker: Some(waker) });
            loops.push((poll, mail));
        }
        let verifier = match config.auth {
            Auth::PassThrough => None,
            Auth::Service(users) => {
                let mailboxes = mailboxes.clone();
                let tell = move |(worker, key): (usize, _), verdict| {
                    mailboxes[worker].send(Message::Verified(key, verdict));
                };
                Some(Verifier::start(users, config.workers.div_ceil(2), tell)?)
            }
        };
        let shared = Arc::new(Shared::new(
            &config.upstream,
            config.announce,
            verifier,
            config.live,
            config.max_links,
            mailboxes,
            Clock::System,
        ));
        // Before anybody can notice that this process is there.
        let acceptor = Acceptor::bind(config.listen)?;
        let tls_acceptor = match config.listen_tls {
            Some((listen, tls)) => Some((Acceptor::bind(listen)?, tls)),
            None => None,
        };
        if let Target::Sentinel(url) = config.upstream.target {
            upstream::sentinel::watch(url, config.upstream.tls.as_ref(), &shared)?;
        }
        let mut workers = Vec::new();
        let count = loops.len();
        let (mut stations, detector) = match &config.detect {
            Some(settings) => {
                let (stations, detector) = observe::stations(settings, count);
                (stations.into_iter(), Some(detector))
            }
            None => (Vec::new().into_iter(), None),
        };
        for (index, (poll, mail)) in loops.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let station = stations.next().zip(config.detect.clone());
            let live = shared.live();
            let observer = move |(station, settings): (observe::Station, _)| {
                Observer::new(station, &settings, count, &live, Clock::System)
            };
            let start = move || {
                Worker::new(index, World::system(poll), mail, shared, station.map(observer))
            };
            let worker = thread::Builder::new().name(format!("worker-{index}"));
            workers.push(worker.spawn(move || start().run())?);
        }
        let acceptor = Acceptor::new(acceptor, None)?;
        let tls_acceptor = match tls_acceptor {
            Some((listener, tls)) => Some(Acceptor::new(listener, Some(tls))?),
            None => None,
        };
        Ok(Self { shared, acceptor, tls_acceptor, workers, detector })
    }

    /// Accepts clients from now on.
    pub fn accept(&mut self) -> io::Result<()> {
        self.acceptor.start(&self.shared)?;
        self.tls_acceptor.as_mut().map_or(Ok(()), |acceptor| acceptor.start(&self.shared))
    }

    /// The address clients connect to, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.acceptor.local_addr
    }

    /// The address clients connect to with TLS.
    pub fn local_tls_addr(&self) -> Option<SocketAddr> {
        self.tls_acceptor.as_ref().map(|acceptor| acceptor.local_addr)
    }

    /// Changes settings. Connections keep what they have; requests that come later are
    /// treated by the new settings.
    pub fn reload(&self, live: Live) {
        self.shared.publish_live(live);
    }

    /// Further handles of the listening sockets, for a process that takes over.
    pub fn listeners(&self) -> io::Result<(TcpListener, Option<TcpListener>)> {
        let tls = self.tls_acceptor.as_ref().map(Acceptor::socket).transpose()?;
        Ok((self.acceptor.socket()?, tls))
    }

    /// Accepts no more clients, and goes on serving those that are there. Whoever else has
    /// the listening sockets accepts what waits there.
    pub fn stop_accepting(&mut self) {
        self.acceptor.stop();
        if let Some(acceptor) = &mut self.tls_acceptor {
            acceptor.stop();
        }
    }

    /// Clients that are connected.
    pub fn client_count(&self) -> usize {
        self.shared.client_count.load(Ordering::Acquire)
    }

    /// What the workers count, to be added up at each tick; `None` if they do not count, or if
    /// it was taken before.
    pub fn take_detector(&mut self) -> Option<Detector> {
        self.detector.take()
    }

    /// How busy each server behind is, as of the last second.
    pub fn upstream_load(&self) -> UpstreamLoad {
        upstream::load::of(&self.shared)
    }

    /// Something to ask the proxy by, from another thread.
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Stops accepting, lets requests in flight finish, then closes every connection.
    /// Returns how many requests were still unanswered when the bound passed.
    pub fn shutdown(mut self, bound: Duration) -> usize {
        self.end(bound)
    }

    fn end(&mut self, bound: Duration) -> usize {
        self.stop_accepting();
        let until = Instant::now() + bound;
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Drain(until));
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        self.shared.unanswered.load(Ordering::Acquire)
    }
}

/// Something to ask a proxy by, from another thread.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Clients that are connected.
    pub fn client_count(&self) -> usize {
        self.shared.client_count.load(Ordering::Acquire)
    }

    /// How busy each server behind is, as of the last second.
    pub fn upstream_load(&self) -> UpstreamLoad {
        upstream::load::of(&self.shared)
    }

    /// Treats these keys in their own way from now on, and no others. The number of this
    /// version, for [`Self::settled_version`].
    pub fn set_hot_keys(&self, hot_keys: HotKeys) -> u64 {
        self.shared.publish_hot_keys(hot_keys)
    }

    /// All workers treat keys as this version of the hot keys says, or a later one, and what they
    /// had sent before is answered: writes of a key that freezes in it are held.
    pub fn settled_version(&self) -> u64 {
        self.shared.split_mailbox.settled()
    }

    /// A connection that is a client of this proxy with the rights of the proxy itself, and whose
    /// commands are not changed for split or hot keys, nor counted.
    pub fn connect(&self) -> io::Result<TcpStream> {
        runtime::listener::connect_within(&self.shared)
    }

    /// Who has each slot, by a number of the node; `None` if the upstream is no cluster, or not
    /// known yet.
    pub fn slot_owners(&self) -> Option<Vec<u16>> {
        let routes = self.shared.cluster.as_ref()?.routes();
        let owner = |slot| routes.primary(slot).map_or(u16::MAX, |node| node.0);
        routes.is_known().then(|| (0..heatsink_cluster::slot::COUNT as u16).map(owner).collect())
    }

    /// The server that has a slot, if that is known; if the upstream is no cluster, the server.
    pub fn server_of_slot(&self, slot: u16) -> Option<String> {
        let node = match &self.shared.cluster {
            Some(cluster) => cluster.routes().primary(slot)?,
            None => upstream::nodes::NodeId::FIRST,
        };
        let nodes = self.shared.nodes.all();
        nodes.get(node.index()).map(|node| node.dialer.endpoint().to_string())
    }

    /// What is known of split keys may be relied on until then. Later, their clients wait.
    pub fn believe_splits(&self, until: Instant) {
        self.shared
            .split_mailbox
            .believe(uptime() + until.saturating_duration_since(Instant::now()));
    }

    /// What is known of split keys may be relied on for `lease` after a look that began at `looked_at`,
    /// by [`uptime`]. Later, their clients wait.
    pub fn believe_splits_since(&self, looked_at: Duration, lease: Duration) {
        self.shared.split_mailbox.believe(looked_at + lease);
    }

    /// For so long from now on, clients wait who would take away what keeps proxies that are behind from
    /// writing to the shards of splits that have ended, like `FLUSHALL`.
    pub fn keep_tombstones(&self, time: Duration) {
        self.shared.split_mailbox.keep_tombstones(uptime() + time);
    }

    /// Keys that the fleet keeps in the upstream: at any time, and while keys are split. They are
    /// left out of the number of keys that clients are told. To be called once.
    pub fn set_own_keys(&self, always: Vec<Vec<u8>>, while_split: Vec<Vec<u8>>) {
        let _ = self.shared.own_keys.set(OwnKeys { always, while_split });
    }

    /// How long requests about whole split keys took.
    pub fn fan_out(&self) -> FanOut {
        self.shared.split_mailbox.fan_out()
    }

    /// Has `alarm` called, on a worker's thread, whenever a key has to be made whole; see
    /// [`Self::take_wholes_wanted`]. To be called once.
    pub fn on_whole_wanted(&self, alarm: impl Fn() + Send + Sync + 'static) {
        self.shared.split_mailbox.set_alarm(Box::new(alarm));
    }

    /// Keys that have to be made whole; their clients wait for another version of the hot keys.
    pub fn take_wholes_wanted(&self) -> Vec<WholeWanted> {
        self.shared.split_mailbox.take_wanted()
    }

    /// Keys at which a worker was refused by the marker of a split that it knows nothing of. The alarm
    /// of [`Self::on_whole_wanted`] is called for them as well.
    pub fn take_unknown_markers(&self) -> std::collections::BTreeSet<Vec<u8>> {
        self.shared.split_mailbox.take_markers()
    }

    /// What was done for a hot key; up to a tick behind.
    pub fn cooled(&self, key: &[u8]) -> Option<Cooled> {
        let cooled = self.shared.cooled.lock().unwrap_or_else(PoisonError::into_inner);
        cooled.keys.get(key).copied()
    }

    /// How many requests that write were sent to each shard of the split with this id, up to a
    /// tick ago. Empty if there were none.
    pub fn shard_writes(&self, id: &str) -> Vec<u64> {
        let cooled = self.shared.cooled.lock().unwrap_or_else(PoisonError::into_inner);
        cooled.shard_writes.get(id).cloned().unwrap_or_default()
    }

    /// What was done for all hot keys together, those that have cooled down included; up to a
    /// tick behind.
    pub fn cooled_total(&self) -> Cooled {
        self.shared.cooled.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// By what the caches of all workers that have one hear of changes.
    pub fn guard(&self) -> Guard {
        let guards = self.told().map(|told| told.guard).filter(|guard| *guard != Guard::Nothing);
        let weaker = |one: Guard, other: Guard| if one == Guard::Broadcast { one } else { other };
        guards.reduce(weaker).unwrap_or_default()
    }

    /// How long the slowest worker's link to a server takes there and back, at the last look:
    /// word of a change takes less.
    pub fn invalidation_delay(&self) -> Option<Duration> {
        self.told().filter_map(|told| told.delay).max()
    }

    fn told(&self) -> impl Iterator<Item = Told> {
        self.shared.told.iter().map(|told| Told::unpack(told.load(Ordering::Relaxed)))
    }

    /// Requests that were taken from clients; up to a tick behind.
    pub fn requests_total(&self) -> u64 {
        self.shared.requests_total.load(Ordering::Relaxed)
    }

    /// How often a worker let requests and replies gather, because many clients waited; up to a
    /// tick behind.
    pub fn pauses_total(&self) -> u64 {
        self.shared.pauses_total.load(Ordering::Relaxed)
    }

    /// Whether each server that is in use can be reached, as far as that was tried.
    pub fn upstreams(&self) -> Vec<UpstreamState> {
        upstream::health::states(&self.shared)
    }

    /// What went wrong with connections to servers, by kind, since the start.
    pub fn upstream_errors(&self) -> Vec<(&'static str, u64)> {
        self.shared.troubles.errors()
    }

    /// How often a connection to a server was had again, since the start.
    pub fn upstream_reconnects(&self) -> u64 {
        self.shared.troubles.reconnects()
    }

    /// What clients have not read yet, and who was closed for it.
    pub fn output(&self) -> OutputFigures {
        OutputFigures::of(&self.shared.output)
    }

    /// What is held of clients' requests that are not taken yet, and who was closed for it.
    pub fn input(&self) -> InputFigures {
        InputFigures::of(&self.shared.input)
    }

    /// Requests that were sent to servers, all nodes together; up to a tick behind.
    pub fn upstream_requests_total(&self) -> u64 {
        let nodes = self.shared.nodes.all();
        nodes.iter().map(|node| node.requests.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
