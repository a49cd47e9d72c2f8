//! Errors as people and programs get them: problem documents (RFC 9457).
//!
//! Called by: everything that refuses a request.
//! Invariant: every answer of 400 or above is one of these; `type` and `status` are stable,
//! `detail` says what to do. None of them quotes the request, so that a raw key in an address
//! does not come back where keys are hidden.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::control::ControlError;
use crate::key_name::Privacy;

/// An error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What kind of error this is: stable, for programs.
    #[serde(rename = "type")]
    #[schema(example = "urn:heatsink:problem:unknown-key")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong here, and what to do about it.
    detail: String,
    #[serde(skip)]
    retry_after: Option<Duration>,
}

impl Problem {
    fn new(status: StatusCode, kind: &str, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:heatsink:problem:{kind}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            retry_after: None,
        }
    }

    fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// No such route.
    pub(crate) fn unknown_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown-route",
            "There is nothing at this address",
            "The addresses are listed in /openapi.json. A key in an address must be \
             percent-encoded: / is %2F, and an empty key is addressed by its hash.",
        )
    }

    /// The route has no such method.
    pub(crate) fn wrong_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "wrong-method",
            "This address does not support the method",
            "Use one of the methods in the Allow header; /openapi.json describes them.",
        )
    }

    /// A parameter or a body that cannot be read.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "The request cannot be read", detail)
    }

    /// A request that can be read, but asks for what does not exist or makes no sense.
    pub(crate) fn unprocessable(kind: &str, detail: impl Into<String>) -> Self {
        let title = "What was asked for cannot be done";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, kind, title, detail)
    }

    /// The token is missing or wrong.
    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "A token is needed", detail)
    }

    /// The request seems to come from a web page of somebody else.
    pub(crate) fn foreign(detail: impl Into<String>) -> Self {
        let title = "The request was meant for another host";
        Self::new(StatusCode::FORBIDDEN, "foreign-origin", title, detail)
    }

    /// The body is too large.
    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "The body is too large",
            format!("Send at most {limit_bytes} bytes."),
        )
    }

    /// The body did not come in time.
    pub(crate) fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            "The body did not arrive in time",
            "Send the whole body at once.",
        )
    }

    /// Too many requests.
    pub(crate) fn too_many(wait: Duration, detail: impl Into<String>) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(status, "too-many-requests", "Too many requests", detail).retry_after(wait)
    }

    /// The answer took too long.
    pub(crate) fn timeout() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "timeout",
            "The control plane did not answer in time",
            "It is not known whether the change was made: look at the key, then try again.",
        )
        .retry_after(Duration::from_secs(1))
    }

    /// The process is not ready.
    pub(crate) fn not_ready(reasons: &[String]) -> Self {
        let detail = match reasons {
            [] => "Still starting, or stopping.".to_owned(),
            some => some.join(" "),
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "Not ready for traffic", detail)
            .retry_after(Duration::from_secs(1))
    }

    /// What the control plane refused, about the key that is shown as `key`.
    pub(crate) fn control(error: ControlError, key: &str) -> Self {
        match error {
            ControlError::UnknownKey => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-key",
                "This key is not in the registry",
                format!(
                    "{key:?} is not a hot key now. GET /hotkeys lists those that are; POST \
                     /hotkeys/{{key}}/promote makes it one."
                ),
            ),
            ControlError::NotAllowed { why } => Self::new(
                StatusCode::FORBIDDEN,
                "not-allowed",
                "The policy of this key does not allow it",
                format!("{why} GET /policy?key= shows the rule; change it to allow this."),
            ),
            ControlError::OwnKey => Self::new(
                StatusCode::FORBIDDEN,
                "own-key",
                "This is a key of Heatsink itself",
                "Keys that begin with heatsink:{ hold the registry, shards and copies; they are \
                 counted, and nothing else is done about them.",
            ),
            ControlError::Invalid { why } => Self::unprocessable("invalid", why),
            ControlError::Conflict { why } => Self::new(
                StatusCode::CONFLICT,
                "conflict",
                "Somebody else changed this key at the same time",
                format!(
                    "{why} Look at the key as it is now, then try again if it is still needed."
                ),
            ),
            ControlError::Full => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "registry-full",
                "The registry is full",
                "Remove a key with DELETE /hotkeys/{key}, or raise the bound in the \
                 configuration.",
            ),
            ControlError::StoreUnavailable { why } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The coordination store cannot be reached",
                format!(
                    "{why} Nothing was acknowledged. Proxies go on with what they see \
                     themselves; try again when /readyz no longer says degraded."
                ),
            )
            .retry_after(Duration::from_secs(1)),
        }
    }

    /// The same without `key`, where keys are hidden.
    pub(crate) fn hiding(mut self, privacy: Privacy, key: &[u8]) -> Self {
        self.detail = privacy.text(self.detail, key);
        self
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"heatsink\""));
        }
        if let Some(wait) = self.retry_after {
            headers
                .insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil().max(1.0) as u64));
        }
        response
    }
}
