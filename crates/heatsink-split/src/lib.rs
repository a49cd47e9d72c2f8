//! One logical key as several physical ones: where members go, which commands a command
//! becomes, how replies are merged, and what a mover reads and writes. No I/O.
//!
//! | what | module |
//! |---|---|
//! | names of shards, which shard a member belongs to | [`layout`] |
//! | tags that spread shards over nodes | [`placement`] |
//! | what becomes of a command on a split key | [`plan`] |
//! | the order of a list's elements | [`stamp`] |
//! | what a mover sends, and what it makes of the replies | [`moving`] |
//!
//! See [decision 15](../../../docs/adr/0015-splitting.md) for why this is exact.

pub mod layout;
pub mod moving;
pub mod placement;
pub mod plan;
mod registers;
pub mod stamp;

pub use layout::{Kind, Layout};

#[cfg(test)]
mod properties;
