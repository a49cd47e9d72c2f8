//! A `redis-server` of one's own.
//!
//! Called by: nearly every integration test.
//! Bound: 10 s to become ready, `PORT_TRIES` ports.
//! Invariant: its port stays the same for life, through kills and restarts; nothing is kept on
//! disk unless the test asks for it, and the directory goes with the guard.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::RawClient;
use crate::port::free_port;
use crate::process::Process;
use crate::reply::Reply;
use crate::wait::poll_until;

const READY_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PORT_TRIES: usize = 10;
const PORT_TAKEN: &str = "Address already in use";

/// Settings of a server to start: made by [`RedisServer::builder`].
#[derive(Debug)]
pub struct RedisServerBuilder {
    program: String,
    args: Vec<String>,
    password: Option<String>,
    port: Option<u16>,
}

impl RedisServerBuilder {
    /// Sets `name` to `value`, as a line of `redis.conf` would.
    #[must_use]
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        if name == "requirepass" {
            self.password = Some(value.to_owned());
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

    /// Starts the server and waits until it answers.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let mut server = RedisServer {
            port: self.port.unwrap_or_else(free_port),
            directory: tempfile::tempdir().expect("a temporary directory"),
            settings: self,
            process: None,
        };
        for _ in 0..PORT_TRIES {
            match server.launch() {
                Ok(()) => return server,
                // Somebody took the port between the choice and the start.
                Err(log) if log.contains(PORT_TAKEN) && server.settings.port.is_none() => {
                    server.port = free_port();
                }
                Err(log) => panic!("{} did not start:\n{log}", server.settings.program),
            }
        }
        panic!("every one of {PORT_TRIES} free ports was taken before the server could bind it");
    }
}

/// Figures of one command from `INFO commandstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStats {
    /// How often it ran.
    pub calls: u64,
    /// Time spent in it.
    pub usec: u64,
    /// Calls refused before they ran.
    pub rejected_calls: u64,
    /// Calls that ran and failed.
    pub failed_calls: u64,
}

/// A running (or stopped, or paused) server, ended on drop.
pub struct RedisServer {
    // Before the directory, so that the server is gone when its files are deleted.
    process: Option<Process>,
    port: u16,
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
        RedisServerBuilder {
            program: "redis-server".to_owned(),
            args: Vec::new(),
            password: None,
            port: None,
        }
    }

    /// The port, the same for life.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The address as a URL, without credentials.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
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

    /// A new connection, not authenticated.
    #[track_caller]
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.addr())
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
        let text = self.admin().command(&["INFO", section]).text();
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
        let text = self.admin().command(&["INFO", "commandstats"]).text();
        text.lines().filter_map(parse_command_stats).collect()
    }

    /// How often `command` ran, 0 when never.
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        self.commandstats().get(command).map_or(0, |stats| stats.calls)
    }

    fn admin(&self) -> RawClient {
        let mut client = self.client();
        if let Some(password) = &self.settings.password {
            assert_eq!(client.command(&["AUTH", password]), Reply::ok(), "AUTH");
        }
        client
    }

    /// Starts the process and waits until it answers; the log when it does not.
    fn launch(&mut self) -> Result<(), String> {
        let mut process = Process::builder(&self.settings.program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--protected-mode", "no", "--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "yes", "--dir"])
            .arg(self.directory.path())
            .args(&self.settings.args)
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
            let mut client = RawClient::try_connect(self.addr())?;
            client.set_timeout(PROBE_TIMEOUT);
            if let Some(password) = &self.settings.password {
                client.try_command(&["AUTH", password])?;
            }
            let pong = client.try_command(&["PING"])?;
            Ok::<_, std::io::Error>((pong, client.try_command(&["INFO", "server"])?))
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

fn parse_command_stats(line: &str) -> Option<(String, CommandStats)> {
    let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let mut stats = CommandStats::default();
    for field in fields.split(',') {
        let (field, value) = field.split_once('=')?;
        let value = value.parse().unwrap_or(0);
        match field {
            "calls" => stats.calls = value,
            "usec" => stats.usec = value,
            "rejected_calls" => stats.rejected_calls = value,
            "failed_calls" => stats.failed_calls = value,
            _ => {}
        }
    }
    Some((name.to_owned(), stats))
}
