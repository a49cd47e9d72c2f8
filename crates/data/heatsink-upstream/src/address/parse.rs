//! Takes the URL of an upstream apart.
//!
//! Called by: the configuration.
//! Invariant: an error never quotes a part in which a password may stand: neither what comes
//! before the last `@` of the hosts nor a query parameter.

use std::fmt;
use std::str::FromStr;

use super::{ClusterUrl, Credentials, SentinelUrl, ServerUrl, Url};

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What is wrong with an upstream URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

fn fail<T>(what: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError(what.into()))
}

/// What every form but `embedded://` has: `[user:pass@]hosts[/path][?query]`.
struct Parts<'a> {
    credentials: Option<Credentials>,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return fail("not a URL: expected redis://[user:pass@]host:port[/db] or embedded://");
        };
        match scheme {
            "embedded" if rest.is_empty() || rest == "/" => Ok(Self::Embedded),
            "embedded" => fail("embedded:// takes no host"),
            "redis" | "rediss" => server(scheme, rest).map(Self::Server),
            "redis+cluster" | "rediss+cluster" => cluster(scheme, rest).map(Self::Cluster),
            "redis+sentinel" | "rediss+sentinel" => sentinel(scheme, rest).map(Self::Sentinel),
            _ => fail(format!(
                "unknown scheme {scheme}://; use redis://, rediss://, redis+cluster://, \
                 redis+sentinel:// or embedded://"
            )),
        }
    }
}

fn server(scheme: &str, rest: &str) -> Result<ServerUrl, UrlError> {
    let parts = split(rest)?;
    no_query(scheme, &parts)?;
    if parts.hosts.contains(',') {
        return fail(format!("{scheme}:// takes one host; use {scheme}+cluster:// for a cluster"));
    }
    let (host, port) = host_port(parts.hosts, SERVER_PORT)?;
    let db = database(parts.path)?;
    Ok(ServerUrl { host, port, tls: encrypted(scheme), credentials: parts.credentials, db })
}

fn cluster(scheme: &str, rest: &str) -> Result<ClusterUrl, UrlError> {
    let parts = split(rest)?;
    no_query(scheme, &parts)?;
    let seeds = host_list(parts.hosts, SERVER_PORT)?;
    match database(parts.path)? {
        0 => Ok(ClusterUrl { seeds, tls: encrypted(scheme), credentials: parts.credentials }),
        db => fail(format!("database {db} does not exist in a cluster, which has only 0")),
    }
}

fn sentinel(scheme: &str, rest: &str) -> Result<SentinelUrl, UrlError> {
    let parts = split(rest)?;
    let sentinels = host_list(parts.hosts, SENTINEL_PORT)?;
    let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return fail(format!(
            "no name given: sentinels watch several primaries, and which one is meant stands \
             behind the hosts, as in {scheme}://host/name"
        ));
    }
    let Ok(name) = String::from_utf8(percent_decode(name)?) else {
        return fail("the name of the primary is not UTF-8");
    };
    Ok(SentinelUrl {
        sentinels,
        name,
        tls: encrypted(scheme),
        credentials: parts.credentials,
        sentinel_credentials: parts.query.map_or(Ok(None), sentinel_credentials)?,
        db: database(db)?,
    })
}

fn sentinel_credentials(query: &str) -> Result<Option<Credentials>, UrlError> {
    let (mut user, mut password) = (None, None);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let slot = match key {
            "sentinel_user" => &mut user,
            "sentinel_password" => &mut password,
            // Not quoted: it may be the rest of a password with an & in it.
            _ => {
                return fail(
                    "unknown parameter behind the ?; there are sentinel_user and \
                     sentinel_password, in which & is written as %26",
                );
            }
        };
        if slot.replace(percent_decode(value)?).is_some() {
            return fail(format!("{key} is given twice"));
        }
    }
    match (user, password) {
        (None, None) => Ok(None),
        (Some(_), None) => fail("sentinel_user is given without sentinel_password"),
        (user, Some(password)) => {
            let user = user.filter(|user| !user.is_empty());
            Ok(Some(Credentials { user, password }))
        }
    }
}

