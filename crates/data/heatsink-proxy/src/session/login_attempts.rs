//! How many wrong logins may be tried from one address.
//!
//! [`BURST`] refused logins are free, and one is forgotten every [`PERIOD`]. An address with more refused
//! logins has to wait, which slows down a client that guesses passwords. A login counts from when it is
//! tried, or many could be tried before the first is refused; one that was accepted is taken back.
//!
//! Called by: `login_queue`, before the server or the users file is asked, and when it has answered.
//! Bound: [`MAX_SOURCES`] addresses; those beyond share one count.
//! Invariant: a count is at most [`BURST`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Refusals after which the next attempt has to wait.
const BURST: u32 = 20;
/// After this time one is forgotten.
const PERIOD: Duration = Duration::from_millis(500);
/// Addresses that are counted one by one.
const MAX_SOURCES: usize = 4096;

/// Logins that were refused recently or are being tried, by address.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    sources: HashMap<IpAddr, Count>,
}

/// The attempts of one address that were not accepted, and are not forgotten yet.
#[derive(Debug)]
struct Count {
    tried: u32,
    /// When one was last forgotten, or the first was made.
    since: Instant,
}

impl Count {
    /// Forgets what time has passed over.
    fn age(&mut self, now: Instant) {
        let periods = now.saturating_duration_since(self.since).as_nanos() / PERIOD.as_nanos();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.since += PERIOD.saturating_mul(periods);
        self.tried = self.tried.saturating_sub(periods);
        if self.tried == 0 {
            self.since = now;
        }
    }
}

impl Attempts {
    /// Whether something may be tried, or when.
    pub(in crate::session) fn may_try(
        &mut self,
        address: IpAddr,
        now: Instant,
    ) -> Result<(), Instant> {
        let count = self.count(address, now);
        if count.tried < BURST { Ok(()) } else { Err(count.since + PERIOD) }
    }

    /// Something is tried that may be.
    pub(in crate::session) fn tried(&mut self, address: IpAddr, now: Instant) {
        self.count(address, now).tried += 1;
    }

    /// What was tried was no wrong login.
    pub(in crate::session) fn take_back(&mut self, address: IpAddr, now: Instant) {
        let count = self.count(address, now);
        count.tried = count.tried.saturating_sub(1);
    }

    fn count(&mut self, address: IpAddr, now: Instant) -> &mut Count {
        let mut source = source(address);
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, count| {
                count.age(now);
                count.tried > 0
            });
            if self.sources.len() >= MAX_SOURCES {
                source = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let count = self.sources.entry(source).or_insert(Count { tried: 0, since: now });
        count.age(now);
        count
    }
}

/// What counts as one address: of IPv6 a whole network, since a host in it can use all its addresses.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    /// Tries something wrong.
    fn guess(attempts: &mut Attempts, address: IpAddr, now: Instant) -> Result<(), Instant> {
        attempts.may_try(address, now)?;
        attempts.tried(address, now);
        Ok(())
    }

    #[test]
    fn a_burst_passes_and_then_one_at_a_time() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(guess(&mut attempts, address(1), start), Ok(()));
        }
        let next = guess(&mut attempts, address(1), start).expect_err("used up");
        assert_eq!(next, start + PERIOD);
        assert_eq!(guess(&mut attempts, address(2), start), Ok(()), "others are not meant");
        assert_eq!(guess(&mut attempts, address(1), next), Ok(()));
        assert!(guess(&mut attempts, address(1), next).is_err());
        // However often it is tried, so many pass in a minute.
        let minute = (0..60_000).map(|ms| start + 2 * PERIOD + Duration::from_millis(ms));
        let passed = minute.filter(|now| guess(&mut attempts, address(1), *now).is_ok()).count();
        assert_eq!(passed, 120);
        let later = start + Duration::from_secs(3600);
        let passed = (0..99).filter(|_| guess(&mut attempts, address(1), later).is_ok()).count();
        assert_eq!(passed, BURST as usize);
    }

    #[test]
    fn what_is_accepted_does_not_count() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(guess(&mut attempts, address(1), start), Ok(()));
            attempts.take_back(address(1), start);
        }
        for _ in 0..BURST {
            assert_eq!(guess(&mut attempts, address(1), start), Ok(()));
        }
        // Before anything is refused.
        assert!(guess(&mut attempts, address(1), start).is_err());
        attempts.take_back(address(1), start);
        assert_eq!(guess(&mut attempts, address(1), start), Ok(()));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let parse = |text: &str| source(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), address(1));
    }

    #[test]
    fn more_addresses_than_are_counted_share_one_count() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        let many = MAX_SOURCES as u32;
        assert!((0..many).all(|last| guess(&mut attempts, address(last), start).is_ok()));
        let rest =
            (many..many + 99).filter(|last| guess(&mut attempts, address(*last), start).is_ok());
        assert_eq!(rest.count(), BURST as usize);
        assert!(attempts.sources.len() <= MAX_SOURCES + 1);
        // They are forgotten with time.
        let later = start + Duration::from_secs(60);
        assert_eq!(guess(&mut attempts, address(many + 100), later), Ok(()));
        assert_eq!(attempts.sources.len(), 1);
    }
}
