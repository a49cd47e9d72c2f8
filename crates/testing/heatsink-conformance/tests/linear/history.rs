//! What clients recorded, and whether one plain server can have answered so.
//!
//! Called by: every test here, once for each history.
//! Bound: [`BUDGET`] executions of the model for each search.
//! Invariant: an operation that was answered is executed once between its call and its reply,
//! and behind those that its connection sent before; one whose outcome is unknown is executed
//! once after its call, or never.
//!
//! Keys are looked at one by one where nothing is about several: a history is linearizable if it
//! is for each of them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use heatsink_testkit::Reply;
use todc_utils::{Action, History as Actions, WGLChecker};

use crate::model::Command;
use crate::search::{self, Operation, Seen, Server, Turn};
use crate::workload::TEXT;

/// Far more than a history that can be explained has needed so far.
const BUDGET: u64 = 1_000_000;
/// Operations shown of a history that cannot be explained.
const SHOWN: usize = 40;

/// One operation as a client saw it; times are of one clock that counts.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) connection: usize,
    pub(crate) keys: Range<usize>,
    pub(crate) command: Command,
    pub(crate) called: u64,
    /// When the reply was there, and what it said; `None` if the outcome is unknown.
    pub(crate) answer: Option<(u64, Reply)>,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, keys, command, called, answer } = self;
        let returned = answer.as_ref().map_or("?".to_owned(), |(time, _)| time.to_string());
        write!(f, "{called:>4} {returned:>4}  c{connection:<3} k{} {command}", keys.start)?;
        answer.as_ref().map_or(Ok(()), |(_, reply)| write!(f, " -> {reply}"))
    }
}

/// What the checker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Linearizable,
    Violated,
    /// The search took too long.
    Undecided,
}

/// What was recorded of a few keys that did not exist before.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Recorded>,
}

impl History {
    /// Looks at each key; the first that is not right, if any, and what is wrong with it. False if
    /// that could not be told of all of them.
    pub(crate) fn check(&self) -> Result<bool, String> {
        let mut is_decided = true;
        for part in self.parts() {
            match part.verdict() {
                Verdict::Linearizable => {}
                Verdict::Violated => return Err(part.explain()),
                Verdict::Undecided => is_decided = false,
            }
        }
        Ok(is_decided)
    }

    /// Whether all of it, taken as one, can be explained.
    pub(crate) fn verdict(&self) -> Verdict {
        let actions = self.actions();
        if actions.is_empty() {
            return Verdict::Linearizable;
        }
        search::set_budget(BUDGET);
        let found = WGLChecker::<Server>::is_linearizable(Actions::from_actions(actions));
        match (found, search::is_exhausted()) {
            (true, _) => Verdict::Linearizable,
            (false, false) => Verdict::Violated,
            (false, true) => Verdict::Undecided,
        }
    }

    pub(crate) fn unknown(&self) -> usize {
        self.operations.iter().filter(|operation| operation.answer.is_none()).count()
    }

    /// What can be looked at by itself.
    fn parts(&self) -> Vec<Self> {
        if self.operations.iter().any(|one| one.keys.len() > 1) {
            return vec![self.clone()];
        }
        let keys: BTreeSet<usize> = self.operations.iter().map(|one| one.keys.start).collect();
        let of_key = |key| self.operations.iter().filter(move |one| one.keys.start == key);
        keys.into_iter().map(|key| Self { operations: of_key(key).cloned().collect() }).collect()
    }

    /// Calls and replies in the order of time; what is unknown only begins.
    fn actions(&self) -> Vec<(usize, Action<Operation>)> {
        let mut operations: Vec<&Recorded> = self.operations.iter().collect();
        operations.sort_by_key(|one| one.called);
        let mut connections = HashMap::new();
        let seen = Arc::new(self.seen());
        let mut actions = Vec::new();
        for (process, one) in operations.into_iter().enumerate() {
            let turn = match &one.answer {
                Some((_, reply)) => {
                    let place = |key| next(&mut connections, (one.connection, key));
                    let places = one.keys.clone().map(place).collect();
                    Turn::Answered { places, reply: reply.clone() }
                }
                // It changes nothing, and nobody knows what it read.
                None if one.command.is_read() => continue,
                None => Turn::Begun,
            };
            let (keys, command) = (one.keys.clone(), one.command.clone());
            let operation = Operation { keys, command, turn, seen: Arc::clone(&seen) };
            let returned = one.answer.as_ref().map_or(one.called, |(returned, _)| *returned);
            actions.push((one.called, process, Action::Call(operation.clone())));
            actions.push((returned, process, Action::Response(operation)));
        }
        // Keeps the end of what only begins right behind its beginning.
        actions.sort_by_key(|(time, ..)| *time);
        actions.into_iter().map(|(_, process, action)| (process, action)).collect()
    }

    /// How many answers saw which text. Numbers come and go, so they are not counted.
    fn seen(&self) -> Seen {
        let mut seen = Seen::new();
        for one in self.operations.iter().filter(|one| one.command.shows_value()) {
            let Some((_, reply)) = &one.answer else { continue };
            let values = match reply {
                Reply::Array(values) => &values[..],
                value => std::slice::from_ref(value),
            };
            for (key, value) in one.keys.clone().zip(values) {
                if let Some(bytes) = value.bytes().filter(|bytes| bytes.starts_with(TEXT)) {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    *seen.entry((key, text)).or_default() += 1;
                }
            }
        }
        seen
    }

    /// What was known when the first `replies` replies had come.
    fn until(&self, replies: usize) -> Self {
        let mut times: Vec<u64> = self.replies().collect();
        times.sort_unstable();
        let end = times[replies - 1];
        let begun = self.operations.iter().filter(|one| one.called < end);
        let known = begun.map(|one| {
            let answer = one.answer.clone().filter(|(returned, _)| *returned <= end);
            Recorded { answer, ..one.clone() }
        });
        Self { operations: known.collect() }
    }

    fn replies(&self) -> impl Iterator<Item = u64> {
        self.operations.iter().filter_map(|one| Some(one.answer.as_ref()?.0))
    }

    /// The history up to the first reply that cannot be.
    pub(crate) fn explain(&self) -> String {
        let mut ends = 1..=self.replies().count();
        let first = ends.find(|replies| self.until(*replies).verdict() == Verdict::Violated);
        let Some(first) = first else { return format!("violated:\n{self}") };
        let shown = self.until(first);
        let last = shown.operations.iter().max_by_key(|one| one.answer.as_ref().map(|a| a.0));
        let last = last.expect("there is a reply");
        format!("no order explains the reply of [{last}]; the last before it:\n{shown}")
    }
}

/// A small number for `name`, and how often it was asked for before.
fn next<N: Eq + Hash>(numbers: &mut HashMap<N, (usize, u16)>, name: N) -> (usize, u16) {
    let fresh = numbers.len();
    let (index, count) = numbers.entry(name).or_insert((fresh, 0));
    *count += 1;
    (*index, *count - 1)
}

/// The last operations by the time of their calls: call, reply, connection, key, what.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut operations: Vec<&Recorded> = self.operations.iter().collect();
        operations.sort_by_key(|one| one.called);
        let hidden = operations.len().saturating_sub(SHOWN);
        if hidden > 0 {
            writeln!(f, "  {hidden} before these")?;
        }
        for one in &operations[hidden..] {
            writeln!(f, "  {one}")?;
        }
        Ok(())
    }
}
