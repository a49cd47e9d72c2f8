//! Contenders in turns: the same requests for each, one round after the other.
//!
//! Called by: `detect::record` and `detect::ring`.
//! Bound: the rounds asked for, after a pass over the stream that is not timed.
//! Invariant: in each round every contender gets the same stretch of the stream, and each
//! goes first as often as any other; what is not a request's work is not timed.

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::stream::{Block, Stream};

/// Somebody who counts requests.
pub(crate) trait Contender {
    fn name(&self) -> String;

    /// Counts every request of the block.
    fn count(&mut self, keys: Block<'_>, now_ms: u64);

    /// Does what is due between blocks; not timed.
    fn tick(&mut self, _now_ms: u64) {}
}

/// A contender that is a function of a key and the time.
pub(crate) struct Each<F> {
    name: &'static str,
    count: F,
}

impl<F: FnMut(&[u8], u64)> Each<F> {
    pub(crate) fn new(name: &'static str, count: F) -> Self {
        Self { name, count }
    }
}

impl<F: FnMut(&[u8], u64)> Contender for Each<F> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn count(&mut self, keys: Block<'_>, now_ms: u64) {
        for key in keys {
            (self.count)(key, now_ms);
        }
    }
}

/// How long and how often.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Requests between two ticks.
    pub(crate) block_requests: usize,
    /// The time between them, in the stream's own time.
    pub(crate) block_ms: u64,
    /// Blocks that are timed together: a round.
    pub(crate) round_blocks: usize,
    pub(crate) rounds: usize,
    /// Passes over the whole stream before the first round.
    pub(crate) warm_passes: usize,
}

/// The figures of all rounds in short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
}

impl Spread {
    /// Of at least one figure.
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        Self { least: figures[0], median: figures[figures.len() / 2] }
    }

    /// Both as cells of a table: the median first.
    pub(crate) fn cells(self) -> [String; 2] {
        [self.median, self.least].map(|figure| format!("{figure:.1}"))
    }
}

/// A stretch of this thread's CPU time: what others do on the machine is not in it, but for
/// the caches that they take.
pub(crate) struct CpuTime(Timespec);

impl CpuTime {
    pub(crate) fn start() -> Self {
        Self(clock_gettime(ClockId::ThreadCPUTime))
    }

    /// Nanoseconds since it was started.
    pub(crate) fn ns(&self) -> f64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        (now.tv_sec - self.0.tv_sec) as f64 * 1e9 + (now.tv_nsec - self.0.tv_nsec) as f64
    }
}

/// Nanoseconds a request, in the order of the contenders.
pub(crate) fn ns_per_request(
    stream: &Stream,
    pace: Pace,
    contenders: &mut [&mut dyn Contender],
) -> Vec<Spread> {
    let mut clocks_ms = vec![0; contenders.len()];
    for _ in 0..pace.warm_passes {
        for (contender, now_ms) in contenders.iter_mut().zip(&mut clocks_ms) {
            let all = stream.blocks(pace.block_requests);
            run(*contender, all, pace, now_ms);
        }
    }
    let stretches = stream.len() / (pace.block_requests * pace.round_blocks);
    let mut figures = vec![Vec::with_capacity(pace.rounds); contenders.len()];
    for round in 0..pace.rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let stretch = stream
                .blocks(pace.block_requests)
                .skip(round % stretches * pace.round_blocks)
                .take(pace.round_blocks);
            let ns = run(contenders[at], stretch, pace, &mut clocks_ms[at]);
            figures[at].push(ns / (pace.round_blocks * pace.block_requests) as f64);
        }
    }
    figures.into_iter().map(Spread::of).collect()
}

fn run<'a>(
    contender: &mut dyn Contender,
    blocks: impl Iterator<Item = Block<'a>>,
    pace: Pace,
    now_ms: &mut u64,
) -> f64 {
    let mut ns = 0.0;
    for block in blocks {
        let started = CpuTime::start();
        contender.count(block, *now_ms);
        ns += started.ns();
        *now_ms += pace.block_ms;
        contender.tick(*now_ms);
    }
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_gets_every_request_and_time_goes_on() {
        let stream = Stream::in_turn(0..100, 10);
        let (mut first, mut second) = (0, 0);
        let mut last_ms = 0;
        let mut one = Each::new("one", |key: &[u8], now_ms| {
            first += key.len();
            assert!(now_ms >= last_ms);
            last_ms = now_ms;
        });
        let mut other = Each::new("other", |key: &[u8], _| second += key.len());
        let pace =
            Pace { block_requests: 100, block_ms: 5, round_blocks: 2, rounds: 7, warm_passes: 1 };
        let spreads = ns_per_request(&stream, pace, &mut [&mut one, &mut other]);
        assert!(spreads.iter().all(|spread| spread.least <= spread.median));
        assert_eq!(first, second);
        assert_eq!(last_ms, 5 * (10 + 2 * 7 - 1));
    }

    #[test]
    fn the_spread_is_the_least_and_the_middle() {
        assert_eq!(Spread::of(vec![9.0, 1.0, 5.0]), Spread { least: 1.0, median: 5.0 });
    }
}
