//! What the kernel says about a process: CPU time, memory, descriptors.
//!
//! Called by: tests of bounds (memory, descriptors) and the benchmark (CPU per request).
//! Bound: a few small files below `/proc` per call.
//! Invariant: figures are of the whole process, all its threads together.

use std::fs;
use std::io;
use std::time::Duration;

/// A snapshot of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcStats {
    /// CPU time used since it started, in user and kernel mode together.
    pub cpu_seconds: f64,
    /// Memory resident in RAM.
    pub rss_bytes: u64,
    /// Number of threads.
    pub threads: u64,
}

impl ProcStats {
    /// Reads the figures of process `pid`.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        parse_stat(&stat).ok_or_else(|| io::Error::other("unexpected form of /proc/PID/stat"))
    }
}

/// CPU time that the threads of process `pid` have used, to the nanosecond: [`ProcStats`] counts in
/// ticks of some milliseconds. What threads that have ended used is not in it.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let figures = match fs::read_to_string(thread?.path().join("schedstat")) {
            // It has ended meanwhile.
            Err(error) if is_gone(&error) => continue,
            figures => figures?,
        };
        let nanos = figures.split_whitespace().next().and_then(|first| first.parse().ok());
        let unexpected = || io::Error::other("unexpected form of /proc/PID/task/TID/schedstat");
        sum += Duration::from_nanos(nanos.ok_or_else(unexpected)?);
    }
    Ok(sum)
}

fn is_gone(error: &io::Error) -> bool {
    let no_such_process = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(no_such_process)
}

/// How many descriptors process `pid` has open.
pub fn open_fds(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// The letter for what process `pid` is doing (`T`: stopped, `Z`: dead and not reaped).
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn parse_stat(stat: &str) -> Option<ProcStats> {
    // The second field is the program's name in parentheses and may contain anything.
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Numbered from 1 in proc(5); the first one after the name is field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcStats {
        cpu_seconds: (field(14)? + field(15)?) as f64
            / rustix::param::clock_ticks_per_second() as f64,
        rss_bytes: field(24)? * rustix::param::page_size() as u64,
        threads: field(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, eventually};

    #[test]
    fn reads_a_line_with_an_awkward_name() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 9 1000 12 0";
        let stats = parse_stat(line).expect("a valid line");
        assert!((stats.cpu_seconds - 3.0).abs() < 1e-9);
        assert_eq!(stats.threads, 3);
        assert_eq!(stats.rss_bytes, 12 * rustix::param::page_size() as u64);
    }

    #[test]
    fn cpu_time_grows_with_work_and_fits_the_ticks() {
        let busy = Process::builder("sh").args(["-c", "while :; do :; done"]).spawn();
        let used = || cpu_time(busy.pid()).expect("its figures");
        eventually(Duration::from_secs(30), || used() >= Duration::from_millis(100));
        let before = used().as_secs_f64();
        let ticks = ProcStats::of(busy.pid()).expect("its figures").cpu_seconds;
        let after = used().as_secs_f64();
        let tick = 0.02;
        assert!((before - tick..after + tick).contains(&ticks), "{before}, {ticks}, {after}");
    }

    /// Threads that end while they are looked at do no harm.
    #[test]
    fn cpu_time_is_told_while_threads_come_and_go() {
        let own = std::process::id();
        for _ in 0..300 {
            let threads = [(); 4].map(|()| std::thread::spawn(std::thread::yield_now));
            let told = cpu_time(own);
            for thread in threads {
                thread.join().expect("no panic");
            }
            told.expect("own figures");
        }
    }

    #[test]
    fn describes_this_process() {
        let own = std::process::id();
        let stats = ProcStats::of(own).expect("own figures");
        assert!(stats.rss_bytes > 100_000 && stats.threads >= 1);
        let before = open_fds(own).expect("own descriptors");
        let files: Vec<_> = (0..40).map(|_| fs::File::open("/dev/null")).collect();
        let during = open_fds(own).expect("own descriptors");
        assert!(during >= before + 20, "{} files: {before} -> {during}", files.len());
    }
}
