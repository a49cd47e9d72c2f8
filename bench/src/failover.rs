//! What a failover takes back: acknowledged writes that the new primary does not have.
//!
//! Called by: `main`, for `failover`.
//! Bound: four ways to write and three replicas, each with a cluster of its own a round; about ten
//! minutes with the defaults, half a minute with `--quick`.
//! Invariant: each member is sent once, so one that was acknowledged and is not there in the end was
//! lost, and one that is there was sent. No figure is an estimate.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use heatsink_testkit::{RawClient, RedisCluster, Reply, key_slot, poll_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::HeatsinkArgs;
use crate::machine::Machine;
use crate::peer::HeatsinkChoice;
use crate::section::{self, Goal, Section};
use crate::split::Rig;
use crate::spread::Spread;

const ROUNDS: u16 = 10;
const LAGS_MS: [u64; 3] = [0, 100, 1_000];
const WRITERS: usize = 8;
/// Members that every node has before anything fails.
const OLD_MEMBERS: usize = 1_000;
/// Load before the replica is stopped, and behind the failover.
const LOAD: Duration = Duration::from_millis(500);
const FACTOR: u32 = 4;
/// Longer than the longest time without a replica, so that the others do not give it up.
const NODE_TIMEOUT: Duration = Duration::from_millis(2_500);
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(30);
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two attempts while nobody takes the write.
const AGAIN: Duration = Duration::from_millis(2);

#[derive(Args)]
pub(crate) struct FailoverArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Failovers for each way and lag
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// For how long the replica has been cut off when its primary is killed; may be repeated
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=2_000))]
    lag_ms: Vec<u64>,
    /// One failover for each way, to see that it works
    #[arg(long)]
    quick: bool,
    /// Exits with 1 if a goal is missed
    #[arg(long)]
    enforce: bool,
}

/// How the members are written, and whose node dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Straight,
    Whole,
    SplitShard,
    SplitKey,
}

const WAYS: [Way; 4] = [Way::Straight, Way::Whole, Way::SplitShard, Way::SplitKey];

impl Way {
    fn title(self) -> &'static str {
        match self {
            Self::Straight => "straight to the cluster",
            Self::Whole => "through Heatsink",
            Self::SplitShard => "split in 4, the node of a shard dies",
            Self::SplitKey => "split in 4, the node of the key dies",
        }
    }

    fn is_split(self) -> bool {
        matches!(self, Self::SplitShard | Self::SplitKey)
    }
}

/// What one writer sent, and what became of it.
#[derive(Default)]
struct Written {
    sent: usize,
    /// Members that were acknowledged, and when.
    acknowledged: Vec<(String, Instant)>,
    longest_gap: Duration,
}

/// What one failover has done.
struct Loss {
    acknowledged: usize,
    lost: usize,
    /// How long before the end of the primary the oldest of them was acknowledged.
    oldest: Option<Duration>,
    longest_gap: Duration,
    old_missing: usize,
    invented: usize,
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: FailoverArgs) -> Result<bool, String> {
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { ROUNDS });
    let lags = match (args.lag_ms.as_slice(), args.quick) {
        ([], true) => vec![100],
        ([], false) => LAGS_MS.to_vec(),
        (given, _) => given.to_vec(),
    };
    let choice = crate::choice(args.heatsink);
    let choice = HeatsinkChoice { program: Some(choice.program()?), ..choice };
    let mut section = Section::new(
        "What a failover takes back",
        "written",
        &[
            "replica cut off for, ms",
            "acknowledged",
            "lost of them",
            "a failover: p50",
            "most",
            "oldest lost, ms before",
            "longest wait, p50 ms",
        ],
    );
    section.notes = vec![
        format!(
            "three primaries with a replica each; {WRITERS} clients add members of their own to one \
             set, one at a time; {rounds} failovers a row, each on a cluster of its own"
        ),
        "the primary is killed by SIGKILL while they write, and the cluster promotes its replica; \
         0 ms: it was connected to the end; else it got nothing for so long"
            .to_owned(),
        "lost: acknowledged, and not in the set in the end; for a split key also after it was made \
         whole"
            .to_owned(),
    ];
    let (mut old_missing, mut invented) = (0, 0);
    for way in WAYS {
        for lag_ms in &lags {
            let mut losses = Vec::new();
            for round in 1..=rounds {
                eprintln!("failover: {}, {lag_ms} ms, {round} of {rounds}", way.title());
                losses.push(fail_over(way, Duration::from_millis(*lag_ms), &choice)?);
            }
            section.row(way.title(), row(*lag_ms, &losses));
            old_missing += losses.iter().map(|loss| loss.old_missing).sum::<usize>();
            invented += losses.iter().map(|loss| loss.invented).sum::<usize>();
        }
    }
    section.goals = vec![
        Goal::of_fact(
            "members that the replica had before it was cut off, and that are gone",
            "0",
            old_missing.to_string(),
            old_missing == 0,
        ),
        Goal::of_fact("members that nobody sent", "0", invented.to_string(), invented == 0),
    ];
    let reached = section::print("Failovers", &Machine::describe().to_string(), &[section]);
    Ok(!args.enforce || reached)
}

