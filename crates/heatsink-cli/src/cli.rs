//! The command line, made from the table of keys: each key is a flag of `serve`.
//!
//! Called by: `main`. Usage errors (unknown flag, missing argument) end the process in clap,
//! with exit code 2; the values of flags are judged later, together with those of the file.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, builder::ValueParser};

use crate::config::{Default, Effect, KEYS, Place, RawConfig, RawSetting, RawValue, SECTIONS};
use crate::exit;

const SOURCES: &str = "\
Every option is also an environment variable and a key of the file: --limits-max-clients is
HEATSINK_LIMITS_MAX_CLIENTS and max_clients in [limits]; --config is HEATSINK_CONFIG. A flag wins
over a variable, a variable over the file. Sizes are bytes, or carry KiB, MiB, GiB, KB, MB or GB.
Rules per key ([[policy]]) stand in the file only.";

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
    /// Validate a file.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Make a line of the users file.
    HashPassword,
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
        .subcommand(serve())
        .subcommand(check())
        .subcommand(hash_password())
}

fn serve() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("Configuration file (TOML)")
        .help_heading(SECTIONS[0].1)
        .value_parser(ValueParser::path_buf());
    let mut command = Command::new("serve")
        .about("Run the proxy until SIGTERM or SIGINT")
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
            let later = match key.effect {
                Effect::Start | Effect::Live => "",
                Effect::Later => " (no effect in this version)",
            };
            let arg = Arg::new(key.path)
                .long(key.flag())
                .value_name(key.kind.value_name())
                .help(format!("{}{later}{default}", key.doc))
                .help_heading(heading)
                .hide_short_help(!section.is_empty() || key.effect == Effect::Later)
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
            Some(("hash-password", _)) => Self::HashPassword,
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
