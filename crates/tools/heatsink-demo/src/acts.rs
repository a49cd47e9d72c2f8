//! What happens when.
//!
//! Called by: `director` for the play, `shop` for what is asked for.

use std::time::Duration;

use heatsink_load::workload::{Heat, Phase, Shape};

use crate::options::HOT_SHARE;

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The shop's usual load.
    Calm,
    /// A key is viral, and Heatsink only watches.
    Melting,
    /// It still is, and Heatsink acts.
    Cooled,
    /// A counter is hot, and Heatsink acts.
    Counter,
}

impl Act {
    /// In their order.
    pub const ALL: [Self; 4] = [Self::Calm, Self::Melting, Self::Cooled, Self::Counter];

    /// In a few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Calm => "usual load",
            Self::Melting => "viral key, only observed",
            Self::Cooled => "viral key, mitigated",
            Self::Counter => "hot counter, mitigated",
        }
    }

    /// What has just begun.
    pub fn opening(self) -> &'static str {
        match self {
            Self::Calm => {
                "the shop opens: requests for items follow a Zipf law, Heatsink only observes"
            }
            Self::Melting => "one item goes viral; Heatsink observes and does nothing yet",
            Self::Cooled => "mitigation is switched on",
            Self::Counter => "everybody likes it now: a counter is hot, the item no longer is",
        }
    }

    /// Whether Heatsink acts in it.
    pub fn mitigates(self) -> bool {
        matches!(self, Self::Cooled | Self::Counter)
    }
}

/// When each act begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    length: Duration,
}

impl Timeline {
    /// Acts of a demo of this length.
    pub fn new(length: Duration) -> Self {
        Self { length }
    }

    /// When an act begins.
    pub fn start(self, act: Act) -> Duration {
        self.length.mul_f64(match act {
            Act::Calm => 0.0,
            Act::Melting => 0.20,
            Act::Cooled => 0.45,
            Act::Counter => 0.72,
        })
    }

    /// When an act ends.
    pub fn end(self, act: Act) -> Duration {
        match act {
            Act::Calm => self.start(Act::Melting),
            Act::Melting => self.start(Act::Cooled),
            Act::Cooled => self.start(Act::Counter),
            Act::Counter => self.length,
        }
    }

    /// The act at a time; the last one goes on.
    pub fn act(self, at: Duration) -> Act {
        let begun = |act: &Act| self.start(*act) <= at;
        Act::ALL.into_iter().rev().find(begun).unwrap_or(Act::Calm)
    }

    /// The act that is measured at a time: its first third is left to settle.
    pub fn measured(self, at: Duration) -> Option<Act> {
        let act = self.act(at);
        let settled = self.start(act) + self.end(act).saturating_sub(self.start(act)) / 3;
        (settled <= at && at < self.end(act)).then_some(act)
    }

    /// What the shop plays.
    pub(crate) fn script(self, shape: &Shape) -> Vec<Phase> {
        let phase = |act, heat| Phase { from: self.start(act), heat, share: HOT_SHARE };
        vec![
            phase(Act::Melting, Heat::Item(shape.cold_item(0))),
            phase(Act::Counter, Heat::Counter(1)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_follow_each_other_without_a_gap() {
        let timeline = Timeline::new(Duration::from_secs(20));
        for two in Act::ALL.windows(2) {
            assert_eq!(timeline.end(two[0]), timeline.start(two[1]));
            assert!(timeline.start(two[0]) < timeline.end(two[0]));
            assert_eq!(timeline.act(timeline.start(two[1])), two[1]);
        }
        assert_eq!(timeline.end(Act::Counter), Duration::from_secs(20));
        assert_eq!(timeline.act(Duration::from_secs(60)), Act::Counter);
        assert_eq!(timeline.measured(timeline.start(Act::Cooled)), None);
        assert_eq!(timeline.measured(Duration::from_millis(13_900)), Some(Act::Cooled));
        assert_eq!(timeline.measured(Duration::from_secs(20)), None);
    }
}
