//! The simulated fleet: virtual time, a network that delays, loses and repeats, and faults.
//! Everything follows from the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use heatsink_control::entry::{Entry, Mitigation, Origin, Status};
use heatsink_control::member::Member;
use heatsink_control::registry::Change;
use heatsink_control::settings::Settings;

use crate::node::{Brain, Node};
use crate::store::{Reply, Request, Store};

const TICK: Duration = Duration::from_millis(50);

/// Requests/s as a function of time.
type Rate = Box<dyn Fn(Duration) -> f64>;

struct Flow {
    node: usize,
    key: Vec<u8>,
    writes: bool,
    rate: Rate,
}

/// What goes through the network, or is to happen.
enum Event {
    Tick { number: usize, boot: u64 },
    Request { from: usize, boot: u64, request: Request, operation: Option<usize> },
    Reply { to: usize, boot: u64, reply: Reply, operation: Option<usize> },
    Change { to: usize, boot: u64, change: Change },
    Report { to: usize, boot: u64, bytes: Vec<u8> },
    Watch { to: usize, boot: u64, bytes: Vec<u8> },
}

struct Queued {
    at: Duration,
    order: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What the network does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The longest time of one way.
    pub(crate) delay_ms: u64,
    /// Share of published messages that get lost.
    pub(crate) loss: f64,
    /// Share of published messages that come twice.
    pub(crate) duplicates: f64,
}

pub(crate) const CALM: Network = Network { delay_ms: 5, loss: 0.0, duplicates: 0.0 };

/// The whole fleet.
pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) random: fastrand::Rng,
    pub(crate) store: Store,
    pub(crate) nodes: Vec<Node>,
    pub(crate) brains: Vec<Option<Brain>>,
    pub(crate) network: Network,
    /// What became of operators' acts: nothing yet, applied, or not.
    pub(crate) operations: Vec<Option<bool>>,
    settings: Settings,
    queue: BinaryHeap<Reverse<Queued>>,
    order: u64,
    flows: Vec<Flow>,
    /// The last delivery of each channel to each process: a channel keeps its order.
    delivered: BTreeMap<(usize, u8), Duration>,
}

impl World {
    /// `proxies` that only take requests, then `aggregators` that only decide; without
    /// `aggregators`, proxies do both.
    pub(crate) fn new(seed: u64, proxies: usize, aggregators: usize, settings: Settings) -> Self {
        let mut world = Self {
            now: Duration::from_secs(1000),
            random: fastrand::Rng::with_seed(seed),
            store: Store::default(),
            nodes: Vec::new(),
            brains: Vec::new(),
            network: CALM,
            operations: Vec::new(),
            settings,
            queue: BinaryHeap::new(),
            order: 0,
            flows: Vec::new(),
            delivered: BTreeMap::new(),
        };
        for number in 0..proxies + aggregators {
            let proxy = number < proxies;
            let id = format!("{}{number}", if proxy { "proxy" } else { "aggregator" });
            world.nodes.push(Node {
                member: Member { id, proxy, aggregator: !proxy || aggregators == 0 },
                // Clocks are seconds apart from each other and from the store's.
                skew: Duration::from_millis(world.random.u64(..20_000)),
                is_cut: false,
                is_deaf: false,
                boot: 0,
            });
            world.brains.push(None);
            world.start(number);
        }
        world
    }

    pub(crate) fn start(&mut self, number: usize) {
        if self.brains[number].is_none() {
            let node = &mut self.nodes[number];
            node.boot += 1;
            self.brains[number] = Some(Brain::new(node, self.now, &self.settings));
            let phase = Duration::from_millis(self.random.u64(..50));
            let boot = self.nodes[number].boot;
            self.push(phase, Event::Tick { number, boot });
        }
    }

    pub(crate) fn crash(&mut self, number: usize) {
        self.brains[number] = None;
    }

    /// The store loses its data and every connection.
    pub(crate) fn lose_store(&mut self) {
        self.store.lose();
        self.drop_connections();
    }

    pub(crate) fn drop_connections(&mut self) {
        for brain in self.brains.iter_mut().flatten() {
            brain.is_subscribed = false;
        }
    }

