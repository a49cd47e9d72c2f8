//! `/hotkeys`: the list, one key, promotion, removal, stats.
//!
//! Called by: operators, the CLI, the page.
//! Bound: a page of the list, one key, a body of at most [`crate::Limits::body_bytes`].
//! Invariant: a change is answered with success only after the store acknowledged it.

#![expect(unused_qualifications, reason = "the code that utoipa makes of `params`")]

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequestParts, RawQuery, State};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::future::poll_fn;
use heatsink_control::entry::Mitigation;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::document::{KeyProblems, ListProblems, PromoteProblems, Refusals};
use super::{Context, Shared, json};
use crate::audit::Asked;
use crate::control::{ControlError, Promotion};
use crate::key_name::{decode, hash_address, key_hash};
use crate::listing::Listing;
use crate::peers::Peer;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::view::{DemotionView, HotKeyPageView, HotKeyView, StatsView};
use crate::vocabulary::{MitigationName, OriginName, StatusName};

/// Most physical keys that one may be split over by hand.
const SPLIT_FACTOR_MAX: u32 = 1024;

/// Longest life of an entry: ten years.
const TTL_SECONDS_MAX: u64 = 315_360_000;

/// Bytes of a body that is too large which are read anyway, so that the client is not
/// cut off before it reads the answer.
const DISCARDED_BYTES: u64 = 1024 * 1024;

