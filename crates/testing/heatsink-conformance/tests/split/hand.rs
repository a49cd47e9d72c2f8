//! A mover for one proxy, as simple as it can be: the steps of decision 15 without a registry.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heatsink_proxy::Handle;
use heatsink_proxy::hot_keys::HotKeys;
use heatsink_proxy::splits::Splitting;
use heatsink_split::layout::{Kind, Layout, Names};
use heatsink_split::{moving, placement};
use heatsink_testkit::{RawClient, Reply};

const PATIENCE: Duration = Duration::from_secs(10);

/// Splits keys and makes them whole, also when a command wants it.
pub(crate) struct Mover {
    hands: Arc<Mutex<Hands>>,
    alarm: Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

struct Hands {
    handle: Handle,
    data: RawClient,
    states: HashMap<Vec<u8>, Splitting>,
    serial: u64,
    forced: usize,
}

impl Mover {
    /// One for the keys behind `handle`.
    pub(crate) fn new(handle: &Handle) -> Self {
        handle.believe_splits(Instant::now() + Duration::from_secs(3600));
        let data = RawClient::over_stream(handle.connect().expect("a connection within"));
        let handle = handle.clone();
        let (alarm, alarms) = channel();
        let wake = alarm.clone();
        handle.on_whole_wanted(move || {
            let _ = wake.send(true);
        });
        let states = HashMap::new();
        let hands = Hands { handle, data, states, serial: 0, forced: 0 };
        let hands = Arc::new(Mutex::new(hands));
        let theirs = Arc::clone(&hands);
        let thread = std::thread::spawn(move || serve(&theirs, &alarms));
        Self { hands, alarm, thread: Some(thread) }
    }

    /// Gives the server its password.
    pub(crate) fn log_in(&self, password: &str) {
        let mut hands = self.hands.lock().expect("no panic");
        assert_eq!(hands.command(&[b"AUTH", password.as_bytes()]), Reply::ok());
    }

    /// Splits a key; false if there is nothing to split.
    pub(crate) fn split(&self, key: &[u8], factor: usize) -> bool {
        self.hands.lock().expect("no panic").split(key, factor)
    }

    /// Makes a key whole; false if it is.
    pub(crate) fn make_whole(&self, key: &[u8]) -> bool {
        self.hands.lock().expect("no panic").make_whole(key)
    }

    /// Whether a key is split.
    pub(crate) fn is_split(&self, key: &[u8]) -> bool {
        self.hands.lock().expect("no panic").states.contains_key(key)
    }

    /// How often a command wanted a key whole.
    pub(crate) fn forced(&self) -> usize {
        self.hands.lock().expect("no panic").forced
    }

    /// Begins to split a key, and leaves it at that: the proxy holds writes.
    pub(crate) fn freeze(&self, key: &[u8]) {
        let begun = self.hands.lock().expect("no panic").freeze(key, 4);
        assert!(begun.is_some(), "it can be split");
    }

    /// The same, if the proxy holds writes in time.
    pub(crate) fn try_freeze(&self, key: &[u8], time: Duration) -> bool {
        let mut hands = self.hands.lock().expect("no panic");
        let (_, freezing) = hands.prepare(key, 4).expect("it can be split");
        let version = hands.publish(key, Some(freezing));
        let is_held = hands.is_settled(version, time);
        if !is_held {
            hands.publish(key, None);
        }
        is_held
    }

    /// Moves the value of a key that freezes, and does not tell the proxy.
    pub(crate) fn commit(&self, key: &[u8]) {
        let mut hands = self.hands.lock().expect("no panic");
        let layout = hands.layout(key);
        assert_eq!(hands.commit(key, &layout), Some(true), "nobody writes to it");
    }

    /// Tells the proxy that a key which freezes is split.
    pub(crate) fn tell_split(&self, key: &[u8]) {
        let mut hands = self.hands.lock().expect("no panic");
        let layout = hands.layout(key);
        hands.put(key, Some(Splitting::Split(layout)));
    }

    /// Forbids what [`Self::freeze`] began, and does not tell the proxy.
    pub(crate) fn forbid(&self, key: &[u8]) {
        let mut hands = self.hands.lock().expect("no panic");
        let permit = placement::permit_name(key, &hands.layout(key).id);
        assert_eq!(hands.command(&[b"DEL", &permit]), Reply::Integer(1));
    }

    /// Ends what [`Self::freeze`] began, as far as the proxy knows.
    pub(crate) fn release(&self, key: &[u8]) {
        self.hands.lock().expect("no panic").put(key, None);
    }

    /// Has the proxy hold writes of a split key, and seals the first shards.
    pub(crate) fn drain(&self, key: &[u8], sealed: usize) {
        let mut hands = self.hands.lock().expect("no panic");
        let layout = hands.layout(key);
        hands.put(key, Some(Splitting::Draining(Arc::clone(&layout))));
        hands.seal_all(&layout, 0..sealed);
    }

