//! `/history` and `/hotkeys/{key}/history`: the last minutes; and the task that records them.
//!
//! Called by: the page, `heatsink top`; the recorder by [`crate::Server`], for as long as it
//! runs.
//! Bound: see [`crate::history`].

#![expect(unused_qualifications, reason = "the code that utoipa makes of `params`")]

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{RawQuery, State};
use axum::response::Response;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::MissedTickBehavior;
use utoipa::IntoParams;

use super::document::{HistoryProblems, KeyProblems, Refusals};
use super::hot_keys::{KeyAddress, KeyParameter};
use super::{Context, Shared, json};
use crate::history::{History, SAMPLES, Sample};
use crate::problem::Problem;
use crate::query::Query;
use crate::view::{EventView, HistoryView, KeyHistoryView};

/// How much of it.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only describes the parameter, which is read by hand")]
pub(crate) struct HistoryParameters {
    /// At most this many samples, the newest ones.
    #[param(minimum = 1, maximum = 300, default = 300, example = 60)]
    samples: Option<u32>,
}

/// The last five minutes of the fleet, as the process that answers saw them.
#[utoipa::path(
    get, path = "/history", operation_id = "history", tag = "fleet",
    params(HistoryParameters),
    responses((status = 200, description = "The samples", body = HistoryView), Refusals, HistoryProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn history(
    State(shared): Context,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref(), &["samples"])?;
    let count = match query.text("samples")? {
        None => SAMPLES,
        Some(text) => {
            let count = text.parse().ok().filter(|count| (1..=SAMPLES).contains(count));
            count.ok_or_else(|| {
                Problem::bad_request(format!("samples must be a number from 1 to {SAMPLES}."))
            })?
        }
    };
    let view = {
        let history = shared.history();
        HistoryView::new(&history, count, shared.interval_ms(), shared.settings.privacy)
    };
    Ok(json(&view))
}

/// The last five minutes of a key, and what was decided about it.
#[utoipa::path(
    get, path = "/hotkeys/{key}/history", operation_id = "hot_key_history", tag = "hot keys",
    params(KeyParameter),
    responses((status = 200, description = "Its samples and decisions", body = KeyHistoryView), Refusals, KeyProblems),
    security(("token" = []), ()),
)]
pub(crate) async fn hot_key_history(
    State(shared): Context,
    KeyAddress(address): KeyAddress,
) -> Result<Response, Problem> {
    let key = shared.resolve(address)?;
    let view = {
        let history = shared.history();
        KeyHistoryView::new(&history, &key, shared.interval_ms(), shared.settings.privacy)
    };
    // A key that has left the registry is known for as long as something is kept of it.
    if view.is_empty() && shared.control.hot_key(&key).is_none() {
        return Err(shared.unknown(&key));
    }
    Ok(json(&view))
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, History> {
        // Whoever panicked left it whole: every change to it is complete or not made.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interval_ms(&self) -> u64 {
        self.settings.sample_interval.as_millis() as u64
    }
}

/// Takes samples and notes decisions until the task is dropped.
pub(crate) async fn record(shared: Arc<Shared>) {
    let mut events = shared.control.events();
    let mut ticks = tokio::time::interval(shared.settings.sample_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hears = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => take(&shared),
            event = events.recv(), if hears => match event {
                Ok(event) => shared.history().decided(event),
                // Decisions that were lost are missing from the history, nothing else.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => hears = false,
            },
        }
    }
}

fn take(shared: &Shared) {
    let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let sample = Sample::take(&*shared.control, at_ms);
    shared.history().keep(&sample);
    if shared.samples.receiver_count() > 0 {
        // Written once for all who listen.
        let (_, view) = EventView::sample(sample, shared.settings.privacy);
        shared.samples.send_replace(serde_json::to_string(&view).unwrap_or_default().into());
    }
}
