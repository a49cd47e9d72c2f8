//! Two builds of Heatsink side by side: what a change costs, or saves, per request.
//!
//! Called by: `main`, for `versions`.
//! Bound: four parts of at most twelve cases; about half an hour with the defaults, a minute with
//! `--quick`.
//! Invariant: both builds run at the same time before servers of their own and get the same
//! commands in turns; a ratio is taken within a round, so a busy minute of the machine meets both.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heatsink_testkit::{RedisCluster, cpu_time};

use crate::benchmark::{self, Access};
use crate::case::{self, Case, KEYS};
use crate::hot;
use crate::machine::Machine;
use crate::peer::{Backend, HeatsinkChoice, Peer};
use crate::preload;
use crate::ratios::ratios;
use crate::section::{self, Goal, Section};
use crate::split::Rig;
use crate::summary::median;

/// A change may cost this much and still count as none.
const CPU_RATIO_MAX: f64 = 1.03;
const ROUNDS: u16 = 10;
const REQUESTS: u64 = 160_000;
const ROUNDS_QUICK: u16 = 1;
const REQUESTS_QUICK: u64 = 4_000;
const WARM_UP_PART: u64 = 10;
const SPLIT_SET: &str = "versions:split";
const SPLIT_COUNTER: &str = "versions:counter";

#[derive(Args)]
pub(crate) struct VersionsArgs {
    /// The older binary
    #[arg(long, value_name = "PATH")]
    old: PathBuf,
    /// The newer binary [default: built and found beside this one]
    #[arg(long, value_name = "PATH")]
    new: Option<PathBuf>,
    /// A further argument for `heatsink serve` of both; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    heatsink_arg: Vec<String>,
    /// Rounds per case; the median of the ratios within a round counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Requests per round without pipelining; eight times as many with it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..))]
    requests: Option<u64>,
    /// One short round and no verdict, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only this part; may be repeated
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Only cases whose title contains this, in any letter case
    #[arg(long, value_name = "FILTER", default_value = "", allow_hyphen_values = true)]
    case: String,
    /// Exits with 1 if the newer one costs more than the goal in any case
    #[arg(long)]
    enforce: bool,
}

/// What can be measured by itself: the set-ups of the comparisons of these names.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Proxy,
    Hot,
    Cluster,
    Split,
}

const PARTS: [Part; 4] = [Part::Proxy, Part::Hot, Part::Cluster, Part::Split];

impl Part {
    fn title(self) -> &'static str {
        match self {
            Self::Proxy => "Before one server",
            Self::Hot => "One hot key",
            Self::Cluster => "Before a cluster of three primaries",
            Self::Split => "Split keys",
        }
    }
}

struct Effort {
    rounds: usize,
    requests: u64,
    filter: String,
    judges: bool,
}

/// The two builds, the older one first.
type Choices = [HeatsinkChoice; 2];

/// CPU seconds per million requests, a figure a round.
#[derive(Default)]
struct Costs {
    proxy: Vec<f64>,
    /// With the servers behind it.
    total: Vec<f64>,
}

/// One command that both get.
struct Load {
    title: String,
    requests: u64,
    /// What `redis-benchmark` is asked for.
    args: Vec<String>,
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: VersionsArgs) -> Result<bool, String> {
    let (rounds, requests) =
        if args.quick { (ROUNDS_QUICK, REQUESTS_QUICK) } else { (ROUNDS, REQUESTS) };
    let effort = Effort {
        rounds: usize::from(args.rounds.unwrap_or(rounds)),
        requests: args.requests.unwrap_or(requests),
        filter: args.case.to_lowercase(),
        judges: !args.quick,
    };
    let build = |program| HeatsinkChoice { program, args: args.heatsink_arg.clone() };
    let new = build(args.new).program()?;
    let choices = [build(Some(args.old)), build(Some(new))];
    let machine = Machine::describe();
    let mut sections = Vec::new();
    for part in PARTS.into_iter().filter(|part| args.part.is_empty() || args.part.contains(part)) {
        let section = match part {
            Part::Split => split(&choices, &effort)?,
            _ => cases(part, &choices, &effort)?,
        };
        sections.push(section);
    }
    let reached = section::print("Two versions side by side", &machine.to_string(), &sections);
    Ok(!args.enforce || reached)
}

/// The cases of another comparison.
fn cases(part: Part, choices: &Choices, effort: &Effort) -> Result<Section, String> {
    let cluster =
        || Backend::Cluster(Rc::new(RedisCluster::builder().replicas_per_primary(0).start()));
    let start = |choice: &HeatsinkChoice| match part {
        Part::Hot => hot::start_heatsink(choice),
        Part::Cluster => choice.start("heatsink", cluster(), Access::ServerThreaded),
        Part::Proxy | Part::Split => choice.start("heatsink", Backend::server(), Access::Server),
    };
    let peers = [start(&choices[0])?, start(&choices[1])?];
    let cases = match part {
        Part::Hot => case::of_hot(),
        Part::Cluster => case::of_clusters(),
        Part::Proxy | Part::Split => case::of_proxies(),
    };
    let cases: Vec<Case> = case::matching(cases, &effort.filter);
    for peer in &peers {
        preload::write(peer, &case::families(&cases))?;
    }
    let loads = cases.iter().map(|case| {
        let (clients, depth) = (case.clients.to_string(), case.pipeline.to_string());
        let random = case.workload.random().then(|| ["-r".to_owned(), KEYS.to_string()]);
        let args = ["-c".to_owned(), clients, "-P".to_owned(), depth]
            .into_iter()
            .chain(random.into_iter().flatten())
            .chain(case.workload.command(peers[0].target.access));
        Load { title: case.title(), requests: case.requests(effort.requests), args: args.collect() }
    });
    table(part, peers.each_ref(), loads, effort)
}

