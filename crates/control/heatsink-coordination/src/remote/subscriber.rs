//! The task of a subscription: connects, listens, notices silence, and reconnects, forever.
//!
//! Called by: `remote`, one task a subscription.
//! Bound: between attempts [`BACKOFF_LEAST`] to [`BACKOFF_MOST`]; the server runs a short
//! script every [`PULSE_PERIOD`]; one that is silent for
//! [`PULSE_PERIOD`] + [`PULSE_TIMEOUT`] is given up.
//! Invariant: `Connected` is said only after the server has confirmed every channel, so a
//! snapshot that is read afterwards plus the changes told are the registry.
//!
//! The pulse runs on the listening connection itself. Answers and messages come in one order
//! there: when the pulse says version 7, the changes up to 7 have been told before, or are
//! lost for good, and the subscriber starts again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::connect::{Line, OnPush, Place, failure, within};
use super::link::Link;
use super::scripts::{Call, PULSE};
use super::wire;
use crate::error::StoreError;
use crate::inbox::Inbox;
use crate::model::{Channel, Notice};
use crate::seal::{Of, Seal};

pub(super) const BACKOFF_LEAST: Duration = Duration::from_millis(50);
pub(super) const BACKOFF_MOST: Duration = Duration::from_secs(1);
pub(super) const PULSE_PERIOD: Duration = Duration::from_millis(300);
pub(super) const PULSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Listens until nobody takes what is heard.
pub(super) async fn run(
    place: Arc<Place>,
    link: Arc<Link>,
    inbox: Arc<Inbox>,
    channels: Vec<Channel>,
) {
    tokio::select! {
        () = sessions(&place, &link, &inbox, &channels, 1) => {}
        () = inbox.closed() => {}
    }
}

/// Listens for ever, in one session after the other, numbered from `first` on.
pub(super) async fn sessions(
    place: &Place,
    link: &Link,
    inbox: &Arc<Inbox>,
    channels: &[Channel],
    first: u64,
) {
    let mut backoff = BACKOFF_LEAST;
    let mut is_told_lost = false;
    for id in first.. {
        let why = match Session::begin(place, inbox, channels, id).await {
            Ok(session) => {
                is_told_lost = false;
                link.hurry();
                let start = Instant::now();
                let why = session.listen(place, link, inbox).await;
                // One that breaks at once is no better than none.
                if start.elapsed() > BACKOFF_MOST {
                    backoff = BACKOFF_LEAST;
                }
                why
            }
            Err(error) => error.to_string(),
        };
        if !is_told_lost {
            tracing::debug!(why, "the subscription to the coordination store is lost");
            inbox.lost(why).await;
            is_told_lost = true;
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MOST);
    }
}

/// One connection's life.
struct Session {
    id: u64,
    line: Line,
    ear: Arc<Ear>,
    incarnation: String,
}

/// What the connection's task tells.
struct Ear {
    id: u64,
    inbox: Arc<Inbox>,
    seal: Arc<Seal>,
    /// The version of the last change heard, or of the pulse before any.
    heard: AtomicU64,
    /// Why the connection is of no use any more.
    ended: Mutex<Option<String>>,
    has_ended: Notify,
}

impl Session {
    async fn begin(
        place: &Place,
        inbox: &Arc<Inbox>,
        channels: &[Channel],
        id: u64,
    ) -> Result<Self, StoreError> {
        let ear = Arc::new(Ear {
            id,
            inbox: Arc::clone(inbox),
            seal: Arc::clone(&place.seal),
            heard: AtomicU64::new(0),
            ended: Mutex::new(None),
            has_ended: Notify::new(),
        });
        let on_push = || -> OnPush {
            let ear = Arc::clone(&ear);
            let (reports, watch) = (place.names.reports.clone(), place.names.watch.clone());
            Box::new(move |push| ear.hear(&push, &reports, &watch))
        };
        let line = place.connect(on_push, &PULSE).await?;
        subscribe(&line, place, channels).await?;
        // What happened before the first channel was confirmed is in the snapshot to come.
        let (incarnation, version) = within(&line.address, pulse(&line, place)).await??;
        ear.heard.fetch_max(version, Ordering::Relaxed);
        Ok(Self { id, line, ear, incarnation })
    }

