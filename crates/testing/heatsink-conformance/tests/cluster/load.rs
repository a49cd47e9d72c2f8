//! Clients that run while something happens to the cluster, and account for every reply.
//!
//! Called by: the tests of moves and of failovers.
//! Bound: a client stops at the first wrong reply, or when told; a reply is waited for as long
//! as [`REPLY_TIMEOUT`].
//! Invariant: a client has keys of its own, so it knows what each reply must be.
//!
//! `HEATSINK_CLUSTER_SECONDS` makes the runs longer, `HEATSINK_CLUSTER_SEED` is another seed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use heatsink_testkit::{RawClient, Reply};

/// How long a client waits for a reply.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A number from the environment.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// How long a run under load lasts.
pub(crate) fn duration(default_seconds: u64) -> Duration {
    Duration::from_secs(number("HEATSINK_CLUSTER_SECONDS").unwrap_or(default_seconds))
}

/// A seed for a run.
pub(crate) fn seed() -> u64 {
    heatsink_testkit::seed_from("HEATSINK_CLUSTER_SEED", 1)
}

/// What a client does over and over: one round each call, or what was wrong.
pub(crate) trait Round: Send {
    /// One round of requests; how many replies were checked.
    fn round(&mut self, client: &mut RawClient, rng: &mut Rng) -> Result<usize, String>;
}

impl<F: FnMut(&mut RawClient, &mut Rng) -> Result<usize, String> + Send> Round for F {
    fn round(&mut self, client: &mut RawClient, rng: &mut Rng) -> Result<usize, String> {
        self(client, rng)
    }
}

/// Runs every client on a connection of its own while `meanwhile` does, and says what went
/// wrong. Panics with all of it, or returns how many replies were right.
#[track_caller]
pub(crate) fn while_loaded(
    addr: SocketAddr,
    seed: u64,
    clients: Vec<(String, Box<dyn Round>)>,
    meanwhile: impl FnOnce(),
) -> usize {
    let stop = AtomicBool::new(false);
    let results = thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> = clients
            .into_iter()
            .zip(seed..)
            .map(|((name, mut rounds), seed)| {
                let work = move || {
                    let mut client = RawClient::connect(addr);
                    client.set_timeout(REPLY_TIMEOUT);
                    let mut rng = Rng::with_seed(seed);
                    let mut checked = 0;
                    while !stop.load(Ordering::Acquire) {
                        checked += rounds
                            .round(&mut client, &mut rng)
                            .map_err(|why| format!("{name}, after {checked} replies: {why}"))?;
                    }
                    Ok::<usize, String>(checked)
                };
                scope.spawn(work)
            })
            .collect();
        let guard = StopOnDrop(stop);
        meanwhile();
        drop(guard);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned())))
            .collect::<Vec<_>>()
    });
    let wrong: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{} clients: {wrong:#?}", wrong.len());
    results.into_iter().flatten().sum()
}

/// Ends the clients even if what they run beside panics.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends commands in one write and reads their replies.
pub(crate) fn pipeline(
    client: &mut RawClient,
    commands: &[Vec<String>],
) -> Result<Vec<Reply>, String> {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend(heatsink_testkit::encode(command));
    }
    client.try_send_raw(&bytes).map_err(|error| format!("sending: {error}"))?;
    let mut replies = Vec::with_capacity(commands.len());
    for command in commands {
        let reply = client.try_read_reply();
        replies.push(reply.map_err(|error| format!("{}: {error}", command.join(" ")))?);
    }
    Ok(replies)
}

/// A command in words.
pub(crate) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Demands a reply.
pub(crate) fn expect(what: &str, got: &Reply, expected: &Reply) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: expected {expected}, got {got}")) }
}
