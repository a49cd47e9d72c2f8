//! What Heatsink does about a hot key beside leaving it alone: it must never cost more.
//!
//! Called by: `main`, for `harm`.
//! Bound: for each shape of traffic [`WARM_UP`] a peer, then rounds of [`ROUND`] a peer; about a
//! quarter of an hour with the defaults.
//! Invariant: both processes get the same traffic in turns, before servers of their own; a ratio is
//! taken within a round, so a busy minute of the machine meets both. Nothing is promoted by hand.

mod shapes;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, cpu_time};

use crate::admin;
use crate::benchmark::{Access, Target};
use crate::flood::Flood;
use crate::machine::Machine;
use crate::peer::{Backend, HeatsinkChoice, Peer};
use crate::ratios::ratios;
use crate::section::{self, Goal, Section};
use crate::summary::median;

use shapes::Shape;

const CPU_RATIO_MAX: f64 = 1.05;
const THROUGHPUT_RATIO_MIN: f64 = 0.95;
const ROUNDS: u16 = 5;
const ROUND: Duration = Duration::from_millis(600);
const ROUND_QUICK: Duration = Duration::from_millis(20);
/// Until the key is found and everything is decided about it.
const WARM_UP: Duration = Duration::from_millis(2_500);

#[derive(Args)]
pub(crate) struct HarmArgs {
    /// The heatsink binary to measure [default: built and found beside this one]
    #[arg(long, value_name = "PATH")]
    heatsink: Option<std::path::PathBuf>,
    /// A further argument for `heatsink serve` of both; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    heatsink_arg: Vec<String>,
    /// Rounds per shape; the median of the ratios within a round counts
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// One short round and no verdict, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only shapes whose title contains this, in any letter case
    #[arg(long, value_name = "FILTER", default_value = "", allow_hyphen_values = true)]
    case: String,
    /// Exits with 1 if any goal is missed
    #[arg(long)]
    enforce: bool,
}

struct Effort {
    rounds: usize,
    round: Duration,
    warm_up: Duration,
    filter: String,
    judges: bool,
}

/// Where the shapes are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Server,
    TwoWorkers,
    Cluster,
}

impl Place {
    fn title(self) -> &'static str {
        match self {
            Self::Server => "Before one server, one worker",
            Self::TwoWorkers => "Before one server, two workers",
            Self::Cluster => "Before a cluster of three primaries, one worker",
        }
    }

    fn shapes(self) -> Vec<Shape> {
        if self == Self::Server { shapes::of_server() } else { shapes::elsewhere() }
    }
}

/// Those that get the same traffic.
struct Peers {
    on: Peer,
    api: SocketAddr,
    off: Peer,
    plain: Option<Peer>,
}

/// What was seen of one peer, a figure a round.
#[derive(Default)]
struct Seen {
    /// CPU of the proxy and its servers, in microseconds a request.
    proxy: Vec<f64>,
    total: Vec<f64>,
    per_second: Vec<f64>,
}

/// The worst of all shapes.
struct Worst {
    cpu: f64,
    throughput: f64,
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: HarmArgs) -> Result<bool, String> {
    let effort = Effort {
        rounds: if args.quick { 1 } else { usize::from(args.rounds) },
        round: if args.quick { ROUND_QUICK } else { ROUND },
        warm_up: if args.quick { ROUND_QUICK } else { WARM_UP },
        filter: args.case.to_lowercase(),
        judges: !args.quick,
    };
    let choice = HeatsinkChoice { program: args.heatsink, args: args.heatsink_arg };
    let choice = HeatsinkChoice { program: Some(choice.program()?), ..choice };
    let machine = Machine::describe();
    let mut sections = Vec::new();
    for place in [Place::Server, Place::TwoWorkers, Place::Cluster] {
        let mut shapes = place.shapes();
        shapes.retain(|shape| shape.title().to_lowercase().contains(&effort.filter));
        if !shapes.is_empty() {
            sections.push(table(place, &shapes, &choice, &effort)?);
        }
    }
    if sections.is_empty() {
        return Err(format!("no shape matches {:?}", args.case));
    }
    let reached =
        section::print("A hot key, treated and left alone", &machine.to_string(), &sections);
    Ok(!args.enforce || reached)
}

fn start(place: Place, choice: &HeatsinkChoice, has_plain: bool) -> Result<Peers, String> {
    let backend = || match place {
        Place::Cluster => {
            Backend::Cluster(Rc::new(RedisCluster::builder().replicas_per_primary(0).start()))
        }
        _ => Backend::server(),
    };
    let workers = if place == Place::TwoWorkers { "2" } else { "1" };
    let peer = |name, mode| {
        choice.start_with_admin(name, backend(), &["--workers", workers, "--mode", mode])
    };
    let (on, api) = peer("on", "coherent")?;
    let (off, _) = peer("off", "off")?;
    let plain = has_plain.then(|| {
        let server = RedisServer::start();
        let target = Target { addr: server.addr(), access: Access::Server };
        Peer::direct("plain Redis", target, Backend::Server(Box::new(server)))
    });
    Ok(Peers { on, api, off, plain })
}

