//! What people are shown of a key: the record, what the key does right now, and the status
//! that follows from both.
//!
//! Called by: the admin API and the CLI, so that both say the same.
//! Invariant: nothing of this is stored. `cooling` is what an active record is shown as
//! while its key is below the retire fraction; `candidate` a key that is only watched, or whose
//! value is to be moved and has not been.

use std::time::Duration;

use heatsink_detect::heat::KeyHeat;

use crate::aggregate::{Aggregator, Live};
use crate::entry::{Entry, Mitigation, Origin, Status};
use crate::registry::{Record, Registry};
use crate::words;

/// What is shown of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyView {
    /// The raw key.
    pub key: Vec<u8>,
    /// The record's entry, with the status of this moment.
    pub entry: Entry,
    /// The version that wrote the record; 0 if there is none.
    pub epoch: u64,
    /// How long the record still lives unless it is renewed.
    pub remaining: Option<Duration>,
    /// What the key does right now; nothing if nobody reports it.
    pub live: Option<Live>,
}

impl KeyView {
    /// The view of a record.
    pub fn of_record(now: Duration, key: &[u8], record: &Record, live: Option<Live>) -> Self {
        let mut entry = record.entry.clone();
        entry.status = entry.shown_status();
        let warm = live.as_ref().is_some_and(|live| live.warm);
        if entry.status == Status::Active && entry.origin == Origin::Auto && !warm {
            entry.status = Status::Cooling;
        }
        let remaining = record.remaining(now);
        Self { key: key.to_vec(), entry, epoch: record.epoch, remaining, live }
    }

    /// The view of a key that is reported and has no record.
    pub fn of_candidate(key: &[u8], live: Live) -> Self {
        let heat = &live.heat;
        let proxies = words::count(live.proxies, "proxy", "proxies");
        let requests = words::whole(heat.requests_per_second());
        let entry = Entry {
            mitigation: Mitigation::Coalesce,
            split_factor: 1,
            ttl_seconds: None,
            origin: Origin::Auto,
            status: Status::Candidate,
            reason: format!("{requests} req/s over {proxies}; nothing is done yet"),
            dry_run: true,
            frequency: heat.requests_per_second(),
            reads_per_second: heat.reads_per_second,
            writes_per_second: heat.writes_per_second,
            detected_at_ms: 0,
            split: None,
            pause: None,
        };
        Self { key: key.to_vec(), entry, epoch: 0, remaining: None, live: Some(live) }
    }

    /// Requests/s right now; 0 if nobody reports the key.
    pub fn frequency(&self) -> f64 {
        self.live.as_ref().map_or(0.0, |live| live.heat.requests_per_second())
    }

    /// The measures right now; all zero if nobody reports the key.
    pub fn heat(&self) -> KeyHeat {
        self.live.as_ref().map(|live| live.heat.clone()).unwrap_or_default()
    }
}

/// All records, hottest first.
pub fn records(now: Duration, registry: &Registry, aggregator: &Aggregator) -> Vec<KeyView> {
    let mut views: Vec<KeyView> = registry
        .iter()
        .map(|(key, record)| KeyView::of_record(now, key, record, aggregator.live(key)))
        .collect();
    sort(&mut views);
    views
}

/// Keys that are watched and have no record, hottest first.
pub fn candidates(registry: &Registry, aggregator: &Aggregator) -> Vec<KeyView> {
    let mut views: Vec<KeyView> = aggregator
        .watched()
        .filter(|key| registry.get(key).is_none())
        .filter_map(|key| Some(KeyView::of_candidate(key, aggregator.live(key)?)))
        .collect();
    sort(&mut views);
    views
}

/// One key: its record, or what is known of it without one.
pub fn one(
    now: Duration,
    key: &[u8],
    registry: &Registry,
    aggregator: &Aggregator,
) -> Option<KeyView> {
    let live = aggregator.live(key);
    match registry.get(key) {
        Some(record) => Some(KeyView::of_record(now, key, record, live)),
        None => live.map(|live| KeyView::of_candidate(key, live)),
    }
}

fn sort(views: &mut [KeyView]) {
    views.sort_by(|a, b| b.frequency().total_cmp(&a.frequency()).then_with(|| a.key.cmp(&b.key)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{candidates, one, records};
    use crate::aggregate::{Aggregator, Intent};
    use crate::entry::Status;
    use crate::member::Member;
    use crate::registry::{Change, Registry, Snapshot, What};
    use crate::settings::Settings;
    use crate::value::ValueKind;
    use crate::wire::{Counts, KeyRecord, Report};

    fn report(aggregator: &mut Aggregator, now: Duration, keys: &[(&str, u64, u64)]) {
        let keys = keys
            .iter()
            .map(|&(key, reads, absorbed)| KeyRecord {
                key: key.as_bytes(),
                value: ValueKind::String,
                counts: Counts { reads, absorbed, ..Counts::default() },
            })
            .collect();
        let sequence = now.as_millis() as u64;
        aggregator
            .on_report(now, &Report { member: "a", boot: 1, sequence, keys, ..Report::default() });
    }

    #[test]
    fn a_record_is_shown_with_what_its_key_does_right_now() {
        let second = Duration::from_secs(1);
        let mut aggregator = Aggregator::new(second, Settings::default(), Arc::default());
        let mut registry = Registry::new();
        registry.begin_snapshot();
        registry.on_snapshot(second, Snapshot { incarnation: vec![1], ..Snapshot::default() });
        let member = |id: &str| Member { id: id.into(), proxy: true, aggregator: true };
        aggregator.on_members(second, &[member("a"), member("b")]);
        report(&mut aggregator, second, &[("big", 4000, 1000), ("hot", 2000, 0), ("near", 600, 0)]);
        let mut version = 0;
        for intent in aggregator.tick(second, &mut registry) {
            let Intent::Put { key, entry, ttl, .. } = intent else { continue };
            version += 1;
            let what = What::Put { entry, remaining: ttl };
            registry.on_change(second, Change { version, key, what });
        }
        let shown = records(second, &registry, &aggregator);
        let names: Vec<&[u8]> = shown.iter().map(|view| view.key.as_slice()).collect();
        assert_eq!(names, [b"big".as_slice(), b"hot"]);
        assert!(shown.iter().all(|view| view.entry.status == Status::Active));
        assert_eq!(shown[0].remaining, Some(Duration::from_secs(60)));

        let near = candidates(&registry, &aggregator);
        assert_eq!(near.len(), 1);
        assert_eq!((near[0].key.as_slice(), near[0].epoch), (b"near".as_slice(), 0));
        assert_eq!(near[0].entry.status, Status::Candidate);
        assert_eq!(near[0].entry.reason, "600 req/s over 1 proxy; nothing is done yet");

        report(&mut aggregator, 2 * second, &[("big", 4000, 0), ("hot", 499, 0)]);
        aggregator.tick(2 * second, &mut registry);
        let view = |key: &[u8]| one(2 * second, key, &registry, &aggregator);
        assert_eq!(view(b"big").map(|view| view.entry.status), Some(Status::Active));
        let hot = view(b"hot").expect("registered");
        assert_eq!((hot.entry.status, hot.frequency()), (Status::Cooling, 499.0));
        assert_eq!(view(b"near"), None);
        assert_eq!(registry.get(b"hot").map(|record| record.entry.status), Some(Status::Active));
    }
}
