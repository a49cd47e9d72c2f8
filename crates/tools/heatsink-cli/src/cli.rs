//! The command line, made from the table of keys: each key is a flag of `serve`.
//!
//! Called by: `main`. Usage errors (unknown flag, missing argument) end the process in clap,
//! with exit code 2; the values of flags are judged later, together with those of the file.

pub(crate) mod demo;
pub(crate) mod load;
pub(crate) mod scan;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use clap_complete::Shell;
use heatsink_upstream::address::Url;

use crate::commands::{keys, top};
use crate::config::{Default, KEYS, Place, RawConfig, RawSetting, RawValue, SECTIONS};
use crate::exit;
use demo::DemoArgs;
use load::LoadArgs;
use scan::ScanArgs;

const SOURCES: &str = "\
Every option is also an environment variable and a key of the file: --limits-max-clients is
HEATSINK_LIMITS_MAX_CLIENTS and max_clients in [limits]; --config is HEATSINK_CONFIG. A flag wins
over a variable, a variable over the file. Sizes are bytes, or carry KiB, MiB, GiB, KB, MB or GB.
Rules per key ([[policy]]) can be given in the file only.";

/// What the user asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run the proxy.
    Serve {
        /// Keys given as flags.
        flags: RawConfig,
        /// The configuration file, if given as a flag.
        file: Option<PathBuf>,
    },
    /// Make every split key whole.
    Drain {
        /// Keys given as flags.
        flags: RawConfig,
        /// The configuration file, if given as a flag.
        file: Option<PathBuf>,
    },
    /// Validate a file.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Make a line of the users file.
    HashPassword,
    /// Look at the registry of hot keys, or change it.
    Keys(keys::Request),
    /// See it work.
    Demo(Box<DemoArgs>),
    /// Play a scenario against servers and proxies.
    Load(Box<LoadArgs>),
    /// Find the hot keys of a server that is not behind Heatsink.
    Scan(Box<ScanArgs>),
    /// Show hot keys, live.
    Top(top::Request),
    /// Print what a shell needs to complete commands.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// The definition of all commands and flags.
pub(crate) fn command() -> Command {
    Command::new("heatsink")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A transparent proxy that takes the heat off hot keys in Redis and Valkey")
        .after_help(exit::CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(demo_command())
        .subcommand(serve())
        .subcommand(drain())
        .subcommand(check())
        .subcommand(keys())
        .subcommand(load_command())
        .subcommand(scan_command())
        .subcommand(top())
        .subcommand(hash_password())
        .subcommand(completions())
}

fn serve() -> Command {
    configured(Command::new("serve").about("Run the proxy until SIGTERM or SIGINT"))
}

const DRAIN: &str = "\
Make every split key whole again and remove all copies of values. It takes the configuration of the
proxies, which may be running or not.

It names each key that was split, or had copies, when it began, and counts the keys that are done:
  whole: KEY (1 of 40)               made whole by this command
  whole, by a proxy: KEY (2 of 40)   made whole by a running proxy meanwhile
  copies removed: KEY (3 of 40)      its copies are no longer read, and expire within a second
Exit code 0 means that nothing is left. The command can be run again at any time.";

fn drain() -> Command {
    configured(
        Command::new("drain")
            .about("Make every split key whole again and remove all copies of values")
            .long_about(DRAIN),
    )
}

/// With a flag for each key of the configuration.
fn configured(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("Configuration file (TOML)")
        .help_heading(SECTIONS[0].1)
        .value_parser(ValueParser::path_buf());
    let mut command = command
        .after_help("--help shows all options and the exit codes")
        .after_long_help(format!("{SOURCES}\n\n{}", exit::CODES))
        .arg(config);
    for (section, heading) in SECTIONS {
        for key in KEYS.iter().filter(|key| key.section() == section) {
            let default = match key.default {
                Default::Text("") | Default::Required => String::new(),
                Default::Text(text) => format!(" [default: {text}]"),
                Default::SameAs(path) => format!(" [default: that of --{path}]"),
            };
            let arg = Arg::new(key.path)
                .long(key.flag())
                .value_name(key.kind.value_name())
                .help(format!("{}{default}", key.doc))
                .help_heading(heading)
                .hide_short_help(!section.is_empty())
                .allow_negative_numbers(true);
            command = command.arg(arg);
        }
    }
    command
}

fn check() -> Command {
    Command::new("check")
        .about("Validate a configuration file and show the settings in effect")
        .after_help(exit::CODES)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .help("Configuration file (TOML)")
                .required(true)
                .value_parser(ValueParser::path_buf()),
        )
}

