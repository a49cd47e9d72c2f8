//! The files that a configuration names, read and checked: certificates and users.
//!
//! Called by: `serve` at start; a reload and `check`, to know whether all is well before
//! anything is changed.
//! Invariant: a mistake names the key, the file and the reason, and no content of the file.

use std::path::Path;

use heatsink_tls::{ClientTls, FileProblem, ServerTls, TlsFileError};
use heatsink_users::{Users, UsersProblem};

use super::merge::Settings;
use super::raw::Mistake;
use super::validate::Config;
use crate::exit::Failure;

/// What was read.
#[derive(Debug)]
pub(crate) struct Files {
    /// For clients.
    pub(crate) server_tls: Option<ServerTls>,
    /// For the upstream.
    pub(crate) client_tls: Option<ClientTls>,
    /// Of `auth = "service"`.
    pub(crate) users: Option<Users>,
}

impl Files {
    /// Reads what `config` names, which was made of `settings`.
    pub(crate) fn load(config: &Config, settings: &Settings) -> Result<Self, Failure> {
        let server_tls = match &config.tls {
            Some((_, files)) => Some(
                ServerTls::load(files.clone()).map_err(|error| bad_tls("tls", &error, settings))?,
            ),
            None => None,
        };
        let client_tls = match &config.upstream_tls {
            Some(files) => Some(
                ClientTls::load(files.clone())
                    .map_err(|error| bad_tls("upstream_tls", &error, settings))?,
            ),
            None => None,
        };
        let users = match &config.users {
            Some(path) => Some(Users::load(path).map_err(|error| {
                let unreadable = matches!(error.problem, UsersProblem::Unreadable(_));
                failure(settings, "users", unreadable, &error.to_string())
            })?),
            None => None,
        };
        Ok(Self { server_tls, client_tls, users })
    }
}

/// Blames the key of `section` that names the file; the URL if none does, since then it is the
/// system's trust store that is lacking.
fn bad_tls(section: &str, error: &TlsFileError, settings: &Settings) -> Failure {
    let names_it = |path: &str| {
        settings.path(path).is_some_and(|given| given == error.file)
            || (path.ends_with("server_name")
                && settings.host(path).is_some_and(|name| Path::new(&name) == error.file))
    };
    let leaves: &[&str] = match section {
        "tls" => &["certificate", "key", "client_ca"],
        _ => &["ca", "certificate", "key", "server_name"],
    };
    let path = leaves
        .iter()
        .map(|leaf| format!("{section}.{leaf}"))
        .find(|path| names_it(path))
        .unwrap_or_else(|| "upstream".to_owned());
    let unreadable = matches!(error.problem, FileProblem::Unreadable(_));
    failure(settings, &path, unreadable, &error.to_string())
}

/// A file that cannot be read is the world's fault, one that makes no sense the configuration's.
fn failure(settings: &Settings, path: &str, unreadable: bool, text: &str) -> Failure {
    let setting = settings.get(path);
    let mistake = Mistake::of(setting.key, setting.place.clone(), text);
    if unreadable { Failure::Runtime(mistake.to_string()) } else { Failure::Invalid(vec![mistake]) }
}