    /// Delivers until the connection is of no use any more; says why.
    async fn listen(self, place: &Place, link: &Link, inbox: &Inbox) -> String {
        let server = self.line.address.to_string();
        let delivering = async {
            inbox.connected(self.id, server.clone()).await;
            inbox.mend(self.id, &server).await;
        };
        tokio::select! {
            why = self.ear.end() => format!("{server}: {why}"),
            why = self.keep_alive(place, inbox) => format!("{server}: {why}"),
            () = link.left(&self.line) => format!("the store has left {server}"),
            () = delivering => String::new(),
        }
    }

    /// Feels the pulse until there is none, or until it says that something was missed.
    async fn keep_alive(&self, place: &Place, inbox: &Inbox) -> String {
        let mut beats = interval(PULSE_PERIOD);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            let heard_before = self.ear.heard.load(Ordering::Relaxed);
            let (incarnation, version) =
                match timeout(PULSE_TIMEOUT, pulse(&self.line, place)).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return format!("silent for {} ms", PULSE_TIMEOUT.as_millis()),
                };
            if incarnation != self.incarnation || version < heard_before {
                return "the store has lost its data".to_owned();
            }
            if self.ear.heard.load(Ordering::Relaxed) < version {
                return "a change was not heard".to_owned();
            }
            inbox.confirm(self.id, version);
        }
    }
}

/// Listens to all changes and to `channels`, once it is confirmed.
pub(super) async fn subscribe(
    line: &Line,
    place: &Place,
    channels: &[Channel],
) -> Result<(), StoreError> {
    let extra = channels.iter().map(|channel| place.names.channel(*channel));
    let verb = if line.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
    for name in [place.names.changes.as_str()].into_iter().chain(extra) {
        let mut command = redis::cmd(verb);
        command.arg(name);
        let confirmed = within(&line.address, line.send(&command)).await?;
        confirmed.map_err(|error| failure(&line.address, &error))?;
    }
    Ok(())
}

async fn pulse(line: &Line, place: &Place) -> Result<(String, u64), StoreError> {
    let reply = line.call(&Call::once(&PULSE), &place.names).await;
    wire::pulse(&reply.map_err(|error| failure(&line.address, &error))?)
}

impl Ear {
    /// Called by the connection's task, in the order of what the server sent.
    fn hear(&self, push: &PushInfo, reports: &str, watch: &str) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                let [Value::BulkString(channel), Value::BulkString(body)] = &push.data[..] else {
                    return self.end_with("a message was not understood");
                };
                let kind = match channel {
                    _ if channel == reports.as_bytes() => Channel::Reports,
                    _ if channel == watch.as_bytes() => Channel::Watch,
                    _ => return self.hear_change(body),
                };
                if let Some(body) = self.seal.open(Of::Message(channel), body) {
                    self.inbox.message(self.id, kind.notice(body));
                }
            }
            PushKind::Disconnection => self.end_with("the connection was closed"),
            // Nobody asked for it: the slot has moved away.
            PushKind::SUnsubscribe | PushKind::Unsubscribe => self.end_with("unsubscribed"),
            _ => {}
        }
    }

    /// Takes a message of the changes channel. One that is not understood, or not sealed, may be
    /// anybody's: it is ignored. If it was a change nevertheless, the next pulse shows that a
    /// version was not heard. Removals are not sealed, because most of them are expiries that the
    /// server finds by itself: where there is a secret, they are a reason to look and no more.
    fn hear_change(&self, body: &[u8]) {
        let Some(Notice::Change { version, key, record }) = wire::change(body) else {
            return self.seal.ignore();
        };
        let notice = match record {
            None if self.seal.is_keyed() => Notice::Removals,
            None => Notice::Change { version, key, record },
            Some(record) => {
                let Some(record) = wire::opened(record, &self.seal) else { return };
                Notice::Change { version, key, record: Some(record) }
            }
        };
        self.heard.fetch_max(version, Ordering::Relaxed);
        self.inbox.change(self.id, notice);
    }

    fn end_with(&self, why: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(|| why.to_owned());
        self.has_ended.notify_one();
    }

    async fn end(&self) -> String {
        loop {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match ended {
                Some(why) => return why,
                None => self.has_ended.notified().await,
            }
        }
    }
}