fn row(lag_ms: u64, losses: &[Loss]) -> Vec<String> {
    let sum = |figure: fn(&Loss) -> usize| losses.iter().map(figure).sum::<usize>();
    let lost = Spread::of(losses.iter().map(|loss| loss.lost as f64).collect());
    let oldest = losses.iter().filter_map(|loss| loss.oldest).max();
    let waits = losses.iter().map(|loss| loss.longest_gap.as_secs_f64() * 1e3).collect();
    vec![
        lag_ms.to_string(),
        sum(|loss| loss.acknowledged).to_string(),
        sum(|loss| loss.lost).to_string(),
        format!("{:.0}", lost.p50),
        format!("{:.0}", lost.most),
        oldest.map_or_else(|| "none".to_owned(), |oldest| oldest.as_millis().to_string()),
        format!("{:.0}", Spread::of(waits).p50),
    ]
}

/// One failover under load.
fn fail_over(way: Way, lag: Duration, choice: &HeatsinkChoice) -> Result<Loss, String> {
    let settings = RedisCluster::builder().node_timeout(NODE_TIMEOUT);
    let cluster = Rc::new(settings.line("cluster-replica-validity-factor 0").start());
    let primaries = cluster.primaries();
    let key = cluster.key_on(primaries[0], "failover");
    let rig = match way {
        Way::Straight => None,
        _ => Some(Rig::before(choice, Rc::clone(&cluster))?),
    };
    let victim = primaries[usize::from(way == Way::SplitShard)];
    let heir = cluster.replicas_of(victim)[0];
    let own_node = cluster.owner_of(key_slot(&key));
    let addr_of = |node: usize| cluster.node(node).addr();
    let addr = rig.as_ref().map_or_else(|| addr_of(own_node), |rig| rig.target().addr);
    // Whoever has no proxy goes to the heir by itself.
    let next_addr = rig.as_ref().map_or_else(|| addr_of(heir), |rig| rig.target().addr);
    let old: Vec<String> = (0..OLD_MEMBERS).map(|number| format!("old:{number}")).collect();
    let mut add = vec!["SADD", key.as_str()];
    add.extend(old.iter().map(String::as_str));
    ask(addr, &add)?;
    if let Some(rig) = rig.as_ref().filter(|_| way.is_split()) {
        rig.split_in(&key, FACTOR)?;
    }
    wait_until_replicated(&cluster, victim, heir)?;

    let stop = AtomicBool::new(false);
    let (written, killed_at) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (key, stop) = (&key, &stop);
                scope.spawn(move || write(number, [addr, next_addr], key, stop))
            })
            .collect();
        let killed_at = take_over(&cluster, victim, heir, lag);
        stop.store(true, Ordering::Release);
        let written: Vec<Written> =
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        Ok::<_, String>((written, killed_at?))
    })?;

    let mut members = members(next_addr, &key)?;
    if let Some(rig) = rig.as_ref().filter(|_| way.is_split()) {
        rig.make_whole(&key)?;
        let whole = self::members(next_addr, &key)?;
        // What is there only once is counted as lost, or as invented.
        if whole != members {
            let differ = whole.symmetric_difference(&members).count();
            return Err(format!("{key}: {differ} members differ once it is whole"));
        }
        members = whole;
    }
    Ok(compare(&old, &written, &members, killed_at))
}

/// Cuts the replica off, kills its primary, and lets the cluster promote the replica.
fn take_over(
    cluster: &RedisCluster,
    victim: usize,
    heir: usize,
    lag: Duration,
) -> Result<Instant, String> {
    thread::sleep(LOAD);
    if !lag.is_zero() {
        signal(cluster, heir, Signal::STOP)?;
        // Else it would read what has come meanwhile when it goes on.
        ask(cluster.node(victim).addr(), &["CLIENT", "KILL", "TYPE", "replica"])?;
        thread::sleep(lag);
    }
    signal(cluster, victim, Signal::KILL)?;
    let killed_at = Instant::now();
    if !lag.is_zero() {
        signal(cluster, heir, Signal::CONT)?;
    }
    let addr = cluster.node(heir).addr();
    let serves = || {
        let is_primary = ask(addr, &["ROLE"]).is_ok_and(|role| role.items()[0].text() == "master");
        let state = ask(addr, &["CLUSTER", "INFO"]);
        is_primary && state.is_ok_and(|state| state.text().contains("cluster_state:ok"))
    };
    poll_until(FAILOVER_TIMEOUT, || serves().then_some(()))
        .ok_or_else(|| format!("no failover within {FAILOVER_TIMEOUT:?}"))?;
    thread::sleep(LOAD);
    Ok(killed_at)
}

