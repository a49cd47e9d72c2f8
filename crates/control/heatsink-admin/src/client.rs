//! The API from the other side: what `heatsink keys`, `heatsink top` and scripts in Rust need
//! of it.
//!
//! Called by: the CLI, `heatsink-top`, the demo and the benchmarks. Blocking, one connection a
//! request.
//! Bound: an answer of at most [`ANSWER_BYTES`] within the timeout, at most [`PAGES`] pages of
//! a list; of [`Events`], one line of that length at a time.
//! Invariant: an error says what was tried and what to do.

mod exchange;

use std::fmt;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control::Promotion;
use crate::key_name::encode;
use crate::view::HotKeyView;
use exchange::Answer;
pub use exchange::Events;

/// Longest answer that is read.
pub const ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Most pages that are read of one list.
pub const PAGES: usize = 1000;

const DEFAULT_PORT: u16 = 9600;

/// One admin address.
#[derive(Clone, Debug)]
pub struct Client {
    host: String,
    port: u16,
    /// In front of every path; empty, or begins with a slash.
    prefix: String,
    token: Option<String>,
    timeout: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum ClientError {
    /// The address makes no sense.
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nothing listens there.
    Unreachable {
        /// host:port.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// The connection broke, or the answer did not come in time.
    Broken {
        /// host:port.
        address: String,
        /// What was seen.
        error: io::Error,
    },
    /// What answered is not Heatsink.
    Foreign {
        /// host:port.
        address: String,
        /// What was seen.
        why: String,
    },
    /// Heatsink refused.
    Refused {
        /// The status of the answer.
        status: u16,
        /// What kind of error it is.
        title: String,
        /// What to do about it.
        detail: String,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { url, why } => write!(f, "{url:?} is not an admin address: {why}"),
            Self::Unreachable { address, error } => write!(
                f,
                "nothing answers at {address} ({error}): is Heatsink running, and is this its \
                 admin address? See `admin` in its configuration, and --admin here"
            ),
            Self::Broken { address, error } => {
                write!(f, "{address} broke off, or did not answer in time: {error}")
            }
            Self::Foreign { address, why } => {
                write!(f, "what listens at {address} is not the admin address of Heatsink: {why}")
            }
            Self::Refused { title, detail, status } => write!(f, "{title} ({status}). {detail}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl Client {
    /// A client of `url`: `http://host:port`, or just `host:port`, or `host`.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let wrong = |why| ClientError::Address { url: url.to_owned(), why };
        if url.starts_with("https://") {
            return Err(wrong(
                "this client does not speak TLS; use http://, through a tunnel if needed",
            ));
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['?', '#', '@', '\\']) {
            return Err(wrong("it must be of the form http://host:port"));
        }
        let rest = url.strip_prefix("http://").unwrap_or(url);
        if rest.contains("://") {
            return Err(wrong("it must begin with http://"));
        }
        let (authority, prefix) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let (host, port) = split_authority(authority).ok_or_else(|| wrong("the port is wrong"))?;
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        if token.is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(wrong("the token has characters that cannot be sent"));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            prefix: prefix.trim_end_matches('/').to_owned(),
            token: token.map(str::to_owned),
            timeout: Duration::from_secs(15),
        })
    }

    /// The same, waiting at most `timeout` for each answer.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// All hot keys that match `filters` (names and values as in the API), on all pages.
    pub fn list(&self, filters: &[(&str, &str)]) -> Result<Vec<HotKeyView>, ClientError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let mut path = "/hotkeys?limit=1000".to_owned();
            let next = cursor.as_deref().map(|cursor| ("cursor", cursor));
            for (name, value) in filters.iter().copied().chain(next) {
                path.extend(["&", name, "=", &encode(value.as_bytes())]);
            }
            let mut page = self.get(&path)?;
            let more: Vec<HotKeyView> = self.read(page["items"].take())?;
            items.extend(more);
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(items)
    }

    /// One hot key.
    pub fn show(&self, key: &[u8]) -> Result<HotKeyView, ClientError> {
        self.read(self.get(&format!("/hotkeys/{}", encode(key)))?)
    }

    /// Forces a key into the registry.
    pub fn promote(&self, key: &[u8], promotion: Promotion) -> Result<HotKeyView, ClientError> {
        let mut body = json!({ "mitigation_type": promotion.mitigation.name() });
        if let Some(split_factor) = promotion.split_factor {
            body["split_factor"] = split_factor.into();
        }
        if let Some(ttl_seconds) = promotion.ttl_seconds {
            body["ttl_seconds"] = ttl_seconds.into();
        }
        let path = format!("/hotkeys/{}/promote", encode(key));
        self.read(self.request("POST", &path, body.to_string().as_bytes())?)
    }

