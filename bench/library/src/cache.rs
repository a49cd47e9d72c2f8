//! What a hit and a miss cost, what an entry takes, and how often a cache finds what is asked for.
//!
//! Called by: `main`.
//! Bound: rounds x rivals x (hits and misses of one round), and [`PATIENCE`] for each measurement of a
//! rival: one that searches all its entries to make room would take hours.
//! Invariant: rivals take turns within a round, and the first one changes from round to round. A
//! measurement of hits in which anything was loaded is an error.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::rivals::{
    Amalgam, Cached, Foyer, Heatsink, Moka, QuickCache, Rival, WithoutDetector, loads,
};
use crate::trace::{self, Zipf};
use crate::{allocations, median};

/// Goals of a hit: nanoseconds, and the part of what the best rival needs.
const GOAL_NS: f64 = 60.0;
const GOAL_PART: f64 = 0.6;

/// Operations that are not counted at the start of each measurement.
const WARM_UP: usize = 1000;

/// CPU time after which a measurement of a rival is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Operations between two looks at the clock.
const CHUNK: usize = 1024;

/// Columns of the table that are about warm hits.
const HITS: usize = 4;

#[derive(Args)]
pub(crate) struct CacheArgs {
    /// Only to see that it works: few keys, few rounds; the figures say nothing
    #[arg(long)]
    quick: bool,
    /// Rounds, each with every rival
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only rivals whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Only hits of one key by one thread, for a profiler
    #[arg(long)]
    hit_only: bool,
}

struct Sizes {
    /// Of a cache whose hits find most of it in the processor's caches.
    warm_keys: usize,
    /// Of one that is in memory alone, and of the trace.
    keys: usize,
    /// Per round and thread.
    hits: usize,
    misses: usize,
    /// Entries of the cache that memory is measured with.
    full: usize,
    ratio_requests: usize,
}

impl CacheArgs {
    fn sizes(&self) -> Sizes {
        if self.quick {
            Sizes {
                warm_keys: 1000,
                keys: 2000,
                hits: 2000,
                misses: 500,
                full: 100,
                ratio_requests: 2000,
            }
        } else {
            Sizes {
                warm_keys: 10_000,
                keys: 1_000_000,
                hits: 1_000_000,
                misses: 20_000,
                full: 100_000,
                ratio_requests: 1_000_000,
            }
        }
    }
}

/// What one operation took of all threads' time.
#[derive(Clone, Copy)]
struct Measured {
    ns: f64,
    allocations: f64,
}

/// Keys in the order in which a thread asks for them.
type Keys = Arc<Vec<String>>;

/// A rival behind an interface that knows no types.
trait Contestant {
    fn name(&self) -> &'static str;
    /// Whether it promises one load at a time, and a time to live.
    fn promises(&self) -> String;
    /// Sees to it that all keys are there.
    fn fill(&mut self, runtime: &Runtime, keys: usize);
    /// Looks up keys that are there, by so many threads; nothing if that takes too long.
    fn hits(&self, runtime: &Runtime, threads: usize, keys: &Keys, each: usize)
    -> Option<Measured>;
    /// Looks up keys that are not there, in a cache that is full; a thread for each list of keys.
    /// Nothing if that takes too long.
    fn misses(&self, runtime: &Runtime, entries: usize, keys: &[Keys]) -> Option<Measured>;
    /// Bytes of a full cache, by entry; nothing if it takes too long to fill.
    fn memory(&self, runtime: &Runtime, entries: usize) -> Option<f64>;
    /// The part of requests that needed no load; nothing if that takes too long.
    fn ratio(
        &self,
        runtime: &Runtime,
        entries: usize,
        zipf: &Arc<Zipf>,
        requests: usize,
    ) -> Option<f64>;
}

/// A rival, and its cache once it was filled.
struct Of<R>(Option<Arc<R>>);

fn contestants(only: &str) -> Vec<Box<dyn Contestant>> {
    let mut all: Vec<Box<dyn Contestant>> = vec![
        Box::new(Of::<Heatsink>(None)),
        Box::new(Of::<WithoutDetector>(None)),
        Box::new(Of::<Moka>(None)),
        Box::new(Of::<Foyer>(None)),
        Box::new(Of::<Amalgam>(None)),
        Box::new(Of::<Cached>(None)),
        Box::new(Of::<QuickCache>(None)),
    ];
    all.retain(|contestant| contestant.name().contains(only));
    all
}

