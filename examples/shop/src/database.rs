//! Postgres: one table, and a query that takes its time.
//!
//! Called by: the four ways.
//! Bound: `connections` connections; a request waits for one for [`PATIENCE`] at most.
//! Invariant: each query is counted when it is sent, whoever sends it and whatever becomes of it.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

use crate::Failure;
use crate::shop::Settings;
use crate::tally::Tallies;
use crate::ways::Way;

const PATIENCE: Duration = Duration::from_secs(5);

/// The sleep stands for what makes real queries slow.
const FIND: &str = "SELECT name, price_cents, pg_sleep($2)::text \
                    FROM heatsink_shop_products WHERE id = $1";
const SET_PRICE: &str = "UPDATE heatsink_shop_products SET price_cents = $2 WHERE id = $1";
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS heatsink_shop_products (
        id int8 PRIMARY KEY, name text NOT NULL, price_cents int8 NOT NULL);
    INSERT INTO heatsink_shop_products
        SELECT id, 'Product ' || id, 100 * id FROM generate_series(1, 100) AS id
        ON CONFLICT DO NOTHING;";
/// Postgres's own count of [`FIND`]: that our numbers are real is easy to check.
const CALLS: &str = "SELECT coalesce(sum(calls), 0)::int8 FROM pg_stat_statements \
                     WHERE query LIKE 'SELECT name, price\\_cents, pg\\_sleep%'";

/// What the shop sells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Product {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) price_cents: i64,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Database {
    pool: Pool,
    /// Beside the pool, so that it can be asked while that is exhausted.
    observer: Arc<tokio_postgres::Client>,
    query_s: f64,
    tallies: Arc<Tallies>,
}

impl Database {
    pub(crate) async fn open(
        url: &str,
        settings: Settings,
        tallies: Arc<Tallies>,
    ) -> Result<Self, Failure> {
        let config: tokio_postgres::Config = url.parse()?;
        let (observer, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        observer.batch_execute(SCHEMA).await?;
        // Where it cannot be had, there is no second count.
        let _ = observer.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = deadpool_postgres::Manager::from_config(config, NoTls, recycling);
        let pool = Pool::builder(manager)
            .runtime(Runtime::Tokio1)
            .max_size(settings.connections.into())
            .wait_timeout(Some(PATIENCE))
            .create_timeout(Some(PATIENCE))
            .build()?;
        let query_s = settings.query.as_secs_f64();
        Ok(Self { pool, observer: Arc::new(observer), query_s, tallies })
    }

    pub(crate) async fn find(&self, way: Way, id: i64) -> Result<Option<Product>, PoolError> {
        let demand = self.tallies.of(way).demand();
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(FIND).await?;
        demand.sent();
        let row = client.query_opt(&statement, &[&id, &self.query_s]).await?;
        Ok(row.map(|row| Product { id, name: row.get(0), price_cents: row.get(1) }))
    }

    /// Whether there is such a product.
    pub(crate) async fn set_price(&self, id: i64, cents: i64) -> Result<bool, PoolError> {
        let client = self.pool.get().await?;
        Ok(client.execute(SET_PRICE, &[&id, &cents]).await? > 0)
    }

    /// How many queries Postgres says it has answered, if it counts them.
    pub(crate) async fn calls(&self) -> Option<i64> {
        Some(self.observer.query_one(CALLS, &[]).await.ok()?.get(0))
    }
}
