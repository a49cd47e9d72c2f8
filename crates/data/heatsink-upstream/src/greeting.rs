//! The first words on a new connection: who we are, which protocol, which database.
//!
//! Requests wait until the server has accepted all of it. Sent right behind an `AUTH` that
//! then fails, they would run as somebody else.

use heatsink_resp::encode;
use heatsink_resp::value::Value;

use crate::address::Credentials;
use crate::link::Use;

/// The protocol version a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// What every server speaks.
    Resp2,
    /// Since Redis 6.
    Resp3,
}

/// What a connection is to be set up as.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Login {
    /// User to authenticate as; nobody if `None`.
    pub credentials: Option<Credentials>,
    /// Database to select.
    pub db: u32,
    /// Protocol to speak.
    pub protocol: Protocol,
}

impl Login {
    /// The user whose rights it has, however it logs in.
    pub fn user_name(&self) -> &[u8] {
        self.credentials.as_ref().map_or(b"default", Credentials::user_name)
    }
}

/// What the next reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The server must agree.
    Required,
    /// Nice to have: a server too old for it, or a user without the right, is fine.
    Optional,
    /// The server's number for this connection, where it tells, and whether it wants a
    /// password before it tells anything.
    Id,
}

/// A greeting under way.
#[derive(Debug)]
pub(crate) struct Greeting {
    steps: Vec<Step>,
    done: usize,
    /// The server's id of the connection.
    pub(crate) connection_id: Option<i64>,
    /// The server wants authentication first: everything but `AUTH` is answered `NOAUTH`.
    pub(crate) needs_auth: bool,
}

impl Greeting {
    /// The greeting and the bytes to send for it. Connections that clients share have a name
    /// by which an operator knows them; others have the name that their client gives them.
    pub(crate) fn new(login: &Login, purpose: Use) -> (Self, Vec<u8>) {
        let mut steps = Vec::new();
        let mut bytes = Vec::new();
        let mut say = |step, args: &[&[u8]]| {
            steps.push(step);
            encode::command(&mut bytes, args);
        };
        match (&login.credentials, login.protocol) {
            (Some(c), Protocol::Resp3) => {
                say(Step::Required, &[b"HELLO", b"3", b"AUTH", c.user_name(), &c.password]);
            }
            (None, Protocol::Resp3) => say(Step::Required, &[b"HELLO", b"3"]),
            (Some(c), Protocol::Resp2) => match &c.user {
                Some(user) => say(Step::Required, &[b"AUTH", user, &c.password]),
                None => say(Step::Required, &[b"AUTH", &c.password]),
            },
            (None, Protocol::Resp2) => {}
        }
        if login.db != 0 {
            say(Step::Required, &[b"SELECT", login.db.to_string().as_bytes()]);
        }
        if purpose.shared {
            say(Step::Optional, &[b"CLIENT", b"SETNAME", b"heatsink"]);
        }
        if purpose.replica {
            say(Step::Optional, &[b"READONLY"]);
        }
        if purpose.tracking {
            // Never with NOLOOP: an own write would end the tracking of its key unheard.
            say(Step::Required, &[b"CLIENT", b"TRACKING", b"ON", b"OPTIN"]);
            // Said before each read that is to be tracked. A user may have the right to one of the
            // two only. It is about the next command, `CLIENT ID`, which reads no key.
            say(Step::Required, &[b"CLIENT", b"CACHING", b"YES"]);
        }
        say(Step::Id, &[b"CLIENT", b"ID"]);
        (Self { steps, done: 0, connection_id: None, needs_auth: false }, bytes)
    }

    /// The server has said something.
    pub(crate) fn is_answered(&self) -> bool {
        self.done > 0
    }

    /// Takes the next reply. `Ok(true)` when the greeting is over; the server's error,
    /// without its `-`, when it refused.
    pub(crate) fn on_reply(&mut self, frame: &[u8]) -> Result<bool, Vec<u8>> {
        let step = self.steps[self.done];
        self.done += 1;
        let value = Value::decode(frame).unwrap_or(Value::Nil);
        match (step, value) {
            (Step::Required, Value::Error(error)) => return Err(error),
            (Step::Id, Value::Error(error)) => self.needs_auth = error.starts_with(b"NOAUTH"),
            (Step::Id, value) => self.connection_id = value.integer(),
            _ => {}
        }
        Ok(self.done == self.steps.len())
    }
}
