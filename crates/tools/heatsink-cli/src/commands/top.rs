//! `heatsink top`: hot keys, live, in the terminal.

use std::time::Duration;

use crate::exit::Failure;

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Request {
    /// Admin address.
    pub(crate) admin: String,
    /// Its token.
    pub(crate) token: Option<String>,
    /// Time between two looks.
    pub(crate) interval: Duration,
}

/// Shows what there is until the user has seen enough.
pub(crate) fn run(request: Request) -> Result<(), Failure> {
    let Request { admin, token, interval } = request;
    let options = heatsink_top::Options { token, interval, ..heatsink_top::Options::new(admin) };
    heatsink_top::run(&options).map_err(|error| Failure::Runtime(error.to_string()))
}
