//! A guard around a program under test.
//!
//! Called by: `redis_server`, tests of the `heatsink` binary, the benchmark.
//! Bound: see `output` for what is kept of its output.
//! Invariant: the process is gone and reaped when the guard has been dropped. When the test
//! program itself is killed the guard does not run; then the kernel kills the process, see
//! [`ProcessBuilder::spawn`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::output::{Output, Stream};
use crate::proc_stats::state;
use crate::wait::poll_until;

const TAIL_LINES: usize = 40;
const REAP_TIMEOUT: Duration = Duration::from_secs(10);

/// What to run: made by [`Process::builder`].
#[derive(Debug)]
pub struct ProcessBuilder {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    directory: Option<OsString>,
    stderr: Option<Stdio>,
}

impl ProcessBuilder {
    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets its working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().as_os_str().to_owned());
        self
    }

    /// Has stderr go somewhere else than to what is collected.
    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// Starts it with nothing on stdin and both outputs collected.
    ///
    /// Where `setpriv` (util-linux) exists the program is started through it with a
    /// parent-death signal, so that it does not outlive a test program that was killed.
    /// `setpriv` replaces itself by the program, so the pid is the program's.
    #[track_caller]
    pub fn spawn(self) -> Process {
        let name = self.program.to_string_lossy().into_owned();
        match self.try_spawn() {
            Ok(process) => process,
            Err(error) => panic!("cannot start {name}: {error}"),
        }
    }

    /// As [`spawn`](Self::spawn), for a program that may be missing.
    pub fn try_spawn(self) -> io::Result<Process> {
        let found = find_program(&self.program).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no such program in PATH or at that path")
        })?;
        let mut command = match find_program(OsStr::new("setpriv")) {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&found);
                command
            }
            None => Command::new(&found),
        };
        command.args(&self.args).envs(self.envs);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(self.stderr.unwrap_or_else(Stdio::piped));
        if let Some(directory) = self.directory {
            command.current_dir(directory);
        }
        let mut child = spawn_from_lasting_thread(command)?;
        let output = Output::default();
        if let Some(stdout) = child.stdout.take() {
            output.collect(Stream::Stdout, stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            output.collect(Stream::Stderr, stderr);
        }
        Ok(Process { name: self.program.to_string_lossy().into_owned(), child, output })
    }
}

/// A running program, killed on drop.
pub struct Process {
    name: String,
    child: Child,
    output: Output,
}

impl Process {
    /// Describes a program to start: a path, or a name to look up in `PATH`.
    pub fn builder(program: impl AsRef<OsStr>) -> ProcessBuilder {
        ProcessBuilder {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            directory: None,
            stderr: None,
        }
    }

    /// Starts `program` with `args`.
    #[track_caller]
    pub fn spawn<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::builder(program).args(args).spawn()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not exited yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal; nothing happens when it has exited.
    pub fn signal(&mut self, signal: Signal) {
        // Not reaped yet, so the pid cannot belong to another process.
        if self.is_running()
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks it to end (SIGTERM); follow with [`wait_exit`](Self::wait_exit).
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Freezes it (SIGSTOP) and waits until it stands still: its sockets stay open and nobody
    /// answers.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        let stopped = || state(self.child.id()).is_none_or(|state| state == 'T');
        poll_until(REAP_TIMEOUT, stopped).expect("a stopped process stops");
    }

    /// Lets it go on after [`pause`](Self::pause) (SIGCONT).
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Kills it (SIGKILL) and waits until it is gone. A paused one does not run again before.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        self.output.wait_for_end(REAP_TIMEOUT);
    }

    /// Waits until it exits by itself; panics with its last output after `timeout`.
    #[track_caller]
    pub fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let Some(status) = poll_until(timeout, || self.child.try_wait().ok().flatten()) else {
            panic!("{} still runs after {timeout:?}; it printed:\n{}", self.name, self.tail())
        };
        self.output.wait_for_end(REAP_TIMEOUT);
        status
    }

    /// Waits until a line of either stream contains `pattern` and returns that line; lines
    /// printed before the call count too. Panics with the last output after `timeout`, or at
    /// once when the output has ended.
    #[track_caller]
    pub fn wait_for_line(&self, pattern: &str, timeout: Duration) -> String {
        match self.output.wait_for(pattern, timeout) {
            Some(line) => line,
            None => panic!(
                "{} did not print {pattern:?} within {timeout:?}; it printed:\n{}",
                self.name,
                self.tail()
            ),
        }
    }

    /// Everything printed so far, both streams as they came.
    pub fn output(&self) -> String {
        self.output.text(None)
    }

    /// What it printed on stdout so far.
    pub fn stdout(&self) -> String {
        self.output.text(Some(Stream::Stdout))
    }

    /// What it printed on stderr so far.
    pub fn stderr(&self) -> String {
        self.output.text(Some(Stream::Stderr))
    }

    /// The last lines it printed, for messages.
    pub fn tail(&self) -> String {
        self.output.tail(TAIL_LINES)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn find_program(program: &OsStr) -> Option<OsString> {
    if Path::new(program).components().count() > 1 {
        return Path::new(program).is_file().then(|| program.to_owned());
    }
    // Debian keeps some servers where only root's PATH looks.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    directories.map(|dir| dir.join(program)).find(|file| file.is_file()).map(Into::into)
}

type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// The parent-death signal is sent when the *thread* that started the child ends, and a test's
/// thread ends before a server shared by several tests should: one thread that lasts as long as
/// the program starts them all.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<Sender<SpawnRequest>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, inbox): (_, Receiver<SpawnRequest>) = channel();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(requests)
    });
    let (answer, result) = channel();
    let sent =
        spawner.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).is_ok();
    if !sent {
        return Err(io::Error::other("the thread that starts processes has ended"));
    }
    result.recv().unwrap_or_else(|_| Err(io::Error::other("the process was not started")))
}
