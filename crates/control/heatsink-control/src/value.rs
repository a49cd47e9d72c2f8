//! What can be done about a key by the kind of its value.
//!
//! Called by: decisions. Reports carry one byte of the kind for each key.

pub use heatsink_resp::command::ValueKind;

/// Whether concurrent writes can be made one write.
pub fn combines_writes(kind: ValueKind) -> bool {
    kind == ValueKind::Counter
}

/// Whether one logical key can be kept as several without a change of what single commands mean,
/// and without making the usual ones slow: of a list, that would be reading a part of it.
pub fn splits(kind: ValueKind) -> bool {
    matches!(
        kind,
        ValueKind::Counter
            | ValueKind::Hash
            | ValueKind::Set
            | ValueKind::SortedSet
            | ValueKind::HyperLogLog
    )
}
