//! A hot key that expires every second, with a query that takes 50 ms, under a steady load.
//!
//! Called by: `main`.
//! Bound: strategies x seconds; a request that has no answer after [`ANSWER_LIMIT`] fails the run.
//! Invariant: latency counts from the moment at which a request was due, whether the generator was
//! late or not, so that a stall meets every request that falls into it.

mod database;
mod load;
mod strategies;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use heatsink_testkit::RedisServer;

use crate::expiry::database::Database;
use crate::expiry::load::Answers;
use crate::expiry::strategies::{STRATEGIES, Strategy};

const TTL: Duration = Duration::from_secs(1);
const QUERY: Duration = Duration::from_millis(50);
/// Caches, each with a memory and a connection of its own, as processes would have.
const CACHES: usize = 4;
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

#[derive(Args)]
pub(crate) struct ExpiryArgs {
    /// Only to see that it works: three seconds each; the figures say little
    #[arg(long)]
    quick: bool,
    /// How long each strategy is under load
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Requests per second, spread over four caches
    #[arg(long, default_value_t = 2000)]
    rate: u64,
    /// Only strategies whose names contain one of these (separated by commas)
    #[arg(long, default_value = "")]
    only: String,
}

impl ExpiryArgs {
    fn strategies(&self) -> impl Iterator<Item = &'static Strategy> {
        let is_wanted = |name: &str| self.only.split(',').any(|part| name.contains(part));
        STRATEGIES.iter().filter(move |strategy| is_wanted(strategy.name))
    }
}

/// What one strategy did.
struct Outcome {
    name: &'static str,
    queries: usize,
    /// Times that the value had to be got anew, and the most queries for one of them.
    expiries: usize,
    most: usize,
    answers: Answers,
}

pub(crate) fn run(args: &ExpiryArgs) {
    let outcomes: Vec<_> = args.strategies().map(|strategy| measure(args, strategy)).collect();
    print!("{}", report(args, &outcomes));
}

fn measure(args: &ExpiryArgs, strategy: &Strategy) -> Outcome {
    let seconds = if args.quick { 3 } else { args.seconds };
    let server = RedisServer::start();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    let database = Arc::new(Database::new(QUERY));
    let (ask, caches) = runtime.block_on((strategy.open)(&server.url(), &database));
    // The value is there when the load begins.
    runtime.block_on(ask(0));
    let requests = (args.rate * seconds) as usize;
    let answers = load::run(&runtime, &database, requests, args.rate, CACHES, &ask);
    drop(caches);
    let groups = database.groups(TTL / 2);
    Outcome {
        name: strategy.name,
        queries: groups.iter().sum(),
        expiries: groups.len(),
        most: groups.iter().copied().max().unwrap_or(0),
        answers,
    }
}

fn report(args: &ExpiryArgs, outcomes: &[Outcome]) -> String {
    let seconds = if args.quick { 3 } else { args.seconds };
    let mut text = format!(
        "- one key, TTL {TTL:?}, query {QUERY:?}, {} requests/s for {seconds} s over {CACHES} caches \
         with a connection each, one redis-server; latency from the moment due\n\n\
         | strategy | queries | per expiry (most) | p50 µs | p99 µs | p99.9 µs | max ms | older than \
         the TTL | oldest ms |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        args.rate,
    );
    for one in outcomes {
        let Outcome { name, queries, expiries, most, answers } = one;
        let _ = writeln!(
            text,
            "| {name} | {queries} | {:.2} ({most}) | {} | {} | {} | {:.1} | {:.2} % | {} |",
            *queries as f64 / *expiries as f64,
            answers.latency_us(0.5),
            answers.latency_us(0.99),
            answers.latency_us(0.999),
            answers.latency_us(1.0) as f64 / 1000.0,
            100.0 * answers.older_than(TTL),
            answers.oldest_us() / 1000,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ExpiryArgs {
        ExpiryArgs { quick: true, seconds: 3, rate: 500, only: String::new() }
    }

    #[test]
    fn every_strategy_answers_every_request_and_only_the_naive_one_stampedes() {
        let args = args();
        let outcomes: Vec<_> = args.strategies().map(|strategy| measure(&args, strategy)).collect();
        for one in &outcomes {
            assert_eq!(one.answers.len(), 1500, "{}", one.name);
            let expires = !one.name.contains("plain");
            assert_eq!(one.queries > 1, expires, "{}: {} queries", one.name, one.queries);
        }
        let of =
            |name: &str| outcomes.iter().find(|one| one.name == name).expect("it is a strategy");
        assert!(of("naive").most > 5, "{}", of("naive").most);
        for name in ["SWR", "XFetch and lease"] {
            // Four caches at most would be a cache each; the lease makes it one.
            assert!(of(name).queries <= of(name).expiries + 1, "{name}: {}", of(name).queries);
        }
        let text = report(&args, &outcomes);
        assert!(outcomes.iter().all(|one| text.contains(&format!("| {} |", one.name))), "{text}");
    }
}
