//! One HTTP/1.1 request and its answer, over a plain connection.
//!
//! Called by: [`super::Client`].
//! Bound: a head of [`HEAD_BYTES`], a body of [`ANSWER_BYTES`], and one deadline for the whole.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use super::{ANSWER_BYTES, Client, ClientError};

/// Longest line and headers of an answer.
const HEAD_BYTES: usize = 16 * 1024;

/// Headers of an answer.
const HEADERS: usize = 64;

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Sends a request and reads its answer.
pub(super) fn exchange(
    client: &Client,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Answer, ClientError> {
    let deadline = Instant::now() + client.timeout;
    let address = client.address();
    let mut stream = connect(client, deadline)
        .map_err(|error| ClientError::Unreachable { address: address.clone(), error })?;
    let mut request = format!(
        "{method} {}{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Accept: application/json\r\nUser-Agent: heatsink/{}\r\nContent-Length: {}\r\n",
        client.prefix,
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    if let Some(token) = &client.token {
        request.extend(["Authorization: Bearer ", token, "\r\n"]);
    }
    if !body.is_empty() {
        request.push_str("Content-Type: application/json\r\n");
    }
    request.push_str("\r\n");
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    let text = converse(&mut stream, &bytes, deadline)
        .map_err(|error| ClientError::Broken { address, error })?;
    parse(&text).map_err(|why| client.foreign(why))
}

fn connect(client: &Client, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (client.host.as_str(), client.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Everything that the server sends until it closes, as it was asked to.
fn converse(stream: &mut TcpStream, request: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(request)?;
    let mut text = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(text),
            Ok(read) => text.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        if text.len() > HEAD_BYTES + ANSWER_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn parse(text: &[u8]) -> Result<Answer, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let head = &text[..text.len().min(HEAD_BYTES)];
    let body_at = match response.parse(head) {
        Ok(httparse::Status::Complete(body_at)) => body_at,
        Ok(httparse::Status::Partial) => return Err("its answer breaks off".into()),
        Err(_) => return Err("its answer is not HTTP".into()),
    };
    let header =
        |name: &str| response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let rest = &text[body_at..];
    let body = if header("transfer-encoding").is_some() {
        join_chunks(rest).ok_or("its answer breaks off")?
    } else if let Some(length) = header("content-length") {
        let length = str::from_utf8(length.value).ok().and_then(|text| text.trim().parse().ok());
        let length: usize = length.ok_or("its answer has no length")?;
        rest.get(..length).ok_or("its answer breaks off")?.to_vec()
    } else {
        rest.to_vec()
    };
    Ok(Answer { status: response.code.unwrap_or(0), body })
}

/// The body behind chunked transfer encoding, which something between may have put there.
fn join_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let Ok(httparse::Status::Complete((at, length))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        let length = usize::try_from(length).ok()?;
        if length == 0 {
            return Some(body);
        }
        let end = at.checked_add(length)?;
        body.extend_from_slice(rest.get(at..end)?);
        rest = rest.get(end..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_by_length_by_chunks_and_by_the_end() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nhello",
        ] {
            let answer = Answer { status: 200, body: b"hello".to_vec() };
            assert_eq!(parse(text.as_bytes()), Ok(answer), "{text}");
        }
    }

    #[test]
    fn what_breaks_off_or_is_no_http_is_an_error() {
        for text in [
            "",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello\r\n",
            "-ERR unknown command 'GET'\r\n",
            "+PONG\r\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