/// Asks for the last keys before `start`.
async fn warm_up<R: Rival>(rival: Arc<R>, keys: Keys, start: usize) {
    for at in 0..WARM_UP {
        let key = &keys[(start + keys.len() - WARM_UP + at) % keys.len()];
        black_box(rival.get(black_box(key)).await);
    }
}

/// Asks for `count` keys from `start` on, and again from the first one after the last; gives the
/// allocations of one operation, or nothing if it takes too long.
///
/// It waits for the others before anything else: a worker that is blocked later may be the one that the
/// others' tasks wait for.
async fn ask<R: Rival>(
    rival: Arc<R>,
    keys: Keys,
    start: usize,
    count: usize,
    ready: Arc<Barrier>,
) -> Option<f64> {
    ready.wait();
    let (calls, begun) = (allocations::calls(), cpu_time());
    let (before, after) = keys.split_at(start);
    let mut left = count;
    for chunk in after.chunks(CHUNK).chain(before.chunks(CHUNK)).cycle() {
        if is_too_long(begun) {
            return None;
        }
        for key in chunk.iter().take(left) {
            black_box(rival.get(black_box(key)).await);
        }
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            break;
        }
    }
    // A task that waits may go on in another thread; one that has hits alone does not.
    Some(allocations::calls().saturating_sub(calls) as f64 / count as f64)
}

/// What this process has used of the machine. Other processes slow the clock on the wall down, and
/// this one hardly.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A task for each list of keys, which all begin at once.
fn together<R: Rival>(
    runtime: &Runtime,
    rival: &Arc<R>,
    lists: &[(Keys, usize)],
    count: usize,
) -> Option<Measured> {
    let warm = |(keys, start): &(Keys, usize)| {
        runtime.spawn(warm_up(Arc::clone(rival), Arc::clone(keys), *start))
    };
    for warming in lists.iter().map(warm).collect::<Vec<_>>() {
        runtime.block_on(warming).expect("it ran");
    }
    let ready = Arc::new(Barrier::new(lists.len()));
    let begin = |(keys, start): &(Keys, usize)| {
        let (rival, keys, ready) = (Arc::clone(rival), Arc::clone(keys), Arc::clone(&ready));
        runtime.spawn(ask(rival, keys, *start, count, ready))
    };
    let before = cpu_time();
    let tasks: Vec<_> = lists.iter().map(begin).collect();
    let end = |task: JoinHandle<Option<f64>>| runtime.block_on(task).expect("it ran");
    // All of them, before any is given up: what still runs would disturb the next one.
    let allocations: Vec<_> = tasks.into_iter().map(end).collect();
    let allocations = allocations.into_iter().sum::<Option<f64>>()? / lists.len() as f64;
    let operations = count * lists.len();
    let ns = cpu_time().saturating_sub(before).as_nanos() as f64 / operations as f64;
    Some(Measured { ns, allocations })
}

/// On a worker of the runtime, as a server's tasks are: what a load spawns runs beside it.
fn on<T: Send + 'static>(runtime: &Runtime, work: impl Future<Output = T> + Send + 'static) -> T {
    runtime.block_on(runtime.spawn(work)).expect("it ran")
}

/// A cache that was shown twice as many keys as it has room for; nothing if that takes too long.
async fn full<R: Rival>(entries: usize) -> Option<R> {
    let begun = cpu_time();
    let rival = R::build(entries).await;
    for number in 0..entries * 2 {
        if number.is_multiple_of(CHUNK) && is_too_long(begun) {
            return None;
        }
        rival.get(&trace::name(number)).await;
    }
    Some(rival)
}

fn is_too_long(begun: Duration) -> bool {
    cpu_time().saturating_sub(begun) > PATIENCE
}

