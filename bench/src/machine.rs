//! The machine and versions that the figures belong to.
//!
//! Called by: `main`; printed above every table.
//! Bound: a few short commands.
//! Invariant: what cannot be found out is called `unknown` or left out, never guessed.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread;

use serde::Serialize;

/// What a reader needs to place the figures.
#[derive(Serialize)]
pub(crate) struct Machine {
    date: String,
    kernel: String,
    cpus: usize,
    cpu_model: String,
    redis: String,
    twemproxy: String,
}

impl Machine {
    pub(crate) fn describe() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            date: first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            kernel: or_unknown(&kernel),
            cpus: thread::available_parallelism().map_or(0, Into::into),
            cpu_model: or_unknown(model.map_or("", |(_, model)| model)),
            redis: redis_version(&first_line("redis-server", &["--version"])),
            twemproxy: twemproxy_version(),
        }
    }

    /// The lines that matter when no server takes part.
    pub(crate) fn host(&self) -> String {
        let Self { date, kernel, cpus, cpu_model, .. } = self;
        format!("- date: {date}\n- machine: {cpus} CPUs ({cpu_model}), Linux {kernel}\n")
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { redis, twemproxy, .. } = self;
        write!(f, "{}", self.host())?;
        writeln!(f, "- redis-server {redis}, twemproxy {twemproxy}")
    }
}

fn redis_version(line: &str) -> String {
    let version = line.split_whitespace().find_map(|word| word.strip_prefix("v="));
    or_unknown(version.unwrap_or_default())
}

fn twemproxy_version() -> String {
    let programs = ["nutcracker", "/usr/sbin/nutcracker"];
    let lines = programs.map(|program| first_line(program, &["--version"]));
    let found = lines.iter().find_map(|line| line.rsplit_once("nutcracker-"));
    found.map_or("not installed".to_owned(), |(_, version)| version.to_owned())
}

/// The first line that a command prints, on either stream.
fn first_line(program: &str, args: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(args).output() else { return or_unknown("") };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    or_unknown(text.lines().next().unwrap_or_default())
}

fn or_unknown(text: &str) -> String {
    if text.trim().is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
}

/// Over the last minute, as the kernel says it.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|figure| !figure.is_empty()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_cut_out_of_what_programs_print() {
        let line = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(redis_version(line), "7.0.15");
        assert_eq!(redis_version("unknown"), "unknown");
        assert_eq!(first_line("no-such-program-anywhere", &[]), "unknown");
    }
}
