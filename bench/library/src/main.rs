//! The library beside its rivals on this machine.
//!
//! Called by: `cargo run --release -p heatsink-bench-library -- cache` (or `expiry`).
//! Bound: minutes with the defaults, a few seconds with `--quick`.
//! Invariant: rivals are measured in the same run, in turns; a figure of one alone says more about
//! the machine and the hour than about the cache.

mod allocations;
mod cache;
mod expiry;
mod rivals;
mod trace;

use std::fs;
use std::thread;

use clap::{Parser, Subcommand};

use crate::cache::CacheArgs;
use crate::expiry::ExpiryArgs;

#[derive(Parser)]
#[command(name = "heatsink-bench-library", about = "The library beside its rivals", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hits, misses, memory and hit ratio of caches in one process
    Cache(CacheArgs),
    /// What callers and the database see when a hot key expires again and again
    Expiry(ExpiryArgs),
}

fn main() {
    let cli = Cli::parse();
    println!("{}", machine());
    match cli.command {
        Command::Cache(args) => cache::run(&args),
        Command::Expiry(args) => expiry::run(&args),
    }
}

/// What a reader needs to place the figures.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = thread::available_parallelism().map_or(0, Into::into);
    let model = model.map_or("unknown", |(_, model)| model.trim());
    format!("- machine: {cpus} CPUs ({model}), Linux {}", kernel.trim())
}

/// The middle of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
