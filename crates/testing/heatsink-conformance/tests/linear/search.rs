//! The question put to the checker: a server of which it is not known what else it executes.
//!
//! Called by: `history`, which states the operations; the checker calls back for each step.
//! Bound: [`set_budget`] executions a search.
//! Invariant: an operation whose outcome is unknown is executed at most once and not before it
//! began, nor is it forgotten that it may be.
//!
//! A server that has unknown operations before it can be in many states. All of them are one
//! state for the checker: operations that are not answered begin, at the instant at which they
//! were called, and are executed when an answer cannot be explained without them. Were they
//! operations like others, every subset of them would be a search of its own.
//!
//! A text that is gone does not come back (see [`crate::workload`]), so it is not replaced while
//! there are answers to come that saw it. The checker would find out by itself, but late.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use heatsink_testkit::Reply;
use todc_utils::Specification;

use crate::model::Command;

/// One operation of a history.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) keys: Range<usize>,
    pub(crate) command: Command,
    pub(crate) turn: Turn,
    pub(crate) seen: Arc<Seen>,
}

/// Those that are not answered can be alike.
impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        let are_open = [self, other].iter().all(|one| matches!(one.turn, Turn::Begun));
        are_open && self.keys == other.keys && self.command == other.command
    }
}

impl Eq for Operation {}

impl Hash for Operation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.keys, &self.command).hash(state);
    }
}

/// How many answers of a history saw a text, for each key.
pub(crate) type Seen = HashMap<(usize, String), u16>;

/// What is known of an operation.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// It was answered. For each key it is behind so many others of its connection, whose place
    /// stands in front.
    Answered { places: Vec<(usize, u16)>, reply: Reply },
    /// It may be executed from now on.
    Begun,
}

/// One state that the server can be in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Possibility {
    values: Vec<Option<String>>,
    /// How many answers to come saw the value, if it is a text.
    awaited: Vec<u16>,
    /// How much of each that is open has not been executed.
    open: Vec<u16>,
}

impl Possibility {
    /// Whether all that can come of `other` can come of this.
    fn covers(&self, other: &Self) -> bool {
        self.values == other.values
            && self.awaited == other.awaited
            && self.open.iter().zip(&other.open).all(|(a, b)| a >= b)
    }

    /// Executes a command; `None` if that cannot be now.
    fn execute(&mut self, operation: &Operation) -> Option<Reply> {
        LEFT.set(LEFT.get().saturating_sub(1));
        let Operation { keys, command, turn, seen } = operation;
        if self.values.len() < keys.end {
            self.values.resize(keys.end, None);
            self.awaited.resize(keys.end, 0);
        }
        let before = self.values[keys.clone()].to_vec();
        let reply = command.execute(&mut self.values[keys.clone()]);
        let sees = matches!(turn, Turn::Answered { .. }) && command.shows_value();
        for (key, before) in keys.clone().zip(before) {
            if sees {
                self.awaited[key] = self.awaited[key].saturating_sub(1);
            }
            if self.values[key] == before {
                continue;
            }
            if self.awaited[key] > 0 {
                return None;
            }
            let count = self.values[key].as_ref().and_then(|text| seen.get(&(key, text.clone())));
            self.awaited[key] = count.copied().unwrap_or(0);
        }
        Some(reply)
    }
}

/// All that is known of the server, and who has got how far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    possible: Vec<Possibility>,
    /// What may be executed; those that are alike are one.
    begun: Arc<Vec<Operation>>,
    /// For each connection and key.
    connections: Vec<u16>,
}

impl State {
    /// Something may be executed from now on.
    fn begin(&self, operation: &Operation) -> Self {
        let mut next = self.clone();
        let index = self.begun.iter().position(|other| other == operation);
        let index = index.unwrap_or_else(|| {
            Arc::make_mut(&mut next.begun).push(operation.clone());
            self.begun.len()
        });
        for possibility in &mut next.possible {
            possibility.open.resize(next.begun.len(), 0);
            possibility.open[index] += 1;
        }
        next
    }

    /// What the server may be like when it has given this answer.
    fn after(&self, operation: &Operation, reply: &Reply) -> Vec<Possibility> {
        let keys = &operation.keys;
        let mut seen = self.possible.clone();
        let mut after: Vec<Possibility> = Vec::new();
        let mut looked_at = 0;
        while looked_at < seen.len() && !is_exhausted() {
            let before = seen[looked_at].clone();
            looked_at += 1;
            let mut next = before.clone();
            let fits = next.execute(operation).is_some_and(|answer| answer == *reply);
            if fits && !after.iter().any(|other| other.covers(&next)) {
                after.retain(|other| !next.covers(other));
                after.push(next);
            }
            // Most replies tell the value: whatever leads there leads to the same, with less
            // left to be executed.
            let is_settled = fits && !matches!(operation.command, Command::Append(_));
            for (index, open) in self.begun.iter().enumerate() {
                let is_apart = open.keys.end <= keys.start || keys.end <= open.keys.start;
                let is_useless = is_apart || (is_settled && open.keys.len() == 1);
                if is_useless || before.open[index] == 0 {
                    continue;
                }
                let mut next = before.clone();
                next.open[index] -= 1;
                let can_be = next.execute(open).is_some();
                if can_be && !seen.iter().any(|other| other.covers(&next)) {
                    seen.push(next);
                }
            }
        }
        after
    }
}

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Limits how much the search of this thread may execute.
pub(crate) fn set_budget(executions: u64) {
    LEFT.set(executions);
}

/// Whether it wanted more: what it said then means nothing.
pub(crate) fn is_exhausted() -> bool {
    LEFT.get() == 0
}

/// A server with keys that are not there yet.
#[derive(Debug)]
pub(crate) struct Server;

impl Specification for Server {
    type State = State;
    type Operation = Operation;

    fn init() -> State {
        State {
            possible: vec![Possibility::default()],
            begun: Arc::default(),
            connections: Vec::new(),
        }
    }

    fn apply(operation: &Operation, state: &State) -> (bool, State) {
        let Turn::Answered { places, reply } = &operation.turn else {
            return (true, state.begin(operation));
        };
        let place = |place: usize| state.connections.get(place).copied().unwrap_or(0);
        let is_next = places.iter().all(|(of_connection, number)| place(*of_connection) == *number);
        let refused = || (false, Self::init());
        if !is_next || is_exhausted() {
            return refused();
        }
        let possible = state.after(operation, reply);
        if possible.is_empty() {
            return refused();
        }
        let mut connections = state.connections.clone();
        for (place, number) in places {
            let len = connections.len().max(place + 1);
            connections.resize(len, 0);
            connections[*place] = number + 1;
        }
        (true, State { possible, begun: Arc::clone(&state.begun), connections })
    }
}
