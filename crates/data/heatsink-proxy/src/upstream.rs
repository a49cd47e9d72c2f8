//! The server side: which servers there are, the pool of connections of each login, and who waits
//! for which reply.
//!
//! | question | module |
//! |---|---|
//! | the servers, by number | `nodes`, `sentinel` (which one is the primary) |
//! | connections shared by the clients of one login | `pools` |
//! | who waits for a reply, and what for | `ticket` |
//! | whether each server can be reached, and how busy it is | `health`, `load` |

pub(crate) mod health;
pub(crate) mod load;
pub(crate) mod nodes;
pub(crate) mod pools;
pub(crate) mod sentinel;
pub(crate) mod ticket;
