//! A process that is alone keeps its records in memory, and writes nothing to the server.
//!
//! Called by: `store`, for a process that serves; see [`crate::Store::quiet`].
//! Bound: one connection; the server is asked two short questions every [`PULSE_PERIOD`].
//! Invariant: a process subscribes first and counts the subscribers then, so of two that start at
//! the same moment at least the later one sees both:
//!
//! ```text
//! A subscribes, counts 1: alone          A counts 2 at its next look, at the latest
//!       B subscribes, counts 2: together
//! A moves what it keeps over, and is together
//! ```
//!
//! A record that is put in memory while the memory is moved over is lost. Such a record is of a key that
//! was found hot, and the key is found again. A record that must survive the process is never put in
//! memory: before it, the process begins to write to the server, and goes on so until its restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Remote;
use super::connect::{Line, OnPush, Place, failure};
use super::scripts::{Call, LOOK};
use super::subscriber::{self, BACKOFF_LEAST, BACKOFF_MOST, PULSE_PERIOD, PULSE_TIMEOUT};
use super::wire;
use crate::error::StoreError;
use crate::inbox::{Inbox, Subscription};
use crate::memory::Memory;
use crate::model::{Channel, Expects, Put};
use crate::settings::Settings;

/// Where the process keeps its records.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not known whether the process is alone, and why not.
    Unknown(String),
    /// In memory.
    Alone,
    /// On the server.
    Together,
}

/// The store of a process that writes nothing while it is alone.
pub(crate) struct Quiet {
    memory: Arc<Memory>,
    remote: Arc<Remote>,
    stage: watch::Sender<Stage>,
    /// Something has to survive the process.
    wants_to_write: watch::Sender<bool>,
}

/// Where a call goes.
pub(crate) enum Home {
    Memory(Arc<Memory>),
    Remote(Arc<Remote>),
}

/// Why a process is not alone any more.
enum End {
    /// It has to write to the server now.
    Together,
    /// Nothing is heard from the server.
    Lost(String),
}