    /// From now on a key is asked for at this rate on one proxy.
    pub(crate) fn flow(
        &mut self,
        node: usize,
        key: &str,
        writes: bool,
        rate: impl Fn(Duration) -> f64 + 'static,
    ) {
        self.flows.retain(|flow| {
            (flow.node, flow.key.as_slice(), flow.writes) != (node, key.as_bytes(), writes)
        });
        self.flows.push(Flow { node, key: key.into(), writes, rate: Box::new(rate) });
    }

    pub(crate) fn reads(&mut self, node: usize, key: &str, per_second: f64) {
        self.flow(node, key, false, move |_| per_second);
    }

    /// An operator promotes a key at a process; the number of the act.
    pub(crate) fn promote(&mut self, at: usize, key: &str, ttl: Option<Duration>) -> usize {
        let entry = Entry {
            mitigation: Mitigation::LocalCache,
            split_factor: 1,
            ttl_seconds: ttl.map(|ttl| ttl.as_secs()),
            origin: Origin::Manual,
            status: Status::Active,
            reason: "promoted by an operator".into(),
            dry_run: false,
            frequency: 0.0,
            reads_per_second: 0.0,
            writes_per_second: 0.0,
            detected_at_ms: 0,
            split: None,
            pause: None,
        };
        let (key, expects) = (key.into(), None);
        self.operate(at, Request::Put { key, entry, expects, ttl, respects_block: false })
    }

    /// An operator removes a key at a process.
    pub(crate) fn remove(&mut self, at: usize, key: &str, block_for: Duration) -> usize {
        let (key, expects, block_for) = (key.into(), None, Some(block_for));
        self.operate(at, Request::Remove { key, expects, block_for })
    }

    fn operate(&mut self, at: usize, request: Request) -> usize {
        self.operations.push(None);
        let operation = self.operations.len() - 1;
        self.send(at, request, Some(operation));
        operation
    }

    /// Any request, as a process that decided long ago would send it now.
    pub(crate) fn send(&mut self, from: usize, request: Request, operation: Option<usize>) {
        let (delay, boot) = (self.delay(), self.nodes[from].boot);
        self.push(delay, Event::Request { from, boot, request, operation });
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.peek().is_some_and(|next| next.0.at <= end) {
            let Some(Reverse(next)) = self.queue.pop() else { break };
            self.now = next.at;
            self.happen(next.event);
        }
        self.now = end;
    }

    /// Runs until something is so; fails if it is not within `limit`. The time it took.
    pub(crate) fn run_until(
        &mut self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> Duration {
        let start = self.now;
        while !is_so(self) {
            assert!(self.now < start + limit, "not within {limit:?}: {what}");
            self.run(Duration::from_millis(5));
        }
        self.now.saturating_sub(start)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick { number, boot } => self.tick(number, boot),
            Event::Request { from, boot, request, operation } => {
                self.serve(from, boot, request, operation);
            }
            Event::Reply { to, boot, reply, operation } => {
                let Some(brain) = alive(&mut self.brains, &self.nodes, to, boot) else { return };
                if let Some(operation) = operation {
                    self.operations[operation] = Some(matches!(reply, Reply::Applied(_)));
                }
                brain.on_reply(&self.nodes[to], self.now, reply);
            }
            Event::Change { to, boot, change } => {
                if let Some(brain) = self.hearer(to, boot) {
                    brain.0.on_change(&brain.1, brain.2, change);
                }
            }
            Event::Report { to, boot, bytes } => {
                if let Some(brain) = self.hearer(to, boot) {
                    brain.0.on_report(&brain.1, brain.2, &bytes);
                }
            }
            Event::Watch { to, boot, bytes } => {
                if let Some(brain) = self.hearer(to, boot) {
                    brain.0.on_watch(&brain.1, brain.2, &bytes);
                }
            }
        }
    }

    /// A process that gets what is published to it.
    fn hearer(&mut self, to: usize, boot: u64) -> Option<(&mut Brain, Node, Duration)> {
        let node = self.nodes[to].clone();
        let brain = alive(&mut self.brains, &self.nodes, to, boot)?;
        (brain.is_subscribed && !node.is_cut).then_some((brain, node, self.now))
    }