/// The filters and the order of the list. Read by [`Listing`]; these are their descriptions.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only describes the parameters, which are bytes and read by hand")]
pub(crate) struct ListParameters {
    /// Items on a page.
    #[param(minimum = 1, maximum = 1000, default = 100, example = 10)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
    /// `frequency`, the default: most requests first. `detected_at`: newest first. `key`: by bytes, or by
    /// hash if keys are hidden.
    #[param(inline, example = "frequency")]
    sort: Option<SortName>,
    /// Only these statuses, between commas.
    #[param(value_type = Option<Vec<StatusName>>, inline, style = Form, explode = false)]
    status: Option<String>,
    /// Only these origins, between commas.
    #[param(value_type = Option<Vec<OriginName>>, inline, style = Form, explode = false)]
    origin: Option<String>,
    /// Only these mitigations, between commas.
    #[param(value_type = Option<Vec<MitigationName>>, inline, style = Form, explode = false)]
    mitigation_type: Option<String>,
    /// Only keys that begin with this. Not if keys are hidden.
    prefix: Option<String>,
    /// Only keys that match this glob, as in Redis. Not if keys are hidden.
    #[param(example = "*")]
    r#match: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only describes a parameter")]
enum SortName {
    Frequency,
    DetectedAt,
    Key,
}

/// The hot keys of the fleet.
#[utoipa::path(
    get, path = "/hotkeys", operation_id = "list_hot_keys", tag = "hot keys",
    params(ListParameters),
    responses((status = 200, description = "A page of hot keys", body = HotKeyPageView), Refusals, ListProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn list(
    State(shared): Context,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let privacy = shared.settings.privacy;
    let listing = Listing::parse(query.as_deref(), privacy)?;
    let page = listing.page(shared.control.hot_keys());
    Ok(json(&HotKeyPageView {
        items: page.items.into_iter().map(|hot| HotKeyView::new(hot, privacy)).collect(),
        next_cursor: page.next_cursor,
        total: page.total,
    }))
}

/// One hot key.
#[utoipa::path(
    get, path = "/hotkeys/{key}", operation_id = "show_hot_key", tag = "hot keys",
    params(KeyParameter),
    responses((status = 200, description = "The hot key", body = HotKeyView), Refusals, KeyProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn show(
    State(shared): Context,
    KeyAddress(address): KeyAddress,
) -> Result<Response, Problem> {
    let key = shared.resolve(address)?;
    let hot = shared.control.hot_key(&key).ok_or_else(|| shared.unknown(&key))?;
    Ok(json(&HotKeyView::new(hot, shared.settings.privacy)))
}

/// Removes a key from the registry, ends its mitigation, and keeps it from being promoted
/// automatically for a while.
#[utoipa::path(
    delete, path = "/hotkeys/{key}", operation_id = "demote_hot_key", tag = "hot keys",
    params(KeyParameter),
    responses((status = 200, description = "It is removed", body = DemotionView), Refusals, KeyProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn demote(
    State(shared): Context,
    KeyAddress(address): KeyAddress,
    peer: Option<Extension<Arc<Peer>>>,
) -> Result<Response, Problem> {
    let key = shared.resolve(address)?;
    let asked = shared.asked("demoted".to_owned(), &key, peer);
    let demotion = shared.control.demote(&key).await;
    let demotion = asked.answered(demotion.map_err(|error| shared.problem(error, &key)))?;
    Ok(json(&DemotionView::new(&key, demotion, shared.settings.privacy)))
}

/// What the mitigation of a hot key achieves.
#[utoipa::path(
    get, path = "/hotkeys/{key}/stats", operation_id = "hot_key_stats", tag = "hot keys",
    params(KeyParameter),
    responses((status = 200, description = "Its figures", body = StatsView), Refusals, KeyProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn stats(
    State(shared): Context,
    KeyAddress(address): KeyAddress,
) -> Result<Response, Problem> {
    let key = shared.resolve(address)?;
    let stats = shared.control.stats(&key).ok_or_else(|| shared.unknown(&key))?;
    Ok(json(&StatsView::new(&key, stats, shared.settings.privacy)))
}

/// What to do about a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Promotion, example = json!({"mitigation_type": "split", "split_factor": 8, "ttl_seconds": 600}))]
pub(crate) struct PromotionBody {
    /// The mitigation.
    #[schema(value_type = MitigationName)]
    mitigation_type: String,
    /// Physical keys to split over: only with `split`, and then optional.
    #[schema(minimum = 2, maximum = 1024)]
    split_factor: Option<u32>,
    /// Seconds that the entry lives; without it, until it is removed.
    #[schema(minimum = 1, maximum = 315_360_000)]
    ttl_seconds: Option<u64>,
}

/// Forces a key into the registry with a given mitigation, hot or not. Replaces what the
/// registry holds of it.
#[utoipa::path(
    post, path = "/hotkeys/{key}/promote", operation_id = "promote_hot_key", tag = "hot keys",
    params(KeyParameter), request_body = PromotionBody,
    responses((status = 200, description = "The hot key that it now is", body = HotKeyView), Refusals, PromoteProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn promote(
    State(shared): Context,
    KeyAddress(address): KeyAddress,
    peer: Option<Extension<Arc<Peer>>>,
    body: Body,
) -> Result<Response, Problem> {
    let limits = shared.settings.limits;
    let body = tokio::time::timeout(limits.read_timeout, read(body, limits.body_bytes))
        .await
        .unwrap_or_else(|_| Err(Problem::too_slow()))?;
    let promotion = parse_promotion(&body)?;
    let key = shared.resolve(address)?;
    let asked = shared.asked(promotion.to_string(), &key, peer);
    let hot = shared.control.promote(&key, promotion).await;
    let hot = asked.answered(hot.map_err(|error| shared.problem(error, &key)))?;
    Ok(json(&HotKeyView::new(hot, shared.settings.privacy)))
}

/// The whole of a body. Its declared media type is not looked at: it can only be JSON.
async fn read(mut body: Body, limit_bytes: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || Problem::too_large(limit_bytes);
    if body.size_hint().lower() > limit_bytes as u64 + DISCARDED_BYTES {
        return Err(too_large());
    }
    let (mut bytes, mut total) = (Vec::new(), 0_u64);
    while let Some(frame) = poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| Problem::bad_request("The body broke off."))?;
        let Some(data) = frame.data_ref() else { continue };
        total += data.len() as u64;
        if total <= limit_bytes as u64 {
            bytes.extend_from_slice(data);
        } else if total > limit_bytes as u64 + DISCARDED_BYTES {
            return Err(too_large());
        }
    }
    if total > limit_bytes as u64 { Err(too_large()) } else { Ok(bytes) }
}

fn parse_promotion(body: &[u8]) -> Result<Promotion, Problem> {
    let body: PromotionBody = serde_json::from_slice(body).map_err(|error| {
        Problem::bad_request(format!(
            "The body must be JSON such as {{\"mitigation_type\": \"split\", \"split_factor\": 8, \
             \"ttl_seconds\": 600}}, the last two optional; it is not: {error}."
        ))
    })?;
    let mitigation: Mitigation = body.mitigation_type.parse().map_err(|_| {
        let known: Vec<&str> = Mitigation::ALL.iter().map(|one| one.name()).collect();
        let detail = format!("mitigation_type must be one of {}.", known.join(", "));
        Problem::unprocessable("unknown-mitigation", detail)
    })?;
    let invalid = |detail: String| Err(Problem::unprocessable("invalid", detail));
    let split_factor = match (mitigation, body.split_factor) {
        (Mitigation::Split, Some(factor)) if !(2..=SPLIT_FACTOR_MAX).contains(&factor) => {
            return invalid(format!("split_factor must be from 2 to {SPLIT_FACTOR_MAX}."));
        }
        (Mitigation::Split, factor) => factor,
        // What the list shows of a key that is not split may be sent back.
        (_, None | Some(1)) => None,
        (_, Some(_)) => {
            return invalid("split_factor is only for the mitigation split: leave it out.".into());
        }
    };
    if body.ttl_seconds.is_some_and(|ttl| !(1..=TTL_SECONDS_MAX).contains(&ttl)) {
        return invalid(format!(
            "ttl_seconds must be from 1 to {TTL_SECONDS_MAX}; leave it out for an entry that \
             stays until it is removed."
        ));
    }
    Ok(Promotion { mitigation, split_factor, ttl_seconds: body.ttl_seconds })
}

/// The key in the address, as bytes: the usual extractor demands UTF-8.
pub(crate) struct KeyAddress(pub(super) Vec<u8>);

impl<S: Sync> FromRequestParts<S> for KeyAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // The router has matched `/hotkeys/{key}` with or without one more segment.
        let segment = parts.uri.path().split('/').nth(2).unwrap_or_default();
        Ok(Self(decode(segment)))
    }
}

/// The key in the address.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only describes the parameter, which is bytes and read by hand")]
pub(crate) struct KeyParameter {
    /// The bytes of the key, percent-encoded: `/` is `%2F`. Or `hash:` and the `key_hash` of a
    /// key that is in the registry.
    #[param(example = "user:9999")]
    key: String,
}

impl Shared {
    /// The key that an address means. `hash:<16 hex>` is the registered key with this hash; if
    /// there is none, a registered key of just that name; else it is an error, for promotion
    /// too, since an outdated hash must not become a key.
    pub(super) fn resolve(&self, address: Vec<u8>) -> Result<Vec<u8>, Problem> {
        let Some(hash) = hash_address(&address) else { return Ok(address) };
        let mut hot_keys = self.control.hot_keys();
        let is_named = hot_keys.iter().any(|hot| hot.key == address);
        hot_keys.retain(|hot| key_hash(&hot.key) == hash);
        match hot_keys.len() {
            0 if is_named => Ok(address),
            0 => Err(Problem::control(ControlError::UnknownKey, &format!("hash:{hash}"))),
            1 => Ok(hot_keys.swap_remove(0).key),
            _ => Err(Problem::control(
                ControlError::Conflict { why: "Two keys have this hash: use the key.".into() },
                &format!("hash:{hash}"),
            )),
        }
    }

    /// For the log: somebody asks for a change of this key.
    fn asked(&self, what: String, key: &[u8], peer: Option<Extension<Arc<Peer>>>) -> Asked {
        let peer = peer.map(|Extension(peer)| peer);
        let Settings { privacy, token, .. } = &self.settings;
        Asked::new(what, key, *privacy, peer.as_deref(), token.is_some())
    }

    pub(super) fn unknown(&self, key: &[u8]) -> Problem {
        self.problem(ControlError::UnknownKey, key)
    }

    fn problem(&self, error: ControlError, key: &[u8]) -> Problem {
        let privacy = self.settings.privacy;
        Problem::control(error, &privacy.name(key).key).hiding(privacy, key)
    }
}
