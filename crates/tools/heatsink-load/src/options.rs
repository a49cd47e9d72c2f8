//! What can be chosen, checked before anything is sent.
//!
//! Called by: the command line.
//! Invariant: options that pass [`Options::check`] can be run; those that do not are refused
//! with what is wrong.

use std::fmt;
use std::time::Duration;

use heatsink_tls::ClientTls;
use heatsink_upstream::address::{ServerUrl, Url};

use crate::scenario::Scenario;
use crate::stamp;
use crate::workload::Shape;

/// Items at most; the ledger takes 32 bytes for each and target.
pub const KEYS_MAX: u32 = 10_000_000;
/// Connections to one target at most.
pub const CONNECTIONS_MAX: u32 = 10_000;
/// Requests of one connection that may be out at once, at most.
pub const PIPELINE_MAX: u32 = 10_000;
/// Targets at most.
pub const TARGETS_MAX: usize = 8;
/// Digits of the longest key name behind the prefix (`counter:4294967295`).
const NAME_BYTES: usize = 18;

/// What is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(pub(crate) String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}

fn fail<T>(what: impl Into<String>) -> Result<T, OptionsError> {
    Err(OptionsError(what.into()))
}

/// Something that speaks Redis, with the name it has in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Letters, digits, `-`, `_` and `.`; part of its keys.
    pub name: String,
    /// Where it is.
    pub server: ServerUrl,
}

impl Target {
    /// Reads `name=url`, or a bare URL, whose name is `target`.
    pub fn parse(text: &str) -> Result<Self, OptionsError> {
        let (name, url) = match text.split_once('=') {
            Some((name, url)) if !name.contains("://") => (name, url),
            _ => ("target", text),
        };
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
            return fail("the name of a target has 1 to 32 letters, digits, -, _ and .");
        }
        match url.parse::<Url>() {
            Ok(Url::Server(server)) => Ok(Self { name: name.to_owned(), server }),
            Ok(Url::Cluster(_)) => fail(format!(
                "{name}: load goes to one address; put a proxy before the cluster, or name one \
                 with redis://"
            )),
            Ok(Url::Sentinel(_)) => {
                fail(format!("{name}: load goes to one address; name the primary with redis://"))
            }
            Ok(Url::Embedded) => fail(format!("{name}: embedded:// is inside another process")),
            Err(error) => fail(format!("{name}: {error}")),
        }
    }
}

/// When the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When the last one was answered: as fast as possible.
    Closed,
    /// So many a second over all connections, by the clock.
    Rate(f64),
}

/// Everything that can be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is played.
    pub scenario: Scenario,
    /// To whom; in this order in the report.
    pub targets: Vec<Target>,
    /// Servers whose `INFO commandstats` is read around each round.
    pub upstreams: Vec<Url>,
    /// TLS for `rediss://`.
    pub tls: Option<ClientTls>,
    /// Closed or open loop.
    pub pace: Pace,
    /// Connections to a target.
    pub connections: u32,
    /// Requests of a connection that may be out at once.
    pub pipeline: u32,
    /// Threads that drive them.
    pub threads: u32,
    /// Measured time of a target, all rounds together.
    pub duration: Duration,
    /// Time before each round that is not measured.
    pub warmup: Duration,
    /// Rounds; the targets take turns in each.
    pub rounds: u32,
    /// Items, law, mix and seed.
    pub shape: Shape,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of all requests that goes to what is hot.
    pub hot_share: f64,
    /// When it becomes hot, since the start of a round; a third of it unless given.
    pub onset: Option<Duration>,
    /// `counter`: number of counters.
    pub counters: u32,
    /// `stampede`: how long the hot key lives.
    pub ttl: Duration,
    /// `stampede`: how long it takes to compute it anew.
    pub recompute: Duration,
    /// `flash-sale`: what there is to sell.
    pub stock: u64,
    /// Before all key names; the name of the target follows.
    pub prefix: String,
    /// Leave the keys on the servers at the end.
    pub keep_keys: bool,
    /// For connecting, and for replies that are still out at the end of a round.
    pub timeout: Duration,
}

impl Options {
    /// The defaults: 10 s with 50 connections, as fast as possible, 10 000 keys of 100 bytes.
    pub fn new(scenario: Scenario, targets: Vec<Target>) -> Self {
        Self {
            scenario,
            rounds: if targets.len() > 1 { 3 } else { 1 },
            targets,
            upstreams: Vec::new(),
            tls: None,
            pace: Pace::Closed,
            connections: 50,
            pipeline: 1,
            threads: 1,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(1),
            shape: Shape { keys: 10_000, exponent: 1.0, write_share: 0.05, seed: 1 },
            value_bytes: 100,
            hot_share: 0.5,
            onset: None,
            counters: 1,
            ttl: Duration::from_secs(1),
            recompute: Duration::from_millis(20),
            stock: 1_000,
            prefix: "heatsink:load:".to_owned(),
            keep_keys: false,
            timeout: Duration::from_secs(5),
        }
    }

