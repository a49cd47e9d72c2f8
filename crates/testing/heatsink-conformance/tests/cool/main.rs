//! Hot keys that are cooled: what clients see stays what they may see, and the server is asked
//! less.

mod broadcast;
mod busy;
mod bystanders;
mod coherence;
mod combining;
mod failover;
mod hash_fields;
mod interleavings;
mod large;
mod lost_links;
mod monitored;
mod moving;
mod passing;
mod rights;
mod scores;
mod served;
mod staleness;
mod together;
mod unnamed;
