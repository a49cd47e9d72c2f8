//! The routes, and what stands in front of all of them.
//!
//! Called by: [`crate::Server`], once, to build the router.
//! Bound: see [`crate::Limits`].
//! Invariant: a route and its entry in the `OpenAPI` document are one registration, so neither
//! exists without the other; every refusal is a [`Problem`].

mod document;
mod events;
mod fleet;
mod history;
mod hot_keys;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::control::Control;
use crate::history::History;
use crate::page;
use crate::peers::Peer;
use crate::problem::Problem;
use crate::rate::Bucket;
use crate::settings::Settings;

pub(crate) use history::record;

/// What the routes share.
pub(crate) struct Shared {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) settings: Settings,
    access: Access,
    /// Requests that passed the check of access.
    requests: Bucket,
    /// Requests that did not, and the page: strangers cannot use up what operators need.
    strangers: Bucket,
    event_slots: Arc<Semaphore>,
    history: Mutex<History>,
    /// The last sample as JSON. A listener that is too slow for one gets the next.
    samples: watch::Sender<Arc<str>>,
    /// Ends the streams of events when the server stops.
    stopping: watch::Receiver<bool>,
}

impl Shared {
    pub(crate) fn new(
        control: Arc<dyn Control>,
        mut settings: Settings,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let access = match settings.token.clone() {
            Some(token) => Access::Token(token),
            None => Access::Local { allowed_hosts: std::mem::take(&mut settings.allowed_hosts) },
        };
        let limits = settings.limits;
        let bucket = || Bucket::new(limits.requests_per_second, limits.burst, Instant::now());
        Self {
            control,
            access,
            requests: bucket(),
            strangers: bucket(),
            event_slots: Arc::new(Semaphore::new(limits.event_clients)),
            history: Mutex::default(),
            samples: watch::Sender::new(Arc::from("")),
            stopping,
            settings,
        }
    }
}

/// The state of every route.
type Context = State<Arc<Shared>>;

/// The router and the `OpenAPI` document that describes it.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let (router, mut openapi) = OpenApiRouter::with_openapi(document::preamble())
        .routes(routes!(hot_keys::list))
        .routes(routes!(hot_keys::show, hot_keys::demote))
        .routes(routes!(hot_keys::promote))
        .routes(routes!(hot_keys::stats))
        .routes(routes!(history::hot_key_history))
        .routes(routes!(history::history))
        .routes(routes!(fleet::proxies))
        .routes(routes!(fleet::policy))
        .routes(routes!(fleet::policies))
        .routes(routes!(fleet::metrics))
        .routes(routes!(fleet::healthz))
        .routes(routes!(fleet::readyz))
        .routes(routes!(events::events))
        .routes(routes!(document::openapi))
        .routes(routes!(page::page))
        .routes(routes!(page::script))
        .routes(routes!(page::style))
        .routes(routes!(page::icon))
        .split_for_parts();
    document::finish(&mut openapi);
    let text = Bytes::from(serde_json::to_vec(&openapi).unwrap_or_default());
    router
        .layer(axum::Extension(document::Document(text)))
        .fallback(async || Problem::unknown_route())
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .layer(middleware::from_fn_with_state(Arc::clone(shared), guard))
        .with_state(Arc::clone(shared))
}

/// Access, rate and time: before any route sees a request.
async fn guard(State(shared): Context, request: Request, next: Next) -> Response {
    let mut response = if let Err(problem) = admit(&shared, &request) {
        problem.into_response()
    } else {
        tokio::time::timeout(shared.settings.limits.request_timeout, next.run(request))
            .await
            .unwrap_or_else(|_| Problem::timeout().into_response())
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn admit(shared: &Shared, request: &Request) -> Result<(), Problem> {
    let now = Instant::now();
    let bucket = match request.uri().path() {
        // A flood of requests must not make the process look dead.
        "/healthz" | "/readyz" => return Ok(()),
        path if page::PATHS.contains(&path) => &shared.strangers,
        _ => {
            if let Err(problem) = shared.access.check(request.headers()) {
                shared.strangers.take(now).map_err(too_many)?;
                return Err(problem);
            }
            let peer = request.extensions().get::<Arc<Peer>>();
            if peer.is_some_and(|peer| !peer.pass()) {
                return Err(no_place());
            }
            &shared.requests
        }
    };
    bucket.take(now).map_err(too_many)
}

fn too_many(wait: Duration) -> Problem {
    Problem::too_many(
        wait,
        "Wait as long as Retry-After says. One page of a list can hold 1000 \
                             items, and /events tells of changes without asking.",
    )
}

fn no_place() -> Problem {
    Problem::too_many(
        Duration::from_secs(1),
        "Too many connections are open: close some that are not needed, and try again.",
    )
}

/// A JSON answer.
fn json(view: &impl Serialize) -> Response {
    match serde_json::to_vec(view) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
