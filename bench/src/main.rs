//! Heatsink beside its peers on this machine: throughput, latency and CPU per request.
//!
//! Called by: `cargo run --release -p heatsink-bench -- proxy` (or `hot`, `cold`,
//! `viral`, `cache`, `cluster`, `split`, `rates`, `harm`, `versions`, `failover`, `idle`, `detect`, `fleet`).
//! Bound: about eight minutes with the defaults, under 20 s with `--quick`.
//! Invariant: peers are measured in the same run, in turns, and compared as ratios; a figure
//! of one peer alone says more about the machine and the hour than about the peer.

mod admin;
mod benchmark;
mod cache;
mod case;
mod cluster;
mod cold;
mod comparison;
mod detect;
mod failover;
mod fleet;
mod flood;
mod harm;
mod hot;
mod idle;
mod limits;
mod machine;
mod paced;
mod pairs;
mod peer;
mod preload;
mod proxy;
mod rates;
mod ratios;
mod report;
mod rounds;
mod section;
mod split;
mod spread;
mod summary;
mod upstream_commands;
mod verdict;
mod versions;
mod viral;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::cache::CacheArgs;
use crate::cold::ColdArgs;
use crate::comparison::Comparison;
use crate::detect::DetectArgs;
use crate::failover::FailoverArgs;
use crate::fleet::FleetArgs;
use crate::harm::HarmArgs;
use crate::machine::Machine;
use crate::peer::{ExtraPeer, HeatsinkChoice};
use crate::rates::RatesArgs;
use crate::rounds::Plan;
use crate::split::SplitArgs;
use crate::verdict::Verdict;
use crate::versions::VersionsArgs;
use crate::viral::ViralArgs;

const REQUESTS: u64 = 160_000;
const REQUESTS_QUICK: u64 = 4_000;
const ROUNDS: usize = 5;

#[derive(Parser)]
#[command(name = "heatsink-bench", about = "Heatsink beside its peers", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Throughput, latency and CPU of plain Redis, twemproxy and Heatsink in turns
    Proxy(ComparisonArgs),
    /// As `proxy`, with one key that is hot
    Hot(ComparisonArgs),
    /// What reaches Redis of keys that become hot by themselves
    Viral(ViralArgs),
    /// What mitigations cost keys that are not hot
    Cold(ColdArgs),
    /// As `proxy`, of a cluster without a proxy, of Heatsink on it, and of Heatsink on one server
    Cluster(ComparisonArgs),
    /// Split keys on a cluster: who has the work, what it costs, how long writers wait
    Split(SplitArgs),
    /// CPU per request at the same rate: a cluster beside one server, a split key beside whole ones
    Rates(RatesArgs),
    /// A hot key that is treated beside one that is left alone, shape by shape of traffic
    Harm(HarmArgs),
    /// CPU per request of two builds of Heatsink, case by case
    Versions(VersionsArgs),
    /// Acknowledged writes that a failover takes back, of whole keys and split ones
    Failover(FailoverArgs),
    /// A hit of the local cache alone, beside other caches
    Cache(CacheArgs),
    /// Memory of idle connections
    Idle(IdleArgs),
    /// Cost, memory, accuracy and delay of the detector, beside other ways to count
    Detect(DetectArgs),
    /// Several processes as one fleet: delays, what is found, what it costs
    Fleet(FleetArgs),
}

#[derive(Args)]
struct HeatsinkArgs {
    /// The heatsink binary to measure [default: built and found beside this one]
    #[arg(long, value_name = "PATH")]
    heatsink: Option<PathBuf>,
    /// A further argument for `heatsink serve`; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    heatsink_arg: Vec<String>,
}

#[derive(Args)]
struct ComparisonArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// Requests per round without pipelining; eight times as many with it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..))]
    requests: Option<u64>,
    /// Rounds per case; the median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// One short round of everything, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only cases whose title contains this, in any letter case
    #[arg(long, value_name = "FILTER", default_value = "", allow_hyphen_values = true)]
    case: String,
    /// A further peer that runs already: name=HOST:PORT:PID; may be repeated
    #[arg(long, value_name = "PEER")]
    peer: Vec<ExtraPeer>,
    /// Writes every figure of every round to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exits with 1 unless every goal is reached
    #[arg(long)]
    enforce: bool,
}

#[derive(Args)]
struct IdleArgs {
    #[command(flatten)]
    heatsink: HeatsinkArgs,
    /// How many connections to hold open
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Proxy(args) => compare(&proxy::COMPARISON, args),
        Command::Hot(args) => compare(&hot::COMPARISON, args),
        Command::Viral(args) => viral::run(args),
        Command::Cold(args) => cold::run(args),
        Command::Cluster(args) => compare(&cluster::COMPARISON, args),
        Command::Split(args) => split::run(args),
        Command::Rates(args) => rates::run(args),
        Command::Harm(args) => harm::run(args),
        Command::Versions(args) => versions::run(args),
        Command::Failover(args) => failover::run(args),
        Command::Cache(args) => cache::run(&args),
        Command::Idle(args) => idle(args),
        Command::Detect(args) => detect::run(&args),
        Command::Fleet(args) => fleet::run(args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("heatsink-bench: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare(comparison: &Comparison, args: ComparisonArgs) -> Result<bool, String> {
    let (requests, rounds) = if args.quick { (REQUESTS_QUICK, 1) } else { (REQUESTS, ROUNDS) };
    let plan = Plan {
        cases: case::matching((comparison.cases)(), &args.case),
        requests: args.requests.unwrap_or(requests),
        rounds: args.rounds.map_or(rounds, usize::from),
        counts_upstream: comparison.counts_upstream,
    };
    if plan.cases.is_empty() {
        return Err(format!("no case matches {:?}", args.case));
    }
    let machine = Machine::describe();
    let peers = (comparison.start)(&choice(args.heatsink), args.peer)?;
    let samples = rounds::run(&plan, &peers, |progress| eprintln!("{progress}"))?;
    let summaries = summary::of(&plan.cases, &samples);
    let verdict = Verdict::of(comparison, &summaries);
    print!("{}", report::markdown(comparison, &machine, &plan, &summaries, &verdict));
    if let Some(file) = args.json {
        let json = report::json(&machine, &plan, &summaries, &samples);
        fs::write(&file, json).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(!args.enforce || verdict.all_reached())
}

fn idle(args: IdleArgs) -> Result<bool, String> {
    let machine = Machine::describe();
    // Before the servers start, because they inherit it.
    let connections = limits::room_for(args.connections);
    let peers = proxy::start_all(&choice(args.heatsink), Vec::new())?;
    let rows = peers.iter().map(|peer| idle::measure(peer, connections)).collect::<Vec<_>>();
    print!("{}", idle::markdown(&machine, connections, &rows));
    Ok(true)
}

fn choice(args: HeatsinkArgs) -> HeatsinkChoice {
    HeatsinkChoice { program: args.heatsink, args: args.heatsink_arg }
}
