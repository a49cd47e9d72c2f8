//! A connection to a sentinel or a server, which ends with the watch.
//!
//! Bound: the timeout for connecting and for each reply; `MAX_REPLY_BYTES` of a reply.
//! Invariant: it is shut down when the watch ends, whatever it waits for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use heatsink_resp::encode;
use heatsink_resp::value::Value;

use super::shared::{Registration, Shared};
use super::{Connector, SocketName};
use crate::address::Credentials;
use crate::client::{Client, ClientError, connect};
use crate::error::LinkError;

/// More than sentinels have to say about any number of each other.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// How connections are made.
#[derive(Clone)]
pub(super) struct Dialing {
    /// For connecting and for every reply.
    pub(super) timeout: Duration,
    /// `None` for plain connections.
    pub(super) connector: Option<Connector>,
    pub(super) shared: Arc<Shared>,
}

/// An open connection.
pub(super) struct Line {
    client: Client,
    _registration: Registration,
}

impl Dialing {
    /// Connects and, with `credentials`, authenticates.
    pub(super) fn open(
        &self,
        name: &SocketName,
        credentials: Option<&Credentials>,
    ) -> Result<Line, LinkError> {
        let connected = connect(&name.host, name.port, self.timeout);
        let socket = connected.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => LinkError::ConnectTimeout,
            _ => LinkError::Connect(error),
        })?;
        let registration = Shared::register(&self.shared, &socket).map_err(LinkError::Connect)?;
        let control = socket.try_clone().map_err(LinkError::Connect)?;
        let stream = match &self.connector {
            None => Box::new(socket),
            Some(connector) => connector(socket, &name.host).map_err(LinkError::Connect)?,
        };
        let mut client =
            Client::over(name.to_string(), stream, control, self.timeout, MAX_REPLY_BYTES);
        if let Some(credentials) = credentials {
            client.authenticate(credentials).map_err(failed)?;
        }
        Ok(Line { client, _registration: registration })
    }
}

impl Line {
    /// One request, one reply.
    pub(super) fn call(&mut self, args: &[&[u8]]) -> Result<Value, LinkError> {
        self.client.ask(args).map_err(failed)
    }

    /// Sends requests, all at once.
    pub(super) fn send(&mut self, requests: &[&[&[u8]]]) -> Result<(), LinkError> {
        let mut bytes = Vec::new();
        for args in requests {
            encode::command(&mut bytes, args);
        }
        self.client.send(&bytes).map_err(failed)
    }

    /// The next reply, which has to come within the timeout.
    pub(super) fn reply(&mut self) -> Result<Value, LinkError> {
        self.client.reply().map_err(failed)
    }

    /// The next reply, if one is complete within `timeout`.
    pub(super) fn receive(&mut self, timeout: Duration) -> Result<Option<Value>, LinkError> {
        self.client.receive(timeout).map_err(failed)
    }
}

/// A reply that is no error.
pub(super) fn accepted(reply: Value) -> Result<Value, LinkError> {
    match reply {
        Value::Error(text) => Err(LinkError::Refused(text)),
        reply => Ok(reply),
    }
}

fn failed(error: ClientError) -> LinkError {
    match error {
        ClientError::Io { error, .. } => match error.kind() {
            // Which of the two a passed timeout is depends on the system.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::Silent,
            io::ErrorKind::UnexpectedEof => LinkError::Closed,
            _ => LinkError::Io(error),
        },
        ClientError::Refused { reply, .. } => LinkError::Refused(reply.into_bytes()),
        ClientError::Garbled { .. } | ClientError::Unsupported(_) => LinkError::Garbled,
    }
}
