//! Routes.
//!
//! Called by: visitors, and the page.
//! Bound: requests are small; `/load` takes no more than [`RATE_LIMIT`](crate::load::RATE_LIMIT).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::load::{Load, Target, Wish};
use crate::shop::Shop;
use crate::tally::{Second, Total};
use crate::ways::{Answer, Way};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

#[derive(Clone)]
struct Context {
    shop: Arc<Shop>,
    load: Load,
    /// Visitors, who are dealt out over the instances in turn.
    visitors: Arc<AtomicUsize>,
}

pub(crate) fn routes(shop: Arc<Shop>, load: Load) -> Router {
    let file = |media: &'static str, text: &'static str| {
        get(move || async move {
            let headers = [
                (CONTENT_TYPE, media),
                (CONTENT_SECURITY_POLICY, POLICY),
                (CACHE_CONTROL, "no-cache"),
            ];
            (headers, text)
        })
    };
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/product/{id}", get(product).put(change_price))
        .route("/stats", get(stats))
        .route("/load", put(set_load))
        .with_state(Context { shop, load, visitors: Arc::default() })
}

#[derive(Deserialize)]
struct WayOf {
    #[serde(default = "heatsink")]
    way: Way,
}

fn heatsink() -> Way {
    Way::Heatsink
}

async fn product(
    State(context): State<Context>,
    Path(id): Path<i64>,
    Query(WayOf { way }): Query<WayOf>,
) -> Result<Json<Answer>, Problem> {
    let visitor = context.visitors.fetch_add(1, Ordering::Relaxed);
    context.shop.product(way, visitor, id).await?.map(Json).ok_or(Problem::Unknown)
}

#[derive(Deserialize)]
struct Price {
    price_cents: i64,
}

async fn change_price(
    State(context): State<Context>,
    Path(id): Path<i64>,
    Json(Price { price_cents }): Json<Price>,
) -> Result<StatusCode, Problem> {
    let changed = context.shop.set_price(id, price_cents).await?;
    changed.map(|()| StatusCode::NO_CONTENT).ok_or(Problem::Unknown)
}

#[derive(Serialize)]
struct Stats {
    load: Wish,
    ttl_ms: u128,
    query_ms: u128,
    instances: u8,
    connections: u8,
    /// Why Redis cannot be asked; nothing if it can.
    redis_trouble: Option<String>,
    /// What Postgres says; nothing if it does not count.
    postgres_calls: Option<i64>,
    ways: Vec<Total>,
    seconds: Vec<Second>,
}

async fn stats(State(Context { shop, load, .. }): State<Context>) -> Json<Stats> {
    Json(Stats {
        load: load.wish(),
        ttl_ms: shop.settings.ttl.as_millis(),
        query_ms: shop.settings.query.as_millis(),
        instances: shop.settings.instances,
        connections: shop.settings.connections,
        redis_trouble: shop.redis_trouble(),
        postgres_calls: shop.database.calls().await,
        ways: shop.tallies.totals(),
        seconds: load.seconds(),
    })
}

#[derive(Deserialize)]
struct NewLoad {
    target: Target,
    rate: u32,
}

async fn set_load(
    State(context): State<Context>,
    Json(NewLoad { target, rate }): Json<NewLoad>,
) -> Json<Wish> {
    context.load.set(target, rate);
    Json(context.load.wish())
}

enum Problem {
    Unknown,
    Failed(Failure),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self {
            Self::Unknown => (StatusCode::NOT_FOUND, "no such product\n").into_response(),
            Self::Failed(failure) => {
                eprintln!("shop: {failure}");
                (StatusCode::SERVICE_UNAVAILABLE, "try again later\n").into_response()
            }
        }
    }
}
