//! One request and its answer, over a plain connection of its own.
//!
//! Called by: [`super::Client`].
//! Bound: a body of [`ANSWER_BYTES`], and one deadline for the whole.

use std::io;

use ureq::Agent;
use ureq::http::{Request, header};

use super::{ANSWER_BYTES, Client, ClientError};

/// What came back.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Sends a request and reads its answer, whatever its status.
pub(super) fn exchange(
    client: &Client,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Answer, ClientError> {
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(client.timeout))
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
    let mut response = sent.map_err(|error| failure(client, error))?;
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
