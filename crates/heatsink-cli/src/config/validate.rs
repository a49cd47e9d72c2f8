//! The second stage: settings that fit together, in the types the components take.
//!
//! Called by: the commands, after `merge`.
//! Invariant: whoever holds a [`Config`] need not check anything again.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use heatsink_proxy::config::{Limits, Live, Rule, Timeouts};
use heatsink_tls::{ClientFiles, ServerFiles};
use heatsink_upstream::address::Url;

use super::contradictions;
use super::merge::{Setting, Settings};
use super::raw::Mistake;
use crate::logging::Format;

/// What `serve` runs with.
#[derive(Debug)]
pub(crate) struct Config {
    /// Address to accept clients on.
    pub(crate) listen: SocketAddr,
    /// Address to accept clients on with TLS, and its certificates.
    pub(crate) tls: Option<(SocketAddr, ServerFiles)>,
    /// The Redis side.
    pub(crate) upstream: Url,
    /// What to encrypt it with, if the URL says so.
    pub(crate) upstream_tls: Option<ClientFiles>,
    /// The users of `auth = "service"`; `None` passes logins through.
    pub(crate) users: Option<PathBuf>,
    /// What cluster clients are told.
    pub(crate) announce: Option<(String, u16)>,
    /// Worker threads, at least one.
    pub(crate) workers: usize,
    /// What the proxy can be told while it runs.
    pub(crate) live: Live,
    /// Where a new process takes over.
    pub(crate) handover: Option<PathBuf>,
    /// Bound on serving the connections there are after handing over.
    pub(crate) drain: Duration,
    /// Bound on finishing what is in flight at the end.
    pub(crate) shutdown: Duration,
    /// Whether a changed file is reason enough to reload.
    pub(crate) reload_on_change: bool,
    /// What to log.
    pub(crate) log: String,
    /// How to log it.
    pub(crate) log_format: Format,
}

impl Config {
    /// Checks what spans several keys, and converts.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<Mistake>> {
        let mistakes = contradictions::find(settings);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let upstream = settings.url("upstream").clone();
        let Some(listen) = settings.address("listen") else { unreachable!("it is not optional") };
        Ok(Self {
            listen,
            tls: tls(settings),
            upstream_tls: contradictions::is_encrypted(&upstream).then(|| ClientFiles {
                ca: settings.path("upstream_tls.ca"),
                certificate: settings.path("upstream_tls.certificate"),
                key: settings.path("upstream_tls.key"),
                server_name: settings.host("upstream_tls.server_name"),
            }),
            upstream,
            users: settings.path("users"),
            announce: settings.host_port("cluster_announce"),
            workers: match settings.whole("workers") {
                0 => thread::available_parallelism().map_or(1, NonZero::get),
                count => count as usize,
            },
            live: live(settings),
            handover: settings.path("handover"),
            drain: settings.milliseconds("timeouts.handover_ms"),
            shutdown: settings.milliseconds("timeouts.shutdown_ms"),
            reload_on_change: settings.switch("reload_on_change"),
            log: settings.text("log").to_owned(),
            log_format: match settings.text("log_format") {
                "json" => Format::Json,
                _ => Format::Text,
            },
        })
    }
}

fn tls(settings: &Settings) -> Option<(SocketAddr, ServerFiles)> {
    let address = settings.address("tls.listen")?;
    let files = ServerFiles {
        certificate: settings.path("tls.certificate")?,
        key: settings.path("tls.key")?,
        client_ca: settings.path("tls.client_ca"),
        require_client_certificate: settings.switch("tls.require_client_certificate"),
    };
    Some((address, files))
}

fn live(settings: &Settings) -> Live {
    let unless_zero = |time: Duration| (!time.is_zero()).then_some(time);
    Live {
        limits: Limits {
            max_clients: settings.whole("limits.max_clients") as usize,
            max_request_bytes: settings.whole("limits.max_request_bytes"),
            max_bulk_bytes: settings.whole("limits.max_bulk_bytes"),
            max_args: settings.whole("limits.max_args"),
            unauthenticated_max_args: settings.whole("limits.unauthenticated_max_args"),
            unauthenticated_max_bytes: settings.whole("limits.unauthenticated_max_bytes"),
            max_output_bytes: settings.whole("limits.max_output_bytes"),
            idle: unless_zero(Duration::from_secs(settings.whole("limits.idle_seconds"))),
        },
        timeouts: Timeouts {
            connect: settings.milliseconds("timeouts.connect_ms"),
            silence: unless_zero(settings.milliseconds("timeouts.silence_ms")),
            cluster_retry: settings.milliseconds("timeouts.cluster_retry_ms"),
        },
        policy: settings.policies.iter().map(|rule| self::rule(rule)).collect(),
    }
}

