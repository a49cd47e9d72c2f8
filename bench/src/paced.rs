//! Load at an even pace: requests that are due by the clock, whatever the answers take.
//!
//! Called by: `rates`.
//! Bound: one thread; one burst of a client is out at a time, what is due beyond that waits.
//! Invariant: a reply that is an error ends the run. Times count from when a burst was due, not
//! from when its client was free to send it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use heatsink_load::pipe::Pipe;
use heatsink_load::timer::Timer;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

const TIMER: Token = Token(usize::MAX);
/// Longest wait for an event.
const LOOK: Duration = Duration::from_millis(20);
/// All clients are connected by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any reply that is expected.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// How much is sent by how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    pub(crate) clients: usize,
    /// Requests that a client sends in one piece, and waits for.
    pub(crate) depth: usize,
}

/// For how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What came of it in the time that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played {
    /// What `figure` grew by.
    pub(crate) grown: f64,
    pub(crate) answered: u64,
    /// Answered of what was due.
    pub(crate) kept: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Sends what `next` appends, one request each time, and asks for `figure` when the measured time
/// begins and when it ends.
pub(crate) fn play(
    addr: SocketAddr,
    pace: Pace,
    times: Times,
    next: &mut dyn FnMut(&mut Vec<u8>),
    figure: &dyn Fn() -> io::Result<f64>,
) -> io::Result<Played> {
    let mut player = Player::connect(addr, pace)?;
    player.play(times.warm_up, next)?;
    let before = figure()?;
    player.seen = Seen::default();
    player.play(times.measured, next)?;
    let grown = figure()? - before;
    let Seen { answered, mut waits } = std::mem::take(&mut player.seen);
    waits.sort_unstable();
    let quantile = |part: f64| {
        let index = ((waits.len() as f64 * part) as usize).min(waits.len().saturating_sub(1));
        waits.get(index).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3)
    };
    let due = pace.per_second * times.measured.as_secs_f64();
    let (p50_ms, p99_ms) = (quantile(0.5), quantile(0.99));
    Ok(Played { grown, answered, kept: answered as f64 / due, p50_ms, p99_ms })
}

#[derive(Default)]
struct Seen {
    answered: u64,
    /// From when a burst was due until it was answered.
    waits: Vec<Duration>,
}

struct Client {
    pipe: Pipe,
    /// When the bursts were due that are not sent yet.
    waiting: VecDeque<Duration>,
    /// When the burst was due that is out, and how many of its replies are to come.
    out: Option<(Duration, usize)>,
}

struct Player {
    pace: Pace,
    poll: Poll,
    timer: Timer,
    epoch: Instant,
    clients: Vec<Client>,
    /// Bursts that have become due.
    due: u64,
    seen: Seen,
}

impl Player {
    fn connect(addr: SocketAddr, pace: Pace) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut clients = Vec::new();
        for place in 0..pace.clients {
            let stream = std::net::TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(place), interest)?;
            clients.push(Client { pipe: Pipe::over(stream), waiting: VecDeque::new(), out: None });
        }
        Ok(Self {
            pace,
            poll,
            timer,
            epoch: Instant::now(),
            clients,
            due: 0,
            seen: Seen::default(),
        })
    }

    /// Goes on for so long.
    fn play(&mut self, length: Duration, next: &mut dyn FnMut(&mut Vec<u8>)) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let end = self.epoch.elapsed() + length;
        loop {
            let now = self.epoch.elapsed();
            if now >= end {
                return Ok(());
            }
            while self.next_due() <= now {
                let place = (self.due % self.clients.len() as u64) as usize;
                let due = self.next_due();
                self.due += 1;
                let client = &mut self.clients[place];
                client.waiting.push_back(due);
                client.send(self.pace.depth, next)?;
            }
            let left = self.next_due().min(end).saturating_sub(self.epoch.elapsed());
            let timeout = if left.is_zero() {
                Duration::ZERO
            } else {
                self.timer.set(left)?;
                LOOK
            };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                if event.token() == TIMER {
                    self.timer.acknowledge();
                    continue;
                }
                let client = &mut self.clients[event.token().0];
                client.pipe.write()?;
                client.receive(self.epoch, &mut self.seen)?;
                client.send(self.pace.depth, next)?;
            }
        }
    }

    /// When the next burst is due: the clients take turns, at even intervals.
    fn next_due(&self) -> Duration {
        Duration::from_secs_f64((self.due * self.pace.depth as u64) as f64 / self.pace.per_second)
    }
}

