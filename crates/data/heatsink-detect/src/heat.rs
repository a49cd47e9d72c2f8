//! What a key was found doing, and the four ways in which that can be hot.
//!
//! Called by: [`crate::report`] makes these, [`crate::tracker`] and the aggregator read them.
//! Plain data: a report that came from another proxy has the same form.

/// Whether a request reads or writes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The key's value is read.
    Read,
    /// The key's value is changed.
    Write,
}

/// A way of being hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeatKind {
    /// Many requests.
    Rate,
    /// Many bytes: big and hot.
    Bytes,
    /// Many reads that found nothing.
    MissStorm,
    /// Many writes in flight at once.
    WriteContention,
}

impl HeatKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rate, Self::Bytes, Self::MissStorm, Self::WriteContention];
}

/// From where on a key is hot, in each way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Requests/s, reads and writes together.
    pub requests_per_second: f64,
    /// Bytes/s moved to and from clients.
    pub bytes_per_second: f64,
    /// Misses/s.
    pub misses_per_second: f64,
    /// Writes in flight at once.
    pub writes_in_flight: f64,
}

impl Thresholds {
    /// The threshold of one kind of heat.
    pub fn of(&self, kind: HeatKind) -> f64 {
        match kind {
            HeatKind::Rate => self.requests_per_second,
            HeatKind::Bytes => self.bytes_per_second,
            HeatKind::MissStorm => self.misses_per_second,
            HeatKind::WriteContention => self.writes_in_flight,
        }
    }
}

/// One key over the last window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyHeat {
    /// The raw key.
    pub key: Vec<u8>,
    /// Reads/s; never below the truth.
    pub reads_per_second: f64,
    /// Writes/s; never below the truth.
    pub writes_per_second: f64,
    /// By how much reads and writes together may be too high. Zero as soon as the key was
    /// known by name for a whole window.
    pub error_per_second: f64,
    /// Requests/s, of those above, that a mitigation answered.
    pub absorbed_per_second: f64,
    /// Bytes/s moved; never above the truth.
    pub bytes_per_second: f64,
    /// Misses/s; never above the truth.
    pub misses_per_second: f64,
    /// The most writes that were in flight at once since the last tick.
    pub writes_in_flight: u32,
    /// What the last request that knew said the value is: a number that the caller gives a
    /// meaning, 0 if no request knew.
    pub value_kind: u8,
}

impl KeyHeat {
    /// Reads and writes together; never below the truth.
    pub fn requests_per_second(&self) -> f64 {
        self.reads_per_second + self.writes_per_second
    }

    /// Requests/s that certainly happened.
    pub fn certain_per_second(&self) -> f64 {
        self.requests_per_second() - self.error_per_second
    }

    /// The share of reads, 0 to 1.
    pub fn read_share(&self) -> f64 {
        let requests = self.requests_per_second();
        if requests > 0.0 { self.reads_per_second / requests } else { 0.0 }
    }

    /// The measure that counts for one kind of heat.
    pub fn level(&self, kind: HeatKind) -> f64 {
        match kind {
            HeatKind::Rate => self.requests_per_second(),
            HeatKind::Bytes => self.bytes_per_second,
            HeatKind::MissStorm => self.misses_per_second,
            HeatKind::WriteContention => f64::from(self.writes_in_flight),
        }
    }

    /// Whether the key is at or over the threshold. For the rate, half of the threshold must
    /// be certain: a key under half of it is never taken for hot, however full the sketch.
    pub fn exceeds(&self, kind: HeatKind, threshold: f64) -> bool {
        self.level(kind) >= threshold
            && (kind != HeatKind::Rate || self.certain_per_second() >= threshold / 2.0)
    }

    /// Whether the key is hot in any way.
    pub fn exceeds_any(&self, thresholds: &Thresholds) -> bool {
        HeatKind::ALL.into_iter().any(|kind| self.exceeds(kind, thresholds.of(kind)))
    }
}