fn table(
    place: Place,
    shapes: &[Shape],
    choice: &HeatsinkChoice,
    effort: &Effort,
) -> Result<Section, String> {
    let peers = start(place, choice, shapes.iter().any(|shape| shape.of_plain.is_some()))?;
    for peer in [&peers.on, &peers.off] {
        let mut client = connect(peer)?;
        shapes::prepare_cold(&mut client).map_err(|error| format!("{}: {error}", peer.name))?;
    }
    let mut section = Section::new(
        place.title(),
        "traffic on the hot key",
        &[
            "on, CPU µs (proxy + server)",
            "off",
            "on ÷ off",
            "its quartiles",
            "throughput, on ÷ off",
            "÷ plain Redis",
            "treated with",
        ],
    );
    section.notes = vec![format!(
        "{} rounds of {} ms for each in turns, after {} ms; CPU are medians, ratios medians of those within a \
         round; 50 clients; on: settings as they are by default; off: `mode = \"off\"`",
        effort.rounds,
        effort.round.as_millis(),
        effort.warm_up.as_millis(),
    )];
    let mut worst = Worst { cpu: 0.0, throughput: f64::INFINITY };
    for (number, shape) in shapes.iter().enumerate() {
        eprintln!("harm: {}: {}", place.title(), shape.title());
        let key = format!("hot:{number}");
        let failed = |error: io::Error| format!("{}: {error}", shape.title());
        let seen = measure(&peers, shape, &key, effort).map_err(failed)?;
        row(&mut section, &mut worst, shape, &seen, treated_with(peers.api, &key), effort);
    }
    section.goals.push(Goal {
        what: place.title(),
        limit: format!("total CPU at most {CPU_RATIO_MAX} of off in every shape"),
        figure: format!("{:.2}", worst.cpu),
        reached: effort.judges.then_some(worst.cpu <= CPU_RATIO_MAX),
    });
    section.goals.push(Goal {
        what: place.title(),
        limit: format!("throughput at least {THROUGHPUT_RATIO_MIN} of off in every shape"),
        figure: format!("{:.2}", worst.throughput),
        reached: effort.judges.then_some(worst.throughput >= THROUGHPUT_RATIO_MIN),
    });
    Ok(section)
}

fn row(
    section: &mut Section,
    worst: &mut Worst,
    shape: &Shape,
    [on, off, plain]: &[Seen; 3],
    treated: String,
    effort: &Effort,
) {
    let middle = |figures: &[f64]| median(figures.to_vec()).unwrap_or(f64::NAN);
    let cpu = |seen: &Seen| {
        let (proxy, total) = (middle(&seen.proxy), middle(&seen.total));
        format!("{proxy:.2} + {:.2}", total - proxy)
    };
    let (total, throughput) =
        (ratios(&on.total, &off.total), ratios(&on.per_second, &off.per_second));
    worst.cpu = worst.cpu.max(total.median);
    worst.throughput = worst.throughput.min(throughput.median);
    let of_plain = shape.of_plain.map(|goal| (goal, ratios(&on.total, &plain.total).median));
    section.row(
        shape.title(),
        [
            cpu(on),
            cpu(off),
            format!("{:.2}", total.median),
            format!("{:.2} to {:.2}", total.lower, total.upper),
            format!("{:.2}", throughput.median),
            of_plain.map_or("-".to_owned(), |(_, ratio)| format!("{ratio:.2}")),
            treated,
        ],
    );
    if let Some((goal, ratio)) = of_plain {
        section.goals.push(Goal {
            what: "Total CPU beside plain Redis",
            limit: format!("{}: at most {goal}", shape.title()),
            figure: format!("{ratio:.2}"),
            reached: effort.judges.then_some(ratio <= goal),
        });
    }
}

/// Of the process that treats the key, of the one that does not, and of plain Redis.
fn measure(peers: &Peers, shape: &Shape, key: &str, effort: &Effort) -> io::Result<[Seen; 3]> {
    let plain = peers.plain.as_ref().filter(|_| shape.of_plain.is_some());
    let all: Vec<&Peer> = [&peers.on, &peers.off].into_iter().chain(plain).collect();
    let mut floods = Vec::new();
    for peer in &all {
        let mut client = RawClient::try_connect(peer.target.addr)?;
        shape.prepare(&mut client, key)?;
        let mut flood = Flood::connect(peer.target.addr, shape.clients, shape.depth)?;
        flood.play(effort.warm_up, &mut requests(shape, key, 0))?;
        floods.push(flood);
    }
    let mut seen = [Seen::default(), Seen::default(), Seen::default()];
    for round in 0..effort.rounds {
        for turn in 0..all.len() {
            let index = (round + turn) % all.len();
            let peer = all[index];
            let cpu = || -> io::Result<[f64; 2]> {
                Ok([cpu_micros(peer.pids())?, cpu_micros(peer.redis_pids())?])
            };
            let (before, begun) = (cpu()?, Instant::now());
            let mut next = requests(shape, key, 1 + round as u64);
            let answered = floods[index].play(effort.round, &mut next)? as f64;
            let (after, seconds) = (cpu()?, begun.elapsed().as_secs_f64());
            let proxy = (after[0] - before[0]) / answered;
            let seen = &mut seen[index];
            seen.proxy.push(proxy);
            seen.total.push(proxy + (after[1] - before[1]) / answered);
            seen.per_second.push(answered / seconds);
        }
    }
    Ok(seen)
}

/// The same ones for every peer.
fn requests<'a>(shape: &'a Shape, key: &'a str, seed: u64) -> impl FnMut(&mut Vec<u8>) + 'a {
    let mut random = fastrand::Rng::with_seed(seed);
    move |to| shape.request(key, &mut random, to)
}

fn cpu_micros(pids: Vec<u32>) -> io::Result<f64> {
    let sum = pids.into_iter().map(cpu_time).sum::<io::Result<Duration>>();
    sum.map(|time| time.as_secs_f64() * 1e6)
}

fn connect(peer: &Peer) -> Result<RawClient, String> {
    RawClient::try_connect(peer.target.addr).map_err(|error| format!("{}: {error}", peer.name))
}

/// What the API says is done about the key.
fn treated_with(api: SocketAddr, key: &str) -> String {
    match admin::hot_key(api, key) {
        Ok(Some(hot)) => hot.mitigation_type,
        Ok(None) => "not found hot".to_owned(),
        Err(error) => error,
    }
}
