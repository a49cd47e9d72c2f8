//! The second stage: settings that fit together, in the types the components take.
//!
//! Called by: the commands, after `merge`.
//! Invariant: whoever holds a [`Config`] need not check anything again.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heatsink_admin::Privacy;
use heatsink_control::policy::{Mode, Policies, Rights, Rule as ControlRule};
use heatsink_control::settings::Settings as ControlSettings;
use heatsink_fleet::{Live as FleetLive, Role, SplitSettings};
use heatsink_proxy::config::{Coalesce, Limits, Live, LocalCache, Rule, Timeouts};
use heatsink_tls::{ClientFiles, ServerFiles};
use heatsink_upstream::address::Url;

use super::contradictions;
use super::memory;
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
    /// What this process does.
    pub(crate) role: Role,
    /// Where the admin API listens.
    pub(crate) admin: Option<SocketAddr>,
    /// Where its token is.
    pub(crate) admin_token: Option<PathBuf>,
    /// Whether keys are hidden there.
    pub(crate) privacy: Privacy,
    /// The fleet this process belongs to.
    pub(crate) namespace: String,
    /// Where the fleet meets.
    pub(crate) coordination: Url,
    /// What to encrypt the way there with.
    pub(crate) coordination_tls: Option<ClientFiles>,
    /// What members of the fleet sign with is in this file.
    pub(crate) coordination_secret: Option<PathBuf>,
    /// Hot keys at once.
    pub(crate) max_records: usize,
    /// What the control plane can be told while it runs.
    pub(crate) fleet: FleetLive,
    /// How keys are counted, and from where on one is hot.
    pub(crate) detect: heatsink_detect::config::Settings,
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
            upstream_tls: contradictions::is_encrypted(&upstream).then(|| client_files(settings)),
            coordination_tls: contradictions::is_encrypted(settings.url("coordination.url"))
                .then(|| client_files(settings)),
            upstream,
            users: settings.path("users"),
            announce: settings.host_port("cluster_announce"),
            workers: match settings.whole("workers") {
                0 => thread::available_parallelism().map_or(1, NonZero::get),
                count => count as usize,
            },
            role: match settings.text("role") {
                "proxy" => Role::Proxy,
                "aggregator" => Role::Aggregator,
                _ => Role::All,
            },
            admin: settings.address("admin"),
            admin_token: settings.path("admin_token_file"),
            privacy: privacy(settings),
            namespace: settings.text("namespace").to_owned(),
            coordination: settings.url("coordination.url").clone(),
            coordination_secret: settings.path("coordination.secret_file"),
            max_records: settings.whole("registry.max_entries") as usize,
            fleet: fleet(settings),
            detect: detect(settings),
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

fn detect(settings: &Settings) -> heatsink_detect::config::Settings {
    let whole = |path: &str| settings.whole(path) as u32;
    heatsink_detect::config::Settings {
        window_ms: whole("detect.window_ms"),
        tick_ms: whole("detect.tick_ms"),
        hot_threshold: whole("detect.hot_threshold"),
        report_threshold: whole("detect.report_threshold"),
        hot_bytes_per_second: settings.whole("detect.hot_bytes_per_second"),
        miss_storm_threshold: whole("detect.miss_storm_threshold"),
        write_contention_threshold: whole("detect.write_contention_threshold"),
        retire_fraction: settings.fraction("detect.retire_fraction"),
        hold_seconds: whole("detect.hold_seconds"),
        sketch_depth: settings.whole("detect.sketch_depth") as usize,
        sketch_width: settings.whole("detect.sketch_width") as usize,
        ..heatsink_detect::config::Settings::default()
    }
}

fn client_files(settings: &Settings) -> ClientFiles {
    ClientFiles {
        ca: settings.path("upstream_tls.ca"),
        certificate: settings.path("upstream_tls.certificate"),
        key: settings.path("upstream_tls.key"),
        server_name: settings.host("upstream_tls.server_name"),
    }
}

