//! Moving values between a key and its shards.
//!
//! | what | module |
//! |---|---|
//! | a client of this process's own proxy | `data` |
//! | names, the manifest | `names` |
//! | what is in the shards, for people to see | `contents` |
//! | copies of a value | `copies` |
//! | whether a value can be split | `fit` |
//! | what the servers say of their memory | `servers` |
//! | whether replicas have what was written | `replicas` |
//! | a value moved into shards, step by step | `steps` |
//! | and made whole again | `whole` |
//! | what stands at a split key, and what strangers did to it | `marker` |
//! | changes of one record by compare and set | `change` |
//! | the registry, the fleet and the steps, in their order | `lifecycle` |
//! | a proxy's word that it holds writes | `acks` |
//! | who does what when, and what dead movers left | `reconcile` |
//! | everything made whole by `heatsink drain` | `drain` |
//! | splits that only the data knows of | `find` |
//! | places where tests have the process end | `fault` |

pub(crate) mod acks;
pub(crate) mod change;
mod contents;
pub(crate) mod copies;
mod data;
pub(crate) mod drain;
mod fault;
mod find;
mod fit;
pub(crate) mod lifecycle;
mod marker;
mod names;
pub(crate) mod reconcile;
mod replicas;
mod servers;
pub(crate) mod steps;
mod whole;

pub(crate) use names::index;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use heatsink_admin::metrics::Histogram;
use heatsink_split::Layout;

use contents::Contents;

/// What is known of splits besides what the registry says.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Ids of splits that are over by what the data says: there is no marker at their key. The registry
    /// may not know yet, or may be out of reach. Bounded by the splits of the registry.
    over: HashSet<String>,
    /// How often that has changed.
    pub(crate) over_changes: u64,
    /// Splits that have ended, or were given up, and have left something behind, by their ids. Bounded by
    /// those that end while the upstream is in trouble: none begins then.
    pub(crate) left: HashMap<String, Left>,
    /// Moves by way and outcome.
    pub(crate) moves: BTreeMap<(&'static str, &'static str), u64>,
    /// How long writes were held, as far as this process moved the value.
    pub(crate) freeze_seconds: Histogram,
    /// When the markers were last looked at, in milliseconds of Unix time.
    pub(crate) looked_at_ms: u64,
    /// How often registry and upstream did not agree.
    pub(crate) drift_total: u64,
    /// What is in each shard, by key, with the id of the split.
    pub(crate) contents: HashMap<Vec<u8>, (String, Contents)>,
}

/// What a split has left, which must not be lost from the index meanwhile.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) key: Vec<u8>,
    pub(crate) layout: Layout,
    /// This process is letting it go. Otherwise whoever finds it in the index will.
    pub(crate) is_under_way: bool,
}

impl Figures {
    /// A marker was looked for, and is gone or there; whether that was not known.
    pub(crate) fn note_marker(&mut self, id: &str, is_there: bool) -> bool {
        let is_new = if is_there { self.over.remove(id) } else { self.over.insert(id.to_owned()) };
        self.over_changes += u64::from(is_new);
        is_new
    }

    /// Whether the value of a split is at its key again, whatever the registry says.
    pub(crate) fn is_over(&self, id: &str) -> bool {
        self.over.contains(id)
    }

    /// Splits that the registry does not know any more need not be remembered: ids do not come again.
    pub(crate) fn retain_over(&mut self, is_known: impl Fn(&str) -> bool) {
        self.over.retain(|id| is_known(id));
    }
}
