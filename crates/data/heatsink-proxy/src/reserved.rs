//! Keys and channels of the fleet, which do not exist for clients.
//!
//! `names` refuses requests that name them; `listings` leaves them out of replies that list or count
//! keys (`SCAN`, `KEYS`, `RANDOMKEY`, `DBSIZE`, `PUBSUB CHANNELS`).

pub(crate) mod listings;
pub(crate) mod names;