fn fleet(settings: &Settings) -> FleetLive {
    let mut control = ControlSettings {
        detect: detect(settings),
        registry_ttl: Duration::from_secs(settings.whole("registry.ttl_seconds")),
        registry_keys: settings.whole("registry.max_entries") as usize,
        ..ControlSettings::default()
    };
    control.decision.node_writes_per_second = settings.whole("split.node_writes_per_second") as f64;
    let rules = settings.policies.iter().map(|rule| control_rule(rule)).collect();
    // Too many are refused before.
    let policies = Policies::new(rules).unwrap_or_default();
    FleetLive {
        control,
        policies: Arc::new(policies.with_last_resort(mode(settings.text("mode")))),
        block: Duration::from_secs(settings.whole("registry.block_seconds")),
        caches: settings.switch("local_cache.enabled"),
        coalesces: settings.switch("coalesce.enabled"),
        split: SplitSettings {
            enabled: settings.switch("split.enabled"),
            freeze: settings.milliseconds("split.freeze_ms"),
            max_members: settings.whole("split.max_members"),
            max_value_bytes: settings.whole("split.max_value_bytes"),
            max_factor: settings.whole("split.max_factor") as u32,
        },
        privacy: privacy(settings),
    }
}

fn privacy(settings: &Settings) -> Privacy {
    match settings.text("privacy") {
        "hash" => Privacy::Hash,
        _ => Privacy::Plain,
    }
}

fn mode(name: &str) -> Mode {
    name.parse().unwrap_or_default()
}

fn control_rule(settings: &[Setting]) -> ControlRule {
    let find = |path: &str| settings.iter().find(|setting| setting.key.path == path);
    let threshold = find("policy.hot_threshold").map_or(0, Setting::whole) as u32;
    ControlRule {
        pattern: find("policy.match").map_or("", Setting::text).as_bytes().to_vec(),
        mode: mode(find("policy.mode").map_or("", Setting::text)),
        rights: Rights {
            replica_reads: find("policy.replica_reads").is_some_and(Setting::switch),
            whole_traffic: find("policy.whole_traffic").is_some_and(Setting::switch),
            hot_threshold: (threshold > 0).then_some(threshold),
        },
    }
}

/// What all clients together may leave unread where it is not known how much memory there is.
const DEFAULT_TOTAL: u64 = 1 << 30;

fn live(settings: &Settings) -> Live {
    let unless_zero = |time: Duration| (!time.is_zero()).then_some(time);
    // Of all clients together.
    let total = |bytes| match bytes {
        0 => memory::available().map_or(DEFAULT_TOTAL, |bytes| bytes / 4),
        bytes => bytes,
    };
    Live {
        limits: Limits {
            max_clients: settings.whole("limits.max_clients") as usize,
            max_request_bytes: settings.whole("limits.max_request_bytes"),
            max_bulk_bytes: settings.whole("limits.max_bulk_bytes"),
            max_args: settings.whole("limits.max_args"),
            unauthenticated_max_args: settings.whole("limits.unauthenticated_max_args"),
            unauthenticated_max_bytes: settings.whole("limits.unauthenticated_max_bytes"),
            max_output_bytes: settings.whole("limits.max_output_bytes"),
            max_total_output_bytes: total(settings.whole("limits.max_total_output_bytes")),
            max_total_input_bytes: total(settings.whole("limits.max_total_input_bytes")),
            idle: unless_zero(Duration::from_secs(settings.whole("limits.idle_seconds"))),
        },
        timeouts: Timeouts {
            connect: settings.milliseconds("timeouts.connect_ms"),
            silence: unless_zero(settings.milliseconds("timeouts.silence_ms")),
            cluster_retry: settings.milliseconds("timeouts.cluster_retry_ms"),
        },
        policy: settings.policies.iter().map(|rule| self::rule(rule)).collect(),
        counts_others: settings.text("mode") != "off",
        local_cache: LocalCache {
            entries: settings.whole("local_cache.entries") as usize,
            max_bytes: settings.whole("local_cache.max_bytes"),
            max_ttl: settings.milliseconds("local_cache.max_ttl_ms"),
            ttl_fraction: settings.fraction("local_cache.ttl_fraction"),
        },
        coalesce: Coalesce {
            max_wait: settings.milliseconds("coalesce.max_wait_ms"),
            max_stale: settings.milliseconds("coalesce.max_stale_ms"),
        },
        detect: Some(detect(settings)),
    }
}

