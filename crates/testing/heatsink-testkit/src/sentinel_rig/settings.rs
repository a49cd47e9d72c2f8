//! What a primary, its replicas and their Sentinels are started with.
//!
//! Called by: tests, through `SentinelRig::builder`.
//! Bound: that of `SentinelRig::wait_until_ok`.
//! Invariant: server 0 starts as the primary and is linked to every replica before the first
//! Sentinel looks, so that none has to wait for its next look.

use std::collections::BTreeSet;
use std::thread;

use super::SentinelRig;
use crate::certificates::Certificates;
use crate::redis_server::{ClientAuth, RedisServer, RedisServerBuilder};

const DOWN_AFTER_MS: usize = 500;
/// Sentinels that notice a death at the same moment vote each for itself, and try again only
/// after twice the failover timeout.
const DOWN_AFTER_STEP_MS: usize = 150;

/// Settings of a rig to start: made by [`SentinelRig::builder`].
#[derive(Clone, Debug)]
pub struct SentinelRigBuilder {
    name: String,
    replicas: usize,
    sentinels: usize,
    server: RedisServerBuilder,
    sentinel: RedisServerBuilder,
    /// `auth-user` and `auth-pass`, as the Sentinels use them at the servers.
    server_auth: Vec<(&'static str, String)>,
    is_tls: bool,
}

impl SentinelRigBuilder {
    pub(super) fn new() -> Self {
        Self {
            name: "kit".to_owned(),
            replicas: 1,
            sentinels: 3,
            server: RedisServer::builder(),
            sentinel: RedisServer::builder().sentinel(),
            server_auth: Vec::new(),
            is_tls: false,
        }
    }

    /// The name under which the Sentinels know the primary, `kit` unless set.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// How many replicas, 1 unless set.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// How many Sentinels, 3 unless set; more than half of them decide.
    #[must_use]
    pub fn sentinels(mut self, count: usize) -> Self {
        self.sentinels = count;
        self
    }

    /// Adds a line to the configuration file of every server; ACL users are such lines.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.server = self.server.line(line);
        self
    }

    /// Demands this password of the servers' default user, and lets servers, Sentinels and the
    /// kit use it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.server = self.server.arg("requirepass", password).arg("masterauth", password);
        self.server_auth = vec![("auth-pass", password.to_owned())];
        self
    }

    /// The user as whom servers, Sentinels and the kit log in at the servers; one that a
    /// [`line`](Self::line) has given all rights.
    #[must_use]
    pub fn admin(mut self, user: &str, password: &str) -> Self {
        self.server =
            self.server.admin(user, password).arg("masteruser", user).arg("masterauth", password);
        self.server_auth = vec![("auth-user", user.to_owned()), ("auth-pass", password.to_owned())];
        self
    }

    /// Demands this password of the Sentinels' default user, and lets them and the kit use it.
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel = self
            .sentinel
            .arg("requirepass", password)
            .line(format!("sentinel sentinel-pass {password}"));
        self
    }

    /// Everything speaks TLS only: servers, Sentinels, and they to each other.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.server = self.server.tls(certificates).arg("tls-replication", "yes");
        self.sentinel = self.sentinel.tls(certificates).arg("tls-replication", "yes");
        self.is_tls = true;
        self
    }

    /// Whether clients must show a certificate; after [`tls`](Self::tls).
    #[must_use]
    #[track_caller]
    pub fn tls_auth_clients(mut self, auth_clients: ClientAuth) -> Self {
        self.server = self.server.tls_auth_clients(auth_clients);
        self.sentinel = self.sentinel.tls_auth_clients(auth_clients);
        self
    }

    /// Starts everything and waits until the Sentinels know the replicas and each other.
    #[track_caller]
    pub fn start(self) -> SentinelRig {
        // Even with no line of the test's, so that there is a file for the Sentinels to have a
        // server's new role written into.
        let settings = self.server.line("repl-diskless-sync-delay 0");
        let primary = settings.clone().start();
        let replica = settings.line(format!("replicaof 127.0.0.1 {}", primary.port()));
        let mut servers = vec![primary];
        servers.extend(start_all(&vec![replica; self.replicas]));

        let quorum = self.sentinels / 2 + 1;
        let (name, port) = (&self.name, servers[0].port());
        let mut sentinel = self
            .sentinel
            .line(format!("sentinel monitor {name} 127.0.0.1 {port} {quorum}"))
            .line(format!("sentinel failover-timeout {name} 3000"))
            .line(format!("sentinel parallel-syncs {name} 1"));
        for (option, value) in &self.server_auth {
            sentinel = sentinel.line(format!("sentinel {option} {name} {value}"));
        }
        let mut rig = SentinelRig {
            servers,
            sentinels: Vec::new(),
            paused: BTreeSet::new(),
            left: None,
            name: self.name,
            is_tls: self.is_tls,
        };
        rig.wait_for_replicas();
        let sentinels = (0..self.sentinels).map(|index| {
            let down_after_ms = DOWN_AFTER_MS + index * DOWN_AFTER_STEP_MS;
            let line = format!("sentinel down-after-milliseconds {} {down_after_ms}", rig.name);
            sentinel.clone().line(line)
        });
        rig.sentinels = start_all(&sentinels.collect::<Vec<_>>());
        for index in 0..rig.sentinels.len() {
            rig.hurry(index);
        }
        rig.wait_until_ok();
        rig
    }
}

fn start_all(settings: &[RedisServerBuilder]) -> Vec<RedisServer> {
    thread::scope(|scope| {
        let starts: Vec<_> =
            settings.iter().map(|one| scope.spawn(|| one.clone().start())).collect();
        starts.into_iter().map(|start| start.join().expect("the log is above")).collect()
    })
}
