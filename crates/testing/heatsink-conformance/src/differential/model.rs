//! As much of a connection's state as it takes to know how many replies will come.
//!
//! Called by: `generator`, which changes it with each command it makes.
//! Bound: a few channels.
//! Invariant: it follows the server's rules, not the proxy's; where it is wrong, comparing two
//! plain servers fails.

use std::collections::BTreeSet;

/// The ways to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subscription {
    Channel,
    Pattern,
    Shard,
}

impl Subscription {
    pub(super) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// Every channel matches exactly one pattern: two patterns would be served in hash order.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Channel | Self::Shard => &["news.a", "news.b", "chat.a", "chat.b"],
            Self::Pattern => &["news.*", "chat.?"],
        }
    }

    /// The commands that begin and end it.
    pub(super) fn commands(self) -> (&'static str, &'static str) {
        match self {
            Self::Channel => ("SUBSCRIBE", "UNSUBSCRIBE"),
            Self::Pattern => ("PSUBSCRIBE", "PUNSUBSCRIBE"),
            Self::Shard => ("SSUBSCRIBE", "SUNSUBSCRIBE"),
        }
    }
}

/// One connection's state.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) resp3: bool,
    pub(super) in_multi: bool,
    /// Whether it may be watching keys.
    pub(super) watches: bool,
    subscriptions: [BTreeSet<&'static str>; 3],
}

impl Connection {
    pub(super) fn new(resp3: bool) -> Self {
        Self { resp3, ..Self::default() }
    }

    pub(super) fn of(&mut self, kind: Subscription) -> &mut BTreeSet<&'static str> {
        &mut self.subscriptions[kind as usize]
    }

    pub(super) fn subscribed(&self) -> bool {
        self.subscriptions.iter().any(|names| !names.is_empty())
    }

    /// A RESP2 subscriber may do little else.
    pub(super) fn listens_only(&self) -> bool {
        !self.resp3 && self.subscribed()
    }

    /// How many copies of a message to `channel` it gets.
    pub(super) fn copies(&self, channel: &str, kind: Subscription) -> usize {
        let subscribed = |kind: Subscription, name: &str| {
            usize::from(self.subscriptions[kind as usize].contains(name))
        };
        if kind == Subscription::Shard {
            return subscribed(kind, channel);
        }
        let pattern = if channel.starts_with("news") { "news.*" } else { "chat.?" };
        subscribed(Subscription::Channel, channel) + subscribed(Subscription::Pattern, pattern)
    }
}
