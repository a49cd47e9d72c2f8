//! How long writers wait while a key is split and made whole, and how long readers do.
//!
//! Called by: `split`.
//! Bound: the moves asked for; after each pair, [`QUIET`] in which nothing is moved.
//! Invariant: what writers were told is what the value is in the end; the same client is watched
//! while nothing is moved, so the machine's own pauses can be told from those of a move.

use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RawClient, Reply, encode};

use super::callers::{Caller, Exchange, Seen, Window, longest_gap, longest_wait};
use super::rig::Rig;
use super::{Effort, FACTOR};
use crate::section::{Goal, Section};
use crate::spread::Spread;

/// Clients that write beside the one that is watched.
const OTHERS: usize = 8;
const QUIET: Duration = Duration::from_millis(100);
/// What the API has said reaches the workers a little later.
const SETTLE: Duration = Duration::from_millis(50);
const MEMBERS: usize = 10_000;
const COUNTER_P99_MS: f64 = 20.0;
const SET_P99_MS: f64 = 200.0;

/// What is moved, and what is said about it.
struct Subject {
    title: &'static str,
    key: &'static str,
    moves: usize,
    goal: &'static str,
    limit_ms: f64,
    whole: &'static str,
    refusals: &'static str,
}

/// A counter that is incremented and read.
pub(crate) fn of_a_counter(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    let subject = Subject {
        title: "Writes held while a counter is moved",
        key: "freeze:counter",
        moves: effort.counter_moves,
        goal: "a counter: longest time without an acknowledged write, p99 of the moves",
        limit_ms: COUNTER_P99_MS,
        whole: "a counter: its value in the end",
        refusals: "a counter: requests refused, or answered wrongly",
    };
    ask(&mut rig.client()?, &["SET", subject.key, "0"])?;
    let key = subject.key;
    let writer = || {
        let is_right = |reply: &Reply| matches!(reply, Reply::Integer(_));
        Caller::start(rig.target().addr, move || encode(&["INCR", key]), is_right)
    };
    let mut last = 0;
    let never_less = move |reply: &Reply| {
        let value = reply.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
        let is_right = value.is_some_and(|value: u64| value >= last);
        last = value.unwrap_or(last).max(last);
        is_right
    };
    let reader = Caller::start(rig.target().addr, move || encode(&["GET", key]), never_less)?;
    let value = |rig: &Rig, written: u64| {
        let value = ask(&mut rig.client()?, &["GET", key])?.text();
        Ok((format!("{written} increments"), value.clone(), value == written.to_string()))
    };
    measure(effort, &rig, &subject, &writer, reader, value)
}

/// A set of 10 000 members, to which members are added that it has.
pub(crate) fn of_a_set(effort: &Effort) -> Result<Section, String> {
    let rig = Rig::start(&effort.choice)?;
    let subject = Subject {
        title: "Writes held while a set of 10 000 members is moved",
        key: "freeze:set",
        moves: effort.set_moves,
        goal: "a large set: longest time without an acknowledged write, p99 of the moves",
        limit_ms: SET_P99_MS,
        whole: "a large set: its members in the end",
        refusals: "a large set: requests refused, or answered wrongly",
    };
    let key = subject.key;
    let member = |number: usize| format!("member:{number:06}");
    let mut client = rig.client()?;
    for start in (0..MEMBERS).step_by(1_000) {
        let mut add = vec!["SADD".to_owned(), key.to_owned()];
        add.extend((start..start + 1_000).map(member));
        ask(&mut client, &add)?;
    }
    let random = move |command: &'static str, seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        move || encode(&[command, key, &member(random.usize(..MEMBERS))])
    };
    let seeds = std::cell::Cell::new(1);
    let writer = || {
        seeds.set(seeds.get() + 1);
        // It has them all.
        let is_right = |reply: &Reply| *reply == Reply::Integer(0);
        Caller::start(rig.target().addr, random("SADD", seeds.get()), is_right)
    };
    let is_right = |reply: &Reply| *reply == Reply::Integer(1);
    let reader = Caller::start(rig.target().addr, random("SISMEMBER", 0), is_right)?;
    let value = |rig: &Rig, _| {
        let count = ask(&mut rig.client()?, &["SCARD", key])?.integer();
        Ok((MEMBERS.to_string(), count.to_string(), count == MEMBERS as i64))
    };
    measure(effort, &rig, &subject, &writer, reader, value)
}

