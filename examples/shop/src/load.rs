//! Customers who all want one product.
//!
//! Called by: `main`, which runs the driver; `web`, which tells it what to do.
//! Bound: [`RATE_LIMIT`] requests per second, [`WAITING_LIMIT`] at once; what is over that is not
//! sent, and counted. [`SECONDS_LIMIT`] seconds are remembered.
//! Invariant: requests are sent when they are due, whether earlier ones were answered or not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::shop::Shop;
use crate::tally::Second;
use crate::ways::Way;

pub(crate) const RATE_LIMIT: u32 = 20_000;
const WAITING_LIMIT: usize = 5_000;
const SECONDS_LIMIT: usize = 90;
const TICK: Duration = Duration::from_millis(2);
const TURN: Duration = Duration::from_secs(10);
/// The product that everybody wants.
pub(crate) const POPULAR: i64 = 1;

/// Which way is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Target {
    Naive,
    Locked,
    Stale,
    Heatsink,
    /// Each for ten seconds in turn.
    Each,
}

impl Target {
    fn ways(self) -> &'static [Way] {
        match self {
            Self::Naive => &[Way::Naive],
            Self::Locked => &[Way::Locked],
            Self::Stale => &[Way::Stale],
            Self::Heatsink => &[Way::Heatsink],
            Self::Each => &Way::ALL,
        }
    }
}

/// What is wanted of the driver; no requests: stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Wish {
    pub(crate) target: Target,
    pub(crate) rate: u32,
}

/// The handle of the driver.
#[derive(Clone)]
pub(crate) struct Load {
    wish: watch::Sender<Wish>,
    seconds: Arc<Mutex<VecDeque<Second>>>,
}

pub(crate) struct Driver {
    shop: Arc<Shop>,
    wish: watch::Receiver<Wish>,
    seconds: Arc<Mutex<VecDeque<Second>>>,
}

impl Load {
    pub(crate) fn new(shop: Arc<Shop>) -> (Self, Driver) {
        let (wish, wishes) = watch::channel(Wish { target: Target::Each, rate: 0 });
        let seconds = Arc::<Mutex<VecDeque<Second>>>::default();
        let driver = Driver { shop, wish: wishes, seconds: Arc::clone(&seconds) };
        (Self { wish, seconds }, driver)
    }

    /// Loads another way, or with another rate; 0 ends it. The numbers of what is loaded begin anew.
    pub(crate) fn set(&self, target: Target, rate: u32) {
        self.wish.send_replace(Wish { target, rate: rate.min(RATE_LIMIT) });
    }

    pub(crate) fn wish(&self) -> Wish {
        *self.wish.borrow()
    }

    /// The last seconds under load, the oldest first.
    pub(crate) fn seconds(&self) -> Vec<Second> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Driver {
    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        loop {
            let wish = *self.wish.borrow_and_update();
            if wish.rate == 0 {
                if self.wish.changed().await.is_err() {
                    return;
                }
                continue;
            }
            for way in wish.target.ways() {
                self.shop.tallies.of(*way).clear();
            }
            let mut turns = wish.target.ways().iter().cycle();
            while !self.wish.has_changed().unwrap_or(true) {
                let Some(way) = turns.next() else { break };
                self.turn(*way, wish.rate).await;
            }
        }
    }

    /// One way for [`TURN`], or until something else is wanted; then waits for what was sent.
    async fn turn(&mut self, way: Way, rate: u32) {
        let tally = self.shop.tallies.of(way);
        let (begun, mut ended, mut sent) = (Instant::now(), 0, 0_u64);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut waiting = JoinSet::new();
        while begun.elapsed() < TURN && !self.wish.has_changed().unwrap_or(true) {
            ticks.tick().await;
            let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as u64;
            while waiting.try_join_next().is_some() {}
            for number in sent..due {
                if waiting.len() >= WAITING_LIMIT {
                    tally.shed();
                    continue;
                }
                let shop = Arc::clone(&self.shop);
                waiting.spawn(async move {
                    let number = usize::try_from(number).unwrap_or(0);
                    // What failed is in the tally.
                    drop(shop.product(way, number, POPULAR).await);
                });
            }
            sent = due;
            if begun.elapsed().as_secs() > ended {
                ended = begun.elapsed().as_secs();
                self.remember(tally.second(way));
            }
        }
        while waiting.join_next().await.is_some() {}
    }

    fn remember(&self, second: Second) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.len() == SECONDS_LIMIT {
            seconds.pop_front();
        }
        seconds.push_back(second);
    }
}
