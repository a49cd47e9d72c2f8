//! `/`: the live page, for people who open the admin address in a browser.
//!
//! Called by: browsers. Its files are open to all: they are the same for everybody and hold
//! nothing of the fleet. What the page shows it asks the API for, with the token that the
//! person types in, like any other client.
//! Invariant: it loads nothing from elsewhere and works offline. The policy lets the browser
//! run no script but the one file below, whatever a key may be called, and the script makes
//! text of every key, never markup.
//!
//! The script is written in parts, which are joined to one file here: there is nothing to
//! install and no step to run before `cargo build`.

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::response::{IntoResponse as _, Response};

/// What is open to all.
pub(crate) const PATHS: &[&str] = &["/", "/app.js", "/app.css", "/icon.svg"];

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/app.css");
const ICON: &str = include_str!("page/icon.svg");
const SCRIPT: &str = concat!(
    include_str!("page/text.js"),
    include_str!("page/api.js"),
    include_str!("page/state.js"),
    include_str!("page/charts.js"),
    include_str!("page/dialogs.js"),
    include_str!("page/overview.js"),
    include_str!("page/key.js"),
    include_str!("page/fleet.js"),
    include_str!("page/main.js"),
);

/// Only its own files, no markup made of text, and nobody may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

fn file(media_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, media_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}

/// Declares the route of one file.
macro_rules! files {
    ($($(#[doc = $doc:literal])+ $name:ident $path:literal $id:literal $media:literal $charset:literal $text:ident;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(
            get, path = $path, operation_id = $id, tag = "page",
            responses(
                (status = 200, description = "The file", body = String, content_type = $media),
                (status = 429, description = "Too many requests", body = crate::problem::Problem, content_type = "application/problem+json"),
            ),
            security(()),
        )]
        pub(crate) async fn $name() -> Response {
            file(concat!($media, $charset), $text)
        }
    )+};
}

files! {
    /// The live page, for people.
    page "/" "page" "text/html" "; charset=utf-8" PAGE;
    /// The page's script.
    script "/app.js" "page_script" "text/javascript" "; charset=utf-8" SCRIPT;
    /// The page's style.
    style "/app.css" "page_style" "text/css" "; charset=utf-8" STYLE;
    /// The page's icon.
    icon "/icon.svg" "page_icon" "image/svg+xml" "" ICON;
}
