//! Many keys by a law, so many of them hot that the cache is full: hits beside those of a cache
//! that knows the law.
//!
//! Called by: `viral`.
//! Bound: the times and requests of its size.
//! Invariant: both see the same requests in the same order, and forget a key when it is written.
//! Hits are reads that were sent less GETs that Redis counted, so what the cache reads ahead
//! counts against it.

use std::time::{Duration, Instant};

use heatsink_testkit::{ProcStats, encode};

use super::Effort;
use super::lanes::Lanes;
use super::one_key::server;
use crate::admin;
use crate::detect::stream::Zipf;
use crate::peer::Backend;
use crate::preload;
use crate::section::{Goal, Section};

const READ_SHARE: f64 = 0.95;
const CONNECTIONS: usize = 50;
const POINTS_MAX: f64 = 5.0;

/// How large it is.
pub(crate) struct Size {
    keys: usize,
    entries: usize,
    /// Requests a second that make a key hot.
    threshold: u32,
    warm_up: Duration,
    requests: u64,
}

impl Size {
    pub(crate) const WHOLE: Self = Self {
        keys: 100_000,
        entries: 2048,
        threshold: 1,
        warm_up: Duration::from_secs(20),
        requests: 1_000_000,
    };
    pub(crate) const QUICK: Self = Self {
        keys: 5_000,
        entries: 64,
        threshold: 10,
        warm_up: Duration::from_secs(3),
        requests: 20_000,
    };
}

/// One request, of the key of that rank.
#[derive(Clone, Copy)]
enum Request {
    Read(usize),
    Write(usize),
}

/// A cache that holds the keys which the law makes the hottest, and no others.
struct Ideal {
    holds: Vec<bool>,
    reads: u64,
    hits: u64,
}

impl Ideal {
    fn new(entries: usize) -> Self {
        Self { holds: vec![false; entries], reads: 0, hits: 0 }
    }

    fn see(&mut self, request: Request) {
        match request {
            Request::Read(rank) => {
                self.reads += 1;
                if let Some(holds) = self.holds.get_mut(rank) {
                    self.hits += u64::from(*holds);
                    *holds = true;
                }
            }
            Request::Write(rank) => {
                if let Some(holds) = self.holds.get_mut(rank) {
                    *holds = false;
                }
            }
        }
    }

    /// Counts from now on.
    fn reset(&mut self) {
        (self.reads, self.hits) = (0, 0);
    }

    fn ratio(&self) -> f64 {
        self.hits as f64 / self.reads as f64
    }
}

