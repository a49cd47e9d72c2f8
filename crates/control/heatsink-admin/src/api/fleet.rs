//! The fleet and this process: members, policy, metrics, health.
//!
//! Called by: operators, Prometheus, orchestrators.
//! Bound: as many members as the store keeps, as many rules as a configuration may have; see [`crate::metrics`] for the metrics.

#![expect(unused_qualifications, reason = "the code that utoipa makes of `params`")]

use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use utoipa::IntoParams;

use super::document::{NotReady, PolicyProblems, Refusals};
use super::{Context, json};
use crate::metrics::text;
use crate::problem::Problem;
use crate::query::Query;
use crate::view::{HealthView, PolicyListView, PolicyView, ProxyListView, ReadinessView};

/// The live members of the fleet.
#[utoipa::path(
    get, path = "/proxies", operation_id = "list_proxies", tag = "fleet",
    responses((status = 200, description = "The members", body = ProxyListView), Refusals),
    security(("token" = []), ()),
)]
pub(crate) async fn proxies(State(shared): Context) -> Response {
    json(&ProxyListView::new(shared.control.proxies()))
}

/// The key that is asked about.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only describes the parameter, which is bytes and read by hand")]
pub(crate) struct PolicyParameters {
    /// The bytes of the key, percent-encoded; it need not be hot. Or `hash:` and the `key_hash`
    /// of a key that is in the registry.
    #[param(example = "user:9999")]
    key: String,
}

/// The policy that holds for a key, and the rule that decided it.
#[utoipa::path(
    get, path = "/policy", operation_id = "show_policy", tag = "fleet",
    params(PolicyParameters),
    responses((status = 200, description = "The policy", body = PolicyView), Refusals, PolicyProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn policy(
    State(shared): Context,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref(), &["key"])?;
    let Some(key) = query.bytes("key") else {
        let detail = "Say which key: /policy?key=user%3A9999. All rules are in /policies.";
        return Err(Problem::bad_request(detail));
    };
    // Of a hash that no registered key has, nothing can be said but that it might be a key.
    let key = &shared.resolve(key.to_vec()).unwrap_or_else(|_| key.to_vec());
    Ok(json(&PolicyView::new(key, shared.control.policy(key), shared.settings.privacy)))
}

/// The policies in force in the process that answers: that of each rule, in order, and the
/// default.
#[utoipa::path(
    get, path = "/policies", operation_id = "list_policies", tag = "fleet",
    responses((status = 200, description = "The policies", body = PolicyListView), Refusals),
    security(("token" = []), ()),
)]
pub(crate) async fn policies(State(shared): Context) -> Response {
    json(&PolicyListView::new(shared.control.policies(), shared.settings.privacy))
}

/// The figures of this process, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "process",
    responses(
        (status = 200, description = "Text exposition format 0.0.4", body = String, content_type = "text/plain; version=0.0.4"),
        Refusals,
    ),
    security(("token" = []), ()),
)]
pub(crate) async fn metrics(State(shared): Context) -> Response {
    let settings = &shared.settings;
    let text = text::encode(&shared.control.metrics(), settings.privacy, settings.metric_keys);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Whether the process lives.
#[utoipa::path(
    get, path = "/healthz", operation_id = "healthz", tag = "process",
    responses((status = 200, description = "It lives", body = HealthView)),
    security(()),
)]
pub(crate) async fn healthz() -> Response {
    json(&HealthView { status: "ok" })
}

/// Whether the process should be given traffic. A degraded process should: it serves requests
/// as before.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "process",
    responses((status = 200, description = "It serves requests", body = ReadinessView), NotReady),
    security(()),
)]
pub(crate) async fn readyz(State(shared): Context) -> Result<Response, Problem> {
    let readiness = shared.control.readiness();
    if !readiness.ready {
        return Err(Problem::not_ready(&readiness.reasons));
    }
    Ok(json(&ReadinessView::from(readiness)))
}