    /// Removes a key from the registry.
    pub fn demote(&self, key: &[u8]) -> Result<Value, ClientError> {
        self.request("DELETE", &format!("/hotkeys/{}", encode(key)), b"")
    }

    /// What the mitigation of a key achieves.
    pub fn stats(&self, key: &[u8]) -> Result<Value, ClientError> {
        self.get(&format!("/hotkeys/{}/stats", encode(key)))
    }

    /// The policy that holds for a key.
    pub fn policy(&self, key: &[u8]) -> Result<Value, ClientError> {
        self.get(&format!("/policy?key={}", encode(key)))
    }

    /// The policies in force: of each rule, and the default.
    pub fn policies(&self) -> Result<Value, ClientError> {
        self.get("/policies")
    }

    /// The last samples of the fleet, at most 300.
    pub fn history(&self, samples: u32) -> Result<Value, ClientError> {
        self.get(&format!("/history?samples={samples}"))
    }

    /// The last samples of a key, and what was decided about it.
    pub fn key_history(&self, key: &[u8]) -> Result<Value, ClientError> {
        self.get(&format!("/hotkeys/{}/history", encode(key)))
    }

    /// The live members of the fleet.
    pub fn proxies(&self) -> Result<Value, ClientError> {
        self.get("/proxies")
    }

    /// In which state the process is; refused with 503 while it should not be given traffic.
    pub fn readiness(&self) -> Result<Value, ClientError> {
        self.get("/readyz")
    }

    /// The figures of this moment, in the text form of Prometheus.
    pub fn metrics(&self) -> Result<String, ClientError> {
        let answer = exchange::exchange(self, "GET", "/metrics", b"")?;
        if answer.status == 200 {
            return Ok(String::from_utf8_lossy(&answer.body).into_owned());
        }
        Err(self.refusal(&answer))
    }

    /// Changes from now on. The first event is empty: what is read after it misses nothing.
    pub fn events(&self) -> Result<Events, ClientError> {
        exchange::listen(self, "/events")?.map_err(|answer| self.refusal(&answer))
    }

    fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.request("GET", path, b"")
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<Value, ClientError> {
        let answer = exchange::exchange(self, method, path, body)?;
        if (200..300).contains(&answer.status) {
            self.json(&answer)
        } else {
            Err(self.refusal(&answer))
        }
    }

    fn json(&self, answer: &Answer) -> Result<Value, ClientError> {
        serde_json::from_slice(&answer.body)
            .map_err(|_| self.foreign(format!("it answers {} and not JSON", answer.status)))
    }

    fn refusal(&self, answer: &Answer) -> ClientError {
        let value = match self.json(answer) {
            Ok(value) => value,
            Err(error) => return error,
        };
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        match (text("title"), text("detail")) {
            (Some(title), Some(detail)) => {
                ClientError::Refused { status: answer.status, title, detail }
            }
            _ => self.foreign(format!("it answers {}", answer.status)),
        }
    }

    fn read<T: DeserializeOwned>(&self, answer: Value) -> Result<T, ClientError> {
        serde_json::from_value(answer)
            .map_err(|error| self.foreign(format!("it answers something else: {error}")))
    }

    fn address(&self) -> String {
        let host = &self.host;
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    fn foreign(&self, why: impl Into<String>) -> ClientError {
        ClientError::Foreign { address: self.address(), why: why.into() }
    }
}

/// Host and port; nothing if the port is no port.
fn split_authority(authority: &str) -> Option<(&str, u16)> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => authority.find(':').map_or((authority, ""), |colon| authority.split_at(colon)),
    };
    match rest.strip_prefix(':') {
        Some(port) => Some((host, port.parse().ok().filter(|&port| port > 0)?)),
        None => rest.is_empty().then_some((host, DEFAULT_PORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Option<String> {
        Client::new(url, None).ok().map(|client| client.address() + &client.prefix)
    }

    #[test]
    fn addresses() {
        for (url, expected) in [
            ("http://127.0.0.1:9600", "127.0.0.1:9600"),
            ("http://localhost:9601/", "localhost:9601"),
            ("localhost", "localhost:9600"),
            ("[::1]:7", "[::1]:7"),
            ("http://[::1]", "[::1]:9600"),
            ("http://ops.example:80/heat/", "ops.example:80/heat"),
        ] {
            assert_eq!(address(url).as_deref(), Some(expected), "{url}");
        }
        for url in [
            "https://a",
            "redis://a",
            "http://",
            "http://a:",
            "http://a:0",
            "http://a:x",
            "http://u:p@a",
            "http://a b",
            "[::1",
            "http://a?b",
            "http://a:70000",
            "",
        ] {
            assert_eq!(address(url), None, "{url}");
        }
    }
}
