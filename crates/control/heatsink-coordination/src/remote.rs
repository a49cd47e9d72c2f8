//! The store on Redis or Valkey.
//!
//! Called by: `store`.
//! Bound: each call takes at most `Settings::request_timeout`; two connections, one for calls
//! and one a subscription.
//! Invariant: every operation is one script, so it happens whole or not at all.

pub(crate) mod alone;
mod connect;
mod link;
mod locate;
mod roster;
mod scripts;
mod subscriber;
pub(crate) mod tls;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use heatsink_upstream::address::Url;
use redis::Value;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::inbox::{Inbox, Subscription};
use crate::model::{
    Channel, Expects, Member, Put, PutOutcome, RemoveOutcome, RenewOutcome, Snapshot, whole_ms,
};
use crate::seal::{Of, from_hex, to_hex};
use crate::settings::{Settings, SettingsError};
use connect::Place;
use link::Link;
use roster::Roster;
use scripts::{ACKNOWLEDGE, Call, HEARTBEAT, LEAVE, PUT, REMOVE, RENEW, SNAPSHOT, SWEEP};
use tls::TlsFiles;

/// Records that one call of the sweeping script removes at most, so that it is short.
const SWEEP_BATCH: usize = 500;

pub(crate) struct Remote {
    place: Arc<Place>,
    link: Arc<Link>,
    roster: Roster,
}

impl Remote {
    pub(crate) fn new(
        target: &Url,
        tls: Option<&TlsFiles>,
        settings: Settings,
    ) -> Result<Self, SettingsError> {
        let place = Arc::new(Place::new(target, tls, settings)?);
        let link = Arc::new(Link::new(Arc::clone(&place)));
        Ok(Self { place, link, roster: Roster::default() })
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.place.settings()
    }

    pub(crate) async fn put(&self, key: &[u8], put: &Put) -> Result<PutOutcome, StoreError> {
        let call = Call::once(&PUT)
            .arg(key)
            .arg(self.place.seal.close(Of::Record(key), &put.body))
            .number(put.ttl.map_or(0, whole_ms))
            .arg(expected(put.expects))
            .flag(put.respects_block)
            .flag(put.keep_created)
            .number(self.settings().max_records as u64);
        let reply = self.link.call(&call).await?;
        match wire::outcome(&reply)? {
            ("applied", version) => Ok(PutOutcome::Applied { version }),
            ("stale", epoch) => Ok(PutOutcome::Stale { epoch }),
            ("blocked", left_ms) => {
                Ok(PutOutcome::Blocked { remaining: Duration::from_millis(left_ms) })
            }
            ("full", _) => Ok(PutOutcome::Full),
            _ => Err(unknown(&reply)),
        }
    }

    pub(crate) async fn remove(
        &self,
        key: &[u8],
        expects: Expects,
        block_for: Option<Duration>,
    ) -> Result<RemoveOutcome, StoreError> {
        let call = Call::once(&REMOVE)
            .arg(key)
            .arg(expected(expects))
            .number(block_for.map_or(0, whole_ms))
            .number(self.settings().max_records as u64);
        let reply = self.link.call(&call).await?;
        match wire::outcome(&reply)? {
            ("applied", version) => Ok(RemoveOutcome::Applied { version }),
            ("stale", epoch) => Ok(RemoveOutcome::Stale { epoch }),
            ("absent", _) => Ok(RemoveOutcome::Absent),
            _ => Err(unknown(&reply)),
        }
    }

    pub(crate) async fn renew(
        &self,
        key: &[u8],
        epoch: u64,
        ttl: Duration,
    ) -> Result<RenewOutcome, StoreError> {
        let call = Call::repeatable(&RENEW).arg(key).number(epoch).number(whole_ms(ttl));
        let reply = self.link.call(&call).await?;
        match wire::outcome(&reply)? {
            ("applied", _) => Ok(RenewOutcome::Applied),
            ("stale", epoch) => Ok(RenewOutcome::Stale { epoch }),
            _ => Err(unknown(&reply)),
        }
    }

