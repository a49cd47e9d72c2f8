//! Hot keys that are cooled: what clients see stays what they may see, and the server is asked
//! less.

mod broadcast;
mod bystanders;
mod coherence;
mod combining;
mod failover;
mod interleavings;
mod large;
mod lost_links;
mod moving;
mod passing;
mod rights;
mod scores;
mod served;
mod staleness;
mod unnamed;
