//! The windows of a value's life.
//!
//! ```text
//! stored        early?      fresh_for        stale_for         error_for
//!   |--- fresh ----|-- fresh --|---- stale ------|-- on error only --|  gone
//! ```
//!
//! Called by: whoever stores a value ([`Policy::life`]) and whoever reads it ([`Life::at`]).
//! Invariant: ages are measured by the one who asks, or derived from the store's own count-down;
//! no wall clock is compared with another.

use std::time::Duration;

/// The least draw that is told from zero. `-ln` of it bounds how far ahead of its expiry a value
/// can be refreshed early, so that ages before that need no draw at all.
const LEAST_DRAW: f64 = 1.0 / (1_u64 << 53) as f64;

/// Longest life of a value: a bound against overflow, not a recommendation.
pub const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long values are good for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// How long a value is fresh.
    pub ttl: Duration,
    /// How long "there is no such thing" is fresh. Zero: not kept at all.
    pub negative_ttl: Duration,
    /// How long behind its freshness a value is still served while one refresh runs.
    pub stale: Duration,
    /// How long behind its freshness a value is still served when a refresh has failed.
    pub stale_if_error: Duration,
    /// Weight of early refresh: `beta` of `XFetch`. `None`: never early.
    pub early: Option<f64>,
    /// Share of the time to live that is taken off by chance, 0 to 1.
    pub jitter: f64,
}

impl Policy {
    /// Values are fresh for `ttl`, and nothing else.
    pub const fn fresh_for(ttl: Duration) -> Self {
        Self {
            ttl,
            negative_ttl: Duration::ZERO,
            stale: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            early: None,
            jitter: 0.0,
        }
    }

    /// The life of a value that is stored now. `ttl` is what its loader said, if it did; `cost` is
    /// how long it took to load; `draw` is a number from 0 to 1 by chance.
    ///
    /// The jitter goes downwards only: a time to live is a promise.
    #[must_use]
    pub fn life(&self, ttl: Option<Duration>, cost: Duration, draw: f64) -> Life {
        let ttl = ttl.unwrap_or(self.ttl).min(LONGEST);
        let fresh_for = ttl.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * draw.clamp(0.0, 1.0));
        let stale_for = fresh_for + self.stale.min(LONGEST);
        let error_for = stale_for.max(fresh_for + self.stale_if_error.min(LONGEST));
        Life { fresh_for, stale_for, error_for, cost }
    }

    /// The life of "there is no such thing": never stale, because what did not exist a while ago
    /// may exist now.
    #[must_use]
    pub fn absent_life(&self, ttl: Option<Duration>, cost: Duration, draw: f64) -> Life {
        let plain = Self { stale: Duration::ZERO, stale_if_error: Duration::ZERO, ..*self };
        plain.life(Some(ttl.unwrap_or(self.negative_ttl)), cost, draw)
    }
}

/// The windows of one value, each as an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Younger than this it is fresh.
    pub fresh_for: Duration,
    /// Younger than this it may be served while a refresh runs.
    pub stale_for: Duration,
    /// Younger than this it may be served when a refresh has failed.
    pub error_for: Duration,
    /// How long it took to load.
    pub cost: Duration,
}

/// What a value is good for at an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// To be served.
    Fresh,
    /// To be served, and this reader refreshes it.
    Early,
    /// To be served while a refresh runs.
    Stale,
    /// To be served only if a refresh has failed.
    OnError,
    /// Not to be served.
    Gone,
}

impl Life {
    /// How long the value is kept at all.
    pub const fn kept_for(&self) -> Duration {
        self.error_for
    }

    /// The age up to which [`Life::at`] answers [`Freshness::Fresh`] whatever the draw.
    #[must_use]
    pub fn quiet_for(&self, early: Option<f64>) -> Duration {
        let ahead = early.map_or(Duration::ZERO, |beta| self.lead(beta, LEAST_DRAW));
        self.fresh_for.saturating_sub(ahead)
    }