impl Quiet {
    pub(crate) fn new(remote: Remote) -> Self {
        let memory = Arc::new(Memory::new(remote.settings().clone()));
        let stage = watch::Sender::new(Stage::Unknown("not connected yet".to_owned()));
        Self { memory, remote: Arc::new(remote), stage, wants_to_write: watch::Sender::new(false) }
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.remote.settings()
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Where to make a call, once that is known; `survives` if what it writes must.
    pub(crate) async fn home(&self, survives: bool) -> Result<Home, StoreError> {
        let mut stages = self.stage.subscribe();
        if survives {
            self.wants_to_write.send_replace(true);
        }
        let is_known = |stage: &Stage| match stage {
            Stage::Unknown(_) => false,
            Stage::Alone => !survives,
            Stage::Together => true,
        };
        let known = timeout(self.settings().request_timeout, stages.wait_for(is_known)).await;
        if let Ok(Ok(stage)) = known {
            return Ok(match *stage {
                Stage::Together => Home::Remote(Arc::clone(&self.remote)),
                _ => Home::Memory(Arc::clone(&self.memory)),
            });
        }
        let why = match &*self.stage.borrow() {
            Stage::Unknown(why) => why.clone(),
            _ => "what was kept in memory could not be written in time".to_owned(),
        };
        Err(StoreError::unreachable(why))
    }

    pub(crate) fn subscribe(self: &Arc<Self>, channels: &[Channel]) -> Subscription {
        let (inbox, subscription) = Inbox::new(self.settings().queue_length);
        let (quiet, channels) = (Arc::clone(self), channels.to_vec());
        tokio::spawn(async move {
            tokio::select! {
                () = quiet.sessions(&inbox, &channels) => {}
                () = inbox.closed() => {}
            }
        });
        subscription
    }

    async fn sessions(&self, inbox: &Arc<Inbox>, channels: &[Channel]) {
        let Remote { place, link, .. } = &*self.remote;
        let mut backoff = BACKOFF_LEAST;
        let mut is_told_lost = false;
        let mut id = 0;
        loop {
            id += 1;
            let end = match Session::begin(place, channels).await {
                Ok(session) => {
                    is_told_lost = false;
                    backoff = BACKOFF_LEAST;
                    self.alone(session, inbox, channels, id).await
                }
                Err(error) => End::Lost(error.to_string()),
            };
            let end = match end {
                End::Together => match self.move_over().await {
                    Ok(()) => break,
                    Err(error) => End::Lost(error.to_string()),
                },
                lost @ End::Lost(_) => lost,
            };
            if let End::Lost(why) = end {
                self.stage.send_replace(Stage::Unknown(why.clone()));
                if !is_told_lost {
                    inbox.lost(why).await;
                    is_told_lost = true;
                }
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MOST);
        }
        self.stage.send_replace(Stage::Together);
        self.memory.detach(inbox);
        subscriber::sessions(place, link, inbox, channels, id + 1).await;
    }

    /// Serves from memory for as long as nobody else is there.
    async fn alone(
        &self,
        session: Session,
        inbox: &Arc<Inbox>,
        channels: &[Channel],
        id: u64,
    ) -> End {
        let Remote { place, .. } = &*self.remote;
        match session.is_alone(place).await {
            Ok(true) if !*self.wants_to_write.borrow() => {}
            Ok(_) => return End::Together,
            Err(why) => return End::Lost(why),
        }
        self.memory.attach(inbox, channels, id);
        self.stage.send_replace(Stage::Alone);
        tracing::debug!("this process is alone, and keeps what it knows in memory");
        let server = session.line.address.to_string();
        let delivering = async {
            inbox.connected(id, server.clone()).await;
            self.memory.confirm(inbox, id);
            inbox.mend(id, &server).await;
        };
        let mut wants_to_write = self.wants_to_write.subscribe();
        let end = tokio::select! {
            end = session.watch(place) => end,
            _ = wants_to_write.wait_for(|wants| *wants) => End::Together,
            () = delivering => End::Lost(String::new()),
        };
        if matches!(end, End::Lost(_)) {
            self.memory.detach(inbox);
        }
        end
    }

    /// Writes what is in memory to the server; what others know of the same keys stays.
    async fn move_over(&self) -> Result<(), StoreError> {
        let snapshot = self.memory.snapshot();
        for record in snapshot.records {
            let put = Put {
                body: record.body,
                ttl: record.expires_in,
                expects: Expects::ABSENT,
                respects_block: true,
                ..Put::default()
            };
            self.remote.put(&record.key, &put).await?;
        }
        for blocked in snapshot.blocked {
            self.remote.remove(&blocked.key, Expects::ABSENT, Some(blocked.remaining)).await?;
        }
        Ok(())
    }
}

/// One connection's life while the process is alone.
struct Session {
    line: Line,
    heard: Arc<Heard>,
}

/// What the connection's task has heard.
#[derive(Default)]
struct Heard {
    something: Notify,
    /// A message: whoever sends one is there.
    others: AtomicBool,
    ended: AtomicBool,
}

impl Session {
    async fn begin(place: &Place, channels: &[Channel]) -> Result<Self, StoreError> {
        let heard = Arc::new(Heard::default());
        let on_push = || -> OnPush {
            let heard = Arc::clone(&heard);
            Box::new(move |push| heard.hear(&push))
        };
        let line = place.connect(on_push, &LOOK).await?;
        subscriber::subscribe(&line, place, channels).await?;
        Ok(Self { line, heard })
    }

    /// Looks for others until there are some, or until the server is lost.
    async fn watch(&self, place: &Place) -> End {
        let mut beats = interval(PULSE_PERIOD);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beats.tick() => {}
                () = self.heard.something.notified() => {}
            }
            if self.heard.ended.load(Ordering::Relaxed) {
                return End::Lost(format!("{}: the connection was closed", self.line.address));
            }
            if self.heard.others.load(Ordering::Relaxed) {
                return End::Together;
            }
            match self.is_alone(place).await {
                Ok(true) => {}
                Ok(false) => return End::Together,
                Err(why) => return End::Lost(why),
            }
        }
    }

    /// Nobody else listens, and no fleet has left anything here.
    async fn is_alone(&self, place: &Place) -> Result<bool, String> {
        let address = &self.line.address;
        let ask = async {
            let kept = self.line.call(&Call::once(&LOOK), &place.names).await?;
            Ok((kept, self.line.send(&self.line.count_subscribers(&place.names.changes)).await?))
        };
        let answers: Result<(Value, Value), redis::RedisError> = timeout(PULSE_TIMEOUT, ask)
            .await
            .map_err(|_| format!("{address}: silent for {} ms", PULSE_TIMEOUT.as_millis()))?;
        let (kept, count) = answers.map_err(|error| failure(address, &error).to_string())?;
        let kept = wire::number(&kept).map_err(|error| error.to_string())?;
        let count = wire::subscribers(&count).map_err(|error| error.to_string())?;
        Ok(kept == 0 && count <= 1)
    }
}

impl Heard {
    fn hear(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => self.others.store(true, Ordering::Relaxed),
            PushKind::Disconnection | PushKind::SUnsubscribe | PushKind::Unsubscribe => {
                self.ended.store(true, Ordering::Relaxed);
            }
            _ => return,
        }
        self.something.notify_one();
    }
}