    fn tick(&mut self, number: usize, boot: u64) {
        let Some(brain) = alive(&mut self.brains, &self.nodes, number, boot) else { return };
        let node = &self.nodes[number];
        let mut rates: BTreeMap<Vec<u8>, [f64; 2]> = BTreeMap::new();
        for flow in self.flows.iter().filter(|flow| flow.node == number) {
            rates.entry(flow.key.clone()).or_default()[usize::from(flow.writes)] +=
                (flow.rate)(self.now);
        }
        let is_reachable = !self.store.is_down && !node.is_cut;
        let requests = brain.tick(node, self.now, is_reachable, self.store.version(), &rates);
        for request in requests {
            self.send(number, request, None);
        }
        self.push(TICK, Event::Tick { number, boot });
    }

    fn serve(&mut self, from: usize, boot: u64, request: Request, operation: Option<usize>) {
        let delay = self.delay();
        if self.store.is_down || self.nodes[from].is_cut {
            let reply = Reply::Unreachable;
            self.push(delay, Event::Reply { to: from, boot, reply, operation });
            return;
        }
        match &request {
            Request::Report(bytes) => {
                self.publish(1, |to, boot| Event::Report { to, boot, bytes: bytes.clone() });
            }
            Request::Watch(bytes) => {
                self.publish(2, |to, boot| Event::Watch { to, boot, bytes: bytes.clone() });
            }
            _ => {}
        }
        let (reply, changes) = self.store.run(self.now, request);
        for change in changes {
            self.publish(0, |to, boot| Event::Change { to, boot, change: change.clone() });
        }
        // The answer gets lost with the connection.
        if !self.nodes[from].is_cut {
            self.push(delay, Event::Reply { to: from, boot, reply, operation });
        }
    }

    fn publish(&mut self, channel: u8, event: impl Fn(usize, u64) -> Event) {
        for to in 0..self.nodes.len() {
            if self.random.f64() < self.network.loss {
                continue;
            }
            let copies = 1 + usize::from(self.random.f64() < self.network.duplicates);
            for _ in 0..copies {
                let last = self.delivered.get(&(to, channel)).copied().unwrap_or_default();
                let at = (self.now + self.delay()).max(last);
                self.delivered.insert((to, channel), at);
                let boot = self.nodes[to].boot;
                self.push(at.saturating_sub(self.now), event(to, boot));
            }
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.random.u64(200..=self.network.delay_ms.max(1) * 1000))
    }

    fn push(&mut self, delay: Duration, event: Event) {
        self.order += 1;
        self.queue.push(Reverse(Queued { at: self.now + delay, order: self.order, event }));
    }

    pub(crate) fn brain(&self, number: usize) -> &Brain {
        self.brains[number].as_ref().expect("the process runs")
    }

    /// All running proxies.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Brain> {
        self.brains.iter().flatten().filter(|brain| brain.agent.is_some())
    }

    pub(crate) fn is_hot_everywhere(&self, key: &str) -> bool {
        self.proxies().all(|brain| brain.is_hot(key.as_bytes()))
    }

    pub(crate) fn is_hot_nowhere(&self, key: &str) -> bool {
        self.proxies().all(|brain| !brain.is_hot(key.as_bytes()))
    }

    /// Every running process has what the store has, and works with the fleet.
    pub(crate) fn has_converged(&self) -> bool {
        let epochs = self.store.epochs();
        self.brains.iter().flatten().all(|brain| {
            let copy: BTreeMap<Vec<u8>, u64> =
                brain.registry.iter().map(|(key, record)| (key.to_vec(), record.epoch)).collect();
            let agrees = brain.agent.as_ref().is_none_or(|agent| {
                let hot: Vec<_> = agent.hot().keys.iter().map(|hot| hot.key.clone()).collect();
                !agent.is_degraded() && hot.iter().eq(epochs.keys())
            });
            copy == epochs && brain.registry.version() == self.store.version() && agrees
        })
    }
}

fn alive<'a>(
    brains: &'a mut [Option<Brain>],
    nodes: &[Node],
    number: usize,
    boot: u64,
) -> Option<&'a mut Brain> {
    brains[number].as_mut().filter(|_| nodes[number].boot == boot)
}