    /// Seals some of the shards of a split key, and does not tell the proxy.
    pub(crate) fn seal_unheard(&self, key: &[u8], shards: std::ops::Range<usize>) {
        let mut hands = self.hands.lock().expect("no panic");
        let layout = hands.layout(key);
        hands.seal_all(&layout, shards);
    }

    /// Makes whole what the proxy believes to be split or about to be, and does not tell it.
    pub(crate) fn make_whole_unheard(&self, key: &[u8]) {
        let mut hands = self.hands.lock().expect("no panic");
        let layout = hands.layout(key);
        hands.build(key, &layout);
    }

    /// Moves the value of a key into shards, and does not tell the proxy: it believes that the key
    /// is about to be split.
    pub(crate) fn move_away(&self, key: &[u8], factor: usize) -> Untold {
        let layout = self.hands.lock().expect("no panic").move_away(key, factor);
        Untold(layout.expect("it can be split"))
    }

    /// Tells the proxy of it.
    pub(crate) fn tell(&self, key: &[u8], untold: &Untold) {
        let layout = Arc::clone(&untold.0);
        self.hands.lock().expect("no panic").put(key, Some(Splitting::Split(layout)));
    }

    /// Tells the proxy that it is made whole again, whatever it has heard; nobody waits until it
    /// has taken that in, and nothing is moved.
    pub(crate) fn tell_draining(&self, key: &[u8], untold: &Untold) {
        let layout = Arc::clone(&untold.0);
        self.hands.lock().expect("no panic").publish(key, Some(Splitting::Draining(layout)));
    }

