//! The cache alone, in this process: what a hit costs beside caches that others use.
//!
//! Called by: `main`, for `cache`.
//! Bound: about a minute with the defaults.
//! Invariant: everybody finds the same reply under the same request and copies it into a buffer;
//! a rival is one instance that the threads share, Heatsink's is one for each thread, as its
//! workers have it. Times are judged only in a whole run.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use foldhash::fast::RandomState;
use heatsink_cache::identity::{LoginId, Protocol, Reader};
use heatsink_cache::local::{KeySettings, Limits, LocalCache, Lookup, Registered, Ttl};

use crate::machine::Machine;
use crate::pairs::Pairs;
use crate::section::{self, Goal, Section};

const ONE_THREAD_NS: f64 = 30.0;
const TWO_THREADS_NS: f64 = 40.0;
const READER: Reader = Reader { login: LoginId(1), protocol: Protocol::Resp2 };
const KEY: &[u8] = b"user:00000000001";
const COMMAND: &[u8] = b"*2\r\n$3\r\nGET\r\n$16\r\nuser:00000000001\r\n";
const VALUE_BYTES: usize = 100;
/// Replies are copied one behind the other up to here, as into the buffer of a socket.
const BUFFER_BYTES: usize = 16 << 10;
const ENTRIES: usize = 2048;
const ROUNDS: u16 = 60;
const ROUNDS_QUICK: u16 = 2;
const HITS: usize = 300_000;
const HITS_QUICK: usize = 5_000;
const HEATSINK: &str = "heatsink, a cache for each thread";

#[derive(Args)]
pub(crate) struct CacheArgs {
    /// Timed rounds; the median counts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Few hits and no verdict on times, to see that it works
    #[arg(long)]
    quick: bool,
    /// Exits with 1 if a goal is missed
    #[arg(long)]
    enforce: bool,
}

/// Measures, prints, and says whether no goal was missed or nobody insists.
pub(crate) fn run(args: &CacheArgs) -> Result<bool, String> {
    let (rounds, hits) = if args.quick { (ROUNDS_QUICK, HITS_QUICK) } else { (ROUNDS, HITS) };
    let rounds = usize::from(args.rounds.unwrap_or(rounds));
    let section = hits_of_all(rounds, hits, !args.quick)?;
    let reached = section::print("The cache alone", &Machine::describe().host(), &[section]);
    Ok(!args.enforce || reached)
}

fn hits_of_all(rounds: usize, hits: usize, judged: bool) -> Result<Section, String> {
    let reply = reply();
    let copy = || {
        let (mut out, reply) = (Output::new(), reply.clone());
        move |_: &[u8]| out.push(black_box(&reply))
    };
    let heatsink = || {
        let (mut out, mut cache) = (Output::new(), filled(&reply)?);
        let now = Duration::from_secs(1);
        Ok::<_, String>(move |command: &[u8]| {
            out.push(cache.hit(black_box(now), READER, command).expect("it is cached").reply);
        })
    };
    // What an entry is found by besides the request, in front of it: the rivals are spared the
    // putting together.
    let identity = [&[1, 0, 0, 0, 2], COMMAND].concat();
    let found = "it is cached";
    let quick = quick_cache::sync::Cache::<Box<[u8]>, Arc<[u8]>>::new(ENTRIES);
    quick.insert(identity.clone().into(), reply.clone().into());
    let quick_cache = || {
        let (mut out, quick, key) = (Output::new(), &quick, identity.clone());
        move |_: &[u8]| out.push(&quick.get(black_box(&key[..])).expect(found))
    };
    let moka = moka::sync::Cache::<Box<[u8]>, Arc<[u8]>>::new(ENTRIES as u64);
    moka.insert(identity.clone().into(), reply.clone().into());
    let moka = || {
        let (mut out, moka, key) = (Output::new(), moka.clone(), identity.clone());
        move |_: &[u8]| out.push(&moka.get(black_box(&key[..])).expect(found))
    };
    let folded = moka::sync::Cache::<Box<[u8]>, Arc<[u8]>>::builder()
        .max_capacity(ENTRIES as u64)
        .build_with_hasher(RandomState::default());
    folded.insert(identity.clone().into(), reply.clone().into());
    let moka_folded = || {
        let (mut out, moka, key) = (Output::new(), folded.clone(), identity.clone());
        move |_: &[u8]| out.push(&moka.get(black_box(&key[..])).expect(found))
    };
    let ufo = tinyufo::TinyUfo::<Vec<u8>, Arc<[u8]>>::new(ENTRIES, ENTRIES);
    ufo.put(identity.clone(), reply.clone().into(), 1);
    let tinyufo = || {
        let (mut out, ufo, key) = (Output::new(), &ufo, identity.clone());
        move |_: &[u8]| out.push(&ufo.get(black_box(&key)).expect(found))
    };
    let mut contenders = [
        Pairs::new("(only copy the reply)", [copy(), copy()]),
        Pairs::new(HEATSINK, [heatsink()?, heatsink()?]),
        Pairs::new("quick_cache, shared", [quick_cache(), quick_cache()]),
        Pairs::new("moka, shared", [moka(), moka()]),
        Pairs::new("moka with foldhash, shared", [moka_folded(), moka_folded()]),
        Pairs::new("TinyUFO, shared", [tinyufo(), tinyufo()]),
    ];
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            contenders[at].round(COMMAND, hits);
        }
    }
    Ok(table(&contenders, hits, judged))
}

