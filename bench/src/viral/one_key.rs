//! One key that takes half of all requests, at default settings.
//!
//! Called by: `viral`.
//! Bound: `PATIENCE` until it is cooled, then the requests of the effort.
//! Invariant: only the viral key is read with GET, the others with GETRANGE of the whole value,
//! so that Redis's own count of GETs is that of the viral key and of what is done about it. The
//! same process with mitigations off shows that the count is right.

use std::time::{Duration, Instant};

use heatsink_testkit::{RedisServer, encode};

use super::Effort;
use super::lanes::Lanes;
use crate::peer::{Backend, Peer};
use crate::preload;
use crate::section::{Goal, Section};

const VIRAL_KEY: &str = "viral";
const OTHERS: usize = 10_000;
const CONNECTIONS: usize = 50;
/// Turns between two looks at what reached Redis.
const BLOCK_TURNS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);
const UPSTREAM_SHARE_MAX: f64 = 0.001;
/// The part of the requests that shows that the count is right.
const CONTROL_PART: u64 = 10;

/// What was seen.
#[derive(Default)]
struct Seen {
    onset_ms: Option<f64>,
    /// GETs that had reached Redis until then.
    reached_before: u64,
    requests_per_second: f64,
    sent: u64,
    reached: u64,
}

impl Seen {
    fn share(&self) -> f64 {
        self.reached as f64 / self.sent as f64
    }

    fn cells(&self) -> [String; 6] {
        [
            format!("{:.0}", self.requests_per_second),
            self.onset_ms.map_or("-".to_owned(), |ms| format!("{ms:.0}")),
            self.reached_before.to_string(),
            self.sent.to_string(),
            self.reached.to_string(),
            format!("{:.4}", self.share() * 100.0),
        ]
    }
}

/// With mitigations and without.
pub(crate) fn reads(effort: &Effort) -> Result<Section, String> {
    let cooled = measure(effort, &[], effort.viral_requests, true)?;
    let off = ["--local-cache-enabled", "false", "--coalesce-enabled", "false"];
    let control = measure(effort, &off, effort.viral_requests / CONTROL_PART, false)?;
    let mut section = Section::new(
        "A viral key with half of the traffic",
        "",
        &[
            "requests/s",
            "ms until it is cooled",
            "its GETs that reached Redis until then",
            "its GETs afterwards",
            "reached Redis",
            "%",
        ],
    );
    section.notes = vec![
        format!(
            "settings as they are by default (threshold 1000/s, the fleet meets in the same \
             Redis), but for one worker; {CONNECTIONS} connections with a request each; beside \
             the key {OTHERS} others, uniform"
        ),
        "counted by Redis: GET is only used for the viral key, the others are read with GETRANGE \
         0 -1; cooled is from the first of 1000 requests on of which no GET reached Redis"
            .to_owned(),
    ];
    section.row("heatsink", cooled.cells());
    section.row("heatsink, mitigations off", control.cells());
    section.goals = goals(&cooled, &control);
    Ok(section)
}

fn goals(cooled: &Seen, control: &Seen) -> Vec<Goal> {
    let share = cooled.share();
    vec![
        Goal::of_fact(
            "GETs of a viral key that reach Redis",
            format!("at most {} %", UPSTREAM_SHARE_MAX * 100.0),
            format!("{:.4} %", share * 100.0),
            cooled.onset_ms.is_some() && share <= UPSTREAM_SHARE_MAX,
        ),
        Goal::of_fact(
            "the same without mitigations, as a check of the count",
            "100 %",
            format!("{:.4} %", control.share() * 100.0),
            control.sent == control.reached,
        ),
    ]
}

fn measure(effort: &Effort, args: &[&str], requests: u64, waits: bool) -> Result<Seen, String> {
    let redis = Backend::server();
    let store = format!("redis://{}", redis.addr().ok_or("there is no server")?);
    let args = [args, &["--coordination-url", &store]].concat();
    let (peer, _) = effort.choice.start_with_admin("heatsink", redis, &args)?;
    let redis = server(&peer)?;
    let keys: Vec<String> = (0..OTHERS).map(other).chain([VIRAL_KEY.to_owned()]).collect();
    preload::set_all(redis.addr(), &keys, &"v".repeat(100)).map_err(|error| error.to_string())?;
    let mut lanes = Lanes::connect(peer.target.addr, CONNECTIONS)?;
    let mut traffic = Traffic { random: fastrand::Rng::with_seed(1), viral: 0 };
    let mut seen = Seen::default();
    let at_first = redis.calls("get");
    let started = Instant::now();
    let mut before = at_first;
    while waits && seen.onset_ms.is_none() && started.elapsed() < PATIENCE {
        let at_ms = started.elapsed().as_secs_f64() * 1e3;
        for _ in 0..BLOCK_TURNS {
            lanes.turn(|| traffic.next())?;
        }
        let after = redis.calls("get");
        seen.onset_ms = (after == before).then_some(at_ms);
        before = after;
    }
    seen.reached_before = before - at_first;
    traffic.viral = 0;
    let started = Instant::now();
    let mut done = 0;
    while done < requests {
        done += lanes.turn(|| traffic.next())?;
    }
    seen.requests_per_second = done as f64 / started.elapsed().as_secs_f64();
    seen.reached = redis.calls("get") - before;
    seen.sent = traffic.viral;
    Ok(seen)
}

/// Requests of which every other one, by chance, is for the viral key.
struct Traffic {
    random: fastrand::Rng,
    /// Those for it.
    viral: u64,
}

impl Traffic {
    fn next(&mut self) -> Vec<u8> {
        if self.random.bool() {
            self.viral += 1;
            return encode(&["GET", VIRAL_KEY]);
        }
        encode(&["GETRANGE", &other(self.random.usize(..OTHERS)), "0", "-1"])
    }
}

fn other(number: usize) -> String {
    format!("other:{number:08}")
}

/// The one server behind a peer.
pub(super) fn server(peer: &Peer) -> Result<&RedisServer, String> {
    peer.servers().first().copied().ok_or_else(|| "there is no server".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_never_cooled_is_a_miss_and_so_is_a_wrong_count() {
        let reached = |onset_ms, reached, control_reached| {
            let cooled = Seen { onset_ms, sent: 10_000, reached, ..Seen::default() };
            let control = Seen { sent: 100, reached: control_reached, ..Seen::default() };
            goals(&cooled, &control).iter().map(|goal| goal.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(Some(1.0), 10, 100), [Some(true), Some(true)]);
        assert_eq!(reached(Some(1.0), 11, 99), [Some(false), Some(false)]);
        assert_eq!(reached(None, 0, 101), [Some(false), Some(false)]);
    }
}
