//! A new configuration without a restart.
//!
//! Called by: `serve`, on SIGHUP or when a file has changed.
//! Bound: one configuration is read at a time, on the main thread.
//! Invariant: all or nothing. Everything is read and checked, certificates and users included,
//! before anything is changed; what is not valid changes nothing. (A file that is replaced
//! between the check and its use is refused by its own component, reported, and looked at
//! again.)

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heatsink_tls::{ClientFiles, ServerFiles};
use tracing::{error, info, warn};

use super::watch::{Stamp, Watch, stamp};
use super::{Running, descriptors};
use crate::config::{Config, Effect, Loaded, Settings, Sources};
use crate::logging::Log;

/// How often files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration that is in effect, and where it comes from.
pub(super) struct Reload {
    sources: Sources,
    running: Loaded,
    log: Log,
    watch: Watch,
    look: Instant,
    stamps: Stamps,
}

/// What was in the files when they were last read with success.
#[derive(Debug, Default)]
struct Stamps {
    server_tls: Vec<Stamp>,
    client_tls: Vec<Stamp>,
    users: Vec<Stamp>,
}

impl Reload {
    /// Starts from `running`, which was read from `sources` just now.
    pub(super) fn new(sources: Sources, running: Loaded, log: Log) -> Self {
        let stamps = Stamps::of(&running.config);
        let named = server_paths(&running.config)
            .into_iter()
            .chain(client_paths(&running.config))
            .chain(user_paths(&running.config));
        let watched = sources.file().into_iter().chain(named).map(Path::to_owned).collect();
        let look = Instant::now() + LOOK_INTERVAL;
        Self { sources, running, log, watch: Watch::new(watched), look, stamps }
    }

    /// What is in effect.
    pub(super) fn config(&self) -> &Config {
        &self.running.config
    }

    /// When [`Reload::look`] has something to do.
    pub(super) fn next_look(&self) -> Instant {
        self.look
    }

    /// Reloads if a file has changed and that is wanted.
    pub(super) fn look(&mut self, running: &Running) {
        self.look = Instant::now() + LOOK_INTERVAL;
        if self.running.config.reload_on_change && self.watch.has_changed() {
            self.reload(running);
        }
    }

    /// Reads everything again and applies what can be applied.
    pub(super) fn reload(&mut self, parts: &Running) {
        // Stamped before it is read: what changes meanwhile is noticed at the next look.
        self.watch.settle();
        let stamps = Stamps::of(&self.running.config);
        let fresh = match self.sources.load() {
            Ok(fresh) => fresh,
            Err(failure) => {
                return error!("configuration not reloaded, the old one stays: {failure}");
            }
        };
        let mut changes = changes(&self.running.settings, &fresh.settings);
        match self.files(&fresh.config, stamps) {
            Ok(files) => changes.applied.extend(files),
            Err(failure) => {
                return error!("configuration not reloaded, the old one stays: {failure}");
            }
        }
        self.apply(fresh, parts);
        if !changes.restart.is_empty() {
            warn!("a restart is needed for the change of {}", changes.restart.join(", "));
        }
        if changes.applied.is_empty() {
            info!("configuration reloaded: nothing to change");
        } else {
            info!("configuration reloaded: {}", changes.applied.join(", "));
        }
    }

    /// Takes the files again that have changed; returns which. Those that `fresh` has other
    /// names for need a restart and stay.
    fn files(&mut self, fresh: &Config, stamps: Stamps) -> Result<Vec<&'static str>, String> {
        let (config, files) = (&self.running.config, &self.running.files);
        let mut taken = Vec::new();
        let server_files = |config: &Config| config.tls.as_ref().map(|(_, files)| files.clone());
        if let Some(tls) = &files.server_tls
            && stamps.server_tls != self.stamps.server_tls
            && server_files(config) == server_files(fresh)
        {
            tls.reload().map_err(|error| error.to_string())?;
            taken.push("certificates of tls");
        }
        if let Some(tls) = &files.client_tls
            && config.upstream_tls == fresh.upstream_tls
        {
            // Which files the trust of the system is in is not known, so it is read each time.
            let changed = stamps.client_tls != self.stamps.client_tls;
            let of_system = config.upstream_tls.as_ref().is_some_and(|files| files.ca.is_none());
            if changed || of_system {
                tls.reload().map_err(|error| error.to_string())?;
            }
            if changed {
                taken.push("certificates of upstream_tls");
            }
        }
        if let Some(users) = &files.users
            && stamps.users != self.stamps.users
            && config.users == fresh.users
        {
            users.reload().map_err(|error| error.to_string())?;
            taken.push("users");
        }
        self.stamps = stamps;
        Ok(taken)
    }

    fn apply(&mut self, mut fresh: Loaded, parts: &Running) {
        let running = &mut self.running;
        let limits = &mut fresh.config.live.limits;
        limits.max_clients = descriptors::fit(limits.max_clients);
        if running.config.live != fresh.config.live
            && let Some(proxy) = &parts.proxy
        {
            proxy.reload(fresh.config.live.clone());
        }
        // What needs a restart stays as it is.
        let mut fleet = fresh.config.fleet.clone();
        let before = &running.config.fleet.control.detect;
        fleet.control.detect.window_ms = before.window_ms;
        fleet.control.detect.tick_ms = before.tick_ms;
        fleet.control.detect.sketch_depth = before.sketch_depth;
        fleet.control.detect.sketch_width = before.sketch_width;
        fleet.privacy = running.config.fleet.privacy;
        parts.fleet.reload(fleet.clone());
        running.config.fleet = fleet;
        if running.config.log != fresh.config.log {
            self.log.set(&fresh.config.log);
        }
        running.config.live = fresh.config.live;
        running.config.log = fresh.config.log;
        running.config.drain = fresh.config.drain;
        running.config.shutdown = fresh.config.shutdown;
        running.config.reload_on_change = fresh.config.reload_on_change;
        running.settings = in_effect(&running.settings, fresh.settings);
    }
}

