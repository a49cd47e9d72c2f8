//! Events for the clients of the API: found by comparing what is shown now with what was shown before.
//!
//! Called by: the loop, after whatever may have changed the registry or a status.
//! Bound: listeners that are slow lose the oldest events and are told so.

use std::collections::HashMap;

use heatsink_admin::Privacy;
use heatsink_admin::control::{Change, Event, HotKey, Readiness};
use heatsink_control::entry::{Mitigation, Status};
use tokio::sync::broadcast;

use crate::state::unix_ms;

/// Events that wait for a listener.
const QUEUE: usize = 1024;

/// What was shown of a key.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    mitigation: Mitigation,
    status: Status,
    split_factor: u32,
    reason: String,
}

/// What was last shown, and who is told of changes.
#[derive(Debug)]
pub(crate) struct News {
    sender: broadcast::Sender<Event>,
    next_id: u64,
    shown: HashMap<Vec<u8>, Shown>,
    readiness: Option<(bool, bool, Vec<String>)>,
}

impl Default for News {
    fn default() -> Self {
        let sender = broadcast::Sender::new(QUEUE);
        Self { sender, next_id: 1, shown: HashMap::new(), readiness: None }
    }
}

impl News {
    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }

    /// Tells what differs from before.
    pub(crate) fn compare(
        &mut self,
        hot_keys: Vec<HotKey>,
        readiness: Readiness,
        privacy: Privacy,
    ) {
        let mut gone = std::mem::take(&mut self.shown);
        for hot in hot_keys {
            let entry = &hot.entry;
            let shown = Shown {
                mitigation: entry.mitigation,
                status: entry.status,
                split_factor: entry.split_factor,
                reason: entry.reason.clone(),
            };
            let before = gone.remove(&hot.key);
            self.shown.insert(hot.key.clone(), shown.clone());
            if before.as_ref() != Some(&shown) {
                let key = privacy.log_name(&hot.key);
                tracing::info!(
                    key, mitigation = %entry.mitigation, status = %entry.status,
                    origin = %entry.origin, "a hot key: {}", entry.reason
                );
                self.tell(Change::HotKey(Box::new(hot)));
            }
        }
        for (key, _) in gone {
            self.tell(Change::Removed { key, reason: "no longer registered".to_owned() });
        }
        let down = readiness.upstream.iter().filter(|node| !node.up);
        let down = down.map(|node| node.node.clone()).collect();
        let state = (readiness.ready, readiness.degraded, down);
        if self.readiness.as_ref() != Some(&state) {
            self.readiness = Some(state);
            if readiness.reasons.is_empty() {
                tracing::info!("part of the fleet");
            } else {
                tracing::warn!("{}", readiness.reasons.join(" "));
            }
            self.tell(Change::Readiness(readiness));
        }
    }

    fn tell(&mut self, change: Change) {
        let event = Event { id: self.next_id, at_ms: unix_ms(), change };
        self.next_id += 1;
        // Nobody may be listening.
        let _ = self.sender.send(event);
    }
}
