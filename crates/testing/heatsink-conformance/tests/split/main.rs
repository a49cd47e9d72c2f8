//! Keys that are split: clients go on using the original key and notice nothing.
//!
//! `HEATSINK_SPLIT_STEPS` makes the comparison longer, `HEATSINK_SPLIT_SEED` repeats one.

mod behind;
mod copies;
mod copies_order;
mod databases;
mod differential;
mod hand;
mod large;
mod late_reads;
mod moved_shards;
mod new_map;
mod own_links;
mod pipelines;
mod reads;
mod replicas;
mod settling;
mod unnamed;
mod waiting;
