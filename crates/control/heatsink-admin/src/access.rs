//! Who may ask.
//!
//! Called by: the guard in front of the routes.
//! Invariant: without a token nothing is open to another machine, nor to a web page of another
//! site in a browser on this one.
//!
//! With a token, every protected request must carry it, on loopback too. That also keeps web
//! pages out: a browser does not add a bearer token by itself.
//!
//! Without a token the listener is on loopback ([`crate::Server::new`] refuses anything else),
//! and the danger left is a browser on this machine. A page of another site can send requests
//! to 127.0.0.1 in two ways:
//!
//! - From its own origin. It cannot read the answers, but a POST without a preflight would
//!   have its effect. Browsers state the page's origin in `Origin`; unless that is the very
//!   host and port which the request is addressed to, the request is refused.
//! - By DNS rebinding: the page's own name is made to resolve to 127.0.0.1, so that for the
//!   browser it is the same origin. The name is then in `Host`; a `Host` that is neither
//!   `localhost` nor a loopback address nor allowed by the settings is refused. The port is
//!   not compared: a forwarded port may differ, and rebinding needs the foreign name anyway.
//!
//! Health checks and the files of the page are open to all: they hold nothing about keys or the fleet.

use std::fmt;
use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::problem::Problem;

/// A bearer token. Only its hash is kept: equal lengths to compare, and nothing to leak.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The token that clients must show; nothing if it is empty or has characters that cannot
    /// stand in a header.
    pub fn new(token: &str) -> Option<Self> {
        let fits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(Sha256::digest(token).into()))
    }

    fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        self.0.ct_eq(&shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The rule for one listener.
#[derive(Debug)]
pub(crate) enum Access {
    /// The token must be shown.
    Token(Token),
    /// Loopback: the request must be meant for this machine, and not come from a foreign page.
    Local {
        /// Further names of this machine.
        allowed_hosts: Vec<String>,
    },
}

impl Access {
    /// Lets a request pass or says why not.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match self {
            Self::Token(token) => check_token(token, headers),
            Self::Local { allowed_hosts } => check_local(allowed_hosts, headers),
        }
    }
}

fn check_token(token: &Token, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Err(Problem::unauthorized(
            "Send the header \"Authorization: Bearer TOKEN\" with the token of the \
             configuration.",
        ));
    };
    let shown = value.as_bytes().split_at_checked(7);
    match shown {
        Some((scheme, shown)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
            if token.is(shown.trim_ascii()) {
                Ok(())
            } else {
                Err(Problem::unauthorized("The token is not the one of the configuration."))
            }
        }
        _ => Err(Problem::unauthorized("The Authorization header must be \"Bearer TOKEN\".")),
    }
}

fn check_local(allowed_hosts: &[String], headers: &HeaderMap) -> Result<(), Problem> {
    let host = only(headers, &HOST)?
        .ok_or_else(|| Problem::bad_request("Exactly one Host header is needed."))?;
    let name = host_name(host);
    let is_here = name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        || allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if !is_here {
        return Err(Problem::foreign(
            "Without a token, requests must be addressed to localhost or a loopback address. \
             Ask by a loopback name or address, or configure a token.",
        ));
    }
    match only(headers, &ORIGIN)? {
        None => Ok(()),
        Some(origin) if origin.split_once("://").is_some_and(|(_, from)| from == host) => Ok(()),
        Some(_) => Err(Problem::foreign(
            "Without a token, web pages of other origins may not use this API.",
        )),
    }
}

/// The header's only value; two of one are a trick.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match (value.map(|value| value.to_str()), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(Problem::bad_request(format!("Exactly one {name} header is needed."))),
    }
}

/// `host` without its port and without the brackets of an IPv6 address.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn status(access: &Access, pairs: &[(&'static str, &'static str)]) -> u16 {
        access.check(&headers(pairs)).map_or_else(|problem| problem.status(), |()| 200)
    }

    #[test]
    fn a_token_is_compared_whole() {
        let access = Access::Token(Token::new("s3cret").unwrap());
        assert_eq!(status(&access, &[("authorization", "Bearer s3cret")]), 200);
        assert_eq!(status(&access, &[("authorization", "bearer  s3cret ")]), 200);
        for wrong in ["Bearer s3cre", "Bearer s3crets", "Bearer ", "Basic s3cret", "s3cret", ""] {
            assert_eq!(status(&access, &[("authorization", wrong)]), 401, "{wrong}");
        }
        assert_eq!(status(&access, &[]), 401);
        assert!(Token::new("").is_none() && Token::new("two words").is_none());
    }

    #[test]
    fn only_this_machine_and_its_own_pages_without_a_token() {
        let access = Access::Local { allowed_hosts: vec!["ops.example".into()] };
        for host in ["localhost", "LOCALHOST:9600", "127.0.0.1:9600", "127.9.9.9", "[::1]:9600"] {
            assert_eq!(status(&access, &[("host", host)]), 200, "{host}");
        }
        assert_eq!(status(&access, &[("host", "ops.example:80")]), 200);
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:9600", "[::2]", "", "::1"]
        {
            assert_eq!(status(&access, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&access, &[]), 400);
        assert_eq!(status(&access, &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let access = Access::Local { allowed_hosts: Vec::new() };
        let from = |origin| status(&access, &[("host", "127.0.0.1:9600"), ("origin", origin)]);
        assert_eq!(from("http://127.0.0.1:9600"), 200);
        for foreign in
            ["http://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:9600", ""]
        {
            assert_eq!(from(foreign), 403, "{foreign}");
        }
    }
}