    /// What the value is good for at `age`. `draw` is a number from 0 to 1 by chance, a new one
    /// each time: refresh now if `age - beta * cost * ln(draw) >= fresh_for`.
    #[must_use]
    pub fn at(&self, age: Duration, early: Option<f64>, draw: f64) -> Freshness {
        if age < self.fresh_for {
            let is_early = early.is_some_and(|beta| age + self.lead(beta, draw) >= self.fresh_for);
            if is_early { Freshness::Early } else { Freshness::Fresh }
        } else if age < self.stale_for {
            Freshness::Stale
        } else if age < self.error_for {
            Freshness::OnError
        } else {
            Freshness::Gone
        }
    }

    fn lead(&self, beta: f64, draw: f64) -> Duration {
        let seconds = beta.max(0.0) * self.cost.as_secs_f64() * -draw.max(LEAST_DRAW).ln();
        Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn windows_follow_each_other() {
        let policy = Policy { stale: ms(50), stale_if_error: ms(80), ..Policy::fresh_for(ms(100)) };
        let life = policy.life(None, ms(10), 0.5);
        let at = |age| life.at(ms(age), None, 0.5);
        assert_eq!([at(0), at(99)], [Freshness::Fresh; 2]);
        assert_eq!([at(100), at(149)], [Freshness::Stale; 2]);
        assert_eq!([at(150), at(179)], [Freshness::OnError; 2]);
        assert_eq!(at(180), Freshness::Gone);
        assert_eq!(life.kept_for(), ms(180));
    }

    #[test]
    fn what_is_absent_is_never_stale() {
        let policy = Policy {
            stale: ms(50),
            stale_if_error: ms(80),
            negative_ttl: ms(5),
            ..Policy::fresh_for(ms(100))
        };
        let life = policy.absent_life(None, ms(1), 0.0);
        assert_eq!((life.fresh_for, life.kept_for()), (ms(5), ms(5)));
    }

    #[test]
    fn jitter_only_shortens() {
        let policy = Policy { jitter: 0.1, ..Policy::fresh_for(ms(1000)) };
        assert_eq!(policy.life(None, ms(0), 0.0).fresh_for, ms(1000));
        assert_eq!(policy.life(None, ms(0), 1.0).fresh_for, ms(900));
    }

    #[test]
    fn early_refreshes_come_as_often_as_xfetch_says() {
        let life = Policy::fresh_for(ms(1000)).life(None, ms(50), 0.0);
        // At a distance of `beta * cost * x` from the expiry the chance is e^-x.
        let at = |age, beta, draw| life.at(ms(age), Some(beta), draw);
        assert_eq!(at(950, 1.0, (-0.9_f64).exp()), Freshness::Fresh);
        assert_eq!(at(950, 1.0, (-1.1_f64).exp()), Freshness::Early);
        assert_eq!(at(900, 2.0, (-1.1_f64).exp()), Freshness::Early);
        let mut early = 0;
        for step in 0..10_000 {
            let draw = (f64::from(step) + 0.5) / 10_000.0;
            early += u32::from(at(900, 1.0, draw) == Freshness::Early);
        }
        let expected = 10_000.0 * (-2.0_f64).exp();
        assert!((f64::from(early) - expected).abs() < 5.0, "{early} of {expected}");
    }

    #[test]
    fn while_it_is_quiet_no_draw_matters() {
        let life = Policy::fresh_for(ms(60_000)).life(None, ms(50), 0.0);
        let quiet = life.quiet_for(Some(1.0));
        assert!(quiet > ms(58_000) && quiet < ms(59_000), "{quiet:?}");
        assert_eq!(life.at(quiet.saturating_sub(ms(1)), Some(1.0), 0.0), Freshness::Fresh);
        assert_eq!(life.at(quiet + ms(1), Some(1.0), 0.0), Freshness::Early);
        assert_eq!(life.quiet_for(None), ms(60_000));
    }

    #[test]
    fn no_setting_overflows() {
        let policy = Policy {
            stale: Duration::MAX,
            stale_if_error: Duration::MAX,
            early: Some(f64::MAX),
            jitter: 7.0,
            ..Policy::fresh_for(Duration::MAX)
        };
        let life = policy.life(Some(Duration::MAX), Duration::MAX, 0.5);
        assert_eq!(life.quiet_for(policy.early), Duration::ZERO);
        assert_eq!(life.at(ms(0), policy.early, 0.0), Freshness::Early);
        assert_eq!(life.at(Duration::MAX, None, 0.5), Freshness::Gone);
    }
}