fn split(rest: &str) -> Result<Parts<'_>, UrlError> {
    let (authority, path) = match rest.split_once('/') {
        None => (rest, None),
        Some((authority, path)) => (authority, Some(path)),
    };
    let (credentials, hosts) = match authority.rsplit_once('@') {
        None => (None, authority),
        Some((user_info, hosts)) => {
            let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
            let user = if user.is_empty() { None } else { Some(percent_decode(user)?) };
            (Some(Credentials { user, password: percent_decode(password)? }), hosts)
        }
    };
    // A query ends the hosts, too; a / behind that belongs to it, and to an error anyway.
    if let Some((hosts, query)) = hosts.split_once('?') {
        return Ok(Parts { credentials, hosts, path: "", query: Some(query) });
    }
    let path = path.unwrap_or("");
    let (path, query) = match path.split_once('?') {
        None => (path, None),
        Some((path, query)) => (path, Some(query)),
    };
    Ok(Parts { credentials, hosts, path, query })
}

fn no_query(scheme: &str, parts: &Parts<'_>) -> Result<(), UrlError> {
    match parts.query {
        None | Some("") => Ok(()),
        Some(_) => fail(format!("{scheme}:// takes no parameters behind a ?")),
    }
}

fn encrypted(scheme: &str) -> bool {
    scheme.starts_with("rediss")
}

fn database(text: &str) -> Result<u32, UrlError> {
    match text.trim_end_matches('/') {
        "" => Ok(0),
        text => text.parse().or_else(|_| fail(format!("database {text:?} is not a number"))),
    }
}

fn host_list(text: &str, default_port: u16) -> Result<Vec<(String, u16)>, UrlError> {
    text.split(',').map(|text| host_port(text, default_port)).collect()
}

fn host_port(text: &str, default_port: u16) -> Result<(String, u16), UrlError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else {
            return fail(format!("missing ] in {text:?}"));
        };
        (host, after.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return fail("no host given");
    }
    let port = match port {
        None | Some("") => default_port,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return fail(format!("port {port:?} is not a number from 1 to 65535")),
        },
    };
    Ok((host.to_owned(), port))
}