/// The hit ratio beside the ideal one.
pub(crate) fn hits(effort: &Effort) -> Result<Section, String> {
    let size = &effort.zipf;
    let threshold = size.threshold.to_string();
    let args = [
        "--detect-hot-threshold",
        &threshold,
        "--detect-report-threshold",
        &threshold,
        "--local-cache-entries",
        &size.entries.to_string(),
    ];
    let (peer, api) = effort.choice.start_with_admin("heatsink", Backend::server(), &args)?;
    let redis = server(&peer)?;
    let name = |rank: usize| format!("item:{rank:08}");
    let value = "v".repeat(100);
    let keys: Vec<String> = (0..size.keys).map(name).collect();
    preload::set_all(redis.addr(), &keys, &value).map_err(|error| error.to_string())?;
    let mut lanes = Lanes::connect(peer.target.addr, CONNECTIONS)?;
    let law = Zipf::new(size.keys);
    let mut random = fastrand::Rng::with_seed(1);
    let mut ideal = Ideal::new(size.entries);
    let mut turn = |ideal: &mut Ideal| {
        lanes.turn(|| {
            let rank = law.draw(&mut random);
            if random.f64() < READ_SHARE {
                ideal.see(Request::Read(rank));
                encode(&["GET", &keys[rank]])
            } else {
                ideal.see(Request::Write(rank));
                encode(&["SET", &keys[rank], &value])
            }
        })
    };
    let started = Instant::now();
    while started.elapsed() < size.warm_up {
        turn(&mut ideal)?;
    }
    ideal.reset();
    let before = redis.calls("get");
    let cpu_seconds = || -> f64 {
        let stats = peer.pids().into_iter().filter_map(|pid| ProcStats::of(pid).ok());
        stats.map(|stats| stats.cpu_seconds).sum()
    };
    let cpu_before = cpu_seconds();
    let started = Instant::now();
    let mut done = 0;
    while done < size.requests {
        done += turn(&mut ideal)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_per_million = (cpu_seconds() - cpu_before) * 1e6 / done as f64;
    let reached = redis.calls("get") - before;
    let own = 1.0 - reached as f64 / ideal.reads as f64;
    let mut section =
        Section::new("Zipf 0.99, a full cache", "", &["reads", "hits", "hit ratio, %"]);
    section.notes = vec![
        format!(
            "{} keys, {} % reads, {CONNECTIONS} connections with a request each, {:.0} requests/s, \
             CPU s/M of all threads {cpu_per_million:.2}; {} entries at most, threshold {}/s",
            size.keys,
            READ_SHARE * 100.0,
            done as f64 / seconds,
            size.entries,
            size.threshold
        ),
        format!(
            "hits: reads that were sent less GETs that Redis counted, after {:.0} s of the same \
             traffic; hot keys at the end: {}",
            size.warm_up.as_secs_f64(),
            hot_keys(&admin::metrics(api)?)
        ),
    ];
    let cells = |hits: u64, ratio: f64| {
        [ideal.reads.to_string(), hits.to_string(), format!("{:.2}", ratio * 100.0)]
    };
    section.row("heatsink", cells(ideal.reads.saturating_sub(reached), own));
    let best = format!("a cache that holds the {} hottest", size.entries);
    section.row(best, cells(ideal.hits, ideal.ratio()));
    section.goals.push(goal(own, ideal.ratio(), effort.judges_hits));
    Ok(section)
}

fn goal(own: f64, ideal: f64, judged: bool) -> Goal {
    let points = (ideal - own) * 100.0;
    Goal {
        what: "hit ratio below that of an ideal cache",
        limit: format!("at most {POINTS_MAX} points"),
        figure: format!("{points:.2} points"),
        reached: judged.then_some(points <= POINTS_MAX),
    }
}

/// Entries of the registry, whatever is done about them.
fn hot_keys(metrics: &str) -> f64 {
    let entries = metrics.lines().filter(|line| line.starts_with("heatsink_registry_entries{"));
    entries.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_cache_holds_what_was_read_since_it_was_written() {
        let mut ideal = Ideal::new(2);
        for rank in [0, 0, 1, 2, 2] {
            ideal.see(Request::Read(rank));
        }
        assert_eq!((ideal.reads, ideal.hits), (5, 1));
        ideal.reset();
        for request in [Request::Write(0), Request::Read(0), Request::Read(0), Request::Read(1)] {
            ideal.see(request);
        }
        assert_eq!((ideal.reads, ideal.hits), (3, 2));
    }

    #[test]
    fn five_points_less_than_ideal_is_enough() {
        assert_eq!(goal(0.56, 0.61, true).reached, Some(true));
        assert_eq!(goal(0.55, 0.61, true).reached, Some(false));
        assert_eq!(goal(0.1, 0.6, false).reached, None);
    }

    #[test]
    fn hot_keys_of_all_mitigations_are_summed() {
        let metrics = "heatsink_registry_entries{mitigation=\"local_cache\",origin=\"auto\"} 7\n\
                       heatsink_registry_entries{mitigation=\"coalesce\",origin=\"auto\"} 2\n\
                       heatsink_registry_version 17\n";
        assert!((hot_keys(metrics) - 9.0).abs() < f64::EPSILON);
    }
}
