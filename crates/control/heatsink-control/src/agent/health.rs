//! Whether a proxy is on its own, since when and why.
//!
//! Called by: the agent. Invariant: a proxy is on its own if the subscription is down, the
//! store took no heartbeat for `store_patience`, the registry could not be read for as long,
//! or for `aggregator_patience` no aggregator was alive or nobody said who is.

use std::time::Duration;

use crate::settings::Settings;
use crate::words;

/// Whether this proxy works with the fleet, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It is on its own: requests are served, with local detection.
    pub is_degraded: bool,
    /// `ok`, or `degraded: ` and why.
    pub words: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Store,
    Registry,
    Aggregators,
    Members,
}

#[derive(Debug)]
pub(super) struct Health {
    store_ok_at: Duration,
    why: Option<String>,
    subscription_down_since: Option<Duration>,
    no_aggregator_since: Option<Duration>,
    /// The last list of members; an old one says nothing of who is alive.
    members_at: Duration,
    unsynced_since: Option<Duration>,
    /// The first trouble, and since when it is one.
    trouble: Option<(Trouble, Duration)>,
}

impl Health {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            store_ok_at: now,
            why: None,
            subscription_down_since: None,
            no_aggregator_since: Some(now),
            members_at: now,
            unsynced_since: Some(now),
            trouble: None,
        }
    }

    pub(super) fn store_ok(&mut self, now: Duration) {
        self.store_ok_at = now;
        if self.subscription_down_since.is_none() {
            self.why = None;
        }
    }

    pub(super) fn store_error(&mut self, why: &str) {
        self.why = Some(why.to_owned());
    }

    pub(super) fn subscription(&mut self, now: Duration, is_up: bool) {
        if is_up {
            self.subscription_down_since = None;
        } else {
            self.subscription_down_since.get_or_insert(now);
        }
    }

    pub(super) fn aggregators(&mut self, now: Duration, number: usize) {
        self.members_at = now;
        if number > 0 {
            self.no_aggregator_since = None;
        } else {
            self.no_aggregator_since.get_or_insert(now);
        }
    }

    /// Whether the proxy is on its own now.
    pub(super) fn look(&mut self, now: Duration, is_synced: bool, settings: &Settings) -> bool {
        if is_synced {
            self.unsynced_since = None;
        } else {
            self.unsynced_since.get_or_insert(now);
        }
        let silent = now.saturating_sub(self.store_ok_at) > settings.store_patience;
        let longer = |since: Option<Duration>, patience: Duration| {
            since.filter(|since| now.saturating_sub(*since) > patience)
        };
        let store = self.subscription_down_since.or(silent.then_some(self.store_ok_at));
        let registry = longer(self.unsynced_since, settings.store_patience);
        let aggregators = longer(self.no_aggregator_since, settings.aggregator_patience);
        let members = longer(Some(self.members_at), settings.aggregator_patience);
        self.trouble = store
            .map(|since| (Trouble::Store, since))
            .or(registry.map(|since| (Trouble::Registry, since)))
            .or(aggregators.map(|since| (Trouble::Aggregators, since)))
            .or(members.map(|since| (Trouble::Members, since)));
        self.is_alone()
    }

    pub(super) fn is_alone(&self) -> bool {
        self.trouble.is_some()
    }

    pub(super) fn readiness(&self, now: Duration) -> Readiness {
        let Some((trouble, since)) = self.trouble else {
            return Readiness { is_degraded: false, words: "ok".to_owned() };
        };
        let what = match trouble {
            Trouble::Store => "the coordination store cannot be reached",
            Trouble::Registry => "the registry of hot keys cannot be read",
            Trouble::Aggregators => "no aggregator is alive",
            Trouble::Members => "it is not known whether an aggregator is alive",
        };
        let time = words::seconds(now.saturating_sub(since));
        let mut text = format!("degraded: {what} since {time}");
        if let Some(why) = self.why.as_ref().filter(|_| trouble != Trouble::Aggregators) {
            // The store's error may begin with the same words.
            let why =
                why.strip_prefix(what).map_or(why.as_str(), |rest| rest.trim_start_matches(": "));
            text.push_str(": ");
            text.push_str(why);
        }
        Readiness { is_degraded: true, words: text }
    }
}