/// Moves the key to and fro under load.
fn measure(
    effort: &Effort,
    rig: &Rig,
    subject: &Subject,
    writer: &dyn Fn() -> Result<Caller, String>,
    reader: Caller,
    value_of: impl Fn(&Rig, u64) -> Result<(String, String, bool), String>,
) -> Result<Section, String> {
    let watched = writer()?;
    let others = (0..OTHERS).map(|_| writer()).collect::<Result<Vec<_>, _>>()?;
    thread::sleep(QUIET);
    let [mut splits, mut wholes, mut quiet] = [const { Vec::<Window>::new() }; 3];
    for _ in 0..subject.moves {
        splits.push(during(|| rig.split(subject.key))?);
        wholes.push(during(|| rig.make_whole(subject.key))?);
        quiet.push(during(|| {
            thread::sleep(QUIET);
            Ok(())
        })?);
    }
    let (watched, reads) = (watched.stop()?, reader.stop()?);
    let others = others.into_iter().map(Caller::stop).collect::<Result<Vec<_>, _>>()?;
    let mut written = watched.exchanges.len();
    written += others.iter().map(|seen| seen.exchanges.len()).sum::<usize>();

    let mut section = Section::new(
        subject.title,
        "ms",
        &["times", "least", "p50", "p99", "most", "a read: p50", "p99", "most"],
    );
    section.notes = vec![
        format!(
            "one client writes in a loop and is watched, {OTHERS} more write beside it, and one \
             reads; the key is split into {FACTOR} and made whole over the admin API"
        ),
        "longest time between two acknowledged writes around a move, and longest wait of a read; \
         nothing is moved: the same, in the 100 ms after each pair of moves"
            .to_owned(),
        format!(
            "{written} writes and {} reads; whole moves took {} ms at p50, from the request to \
             the API until it said that all was done",
            reads.exchanges.len(),
            shown(Spread::of(splits.iter().chain(&wholes).map(length_ms).collect()).p50)
        ),
    ];
    let gaps = |windows: &[Window]| of_windows(windows, &watched.exchanges, longest_gap);
    let waits = |windows: &[Window]| of_windows(windows, &reads.exchanges, longest_wait);
    for (name, windows) in
        [("split", &splits), ("made whole", &wholes), ("nothing is moved", &quiet)]
    {
        let (gap, wait) = (Spread::of(gaps(windows)), Spread::of(waits(windows)));
        let cells = [gap.least, gap.p50, gap.p99, gap.most, wait.p50, wait.p99, wait.most];
        section.row(name, [windows.len().to_string()].into_iter().chain(cells.map(shown)));
    }
    let moves: Vec<Window> = splits.iter().chain(&wholes).copied().collect();
    let p99 = Spread::of(gaps(&moves)).p99;
    let all = || others.iter().chain([&watched, &reads]);
    let refused: u64 = all().map(|seen: &Seen| seen.refused).sum();
    let one = all().find_map(|seen| seen.refusal.clone());
    let found = match one {
        Some(one) => {
            format!("{} writes and {} reads: {one}", refused - reads.refused, reads.refused)
        }
        None => refused.to_string(),
    };
    let (expected, value, is_right) = value_of(rig, written as u64)?;
    section.goals = vec![
        Goal::of_time(subject.goal, p99, subject.limit_ms, "ms", effort.judges_times),
        Goal {
            what: subject.refusals,
            limit: "none".to_owned(),
            figure: found,
            // Rare, and no harm: nothing was done. A short run says nothing about it.
            reached: effort.judges_times.then_some(refused == 0),
        },
        Goal::of_fact(subject.whole, expected, value, is_right),
    ];
    Ok(section)
}

fn during(work: impl FnOnce() -> Result<(), String>) -> Result<Window, String> {
    let from = Instant::now();
    work()?;
    let to = Instant::now();
    thread::sleep(SETTLE);
    Ok(Window { from, to })
}

fn of_windows(
    windows: &[Window],
    exchanges: &[Exchange],
    figure: fn(&[Exchange], Window) -> f64,
) -> Vec<f64> {
    windows.iter().map(|window| figure(exchanges, *window)).collect()
}

fn length_ms(window: &Window) -> f64 {
    (window.to - window.from).as_secs_f64() * 1e3
}

fn shown(figure: f64) -> String {
    format!("{figure:.1}")
}

fn ask<A: AsRef<[u8]>>(client: &mut RawClient, args: &[A]) -> Result<Reply, String> {
    match client.try_command(args) {
        Ok(Reply::Error(error)) => Err(format!("heatsink answered: {error}")),
        answer => answer.map_err(|error| format!("heatsink: {error}")),
    }
}
