//! A whole run: targets are prepared, measured in interleaved rounds, checked and cleaned.
//!
//! Called by: the command line and `heatsink demo`.
//! Bound: `rounds` times the targets; `threads` threads at a time.
//! Invariant: one target is measured at a time, and who goes first changes from round to
//! round, so that what the machine does meanwhile is not held against one of them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use heatsink_upstream::client::{Client, ClientError};

use crate::engine::{self, ThreadPulse};
use crate::ledger::Ledger;
use crate::options::{Options, OptionsError, Target};
use crate::preparation;
use crate::progress::{Event, Progress, Pulse};
use crate::recorder::{Outcome, histogram};
use crate::report::{Report, RoundReport, TargetReport};
use crate::round::Round;
use crate::upstream::{self, Calls, Upstreams};
use crate::workload::Workload;

/// Pulses of threads that nobody has looked at yet.
const PULSES_MAX: usize = 64;

/// Why there is no report.
#[derive(Debug)]
pub enum LoadError {
    /// The options contradict each other.
    Options(OptionsError),
    /// A target or an upstream cannot be used.
    Server(ClientError),
    /// This machine refuses something.
    Io(io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<ClientError> for LoadError {
    fn from(error: ClientError) -> Self {
        Self::Server(error)
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One target over all its rounds.
struct Course<'a> {
    target: &'a Target,
    address: SocketAddr,
    prefix: String,
    ledger: Ledger,
    outcome: Outcome,
    measured: Duration,
    /// What the upstreams ran, as long as all of it is known.
    calls: Option<Calls>,
    rounds: Vec<RoundReport>,
}

/// Runs until the end or until `stop`. What was measured up to a stop is reported.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Report, LoadError> {
    options.check().map_err(LoadError::Options)?;
    let script = options.scenario.script(
        &options.shape,
        options.hot_share,
        options.round_onset(),
        options.round_length(),
        options.counters,
    );
    let workload = Workload::new(options.shape, script)
        .map_err(|error| LoadError::Options(OptionsError(error.to_string())))?;
    let mut upstreams = Upstreams::open(options)?;
    // All can be reached before the first key is written anywhere.
    for target in &options.targets {
        open(options, target)?.quit();
    }
    let mut courses = Vec::with_capacity(options.targets.len());
    for target in &options.targets {
        progress.on(Event::Preparing { target: &target.name });
        courses.push(prepare(options, target)?);
    }
    'rounds: for round in 0..options.rounds {
        for turn in 0..courses.len() {
            let course = (turn + round as usize) % courses.len();
            let course = &mut courses[course];
            play(options, &workload, course, round, &mut upstreams, stop, progress)?;
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
        }
    }
    let mut targets = Vec::with_capacity(courses.len());
    for mut course in courses {
        // What was measured is worth a report, even if the target is gone by now.
        if let Err(error) = finish(options, &mut course) {
            course.outcome.errors.add(|| format!("not checked and cleaned up: {error}"));
        }
        let name = &course.target.name;
        let url = course.target.server.to_string();
        let measured = course.measured;
        targets.push(TargetReport::new(
            name,
            url,
            measured,
            &course.outcome,
            course.calls,
            course.rounds,
        ));
    }
    Ok(Report::new(options, targets, stop.load(Ordering::Relaxed)))
}

fn open(options: &Options, target: &Target) -> Result<Client, ClientError> {
    Client::open(&target.server, options.tls.as_ref(), options.timeout)
}

fn prepare<'a>(options: &'a Options, target: &'a Target) -> Result<Course<'a>, LoadError> {
    let server = &target.server;
    let mut addresses = (server.host.as_str(), server.port).to_socket_addrs()?;
    let mut client = open(options, target)?;
    let address = addresses
        .find(|address| std::net::TcpStream::connect_timeout(address, options.timeout).is_ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{server}: not reached")))?;
    let keys = options.shape.keys as usize + 1;
    let ledger = Ledger::new(run_number(), keys, options.counters as usize + 1);
    let prefix = options.key_prefix(target);
    preparation::write_keys(&mut client, &prefix, options, &ledger)?;
    client.quit();
    Ok(Course {
        target,
        address,
        prefix,
        ledger,
        outcome: Outcome::new(),
        measured: Duration::ZERO,
        calls: (!options.upstreams.is_empty()).then(Calls::new),
        rounds: Vec::new(),
    })
}

/// Tells the values of this run from those of any other; has no part in what is played.
fn run_number() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(32) as u32
}

fn finish(options: &Options, course: &mut Course<'_>) -> Result<(), ClientError> {
    let mut client = open(options, course.target)?;
    let mismatches = &mut course.outcome.mismatches;
    preparation::check_counters(&mut client, &course.prefix, options, &course.ledger, mismatches)?;
    if !options.keep_keys {
        preparation::remove_keys(&mut client, &course.prefix, options)?;
    }
    client.quit();
    Ok(())
}

/// Plays one round of one target.
fn play(
    options: &Options,
    workload: &Workload,
    course: &mut Course<'_>,
    number: u32,
    upstreams: &mut Upstreams,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<(), LoadError> {
    let target = course.target.name.as_str();
    let before = upstreams.calls();
    let begin = options.warmup;
    let end = begin + options.round_length();
    progress.on(Event::RoundStarted { target, round: number, length: end });
    let round = Round {
        options,
        target: course.target,
        address: course.address,
        prefix: &course.prefix,
        ledger: &course.ledger,
        workload,
        epoch: Instant::now(),
        begin,
        end,
    };
    let outcome = play_threads(&round, number, stop, progress)?;
    let measured = outcome.stopped_at.map_or(end, |at| at.min(end)).saturating_sub(begin);
    course.rounds.push(RoundReport::new(number, measured, &outcome));
    course.measured += measured;
    course.outcome.merge(&outcome);
    match (before.and_then(|before| Ok((before, upstreams.calls()?))), &mut course.calls) {
        (Ok((before, after)), Some(sum)) => upstream::add_difference(sum, &before, &after),
        (Ok(_), None) => {}
        (Err(error), calls) => {
            // A sum with a hole in it would be taken for the whole.
            *calls = None;
            course.outcome.errors.add(|| format!("commands not counted: {error}"));
        }
    }
    progress.on(Event::RoundEnded { target, round: number });
    Ok(())
}

fn play_threads(
    round: &Round<'_>,
    number: u32,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> io::Result<Outcome> {
    let threads = round.options.threads as usize;
    let (sender, pulses) = mpsc::sync_channel(PULSES_MAX);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let sender = sender.clone();
                scope.spawn(move || engine::drive(round, thread, &sender, stop))
            })
            .collect();
        drop(sender);
        show(&pulses, threads, round, number, progress);
        let mut sum = Outcome::new();
        for thread in running {
            sum.merge(&thread.join().expect("the engine does not panic")?);
        }
        Ok(sum)
    })
}

