//! Drives the connections of one thread through a round.
//!
//! Called by: [`crate::run()`], once for each thread of a round.
//! Bound: one event loop; nothing waits longer than [`LOOK`] for a wish to stop.
//! Invariant: at a given rate, requests become due in the order of the connections, so the
//! next one is known without a search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};

use crate::connection::Connection;
use crate::recorder::Outcome;
use crate::round::Round;
use crate::timer::Timer;

/// Longest wait.
const LOOK: Duration = Duration::from_millis(50);
/// Time between two pulses.
const PULSE: Duration = Duration::from_millis(200);
const TIMER: Token = Token(usize::MAX);

/// What a thread says of itself, a few times a second.
#[derive(Debug)]
pub(crate) struct ThreadPulse {
    pub(crate) thread: usize,
    /// All times so far; what is new is the difference to the last one.
    pub(crate) latency: Histogram<u64>,
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    pub(crate) mismatches: u64,
}

struct Loop<'a> {
    round: &'a Round<'a>,
    poll: Poll,
    timer: Timer,
    connections: Vec<Connection>,
    /// Connections that have something to do at a time, soonest first.
    wakes: BinaryHeap<Reverse<(Duration, usize)>>,
    /// At a given rate: whose turn is next, and how often all had theirs.
    turn: usize,
    turns: u64,
    /// First of this thread's connections; every `threads`-th is one.
    first: u32,
    threads: u32,
    outcome: Outcome,
}

/// Plays thread `thread` of a round to its end.
pub(crate) fn drive(
    round: &Round<'_>,
    thread: usize,
    pulses: &SyncSender<ThreadPulse>,
    stop: &AtomicBool,
) -> io::Result<Outcome> {
    let poll = Poll::new()?;
    let timer = Timer::new(poll.registry(), TIMER)?;
    let (first, threads) = (thread as u32, round.options.threads);
    let numbers = (first..round.options.connections).step_by(threads as usize);
    let connections =
        numbers.enumerate().map(|(at, number)| Connection::new(number, Token(at), round)).collect();
    let mut engine = Loop {
        round,
        poll,
        timer,
        connections,
        wakes: BinaryHeap::new(),
        turn: 0,
        turns: 0,
        first,
        threads,
        outcome: Outcome::new(),
    };
    engine.run(thread, pulses, stop)?;
    Ok(engine.outcome)
}

impl Loop<'_> {
    fn run(
        &mut self,
        thread: usize,
        pulses: &SyncSender<ThreadPulse>,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        for at in 0..self.connections.len() {
            self.connections[at].open(self.round, self.poll.registry(), &mut self.outcome);
            self.note_wake(at);
        }
        let mut events = Events::with_capacity(256);
        let mut next_pulse = PULSE;
        loop {
            let now = self.round.now();
            if stop.load(Ordering::Relaxed) {
                self.outcome.stopped_at = Some(now);
                break;
            }
            if now >= self.round.end && self.has_ended(now) {
                break;
            }
            self.give_turns(now);
            self.wake(now);
            if now >= next_pulse {
                next_pulse = now + PULSE;
                // Nobody looks: then there is nothing to be shown.
                let _ = pulses.try_send(self.pulse(thread));
            }
            self.wait(&mut events, now)?;
            for event in &events {
                if event.token() == TIMER {
                    self.timer.acknowledge();
                    continue;
                }
                let at = event.token().0;
                self.connections[at].on_event(self.round, &mut self.outcome);
                self.note_wake(at);
            }
        }
        for connection in &mut self.connections {
            connection.close(self.round, &mut self.outcome);
        }
        Ok(())
    }

    /// All that was due is sent and answered, or has waited long enough.
    fn has_ended(&self, now: Duration) -> bool {
        let is_done =
            |connection: &Connection| connection.is_idle() && !connection.has_backlog(self.round);
        now >= self.round.end + self.round.options.timeout || self.connections.iter().all(is_done)
    }

    /// At a given rate: lets those send whose turn has come.
    fn give_turns(&mut self, now: Duration) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.connections[self.turn].top_up(self.round, now, &mut self.outcome);
            self.note_wake(self.turn);
            self.turn += 1;
            if self.turn == self.connections.len() {
                self.turn = 0;
                self.turns += 1;
            }
        }
    }

    fn next_due(&self) -> Option<Duration> {
        let number = self.first + self.turn as u32 * self.threads;
        self.round.due(number, self.turns).filter(|due| *due < self.round.end)
    }

    /// Connections that reconnect, or have computed a value.
    fn wake(&mut self, now: Duration) {
        while let Some(Reverse((when, at))) = self.wakes.peek().copied()
            && when <= now
        {
            self.wakes.pop();
            let connection = &mut self.connections[at];
            if connection.reconnect_at.is_some_and(|when| when <= now) {
                connection.open(self.round, self.poll.registry(), &mut self.outcome);
            }
            self.connections[at].top_up(self.round, now, &mut self.outcome);
            self.note_wake(at);
        }
    }

    fn note_wake(&mut self, at: usize) {
        if let Some(when) = self.connections[at].new_wake() {
            self.wakes.push(Reverse((when, at)));
        }
    }

    fn wait(&mut self, events: &mut Events, now: Duration) -> io::Result<()> {
        let wake = self.wakes.peek().map(|Reverse((when, _))| *when);
        let next = [wake, self.next_due()].into_iter().flatten().min();
        let left = next.map(|next| next.saturating_sub(now)).filter(|left| *left < LOOK);
        let timeout = match left {
            Some(Duration::ZERO) => Duration::ZERO,
            Some(left) => {
                self.timer.set(left)?;
                LOOK
            }
            None => LOOK,
        };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    fn pulse(&self, thread: usize) -> ThreadPulse {
        ThreadPulse {
            thread,
            latency: self.outcome.latency.clone(),
            answered: self.outcome.answered,
            errors: self.outcome.errors.count,
            mismatches: self.outcome.mismatches.count(),
        }
    }
}
