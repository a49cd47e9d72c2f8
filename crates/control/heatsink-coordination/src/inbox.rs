//! The bounded queue between a store and one subscriber.
//!
//! Called by: `memory`, from the calls that change something; the reading side of a
//! subscriber's connection; the task of a subscription, which opens it and says what was lost.
//! Bound: `Settings::queue_length` notices. A message that finds less than a quarter free is
//! dropped and counted; a change that finds nothing free closes the queue, and the subscriber
//! hears `Lost` and `Connected` once it has made room.
//! Invariant: between `Connected` and `Lost` no change is left out. Nobody but the session
//! that opened the queue last puts anything in:
//!
//! 1. session A's connection is given up, its reader has a change in hand
//! 2. session B connects and opens the queue with `Connected`
//! 3. A's change arrives: its session is not the open one, it is ignored

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use crate::model::Notice;

const QUEUE_LENGTH_LEAST: usize = 8;

pub(crate) struct Inbox {
    sender: mpsc::Sender<Notice>,
    /// The session that may deliver, if any.
    open: Mutex<Option<u64>>,
    overflow: Notify,
    kept_for_changes: usize,
    messages_dropped: Arc<AtomicU64>,
    confirmed: Arc<AtomicU64>,
}

impl Inbox {
    pub(crate) fn new(queue_length: usize) -> (Arc<Self>, Subscription) {
        let length = queue_length.max(QUEUE_LENGTH_LEAST);
        let (sender, receiver) = mpsc::channel(length);
        let messages_dropped = Arc::new(AtomicU64::new(0));
        let confirmed = Arc::new(AtomicU64::new(0));
        let inbox = Arc::new(Self {
            sender,
            open: Mutex::new(None),
            overflow: Notify::new(),
            kept_for_changes: length / 4,
            messages_dropped: Arc::clone(&messages_dropped),
            confirmed: Arc::clone(&confirmed),
        });
        (inbox, Subscription { receiver, messages_dropped, confirmed })
    }

    /// Tells a change, or closes the queue if there is no room.
    pub(crate) fn change(&self, session: u64, notice: Notice) {
        let mut open = self.lock();
        if *open == Some(session) && self.sender.try_send(notice).is_err() {
            *open = None;
            self.confirmed.store(0, Ordering::Relaxed);
            self.overflow.notify_one();
        }
    }

    /// The store has this version, and every change up to it is in the queue.
    pub(crate) fn confirm(&self, session: u64, version: u64) {
        let open = self.lock();
        if *open == Some(session) {
            self.confirmed.store(version, Ordering::Relaxed);
        }
    }

    /// Tells a message that may be lost.
    pub(crate) fn message(&self, session: u64, notice: Notice) {
        let open = self.lock();
        if *open != Some(session) {
            return;
        }
        if self.sender.capacity() <= self.kept_for_changes || self.sender.try_send(notice).is_err()
        {
            self.messages_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says `Connected` and lets `session` deliver; waits for room.
    pub(crate) async fn connected(&self, session: u64, server: String) {
        if let Ok(permit) = self.sender.reserve().await {
            let mut open = self.lock();
            *open = Some(session);
            permit.send(Notice::Connected { server });
        }
    }

    /// Closes the queue and says `Lost`; waits for room.
    pub(crate) async fn lost(&self, why: String) {
        {
            let mut open = self.lock();
            *open = None;
            self.confirmed.store(0, Ordering::Relaxed);
        }
        // Fails only if nobody listens any more.
        let _ = self.sender.send(Notice::Lost { why }).await;
    }

    /// Has the subscriber start again each time it was too slow; never returns.
    pub(crate) async fn mend(&self, session: u64, server: &str) {
        loop {
            self.overflow.notified().await;
            self.lost("changes came faster than they were read".to_owned()).await;
            self.connected(session, server.to_owned()).await;
        }
    }

    /// Returns when nobody listens any more.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving side of a subscription; dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    receiver: mpsc::Receiver<Notice>,
    messages_dropped: Arc<AtomicU64>,
    confirmed: Arc<AtomicU64>,
}

impl Subscription {
    /// The next notice; `None` only when the runtime it was made in has ended. Can be dropped
    /// and called again without losing anything.
    pub async fn recv(&mut self) -> Option<Notice> {
        self.receiver.recv().await
    }

    /// The next notice if there is one now.
    pub fn try_recv(&mut self) -> Option<Notice> {
        self.receiver.try_recv().ok()
    }

    /// The registry's version as the store last gave it, a fraction of a second ago. Every change up to it
    /// was received, or waits here to be. `None` while that is not known. A subscriber that has this version
    /// need not read a snapshot.
    pub fn version(&self) -> Option<u64> {
        Some(self.confirmed.load(Ordering::Relaxed)).filter(|version| *version > 0)
    }

    /// How many reports and watch lists were dropped because this side was slow.
    pub fn messages_dropped(&self) -> u64 {
        self.messages_dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(version: u64) -> Notice {
        Notice::Change { version, key: b"k".to_vec(), record: None }
    }

    #[tokio::test]
    async fn messages_leave_room_for_changes_and_are_counted() {
        let (inbox, mut subscription) = Inbox::new(8);
        inbox.connected(1, "here".to_owned()).await;
        for _ in 0..10 {
            inbox.message(1, Notice::Report(vec![1]));
        }
        inbox.change(1, change(7));
        assert_eq!(subscription.messages_dropped(), 5);
        let mut told = Vec::new();
        told.extend(std::iter::from_fn(|| subscription.try_recv()));
        assert_eq!(told.len(), 7);
        assert_eq!(told.last(), Some(&change(7)));
    }

    #[tokio::test]
    async fn a_change_without_room_starts_the_subscriber_again() {
        let (inbox, mut subscription) = Inbox::new(8);
        inbox.connected(1, "here".to_owned()).await;
        for version in 1..=20 {
            inbox.change(1, change(version));
        }
        let mender = tokio::spawn({
            let inbox = Arc::clone(&inbox);
            async move { inbox.mend(1, "here").await }
        });
        let mut told = Vec::new();
        while told.len() < 10 {
            told.push(subscription.recv().await.expect("open"));
        }
        assert_eq!(told[1..8], (1..=7).map(change).collect::<Vec<_>>());
        assert!(matches!(told[8], Notice::Lost { .. }), "{told:?}");
        assert!(matches!(told[9], Notice::Connected { .. }), "{told:?}");
        inbox.change(1, change(21));
        assert_eq!(subscription.recv().await, Some(change(21)));
        mender.abort();
    }

    #[tokio::test]
    async fn a_session_that_was_given_up_delivers_nothing() {
        let (inbox, mut subscription) = Inbox::new(8);
        inbox.connected(1, "here".to_owned()).await;
        inbox.lost("gone".to_owned()).await;
        inbox.change(1, change(1));
        inbox.connected(2, "there".to_owned()).await;
        inbox.change(1, change(2));
        inbox.change(2, change(3));
        let told: Vec<Notice> = std::iter::from_fn(|| subscription.try_recv()).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(told[3], change(3));
    }
}
