//! What services write themselves: three ways with a Redis client and a query.
//!
//! Called by: `ways`. Nothing here uses the library; none of it is meant to be copied.
//! Bound: one connection to Redis, [`LOCKS`] locks, a mark for each product that is being refreshed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use super::{Answer, Tier, Way};
use crate::Failure;
use crate::database::{Database, Product};

/// Products share them.
const LOCKS: usize = 64;

/// What lies in Redis.
#[derive(Serialize, Deserialize)]
struct Cached {
    product: Product,
    stored_at_ms: u64,
}

#[derive(Clone)]
pub(super) struct ByHand {
    redis: MultiplexedConnection,
    database: Database,
    ttl: Duration,
    locks: Arc<[tokio::sync::Mutex<()>; LOCKS]>,
    refreshing: Arc<Mutex<HashSet<i64>>>,
}

impl ByHand {
    pub(super) async fn open(
        redis_url: &str,
        ttl: Duration,
        database: Database,
    ) -> Result<Self, Failure> {
        let redis = redis::Client::open(redis_url)?.get_multiplexed_async_connection().await?;
        let locks = Arc::new(std::array::from_fn(|_| tokio::sync::Mutex::default()));
        Ok(Self { redis, database, ttl, locks, refreshing: Arc::default() })
    }

    /// Each request that finds nothing asks the database.
    pub(super) async fn naive(&self, id: i64) -> Result<Option<Answer>, Failure> {
        if let Some(cached) = self.get(Way::Naive, id).await? {
            return Ok(Some(answer(cached, Tier::Shared)));
        }
        self.query(Way::Naive, id, self.ttl).await
    }

    /// One request of this instance asks; the others wait for it, and look again.
    pub(super) async fn locked(&self, id: i64) -> Result<Option<Answer>, Failure> {
        if let Some(cached) = self.get(Way::Locked, id).await? {
            return Ok(Some(answer(cached, Tier::Shared)));
        }
        let guard = self.locks[id.rem_euclid(LOCKS as i64) as usize].lock().await;
        let answer = match self.get(Way::Locked, id).await? {
            Some(cached) => Some(answer(cached, Tier::Joined)),
            None => self.query(Way::Locked, id, self.ttl).await?,
        };
        drop(guard);
        Ok(answer)
    }

    /// Redis keeps a product for twice its time to live. In the second half it is served, and one
    /// task of this instance refreshes it. A cold start is as in the naive way.
    pub(super) async fn stale(&self, id: i64) -> Result<Option<Answer>, Failure> {
        let Some(cached) = self.get(Way::Stale, id).await? else {
            return self.query(Way::Stale, id, 2 * self.ttl).await;
        };
        let mut answer = answer(cached, Tier::Shared);
        answer.is_stale = u128::from(answer.age_ms) > self.ttl.as_millis();
        if answer.is_stale && locked(&self.refreshing).insert(id) {
            let this = self.clone();
            tokio::spawn(async move {
                // What fails here is tried again by the next request.
                let _ = this.query(Way::Stale, id, 2 * this.ttl).await;
                locked(&this.refreshing).remove(&id);
            });
        }
        Ok(Some(answer))
    }

    pub(super) async fn forget(&self, id: i64) -> Result<(), Failure> {
        let keys = [Way::Naive, Way::Locked, Way::Stale].map(|way| key(way, id));
        let _: u64 = self.redis.clone().del(&keys).await?;
        Ok(())
    }

    async fn query(
        &self,
        way: Way,
        id: i64,
        kept_for: Duration,
    ) -> Result<Option<Answer>, Failure> {
        let Some(product) = self.database.find(way, id).await? else { return Ok(None) };
        let cached = Cached { product, stored_at_ms: unix_ms() };
        let json = serde_json::to_vec(&cached)?;
        let ms = u64::try_from(kept_for.as_millis())?;
        let _: () = self.redis.clone().pset_ex(key(way, id), json, ms).await?;
        Ok(Some(answer(cached, Tier::Loaded)))
    }

    async fn get(&self, way: Way, id: i64) -> Result<Option<Cached>, Failure> {
        let json: Option<Vec<u8>> = self.redis.clone().get(key(way, id)).await?;
        Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
    }
}

/// Redis forgets what is too old; only [`ByHand::stale`] has to look.
fn answer(cached: Cached, tier: Tier) -> Answer {
    let age_ms = unix_ms().saturating_sub(cached.stored_at_ms);
    Answer { product: cached.product, tier, age_ms, is_stale: false }
}

fn key(way: Way, id: i64) -> String {
    format!("shop-{}:{id}", way.name())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
