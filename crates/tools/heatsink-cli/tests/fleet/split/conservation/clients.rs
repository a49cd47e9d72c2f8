//! Clients that change values all the time, and can be told to stand still.
//!
//! Called by: the campaign.
//! Bound: one request of each client is under way.
//! Invariant: while the gate is closed no client sends.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heatsink_testkit::{RawClient, Reply};

use super::books::Account;

/// Longer than a proxy makes a request wait, and longer than one stands still. A request that its client
/// gives up while the proxy does is executed afterwards, behind what the client was told of since:
///
/// ```text
/// client                                   proxy A, which stands still      proxy B
/// HSET hash f 1 -> A                       ...
/// gives up; HSET hash f 2 -> B             ...                              executed, acknowledged
///                                          goes on: HSET hash f 1 is executed
/// ```
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default)]
struct State {
    is_closed: bool,
    is_over: bool,
    parked: usize,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    /// Waits while the gate is closed; false if it is all over.
    fn pass(&self) -> bool {
        let mut state = self.state.lock().expect("no panic");
        if state.is_closed && !state.is_over {
            state.parked += 1;
            self.changed.notify_all();
            let waits = |state: &mut State| state.is_closed && !state.is_over;
            state = self.changed.wait_while(state, waits).expect("no panic");
            state.parked -= 1;
        }
        !state.is_over
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no panic"));
        self.changed.notify_all();
    }
}

/// All clients of a campaign, each with a database and an account of its own.
pub(super) struct Clients {
    gate: Arc<Gate>,
    /// Of each client: its database, and what it knows.
    accounts: Vec<(u32, Arc<Mutex<Account>>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts a client for each of these databases. They connect to any of `addresses`.
    pub(super) fn start(
        databases: &[u32],
        addresses: &Arc<Mutex<Vec<SocketAddr>>>,
        sees_markers: bool,
    ) -> Self {
        let gate = Arc::new(Gate::default());
        let accounts: Vec<_> = databases
            .iter()
            .enumerate()
            .map(|(number, database)| (*database, Account::new(format!("c{number}"), sees_markers)))
            .map(|(database, account)| (database, Arc::new(Mutex::new(account))))
            .collect();
        let start = |(number, (database, account)): (usize, &(u32, Arc<Mutex<Account>>))| {
            let (gate, addresses) = (Arc::clone(&gate), Arc::clone(addresses));
            let (database, account) = (*database, Arc::clone(account));
            thread::spawn(move || {
                let mut rng = fastrand::Rng::with_seed(number as u64);
                let mut client = None;
                while gate.pass() {
                    client = client.or_else(|| connect(&addresses, database, &mut rng));
                    let Some(connected) = &mut client else {
                        thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    if !account.lock().expect("no panic").change(connected, &mut rng) {
                        client = None;
                    }
                }
            })
        };
        let threads = accounts.iter().enumerate().map(start).collect();
        Self { gate, accounts, threads }
    }

    /// Waits until no client has a request under way, and lets none send.
    pub(super) fn stop(&self) {
        self.gate.set(|state| state.is_closed = true);
        let all = self.threads.len();
        let state = self.gate.state.lock().expect("no panic");
        let waits = |state: &mut State| state.parked < all;
        let timeout = 5 * REPLY_TIMEOUT;
        let (state, waited) =
            self.gate.changed.wait_timeout_while(state, timeout, waits).expect("no panic");
        assert!(!waited.timed_out(), "{} of {all} clients have stopped", state.parked);
    }

    /// Lets clients send again.
    pub(super) fn go_on(&self) {
        self.gate.set(|state| state.is_closed = false);
    }

    /// What is known of one database.
    pub(super) fn of(&self, database: u32) -> Vec<MutexGuard<'_, Account>> {
        let of = self.accounts.iter().filter(|(of, _)| *of == database);
        of.map(|(_, account)| account.lock().expect("no panic")).collect()
    }

    /// The databases have changed their places; a client of each of them is the only one there.
    pub(super) fn swap(&self, one: u32, other: u32) {
        if one != other {
            let (mut ones, mut others) = (self.of(one), self.of(other));
            std::mem::swap(&mut *ones[0], &mut *others[0]);
        }
    }

    /// How many increments were acknowledged in all.
    pub(super) fn acknowledged(&self) -> i64 {
        let of = |(_, account): &(u32, Arc<Mutex<Account>>)| {
            account.lock().expect("no panic").acknowledged()
        };
        self.accounts.iter().map(of).sum()
    }

    /// Ends all clients.
    pub(super) fn end(self) {
        self.gate.set(|state| state.is_over = true);
        for thread in self.threads {
            thread.join().expect("no client fails");
        }
    }
}

fn connect(
    addresses: &Mutex<Vec<SocketAddr>>,
    database: u32,
    rng: &mut fastrand::Rng,
) -> Option<RawClient> {
    let addresses = addresses.lock().expect("no panic").clone();
    let mut client = RawClient::try_connect(addresses[rng.usize(..addresses.len())]).ok()?;
    client.set_timeout(REPLY_TIMEOUT);
    if database > 0 {
        let selected = client.try_command(&["SELECT", &database.to_string()]).ok()?;
        (selected == Reply::ok()).then_some(())?;
    }
    Some(client)
}
