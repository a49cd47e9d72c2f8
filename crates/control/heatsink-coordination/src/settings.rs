//! Limits of a store, and the names of its keys.
//!
//! Called by: the configuration, which fills them in; both implementations.
//! Invariant: all names of a namespace have the same hash tag and so the same slot.

use std::fmt;
use std::time::Duration;

use crate::error::StoreError;
use crate::model::Channel;
use crate::seal::Secret;

const NAMESPACE_LIMIT_BYTES: usize = 64;

/// Limits of a store. All processes of a fleet should use the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    namespace: String,
    /// Most records, and most blocked keys; 4 096 by default. A put of a new key beyond is
    /// refused as full; of blocked keys the one whose block ends first makes room.
    pub max_records: usize,
    /// Most members; 4 096 by default.
    pub max_members: usize,
    /// Largest key or body of a record, a member or a message, in bytes; 1 MiB by default.
    pub max_bytes: usize,
    /// How long a call may take; 500 ms by default.
    pub request_timeout: Duration,
    /// Notices that wait for a subscriber; 4 096 by default, at least 8. A quarter is kept
    /// free of reports.
    pub queue_length: usize,
    /// What members seal their records and messages with; `None` by default. All members of a
    /// fleet have the same: what is sealed otherwise, or not at all, is ignored.
    pub secret: Option<Secret>,
}

impl Settings {
    /// The defaults, for one of possibly many fleets on the same server. A namespace is 1 to
    /// 64 letters, digits, `.`, `_` and `-`.
    pub fn new(namespace: &str) -> Result<Self, SettingsError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if namespace.is_empty()
            || namespace.len() > NAMESPACE_LIMIT_BYTES
            || !namespace.bytes().all(allowed)
        {
            return Err(SettingsError::Namespace(namespace.to_owned()));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            max_records: 4096,
            max_members: 4096,
            max_bytes: 1024 * 1024,
            request_timeout: Duration::from_millis(500),
            queue_length: 4096,
            secret: None,
        })
    }

    /// The fleet's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn check_size(&self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > self.max_bytes {
            let limit_bytes = self.max_bytes;
            return Err(StoreError::TooLarge { bytes: bytes.len(), limit_bytes });
        }
        Ok(())
    }
}

/// Why a store could not be set up; nothing was connected to yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// Not a namespace.
    Namespace(String),
    /// The in-process upstream is not a coordination store: use [`Store::memory`].
    ///
    /// [`Store::memory`]: crate::Store::memory
    Embedded,
    /// A user name or password that is not UTF-8.
    Credentials,
    /// Certificates or keys that cannot be used.
    Tls(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(
                f,
                "{name:?} is not a namespace: 1 to {NAMESPACE_LIMIT_BYTES} letters, digits, '.', \
                 '_' and '-' are"
            ),
            Self::Embedded => {
                f.write_str("the embedded upstream cannot be the coordination store of a fleet")
            }
            Self::Credentials => {
                f.write_str("user names and passwords of the coordination store must be UTF-8")
            }
            Self::Tls(why) => write!(f, "TLS to the coordination store: {why}"),
        }
    }
}

impl std::error::Error for SettingsError {}

/// Names of keys and channels on a server.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) state: String,
    pub(crate) registry: String,
    pub(crate) expiry: String,
    pub(crate) blocked: String,
    pub(crate) members: String,
    pub(crate) presence: String,
    pub(crate) roster: String,
    pub(crate) acks: String,
    pub(crate) changes: String,
    pub(crate) reports: String,
    pub(crate) watch: String,
}

impl Names {
    /// Channels do not know databases, so theirs is part of the name.
    pub(crate) fn new(namespace: &str, db: u32) -> Self {
        let key = |name: &str| format!("heatsink:{{{namespace}}}:{name}");
        let channel = |name: &str| match db {
            0 => key(name),
            _ => key(&format!("db{db}:{name}")),
        };
        Self {
            state: key("state"),
            registry: key("registry"),
            expiry: key("expiry"),
            blocked: key("blocked"),
            members: key("members"),
            presence: key("presence"),
            roster: key("roster"),
            acks: key("acks"),
            changes: channel("changes"),
            reports: channel("reports"),
            watch: channel("watch"),
        }
    }

    /// All keys.
    pub(crate) fn keys(&self) -> [&str; 8] {
        [
            &self.state,
            &self.registry,
            &self.expiry,
            &self.blocked,
            &self.members,
            &self.presence,
            &self.roster,
            &self.acks,
        ]
    }

    /// The name of a channel.
    pub(crate) fn channel(&self, channel: Channel) -> &str {
        match channel {
            Channel::Reports => &self.reports,
            Channel::Watch => &self.watch,
        }
    }

    /// The slot of all of them on a cluster.
    pub(crate) fn slot(&self) -> u16 {
        heatsink_cluster::slot::of_key(self.state.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_would_break_the_hash_tag_are_refused() {
        for bad in ["", "a}b", "{", "a b", "ä", &"n".repeat(65)] {
            assert!(Settings::new(bad).is_err(), "{bad:?}");
        }
        assert!(Settings::new("prod-eu.1_a").is_ok());
    }

    #[test]
    fn all_names_share_a_slot_and_databases_have_their_own_channels() {
        let names = Names::new("default", 3);
        for name in [&names.registry, &names.presence, &names.changes, &names.watch] {
            assert_eq!(heatsink_cluster::slot::of_key(name.as_bytes()), names.slot(), "{name}");
        }
        assert_eq!(names.reports, "heatsink:{default}:db3:reports");
        assert_eq!(Names::new("default", 0).reports, "heatsink:{default}:reports");
    }
}