impl<R: Rival> Contestant for Of<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn promises(&self) -> String {
        let yes = |is: bool| if is { "yes" } else { "no" };
        format!("{} / {}", yes(R::SINGLE_FLIGHT), yes(R::TTL))
    }

    fn fill(&mut self, runtime: &Runtime, keys: usize) {
        let rival = on(runtime, async move {
            // Room to spare, so that no shard of it is full.
            let rival = R::build(keys + keys / 4 + 1000).await;
            for number in 0..keys {
                rival.get(&trace::name(number)).await;
            }
            rival
        });
        self.0 = Some(Arc::new(rival));
    }

    fn hits(
        &self,
        runtime: &Runtime,
        threads: usize,
        keys: &Keys,
        each: usize,
    ) -> Option<Measured> {
        let rival = self.0.as_ref().expect("it was filled");
        let part = keys.len() / threads;
        let lists: Vec<_> = (0..threads).map(|at| (Arc::clone(keys), at * part)).collect();
        let before = loads();
        let measured = together(runtime, rival, &lists, each);
        assert_eq!(loads(), before, "{}: these were to be hits", R::NAME);
        measured
    }

    fn misses(&self, runtime: &Runtime, entries: usize, keys: &[Keys]) -> Option<Measured> {
        let rival = Arc::new(on(runtime, full::<R>(entries))?);
        let lists: Vec<_> = keys.iter().map(|keys| (Arc::clone(keys), WARM_UP)).collect();
        let before = loads();
        let count = keys[0].len() - WARM_UP;
        let measured = together(runtime, &rival, &lists, count)?;
        let asked = (keys[0].len() * keys.len()) as u64;
        assert_eq!(loads() - before, asked, "{}: these were to be misses", R::NAME);
        Some(measured)
    }

    fn memory(&self, runtime: &Runtime, entries: usize) -> Option<f64> {
        let (rival, bytes) = allocations::kept_by(|| on(runtime, full::<R>(entries)));
        rival.map(|_| bytes as f64 / entries as f64)
    }

    fn ratio(
        &self,
        runtime: &Runtime,
        entries: usize,
        zipf: &Arc<Zipf>,
        requests: usize,
    ) -> Option<f64> {
        let zipf = Arc::clone(zipf);
        on(runtime, async move {
            let begun = cpu_time();
            let rival = R::build(entries).await;
            let mut rng = fastrand::Rng::with_seed(42);
            let mut before = 0;
            for number in 0..requests * 2 {
                if number.is_multiple_of(CHUNK) && is_too_long(begun) {
                    return None;
                }
                if number == requests {
                    before = loads();
                }
                rival.get(&trace::name(zipf.draw(&mut rng))).await;
            }
            Some(1.0 - (loads() - before) as f64 / requests as f64)
        })
    }
}

/// A measurement that is repeated.
struct Column {
    heading: &'static str,
    /// By contestant, by round; nothing once a round has taken it too long.
    figures: Vec<Option<Vec<Measured>>>,
}

impl Column {
    fn measure(
        heading: &'static str,
        contestants: &[Box<dyn Contestant>],
        rounds: usize,
        measure: impl Fn(&dyn Contestant) -> Option<Measured>,
    ) -> Self {
        eprintln!("{heading}");
        let mut figures = vec![Some(Vec::new()); contestants.len()];
        for round in 0..rounds {
            for turn in 0..contestants.len() {
                let at = (round + turn) % contestants.len();
                figures[at] = figures[at].take().and_then(|mut rounds: Vec<_>| {
                    rounds.push(measure(&*contestants[at])?);
                    Some(rounds)
                });
            }
        }
        Self { heading, figures }
    }

    fn ns(&self, contestant: usize) -> Option<f64> {
        self.median_of(contestant, |one| one.ns)
    }

    fn allocations(&self, contestant: usize) -> Option<f64> {
        self.median_of(contestant, |one| one.allocations)
    }

    fn median_of(&self, contestant: usize, what: impl Fn(&Measured) -> f64) -> Option<f64> {
        self.figures[contestant].as_ref().map(|rounds| median(rounds.iter().map(what).collect()))
    }
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("a runtime")
}

pub(crate) fn run(args: &CacheArgs) {
    print!("{}", measure(args));
}