impl Stamps {
    fn of(config: &Config) -> Self {
        let stamps = |paths: Vec<&Path>| paths.into_iter().map(stamp).collect();
        Self {
            server_tls: stamps(server_paths(config)),
            client_tls: stamps(client_paths(config)),
            users: stamps(user_paths(config)),
        }
    }
}

fn server_paths(config: &Config) -> Vec<&Path> {
    let Some((_, ServerFiles { certificate, key, client_ca, .. })) = &config.tls else {
        return Vec::new();
    };
    [Some(certificate), Some(key), client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect()
}

fn client_paths(config: &Config) -> Vec<&Path> {
    let Some(ClientFiles { ca, certificate, key, .. }) = &config.upstream_tls else {
        return Vec::new();
    };
    [ca, certificate, key].into_iter().flatten().map(PathBuf::as_path).collect()
}

fn user_paths(config: &Config) -> Vec<&Path> {
    config.users.iter().map(PathBuf::as_path).collect()
}

/// Keys whose values differ.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    applied: Vec<&'static str>,
    restart: Vec<&'static str>,
}

fn changes(old: &Settings, new: &Settings) -> Changes {
    let mut changes = Changes::default();
    for (old, new) in old.all.iter().zip(&new.all) {
        if old.value == new.value {
            continue;
        }
        match old.key.effect {
            Effect::Live => changes.applied.push(old.key.path),
            Effect::Start => changes.restart.push(old.key.path),
        }
    }
    let rules = |settings: &Settings| -> Vec<Vec<String>> {
        let shown = |rule: &Vec<crate::config::Setting>| {
            let mut shown: Vec<String> =
                rule.iter().map(|each| format!("{} = {}", each.key.path, each.value)).collect();
            shown.sort();
            shown
        };
        settings.policies.iter().map(shown).collect()
    };
    if rules(old) != rules(new) {
        changes.applied.push("policy");
    }
    changes
}

/// `new`, but for what needs a restart.
fn in_effect(old: &Settings, new: Settings) -> Settings {
    let kept = old.all.iter().zip(new.all).map(|(old, new)| match old.key.effect {
        Effect::Start => old.clone(),
        Effect::Live => new,
    });
    Settings { all: kept.collect(), policies: new.policies }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directory: &tempfile::TempDir, text: &str) -> Settings {
        let path = directory.path().join("h.toml");
        std::fs::write(&path, text).expect("written");
        crate::config::merge(vec![crate::config::read_file(&path).expect("read")]).expect("valid")
    }

    #[test]
    fn changes_are_told_apart_by_what_they_need() {
        let directory = tempfile::tempdir().expect("a directory");
        let rule = "[[policy]]\nmatch = \"a\"\nmode = \"relaxed\"\n";
        let old = settings(&directory, &format!("workers = 1\n[limits]\nmax_args = 9\n{rule}"));
        let moved = settings(&directory, &format!("workers = 1\nlimits.max_args = 9\n\n{rule}"));
        assert_eq!(changes(&old, &moved), Changes::default());
        let text = "workers = 2\nlog = \"info\"\nlisten = \"127.0.0.1:1\"\n\
                    [limits]\nmax_args = 10\n[coalesce]\nmax_wait_ms = 9\n\
                    [[policy]]\nmatch = \"a\"\nmode = \"relaxed\"\nreplica_reads = true\n";
        let new = settings(&directory, text);
        let found = changes(&old, &new);
        let applied = ["log", "limits.max_args", "coalesce.max_wait_ms", "policy"];
        assert_eq!(found.applied, applied);
        assert_eq!(found.restart, ["listen", "workers"]);
        // What needs a restart is still missing at the next reload, the rest is not.
        let after = in_effect(&old, settings(&directory, text));
        let found = changes(&after, &new);
        assert_eq!((found.applied.len(), found.restart), (0, vec!["listen", "workers"]));
    }
}
