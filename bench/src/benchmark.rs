//! One run of `redis-benchmark`.
//!
//! Called by: `rounds`.
//! Bound: the run's number of requests, and `TIMEOUT` in case a peer stops answering.
//! Invariant: a run that could not report every figure is an error, never a zero.

use std::net::SocketAddr;
use std::time::Duration;

use heatsink_testkit::Process;

use crate::case::{Case, KEYS};

const TIMEOUT: Duration = Duration::from_secs(300);

/// What `redis-benchmark` saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Sends `requests` requests of `case` to `addr`.
pub(crate) fn run(case: &Case, addr: SocketAddr, requests: u64) -> Result<Figures, String> {
    let mut args = vec![
        "-h".to_owned(),
        addr.ip().to_string(),
        "-p".to_owned(),
        addr.port().to_string(),
        "-n".to_owned(),
        requests.to_string(),
        "-c".to_owned(),
        case.clients.to_string(),
        "-P".to_owned(),
        case.pipeline.to_string(),
        "--csv".to_owned(),
    ];
    if case.workload.random() {
        args.extend(["-r".to_owned(), KEYS.to_string()]);
    }
    args.extend(case.workload.command());
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
