//! The calls of the shared tier, as commands.
//!
//! Called by: `shared`.
//! Bound: each call has the store's timeout; a redirection is followed once.
//! Invariant: every call is about one key, so it works on a cluster, and is sent at once; what must
//! not be torn apart is a script.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};
use tokio::time::timeout;

use super::link::{Link, Speaking};
use super::{Core, Down};
use crate::clock::whole_ms;
use crate::fence::{Fence, NO_LINK};

/// Where processes tell each other of their writes, if the server does not.
pub(super) const CHANNEL: &str = "heatsink:changed";

/// Replaces what has `ARGV[1]` as its first bytes, and only that. As many as tell one writing from
/// another; what somebody else wrote may be shorter, and is compared whole then.
const REPLACE: &str = "\
if redis.call('GETRANGE', KEYS[1], 0, 19) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if ARGV[4] ~= '' then redis.call('PUBLISH', ARGV[4], ARGV[5]) end
return 1";

/// Deletes what is exactly `ARGV[1]`.
const RELEASE: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then redis.call('PUBLISH', ARGV[2], ARGV[3]) end
return 1";

/// Prolongs the life of what is exactly `ARGV[1]`.
const RENEW: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// What lies under a key.
pub(crate) struct Looked {
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) left: Span,
    /// Taken before the read.
    pub(crate) fence: Fence,
}

/// How long a key has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    For(Duration),
    ForEver,
}

impl Core {
    /// Reads a key, and has the server tell of its next change.
    pub(crate) async fn look(&self, key: &[u8]) -> Result<Looked, Down> {
        if self.is_pending(key) {
            return Err(Down::new("a deletion of the key has not been confirmed yet"));
        }
        let stripe = self.stripe(key);
        // Before the link: what is read through an older one does not count.
        let epoch = self.fences.epoch(stripe);
        let answer = self
            .ask(key, |speaking| {
                let mut pipe = tracked(speaking);
                pipe.cmd("GET").arg(key).cmd("PTTL").arg(key);
                Request::Pipe(pipe)
            })
            .await;
        let (value, link) = match answer {
            Err(down) if down.0.contains("WRONGTYPE") => return self.clear_away(key).await,
            answer => answer?,
        };
        let (bytes, left): (Option<Vec<u8>>, i64) = parse(value)?;
        if bytes.as_ref().is_some_and(Vec::is_empty) {
            return self.clear_away(key).await;
        }
        let left = match left {
            -1 => Span::ForEver,
            left => Span::For(Duration::from_millis(u64::try_from(left).unwrap_or(0))),
        };
        Ok(Looked { bytes, left, fence: Fence { epoch, stripe, link } })
    }

    /// A list, say, or an empty string: not ours, and no first bytes by which it could be replaced.
    async fn clear_away(&self, key: &[u8]) -> Result<Looked, Down> {
        self.delete(key).await?;
        let fence = self.fences.take(self.stripe(key), NO_LINK);
        Ok(Looked { bytes: Some(Vec::new()), left: Span::ForEver, fence })
    }

    /// Whether the key still begins so; has the server tell of its next change.
    pub(crate) async fn check(&self, key: &[u8], head: &[u8]) -> Result<Option<Fence>, Down> {
        let stripe = self.stripe(key);
        let epoch = self.fences.epoch(stripe);
        let (value, link) = self
            .ask(key, |speaking| {
                let mut pipe = tracked(speaking);
                pipe.cmd("GETRANGE").arg(key).arg(0).arg(head.len() - 1);
                Request::Pipe(pipe)
            })
            .await?;
        let (found,): (Vec<u8>,) = parse(value)?;
        Ok((found == head).then_some(Fence { epoch, stripe, link }))
    }

    /// Writes a marker where nothing is.
    pub(crate) async fn claim(
        &self,
        key: &[u8],
        marker: &[u8],
        life: Duration,
    ) -> Result<bool, Down> {
        let mut cmd = redis::cmd("SET");
        cmd.arg(key).arg(marker).arg("NX").arg("PX").arg(whole_ms(life).max(1));
        self.hold(key, marker, cmd).await
    }

