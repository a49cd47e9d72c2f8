//! How far a run is: a bar on a terminal, else a line for each round, both on stderr.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use heatsink_control::words;
use heatsink_load::{Event, Options, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is shown.
pub(super) struct Shown {
    bar: Option<ProgressBar>,
    /// Length of the rounds that have ended.
    before: Duration,
    rounds: u32,
}

impl Shown {
    pub(super) fn new(options: &Options) -> Self {
        let turns = options.rounds * options.targets.len() as u32;
        let length = (options.round_length() + options.warmup) * turns;
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), target);
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, before: Duration::ZERO, rounds: options.rounds }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Shown {
    fn on(&mut self, event: Event<'_>) {
        match (event, &self.bar) {
            (Event::Preparing { target }, Some(bar)) => {
                bar.set_message(format!("{target}: writing keys"));
            }
            (Event::Preparing { target }, None) => eprintln!("{target}: writing keys"),
            (Event::RoundStarted { target, round, length }, None) => {
                let of = self.rounds;
                eprintln!("{target}: round {} of {of}, {}", round + 1, words::seconds(length));
            }
            (Event::Pulse(pulse), Some(bar)) => {
                bar.set_position((self.before + pulse.elapsed).as_millis() as u64);
                let mut message = format!(
                    "{}: {} req/s, p50 {:.1?}, p99 {:.1?}",
                    pulse.target,
                    words::whole(pulse.requests_per_second),
                    pulse.p50,
                    pulse.p99
                );
                for (count, what) in [(pulse.errors, "errors"), (pulse.mismatches, "WRONG")] {
                    if count > 0 {
                        let _ = write!(message, ", {count} {what}");
                    }
                }
                bar.set_message(message);
            }
            (Event::RoundStarted { length, .. }, Some(bar)) => {
                self.before = Duration::from_millis(bar.position()).max(self.before);
                let left = bar.length().unwrap_or_default();
                bar.set_length(left.max((self.before + length).as_millis() as u64));
            }
            (Event::Pulse(_) | Event::RoundEnded { .. }, _) => {}
        }
    }
}