fn measure(args: &CacheArgs) -> String {
    let sizes = args.sizes();
    let rounds = if args.quick { 2 } else { args.rounds };
    let runtimes = [runtime(1), runtime(2)];
    let mut contestants = contestants(&args.only);
    let one_key = Arc::new(trace::one_key(1024));
    if args.hit_only {
        for contestant in &mut contestants {
            contestant.fill(&runtimes[0], 1);
        }
        let hits = |one: &dyn Contestant| one.hits(&runtimes[0], 1, &one_key, sizes.hits * 20);
        return table(&contestants, &[Column::measure("one key", &contestants, rounds, hits)]);
    }
    let drawn = |keys| {
        let zipf = Arc::new(Zipf::new(keys));
        let names = Arc::new(trace::zipf(&zipf, (sizes.hits / 2).max(WARM_UP), 1));
        (zipf, names)
    };
    let (_, warm_keys) = drawn(sizes.warm_keys);
    let (zipf, many_keys) = drawn(sizes.keys);
    let fill = |contestants: &mut [Box<dyn Contestant>], keys| {
        for contestant in contestants {
            contestant.fill(&runtimes[0], keys);
        }
    };
    let hits = |contestants: &[Box<dyn Contestant>], heading, threads: usize, keys: &Keys| {
        let runtime = &runtimes[threads - 1];
        let measure = |one: &dyn Contestant| one.hits(runtime, threads, keys, sizes.hits);
        Column::measure(heading, contestants, rounds, measure)
    };
    fill(&mut contestants, sizes.warm_keys);
    let warm = [
        hits(&contestants, "one key, 1 thread", 1, &one_key),
        hits(&contestants, "one key, 2 threads", 2, &one_key),
        hits(&contestants, "Zipf, 1 thread", 1, &warm_keys),
        hits(&contestants, "Zipf, 2 threads", 2, &warm_keys),
    ];
    fill(&mut contestants, sizes.keys);
    let cold = hits(&contestants, "Zipf, all keys, 1 thread", 1, &many_keys);
    let misses = |heading, threads: usize| {
        let runtime = &runtimes[threads - 1];
        let keys = |thread| Arc::new(trace::new_keys(sizes.misses + WARM_UP, thread));
        let keys: Vec<_> = (0..threads).map(keys).collect();
        let measure = |one: &dyn Contestant| one.misses(runtime, sizes.full / 10, &keys);
        Column::measure(heading, &contestants, rounds.min(3), measure)
    };
    let misses = [misses("miss, 1 thread", 1), misses("miss, 2 threads", 2)];
    let columns: Vec<Column> = warm.into_iter().chain([cold]).chain(misses).collect();
    let mut text = format!(
        "- rounds: {rounds}, operations a round and thread: {} hits, {} misses; rivals in turn; \
         medians\n- ns of CPU by operation, of all threads; keys of 16 bytes, values of 100; hits: {} keys, \
         or {} (all), all there; misses: new keys, a full cache of {} entries, a loader that is done at once\n\n",
        sizes.hits,
        sizes.misses,
        sizes.warm_keys,
        sizes.keys,
        sizes.full / 10,
    );
    text += &table(&contestants, &columns);
    text += &goals(&contestants, &columns, args.quick);
    text += &figures(&contestants, &columns, &runtimes[0], &sizes, &zipf);
    text
}

fn table(contestants: &[Box<dyn Contestant>], columns: &[Column]) -> String {
    let headings: Vec<_> = columns.iter().map(|column| column.heading).collect();
    let rule = "--:|".repeat(columns.len());
    let mut text = format!("| ns | {} |\n|---|{rule}\n", headings.join(" | "));
    for (at, contestant) in contestants.iter().enumerate() {
        let cell = |column: &Column| column.ns(at).map_or("-".to_owned(), |ns| format!("{ns:.0}"));
        let cells: Vec<_> = columns.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", contestant.name(), cells.join(" | "));
    }
    text
}

