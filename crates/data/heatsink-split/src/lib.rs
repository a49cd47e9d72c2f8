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
//! What is promised command by command is in [docs/splitting.md](../../../../docs/splitting.md).
//!
//! ```
//! use heatsink_split::layout::{Kind, Layout, Names};
//! use heatsink_split::plan::{self, Context, Merged, Plan};
//!
//! let layout = Layout::new("7", Kind::Counter, false, &["0", "1"]);
//! let context = Context { layout: &layout, names: Names::Live, resp3: false, turn: 1, stamp: 0 };
//! let Plan::Many { parts, merge } = plan::plan(&context, &[b"INCR", b"hits"]) else { panic!() };
//! assert_eq!(parts[0].bytes, b"*2\r\n$3\r\nGET\r\n$16\r\nheatsink:{0}:7:0\r\n");
//! assert!(parts[1].bytes.starts_with(b"*3\r\n$6\r\nINCRBY\r\n"));
//!
//! // Each part goes to the node of its shard; the replies come back in their order.
//! let replies = [b"$2\r\n40\r\n".to_vec(), b":2\r\n".to_vec()];
//! assert_eq!(plan::merge(&context, merge, &replies), Merged::Reply(b":42\r\n".to_vec()));
//! ```
//!
//! See [decision 15](../../../../docs/adr/0015-splitting.md) for why this is exact.

pub mod layout;
pub mod moving;
pub mod placement;
pub mod plan;
mod registers;
pub mod stamp;

pub use layout::{Kind, Layout};

#[cfg(test)]
mod properties;
