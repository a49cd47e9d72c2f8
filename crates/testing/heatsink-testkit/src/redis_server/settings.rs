//! What a server is started with.
//!
//! Called by: tests, through `RedisServer::builder`; the cluster and Sentinel rigs.
//! Bound: `PORT_TRIES` sets of ports.
//! Invariant: one setting is given once by the kit; what a test adds comes after it and wins.

use std::path::Path;

use super::RedisServer;
use crate::certificates::{Certificates, Identity};
use crate::port::free_port;

const PORT_TRIES: usize = 10;
const PORT_TAKEN: &str = "Address already in use";

/// Whether a TLS server asks its clients for a certificate (`tls-auth-clients`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// It does not ask.
    #[default]
    No,
    /// It checks one that is shown.
    Optional,
    /// It refuses clients without one.
    Required,
}

impl ClientAuth {
    fn value(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Optional => "optional",
            Self::Required => "yes",
        }
    }
}

/// Settings of a server to start: made by [`RedisServer::builder`].
#[derive(Clone, Debug, Default)]
pub struct RedisServerBuilder {
    pub(super) program: String,
    args: Vec<String>,
    lines: Vec<String>,
    /// What the kit's own connections send with `AUTH`.
    pub(super) credentials: Vec<String>,
    port: Option<u16>,
    pub(super) tls: Option<Tls>,
    has_bus: bool,
    is_sentinel: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) certificates: Certificates,
    identity: Option<Identity>,
    auth_clients: ClientAuth,
    has_plain_port: bool,
}

/// Where a server listens; the same for life.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    /// Of the plain listener, or of the only one.
    pub(super) main: u16,
    pub(super) tls: Option<u16>,
    pub(super) bus: Option<u16>,
}

impl RedisServerBuilder {
    /// Sets `name` to `value`, as a line of `redis.conf` would.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        if name == "requirepass" {
            self.credentials = vec![value.to_owned()];
        }
        self.args.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Adds arguments as they are, such as `["--save", "900", "1"]`.
    #[must_use]
    pub fn args<A: AsRef<str>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds a line to the server's configuration file, such as
    /// `user alice on >secret ~* +@read`.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Writes every change to its disk before it answers, and has its keys again when it is
    /// started again.
    #[must_use]
    pub fn durable(self) -> Self {
        self.arg("appendonly", "yes").arg("appendfsync", "always")
    }

    /// The user as whom the kit's own connections ask for `INFO` and the like, where the
    /// default user may not.
    #[must_use]
    pub fn admin(mut self, user: &str, password: &str) -> Self {
        self.credentials = vec![user.to_owned(), password.to_owned()];
        self
    }

    /// Listens with TLS only, with `certificates.server()`; asks no client for a certificate
    /// unless [`tls_auth_clients`](Self::tls_auth_clients) says so.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(Tls {
            certificates: certificates.clone(),
            identity: None,
            auth_clients: ClientAuth::No,
            has_plain_port: false,
        });
        self
    }

    /// Whether clients must show a certificate; after [`tls`](Self::tls).
    #[must_use]
    #[track_caller]
    pub fn tls_auth_clients(mut self, auth_clients: ClientAuth) -> Self {
        self.tls_mut().auth_clients = auth_clients;
        self
    }

    /// Shows another certificate, such as `certificates.expired_server()`; after
    /// [`tls`](Self::tls). The kit's own connections need a plain port then.
    #[must_use]
    #[track_caller]
    pub fn tls_identity(mut self, identity: &Identity) -> Self {
        self.tls_mut().identity = Some(identity.clone());
        self
    }

    /// Listens without TLS as well: [`RedisServer::port`] is the plain port and
    /// [`RedisServer::tls_port`] the other; after [`tls`](Self::tls).
    #[must_use]
    #[track_caller]
    pub fn plain_port_too(mut self) -> Self {
        self.tls_mut().has_plain_port = true;
        self
    }

    /// Runs another server program that takes the same arguments.
    #[must_use]
    pub fn program(mut self, program: &str) -> Self {
        program.clone_into(&mut self.program);
        self
    }

    /// Listens on this port instead of any free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// A node of a cluster: it has a bus port, which must be free too.
    pub(crate) fn cluster_node(mut self) -> Self {
        self.has_bus = true;
        self.arg("cluster-enabled", "yes")
    }

    /// A Sentinel, which writes what it learns into its configuration file.
    pub(crate) fn sentinel(mut self) -> Self {
        self.is_sentinel = true;
        self
    }

    /// Starts the server and waits until it answers.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let ports = self.choose_ports();
        let mut server = RedisServer { process: None, ports, directory, settings: self };
        for _ in 0..PORT_TRIES {
            server.settings.write_lines(server.directory.path());
            match server.launch() {
                Ok(()) => return server,
                // Somebody took a port between the choice and the start.
                Err(log) if log.contains(PORT_TAKEN) && server.settings.port.is_none() => {
                    server.ports = server.settings.choose_ports();
                }
                Err(log) => panic!("{} did not start:\n{log}", server.settings.program),
            }
        }
        panic!("every one of {PORT_TRIES} free ports was taken before the server could bind it");
    }

    /// The command line, after the program.
    pub(super) fn command_line(&self, ports: Ports, directory: &Path) -> Vec<String> {
        let mut line = Vec::new();
        if self.has_file() {
            line.push(file_in(directory));
        }
        let mut set = |name: &str, value: &str| {
            line.extend([format!("--{name}"), value.to_owned()]);
        };
        set("bind", "127.0.0.1");
        set("protected-mode", "no");
        set("save", "");
        set("appendonly", "no");
        set("enable-debug-command", "yes");
        set("dir", &directory.to_string_lossy());
        if let Some(bus) = ports.bus {
            set("cluster-port", &bus.to_string());
        }
        match &self.tls {
            None => set("port", &ports.main.to_string()),
            Some(tls) => {
                let plain = if tls.has_plain_port { ports.main } else { 0 };
                set("port", &plain.to_string());
                set("tls-port", &ports.tls.unwrap_or(ports.main).to_string());
                let identity = tls.identity.as_ref().unwrap_or(tls.certificates.server());
                set("tls-cert-file", &identity.certificate().to_string_lossy());
                set("tls-key-file", &identity.key().to_string_lossy());
                set("tls-ca-cert-file", &tls.certificates.ca().to_string_lossy());
                set("tls-auth-clients", tls.auth_clients.value());
            }
        }
        line.extend_from_slice(&self.args);
        if self.is_sentinel {
            line.push("--sentinel".to_owned());
        }
        line
    }

    fn choose_ports(&self) -> Ports {
        let two = self.tls.as_ref().is_some_and(|tls| tls.has_plain_port);
        Ports {
            main: self.port.unwrap_or_else(free_port),
            tls: two.then(free_port),
            bus: self.has_bus.then(free_port),
        }
    }

    fn has_file(&self) -> bool {
        self.is_sentinel || !self.lines.is_empty()
    }

    fn write_lines(&self, directory: &Path) {
        if self.has_file() {
            let text = self.lines.join("\n") + "\n";
            std::fs::write(file_in(directory), text).expect("write the configuration file");
        }
    }

    #[track_caller]
    fn tls_mut(&mut self) -> &mut Tls {
        self.tls.as_mut().expect("tls(...) comes first")
    }
}

fn file_in(directory: &Path) -> String {
    directory.join("server.conf").to_string_lossy().into_owned()
}