/// Heatsink with its defaults against the best of those who make one load for all.
fn goals(contestants: &[Box<dyn Contestant>], columns: &[Column], quick: bool) -> String {
    let place = |name: &str| contestants.iter().position(|one| one.name() == name);
    let rivals = [Moka::NAME, Foyer::NAME, Amalgam::NAME];
    let Some(own) = place(Heatsink::NAME) else { return String::new() };
    let said = |is_reached: bool| match (quick, is_reached) {
        (true, _) => "",
        (_, true) => " pass",
        (..) => " **miss**",
    };
    let mut text = String::from(
        "\n| hit of heatsink | ns, goal 60 for one key and thread | of the best rival, goal 0.6 | allocations |\n|---|--:|--:|--:|\n",
    );
    for (at, column) in columns[..HITS].iter().enumerate() {
        let (Some(ns), Some(allocations)) = (column.ns(own), column.allocations(own)) else {
            continue;
        };
        let rival = rivals.iter().filter_map(|name| column.ns(place(name)?));
        let part = ns / rival.fold(f64::INFINITY, f64::min);
        let some = if allocations == 0.0 { "none" } else { "**some**" };
        // Two threads pass the line that holds the key's count to and fro, and many keys have to
        // be fetched from memory, whatever the cache: the time is a goal of one key and thread.
        let of_ns = if at == 0 { said(ns <= GOAL_NS) } else { "" };
        let of_part = said(part <= GOAL_PART);
        let _ =
            writeln!(text, "| {} | {ns:.0}{of_ns} | {part:.2}{of_part} | {some} |", column.heading);
    }
    text
}

fn figures(
    contestants: &[Box<dyn Contestant>],
    columns: &[Column],
    runtime: &Runtime,
    sizes: &Sizes,
    zipf: &Arc<Zipf>,
) -> String {
    let mut text = String::from(
        "\n| cache | one load / TTL | allocations a hit | bytes an entry | hit ratio, 1 % | hit \
         ratio, 10 % |\n|---|---|--:|--:|--:|--:|\n",
    );
    for (at, contestant) in contestants.iter().enumerate() {
        let ratio = |part| {
            let ratio = contestant.ratio(runtime, sizes.keys / part, zipf, sizes.ratio_requests);
            ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio))
        };
        let memory = contestant.memory(runtime, sizes.full);
        let most = |most: f64, column: &Column| most.max(column.allocations(at).unwrap_or(0.0));
        let allocations = columns[..HITS].iter().fold(0.0, most);
        let _ = writeln!(
            text,
            "| {} | {} | {allocations:.2} | {} | {} | {} |",
            contestant.name(),
            contestant.promises(),
            memory.map_or("-".to_owned(), |bytes| format!("{bytes:.0}")),
            ratio(100),
            ratio(10),
        );
    }
    let best = |part: usize| 100.0 * zipf.best_ratio(sizes.keys / part);
    let _ = writeln!(
        text,
        "| only the hottest keys, always | | | | {:.1} % | {:.1} % |",
        best(100),
        best(10)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: loads are counted for the whole process.
    #[test]
    fn all_caches_are_measured_and_hits_of_heatsink_allocate_nothing() {
        let args = CacheArgs { quick: true, rounds: 2, only: String::new(), hit_only: false };
        let text = measure(&args);
        for contestant in contestants("") {
            let row = format!("| {} |", contestant.name());
            assert_eq!(text.matches(&row).count(), 2, "{row}: {text}");
        }
        assert_eq!(text.matches("| one key, 1 thread |").count(), 2, "{text}");
        assert!(!text.contains("NaN"), "{text}");

        let runtime = runtime(1);
        let keys = Arc::new(trace::one_key(1024));
        let mut cache = Of::<WithoutDetector>(None);
        cache.fill(&runtime, 1);
        let measured = cache.hits(&runtime, 1, &keys, 10_000).expect("not for long");
        assert!(measured.allocations.abs() < f64::EPSILON, "{}", measured.allocations);
        assert!(measured.ns > 0.0);

        // Nor for the detector, which is told of looks in batches.
        let mut cache = Of::<Heatsink>(None);
        cache.fill(&runtime, 1);
        let measured = cache.hits(&runtime, 1, &keys, 100_000).expect("not for long");
        assert!(measured.allocations.abs() < f64::EPSILON, "{}", measured.allocations);
    }
}
