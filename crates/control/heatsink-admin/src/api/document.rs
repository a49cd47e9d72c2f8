//! The `OpenAPI` document: what is said once for all routes, and its own route.
//!
//! Called by: [`super::router`] when it collects the routes.
//! Invariant: every status that a route can answer with is declared; `tests/http/openapi.rs` drives
//! the API from the document and checks it.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::header::Header;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response as Declared, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi as _, PartialSchema as _, ToSchema as _};

use crate::problem::Problem;
use crate::view::EventView;

#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "Heatsink",
    description = "Hot keys of a fleet of Heatsink proxies: what is hot, why, what is done about \
                   it, and how to change that. Errors are problem documents (RFC 9457). \
                   Timestamps are RFC 3339. A bearer token is needed if one is configured; \
                   without one the API listens on loopback only and refuses requests that are \
                   addressed to other hosts or come from web pages of other origins.",
))]
struct Preamble;

/// The document without its routes.
pub(super) fn preamble() -> OpenApi {
    Preamble::openapi()
}

/// Adds what no route mentions by itself.
pub(super) fn finish(openapi: &mut OpenApi) {
    let components = openapi.components.get_or_insert_default();
    let mut schemas = vec![
        (Problem::name().into_owned(), Problem::schema()),
        ("Event".to_owned(), EventView::schema()),
    ];
    Problem::schemas(&mut schemas);
    EventView::schemas(&mut schemas);
    for (name, schema) in schemas {
        components.schemas.entry(name).or_insert(schema);
    }
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The token of the configuration"))
        .build();
    components.add_security_scheme("token", SecurityScheme::Http(token));
}

/// The document as it is sent.
#[derive(Clone)]
pub(super) struct Document(pub(super) Bytes);

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "process",
    responses((status = 200, description = "An OpenAPI document", body = Object), Refusals),
    security(("token" = []), ()),
)]
pub(crate) async fn openapi(Extension(Document(text)): Extension<Document>) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Names sets of problems that routes declare together.
macro_rules! problem_sets {
    ($($(#[$doc:meta])+ $name:ident { $($status:literal: $description:literal,)+ })+) => {$(
        $(#[$doc])+
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Declared>> {
                BTreeMap::from([$(($status.to_owned(), problem($status, $description))),+])
            }
        }
    )+};
}

fn problem(status: &str, description: &str) -> RefOr<Declared> {
    let content =
        ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    let header = |name, description: &str| {
        let mut header = Header::default();
        header.description = Some(description.to_owned());
        (name, header)
    };
    let extra = match status {
        "401" => Some(header("WWW-Authenticate", "Says that a bearer token is needed")),
        "429" | "503" => Some(header("Retry-After", "Seconds to wait before the next try")),
        _ => None,
    };
    match extra {
        Some((name, header)) => response.header(name, header),
        None => response,
    }
    .build()
    .into()
}

problem_sets! {
    /// What every route but the open ones can answer. Declared first: a route's own words
    /// about a status win.
    Refusals {
        "400": "The request cannot be read",
        "401": "The token is missing or wrong",
        "403": "Forbidden: by the policy of the key; or, where there is no token, because the \
                request was meant for another host or comes from a foreign web page",
        "429": "Too many requests: wait as long as Retry-After says",
        "503": "The control plane or its store did not answer: try again",
    }
    /// Of the list.
    ListProblems {
        "400": "A parameter is unknown, repeated or out of its range",
        "422": "Keys are hidden, so they cannot be searched by their letters",
    }
    /// Of the history.
    HistoryProblems {
        "400": "A parameter is unknown, repeated or out of its range",
    }
    /// Of a question about a policy.
    PolicyProblems {
        "400": "The key is missing, or a parameter is unknown",
    }
    /// Of one key.
    KeyProblems {
        "404": "The key is not in the registry",
        "409": "Somebody else changed the key at the same time",
    }
    /// Of a promotion.
    PromoteProblems {
        "400": "The body is not JSON of the form that is asked for",
        "404": "No key in the registry has this hash",
        "408": "The body did not arrive in time",
        "409": "Somebody else changed the key at the same time",
        "413": "The body is too large",
        "422": "The mitigation is unknown, or does not fit the other fields",
        "507": "The registry is full",
    }
    /// Of the check of readiness.
    NotReady {
        "503": "Not ready for traffic; the detail says why",
    }
}
