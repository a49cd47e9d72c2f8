//! A cluster behind, that looks like one server to clients.
//!
//! | question | module |
//! |---|---|
//! | which node has a slot, and who finds out | `routes`, `slot_map`, `refresh` |
//! | a node owes an answer and says nothing | `still` |
//! | where does a request go | `route` |
//! | a request for several nodes, and one reply made of theirs | `fan_out` |
//! | a node says that it is not the one (`MOVED`, `ASK`, `TRYAGAIN` …) | `detours` |
//! | requests for one slot that are sent on to different nodes | `ways` |
//! | what was sent behind a request that is tried again | `recall` |
//! | a slot is known to move: what is not sent behind such a request | `moving` |
//! | the same on a connection of a client's own | `own_detours` |
//! | transactions, whose node is known only by their first key | `transactions` |
//! | `CLUSTER …` and what else only cluster clients ask | `commands` |
//!
//! # Order
//! Commands of one client on one key are executed in its order. Within one map of the
//! cluster, a key's commands all go along one link, and along the same detours one behind the
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
pub(crate) mod detours;
pub(crate) mod fan_out;
pub(crate) mod lots;
pub(crate) mod moving;
pub(crate) mod own_detours;
pub(crate) mod recall;
pub(crate) mod refresh;
pub(crate) mod route;
pub(crate) mod routes;
mod slot_map;
pub(crate) mod still;
pub(crate) mod transactions;
pub(crate) mod ways;