    pub(crate) async fn sweep(&self) -> Result<usize, StoreError> {
        let call = Call::repeatable(&SWEEP).number(SWEEP_BATCH as u64);
        let start = Instant::now();
        let mut removed = 0;
        loop {
            let batch = wire::number(&self.link.call(&call).await?)? as usize;
            removed += batch;
            // The rest can wait for the next sweep; the caller cannot.
            if batch < SWEEP_BATCH || start.elapsed() > self.settings().request_timeout / 4 {
                return Ok(removed);
            }
        }
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let reply = self.link.call(&Call::repeatable(&SNAPSHOT)).await?;
        wire::snapshot(&reply, &self.place.seal)
    }

    pub(crate) async fn heartbeat(
        &self,
        id: &str,
        body: &[u8],
        ttl: Duration,
    ) -> Result<Vec<Member>, StoreError> {
        let limit = self.settings().max_members;
        let seal = &self.place.seal;
        let body = &seal.close(Of::Member(id.as_bytes()), body);
        let mut known = self.roster.known_version();
        loop {
            let call = Call::repeatable(&HEARTBEAT)
                .arg(id)
                .arg(body)
                .number(whole_ms(ttl))
                .number(limit as u64)
                .number(known);
            let beat = wire::beat(&self.link.call(&call).await?)?;
            let beat = beat.ok_or(StoreError::TooManyMembers { limit })?;
            if let Some(members) = self.roster.take_in(known, beat, id, body) {
                let open = |member: Member| {
                    let body = seal.open(Of::Member(member.id.as_bytes()), &member.body)?;
                    Some(Member { body, ..member })
                };
                return Ok(members.into_iter().filter_map(open).collect());
            }
            // The answer continues a list that is not the one known here; a full list follows from nothing.
            known = 0;
        }
    }

    pub(crate) async fn leave(&self, id: &str) -> Result<(), StoreError> {
        self.link.call(&Call::repeatable(&LEAVE).arg(id)).await.map(drop)
    }

    pub(crate) async fn acknowledge(
        &self,
        topic: &str,
        member: &str,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let sealed = self.place.seal.close(Of::Ack(topic.as_bytes()), member.as_bytes());
        let word = if self.place.seal.is_keyed() { to_hex(&sealed) } else { member.to_owned() };
        let call = Call::repeatable(&ACKNOWLEDGE).arg(topic).arg(word).number(whole_ms(ttl));
        self.link.call(&call).await.map(drop)
    }

    pub(crate) async fn acknowledged(&self, topic: &str) -> Result<Vec<String>, StoreError> {
        let call = Call::repeatable(&ACKNOWLEDGE).arg(topic).arg("").number(0);
        let words = wire::texts(&self.link.call(&call).await?)?;
        let seal = &self.place.seal;
        if !seal.is_keyed() {
            return Ok(words);
        }
        let open = |word: String| {
            let member = seal.open(Of::Ack(topic.as_bytes()), &from_hex(&word)?)?;
            String::from_utf8(member).ok()
        };
        Ok(words.into_iter().filter_map(open).collect())
    }

    pub(crate) async fn publish(&self, channel: Channel, body: &[u8]) -> Result<(), StoreError> {
        let name = self.place.names.channel(channel);
        let body = self.place.seal.close(Of::Message(name.as_bytes()), body);
        self.link.call(&Call::message(channel, &body)).await.map(drop)
    }

    pub(crate) fn ignored(&self) -> u64 {
        self.place.seal.ignored()
    }

    pub(crate) fn subscribe(&self, channels: &[Channel]) -> Subscription {
        let (inbox, subscription) = Inbox::new(self.settings().queue_length);
        let (place, link) = (Arc::clone(&self.place), Arc::clone(&self.link));
        tokio::spawn(subscriber::run(place, link, inbox, channels.to_vec()));
        subscription
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

fn expected(expects: Expects) -> String {
    match expects {
        Expects::Any => "any".to_owned(),
        Expects::Epoch(epoch) => epoch.to_string(),
    }
}

fn unknown(reply: &Value) -> StoreError {
    StoreError::garbled(wire::shape(reply))
}
