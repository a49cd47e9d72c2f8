//! The client side: what is kept of each client, replies in the order of the requests, limits. What
//! is done with a request is the event loop's to find out (`runtime::intake`).
//!
//! | question | module |
//! |---|---|
//! | what is kept of one client, and of all clients of a worker | `connection`, `clients` |
//! | one request | `request` |
//! | replies in the order of the requests | `order` |
//! | bounds on unfinished requests and unread replies | `input`, `output`, `total` |
//! | one large reply for many clients | `shared_reply` |
//! | clients of all workers, for `CLIENT LIST` | `directory` |

pub(crate) mod clients;
pub(crate) mod connection;
pub(crate) mod directory;
pub(crate) mod input;
pub(crate) mod order;
pub(crate) mod output;
pub(crate) mod request;
pub(crate) mod shared_reply;
pub(crate) mod total;