/// Turns the pulses of threads into pulses of the target, until all threads have ended.
fn show(
    pulses: &Receiver<ThreadPulse>,
    threads: usize,
    round: &Round<'_>,
    number: u32,
    progress: &mut dyn Progress,
) {
    let mut latest: Vec<Option<ThreadPulse>> = (0..threads).map(|_| None).collect();
    let (mut last, mut last_answered, mut last_at) = (histogram(), 0, Duration::ZERO);
    while let Ok(pulse) = pulses.recv() {
        // One thread sets the beat.
        let beat = pulse.thread == 0;
        let thread = pulse.thread;
        latest[thread] = Some(pulse);
        if !beat {
            continue;
        }
        let known = || latest.iter().flatten();
        let answered: u64 = known().map(|pulse| pulse.answered).sum();
        let mut all = histogram();
        for pulse in known() {
            all.add(&pulse.latency).expect("the same bounds");
        }
        let mut new = all.clone();
        new.subtract(&last).expect("times are only added");
        let elapsed = round.now();
        let seconds = elapsed.saturating_sub(last_at).as_secs_f64().max(0.001);
        progress.on(Event::Pulse(Pulse {
            target: &round.target.name,
            round: number,
            elapsed,
            requests_per_second: answered.saturating_sub(last_answered) as f64 / seconds,
            p50: quantile(&new, 0.5),
            p99: quantile(&new, 0.99),
            errors: known().map(|pulse| pulse.errors).sum(),
            mismatches: known().map(|pulse| pulse.mismatches).sum(),
        }));
        (last, last_answered, last_at) = (all, answered, elapsed);
    }
}

fn quantile(times: &Histogram<u64>, quantile: f64) -> Duration {
    Duration::from_nanos(times.value_at_quantile(quantile))
}