    /// Measured time of one round of one target.
    pub fn round_length(&self) -> Duration {
        self.duration / self.rounds.max(1)
    }

    /// When it becomes hot in a round.
    pub fn round_onset(&self) -> Duration {
        self.onset.unwrap_or(self.round_length() / 3)
    }

    /// What all keys of a target begin with. The name keeps targets apart that lead to the
    /// same server.
    pub fn key_prefix(&self, target: &Target) -> String {
        format!("{}{}:", self.prefix, target.name)
    }

    /// Says what is wrong, if something is.
    pub fn check(&self) -> Result<(), OptionsError> {
        let within = |what: &str, number: u64, most: u64| match number {
            0 => fail(format!("{what} must be at least 1")),
            _ if number > most => fail(format!("{what} must be at most {most}")),
            _ => Ok(()),
        };
        within("the number of targets", self.targets.len() as u64, TARGETS_MAX as u64)?;
        within("the number of keys", self.shape.keys.into(), KEYS_MAX.into())?;
        within("the number of connections", self.connections.into(), CONNECTIONS_MAX.into())?;
        within("the pipeline", self.pipeline.into(), PIPELINE_MAX.into())?;
        within("the number of threads", self.threads.into(), self.connections.into())?;
        within("the number of rounds", self.rounds.into(), 1_000)?;
        within("the number of counters", self.counters.into(), 1_000)?;
        within("the size of a value", self.value_bytes as u64, 64 << 20)?;
        within("the time to live in milliseconds", self.ttl.as_millis() as u64, 86_400_000)?;
        if self.round_length() < Duration::from_millis(10) {
            return fail("a round must measure at least 10 ms: raise the duration");
        }
        if self.scenario.has_onset() && self.round_onset() >= self.round_length() {
            return fail("keys would become hot after the end of a round: lower the onset");
        }
        for (at, target) in self.targets.iter().enumerate() {
            if self.targets[..at].iter().any(|other| other.name == target.name) {
                return fail(format!("two targets are called {}", target.name));
            }
            if target.server.tls && self.tls.is_none() {
                return fail(format!("{}: no TLS is configured", target.name));
            }
            let least = stamp::least_bytes(self.key_prefix(target).len() + NAME_BYTES);
            if self.value_bytes < least {
                return fail(format!(
                    "a value holds its key, its version and a checksum: {least} bytes at least"
                ));
            }
        }
        if let Pace::Rate(rate) = self.pace
            && !(rate.is_finite() && rate > 0.0)
        {
            return fail("the rate must be above 0");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(Scenario::Zipf, vec![Target::parse("a=redis://127.0.0.1:6379").unwrap()])
    }

    #[test]
    fn targets_with_and_without_a_name() {
        assert_eq!(Target::parse("redis://h:1").unwrap().name, "target");
        let target = Target::parse("proxy=redis://user:a=b@h:1").unwrap();
        assert_eq!((target.name.as_str(), target.server.port), ("proxy", 1));
        assert_eq!(Target::parse("redis://user:a=b@h:1").unwrap().name, "target");
        for (text, why) in [
            ("a b=redis://h", "letters"),
            ("c=redis+cluster://h:1", "one address"),
            ("s=redis+sentinel://h:1/x", "name the primary"),
            ("e=embedded://", "another process"),
            ("x=http://h", "unknown scheme"),
        ] {
            let error = Target::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let changed = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert_eq!(options().check(), Ok(()));
        assert!(changed(|options| options.targets.clear()).contains("targets"));
        assert!(changed(|options| options.shape.keys = 0).contains("keys"));
        assert!(changed(|options| options.value_bytes = 20).contains("checksum"));
        assert!(changed(|options| options.pace = Pace::Rate(0.0)).contains("rate"));
        assert!(changed(|options| options.threads = 51).contains("threads"));
        assert!(changed(|options| options.duration = Duration::ZERO).contains("duration"));
        let late = changed(|options| {
            options.scenario = Scenario::Viral;
            options.onset = Some(Duration::from_secs(10));
        });
        assert!(late.contains("onset"), "{late}");
        assert!(changed(|options| options.targets[0].server.tls = true).contains("TLS"));
        let twice = changed(|options| options.targets.push(options.targets[0].clone()));
        assert!(twice.contains("two targets"), "{twice}");
    }
}
