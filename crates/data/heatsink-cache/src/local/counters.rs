//! What happened to one key, in numbers.

/// Why an entry went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A write through this worker.
    Write,
    /// An invalidation or a flush that the server pushed.
    Invalidation,
    /// Its deadline.
    Deadline,
    /// The limits on entries and bytes.
    Capacity,
    /// The link it was filled through is gone.
    Link,
    /// The key was deregistered or set up anew, or its login or node was forgotten.
    Policy,
}

/// Entries gone, by [`Reason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// By a write through this worker.
    pub write: u64,
    /// By a push.
    pub invalidation: u64,
    /// By their deadline.
    pub deadline: u64,
    /// By the limits.
    pub capacity: u64,
    /// With their link.
    pub link: u64,
    /// By a change of rules.
    pub policy: u64,
}

/// Counters of one registered key; they start at zero when it is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounters {
    /// Reads answered from the cache.
    pub hits: u64,
    /// Bytes of those answers.
    pub bytes_served: u64,
    /// Reads that found nothing and may store their reply.
    pub misses: u64,
    /// Reads that may not store: a write was pending, or the command is too long.
    pub bypasses: u64,
    /// Refreshes asked for ahead of a deadline.
    pub refreshes: u64,
    /// Replies stored.
    pub stored: u64,
    /// Replies that were not stored because something happened to the key meanwhile.
    pub overtaken: u64,
    /// Writes (anything that counts as one) that were sent.
    pub writes: u64,
    /// Pushed invalidations of the key.
    pub invalidations: u64,
    /// Entries gone.
    pub evicted: Evicted,
}

impl KeyCounters {
    pub(super) fn count_evicted(&mut self, reason: Reason) {
        let evicted = &mut self.evicted;
        *match reason {
            Reason::Write => &mut evicted.write,
            Reason::Invalidation => &mut evicted.invalidation,
            Reason::Deadline => &mut evicted.deadline,
            Reason::Capacity => &mut evicted.capacity,
            Reason::Link => &mut evicted.link,
            Reason::Policy => &mut evicted.policy,
        } += 1;
    }
}