/// Rules that allow nothing are kept: the first that matches holds.
fn rule(settings: &[Setting]) -> Rule {
    let find = |path: &str| settings.iter().find(|setting| setting.key.path == path);
    Rule {
        pattern: find("policy.match").map_or("", Setting::text).as_bytes().into(),
        replica_reads: find("policy.replica_reads").is_some_and(Setting::switch),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{merge, toml_file};
    use super::*;

    fn config(file: &str) -> Result<Config, Vec<Mistake>> {
        let settings = merge(vec![toml_file::read("h.toml", file.as_bytes())]).expect("merges");
        Config::new(&settings)
    }

    #[test]
    fn defaults_are_those_of_the_components() {
        let config = config("").expect("valid");
        assert_eq!(config.live, Live::default());
        assert_eq!(config.upstream, Url::Embedded);
        assert!(config.tls.is_none() && config.upstream_tls.is_none() && config.users.is_none());
        assert!(config.announce.is_none() && config.handover.is_none());
        assert!(config.workers >= 1 && config.reload_on_change);
    }

    #[test]
    fn every_setting_arrives_where_it_belongs() {
        let config = config(
            "listen = \"[::1]:7000\"\nupstream = \"rediss://h:1/2\"\nworkers = 3\n\
             log = \"debug\"\nlog_format = \"json\"\ncluster_announce = \"a.example:7001\"\n\
             auth = \"service\"\nusers = \"u.toml\"\nhandover = \"h.sock\"\n\
             reload_on_change = false\n\
             [tls]\nlisten = \"[::1]:7002\"\ncertificate = \"c1\"\nkey = \"k1\"\n\
             client_ca = \"a1\"\nrequire_client_certificate = true\n\
             [upstream_tls]\nca = \"a2\"\ncertificate = \"c2\"\nkey = \"k2\"\n\
             server_name = \"n\"\n\
             [limits]\nmax_clients = 11\nmax_request_bytes = 2001\nmax_bulk_bytes = 2002\n\
             max_args = 2003\nunauthenticated_max_args = 12\nunauthenticated_max_bytes = 2004\n\
             max_output_bytes = \"4KiB\"\nidle_seconds = 13\n\
             [timeouts]\nconnect_ms = 14\nsilence_ms = 0\nshutdown_ms = 15\n\
             cluster_retry_ms = 16\nhandover_ms = 17\n\
             [[policy]]\nmatch = \"a:*\"\nmode = \"exact\"\n\
             [[policy]]\nmatch = \"*\"\nmode = \"relaxed\"\nreplica_reads = true\n",
        )
        .expect("valid");
        assert_eq!(config.listen.to_string(), "[::1]:7000");
        assert_eq!(config.upstream.to_string(), "rediss://h:1/2");
        assert_eq!(config.workers, 3);
        assert_eq!((config.log.as_str(), config.log_format), ("debug", Format::Json));
        assert_eq!(config.announce, Some(("a.example".to_owned(), 7001)));
        assert_eq!(config.users, Some(PathBuf::from("u.toml")));
        assert_eq!(config.handover, Some(PathBuf::from("h.sock")));
        assert!(!config.reload_on_change);
        let (address, files) = config.tls.expect("given");
        assert_eq!(address.to_string(), "[::1]:7002");
        assert_eq!(
            files,
            ServerFiles {
                certificate: "c1".into(),
                key: "k1".into(),
                client_ca: Some("a1".into()),
                require_client_certificate: true,
            }
        );
        assert_eq!(
            config.upstream_tls,
            Some(ClientFiles {
                ca: Some("a2".into()),
                certificate: Some("c2".into()),
                key: Some("k2".into()),
                server_name: Some("n".to_owned()),
            })
        );
        assert_eq!(
            config.live,
            Live {
                limits: Limits {
                    max_clients: 11,
                    max_request_bytes: 2001,
                    max_bulk_bytes: 2002,
                    max_args: 2003,
                    unauthenticated_max_args: 12,
                    unauthenticated_max_bytes: 2004,
                    max_output_bytes: 4096,
                    idle: Some(Duration::from_secs(13)),
                },
                timeouts: Timeouts {
                    connect: Duration::from_millis(14),
                    silence: None,
                    cluster_retry: Duration::from_millis(16),
                },
                policy: [
                    Rule { pattern: (*b"a:*").into(), replica_reads: false },
                    Rule { pattern: (*b"*").into(), replica_reads: true },
                ]
                .into(),
            }
        );
        assert_eq!(config.shutdown, Duration::from_millis(15));
        assert_eq!(config.drain, Duration::from_millis(17));
    }
}
