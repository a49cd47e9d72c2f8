//! Waits for the news of a failover on one sentinel, and on the next when that is lost.
//!
//! Runs on a thread of its own.
//! Bound: one connection; a silent sentinel is left after `HEARTBEAT` and the timeout; after a
//! round in which no sentinel stayed, a pause of `RETRY`.
//! Invariant: whoever reports looks again after each subscription, since what happened before
//! it was not heard:
//!
//! ```text
//! 1. the connection to sentinel A is lost
//! 2. failover: B announces it, nobody listens
//! 3. subscribed to B, which stays silent now
//! 4. nudge: B is asked, and tells the new primary
//! ```

use std::time::Duration;

use heatsink_resp::value::Value;
use tracing::debug;

use super::SocketName;
use super::line::{Dialing, Line, accepted};
use super::trouble::{Trouble, Troubles};
use crate::address::{Credentials, SentinelUrl};
use crate::error::LinkError;

const CHANNEL: &[u8] = b"+switch-master";
/// After this long without a word the sentinel is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct Subscription {
    name: String,
    credentials: Option<Credentials>,
    dialing: Dialing,
}

impl Subscription {
    pub(super) fn new(url: &SentinelUrl, dialing: Dialing) -> Self {
        let (name, credentials) = (url.name.clone(), url.sentinel_credentials.clone());
        Self { name, credentials, dialing }
    }

    /// Runs until the watch ends.
    pub(super) fn run(self) {
        let mut troubles = Troubles::default();
        loop {
            let sentinels = self.dialing.shared.known();
            troubles.keep(&sentinels);
            for sentinel in &sentinels {
                let error = match self.subscribe(sentinel) {
                    Ok(line) => {
                        troubles.over(sentinel);
                        self.follow(sentinel, line)
                    }
                    Err(error) => error,
                };
                if self.dialing.shared.stopped() {
                    return;
                }
                match error {
                    LinkError::Refused(_) => {
                        troubles.occurred(&self.name, sentinel, &Trouble::Link(error));
                    }
                    // The other thread asks the same sentinels and tells what is wrong.
                    error => debug!(%sentinel, %error, "no events from this sentinel"),
                }
            }
            if self.dialing.shared.pause(RETRY) {
                return;
            }
        }
    }

    fn subscribe(&self, sentinel: &SocketName) -> Result<Line, LinkError> {
        let mut line = self.dialing.open(sentinel, self.credentials.as_ref())?;
        accepted(line.call(&[b"SUBSCRIBE", CHANNEL])?)?;
        debug!(%sentinel, "waiting for events");
        self.dialing.shared.nudge(None);
        Ok(line)
    }

    /// Listens until the connection is of no use any more.
    fn follow(&self, sentinel: &SocketName, mut line: Line) -> LinkError {
        loop {
            let message = match line.receive(HEARTBEAT) {
                Ok(Some(message)) => message,
                Ok(None) => match line.call(&[b"PING"]) {
                    Ok(reply) => reply,
                    Err(error) => return error,
                },
                Err(error) => return error,
            };
            if is_switch(&message, &self.name) {
                debug!(%sentinel, primary = self.name, "a failover is announced");
                self.dialing.shared.nudge(Some(sentinel.clone()));
            }
        }
    }
}

/// Whether `message` says that the primary `name` is another one now. Its text is the name,
/// then the old address and the new one.
fn is_switch(message: &Value, name: &str) -> bool {
    let [kind, channel, text] = message.array() else { return false };
    let about = text.text().and_then(|text| text.strip_prefix(name.as_bytes()));
    kind.text() == Some(b"message")
        && channel.text() == Some(CHANNEL)
        && about.is_some_and(|rest| rest.starts_with(b" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failover_of_the_same_name_counts() {
        let message = |kind: &str, text: &str| {
            let parts = [kind.as_bytes(), CHANNEL, text.as_bytes()];
            Value::Array(parts.map(|part| Value::Bulk(part.to_vec())).to_vec())
        };
        let text = "main 127.0.0.1 1 127.0.0.1 2";
        assert!(is_switch(&message("message", text), "main"));
        assert!(!is_switch(&message("message", text), "mai"));
        assert!(!is_switch(&message("message", text), "main2"));
        assert!(!is_switch(&message("subscribe", text), "main"));
        assert!(!is_switch(&Value::Array(Vec::new()), "main"));
    }
}
