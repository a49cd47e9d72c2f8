//! The shop: a few instances of one service, in one process for the sake of the demonstration.
//!
//! Called by: `web` and `load`, by the same two functions, so that what is measured is what visitors
//! get.
//! Invariant: instances share the database and Redis. Caches, locks and connections to Redis are each
//! one's own, as in processes of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::database::Database;
use crate::tally::Tallies;
use crate::ways::{Answer, Instance, Way};

/// How the shop is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) query: Duration,
    pub(crate) instances: u8,
    pub(crate) connections: u8,
}

pub(crate) struct Shop {
    pub(crate) settings: Settings,
    pub(crate) database: Database,
    pub(crate) tallies: Arc<Tallies>,
    instances: Vec<Instance>,
}

impl Shop {
    pub(crate) async fn open(
        database_url: &str,
        redis_url: &str,
        settings: Settings,
        tallies: &Arc<Tallies>,
    ) -> Result<Arc<Self>, Failure> {
        let database = Database::open(database_url, settings, Arc::clone(tallies)).await?;
        let mut instances = Vec::new();
        for _ in 0..settings.instances {
            instances.push(Instance::open(redis_url, settings.ttl, database.clone()).await?);
        }
        Ok(Arc::new(Self { settings, database, tallies: Arc::clone(tallies), instances }))
    }

    /// What a visitor sees: `number` picks the instance, as a load balancer would.
    pub(crate) async fn product(
        &self,
        way: Way,
        number: usize,
        id: i64,
    ) -> Result<Option<Answer>, Failure> {
        let begun = Instant::now();
        let answer = self.instances[number % self.instances.len()].product(way, id).await;
        self.tallies.of(way).answered(begun.elapsed(), &answer);
        answer
    }

    /// Why Redis cannot be asked, if so.
    pub(crate) fn redis_trouble(&self) -> Option<String> {
        self.instances[0].redis_trouble()
    }

    /// Changes a price: first in the database, and when that is committed, in the caches. `None`:
    /// there is no such product.
    pub(crate) async fn set_price(&self, id: i64, price_cents: i64) -> Result<Option<()>, Failure> {
        let is_there = self.database.set_price(id, price_cents).await?;
        if is_there {
            // Any instance will do: the others are told.
            self.instances[0].forget(id).await?;
        }
        Ok(is_there.then_some(()))
    }
}
