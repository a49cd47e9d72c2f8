//! TLS towards servers, and towards clients.

mod both_sides;
mod causes;
mod clients;
mod cluster;
mod commands;
mod intruders;
mod large;
mod limits;
mod support;