    /// Prolongs the life of a marker. If it is gone, the key has changed.
    pub(crate) async fn renew(
        &self,
        key: &[u8],
        marker: &[u8],
        life: Duration,
    ) -> Result<bool, Down> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(RENEW).arg(1).arg(key).arg(marker).arg(whole_ms(life).max(1));
        let is_held = self.hold(key, marker, cmd).await;
        if matches!(is_held, Ok(false)) {
            self.key_changed(key);
        }
        is_held
    }

    /// Writes a marker, and looks whether it lies there. The server is to tell of the marker's end,
    /// and an own write has it forget what it was to tell:
    ///
    /// ```text
    /// holder                       server                 other process
    ///   reads: nothing             will tell the holder
    ///   SET k marker NX            will tell nobody
    ///   loads old
    ///                                                     changes the database, DEL k
    ///   asked again: joins the load, and is given what is old
    /// ```
    async fn hold(&self, key: &[u8], marker: &[u8], write: Cmd) -> Result<bool, Down> {
        let (value, _) = self
            .ask(key, |speaking| {
                let mut pipe = redis::pipe();
                pipe.add_command(write.clone());
                then_tracked(speaking, &mut pipe);
                pipe.cmd("GETRANGE").arg(key).arg(0).arg(marker.len() - 1);
                Request::Pipe(pipe)
            })
            .await?;
        let (_, found): (Value, Vec<u8>) = parse(value)?;
        Ok(found == marker)
    }

    pub(crate) async fn release(&self, key: &[u8], what: &[u8]) -> Result<bool, Down> {
        let released = self
            .script(RELEASE, key, |speaking, cmd| {
                cmd.arg(what);
                self.publish_args(speaking, key, cmd);
            })
            .await;
        self.key_changed(key);
        released
    }

    /// Replaces what begins with `head`, and only that.
    pub(crate) async fn replace(
        &self,
        key: &[u8],
        head: &[u8],
        what: &[u8],
        life: Duration,
    ) -> Result<bool, Down> {
        let replaced = self
            .script(REPLACE, key, |speaking, cmd| {
                cmd.arg(head).arg(what).arg(whole_ms(life).max(1));
                self.publish_args(speaking, key, cmd);
            })
            .await;
        if !matches!(replaced, Ok(false)) {
            self.key_changed(key);
        }
        replaced
    }

    /// Writes, whatever is there. What is there makes way for a marker first, and only the marker is
    /// replaced by the value: of two steps that arrive late, because a connection was lost or the
    /// server was paused, neither brings a value back.
    ///
    /// ```text
    /// one                            server          other
    ///   SET k value                  (paused)
    ///   no answer: unconfirmed
    ///                                                DEL k, or SET k newer: confirmed
    ///                                SET k value     <- it would be back
    /// ```
    ///
    /// If the marker is gone, somebody has written after us.
    pub(crate) async fn put(
        &self,
        key: &[u8],
        marker: &[u8],
        what: &[u8],
        life: Duration,
    ) -> Result<(), Down> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(marker).arg("PX").arg(whole_ms(self.timeout * 2).max(1));
        self.write(key, set).await?;
        let replaced = self.replace(key, marker, what, life).await;
        if replaced.is_err() {
            self.postpone_deletion(key);
        }
        replaced.map(drop)
    }

    pub(crate) async fn delete(&self, key: &[u8]) -> Result<(), Down> {
        let mut del = redis::cmd("DEL");
        del.arg(key);
        self.write(key, del).await
    }

    /// A write of ours. If its fate is unknown the key is deleted as soon as that is possible, and
    /// not read before.
    async fn write(&self, key: &[u8], cmd: Cmd) -> Result<(), Down> {
        let result = self
            .ask(key, |speaking| {
                if speaking.server_tells {
                    return Request::One(cmd.clone());
                }
                // No transaction: a server without memory refuses that, even to delete. If only the
                // word of it is lost, the fate is unknown, too.
                let mut pipe = redis::pipe();
                let mut publish = redis::cmd("PUBLISH");
                publish.arg(CHANNEL).arg(self.message(key));
                pipe.add_command(cmd.clone()).add_command(publish);
                Request::Pipe(pipe)
            })
            .await;
        match &result {
            Ok(_) if self.is_pending(key) => self.deletion_confirmed(key),
            Ok(_) => {}
            Err(_) => self.postpone_deletion(key),
        }
        self.key_changed(key);
        result.map(drop)
    }

    fn message(&self, key: &[u8]) -> Vec<u8> {
        [&self.id[..], key].concat()
    }

    fn publish_args(&self, speaking: &Speaking, key: &[u8], cmd: &mut Cmd) {
        if speaking.server_tells {
            cmd.arg("").arg("");
        } else {
            cmd.arg(CHANNEL).arg(self.message(key));
        }
    }

    async fn script(
        &self,
        script: &str,
        key: &[u8],
        args: impl Fn(&Speaking, &mut Cmd),
    ) -> Result<bool, Down> {
        let (value, _) = self
            .ask(key, |speaking| {
                let mut cmd = redis::cmd("EVAL");
                cmd.arg(script).arg(1).arg(key);
                args(speaking, &mut cmd);
                Request::One(cmd)
            })
            .await?;
        parse(value)
    }

    /// Sends a request to the server that has the key, also if that has changed.
    async fn ask(
        &self,
        key: &[u8],
        request: impl Fn(&Speaking) -> Request,
    ) -> Result<(Value, u16), Down> {
        let mut changed = self.changed.subscribe();
        for attempt in 0..2 {
            let link = self.read_nodes().link_of(key).ok_or_else(|| Down::new("not connected"))?;
            let speaking = link.speaking()?;
            let error = match timeout(self.timeout, request(&speaking).send(&speaking)).await {
                Ok(Ok(value)) => return Ok((value, link.id)),
                Ok(Err(error)) => error,
                Err(_) => {
                    let ms = self.timeout.as_millis();
                    return Err(Down::new(format_args!("no answer within {ms} ms")));
                }
            };
            speaking.note(&error);
            if !super::locate::is_moved(&error) || attempt > 0 {
                return Err(Down::new(error));
            }
            changed.mark_unchanged();
            self.map_is_old.notify_one();
            // The new map, or the old one if that takes too long.
            let _ = timeout(self.timeout, changed.changed()).await;
        }
        Err(Down::new("redirected again and again"))
    }

    /// Sends a deletion again that was not confirmed, along one link.
    pub(super) async fn send_pending(&self, link: &Link) {
        for key in self.pending() {
            let is_theirs = self.read_nodes().link_of(&key).is_some_and(|l| l.id == link.id);
            if is_theirs && self.delete(&key).await.is_err() {
                return;
            }
        }
    }
}

enum Request {
    One(Cmd),
    Pipe(Pipeline),
}

impl Request {
    async fn send(&self, speaking: &Speaking) -> Result<Value, RedisError> {
        let mut connection = speaking.connection.clone();
        match self {
            Self::One(cmd) => cmd.query_async(&mut connection).await,
            Self::Pipe(pipe) => pipe.query_async(&mut connection).await,
        }
    }
}

/// The beginning of a read of which the server is to tell the next change.
fn tracked(speaking: &Speaking) -> Pipeline {
    let mut pipe = redis::pipe();
    then_tracked(speaking, &mut pipe);
    pipe
}

/// What is read next, the server is to tell the next change of.
fn then_tracked(speaking: &Speaking, pipe: &mut Pipeline) {
    if speaking.server_tells {
        pipe.cmd("CLIENT").arg("CACHING").arg("YES").ignore();
    }
}

fn parse<T: FromRedisValue>(value: Value) -> Result<T, Down> {
    T::from_redis_value(value).map_err(|_| Down::new("an answer that is not understood"))
}
