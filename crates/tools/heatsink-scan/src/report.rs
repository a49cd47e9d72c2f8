//! What a scan found: as data, as JSON and as a table.
//!
//! Called by: the command line.
//! Invariant: no value of a key is in here, only sizes; keys stand as printable text, other
//! bytes escaped.

use std::fmt::{self, Write};

use heatsink_control::words;
use serde::Serialize;

use crate::advice::Advice;
use crate::table;
use crate::tally::Name;
pub use crate::value_size::ValueReport;

/// What ended a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The time was over.
    Duration,
    /// As many commands as allowed were seen.
    Commands,
    /// Somebody stopped it.
    Stopped,
}

/// One node of a scan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// Without credentials.
    pub address: String,
    /// Commands of clients that were seen there.
    pub commands: u64,
    /// The same a second.
    pub commands_per_second: f64,
    /// The server has confirmed that our connection is gone.
    pub ended_cleanly: bool,
}

/// What a key costs, as `HOTKEYS` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Of all CPU time, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<f64>,
    /// Bytes in and out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_bytes: Option<u64>,
    /// Of all bytes, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_share: Option<f64>,
}

/// One hot key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyReport {
    /// The key, bytes that are not printable ASCII escaped.
    pub key: String,
    /// Its database.
    pub db: u32,
    /// The node that has it.
    pub node: String,
    /// Commands that named it.
    pub requests: u64,
    /// By how much `requests` may be too low.
    pub requests_error: u64,
    /// Of all commands with keys, 0 to 1; by `HOTKEYS` of the CPU time.
    pub share: f64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// Commands that only read it.
    pub reads: u64,
    /// Commands that may write it.
    pub writes: u64,
    /// Of the writes: `INCR` and its kin.
    pub increments: u64,
    /// Of the writes: plain `SET` and its kin.
    pub sets: u64,
    /// Of the writes: those into a collection.
    pub member_writes: u64,
    /// Of the writes: scripts and functions.
    pub scripts: u64,
    /// Bytes/s of the arguments of its writes.
    pub bytes_written_per_second: f64,
    /// What it holds, if the server said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueReport>,
    /// What it costs, by `HOTKEYS` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What Heatsink would do.
    pub advice: Advice,
}

impl KeyReport {
    pub(crate) fn unmeasured(name: &Name, node: String) -> Self {
        Self {
            key: words::key_text(&name.key),
            db: name.db,
            node,
            requests: 0,
            requests_error: 0,
            share: 0.0,
            requests_per_second: 0.0,
            reads: 0,
            writes: 0,
            increments: 0,
            sets: 0,
            member_writes: 0,
            scripts: 0,
            bytes_written_per_second: 0.0,
            value: None,
            cost: None,
            advice: Advice { mitigation: None, reason: String::new() },
        }
    }
}

/// The whole result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScanReport {
    /// `monitor` or `hotkeys`.
    pub method: &'static str,
    /// Which limit it reached.
    pub ended_by: End,
    /// How long it looked.
    pub elapsed_ms: u64,
    /// Commands of clients that were seen.
    pub commands: u64,
    /// Of these, commands that name a key.
    pub commands_with_keys: u64,
    /// Commands that scripts ran; the scripts themselves are among `commands`.
    pub commands_in_scripts: u64,
    /// Lines of `MONITOR` that could not be understood.
    pub lines_unreadable: u64,
    /// Keys known by name at the end.
    pub keys_seen: u64,
    /// The most requests that a key which is not listed can have had for lack of memory.
    pub requests_error: u64,
    /// Commands on keys of more than 1 KiB, which are not named.
    pub keys_too_long: u64,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
    /// The hottest keys first.
    pub keys: Vec<KeyReport>,
}

impl ScanReport {
    pub(crate) fn of_hotkeys(ended_by: End) -> Self {
        Self {
            method: "hotkeys",
            ended_by,
            elapsed_ms: 0,
            commands: 0,
            commands_with_keys: 0,
            commands_in_scripts: 0,
            lines_unreadable: 0,
            keys_seen: 0,
            requests_error: 0,
            keys_too_long: 0,
            nodes: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// The table and a line about the scan: as wide as they want to be, or with a table that
    /// fits this many columns. Then long keys lose their middle.
    pub fn text(&self, columns: Option<u16>) -> String {
        let fitted = table::of(self, columns.map(usize::from));
        let mut text = format!("{}\n{}", fitted.text, self.summary());
        if fitted.is_shortened {
            text.push_str("\nKeys are shortened to the terminal; --json has them whole.");
        }
        text
    }

    fn summary(&self) -> String {
        let seconds = self.elapsed_ms as f64 / 1000.0;
        let nodes = words::count(self.nodes.len(), "node", "nodes");
        let mut text = if self.method == "monitor" {
            let commands = words::whole(self.commands as f64);
            let keys = words::whole(self.keys_seen as f64);
            format!("{commands} commands on {keys} keys in {seconds:.1} s on {nodes}")
        } else {
            format!("HOTKEYS over {seconds:.1} s on {nodes}")
        };
        text.push_str(match self.ended_by {
            End::Duration => "; ended by the duration",
            End::Commands => "; ended by the number of commands",
            End::Stopped => "; stopped",
        });
        if self.requests_error > 0 {
            let _ = write!(text, "; counts may be {} too low", self.requests_error);
        }
        for node in self.nodes.iter().filter(|node| !node.ended_cleanly) {
            let _ = write!(text, "; {} did not confirm the end of MONITOR", node.address);
        }
        text
    }
}

impl fmt::Display for ScanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None))
    }
}
