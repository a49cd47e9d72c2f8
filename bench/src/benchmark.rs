//! One run of `redis-benchmark`.
//!
//! Called by: `rounds`, and `preload` to find out which keys it uses on a cluster.
//! Bound: the run's number of requests, and `TIMEOUT` in case a peer stops answering.
//! Invariant: a run that could not report every figure is an error, never a zero.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_testkit::Process;

use crate::case::{Case, KEYS};

const TIMEOUT: Duration = Duration::from_secs(300);

/// How the load is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To one server.
    Server,
    /// To one server, by a thread of its own: as the load for a cluster is always sent.
    ServerThreaded,
    /// To the nodes of a cluster, of which the address is one. `redis-benchmark` 7.0 puts in for
    /// `{tag}` one and the same tag per node, and starts a thread per node unless told a number.
    Cluster,
}

impl Access {
    /// How many random numbers are drawn from, so that there are about `KEYS` keys: on a cluster
    /// each number is a key on each of the three primaries.
    pub(crate) fn numbers(self) -> usize {
        if self == Self::Cluster { KEYS / 3 } else { KEYS }
    }
}

/// Where a run goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) addr: SocketAddr,
    pub(crate) access: Access,
}

/// What `redis-benchmark` saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Sends `requests` requests of `case` to `target`.
pub(crate) fn run(case: &Case, target: Target, requests: u64) -> Result<Figures, String> {
    let mut args =
        vec!["-c".to_owned(), case.clients.to_string(), "-P".to_owned(), case.pipeline.to_string()];
    if case.workload.random() {
        args.extend(["-r".to_owned(), target.access.numbers().to_string()]);
    }
    args.extend(case.workload.command(target.access));
    send(target, requests, args)
}

/// Sends `requests` requests to `target`; `rest` are further options and the command.
pub(crate) fn send(target: Target, requests: u64, rest: Vec<String>) -> Result<Figures, String> {
    let mut args = vec![
        "-h".to_owned(),
        target.addr.ip().to_string(),
        "-p".to_owned(),
        target.addr.port().to_string(),
        "-n".to_owned(),
        requests.to_string(),
        "--csv".to_owned(),
    ];
    match target.access {
        Access::Server => {}
        Access::ServerThreaded => args.extend(["--threads".to_owned(), "1".to_owned()]),
        Access::Cluster => args.extend(["--cluster", "--threads", "1"].map(str::to_owned)),
    }
    args.extend(rest);
    let mut process = Process::builder("redis-benchmark")
        .args(&args)
        .try_spawn()
        .map_err(|error| format!("redis-benchmark (Debian package redis-tools): {error}"))?;
    let status = process.wait_exit(TIMEOUT);
    let output = process.stdout();
    parse(&output).filter(|_| status.success()).ok_or_else(|| {
        let all = process.output();
        format!("redis-benchmark {} ended with {status} and printed:\n{all}", args.join(" "))
    })
}

/// Reads the table that `--csv` prints: a line of column names, then a line of figures.
fn parse(output: &str) -> Option<Figures> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("\"test\","));
    let names = fields(lines.next()?);
    // The first field holds the command as typed, which may contain anything: the columns are
    // counted from the end.
    let values = fields(lines.find(|line| line.starts_with('"'))?);
    let column = |name: &str| {
        let from_end = names.iter().rev().position(|other| *other == name)?;
        values.iter().rev().nth(from_end)?.parse::<f64>().ok()
    };
    Some(Figures {
        requests_per_second: column("rps")?,
        p50_ms: column("p50_latency_ms")?,
        p99_ms: column("p99_latency_ms")?,
    })
}

fn fields(line: &str) -> Vec<&str> {
    line.trim_matches('"').split("\",\"").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
        \"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n";

    #[test]
    fn reads_the_columns_by_name() {
        let output = format!(
            "{HEADER}\"SET k a\",\"b\",\"666666.69\",\"0.967\",\"0.040\",\"0.951\",\"1.351\",\
             \"1.431\",\"1.439\"\n"
        );
        assert_eq!(
            parse(&output),
            Some(Figures { requests_per_second: 666_666.69, p50_ms: 0.951, p99_ms: 1.431 })
        );
    }

    #[test]
    fn skips_warnings_before_the_table() {
        let output = format!(
            "WARNING: Could not fetch server CONFIG\n{HEADER}\"GET\",\"10.00\",\"1.0\",\"1.0\",\
             \"2.0\",\"2.5\",\"3.0\",\"4.0\"\n"
        );
        assert_eq!(parse(&output).map(|figures| figures.p99_ms), Some(3.0));
    }

    #[test]
    fn an_unfinished_table_is_no_result() {
        assert_eq!(parse(HEADER), None);
        assert_eq!(parse("Could not connect to Redis at 127.0.0.1:1: Connection refused"), None);
        assert_eq!(parse(&format!("{HEADER}\"GET\",\"nan?\"\n")), None);
    }
}
