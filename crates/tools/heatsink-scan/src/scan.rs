//! Runs a plan: all nodes at once, then the sizes of the keys that are shown.
//!
//! Called by: the command line.
//! Bound: the limits of the plan; one thread for each node.
//! Invariant: connections are ended before this returns, even when one of them failed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_control::value::ValueKind;
use heatsink_control::words;
use heatsink_resp::command::CommandTable;

use crate::advice::{self, Facts};
use crate::hotkeys::{self, Session};
use crate::monitor::{self, Limits, Seen};
use crate::plan::{Method, Plan};
use crate::report::{Cost, End, KeyReport, NodeReport, ScanReport};
use crate::tally::{self, Counts, Name};
use crate::value_size::{self, ValueReport};
use heatsink_upstream::client::{Client, ClientError};

/// Time between two calls of the progress callback.
const TICK: Duration = Duration::from_millis(100);

/// How far a scan is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since it started.
    pub elapsed: Duration,
    /// Commands looked at, on all nodes.
    pub commands: u64,
}

/// Runs a plan until its limits or `stop`.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ScanReport, ClientError> {
    match plan.method {
        Method::Hotkeys => run_hotkeys(plan, stop, progress),
        Method::Monitor | Method::Auto => run_monitor(plan, stop, progress),
    }
}

fn open(plan: &Plan, node: usize) -> Result<Client, ClientError> {
    let options = &plan.options;
    Client::open(&plan.nodes[node].server, options.tls.as_ref(), options.timeout)
}

fn run_monitor(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ScanReport, ClientError> {
    let mut table = CommandTable::default();
    let clients = connect(plan, &mut table)?;
    let (commands, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let limits = Limits {
        deadline: started + plan.options.duration,
        commands_max: plan.options.commands_max,
        commands: &commands,
        stop,
        failed: &failed,
    };
    let watch = |client| monitor::watch(client, &table, &limits);
    let now =
        || Progress { elapsed: started.elapsed(), commands: commands.load(Ordering::Relaxed) };
    let seen = on_all_nodes(clients, watch, || progress(now()))?;
    let end = if commands.load(Ordering::Relaxed) >= plan.options.commands_max {
        End::Commands
    } else if stop.load(Ordering::Relaxed) {
        End::Stopped
    } else {
        End::Duration
    };
    Ok(report_monitor(plan, &seen, end))
}

/// A connection to each node; what the first knows of commands completes the table, so that
/// the keys of module commands are found, too.
fn connect(plan: &Plan, table: &mut CommandTable) -> Result<Vec<Client>, ClientError> {
    let mut clients = Vec::with_capacity(plan.nodes.len());
    for node in 0..plan.nodes.len() {
        let mut client = open(plan, node)?;
        if node == 0 {
            table.learn(&client.ask(&["COMMAND"])?);
        }
        clients.push(client);
    }
    Ok(clients)
}

/// Does the same on all nodes at once, with `tick` in between.
fn on_all_nodes<T: Send>(
    clients: Vec<Client>,
    work: impl Fn(Client) -> Result<T, ClientError> + Sync,
    mut tick: impl FnMut(),
) -> Result<Vec<T>, ClientError> {
    let work = &work;
    thread::scope(|scope| {
        let (done, running) = mpsc::channel::<()>();
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| {
                // Its drop, at the thread's end, is what is waited for below.
                let done = done.clone();
                scope.spawn(move || {
                    let result = work(client);
                    drop(done);
                    result
                })
            })
            .collect();
        drop(done);
        while running.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            tick();
        }
        let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
        results.map(|result| result.expect("a scan does not panic")).collect()
    })
}

fn report_monitor(plan: &Plan, seen: &[Seen], end: End) -> ScanReport {
    let elapsed = seen.iter().map(|seen| seen.elapsed).max().unwrap_or_default();
    let seconds = elapsed.as_secs_f64().max(0.001);
    let keyed: u64 = seen.iter().map(|seen| seen.keyed).sum();
    let mut nodes = Vec::with_capacity(seen.len());
    let mut hottest = Vec::new();
    let mut homes = Vec::new();
    for (at, (seen, node)) in seen.iter().zip(&plan.nodes).enumerate() {
        nodes.push(NodeReport {
            address: node.server.to_string(),
            commands: seen.commands,
            commands_per_second: seen.commands as f64 / seen.elapsed.as_secs_f64().max(0.001),
            ended_cleanly: seen.ended_cleanly,
        });
        let top = seen.tally.top(plan.options.keys);
        homes.extend(top.iter().map(|(name, _)| (name.clone(), at)));
        hottest.extend(top);
    }
    let mut top = tally::merge(hottest);
    top.truncate(plan.options.keys);
    let values = measure(plan, &top, &homes);
    let keys = top.into_iter().zip(values).map(|((name, counts), value)| {
        let home = home_of(&homes, &name);
        let node = plan.nodes[home].server.to_string();
        describe(plan, &name, &counts, value, node, seconds, keyed)
    });
    ScanReport {
        method: "monitor",
        ended_by: end,
        elapsed_ms: elapsed.as_millis() as u64,
        commands: seen.iter().map(|seen| seen.commands).sum(),
        commands_with_keys: keyed,
        commands_in_scripts: seen.iter().map(|seen| seen.in_scripts).sum(),
        lines_unreadable: seen.iter().map(|seen| seen.unreadable).sum(),
        keys_seen: seen.iter().map(|seen| seen.tally.len() as u64).sum(),
        requests_error: seen.iter().map(|seen| seen.tally.error()).max().unwrap_or_default(),
        keys_too_long: seen.iter().map(|seen| seen.tally.too_long()).sum(),
        nodes,
        keys: keys.collect(),
    }
}

