//! How many commands the servers behind a target ran: from `INFO commandstats`.
//!
//! Called by: [`crate::run()`], before and after each round.
//! Bound: one connection a server; one entry for each command that it ran.
//! Invariant: our own `INFO` calls do not count.

use std::collections::BTreeMap;

use heatsink_scan::nodes;
use heatsink_upstream::client::{Client, ClientError};

use crate::options::Options;

/// Calls by command, over all servers.
pub(crate) type Calls = BTreeMap<String, u64>;

/// Connections to the servers behind the targets.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    clients: Vec<Client>,
}

impl Upstreams {
    /// Connects; of a cluster, to all its primaries.
    pub(crate) fn open(options: &Options) -> Result<Self, ClientError> {
        let tls = options.tls.as_ref();
        let mut clients = Vec::new();
        for url in &options.upstreams {
            for server in nodes::primaries(url, false, tls, options.timeout)? {
                clients.push(Client::open(&server, tls, options.timeout)?);
            }
        }
        Ok(Self { clients })
    }

    /// What they ran so far.
    pub(crate) fn calls(&mut self) -> Result<Calls, ClientError> {
        let mut calls = Calls::new();
        for client in &mut self.clients {
            let reply = client.call(&["INFO", "commandstats"])?;
            let text = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
            for (name, count) in text.lines().filter_map(parse) {
                if name != "info" {
                    *calls.entry(name.to_owned()).or_default() += count;
                }
            }
        }
        Ok(calls)
    }
}

/// `cmdstat_get:calls=3,usec=…`
fn parse(line: &str) -> Option<(&str, u64)> {
    let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = fields.split(',').find_map(|field| field.strip_prefix("calls="))?;
    Some((name, calls.parse().ok()?))
}

/// Adds what was run between two readings to `sum`.
pub(crate) fn add_difference(sum: &mut Calls, before: &Calls, after: &Calls) {
    for (name, count) in after {
        let new = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        if new > 0 {
            *sum.entry(name.clone()).or_default() += new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_differences() {
        assert_eq!(
            parse("cmdstat_config|get:calls=3,usec=4,usec_per_call=1.0"),
            Some(("config|get", 3))
        );
        assert_eq!(parse("# Commandstats"), None);
        let calls = |pairs: &[(&str, u64)]| -> Calls {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let mut sum = calls(&[("get", 1)]);
        let (before, after) = (calls(&[("get", 5), ("set", 2)]), calls(&[("get", 9), ("set", 2)]));
        add_difference(&mut sum, &before, &after);
        assert_eq!(sum, calls(&[("get", 5)]));
    }
}