fn table(contenders: &[Pairs<'_>], hits: usize, judged: bool) -> Section {
    let mut section = Section::new(
        "A hit, one single key",
        "ns a hit and thread",
        &[
            "one thread: median",
            "least",
            "two threads: median",
            "least",
            "two ÷ one",
            "on the clock",
        ],
    );
    section.notes = vec![
        format!(
            "a request of {} bytes, its reply of {} bytes copied into a buffer of {BUFFER_BYTES} \
             bytes; {hits} hits a sample, contenders in turn",
            COMMAND.len(),
            reply().len()
        ),
        "times are CPU time of the measuring threads; the last column is the ratio of time on the \
         clock, in which waiting for a lock shows as well"
            .to_owned(),
        "rivals: bytes of user, database, protocol and request to `Arc<[u8]>`, with the hash \
         functions they come with; TinyUFO compares hashes only. None of them knows about links, \
         epochs and deadlines"
            .to_owned(),
    ];
    for contender in contenders {
        let cpu = contender.cpu_ns();
        let ratio = cpu.two.median / cpu.one.median;
        let cells = cpu.one.cells().into_iter().chain(cpu.two.cells());
        let ratios = [ratio, contender.clock_ratio()].map(|ratio| format!("{ratio:.2}"));
        section.row(contender.name, cells.chain(ratios));
        if contender.name == HEATSINK {
            let goal = |what, ns, limit| Goal::of_time(what, ns, limit, "ns", judged);
            section.goals = vec![
                goal("a hit, one thread", cpu.one.median, ONE_THREAD_NS),
                goal("a hit, each of two threads", cpu.two.median, TWO_THREADS_NS),
            ];
        }
    }
    section
}

/// Where replies are copied to.
struct Output(Vec<u8>);

impl Output {
    fn new() -> Self {
        Self(Vec::with_capacity(BUFFER_BYTES))
    }

    #[inline]
    fn push(&mut self, reply: &[u8]) {
        if self.0.len() + reply.len() > BUFFER_BYTES {
            black_box(&self.0);
            self.0.clear();
        }
        self.0.extend_from_slice(reply);
    }
}

fn reply() -> Vec<u8> {
    format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES)).into_bytes()
}

/// A worker's cache that holds the reply.
fn filled(reply: &[u8]) -> Result<LocalCache, String> {
    let mut cache = LocalCache::new(Limits::default());
    let link = cache.link_opened(READER.login);
    if let Registered::New(token) = cache.register(KEY, KeySettings::default()) {
        cache.write_done(token);
    }
    let Lookup::Miss(token) = cache.lookup(Duration::ZERO, READER, KEY, COMMAND) else {
        return Err("an empty cache knows a reply".to_owned());
    };
    if !cache.filled(Duration::ZERO, token.sent_on(link), reply, Ttl::Unlimited) {
        return Err("the cache did not take the reply".to_owned());
    }
    Ok(cache)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_hits_and_only_heatsink_is_judged() {
        let section = hits_of_all(1, 100, true).expect("a run");
        assert_eq!(section.rows.len(), 6);
        assert_eq!(section.goals.len(), 2);
        assert!(section.goals.iter().all(|goal| goal.reached.is_some()));
        let unjudged = hits_of_all(1, 100, false).expect("a run");
        assert!(unjudged.goals.iter().all(|goal| goal.reached.is_none()));
    }

    #[test]
    fn a_hit_is_the_reply_that_was_filled_in() {
        let mut cache = filled(&reply()).expect("a cache");
        let hit = cache.hit(Duration::from_secs(1), READER, COMMAND);
        assert_eq!(hit.map(|hit| hit.reply.to_vec()), Some(reply()));
        assert!(cache.hit(Duration::from_secs(1), READER, b"GET other").is_none());
    }
}
