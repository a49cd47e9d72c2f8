//! Changes that operators make by hand, for the log: which key, which change, from which address.
//!
//! Called by: the routes that change something.
//! Invariant: each change that was asked for is one line, even if nobody waited for its end. These
//! lines are warnings, so that they are in the log unless somebody asked for less.

use std::net::SocketAddr;

use axum::http::StatusCode;

use crate::key_name::Privacy;
use crate::peers::Peer;
use crate::problem::Problem;

/// A change that was asked for and is not answered yet.
#[derive(Debug)]
pub(crate) struct Asked {
    what: String,
    key: String,
    address: Option<SocketAddr>,
    /// Who asked has shown the token; otherwise there is none, and it is somebody on this machine.
    token: bool,
    answered: bool,
}

impl Asked {
    pub(crate) fn new(
        what: String,
        key: &[u8],
        privacy: Privacy,
        peer: Option<&Peer>,
        token: bool,
    ) -> Self {
        let address = peer.map(|peer| peer.address);
        Self { what, key: privacy.log_name(key), address, token, answered: false }
    }

    /// Logs the outcome, and passes it on.
    pub(crate) fn answered<T>(mut self, outcome: Result<T, Problem>) -> Result<T, Problem> {
        self.answered = true;
        let status = outcome.as_ref().map_or_else(Problem::status, |_| StatusCode::OK.as_u16());
        self.log(if outcome.is_ok() { "done" } else { "refused" }, status);
        outcome
    }

    fn log(&self, came_of_it: &str, status: u16) {
        let Self { what, key, address, token, .. } = self;
        let address = address.map(tracing::field::display);
        tracing::warn!(key, address, token, status, "by hand: {what}: {came_of_it}");
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answered {
            self.log("not answered in time, may be done", StatusCode::SERVICE_UNAVAILABLE.as_u16());
        }
    }
}