impl Client {
    /// Sends the next burst that is due, if none is out.
    fn send(&mut self, depth: usize, next: &mut dyn FnMut(&mut Vec<u8>)) -> io::Result<()> {
        if self.out.is_none()
            && let Some(due) = self.waiting.pop_front()
        {
            (0..depth).for_each(|_| next(self.pipe.outbox()));
            self.out = Some((due, depth));
            self.pipe.write()?;
        }
        Ok(())
    }

    fn receive(&mut self, epoch: Instant, seen: &mut Seen) -> io::Result<()> {
        let Self { pipe, out, .. } = self;
        pipe.read(REPLY_BYTES_MAX, |reply| {
            let Some((due, left)) = out else {
                return Err(io::Error::other("a reply that nobody asked for"));
            };
            if reply.starts_with(b"-") {
                return Err(io::Error::other(String::from_utf8_lossy(reply).trim().to_owned()));
            }
            seen.answered += 1;
            *left -= 1;
            if *left == 0 {
                seen.waits.push(epoch.elapsed().saturating_sub(*due));
                *out = None;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use heatsink_testkit::{RedisServer, encode};

    use super::*;

    const TIMES: Times =
        Times { warm_up: Duration::from_millis(100), measured: Duration::from_millis(400) };

    #[test]
    fn as_much_is_sent_as_is_due_and_only_the_measured_time_counts() {
        let redis = RedisServer::start();
        let made = Cell::new(0_u64);
        let mut next = |to: &mut Vec<u8>| {
            made.set(made.get() + 1);
            to.extend(encode(&["INCR", "n"]));
        };
        let pace = Pace { per_second: 2_000.0, clients: 5, depth: 4 };
        let figure = || Ok(made.get() as f64);
        let begun = Instant::now();
        let played = play(redis.addr(), pace, TIMES, &mut next, &figure).expect("answers");
        let most = (begun.elapsed().as_secs_f64() * pace.per_second) as u64 + 4;
        let (due, made) = (800.0, made.get());
        assert!(played.kept > 0.5 && played.kept < 1.05, "{played:?}");
        assert!((played.grown - due).abs() <= due / 2.0, "{played:?}");
        // Of those in the time before, and of what was out at the end, nothing is counted.
        assert!(played.answered < made && made <= most, "{played:?}, {made} of {most}");
        assert!(played.p50_ms <= played.p99_ms && played.p50_ms > 0.0, "{played:?}");
        let counted: u64 = redis.client().command(&["GET", "n"]).text().parse().expect("a number");
        assert!((played.answered..=made).contains(&counted), "{counted}, {played:?}");
    }

    /// The server stands still for a while; nothing of what was due meanwhile is left out, and all
    /// of it has waited.
    #[test]
    fn what_is_late_is_made_up_for_and_counts_from_when_it_was_due() {
        let redis = RedisServer::builder().arg("enable-debug-command", "yes").start();
        let mut number = 0;
        let mut next = |to: &mut Vec<u8>| {
            number += 1;
            let sleeps = number == 150;
            let args: &[&str] = if sleeps { &["DEBUG", "SLEEP", "0.2"] } else { &["PING"] };
            to.extend(encode(args));
        };
        let pace = Pace { per_second: 1_000.0, clients: 2, depth: 1 };
        let played = play(redis.addr(), pace, TIMES, &mut next, &|| Ok(0.0)).expect("answers");
        assert!(played.kept > 0.8, "{played:?}");
        assert!(played.p99_ms > 100.0, "{played:?}");
    }

    #[test]
    fn an_error_ends_it() {
        let redis = RedisServer::start();
        let mut next = |to: &mut Vec<u8>| to.extend(encode(&["NOSUCH"]));
        let pace = Pace { per_second: 1_000.0, clients: 2, depth: 1 };
        let error = play(redis.addr(), pace, TIMES, &mut next, &|| Ok(0.0)).expect_err("refused");
        assert!(error.to_string().contains("unknown command"), "{error}");
    }
}
