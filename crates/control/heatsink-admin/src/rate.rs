//! A token bucket: how many requests may come.
//!
//! Called by: the guard in front of the routes, once a request.
//! Bound: one number; a burst of `burst`, then `per_second`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The bucket. Time is passed in, so that tests need not wait.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    level: Mutex<(f64, Instant)>,
}

impl Bucket {
    /// A full bucket. Both figures are taken as at least one.
    pub(crate) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second: f64::from(per_second.max(1)), burst, level: Mutex::new((burst, now)) }
    }

    /// Takes one token, or says how long to wait for it.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = now.saturating_duration_since(level.1).as_secs_f64() * self.per_second;
        let tokens = (level.0 + gained).min(self.burst);
        let (left, answer) = if tokens >= 1.0 {
            (tokens - 1.0, Ok(()))
        } else {
            (tokens, Err(Duration::from_secs_f64((1.0 - tokens) / self.per_second)))
        };
        *level = (left, now.max(level.1));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let start = Instant::now();
        let bucket = Bucket::new(10, 3, start);
        assert_eq!([0; 3].map(|_| bucket.take(start)), [Ok(()); 3]);
        let wait = bucket.take(start).unwrap_err();
        assert!(wait > Duration::from_millis(99) && wait < Duration::from_millis(101));
        let later = start + Duration::from_millis(101);
        assert_eq!(bucket.take(later), Ok(()));
        assert!(bucket.take(later).is_err());
        let much_later = start + Duration::from_secs(60);
        assert_eq!([0; 3].map(|_| bucket.take(much_later)), [Ok(()); 3]);
        assert!(bucket.take(much_later).is_err(), "never more than the burst");
    }
}