/// Commands of split keys, each build before a cluster of its own.
fn split(choices: &Choices, effort: &Effort) -> Result<Section, String> {
    let start = |choice: &HeatsinkChoice| {
        let rig = Rig::start(choice)?;
        let mut client = rig.client()?;
        for request in [["SADD", SPLIT_SET, "m"], ["INCRBY", SPLIT_COUNTER, "1"]] {
            client.try_command(&request).map_err(|error| error.to_string())?;
        }
        rig.split(SPLIT_SET)?;
        rig.split(SPLIT_COUNTER)?;
        Ok::<Rig, String>(rig)
    };
    let rigs = [start(&choices[0])?, start(&choices[1])?];
    let member = "m:__rand_int__";
    let commands: [&[&str]; 4] = [
        &["SADD", SPLIT_SET, member],
        &["SISMEMBER", SPLIT_SET, member],
        &["INCR", SPLIT_COUNTER],
        &["GET", SPLIT_COUNTER],
    ];
    let loads = [1, 16].into_iter().flat_map(|depth: u64| {
        commands.into_iter().map(move |command| {
            let pipelined = if depth > 1 { format!(", -P {depth}") } else { String::new() };
            let depth_text = depth.to_string();
            let options = ["-c", "50", "-r", "10000", "-P", &depth_text];
            Load {
                title: format!("{}, 50 clients{pipelined}", command[0]),
                requests: if depth > 1 { effort.requests * 8 } else { effort.requests },
                args: options.iter().chain(command).map(ToString::to_string).collect(),
            }
        })
    });
    let wanted = loads.filter(|load| load.title.to_lowercase().contains(&effort.filter));
    table(Part::Split, rigs.each_ref().map(Rig::peer), wanted, effort)
}

/// Measures every load, a row each.
fn table(
    part: Part,
    peers: [&Peer; 2],
    loads: impl Iterator<Item = Load>,
    effort: &Effort,
) -> Result<Section, String> {
    let mut section = Section::new(
        part.title(),
        "case",
        &["old, CPU s/M", "new", "new ÷ old", "its quartiles", "with the servers, new ÷ old"],
    );
    section.notes = vec![format!(
        "rounds: {}, requests per round: {} ({} with pipelining), both in turns; CPU s/M are \
         medians, ratios medians of those within a round; one worker",
        effort.rounds,
        effort.requests,
        8 * effort.requests
    )];
    let mut worst = 0.0_f64;
    for load in loads {
        eprintln!("versions: {}: {}", part.title(), load.title);
        let [old, new] = measure(peers, &load, effort.rounds)?;
        let (proxy, total) = (ratios(&new.proxy, &old.proxy), ratios(&new.total, &old.total));
        let middle = |figures: Vec<f64>| format!("{:.3}", median(figures).unwrap_or(f64::NAN));
        section.row(
            load.title,
            [
                middle(old.proxy),
                middle(new.proxy),
                format!("{:.3}", proxy.median),
                format!("{:.3} to {:.3}", proxy.lower, proxy.upper),
                format!("{:.3}", total.median),
            ],
        );
        worst = worst.max(proxy.median);
    }
    section.goals.push(Goal {
        what: part.title(),
        limit: format!("CPU of the proxy at most {CPU_RATIO_MAX} in every case"),
        figure: format!("{worst:.3}"),
        reached: effort.judges.then_some(worst <= CPU_RATIO_MAX),
    });
    Ok(section)
}

fn measure(peers: [&Peer; 2], load: &Load, rounds: usize) -> Result<[Costs; 2], String> {
    let send = |peer: &Peer, requests| benchmark::send(peer.target, requests, load.args.clone());
    for peer in peers {
        send(peer, (load.requests / WARM_UP_PART).max(1_000))?;
    }
    let mut costs = [Costs::default(), Costs::default()];
    for round in 0..rounds {
        for turn in 0..2 {
            let index = (round + turn) % 2;
            let peer = peers[index];
            let before = [cpu_seconds(peer.pids())?, cpu_seconds(peer.redis_pids())?];
            send(peer, load.requests)?;
            let proxy = cpu_seconds(peer.pids())? - before[0];
            let servers = cpu_seconds(peer.redis_pids())? - before[1];
            let per_million = |seconds: f64| seconds * 1e6 / load.requests as f64;
            costs[index].proxy.push(per_million(proxy));
            costs[index].total.push(per_million(proxy + servers));
        }
    }
    Ok(costs)
}

fn cpu_seconds(pids: Vec<u32>) -> Result<f64, String> {
    let sum = pids.into_iter().map(cpu_time).sum::<io::Result<Duration>>();
    sum.map(|time| time.as_secs_f64()).map_err(|error| error.to_string())
}
