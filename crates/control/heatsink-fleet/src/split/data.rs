//! A client of this process's own proxy, which does the routing: RESP2, pipelined.
//!
//! Called by: the data steps. Bound: [`SILENCE`] without a byte in either direction.
//! Invariant: after an error the connection is of no use, and is dropped.

use std::fmt;
use std::io;
use std::time::Duration;

use heatsink_proxy::Handle as ProxyHandle;
use heatsink_resp::encode;
use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::value::Value;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// How long a connection may stand still, in both directions.
const SILENCE: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Why there is no good reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataError {
    /// Nobody knows whether it was carried out.
    Lost(String),
    /// The server refused it.
    Refused(String),
    /// There is too little memory for it: it was not begun, or was removed again.
    NoRoom(String),
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "the upstream did not answer: {why}"),
            Self::Refused(why) => write!(f, "the upstream refused: {why}"),
            Self::NoRoom(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for DataError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Data {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Data {
    pub(crate) fn open(proxy: &ProxyHandle) -> Result<Self, DataError> {
        let stream = proxy.connect()?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream: TcpStream::from_std(stream)?, read: Vec::new() })
    }

    /// Sends complete requests; the replies as they came, in order.
    pub(crate) async fn ask<R: AsRef<[u8]>>(
        &mut self,
        requests: &[R],
    ) -> Result<Vec<Vec<u8>>, DataError> {
        let mut replies = Vec::with_capacity(requests.len());
        let requested: Vec<&[u8]> = requests.iter().map(AsRef::as_ref).collect();
        let requested = requested.concat();
        let mut unsent = requested.as_slice();
        let mut scan = ReplyScan::default();
        let mut chunk = vec![0; READ_BYTES];
        while replies.len() < requests.len() {
            let writes = if unsent.is_empty() { Interest::READABLE } else { BOTH };
            let ready = tokio::time::timeout(SILENCE, self.stream.ready(writes)).await;
            let ready = ready.map_err(|_| DataError::Lost("it is silent".to_owned()))??;
            if ready.is_writable() && !unsent.is_empty() {
                match self.stream.try_write(unsent) {
                    Ok(sent) => unsent = &unsent[sent..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if !ready.is_readable() {
                continue;
            }
            match self.stream.try_read(&mut chunk) {
                Ok(0) => return Err(DataError::Lost("the connection was closed".to_owned())),
                Ok(len) => self.read.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            let mut taken = 0;
            while replies.len() < requests.len() {
                match scan.advance(&self.read[taken..]) {
                    Ok(Status::Complete(len)) => {
                        replies.push(self.read[taken..taken + len].to_vec());
                        taken += len;
                        scan = ReplyScan::default();
                    }
                    Ok(Status::Incomplete) => break,
                    Err(_) => return Err(DataError::Lost("no reply of a server".to_owned())),
                }
            }
            self.read.drain(..taken);
        }
        Ok(replies)
    }

    /// The same, replies decoded.
    pub(crate) async fn values<R: AsRef<[u8]>>(
        &mut self,
        requests: &[R],
    ) -> Result<Vec<Value>, DataError> {
        let replies = self.ask(requests).await?;
        replies.iter().map(|reply| decode(reply)).collect()
    }

    /// The same, none of which may be refused.
    pub(crate) async fn accepted<R: AsRef<[u8]>>(
        &mut self,
        requests: &[R],
    ) -> Result<Vec<Value>, DataError> {
        let values = self.values(requests).await?;
        for value in &values {
            refusal(value)?;
        }
        Ok(values)
    }

    /// Carries out a transaction on the watched keys; none if one of them was changed.
    pub(crate) async fn transaction(
        &mut self,
        commands: &[Vec<u8>],
    ) -> Result<Option<Vec<Value>>, DataError> {
        let mut requests = vec![command(&[b"MULTI"])];
        requests.extend_from_slice(commands);
        requests.push(command(&[b"EXEC"]));
        let mut values = self.values(&requests).await?;
        match values.pop() {
            Some(Value::Nil) => Ok(None),
            Some(Value::Array(results)) => {
                results.iter().try_for_each(refusal)?;
                Ok(Some(results))
            }
            Some(Value::Error(_)) => {
                // The reason stands in the error of the command that could not be queued.
                values.iter().try_for_each(refusal)?;
                Err(DataError::Refused("the transaction was given up".to_owned()))
            }
            _ => Err(DataError::Lost("no reply to EXEC".to_owned())),
        }
    }
}

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// A request.
pub(crate) fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, args);
    out
}

pub(crate) fn decode(reply: &[u8]) -> Result<Value, DataError> {
    Value::decode(reply).map_err(|_| DataError::Lost("no reply of a server".to_owned()))
}

/// An error, if the server says so.
pub(crate) fn refusal(value: &Value) -> Result<(), DataError> {
    match value {
        Value::Error(why) => Err(DataError::Refused(String::from_utf8_lossy(why).into_owned())),
        _ => Ok(()),
    }
}
