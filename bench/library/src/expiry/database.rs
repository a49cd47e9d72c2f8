//! A database with one row, whose query takes its time.
//!
//! Called by: all strategies, as their loader.
//! Bound: it remembers when each query began.
//! Invariant: a row says when its query ended; from then on its data ages.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Database {
    origin: Instant,
    takes: Duration,
    begun_us: Mutex<Vec<u64>>,
}

impl Database {
    pub(crate) fn new(takes: Duration) -> Self {
        Self { origin: Instant::now(), takes, begun_us: Mutex::default() }
    }

    /// Microseconds since the database was opened.
    pub(crate) fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    pub(crate) async fn query(&self) -> String {
        self.begun_us.lock().unwrap_or_else(PoisonError::into_inner).push(self.now_us());
        tokio::time::sleep(self.takes).await;
        format!("{} {}", self.now_us(), "x".repeat(90))
    }

    /// When the query ended that brought a row.
    pub(crate) fn born_us(row: &str) -> u64 {
        let number = row.split(' ').next().and_then(|number| number.parse().ok());
        number.expect("a row begins with its time")
    }

    /// The numbers of queries that began within `apart` after the first of their group: what one
    /// expiry caused.
    pub(crate) fn groups(&self, apart: Duration) -> Vec<usize> {
        let mut begun = self.begun_us.lock().unwrap_or_else(PoisonError::into_inner).clone();
        begun.sort_unstable();
        let apart = apart.as_micros() as u64;
        let mut first = 0;
        let mut groups = Vec::new();
        for at in begun {
            match groups.last_mut() {
                Some(group) if at < first + apart => *group += 1,
                _ => {
                    first = at;
                    groups.push(1);
                }
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_near_each_other_are_of_one_expiry() {
        let database = Database::new(Duration::ZERO);
        database.begun_us.lock().unwrap().extend([10, 5, 600, 12, 1100, 1599]);
        assert_eq!(database.groups(Duration::from_micros(500)), [3, 1, 2]);
        assert_eq!(Database::born_us("17 xxx"), 17);
    }
}
