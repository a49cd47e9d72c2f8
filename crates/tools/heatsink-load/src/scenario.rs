//! The scenarios by name, and the script that each plays.
//!
//! Called by: the command line with a name, [`crate::run()`] for the script of a round.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::workload::{Heat, Phase, Shape};

/// Viral keys of `moving`: as many as the time after the onset is divided into.
pub const MOVES: u32 = 6;

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Keys by a Zipf law, nothing else.
    Zipf,
    /// From some moment on, one key that was cold takes a big share of all requests.
    Viral,
    /// The same, and the key changes again and again.
    Moving,
    /// A hot key expires; whoever misses it computes it anew.
    Stampede,
    /// A counter is incremented by everybody.
    Counter,
    /// A sale begins: its page is read and its stock counted down by everybody.
    FlashSale,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Zipf, Self::Viral, Self::Moving, Self::Stampede, Self::Counter, Self::FlashSale];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::Viral => "viral",
            Self::Moving => "moving",
            Self::Stampede => "stampede",
            Self::Counter => "counter",
            Self::FlashSale => "flash-sale",
        }
    }

    /// What it is, in a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Zipf => "keys by a Zipf law",
            Self::Viral => "Zipf, then one cold key goes viral",
            Self::Moving => "Zipf, and a viral key that changes",
            Self::Stampede => "Zipf, and a hot key that expires and is computed anew on a miss",
            Self::Counter => "Zipf, and a hot counter",
            Self::FlashSale => "Zipf, then a sale: its page is read, its stock counted down",
        }
    }

    /// Whether its heat begins only after a while.
    pub fn has_onset(self) -> bool {
        matches!(self, Self::Viral | Self::Moving | Self::FlashSale)
    }

    /// The phases of a round of this length. `onset` is when the heat begins, for scenarios
    /// in which it does not from the start.
    pub fn script(
        self,
        shape: &Shape,
        hot_share: f64,
        onset: Duration,
        length: Duration,
        counters: u32,
    ) -> Vec<Phase> {
        let phase = |from, heat| Phase { from, heat, share: hot_share };
        match self {
            Self::Zipf => Vec::new(),
            Self::Viral => vec![phase(onset, Heat::Item(shape.cold_item(0)))],
            Self::Moving => {
                let step = length.saturating_sub(onset) / MOVES;
                let at = |number| phase(onset + step * number, Heat::Item(shape.cold_item(number)));
                (0..MOVES).map(at).collect()
            }
            Self::Stampede => vec![phase(Duration::ZERO, Heat::Expiring)],
            Self::Counter => vec![phase(Duration::ZERO, Heat::Counter(counters.max(1)))],
            Self::FlashSale => vec![phase(onset, Heat::Sale(shape.cold_item(0)))],
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no scenario of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScenario;

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Scenario::ALL.iter().map(|scenario| scenario.name()).collect();
        write!(f, "unknown scenario; there are {}", names.join(", "))
    }
}

impl std::error::Error for UnknownScenario {}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(name: &str) -> Result<Self, UnknownScenario> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name).ok_or(UnknownScenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
        }
        let error = "viral ".parse::<Scenario>().unwrap_err().to_string();
        assert!(error.contains("flash-sale"), "{error}");
    }

    #[test]
    fn the_moving_key_moves_until_the_end() {
        let shape = Shape { keys: 1_000, exponent: 1.0, write_share: 0.1, seed: 7 };
        let (onset, length) = (Duration::from_secs(3), Duration::from_secs(9));
        let script = Scenario::Moving.script(&shape, 0.5, onset, length, 1);
        assert_eq!(script.len(), MOVES as usize);
        assert_eq!(script[0].from, onset);
        assert_eq!(script[5].from, Duration::from_secs(8));
        assert!(script.windows(2).all(|two| two[0].heat != two[1].heat));
    }
}
