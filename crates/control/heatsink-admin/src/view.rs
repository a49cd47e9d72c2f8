//! The JSON that clients get, with its schemas.
//!
//! Called by: the routes and the stream of events; [`crate::client`] reads hot keys from it.
//! Invariant: names and units are part of the contract (`docs/api.md`); a field that is absent is
//! not known or does not apply. Every key passes through [`crate::Privacy`] here.

mod event;
mod fleet;
mod history;
mod hot_key;

pub(crate) use event::EventView;
pub(crate) use fleet::{HealthView, PolicyListView, PolicyView, ProxyListView, ReadinessView};
pub(crate) use history::{HistoryView, KeyHistoryView};
pub(crate) use hot_key::{DemotionView, HotKeyPageView, StatsView};
pub use hot_key::{HotKeyView, SplitView};