fn percent_decode(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => return fail("% in user, password or name needs two hex digits"),
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> ServerUrl {
        match text.parse() {
            Ok(Url::Server(server)) => server,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn cluster(text: &str) -> ClusterUrl {
        match text.parse() {
            Ok(Url::Cluster(cluster)) => cluster,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn sentinel(text: &str) -> SentinelUrl {
        match text.parse() {
            Ok(Url::Sentinel(sentinel)) => sentinel,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn login(user: &str, password: &str) -> Credentials {
        let user = (!user.is_empty()).then(|| user.as_bytes().to_vec());
        Credentials { user, password: password.as_bytes().to_vec() }
    }

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!("embedded://".parse(), Ok(Url::Embedded));
        let plain = server("redis://localhost");
        assert_eq!((plain.host.as_str(), plain.port, plain.db), ("localhost", 6379, 0));
        assert!(!plain.tls);
        let full = server("redis://bob:p%40ss@[::1]:7000/3");
        assert_eq!((full.host.as_str(), full.port, full.db), ("::1", 7000, 3));
        assert_eq!(full.credentials, Some(login("bob", "p@ss")));
        assert_eq!(full.to_string(), "redis://[::1]:7000/3");
        let only_password = server("redis://:secret@h:1");
        assert_eq!(only_password.credentials, Some(login("", "secret")));
        let encrypted = server("rediss://h/");
        assert!(encrypted.tls);
        assert_eq!(encrypted.to_string(), "rediss://h:6379/0");
    }

    #[test]
    fn a_cluster_has_several_seeds() {
        let url = cluster("redis+cluster://bob:x@a:1,b,[::1]:2/0");
        let seeds = [("a".to_owned(), 1), ("b".to_owned(), 6379), ("::1".to_owned(), 2)];
        assert_eq!(url.seeds, seeds);
        assert_eq!(url.credentials, Some(login("bob", "x")));
        assert!(!url.tls);
        assert_eq!(url.to_string(), "redis+cluster://a:1,b:6379,[::1]:2");
        let encrypted = cluster("rediss+cluster://a");
        assert!(encrypted.tls);
        assert_eq!(encrypted.to_string(), "rediss+cluster://a:6379");
    }

    #[test]
    fn sentinels_have_a_name_and_credentials_of_their_own() {
        let plain = sentinel("redis+sentinel://a,b:1/main");
        assert_eq!(plain.sentinels, [("a".to_owned(), 26379), ("b".to_owned(), 1)]);
        assert_eq!((plain.name.as_str(), plain.db, plain.tls), ("main", 0, false));
        assert_eq!((&plain.credentials, &plain.sentinel_credentials), (&None, &None));
        let full = sentinel(
            "rediss+sentinel://bob:x@a:1/my%20main/5?sentinel_user=eve&sentinel_password=y%26/z",
        );
        assert_eq!((full.name.as_str(), full.db, full.tls), ("my main", 5, true));
        assert_eq!(full.credentials, Some(login("bob", "x")));
        assert_eq!(full.sentinel_credentials, Some(login("eve", "y&/z")));
        assert_eq!(full.to_string(), "rediss+sentinel://a:1/my main/5");
        let only_password = sentinel("redis+sentinel://a/m?sentinel_password=p");
        assert_eq!(only_password.sentinel_credentials, Some(login("", "p")));
    }

    #[test]
    fn passwords_are_not_shown() {
        for text in [
            "redis://bob:hunter2@h:1",
            "rediss+cluster://bob:hunter2@h:1,i",
            "redis+sentinel://bob:hunter2@h/m?sentinel_user=eve&sentinel_password=hunter2",
        ] {
            let url: Url = text.parse().expect(text);
            assert!(!format!("{url:?} {url}").contains("hunter2"));
        }
        let credentials = login("bob", "hunter2");
        assert!(!format!("{credentials:?}").contains("hunter2"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("localhost:6379", "not a URL"),
            ("http://h", "unknown scheme"),
            ("redis://", "no host"),
            ("redis://h:0", "port"),
            ("redis://h:99999", "port"),
            ("redis://h/x", "database"),
            ("redis://a:%zz@h", "hex"),
            ("redis://h,i", "one host"),
            ("redis://h/1?x=y", "no parameters"),
            ("redis+cluster://h/1", "only 0"),
            ("redis+cluster://h,", "no host"),
            ("redis+cluster://h,:1", "no host"),
            ("rediss+cluster://h?x", "no parameters"),
            ("redis+sentinel://h", "no name"),
            ("redis+sentinel://h//1", "no name"),
            ("redis+sentinel://h?sentinel_password=x", "no name"),
            ("redis+sentinel://h/m/x", "database"),
            ("redis+sentinel://h/m?x=y", "unknown parameter"),
            ("redis+sentinel://h/m?sentinel_user=x", "without sentinel_password"),
            ("redis+sentinel://h/m?sentinel_password=x&sentinel_password=y", "twice"),
            ("redis+sentinel://h/m?sentinel_password=%", "hex"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn mistakes_do_not_show_parameters() {
        for text in [
            "redis://h:1?sentinel_password=hunter2",
            "redis+sentinel://h:1?sentinel_password=hunter2",
            "redis+sentinel://h/m/1?sentinel_pasword=hunter2",
            "redis+sentinel://h/m/1?sentinel_password=a&hunter2",
            "redis+sentinel://h/m/x?sentinel_password=hunter2",
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{text}: {error}");
        }
    }
}
