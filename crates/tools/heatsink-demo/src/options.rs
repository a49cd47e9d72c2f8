//! What can be chosen, checked before anything is started.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heatsink_tls::ClientTls;
use heatsink_upstream::address::Url;

/// The shortest demo in which every act is long enough to be measured.
pub const SHORTEST: Duration = Duration::from_secs(12);
/// The longest; what is counted of replies is bounded by it.
pub const LONGEST: Duration = Duration::from_secs(3_600);

/// Items of the shop.
pub(crate) const ITEMS: u32 = 2_000;
/// Bytes of an item.
pub(crate) const ITEM_BYTES: usize = 100;
/// Nodes of the embedded cluster.
pub(crate) const NODES: usize = 3;
/// Proxies before it.
pub(crate) const PROXIES: usize = 2;
/// Share of the requests that goes to what is hot.
pub(crate) const HOT_SHARE: f64 = 0.6;
/// Share of the requests to items that writes. An item is read far more often than it is
/// changed; each change makes all proxies ask for it again.
pub(crate) const WRITE_SHARE: f64 = 0.005;
/// Of the Zipf law.
pub(crate) const EXPONENT: f64 = 0.8;

/// Everything that can be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// Real servers instead of the embedded cluster, with TLS where the URL asks for it.
    pub upstream: Option<(Url, Option<ClientTls>)>,
    /// Requests/s of the shop.
    pub rate_per_second: u32,
    /// Requests/s that a node of the embedded cluster can answer.
    pub capacity_per_second: u32,
    /// How long it takes.
    pub duration: Duration,
    /// Where all chance comes from.
    pub seed: u64,
    /// Where the page and the admin API of the first proxy are.
    pub admin: SocketAddr,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            upstream: None,
            rate_per_second: 4_000,
            capacity_per_second: 2_000,
            duration: Duration::from_secs(40),
            seed: 1,
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }
}

impl Options {
    /// Says what is wrong, if something is.
    pub fn check(&self) -> Result<(), String> {
        if !(SHORTEST..=LONGEST).contains(&self.duration) {
            let (short, long) = (SHORTEST.as_secs(), LONGEST.as_secs());
            return Err(format!("the duration must be between {short} s and {long} s"));
        }
        if !(500..=100_000).contains(&self.rate_per_second) {
            return Err("the rate must be between 500 and 100000 requests/s".to_owned());
        }
        if self.capacity_per_second == 0 {
            return Err("the capacity of a node must be above 0".to_owned());
        }
        if !self.admin.ip().is_loopback() {
            return Err("the page has no token here: its address must be a loopback one".to_owned());
        }
        Ok(())
    }

    /// Requests/s of a key from which it is hot: a tenth of all.
    pub(crate) fn hot_threshold(&self) -> u32 {
        (self.rate_per_second / 10).max(1)
    }

    /// What all key names begin with.
    pub(crate) fn prefix(&self) -> &'static str {
        if self.upstream.is_some() { "heatsink:demo:" } else { "shop:" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_shown_is_refused() {
        let refused = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().unwrap_err()
        };
        assert_eq!(Options::default().check(), Ok(()));
        assert!(refused(|options| options.duration = Duration::from_secs(1)).contains("duration"));
        assert!(refused(|options| options.rate_per_second = 1).contains("rate"));
        assert!(refused(|options| options.capacity_per_second = 0).contains("capacity"));
        assert!(refused(|options| options.admin = ([0, 0, 0, 0], 80).into()).contains("loopback"));
    }
}
