//! Everything made whole: for the end of a fleet, or of splitting.
//!
//! Called by: `heatsink drain`, with a proxy of its own and no other part in the fleet.
//! Bound: [`MAX_ROUNDS`] rounds over what is left.
//! Invariant: may be begun again at any time, and beside a running fleet. Needs nothing but the
//! upstream: what was moved is in its index.

use std::sync::Arc;
use std::time::Duration;

use heatsink_control::entry::Phase;
use heatsink_coordination::Store;
use heatsink_proxy::Handle as ProxyHandle;

use super::change::{self, Next, NotChanged};
use super::lifecycle::Mover;
use super::names::Known;
use super::steps::{Steps, Whole};
use crate::members::{Card, Present};
use crate::state::State;
use crate::{Live, Role, figures, records};

/// Rounds over what is left.
const MAX_ROUNDS: usize = 10;
/// Time between two of them.
const PAUSE: Duration = Duration::from_millis(500);
/// How long this process counts as a member after its last word.
const MEMBER_LIFE: Duration = Duration::from_secs(10);

/// What is told while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The store cannot be reached, and why; the upstream's index is all there is.
    WithoutStore(String),
    /// A key is whole again.
    Whole(Vec<u8>),
    /// What an ended or given up split of a key had left was dropped.
    Dropped(Vec<u8>),
    /// An entry that would have been split was removed.
    Removed(Vec<u8>),
    /// It did not work yet.
    Failed(Vec<u8>, String),
    /// The upstream did not answer.
    Trouble(String),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Keys that were made whole.
    pub whole: usize,
    /// Splits whose remains were dropped.
    pub dropped: usize,
    /// Splits that are left.
    pub left: usize,
    /// Nobody knows whether anything is left.
    pub unknown: bool,
}

/// Makes every split key whole. Blocks until it is done or given up.
pub fn drain(
    proxy: ProxyHandle,
    store: Store,
    live: Live,
    mut told: impl FnMut(Progress),
) -> std::io::Result<Drained> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let drained = runtime.block_on(run(proxy, store, live, &mut told));
    runtime.shutdown_background();
    Ok(drained)
}

async fn run(
    proxy: ProxyHandle,
    store: Store,
    live: Live,
    told: &mut impl FnMut(Progress),
) -> Drained {
    let id = format!("{:016x}", fastrand::u64(..));
    let block = live.block;
    let steps = Steps::new(proxy.clone(), store.settings().namespace());
    let state = Arc::new(State::new(&id, Role::Aggregator, None, live, Some(proxy)));
    let mover = Mover { state, store, steps };
    let mut drained = Drained::default();
    for round in 0..MAX_ROUNDS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        if let Err(why) = forget_wishes(&mover, block, told).await
            && round == 0
        {
            told(Progress::WithoutStore(why));
        }
        let known = match mover.steps.known().await {
            Ok(known) => known,
            Err(error) => {
                drained.unknown = true;
                told(Progress::Trouble(error.to_string()));
                continue;
            }
        };
        drained.unknown = false;
        drained.left = known.len();
        for known in known {
            match make_whole(&mover, &known).await {
                Ok(Whole::Committed) => {
                    drained.whole += 1;
                    drained.left -= 1;
                    told(Progress::Whole(known.key));
                }
                Ok(Whole::NotOurs) => {
                    drained.dropped += 1;
                    drained.left -= 1;
                    told(Progress::Dropped(known.key));
                }
                Err(why) => told(Progress::Failed(known.key, why)),
            }
        }
        if drained.left == 0 && round > 0 {
            break;
        }
    }
    let _ = mover.store.leave(&id).await;
    drained
}

/// The registry wants nothing split any more: entries whose value was moved begin to drain, so
/// that live proxies hold writes; others are removed.
async fn forget_wishes(
    mover: &Mover,
    block: Duration,
    told: &mut impl FnMut(Progress),
) -> Result<(), String> {
    let Mover { state, store, .. } = mover;
    let card =
        Card { role: "drain".to_owned(), version: figures::VERSION.to_owned(), ..Card::default() };
    let card = serde_json::to_vec(&card).unwrap_or_default();
    let members = store.heartbeat(&state.id, &card, MEMBER_LIFE).await;
    let members = members.map_err(|error| error.to_string())?;
    state.lock().members = members.into_iter().map(Present::of).collect();
    let snapshot = store.snapshot().await.map_err(|error| error.to_string())?;
    let block_ms = block.as_millis() as u64;
    for (key, stored) in records::snapshot(snapshot).records {
        if !stored.entry.wants_split() && stored.entry.split.is_none() {
            continue;
        }
        let decide = |seen: Option<&change::Seen>| match seen.map(|seen| &seen.entry) {
            Some(entry) if entry.split.as_ref().is_some_and(|split| split.removal.is_some()) => {
                Next::Leave
            }
            Some(entry) => match entry.leaving(block_ms) {
                Some(leaving) => Next::put(leaving, None),
                None if entry.wants_split() => Next::Remove { block: Some(block) },
                None => Next::Leave,
            },
            None => Next::Leave,
        };
        match change::change(state, store, &key, decide).await {
            Ok(change::Changed::Removed) => told(Progress::Removed(key)),
            Ok(_) | Err(NotChanged::Contended) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Makes the key of one split whole, or finds that it is.
async fn make_whole(mover: &Mover, known: &Known) -> Result<Whole, String> {
    let Known { key, layout, .. } = known;
    let id = &layout.id;
    let registered = match change::asked(&mover.store, key).await {
        Ok(seen) => seen.and_then(|seen| seen.entry.split).filter(|split| split.id == *id),
        Err(_) => None,
    };
    // A split that is not committed yet never will be.
    let is_marked = mover.steps.forbid(key, layout).await.map_err(|error| error.to_string())?;
    if let Some(split) = registered.filter(|_| is_marked) {
        if split.phase == Phase::Freezing {
            mover.tell_split(key, id).await;
        }
        mover.hold(id).await;
    }
    let whole = if is_marked {
        mover.steps.unsplit(key, layout).await.map_err(|error| error.to_string())?
    } else {
        Whole::NotOurs
    };
    mover.tell_whole_once(key, layout).await;
    mover.steps.retire(layout).await.map_err(|error| error.to_string())?;
    Ok(whole)
}