fn hash_password() -> Command {
    Command::new("hash-password")
        .about("Read a password from stdin and print its line for the users file")
        .after_help(exit::CODES)
}

/// Where the admin API is.
fn admin() -> [Arg; 2] {
    let admin = Arg::new("admin")
        .long("admin")
        .value_name("URL")
        .help("Admin address of any process of the fleet")
        .default_value("http://127.0.0.1:9600")
        .env("HEATSINK_ADMIN_URL")
        .global(true);
    let token = Arg::new("token")
        .long("token")
        .value_name("TOKEN")
        .help("Token of the admin API, if it requires one; better given as a variable")
        .env("HEATSINK_TOKEN")
        .hide_env_values(true)
        .global(true);
    [admin, token]
}

fn top() -> Command {
    let interval = Arg::new("interval-ms")
        .long("interval-ms")
        .value_name("MS")
        .help("Time between two updates")
        .value_parser(value_parser!(u64).range(100..=60_000))
        .default_value("1000");
    Command::new("top")
        .about("Show hot keys, live, in the terminal, over the admin API")
        .after_help(exit::CODES)
        .args(admin())
        .arg(interval)
}

fn keys() -> Command {
    let json = Arg::new("json")
        .long("json")
        .help("Print the API's answer as JSON, for scripts")
        .action(ArgAction::SetTrue)
        .global(true);
    let key = || Arg::new("key").value_name("KEY").help("The key").required(true);
    let filter = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("keys")
        .about("List, promote and demote hot keys, over the admin API")
        .after_help(exit::CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(admin())
        .arg(json)
        .subcommand(Command::new("list").about("Show the hot keys, hottest first").args([
            filter("status", "STATUS", "Only keys with this status: active, cooling, ..."),
            filter("origin", "ORIGIN", "Only keys with this origin: auto, manual, local"),
            filter("mitigation", "NAME", "Only keys with this mitigation"),
            filter("match", "GLOB", "Only keys that match this glob, as in Redis"),
        ]))
        .subcommand(
            Command::new("promote").about("Force a key into the registry").args([
                key(),
                Arg::new("mitigation")
                    .long("mitigation")
                    .value_name("NAME")
                    .help("What to do: local_cache, coalesce, split, copies, replica_reads")
                    .required(true),
                Arg::new("split-factor")
                    .long("split-factor")
                    .value_name("N")
                    .help("Number of shards")
                    .value_parser(value_parser!(u32)),
                Arg::new("ttl")
                    .long("ttl")
                    .value_name("SECONDS")
                    .help("How long the entry lives [default: until it is removed]")
                    .value_parser(value_parser!(u64)),
            ]),
        )
        .subcommand(
            Command::new("demote")
                .about("Take a key out of the registry; it is not promoted again for a while")
                .arg(key()),
        )
        .subcommand(Command::new("stats").about("Show the rates of a key, and what its mitigation saves").arg(key()))
        .subcommand(
            Command::new("policy")
                .about("Show which mitigations a key may get, and by which rule; without a key, all rules")
                .arg(key().required(false)),
        )
}

fn demo_command() -> Command {
    DemoArgs::augment_args(Command::new("demo"))
        .about("See it work: a small cluster, a key that goes viral, and what Heatsink does")
        .after_help(exit::CODES)
}

fn load_command() -> Command {
    LoadArgs::augment_args(Command::new("load"))
        .about("Play a scenario with hot keys against servers and proxies, and compare them")
        .after_help(exit::CODES)
}

fn scan_command() -> Command {
    ScanArgs::augment_args(Command::new("scan"))
        .about("Find the hot keys of a server that is not behind Heatsink")
        .after_help(exit::CODES)
}

/// Whether a URL asks for TLS.
fn uses_tls(url: &Url) -> bool {
    match url {
        Url::Server(url) => url.tls,
        Url::Cluster(url) => url.tls,
        Url::Sentinel(url) => url.tls,
        Url::Embedded => false,
    }
}

/// What clap has found for `T`; it has checked all of it before.
fn parsed<T: FromArgMatches>(matches: &ArgMatches) -> T {
    T::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

fn completions() -> Command {
    Command::new("completions")
        .about("Print the completion script of a shell")
        .after_help(exit::CODES)
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .help("The shell")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

fn keys_request(matches: &ArgMatches) -> keys::Request {
    let Some((verb, sub)) = matches.subcommand() else { unreachable!("clap requires a verb") };
    let text = |name: &str| sub.get_one::<String>(name).cloned();
    let key = || text("key").unwrap_or_default();
    let verb = match verb {
        "promote" => keys::Verb::Promote {
            key: key(),
            mitigation: text("mitigation").unwrap_or_default(),
            split_factor: sub.get_one("split-factor").copied(),
            ttl_seconds: sub.get_one("ttl").copied(),
        },
        "demote" => keys::Verb::Demote { key: key() },
        "stats" => keys::Verb::Stats { key: key() },
        "policy" => match text("key") {
            Some(key) => keys::Verb::Policy { key },
            None => keys::Verb::Policies,
        },
        _ => {
            let filters = [
                ("status", "status"),
                ("origin", "origin"),
                ("mitigation", "mitigation_type"),
                ("match", "match"),
            ];
            let given = |(flag, name): (&str, &'static str)| Some((name, text(flag)?));
            keys::Verb::List { filters: filters.into_iter().filter_map(given).collect() }
        }
    };
    keys::Request {
        verb,
        admin: text("admin").unwrap_or_default(),
        token: text("token"),
        json: sub.get_flag("json"),
    }
}

impl From<&ArgMatches> for Request {
    fn from(matches: &ArgMatches) -> Self {
        match matches.subcommand() {
            Some(("check", check)) => match check.get_one::<PathBuf>("file") {
                Some(file) => Self::Check { file: file.clone() },
                None => unreachable!("clap requires FILE"),
            },
            Some(("serve", serve)) => {
                Self::Serve { flags: flags(serve), file: serve.get_one("config").cloned() }
            }
            Some(("drain", drain)) => {
                Self::Drain { flags: flags(drain), file: drain.get_one("config").cloned() }
            }
            Some(("hash-password", _)) => Self::HashPassword,
            Some(("demo", demo)) => Self::Demo(Box::new(parsed(demo))),
            Some(("load", load)) => Self::Load(Box::new(parsed(load))),
            Some(("scan", scan)) => Self::Scan(Box::new(parsed(scan))),
            Some(("keys", keys)) => Self::Keys(keys_request(keys)),
            Some(("top", top)) => Self::Top(top::Request {
                admin: top.get_one::<String>("admin").cloned().unwrap_or_default(),
                token: top.get_one::<String>("token").cloned(),
                interval: Duration::from_millis(
                    top.get_one("interval-ms").copied().unwrap_or(1000),
                ),
            }),
            Some(("completions", completions)) => match completions.get_one("shell") {
                Some(shell) => Self::Completions { shell: *shell },
                None => unreachable!("clap requires SHELL"),
            },
            _ => unreachable!("clap requires a command"),
        }
    }
}

fn flags(serve: &ArgMatches) -> RawConfig {
    let given = KEYS.iter().filter_map(|key| {
        let text = serve.get_one::<String>(key.path)?;
        let place = Place::Flag(key.flag());
        Some(RawSetting { key, value: RawValue::Untyped(text.clone()), place })
    });
    RawConfig { settings: given.collect(), ..RawConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_key_is_a_flag() {
        let mut line = vec!["heatsink".to_owned(), "serve".to_owned()];
        for key in &KEYS {
            line.extend([format!("--{}", key.flag()), "-1".to_owned()]);
        }
        let matches = command().try_get_matches_from(line).expect("all flags are known");
        let Request::Serve { flags, file: None } = Request::from(&matches) else {
            panic!("not a serve");
        };
        assert_eq!(flags.settings.len(), KEYS.len());
    }
}
