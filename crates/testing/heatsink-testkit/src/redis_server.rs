//! A `redis-server` of one's own.
//!
//! Called by: nearly every integration test.
//! Bound: 10 s to become ready.
//! Invariant: its ports stay the same for life, through kills and restarts; nothing is kept on
//! disk unless the test asks for it, and the directory goes with the guard.

mod settings;
mod stats;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::RawClient;
use crate::process::Process;
use crate::reply::Reply;
use crate::wait::poll_until;
use settings::Ports;
use stats::parse_command_stats;

pub use settings::{ClientAuth, RedisServerBuilder};
pub use stats::CommandStats;

const READY_TIMEOUT: Duration = Duration::from_secs(10);
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A running (or stopped, or paused) server, ended on drop.
pub struct RedisServer {
    // Before the directory, so that the server is gone when its files are deleted.
    process: Option<Process>,
    ports: Ports,
    directory: TempDir,
    settings: RedisServerBuilder,
}

impl RedisServer {
    /// Starts a server with default settings and no persistence.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Settings for a server that differs from the default.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default().program("redis-server")
    }

    /// The port, the same for life: the plain one where there are two.
    pub fn port(&self) -> u16 {
        self.ports.main
    }

    /// The port that speaks TLS; panics when none does.
    #[track_caller]
    pub fn tls_port(&self) -> u16 {
        assert!(self.settings.tls.is_some(), "the server was started without TLS");
        self.ports.tls.unwrap_or(self.ports.main)
    }

    /// The port that nodes of a cluster talk to each other on.
    pub(crate) fn bus_port(&self) -> u16 {
        self.ports.bus.expect("a node of a cluster")
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The address that speaks TLS; panics when none does.
    #[track_caller]
    pub fn tls_addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.tls_port()).into()
    }

    /// The address as a URL, without credentials; `rediss` when it speaks TLS only.
    pub fn url(&self) -> String {
        let scheme = if self.main_is_tls() { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.addr())
    }

    /// The process id; panics when stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server is stopped").pid()
    }

    /// Its working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it logged since its last start.
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::output).unwrap_or_default()
    }

    /// Whether it runs; a paused one does.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// A new connection, not authenticated; over TLS, with a client certificate, where the
    /// server speaks nothing else.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        match self.try_client() {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to {}: {error}", self.url()),
        }
    }

    /// As [`client`](Self::client), to a server that may be stopped.
    pub fn try_client(&self) -> io::Result<RawClient> {
        match &self.settings.tls {
            Some(tls) if self.main_is_tls() => {
                let files = &tls.certificates;
                RawClient::try_connect_tls(
                    self.addr(),
                    files.ca(),
                    Some(files.client()),
                    "127.0.0.1",
                )
            }
            _ => RawClient::try_connect(self.addr()),
        }
    }

    /// A new connection with the rights the kit's own have: see [`RedisServerBuilder::admin`].
    #[track_caller]
    pub fn admin_client(&self) -> RawClient {
        match self.try_admin_client() {
            Ok(client) => client,
            Err(error) => panic!("cannot connect to {}: {error}", self.url()),
        }
    }

    /// As [`admin_client`](Self::admin_client), to a server that may be stopped.
    pub fn try_admin_client(&self) -> io::Result<RawClient> {
        let mut client = self.try_client()?;
        client.set_timeout(ADMIN_TIMEOUT);
        let credentials = self.settings.credentials.iter().map(String::as_str);
        let auth: Vec<&str> = ["AUTH"].into_iter().chain(credentials).collect();
        if auth.len() > 1
            && let Reply::Error(error) = client.try_command(&auth)?
        {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        Ok(client)
    }

    /// Kills it (SIGKILL) and waits until it is gone: its connections are reset or closed and
    /// the port refuses new ones. Does nothing when it is stopped.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The same as [`kill`](Self::kill): the counterpart of [`start_again`](Self::start_again).
    pub fn stop(&mut self) {
        self.kill();
    }

    /// Freezes it: connections stay open, nothing is answered.
    pub fn pause(&mut self) {
        if let Some(process) = &mut self.process {
            process.pause();
        }
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&mut self) {
        if let Some(process) = &mut self.process {
            process.resume();
        }
    }

    /// Kills it if it runs, starts it on the same port and waits until it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Starts it on the same port after [`stop`](Self::stop) and waits until it answers.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server runs already");
        if let Err(log) = self.launch() {
            panic!("{} did not start again:\n{log}", self.settings.program);
        }
    }

    /// One field of `INFO section`; panics when there is no such field.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> String {
        let text = self.admin_client().command(&["INFO", section]).text();
        match text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')) {
            Some(value) => value.to_owned(),
            None => panic!("INFO {section} has no field {field}:\n{text}"),
        }
    }

    /// One numeric field of `INFO section`.
    #[track_caller]
    pub fn info_u64(&self, section: &str, field: &str) -> u64 {
        let value = self.info(section, field);
        value.parse().unwrap_or_else(|_| panic!("INFO {section}: {field} is {value:?}"))
    }

    /// What ran since the start or the last `CONFIG RESETSTAT`, by lower-case name
    /// (`get`, `config|get`). The kit's own `info` and `auth` calls are among them.
    #[track_caller]
    pub fn commandstats(&self) -> BTreeMap<String, CommandStats> {
        let text = self.admin_client().command(&["INFO", "commandstats"]).text();
        text.lines().filter_map(parse_command_stats).collect()
    }

    /// How often `command` ran, 0 when never.
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        self.commandstats().get(command).map_or(0, |stats| stats.calls)
    }

    /// Whether it is a Valkey.
    #[track_caller]
    pub fn is_valkey(&self) -> bool {
        self.admin_client().command(&["INFO", "server"]).text().contains("valkey_version:")
    }

    /// Whether it knows a command. Those that came after the oldest server that tests are run with are
    /// tested only where they are known.
    #[track_caller]
    pub fn knows(&self, command: &str) -> bool {
        let told = self.admin_client().command(&["COMMAND", "INFO", command]);
        told.items().iter().any(|one| !matches!(one, Reply::Null))
    }

    fn main_is_tls(&self) -> bool {
        self.settings.tls.is_some() && self.ports.tls.is_none()
    }

    /// Starts the process and waits until it answers; the log when it does not.
    fn launch(&mut self) -> Result<(), String> {
        let mut process = Process::builder(&self.settings.program)
            .args(self.settings.command_line(self.ports, self.directory.path()))
            .spawn();
        let ready = poll_until(READY_TIMEOUT, || {
            if !process.is_running() {
                return Some(false);
            }
            self.answers_as(process.pid()).then_some(true)
        });
        if ready == Some(true) {
            self.process = Some(process);
            return Ok(());
        }
        // Its last words are complete only once it is gone.
        process.kill();
        Err(process.tail())
    }

    /// Whether the server at the port is process `pid` and serves: another program's server
    /// may answer there while ours has not found out yet that the port is taken.
    fn answers_as(&self, pid: u32) -> bool {
        let probe = || {
            let mut client = self.try_admin_client()?;
            client.set_timeout(PROBE_TIMEOUT);
            let pong = client.try_command(&["PING"])?;
            Ok::<_, io::Error>((pong, client.try_command(&["INFO", "server"])?))
        };
        match probe() {
            Ok((Reply::Error(error), _)) if error.starts_with("NOAUTH") => true,
            Ok((Reply::Simple(_), Reply::Bulk(info))) => {
                let line = format!("process_id:{pid}");
                String::from_utf8_lossy(&info).lines().any(|other| other == line)
            }
            _ => false,
        }
    }
}
