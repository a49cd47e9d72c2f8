//! What the two threads and the owner of a watch share.
//!
//! Bound: `MAX_SENTINELS` names; the sockets that are open just now.
//! Invariant: after `stop` no socket is added, those there are shut down, and nothing is
//! reported.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::SocketName;

/// Sentinels kept in mind; those beyond are not asked.
const MAX_SENTINELS: usize = 64;

pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the owner is told something.
    reporting: Mutex<()>,
    /// Those of the URL: asked first, never forgotten.
    given: Vec<SocketName>,
}

#[derive(Default)]
struct State {
    stopped: bool,
    nudge: Option<Nudge>,
    /// Beyond the given ones.
    learned: Vec<SocketName>,
    /// To be shut down when all ends.
    open: Vec<(u64, TcpStream)>,
    next_id: u64,
    threads: usize,
}

/// Asks for a look at once.
struct Nudge {
    /// The sentinel that has news, if one has.
    from: Option<SocketName>,
}

/// Why a wait ended.
pub(super) enum Wake {
    Stopped,
    /// With the sentinel that has news, if one has.
    Nudged(Option<SocketName>),
    TimedOut,
}

/// Keeps a socket known while it is open.
pub(super) struct Registration {
    shared: Arc<Shared>,
    id: u64,
}

/// Held by a thread for as long as it runs.
pub(super) struct Running(Arc<Shared>);

impl Shared {
    pub(super) fn new(given: Vec<SocketName>) -> Self {
        let (state, changed, reporting) = Default::default();
        Self { state, changed, reporting, given }
    }

    pub(super) fn stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Ends everything, and waits up to `wait` for the threads to be gone.
    pub(super) fn stop(&self, wait: Duration) {
        let mut state = self.lock();
        state.stopped = true;
        for (_, socket) in &state.open {
            // It may be closed by the other side already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(state, wait, |state| state.threads > 0));
        // A report that is being made ends before this returns.
        drop(self.reporting.lock());
    }

    pub(super) fn nudge(&self, from: Option<SocketName>) {
        let mut state = self.lock();
        let from = from.or_else(|| state.nudge.take().and_then(|nudge| nudge.from));
        state.nudge = Some(Nudge { from });
        self.changed.notify_all();
    }

    /// Waits for a nudge or the end.
    pub(super) fn wait(&self, timeout: Duration) -> Wake {
        let idle = |state: &mut State| !state.stopped && state.nudge.is_none();
        let result = self.changed.wait_timeout_while(self.lock(), timeout, idle);
        let mut state = result.unwrap_or_else(PoisonError::into_inner).0;
        match state.nudge.take() {
            _ if state.stopped => Wake::Stopped,
            Some(nudge) => Wake::Nudged(nudge.from),
            None => Wake::TimedOut,
        }
    }

    /// Waits for the end only; true if it came.
    pub(super) fn pause(&self, timeout: Duration) -> bool {
        let result = self.changed.wait_timeout_while(self.lock(), timeout, |state| !state.stopped);
        result.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    /// Runs `tell` unless all has ended.
    pub(super) fn report(&self, tell: impl FnOnce()) {
        let _reporting = self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stopped() {
            tell();
        }
    }

    /// The sentinels to ask, given ones first.
    pub(super) fn known(&self) -> Vec<SocketName> {
        self.given.iter().chain(&self.lock().learned).cloned().collect()
    }

    /// Takes the answer of sentinel `from` about the others. Sentinels that it does not know
    /// are forgotten, unless it knows none at all: then it is new or cut off.
    pub(super) fn learn(&self, from: &SocketName, others: Vec<SocketName>) {
        if others.is_empty() {
            return;
        }
        let mut learned = Vec::new();
        for name in std::iter::once(from.clone()).chain(others) {
            let room = self.given.len() + learned.len() < MAX_SENTINELS;
            if room && !self.given.contains(&name) && !learned.contains(&name) {
                learned.push(name);
            }
        }
        self.lock().learned = learned;
    }

    /// Makes sure that `socket` is shut down at the end.
    pub(super) fn register(shared: &Arc<Self>, socket: &TcpStream) -> io::Result<Registration> {
        let socket = socket.try_clone()?;
        let mut state = shared.lock();
        if state.stopped {
            return Err(io::Error::other("stopped"));
        }
        let id = state.next_id;
        state.next_id += 1;
        state.open.push((id, socket));
        Ok(Registration { shared: Arc::clone(shared), id })
    }

    /// Counts a thread.
    pub(super) fn running(shared: &Arc<Self>) -> Running {
        shared.lock().threads += 1;
        Running(Arc::clone(shared))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.lock().open.retain(|(id, _)| *id != self.id);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn name(host: &str) -> SocketName {
        SocketName { host: host.to_owned(), port: 1 }
    }

    #[test]
    fn given_sentinels_are_kept_and_learned_ones_replaced() {
        let shared = Shared::new(vec![name("a")]);
        shared.learn(&name("a"), vec![name("b"), name("c"), name("b")]);
        assert_eq!(shared.known(), [name("a"), name("b"), name("c")]);
        shared.learn(&name("c"), vec![name("a"), name("d")]);
        assert_eq!(shared.known(), [name("a"), name("c"), name("d")]);
        shared.learn(&name("a"), Vec::new());
        assert_eq!(shared.known().len(), 3);
        shared.learn(&name("a"), (0..100).map(|n| name(&n.to_string())).collect());
        assert_eq!(shared.known().len(), MAX_SENTINELS);
    }

    #[test]
    fn a_plain_nudge_does_not_hide_who_has_news() {
        let shared = Shared::new(Vec::new());
        shared.nudge(Some(name("a")));
        shared.nudge(None);
        assert!(
            matches!(shared.wait(Duration::ZERO), Wake::Nudged(Some(from)) if from == name("a"))
        );
        assert!(matches!(shared.wait(Duration::ZERO), Wake::TimedOut));
    }

    #[test]
    fn after_the_end_nothing_is_opened_or_reported() {
        let shared = Arc::new(Shared::new(Vec::new()));
        shared.stop(Duration::ZERO);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
        assert!(Shared::register(&shared, &socket).is_err());
        shared.report(|| panic!("reported"));
        assert!(shared.pause(Duration::from_secs(60)));
        let start = Instant::now();
        assert!(matches!(shared.wait(Duration::from_secs(60)), Wake::Stopped));
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
