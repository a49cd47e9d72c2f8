//! Events as JSON.
//!
//! Called by: the stream of events.

use serde::Serialize;
use utoipa::ToSchema;

use super::fleet::ReadinessView;
use super::history::SampleView;
use super::hot_key::HotKeyView;
use crate::control::{Change, Event};
use crate::history::Sample;
use crate::key_name::Privacy;
use crate::timestamp::rfc3339;

/// The data of an event: one of its fields besides `at`, as the event's name says.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventView {
    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    at: Option<String>,
    /// Of `hotkey`: the key as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hotkey: Option<HotKeyView>,
    /// Of `removed`: the key that left the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    removed: Option<RemovedView>,
    /// Of `readiness`: the state of the process as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    readiness: Option<ReadinessView>,
    /// Of `sample`: the figures as they are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sample: Option<SampleView>,
    /// Of `lagged`: events that were lost because they were not read in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    missed: Option<u64>,
}

/// A key that left the registry.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Removed)]
pub(crate) struct RemovedView {
    /// The key, as in the list.
    key: String,
    /// Its hash, as in the list.
    key_hash: String,
    /// Why it left.
    reason: String,
}

impl EventView {
    /// The event's name and data.
    pub(crate) fn new(event: Event, privacy: Privacy) -> (&'static str, Self) {
        let at = Some(rfc3339(event.at_ms));
        match event.change {
            Change::HotKey(hot) => {
                let hotkey = Some(HotKeyView::new(*hot, privacy));
                ("hotkey", Self { at, hotkey, ..Self::default() })
            }
            Change::Removed { key, reason } => {
                let name = privacy.name(&key);
                let reason = privacy.text(reason, &key);
                let removed = Some(RemovedView { key: name.key, key_hash: name.key_hash, reason });
                ("removed", Self { at, removed, ..Self::default() })
            }
            Change::Readiness(readiness) => {
                let readiness = Some(readiness.into());
                ("readiness", Self { at, readiness, ..Self::default() })
            }
        }
    }

    /// A sample, for whoever asked for them.
    pub(crate) fn sample(sample: Sample, privacy: Privacy) -> (&'static str, Self) {
        let at = Some(rfc3339(sample.at_ms));
        let sample = Some(SampleView::new(sample, privacy));
        ("sample", Self { at, sample, ..Self::default() })
    }

    /// What a reader is told that was too slow.
    pub(crate) fn lagged(missed: u64) -> (&'static str, Self) {
        ("lagged", Self { missed: Some(missed), ..Self::default() })
    }
}