/// Rules that allow nothing are kept: the first that matches holds.
fn rule(settings: &[Setting]) -> Rule {
    let find = |path: &str| settings.iter().find(|setting| setting.key.path == path);
    Rule {
        pattern: find("policy.match").map_or("", Setting::text).as_bytes().into(),
        replica_reads: find("policy.replica_reads").is_some_and(Setting::switch),
        counted: find("policy.mode").map_or("", Setting::text) != "off",
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
        let detect = Some(heatsink_detect::config::Settings::default());
        let mut live = Live { detect, ..Live::default() };
        live.limits.max_total_output_bytes = memory::available().expect("some memory") / 4;
        live.limits.max_total_input_bytes = live.limits.max_total_output_bytes;
        assert_eq!(config.live, live);
        assert_eq!(config.detect, heatsink_detect::config::Settings::default());
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
             reload_on_change = false\nmode = \"off\"\n\
             [tls]\nlisten = \"[::1]:7002\"\ncertificate = \"c1\"\nkey = \"k1\"\n\
             client_ca = \"a1\"\nrequire_client_certificate = true\n\
             [upstream_tls]\nca = \"a2\"\ncertificate = \"c2\"\nkey = \"k2\"\n\
             server_name = \"n\"\n\
             [limits]\nmax_clients = 11\nmax_request_bytes = 2001\nmax_bulk_bytes = 2002\n\
             max_args = 2003\nunauthenticated_max_args = 12\nunauthenticated_max_bytes = 2004\n\
             max_output_bytes = \"4KiB\"\nmax_total_output_bytes = \"8KiB\"\n\
             max_total_input_bytes = \"12KiB\"\nidle_seconds = 13\n\
             [timeouts]\nconnect_ms = 14\nsilence_ms = 0\nshutdown_ms = 15\n\
             cluster_retry_ms = 16\nhandover_ms = 17\n\
             [detect]\nwindow_ms = 2000\ntick_ms = 40\nhot_threshold = 21\n\
             report_threshold = 22\nhot_bytes_per_second = 23\nmiss_storm_threshold = 24\n\
             write_contention_threshold = 25\nretire_fraction = 0.25\nhold_seconds = 26\n\
             sketch_depth = 3\nsketch_width = 27\n\
             [[policy]]\nmatch = \"a:*\"\nmode = \"exact\"\n\
             [[policy]]\nmatch = \"*\"\nmode = \"relaxed\"\nreplica_reads = true\n\
             [[policy]]\nmatch = \"z\"\nmode = \"off\"\n",
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
                    max_total_output_bytes: 8192,
                    max_total_input_bytes: 12288,
                    idle: Some(Duration::from_secs(13)),
                },
                timeouts: Timeouts {
                    connect: Duration::from_millis(14),
                    silence: None,
                    cluster_retry: Duration::from_millis(16),
                },
                policy: [
                    Rule { pattern: (*b"a:*").into(), replica_reads: false, counted: true },
                    Rule { pattern: (*b"*").into(), replica_reads: true, counted: true },
                    Rule { pattern: (*b"z").into(), replica_reads: false, counted: false },
                ]
                .into(),
                counts_others: false,
                local_cache: LocalCache::default(),
                coalesce: Coalesce::default(),
                detect: Some(config.detect.clone()),
            }
        );
        assert_eq!(
            config.detect,
            heatsink_detect::config::Settings {
                window_ms: 2000,
                tick_ms: 40,
                hot_threshold: 21,
                report_threshold: 22,
                hot_bytes_per_second: 23,
                miss_storm_threshold: 24,
                write_contention_threshold: 25,
                retire_fraction: 0.25,
                hold_seconds: 26,
                sketch_depth: 3,
                sketch_width: 27,
                ..heatsink_detect::config::Settings::default()
            }
        );
        assert_eq!(config.shutdown, Duration::from_millis(15));
        assert_eq!(config.drain, Duration::from_millis(17));
    }
}
