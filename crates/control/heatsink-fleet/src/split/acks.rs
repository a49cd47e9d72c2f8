//! A proxy's acknowledgement that it holds writes of a key.
//!
//! Called by: the loop, whenever the data plane is given a new version of the hot keys.
//! Bound: one task for each move that is under way, [`GIVE_UP`] long; remembered ids end with
//! their records.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use heatsink_control::agent::HotSet;
use heatsink_control::entry::{Phase, SplitRecord};
use heatsink_coordination::Store;
use heatsink_proxy::Handle as ProxyHandle;

use super::lifecycle;

/// Time between two looks at the workers.
const POLL: Duration = Duration::from_millis(1);
/// After this time an acknowledgement would come too late, and the workers are waited for no longer.
const GIVE_UP: Duration = Duration::from_secs(5);
/// How long an acknowledgement counts.
const LIFE: Duration = Duration::from_secs(30);

/// What was acknowledged, or is about to be.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    topics: HashSet<String>,
}

impl Acks {
    /// The data plane was given this version of the hot keys: once the workers have settled it, the movers of
    /// its values get an acknowledgement.
    pub(crate) fn published(
        &mut self,
        hot: &HotSet,
        version: u64,
        proxy: &ProxyHandle,
        store: &Store,
        member: &str,
    ) {
        let topics = topics(hot);
        for topic in topics.difference(&self.topics) {
            let (topic, proxy, store) = (topic.clone(), proxy.clone(), store.clone());
            tokio::spawn(acknowledge(topic, version, proxy, store, member.to_owned()));
        }
        self.topics = topics;
    }
}

/// The splits for which this process holds writes. For a kind of a later release it does not, so it must
/// not acknowledge that.
fn topics(hot: &HotSet) -> HashSet<String> {
    let splits = hot.keys.iter().filter_map(|hot| hot.split.as_ref());
    let is_known = |split: &SplitRecord| split.is_copies() || lifecycle::layout(split).is_some();
    let held = splits.filter(|split| split.phase != Phase::Split && is_known(split));
    held.map(|split| lifecycle::topic(&split.id, split.phase)).collect()
}

async fn acknowledge(
    topic: String,
    version: u64,
    proxy: ProxyHandle,
    store: Store,
    member: String,
) {
    let begun = Instant::now();
    while proxy.settled_version() < version {
        if begun.elapsed() > GIVE_UP {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
    if let Err(error) = store.acknowledge(&topic, &member, LIFE).await {
        tracing::debug!(%error, "a move is not acknowledged");
    }
}

#[cfg(test)]
mod tests {
    use heatsink_control::agent::HotKey;
    use heatsink_control::entry::{Mitigation, Origin, Status};

    use super::*;

    fn hot(id: &str, kind: &str, phase: Phase) -> HotKey {
        let split = SplitRecord {
            id: id.to_owned(),
            kind: kind.to_owned(),
            tags: vec!["a".to_owned(), "b".to_owned()],
            expires: false,
            phase,
            mover: String::new(),
            ends_at_ms: None,
            removal: None,
        };
        HotKey {
            key: id.as_bytes().to_vec(),
            mitigation: Mitigation::Split,
            split_factor: 2,
            status: Status::Active,
            dry_run: false,
            origin: Origin::Manual,
            epoch: 1,
            split: Some(split),
        }
    }

    #[test]
    fn what_is_not_held_here_is_not_acknowledged() {
        let keys = vec![
            hot("1", "set", Phase::Freezing),
            hot("2", "set", Phase::Split),
            hot("3", "hash", Phase::Draining),
            hot("4", SplitRecord::COPIES, Phase::Freezing),
            hot("5", "a kind of a later release", Phase::Freezing),
            hot("6", "a kind of a later release", Phase::Draining),
        ];
        let expected = ["1:freezing", "3:draining", "4:freezing"];
        let expected = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(topics(&HotSet { version: 1, keys }), expected);
    }
}