    /// The names of a split key's shards.
    pub(crate) fn shards(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let hands = self.hands.lock().expect("no panic");
        match hands.states.get(key) {
            Some(Splitting::Split(layout)) => {
                (0..layout.len()).map(|shard| layout.name(shard, Names::Live).to_vec()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A split that the proxy has not heard of.
pub(crate) struct Untold(Arc<Layout>);

impl Drop for Mover {
    fn drop(&mut self) {
        let _ = self.alarm.send(false);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(hands: &Mutex<Hands>, alarms: &Receiver<bool>) {
    while let Ok(true) = alarms.recv() {
        let mut hands = hands.lock().expect("no panic");
        for wanted in hands.handle.take_wholes_wanted() {
            let done = hands.make_whole(&wanted.key);
            hands.forced += usize::from(done);
        }
    }
}

impl Hands {
    /// Tells the proxy where a key stands, and waits until it holds or goes on.
    fn put(&mut self, key: &[u8], state: Option<Splitting>) {
        let version = self.publish(key, state);
        assert!(self.is_settled(version, PATIENCE), "the proxy does not settle");
    }

    /// Waits for the proxy to settle.
    fn is_settled(&self, version: u64, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.handle.settled_version() < version {
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn publish(&mut self, key: &[u8], state: Option<Splitting>) -> u64 {
        match state {
            Some(state) => drop(self.states.insert(key.to_vec(), state)),
            None => drop(self.states.remove(key)),
        }
        self.handle.set_hot_keys(HotKeys::default().with_splits(self.states.clone()))
    }

    fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.data.send_raw(request);
        self.data.read_frame()
    }

    fn command(&mut self, args: &[&[u8]]) -> Reply {
        self.data.command(args)
    }

    /// Where the parts of a key are, or will be.
    fn layout(&self, key: &[u8]) -> Arc<Layout> {
        match self.states.get(key).expect("it is split, or about to be") {
            Splitting::Freezing { layout, .. }
            | Splitting::Split(layout)
            | Splitting::Draining(layout) => Arc::clone(layout),
        }
    }

    fn split(&mut self, key: &[u8], factor: usize) -> bool {
        if self.states.contains_key(key) {
            return false;
        }
        // What was wanted before the key was whole; whoever still waits asks again.
        self.handle.take_wholes_wanted();
        let Some(layout) = self.move_away(key, factor) else {
            self.put(key, None);
            return false;
        };
        self.put(key, Some(Splitting::Split(layout)));
        true
    }

    /// Moves the value of a key into shards. Nothing if it cannot be split.
    fn move_away(&mut self, key: &[u8], factor: usize) -> Option<Arc<Layout>> {
        loop {
            let layout = self.freeze(key, factor)?;
            if self.commit(key, &layout)? {
                return Some(layout);
            }
        }
    }

    /// Has writes held; nothing if there is nothing to split.
    fn freeze(&mut self, key: &[u8], factor: usize) -> Option<Arc<Layout>> {
        let (layout, freezing) = self.prepare(key, factor)?;
        self.put(key, Some(freezing));
        Some(layout)
    }

    /// How a key is to be split, and what the proxy is told of it first.
    fn prepare(&mut self, key: &[u8], factor: usize) -> Option<(Arc<Layout>, Splitting)> {
        let kind = self.kind_of(key)?;
        let expires = self.command(&[b"PTTL", key]) != Reply::Integer(-1);
        let tags = placement::tags(self.handle.slot_owners().as_deref(), factor, key);
        self.serial += 1;
        let layout = Arc::new(Layout::new(&format!("test{}", self.serial), kind, expires, &tags));
        let permit: Arc<[u8]> = placement::permit_name(key, &layout.id).into();
        assert_eq!(self.command(&[b"SET", &permit, b"1"]), Reply::ok());
        Some((Arc::clone(&layout), Splitting::Freezing { layout, permit }))
    }

    fn kind_of(&mut self, key: &[u8]) -> Option<Kind> {
        match self.command(&[b"TYPE", key]) {
            Reply::Simple(name) if name == "string" => match self.command(&[b"GET", key]) {
                Reply::Bulk(value) => moving::kind_of_string(&value),
                _ => None,
            },
            Reply::Simple(name) => Kind::ALL.iter().copied().find(|k| k.server_type() == name),
            _ => None,
        }
    }

    /// Moves the value. False if it was written to meanwhile, nothing if it cannot be split.
    fn commit(&mut self, key: &[u8], layout: &Layout) -> Option<bool> {
        let permit = placement::permit_name(key, &layout.id);
        self.command(&[b"WATCH", key, &permit]);
        if self.kind_of(key) != Some(layout.kind) {
            self.command(&[b"UNWATCH"]);
            return None;
        }
        let whole = self.ask(&moving::read_whole(layout.kind, key));
        let Ok(fills) = moving::fill_shards(layout, &whole, 1) else {
            self.command(&[b"UNWATCH"]);
            return None;
        };
        for fill in fills {
            let reply = self.ask(&fill);
            assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        }
        let left = self.command(&[b"PTTL", key]);
        self.command(&[b"MULTI"]);
        self.command(&[b"DEL", key]);
        self.command(&[b"DEL", &permit]);
        self.ask(&moving::write_fence(layout.kind, key, &layout.id));
        if let Reply::Integer(left @ 0..) = left {
            self.command(&[b"PEXPIRE", key, left.to_string().as_bytes()]);
        }
        Some(self.command(&[b"EXEC"]) != Reply::Null)
    }

    fn seal_all(&mut self, layout: &Layout, shards: std::ops::Range<usize>) {
        for shard in shards {
            // A slot that has moved fails a watch as a write would, until the map is known.
            let sealed = (0..100).any(|_| self.seal(layout, shard));
            assert!(sealed, "a shard was written to while writes were held");
        }
    }

    fn seal(&mut self, layout: &Layout, shard: usize) -> bool {
        let (live, sealed) = (layout.name(shard, Names::Live), layout.name(shard, Names::Sealed));
        self.command(&[b"WATCH", live]);
        let fence = self.ask(&moving::read_fence(layout.kind, live));
        if moving::is_fence(&fence, &layout.id) {
            return self.command(&[b"UNWATCH"]) == Reply::ok();
        }
        let exists = self.command(&[b"EXISTS", live]) == Reply::Integer(1);
        self.command(&[b"MULTI"]);
        if exists {
            self.command(&[b"RENAME", live, sealed]);
        }
        self.ask(&moving::write_fence(layout.kind, live, &layout.id));
        self.command(&[b"EXEC"]) != Reply::Null
    }

    fn make_whole(&mut self, key: &[u8]) -> bool {
        let (Splitting::Split(layout) | Splitting::Draining(layout)) =
            (match self.states.get(key).cloned() {
                Some(splitting) => splitting,
                None => return false,
            })
        else {
            return false;
        };
        self.put(key, Some(Splitting::Draining(Arc::clone(&layout))));
        self.build(key, &layout);
        self.put(key, None);
        true
    }

    /// Seals the shards, and puts the whole value in the place of the marker.
    fn build(&mut self, key: &[u8], layout: &Layout) {
        self.seal_all(layout, 0..layout.len());
        let requests = moving::read_shards(layout, Names::Sealed);
        let replies: Vec<_> = requests.iter().map(|request| self.ask(request)).collect();
        let slot = heatsink_cluster::slot::of_key(key);
        let whole = placement::name_in_slot(slot, &layout.id, "whole");
        let builds = moving::build_whole(layout, &replies, &whole).expect("it was split");
        for build in &builds {
            let reply = self.ask(build);
            assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        }
        self.command(&[b"WATCH", key]);
        let left = self.command(&[b"PTTL", key]);
        let fence = self.ask(&moving::read_fence(layout.kind, key));
        if moving::is_fence(&fence, &layout.id) {
            self.command(&[b"MULTI"]);
            if builds.is_empty() {
                self.command(&[b"DEL", key]);
            } else {
                self.command(&[b"RENAME", &whole, key]);
            }
            if let Reply::Integer(left @ 0..) = left {
                self.command(&[b"PEXPIRE", key, left.to_string().as_bytes()]);
            }
            assert_ne!(self.command(&[b"EXEC"]), Reply::Null);
        } else {
            self.command(&[b"UNWATCH"]);
        }
    }
}
