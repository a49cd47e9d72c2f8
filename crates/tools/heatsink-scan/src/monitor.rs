//! `MONITOR` on one node, until a limit is reached.
//!
//! Called by: [`crate::scan`], on one thread for each node.
//! Bound: the duration, and the commands of all nodes together; memory as in [`crate::tally`].
//! Invariant: whatever happens, the connection is ended before this returns: by `QUIT`, or by
//! the drop that closes it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heatsink_resp::command::{Command, CommandTable};

use crate::monitor_line::{MonitorLine, NotAMonitorLine, Source};
use crate::tally::Tally;
use heatsink_upstream::client::{Client, ClientError, Line};

/// How often a stop from outside is looked for on a quiet node.
const LOOK: Duration = Duration::from_millis(50);

/// Commands between two looks at the clock.
const CLOCK_EVERY: u64 = 64;

/// What all nodes of a scan share.
#[derive(Debug)]
pub(crate) struct Limits<'a> {
    /// When it ends.
    pub(crate) deadline: Instant,
    /// Commands that may be looked at, on all nodes together.
    pub(crate) commands_max: u64,
    /// Commands looked at so far.
    pub(crate) commands: &'a AtomicU64,
    /// Somebody wants it to end.
    pub(crate) stop: &'a AtomicBool,
    /// A node has failed, so the others need not go on.
    pub(crate) failed: &'a AtomicBool,
}

impl Limits<'_> {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.deadline
            || self.stop.load(Ordering::Relaxed)
            || self.failed.load(Ordering::Relaxed)
    }
}

/// What a node was seen doing.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) tally: Tally,
    /// Commands of clients.
    pub(crate) commands: u64,
    /// Of these, commands that name a key.
    pub(crate) keyed: u64,
    /// Commands that scripts ran: not requests of their own, and counted nowhere else.
    pub(crate) in_scripts: u64,
    /// Lines that could not be read.
    pub(crate) unreadable: u64,
    pub(crate) elapsed: Duration,
    /// The server has confirmed the end.
    pub(crate) ended_cleanly: bool,
}

/// Watches a node that `client` is connected to.
pub(crate) fn watch(
    mut client: Client,
    table: &CommandTable,
    limits: &Limits<'_>,
) -> Result<Seen, ClientError> {
    let mut seen = Seen::default();
    let started = Instant::now();
    let result = match client.call(&["MONITOR"]) {
        Ok(_) => listen(&mut client, table, limits, &mut seen),
        Err(error) => Err(error),
    };
    if result.is_err() {
        limits.failed.store(true, Ordering::Relaxed);
    }
    seen.elapsed = started.elapsed();
    seen.ended_cleanly = client.quit();
    result.map(|()| seen)
}

fn listen(
    client: &mut Client,
    table: &CommandTable,
    limits: &Limits<'_>,
    seen: &mut Seen,
) -> Result<(), ClientError> {
    let mut line = MonitorLine::default();
    let mut frames = 0_u64;
    loop {
        let now = Instant::now();
        if limits.is_over(now) {
            return Ok(());
        }
        let until = limits.deadline.min(now + LOOK);
        // A busy node is not asked the time for every command.
        while let Some(received) = client.line(until)? {
            if limits.commands.fetch_add(1, Ordering::Relaxed) >= limits.commands_max {
                limits.commands.fetch_sub(1, Ordering::Relaxed);
                return Ok(());
            }
            note(&received, table, &mut line, seen);
            frames += 1;
            if frames.is_multiple_of(CLOCK_EVERY) {
                break;
            }
        }
    }
}

fn note(received: &Line<'_>, table: &CommandTable, line: &mut MonitorLine, seen: &mut Seen) {
    let read = match received {
        Line::Whole([b'+', text @ ..]) => line.read(text),
        // A big value: the name and the key stand before it.
        Line::Cut { head, line_bytes } => {
            line.read_head_of(head.get(1..).unwrap_or_default(), *line_bytes)
        }
        Line::Whole(_) => Err(NotAMonitorLine),
    };
    if read.is_err() {
        seen.unreadable += 1;
        return;
    }
    if line.source() == Source::Script {
        seen.in_scripts += 1;
        return;
    }
    seen.commands += 1;
    let count = line.arg_count();
    let second = (count > 1).then(|| line.arg(1));
    let Some(command) = table.lookup(line.arg(0), second) else { return };
    if is_of_channels(command) {
        return;
    }
    let (mut keyed, bytes) = (false, line.bytes() as u64);
    command.for_each_key(
        count,
        |at| line.arg(at),
        |at| {
            keyed = true;
            seen.tally.record(line.db(), line.arg(at), command, bytes);
        },
    );
    seen.keyed += u64::from(keyed);
}

/// Channels of sharded pub/sub stand where keys stand, but hold nothing.
fn is_of_channels(command: &Command) -> bool {
    matches!(&*command.name, "spublish" | "ssubscribe" | "sunsubscribe")
}
