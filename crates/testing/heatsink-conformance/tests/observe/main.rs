//! What Heatsink counts: every key of every request, once, and what the replies show.

mod counts;
mod onset;
mod replies;
mod rig;
