//! What a scan will do and cost, before it does anything.
//!
//! Called by: the command line, which prints a plan before it runs it.
//! Bound: one connection and three cheap questions (`CLUSTER SLOTS`, `COMMAND INFO`, `INFO
//! stats`) for each node.

use std::fmt;
use std::time::Duration;

use heatsink_control::words;
use heatsink_resp::value::Value;
use heatsink_tls::ClientTls;
use heatsink_upstream::address::{ServerUrl, Url};

use crate::{hotkeys, nodes};
use heatsink_upstream::client::{Client, ClientError};

/// How hot keys are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// `HOTKEYS` where every node has it, else `MONITOR`.
    #[default]
    Auto,
    /// Every command is copied to us.
    Monitor,
    /// The server's own tracking.
    Hotkeys,
}

/// What the user wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server or the cluster.
    pub url: Url,
    /// Of a `redis://` URL: go on to all primaries of the cluster that the server is part of.
    pub all_nodes: bool,
    /// TLS for `rediss://`.
    pub tls: Option<ClientTls>,
    /// How to look.
    pub method: Method,
    /// How long at most.
    pub duration: Duration,
    /// How many commands at most, over all nodes together; `MONITOR` only.
    pub commands_max: u64,
    /// Keys to show.
    pub keys: usize,
    /// Requests/s from which Heatsink would call a key hot.
    pub hot_threshold: f64,
    /// For connecting and for each reply.
    pub timeout: Duration,
}

impl Options {
    /// The defaults: 10 s or 100 000 commands, 20 keys, the threshold of `heatsink serve`.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            all_nodes: false,
            tls: None,
            method: Method::Auto,
            duration: Duration::from_secs(10),
            commands_max: 100_000,
            keys: 20,
            hot_threshold: 1_000.0,
            timeout: Duration::from_secs(5),
        }
    }
}

/// A node that will be looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedNode {
    /// Where it is.
    pub server: ServerUrl,
    /// Commands/s that it runs at present, as it says itself.
    pub commands_per_second: u64,
}

/// A scan that can be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the user wants.
    pub options: Options,
    /// Where to look.
    pub nodes: Vec<PlannedNode>,
    /// How: never [`Method::Auto`].
    pub method: Method,
    /// Why not `HOTKEYS`, if the choice was open.
    pub remark: Option<&'static str>,
}

impl Plan {
    /// Finds the nodes and what they can do.
    pub fn make(options: Options) -> Result<Self, ClientError> {
        let tls = options.tls.as_ref();
        let servers = nodes::primaries(&options.url, options.all_nodes, tls, options.timeout)?;
        let mut nodes = Vec::with_capacity(servers.len());
        let (mut missing, mut busy) = (false, false);
        for server in servers {
            let mut client = Client::open(&server, tls, options.timeout)?;
            let stats = client.call(&["INFO", "stats"])?;
            let commands_per_second = info_number(&stats, "instantaneous_ops_per_sec");
            if options.method != Method::Monitor {
                match hotkeys::support(&mut client)? {
                    hotkeys::Support::None => missing = true,
                    hotkeys::Support::Busy => busy = true,
                    hotkeys::Support::Ready => {}
                }
            }
            client.quit();
            nodes.push(PlannedNode { server, commands_per_second });
        }
        let (method, remark) = match (options.method, missing, busy) {
            (Method::Monitor, ..) => (Method::Monitor, None),
            (_, false, false) => (Method::Hotkeys, None),
            (Method::Auto, true, _) => (Method::Monitor, Some("the server has no HOTKEYS START")),
            (Method::Hotkeys, true, _) => {
                return Err(ClientError::Unsupported(
                    "the server has no HOTKEYS START (or this user may not use it); \
                     MONITOR can be used instead"
                        .to_owned(),
                ));
            }
            // To fall back to what costs more would be a surprise.
            (_, false, true) => {
                return Err(ClientError::Unsupported(
                    "a HOTKEYS session of somebody else is under way and is not disturbed; \
                     wait for its end, or use MONITOR"
                        .to_owned(),
                ));
            }
        };
        Ok(Self { options, nodes, method, remark })
    }

    /// Commands/s of all nodes together.
    pub fn commands_per_second(&self) -> u64 {
        self.nodes.iter().map(|node| node.commands_per_second).sum()
    }
}

/// The cost, in words.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.options.duration.as_secs_f64();
        match self.method {
            Method::Hotkeys => {
                write!(
                    f,
                    "HOTKEYS for {seconds} s on {}: the server measures CPU time and bytes of \
                     each key itself; the cost is small, and it stops by itself.",
                    words::count(self.nodes.len(), "node", "nodes")
                )?;
            }
            Method::Monitor | Method::Auto => {
                if let Some(remark) = self.remark {
                    writeln!(f, "MONITOR is used: {remark}.")?;
                }
                writeln!(
                    f,
                    "MONITOR for at most {seconds} s or {} commands, whichever comes first.",
                    words::whole(self.options.commands_max as f64)
                )?;
                write!(
                    f,
                    "While it runs, each node formats and sends a copy of every command, values \
                     included: expect a busy node to run at half its speed or less, and as much \
                     traffic to here as it receives. The limits bound how long that lasts; if \
                     this side were too slow, the node would keep the copies in its memory."
                )?;
            }
        }
        for node in &self.nodes {
            let rate = node.commands_per_second;
            write!(f, "\n  {}: {} commands/s now", node.server, words::whole(rate as f64))?;
        }
        let total = self.commands_per_second();
        if self.method == Method::Monitor && total > 0 {
            let until_count = self.options.commands_max as f64 / total as f64;
            write!(f, "\nAt this rate it ends after about {:.1} s.", until_count.min(seconds))?;
        }
        Ok(())
    }
}

/// A number of an `INFO` reply, 0 where there is none.
fn info_number(reply: &Value, field: &str) -> u64 {
    let text = String::from_utf8_lossy(reply.text().unwrap_or_default());
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    lines.next().and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
