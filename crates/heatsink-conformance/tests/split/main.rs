//! Keys that are split: clients go on using the original key and notice nothing.
//!
//! `HEATSINK_SPLIT_STEPS` makes the comparison longer, `HEATSINK_SPLIT_SEED` repeats one.

mod copies;
mod differential;
mod hand;
mod reads;
mod waiting;
