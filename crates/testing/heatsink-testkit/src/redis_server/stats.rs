//! `INFO commandstats`, parsed.
//!
//! Called by: `RedisServer::commandstats`.
//! Bound: one entry per command the server ran.
//! Invariant: a field that the server does not send counts 0.

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

pub(super) fn parse_command_stats(line: &str) -> Option<(String, CommandStats)> {
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
