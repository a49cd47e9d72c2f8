//! One request and its answer, over a plain connection of its own.
//!
//! Called by: [`super::Client`].
//! Bound: a body of [`ANSWER_BYTES`], and one deadline for the whole. A stream of events has no end and
//! no deadline: only its head has one.

use std::io::{self, BufRead as _, BufReader, Read as _};

use serde_json::Value;
use ureq::config::ConfigBuilder;
use ureq::http::{Request, Response, header};
use ureq::typestate::AgentScope;
use ureq::{Agent, Body, BodyReader};

use super::{ANSWER_BYTES, Client, ClientError};

/// What came back.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Changes as they come, each as the API says it, until the connection ends.
pub struct Events(BufReader<BodyReader<'static>>);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            let mut bounded = self.0.by_ref().take(ANSWER_BYTES as u64);
            if bounded.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).ok();
            }
        }
    }
}

/// Sends a request and reads its answer, whatever its status.
pub(super) fn exchange(
    client: &Client,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Answer, ClientError> {
    let timeouts = Agent::config_builder().timeout_global(Some(client.timeout));
    read(client, send(client, timeouts, method, path, body)?)
}

/// Asks for events; the answer, if it is another one.
pub(super) fn listen(client: &Client, path: &str) -> Result<Result<Events, Answer>, ClientError> {
    let patience = Some(client.timeout);
    let timeouts =
        Agent::config_builder().timeout_connect(patience).timeout_recv_response(patience);
    let response = send(client, timeouts, "GET", path, b"")?;
    if response.status().is_success() {
        return Ok(Ok(Events(BufReader::new(response.into_body().into_reader()))));
    }
    read(client, response).map(Err)
}

fn send(
    client: &Client,
    timeouts: ConfigBuilder<AgentScope>,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Response<Body>, ClientError> {
    let agent: Agent = timeouts
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("heatsink/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let url = format!("http://{}{}{path}", client.address(), client.prefix);
    let mut request =
        Request::builder().method(method).uri(url).header(header::ACCEPT, "application/json");
    if let Some(token) = &client.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let sent = if body.is_empty() {
        request.body(()).map_err(ureq::Error::from).and_then(|request| agent.run(request))
    } else {
        let request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        request.map_err(ureq::Error::from).and_then(|request| agent.run(request))
    };
    sent.map_err(|error| failure(client, error))
}

fn read(client: &Client, mut response: Response<Body>) -> Result<Answer, ClientError> {
    let body = response.body_mut().with_config().limit(ANSWER_BYTES as u64).read_to_vec();
    let body = body.map_err(|error| failure(client, error))?;
    Ok(Answer { status: response.status().as_u16(), body })
}

fn failure(client: &Client, error: ureq::Error) -> ClientError {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound,
        TimedOut,
    };
    let address = client.address();
    let error = match error {
        ureq::Error::Io(error) => error,
        ureq::Error::HostNotFound => io::Error::new(NotFound, "the name has no address"),
        ureq::Error::ConnectionFailed => ConnectionRefused.into(),
        ureq::Error::Timeout(_) => TimedOut.into(),
        other => return client.foreign(other.to_string()),
    };
    match error.kind() {
        ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable | NotFound => {
            ClientError::Unreachable { address, error }
        }
        _ => ClientError::Broken { address, error },
    }
}