fn signal(cluster: &RedisCluster, node: usize, signal: Signal) -> Result<(), String> {
    let pid = Pid::from_raw(cluster.node(node).pid().cast_signed()).ok_or("no process")?;
    kill_process(pid, signal).map_err(|error| format!("node {node}: {error}"))
}

fn wait_until_replicated(
    cluster: &RedisCluster,
    primary: usize,
    replica: usize,
) -> Result<(), String> {
    let is_there = || {
        let offset = cluster.info_u64(primary, "master_repl_offset");
        (cluster.info_u64(replica, "slave_repl_offset") >= offset).then_some(())
    };
    poll_until(FAILOVER_TIMEOUT, is_there).ok_or_else(|| "the replica does not follow".to_owned())
}

/// Adds members until told to stop; goes on at the other address if the first is gone.
fn write(number: usize, addrs: [SocketAddr; 2], key: &str, stop: &AtomicBool) -> Written {
    let mut written = Written::default();
    let mut at = 0;
    let mut client = connect(addrs[at]).ok();
    let mut last = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let member = format!("{number}:{}", written.sent);
        written.sent += 1;
        let reply = client.as_mut().map(|client| client.try_command(&["SADD", key, &member]));
        match reply {
            Some(Ok(Reply::Integer(1))) => {
                let now = Instant::now();
                written.longest_gap = written.longest_gap.max(now - last);
                last = now;
                written.acknowledged.push((member, now));
            }
            Some(Ok(_)) => thread::sleep(AGAIN),
            Some(Err(_)) | None => {
                at = 1;
                client = connect(addrs[at]).ok();
                thread::sleep(AGAIN);
            }
        }
    }
    written
}

fn compare(
    old: &[String],
    written: &[Written],
    members: &HashSet<String>,
    killed_at: Instant,
) -> Loss {
    let lost: Vec<&(String, Instant)> = written
        .iter()
        .flat_map(|written| &written.acknowledged)
        .filter(|(member, _)| !members.contains(member))
        .collect();
    let was_sent = |member: &str| {
        member.split_once(':').is_some_and(|(writer, number)| {
            let (writer, number) = (writer.parse::<usize>(), number.parse::<usize>());
            let sent = writer.ok().and_then(|writer| written.get(writer));
            sent.is_some_and(|written| number.is_ok_and(|number| number < written.sent))
        })
    };
    let old: HashSet<&str> = old.iter().map(String::as_str).collect();
    let before = |at: &Instant| killed_at.saturating_duration_since(*at);
    Loss {
        acknowledged: written.iter().map(|written| written.acknowledged.len()).sum(),
        lost: lost.len(),
        oldest: lost.iter().map(|(_, at)| before(at)).max(),
        longest_gap: written.iter().map(|written| written.longest_gap).max().unwrap_or_default(),
        old_missing: old.iter().filter(|member| !members.contains(**member)).count(),
        invented: members
            .iter()
            .filter(|member| !old.contains(member.as_str()) && !was_sent(member))
            .count(),
    }
}

/// All members, once they can be read.
fn members(addr: SocketAddr, key: &str) -> Result<HashSet<String>, String> {
    let mut why = String::new();
    let read = poll_until(FAILOVER_TIMEOUT, || match ask(addr, &["SMEMBERS", key]) {
        Ok(reply) => Some(reply.items().iter().map(Reply::text).collect()),
        Err(error) => {
            why = error;
            None
        }
    });
    read.ok_or(why)
}

fn connect(addr: SocketAddr) -> io::Result<RawClient> {
    let mut client = RawClient::try_connect(addr)?;
    client.set_timeout(REPLY_TIMEOUT);
    Ok(client)
}

fn ask(addr: SocketAddr, args: &[&str]) -> Result<Reply, String> {
    let reply = connect(addr).and_then(|mut client| client.try_command(args));
    match reply {
        Ok(Reply::Error(error)) => Err(format!("{}: {error}", args[0])),
        reply => reply.map_err(|error| format!("{addr}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_and_what_is_invented_is_told_apart() {
        let killed_at = Instant::now();
        let ms = |ms| killed_at.checked_sub(Duration::from_millis(ms)).expect("not so long ago");
        let acknowledged =
            vec![("0:0".to_owned(), ms(30)), ("0:1".to_owned(), ms(20)), ("0:2".to_owned(), ms(5))];
        let written = Written { sent: 4, acknowledged, longest_gap: Duration::ZERO };
        let old = ["old:0".to_owned(), "old:1".to_owned()];
        // The last one was sent, and not acknowledged.
        let there = ["0:0", "0:3", "0:4", "1:0", "old:0", "old:2"];
        let members = there.iter().map(ToString::to_string).collect();
        let loss = compare(&old, &[written], &members, killed_at);
        assert_eq!((loss.acknowledged, loss.lost), (3, 2));
        assert_eq!(loss.oldest, Some(Duration::from_millis(20)));
        assert_eq!((loss.old_missing, loss.invented), (1, 3));
    }
}
