//! `/events`: what changes, as it changes.
//!
//! Called by: the page, `heatsink top`, scripts.
//! Bound: [`crate::Limits::event_clients`] streams; a stream holds one event, the channel
//! behind it is bounded by the control plane, and a reader that is too slow is told how many
//! events it lost. Samples are not queued: a slow reader gets the newest.
//! Invariant: a client that reads `/hotkeys` after the first event, `hello`, and again after
//! each `lagged`, misses nothing: the subscription is older than `hello`.
//!
//! The id of an event counts up by one; after a reconnect the events between are not sent
//! again (the list has their outcome), so a client begins with `hello` each time.

#![expect(unused_qualifications, reason = "the code that utoipa makes of `params`")]

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use utoipa::IntoParams;

use super::Context;
use super::document::Refusals;
use crate::control::Event;
use crate::key_name::Privacy;
use crate::problem::Problem;
use crate::query::Query;
use crate::view::EventView;

/// What is told.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only describes the parameter, which is read by hand")]
pub(crate) struct EventParameters {
    /// Also `sample`, each second: the figures that change all the time.
    #[param(default = false, example = true)]
    samples: Option<bool>,
}

/// Changes as server-sent events. The first is `hello`; then `hotkey` (a key came or changed),
/// `removed`, `readiness`, and `lagged` when events were lost because they were not read in
/// time; and `sample`, if asked for. After `hello` and `lagged`, read `/hotkeys`. The data is
/// the schema `Event`; ids count up by one.
#[utoipa::path(
    get, path = "/events", operation_id = "events", tag = "hot keys",
    params(EventParameters),
    responses((status = 200, description = "The stream", body = String, content_type = "text/event-stream"), Refusals),
    security(("token" = []), ()),
)]
pub(crate) async fn events(
    State(shared): Context,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref(), &["samples"])?;
    let samples = match query.text("samples")? {
        None | Some("false") => None,
        Some("true") => Some(shared.samples.subscribe()),
        Some(_) => return Err(Problem::bad_request("samples must be true or false.")),
    };
    let Ok(slot) = Arc::clone(&shared.event_slots).try_acquire_owned() else {
        let wait = shared.settings.limits.event_keep_alive;
        let detail = "Too many clients listen for events: close one of them, or try again later.";
        return Err(Problem::too_many(wait, detail));
    };
    let stream = Stream {
        said_hello: false,
        events: shared.control.events(),
        samples,
        stopping: shared.stopping.clone(),
        privacy: shared.settings.privacy,
        _slot: slot,
    };
    let keep_alive = KeepAlive::new().interval(shared.settings.limits.event_keep_alive);
    Ok(Sse::new(stream::unfold(stream, Stream::next)).keep_alive(keep_alive).into_response())
}

/// One client's stream.
struct Stream {
    said_hello: bool,
    events: broadcast::Receiver<Event>,
    samples: Option<watch::Receiver<Arc<str>>>,
    stopping: watch::Receiver<bool>,
    privacy: Privacy,
    _slot: OwnedSemaphorePermit,
}

impl Stream {
    async fn next(mut self) -> Option<(Result<Frame, Infallible>, Self)> {
        let frame = if self.said_hello {
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                event = self.events.recv() => match event {
                    Ok(event) => {
                        let id = event.id.to_string();
                        frame(EventView::new(event, self.privacy)).id(id)
                    }
                    Err(RecvError::Lagged(missed)) => frame(EventView::lagged(missed)),
                    Err(RecvError::Closed) => return None,
                },
                Some(sample) = next_sample(&mut self.samples) => {
                    Frame::default().event("sample").data(sample)
                }
            }
        } else {
            self.said_hello = true;
            frame(("hello", EventView::default()))
        };
        Some((Ok(frame), self))
    }
}

/// The next sample, if they were asked for.
async fn next_sample(samples: &mut Option<watch::Receiver<Arc<str>>>) -> Option<Arc<str>> {
    let samples = samples.as_mut()?;
    samples.changed().await.ok()?;
    Some(Arc::clone(&samples.borrow_and_update()))
}

fn frame((name, view): (&'static str, EventView)) -> Frame {
    Frame::default().event(name).data(serde_json::to_string(&view).unwrap_or_default())
}
