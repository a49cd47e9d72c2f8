//! A shop in front of Postgres, with Redis as its cache: what a popular product costs each time it
//! expires, four ways side by side.
//!
//! ```console
//! $ cargo run --release -p shop
//! ```
//!
//! One command brings everything up: without `--database-url` it starts a Postgres of its own, without
//! `--redis-url` a Redis, both in a temporary directory, and takes them away at the end. Then open the
//! page it names. `--load 2000` starts to load it at once, each way for ten seconds in turn.
//!
//! | file | what is in it |
//! |---|---|
//! | `ways.rs` | the four ways to read a product; **the library is used here** |
//! | `ways/by_hand.rs` | three of them, as services write them themselves |
//! | `database.rs` | the queries, and the pool of connections |
//! | `load.rs` | customers who all want one product |
//! | `tally.rs` | what is counted, and what an expiry is |
//! | `web.rs`, `page/` | routes and the page |
//! | `servers.rs` | a Postgres and a Redis of its own |

mod database;
mod load;
mod servers;
mod shop;
mod tally;
mod ways;
mod web;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::load::{Load, Target};
use crate::servers::Servers;
use crate::shop::{Settings, Shop};
use crate::tally::Tallies;

/// What any part of the shop may fail with; `main` shows it, requests are answered with it.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a popular product costs each time it expires, four ways side by side.
#[derive(Debug, Parser)]
#[command(name = "shop")]
struct Args {
    /// Where the page is; port 0 is any free one.
    #[arg(long, default_value = "127.0.0.1:8080", env = "SHOP_LISTEN")]
    listen: SocketAddr,
    /// A Postgres to use instead of a temporary one. It gets a table `heatsink_shop_products`.
    #[arg(long, env = "DATABASE_URL")]
    database_url: Option<String>,
    /// A Redis or Valkey to use instead of a temporary one. Keys begin with `shop-`.
    #[arg(long, env = "REDIS_URL")]
    redis_url: Option<String>,
    /// Requests per second to begin with, each way for ten seconds in turn.
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(..=i64::from(load::RATE_LIMIT)))]
    load: Option<u32>,
    /// How long a product is fresh.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=3_600_000))]
    ttl_ms: u64,
    /// How long a query takes.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=10_000))]
    query_ms: u64,
    /// Instances of the service. They share Postgres and Redis, and nothing else.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    instances: u8,
    /// Connections to Postgres.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=90))]
    connections: u8,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGINT or SIGTERM, then ends the servers that were started here.
async fn run(args: &Args) -> Result<(), Failure> {
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let tallies = Arc::new(Tallies::default());
    let mut servers = Servers::default();
    let end = tokio::select! {
        end = serve(args, &mut servers, &tallies) => end,
        _ = int.recv() => Ok(()),
        _ = term.recv() => Ok(()),
    };
    print!("{}", tallies.table());
    servers.stop().await;
    end
}

async fn serve(args: &Args, servers: &mut Servers, tallies: &Arc<Tallies>) -> Result<(), Failure> {
    let redis_url = match &args.redis_url {
        Some(url) => url.clone(),
        None => servers.start_redis().await?,
    };
    let database_url = match &args.database_url {
        Some(url) => url.clone(),
        None => servers.start_postgres().await?,
    };
    let settings = Settings {
        ttl: Duration::from_millis(args.ttl_ms),
        query: Duration::from_millis(args.query_ms),
        instances: args.instances,
        connections: args.connections,
    };
    let shop = Shop::open(&database_url, &redis_url, settings, tallies).await?;
    let (load, driver) = Load::new(Arc::clone(&shop));
    if let Some(rate) = args.load {
        load.set(Target::Each, rate);
    }
    let listener = tokio::net::TcpListener::bind(args.listen).await?;
    println!("shop ready: http://{}/", listener.local_addr()?);
    tokio::select! {
        end = axum::serve(listener, web::routes(shop, load)) => Ok(end?),
        () = driver.run() => Ok(()),
    }
}