fn home_of(homes: &[(Name, usize)], name: &Name) -> usize {
    homes.iter().find(|(home, _)| home == name).map_or(0, |(_, node)| *node)
}

/// Asks each key's node for its size. A node that refuses or is gone leaves blanks.
fn measure(
    plan: &Plan,
    top: &[(Name, Counts)],
    homes: &[(Name, usize)],
) -> Vec<Option<ValueReport>> {
    let mut clients: Vec<Option<Client>> =
        (0..plan.nodes.len()).map(|node| open(plan, node).ok()).collect();
    let mut dbs: Vec<u32> = plan.nodes.iter().map(|node| node.server.db).collect();
    let mut values = Vec::with_capacity(top.len());
    for (name, _) in top {
        let home = home_of(homes, name);
        let value = clients[home].as_mut().and_then(|client| {
            if dbs[home] != name.db {
                client.select(name.db).ok()?;
                dbs[home] = name.db;
            }
            value_size::measure(client, &name.key).ok()?
        });
        values.push(value);
    }
    for client in clients.into_iter().flatten() {
        client.quit();
    }
    values
}

fn describe(
    plan: &Plan,
    name: &Name,
    counts: &Counts,
    value: Option<ValueReport>,
    node: String,
    seconds: f64,
    keyed: u64,
) -> KeyReport {
    let writes = counts.writes();
    let part = |part: u64| if writes == 0 { 0.0 } else { part as f64 / writes as f64 };
    let facts = Facts {
        reads_per_second: counts.reads as f64 / seconds,
        writes_per_second: writes as f64 / seconds,
        increment_share: part(counts.increments),
        set_share: part(counts.sets),
        script_share: part(counts.scripts),
        kind: ValueKind::from_byte(counts.kind as u8),
        value: value.as_ref(),
    };
    let advice = advice::of_requests(&facts, plan.options.hot_threshold);
    let requests = counts.requests();
    KeyReport {
        key: words::key_text(&name.key),
        db: name.db,
        node,
        requests,
        requests_error: counts.error,
        share: requests as f64 / keyed.max(1) as f64,
        requests_per_second: requests as f64 / seconds,
        reads: counts.reads,
        writes,
        increments: counts.increments,
        sets: counts.sets,
        member_writes: counts.member_writes,
        scripts: counts.scripts,
        bytes_written_per_second: counts.bytes_written as f64 / seconds,
        value,
        cost: None,
        advice,
    }
}

fn run_hotkeys(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ScanReport, ClientError> {
    let mut clients = Vec::with_capacity(plan.nodes.len());
    for node in 0..plan.nodes.len() {
        clients.push(open(plan, node)?);
    }
    let started = Instant::now();
    let work = |mut client: Client| {
        let session = hotkeys::run(&mut client, plan.options.keys, plan.options.duration, stop);
        let ended_cleanly = client.quit();
        session.map(|session| (session, ended_cleanly))
    };
    let now = || Progress { elapsed: started.elapsed(), commands: 0 };
    let sessions = on_all_nodes(clients, work, || progress(now()))?;
    Ok(report_hotkeys(plan, &sessions, stop.load(Ordering::Relaxed)))
}

fn report_hotkeys(plan: &Plan, sessions: &[(Session, bool)], stopped: bool) -> ScanReport {
    let cpu_us: u64 = sessions.iter().map(|(session, _)| session.cpu_us).sum();
    let net_bytes: u64 = sessions.iter().map(|(session, _)| session.net_bytes).sum();
    let share = |part: Option<u64>, whole: u64| part.map(|part| part as f64 / whole.max(1) as f64);
    let mut report = ScanReport::of_hotkeys(if stopped { End::Stopped } else { End::Duration });
    let mut homes = Vec::new();
    for (at, ((session, ended_cleanly), node)) in sessions.iter().zip(&plan.nodes).enumerate() {
        let address = node.server.to_string();
        report.elapsed_ms = report.elapsed_ms.max(session.duration_ms);
        for hot in &session.keys {
            let (cpu_share, net_share) =
                (share(hot.cpu_us, cpu_us), share(hot.net_bytes, net_bytes));
            let cost = Cost { cpu_us: hot.cpu_us, cpu_share, net_bytes: hot.net_bytes, net_share };
            let name = Name { db: node.server.db, key: hot.key.clone() };
            homes.push((name.clone(), at));
            let key = KeyReport {
                share: cpu_share.or(net_share).unwrap_or_default(),
                cost: Some(cost),
                advice: advice::of_cost(cpu_share, net_share),
                ..KeyReport::unmeasured(&name, address.clone())
            };
            report.keys.push(key);
        }
        let node = NodeReport {
            address,
            commands: 0,
            commands_per_second: node.commands_per_second as f64,
            ended_cleanly: *ended_cleanly,
        };
        report.nodes.push(node);
    }
    let top: Vec<(Name, Counts)> =
        homes.iter().map(|(name, _)| (name.clone(), Counts::default())).collect();
    for (key, value) in report.keys.iter_mut().zip(measure(plan, &top, &homes)) {
        key.value = value;
    }
    report.keys.sort_by(|a, b| b.share.total_cmp(&a.share));
    report.keys.truncate(plan.options.keys);
    report
}
