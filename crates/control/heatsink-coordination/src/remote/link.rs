//! The connection for calls: kept, shared by all of them, replaced when it fails.
//!
//! Called by: `remote`, for each call; `subscriber`, to learn that the store is elsewhere.
//! Bound: one connection and at most one attempt at a time, with pauses from [`RETRY_PAUSE`] on
//! that double up to [`RETRY_DOUBLINGS`] times between failed ones; each call takes at most
//! `Settings::request_timeout`, its wait for a connection included.
//! Invariant: a call is sent again only if the server said that it was not carried out, or if
//! carrying it out twice does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use redis::{ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connect::{Line, OnPush, Place, failure, is_read_only};
use super::scripts::{Call, PULSE};
use crate::error::StoreError;

/// Time between tries of a call that was redirected, and after the first failed attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(25);
const RETRY_DOUBLINGS: u32 = 4;

pub(super) struct Link {
    place: Arc<Place>,
    state: watch::Sender<State>,
    generations: AtomicU64,
    /// Attempts that failed since the last that did not.
    failures: AtomicU32,
}

#[derive(Clone)]
enum State {
    Idle,
    Dialling,
    Up { generation: u64, line: Line },
    Down { error: StoreError, until: Instant },
}

/// What an error means for a call that was sent.
enum Verdict {
    /// Not carried out, and this is not (or no longer) the right server.
    Elsewhere,
    /// Not carried out, and the right server will be able to in a moment.
    NotNow,
    /// Nobody knows.
    Broken,
    /// Not carried out, and it would not be the next time either.
    Refused,
}

impl Link {
    pub(super) fn new(place: Arc<Place>) -> Self {
        let state = watch::Sender::new(State::Idle);
        Self { place, state, generations: AtomicU64::new(0), failures: AtomicU32::new(0) }
    }

    /// Makes a call.
    pub(super) async fn call(self: &Arc<Self>, call: &Call) -> Result<Value, StoreError> {
        let after = self.place.settings().request_timeout;
        let mut last_error = None;
        let mut in_use = None;
        let answer = timeout(after, self.attempts(call, &mut last_error, &mut in_use)).await;
        answer.unwrap_or_else(|_| {
            // It may never answer again; calls that still wait keep their share of it.
            if let Some(generation) = in_use {
                self.discard(generation);
            }
            Err(last_error.unwrap_or(StoreError::Timeout { after }))
        })
    }

    /// Returns when calls go to another server than this one.
    pub(super) async fn left(&self, other: &Line) {
        let mut states = self.state.subscribe();
        let is_elsewhere = |state: &State| match state {
            State::Up { line, .. } => !line.is_same_server(other),
            _ => false,
        };
        // An error would mean that the link is gone, which we hold.
        let _ = states.wait_for(is_elsewhere).await;
    }

    /// Has the next call try at once, because somebody got through.
    pub(super) fn hurry(&self) {
        self.state.send_if_modified(|state| {
            let is_down = matches!(state, State::Down { .. });
            if is_down {
                *state = State::Idle;
            }
            is_down
        });
    }

    async fn attempts(
        self: &Arc<Self>,
        call: &Call,
        last_error: &mut Option<StoreError>,
        in_use: &mut Option<u64>,
    ) -> Result<Value, StoreError> {
        let mut may_repeat = call.is_repeatable();
        loop {
            let (generation, line) = match self.line().await {
                Ok(found) => found,
                // While the store moves, the next attempt may find it.
                Err(_) if last_error.is_some() => {
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            *in_use = Some(generation);
            let error = match line.call(call, &self.place.names).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            *in_use = None;
            let shown = failure(&line.address, &error);
            match verdict(&error) {
                Verdict::Refused => return Err(shown),
                Verdict::NotNow => {}
                Verdict::Elsewhere => self.discard(generation),
                Verdict::Broken => {
                    self.discard(generation);
                    if !may_repeat {
                        return Err(shown);
                    }
                    may_repeat = false;
                }
            }
            tracing::debug!(error = %shown, "the coordination store is asked again");
            *last_error = Some(shown);
            sleep(RETRY_PAUSE).await;
        }
    }

    /// The connection; makes one if there is none, and waits for it.
    async fn line(self: &Arc<Self>) -> Result<(u64, Line), StoreError> {
        let mut states = self.state.subscribe();
        loop {
            // Again after each change: it may have broken in the very moment it was made.
            self.dial_if_needed();
            let state = states.borrow_and_update().clone();
            match state {
                State::Up { generation, line } => return Ok((generation, line)),
                State::Down { error, .. } => return Err(error),
                State::Idle | State::Dialling => {}
            }
            if states.changed().await.is_err() {
                return Err(StoreError::unreachable("the store was dropped"));
            }
        }
    }

    fn dial_if_needed(self: &Arc<Self>) {
        let begins = self.state.send_if_modified(|state| {
            let begins = match state {
                State::Idle => true,
                State::Down { until, .. } => *until <= Instant::now(),
                State::Dialling | State::Up { .. } => false,
            };
            if begins {
                *state = State::Dialling;
            }
            begins
        });
        if begins {
            // Apart from the call, whose time may be up before.
            tokio::spawn(Arc::clone(self).dial());
        }
    }

    async fn dial(self: Arc<Self>) {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let on_push = || -> OnPush {
            let link = Arc::downgrade(&self);
            Box::new(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection
                    && let Some(link) = link.upgrade()
                {
                    link.discard(generation);
                }
            })
        };
        let state = match self.place.connect(on_push, &PULSE).await {
            Ok(line) => {
                tracing::debug!(server = %line.address, "connected to the coordination store");
                self.failures.store(0, Ordering::Relaxed);
                State::Up { generation, line }
            }
            Err(error) => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed);
                let pause = RETRY_PAUSE * (1 << failures.min(RETRY_DOUBLINGS));
                State::Down { error, until: Instant::now() + pause }
            }
        };
        self.state.send_replace(state);
    }

    /// Has the next call make a new connection.
    fn discard(&self, generation: u64) {
        self.state.send_if_modified(|state| {
            let is_current =
                matches!(state, State::Up { generation: current, .. } if *current == generation);
            if is_current {
                *state = State::Idle;
            }
            is_current
        });
    }
}

fn verdict(error: &RedisError) -> Verdict {
    match error.kind() {
        _ if is_read_only(error) => Verdict::Elsewhere,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::Moved
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading => Verdict::Elsewhere,
            ServerErrorKind::TryAgain | ServerErrorKind::Ask => Verdict::NotNow,
            _ => Verdict::Refused,
        },
        ErrorKind::Extension | ErrorKind::AuthenticationFailed => Verdict::Refused,
        _ => Verdict::Broken,
    }
}
