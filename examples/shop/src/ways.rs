//! Four ways to read a product, each with Redis before Postgres.
//!
//! Called by: `shop`.

mod by_hand;

use std::time::Duration;

use heatsink::{Cache, Source, StoreState};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::database::{Database, Product};
use by_hand::ByHand;

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// `GET`; if there is nothing, query and `SET`.
    Naive,
    /// The same behind a lock of each instance.
    Locked,
    /// The old value is served while each instance refreshes it.
    Stale,
    /// The library: in process, one load for all instances, begun before the value expires.
    Heatsink,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Naive, Self::Locked, Self::Stale, Self::Heatsink];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Locked => "locked",
            Self::Stale => "stale",
            Self::Heatsink => "heatsink",
        }
    }
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    /// The instance's memory.
    Local,
    /// Redis.
    Shared,
    /// A query of this request's own.
    Loaded,
    /// What another request was fetching, from Redis or Postgres, and this one waited for.
    Joined,
}

/// A product with what is worth telling about it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Answer {
    pub(crate) product: Product,
    pub(crate) tier: Tier,
    /// Since it was read from the database.
    pub(crate) age_ms: u64,
    /// Whether its time to live was over.
    pub(crate) is_stale: bool,
}

/// One instance of the service.
pub(crate) struct Instance {
    cache: Cache<i64, Product>,
    by_hand: ByHand,
    database: Database,
}

impl Instance {
    pub(crate) async fn open(
        redis_url: &str,
        ttl: Duration,
        database: Database,
    ) -> Result<Self, Failure> {
        let cache = Cache::builder("shop-heatsink")
            .ttl(ttl)
            .early(1.0) // refreshed before it expires, by one instance
            .stale(ttl) // and if that is late: served while the refresh runs
            .stale_if_error(Duration::from_secs(60)) // and for longer while the database is down
            .redis(redis_url)
            .build()
            .await?;
        let by_hand = ByHand::open(redis_url, ttl, database.clone()).await?;
        Ok(Self { cache, by_hand, database })
    }

    pub(crate) async fn product(&self, way: Way, id: i64) -> Result<Option<Answer>, Failure> {
        match way {
            Way::Naive => self.by_hand.naive(id).await,
            Way::Locked => self.by_hand.locked(id).await,
            Way::Stale => self.by_hand.stale(id).await,
            Way::Heatsink => self.heatsink(id).await,
        }
    }

    /// All that a service needs to write.
    async fn heatsink(&self, id: i64) -> Result<Option<Answer>, Failure> {
        let database = self.database.clone();
        let load = move |_| async move { database.find(Way::Heatsink, id).await };
        let Some(entry) = self.cache.get(&id).load(load).await? else { return Ok(None) };
        Ok(Some(Answer {
            tier: match entry.source() {
                Source::Local => Tier::Local,
                Source::Shared => Tier::Shared,
                Source::Joined => Tier::Joined,
                _ => Tier::Loaded,
            },
            age_ms: u64::try_from(entry.age().as_millis()).unwrap_or(u64::MAX),
            is_stale: entry.is_stale(),
            product: entry.into_value(),
        }))
    }

    /// Why Redis cannot be asked, if so.
    pub(crate) fn redis_trouble(&self) -> Option<String> {
        match self.cache.shared_state()? {
            StoreState::CutOff(words) => Some(words.to_string()),
            _ => None,
        }
    }

    /// After a product was changed and the change committed.
    pub(crate) async fn forget(&self, id: i64) -> Result<(), Failure> {
        // Both are tried, whatever becomes of the first.
        let (ours, by_hand) = (self.cache.invalidate(&id).await, self.by_hand.forget(id).await);
        by_hand?;
        // Redis did not confirm: the library sends the deletion again, and serves nothing old here.
        ours.map_err(Failure::from)
    }
}
