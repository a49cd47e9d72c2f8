//! A Postgres and a Redis of its own, in a temporary directory.
//!
//! Called by: `main`, from the main thread: what is started here is told to end when that thread dies
//! (`setpriv --pdeathsig`), so that nothing is left running if the shop is killed.
//! Bound: [`START`] to become ready, [`STOP`] to end before it is killed.
//! Invariant: whatever was started is ended, and the directory removed, however `main` ends; only if
//! the shop is killed, the directory stays.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Failure;

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(10);
/// Somebody else may take a free port before Redis does.
const PORT_TRIES: usize = 5;

/// What was started, in the order of starting.
#[derive(Default)]
pub(crate) struct Servers {
    // Before the directory, so that they are gone when it is removed.
    running: Vec<Child>,
    directory: Option<TempDir>,
}

impl Servers {
    /// Returns the URL.
    pub(crate) async fn start_redis(&mut self) -> Result<String, Failure> {
        let program = find("redis-server").ok_or(
            "there is no redis-server: install it (on Debian: redis-server), or give --redis-url",
        )?;
        let directory = self.subdirectory("redis")?;
        let mut tries = 0;
        loop {
            let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let mut command = ended_with_us(&program);
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&directory);
            tries += 1;
            match self.spawn(command, Stream::Stdout, "Ready to accept connections").await {
                Ok(pid) => {
                    println!("redis {pid}: redis://127.0.0.1:{port}");
                    return Ok(format!("redis://127.0.0.1:{port}"));
                }
                Err(error) if tries == PORT_TRIES => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Returns the URL, which leads to a socket in a directory that nobody else can enter.
    pub(crate) async fn start_postgres(&mut self) -> Result<String, Failure> {
        let [initdb, postgres] = ["initdb", "postgres"].map(find);
        let (Some(initdb), Some(postgres)) = (initdb, postgres) else {
            return Err("there is no Postgres: install it (on Debian: postgresql), \
                        or give --database-url"
                .into());
        };
        let directory = self.subdirectory("postgres")?;
        let user = if geteuid().is_root() { Some(postgres_user()?) } else { None };
        if let Some((uid, gid)) = user {
            chown(&directory, Some(uid), Some(gid))?;
        }
        let data = directory.join("data");
        let as_user = |program: &Path| {
            let mut command = ended_with_us(program);
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir(&directory).arg("-D").arg(&data);
            command
        };
        let mut command = as_user(&initdb);
        command.args(["--username=shop", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
        let made = timeout(START, command.arg("--no-sync").output()).await??;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let mut command = as_user(&postgres);
        command.arg("-k").arg(&directory);
        for setting in [
            "listen_addresses=",
            "max_connections=100",
            "shared_preload_libraries=pg_stat_statements",
            // Nothing here is worth waiting for a disk.
            "fsync=off",
            "synchronous_commit=off",
        ] {
            command.args(["-c", setting]);
        }
        let pid = self.spawn(command, Stream::Stderr, "ready to accept connections").await?;
        let url = format!("postgresql:///postgres?user=shop&host={}", directory.display());
        println!("postgres {pid}: {url}");
        Ok(url)
    }

    /// Ends all of them in order, and removes the directory.
    pub(crate) async fn stop(mut self) {
        while let Some(mut child) = self.running.pop() {
            if let Some(pid) = pid_of(&child) {
                // For Postgres: clients are cut off, data is in order.
                let _ = kill_process(pid, Signal::INT);
            }
            if timeout(STOP, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
        if let Some(directory) = self.directory.take()
            && let Err(error) = directory.close()
        {
            eprintln!("shop: {error}");
        }
    }

    fn subdirectory(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => tempfile::Builder::new().prefix("heatsink-shop-").tempdir()?,
        };
        let directory = self.directory.insert(directory).path();
        // The user of Postgres has to pass through.
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o711))?;
        let subdirectory = directory.join(name);
        std::fs::create_dir(&subdirectory)?;
        std::fs::set_permissions(&subdirectory, PermissionsExt::from_mode(0o700))?;
        Ok(subdirectory)
    }

    /// Starts a server, and waits for the line that says it is ready. Returns its process id.
    async fn spawn(
        &mut self,
        mut command: Command,
        says_on: Stream,
        ready: &str,
    ) -> Result<u32, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = match says_on {
            Stream::Stdout => command.stdout(Stdio::piped()),
            Stream::Stderr => command.stderr(Stdio::piped()),
        }
        .spawn()?;
        let said: Box<dyn AsyncRead + Send + Unpin> =
            match (child.stdout.take(), child.stderr.take()) {
                (Some(stdout), _) => Box::new(stdout),
                (_, Some(stderr)) => Box::new(stderr),
                _ => unreachable!("one is piped"),
            };
        timeout(START, until(said, ready)).await.map_err(|_| "a server does not get ready")??;
        let pid = child.id().unwrap_or_default();
        self.running.push(child);
        Ok(pid)
    }
}

/// Where a server says that it is ready.
enum Stream {
    Stdout,
    Stderr,
}

/// Reads up to a line with these words, and what comes after it in the background, so that the
/// server never waits for us. The error is what was read instead.
async fn until(output: impl AsyncRead + Unpin + Send + 'static, words: &str) -> Result<(), String> {
    let mut lines = BufReader::new(output).lines();
    let mut seen = String::from("a server did not start:");
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains(words) {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(());
        }
        seen = seen + "\n  " + &line;
    }
    Err(seen)
}

/// In a process group of its own, so that Ctrl-C reaches the shop alone, which then ends it.
fn ended_with_us(program: &Path) -> Command {
    let mut command = match find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "INT", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.process_group(0).kill_on_drop(true);
    command
}

/// A program in `PATH`, or where Debian keeps Postgres.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|directory| directory.join(name));
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin").join(name)))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    named.chain(versions.into_iter().map(|(_, path)| path)).find(|path| path.is_file())
}

/// Postgres refuses to run as root.
fn postgres_user() -> Result<(u32, u32), Failure> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let ids = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == "postgres").then_some(())?;
        let mut ids = fields.skip(1).map(str::parse);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    });
    ids.ok_or_else(|| "Postgres does not run as root, and there is no user postgres".into())
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}
