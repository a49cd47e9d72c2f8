//! Finds hot keys.

pub mod hot_ring;
