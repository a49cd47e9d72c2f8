//! The thread that asks the API.
//!
//! Called by: [`crate::run`], which gives it orders and hears its messages.
//! Bound: one request at a time, each with a timeout; orders are few, since each is a key press.
//! Invariant: it never ends by itself: whatever happens to the process that it asks, it asks
//! again at the next interval.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use heatsink_admin::client::{Client, ClientError};
use heatsink_admin::control::Promotion;

use crate::model::{Details, SAMPLES, Snapshot};

/// What the person wants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Details of this key from now on, or of none.
    Watch(Option<Vec<u8>>),
    /// Puts a key into the registry.
    Promote {
        /// The key, and how it is shown.
        key: Vec<u8>,
        name: String,
        promotion: Promotion,
    },
    /// Takes one out.
    Demote {
        /// The key, and how it is shown.
        key: Vec<u8>,
        name: String,
    },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Message {
    /// The fleet as it is now.
    Fleet(Box<Snapshot>),
    /// More about the key that is watched; nothing if it is not registered.
    Details(Option<Box<Details>>),
    /// There is no answer.
    Lost(String),
    /// An order was carried out.
    Done(String),
    /// An order was refused.
    Failed(String),
}

/// Reads the fleet as it is now.
pub(crate) fn read(client: &Client) -> Result<Snapshot, ClientError> {
    let keys = client.list(&[])?;
    let history = client.history(SAMPLES)?;
    Ok(Snapshot::new(keys, &history, &client.proxies()?))
}

/// Asks each `interval`, and does what it is ordered to, until nobody listens.
pub(crate) fn serve(
    client: &Client,
    interval: Duration,
    orders: &Receiver<Order>,
    messages: &SyncSender<Message>,
) {
    let mut watched: Option<Vec<u8>> = None;
    let mut next = Instant::now();
    loop {
        let message = match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Order::Watch(key)) => {
                watched = key;
                next = Instant::now();
                continue;
            }
            Ok(Order::Promote { key, name, promotion }) => match client.promote(&key, promotion) {
                Ok(_) => Message::Done(format!("Promoted {name}: {}", promotion.mitigation.name())),
                Err(error) => Message::Failed(error.to_string()),
            },
            Ok(Order::Demote { key, name }) => match client.demote(&key) {
                Ok(answer) => {
                    let seconds = answer["blocked_seconds"].as_u64().unwrap_or_default();
                    Message::Done(format!(
                        "Demoted {name}: not promoted automatically for {seconds} s"
                    ))
                }
                Err(error) => Message::Failed(error.to_string()),
            },
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + interval;
                match read(client) {
                    Ok(snapshot) => {
                        if messages.send(Message::Fleet(Box::new(snapshot))).is_err() {
                            return;
                        }
                        let Some(key) = &watched else { continue };
                        Message::Details(details(client, key).ok().map(Box::new))
                    }
                    Err(error) => Message::Lost(error.to_string()),
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // After a change, look at once what came of it.
        if matches!(message, Message::Done(_)) {
            next = Instant::now();
        }
        if messages.send(message).is_err() {
            return;
        }
    }
}

fn details(client: &Client, key: &[u8]) -> Result<Details, ClientError> {
    let stats = client.stats(key)?;
    Ok(Details::new(&stats, &client.policy(key)?, &client.key_history(key)?))
}
