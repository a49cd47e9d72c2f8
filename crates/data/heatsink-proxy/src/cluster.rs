//! A cluster behind, that looks like one server to clients.
//!
//! | question | module |
//! |---|---|
//! | which node has a slot, and who finds out | `topology`, `slot_map`, `refresh` |
//! | a node owes an answer and says nothing | `silent_nodes` |
//! | where does a request go | `route` |
//! | a request for several nodes, and one reply made of theirs | `scatter_gather` |
//! | a node says that it is not the one (`MOVED`, `ASK`, `TRYAGAIN` …) | `redirects` |
//! | requests for one slot that are sent on to different nodes | `redirects_in_flight` |
//! | what was sent behind a request that is tried again | `replay` |
//! | a slot is known to move: what is not sent behind such a request | `moving_slots` |
//! | the same on a client's dedicated connection | `dedicated_redirects` |
//! | transactions, whose node is known only by their first key | `transactions` |
//! | `CLUSTER …` and what else only cluster clients ask | `commands` |
//!
//! # Order
//! Commands of one client on one key are executed in its order. Within one map of the
//! cluster, a key's commands all go along one link, and along the same redirects one behind the
//! other. With a new map they may go another way, and would overtake:
//!
//! ```text
//! 1. SET k 1 -> A     (old map)
//! 2.                  new map: k is B's
//! 3. SET k 2 -> B     executed
//! 4. A: MOVED, SET k 1 -> B     executed last: wrong
//! ```
//!
//! So a client goes on by a new map only when everything it sent by the old one is answered
//! (`Client::epoch`). A request that is to be tried again later (`TRYAGAIN`) holds the client
//! back; what was sent behind it for the same slot is taken back, or if that is too late, the
//! request is not tried again.

mod commands;
pub(crate) mod dedicated_redirects;
pub(crate) mod moving_slots;
pub(crate) mod node_batches;
pub(crate) mod own_writes;
pub(crate) mod redirects;
pub(crate) mod redirects_in_flight;
pub(crate) mod refresh;
pub(crate) mod replay;
pub(crate) mod route;
pub(crate) mod scatter_gather;
pub(crate) mod silent_nodes;
mod slot_map;
pub(crate) mod topology;
pub(crate) mod transactions;
