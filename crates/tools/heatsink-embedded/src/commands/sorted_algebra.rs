//! Unions, intersections and differences of sorted sets; plain sets take part with score 1.
//!
//! Called by: `table`.

use crate::args::{Args, counted_keys, int, is};
use crate::commands::sets::cardinality_limit;
use crate::commands::sorted_ranges::write_pairs;
use crate::commands::sorted_sets::stored_score;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Reply;
use crate::sorted_set::{Pair, SortedSet};
use crate::value::{Map, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            // Infinities of both signs cancel to zero rather than to NaN.
            Self::Sum => Some(a + b).filter(|sum| !sum.is_nan()).unwrap_or(0.0),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

struct Request<'a> {
    keys: Args<'a>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl<'a> Request<'a> {
    /// Reads `numkeys key [key ...] [WEIGHTS ...] [AGGREGATE ...] [WITHSCORES]`.
    fn parse(
        db: &mut Db,
        args: Args<'a>,
        operation: Operation,
        stores: bool,
        name: &str,
    ) -> Result<Self, Failure> {
        let (keys, options) = keys_of(db, args, name)?;
        let mut request =
            Self { keys, weights: Vec::new(), aggregate: Aggregate::Sum, with_scores: false };
        let mut rest = options.iter();
        while let Some(arg) = rest.next() {
            if operation != Operation::Difference && is(arg, "weights") && rest.len() >= keys.len()
            {
                request.weights.clear();
                for weight in rest.by_ref().take(keys.len()) {
                    let weight = number::double(weight);
                    let weight = weight.ok_or(Failure::of("ERR weight value is not a float"))?;
                    request.weights.push(weight);
                }
            } else if operation != Operation::Difference && is(arg, "aggregate") {
                request.aggregate = match rest.next() {
                    Some(word) if is(word, "sum") => Aggregate::Sum,
                    Some(word) if is(word, "min") => Aggregate::Min,
                    Some(word) if is(word, "max") => Aggregate::Max,
                    _ => return Err(Failure::SYNTAX),
                };
            } else if !stores && is(arg, "withscores") {
                request.with_scores = true;
            } else {
                return Err(Failure::SYNTAX);
            }
        }
        Ok(request)
    }

    fn weight(&self, at: usize) -> f64 {
        self.weights.get(at).copied().unwrap_or(1.0)
    }
}

/// Splits the keys from the options; the keys are looked at before the options are.
fn keys_of<'a>(db: &mut Db, args: Args<'a>, name: &str) -> Result<(Args<'a>, Args<'a>), Failure> {
    if int(args[0])? < 1 {
        return Err(Failure::new(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let (keys, options) = counted_keys(args)?;
    for key in keys {
        match db.find(key).map(|entry| &entry.value) {
            None | Some(Value::Set(_) | Value::SortedSet(_)) => {}
            Some(_) => return Err(Failure::WRONG_TYPE),
        }
    }
    Ok((keys, options))
}

/// The members under a key with their weighted scores.
fn weighted(db: &mut Db, key: &[u8], weight: f64) -> Result<Map<f64>, Failure> {
    let score = |score: f64| Some(score * weight).filter(|s| !s.is_nan()).unwrap_or(0.0);
    match db.find(key).map(|entry| &entry.value) {
        None => Ok(Map::default()),
        Some(Value::SortedSet(sorted)) => {
            Ok(sorted.iter().map(|(member, given)| (member.to_vec(), score(given))).collect())
        }
        Some(Value::Set(set)) => {
            Ok(set.iter().map(|member| (member.clone(), score(1.0))).collect())
        }
        Some(_) => Err(Failure::WRONG_TYPE),
    }
}

fn combine(db: &mut Db, request: &Request<'_>, operation: Operation) -> Result<SortedSet, Failure> {
    let mut inputs = Vec::with_capacity(request.keys.len());
    for (at, key) in request.keys.iter().enumerate() {
        inputs.push(weighted(db, key, request.weight(at))?);
    }
    let (first, others) = inputs.split_first_mut().ok_or(Failure::SYNTAX)?;
    for other in others {
        match operation {
            Operation::Union => {
                for (member, score) in other {
                    first
                        .entry(member.clone())
                        .and_modify(|sum| *sum = request.aggregate.apply(*sum, *score))
                        .or_insert(*score);
                }
            }
            Operation::Intersection => first.retain(|member, sum| {
                let score = other.get(member);
                if let Some(score) = score {
                    *sum = request.aggregate.apply(*sum, *score);
                }
                score.is_some()
            }),
            Operation::Difference => first.retain(|member, _| !other.contains_key(member)),
        }
    }
    let mut result = SortedSet::default();
    for (member, score) in first.drain(..) {
        result.insert(&member, score);
    }
    Ok(result)
}

fn show(
    db: &mut Db,
    args: Args<'_>,
    reply: &mut Reply,
    operation: Operation,
    name: &str,
) -> Outcome {
    let request = Request::parse(db, &args[1..], operation, false, name)?;
    let result = combine(db, &request, operation)?;
    let pairs: Vec<Pair<'_>> = result.iter().collect();
    write_pairs(&pairs, request.with_scores, reply)
}

fn keep(
    db: &mut Db,
    args: Args<'_>,
    reply: &mut Reply,
    operation: Operation,
    name: &str,
) -> Outcome {
    let request = Request::parse(db, &args[2..], operation, true, name)?;
    let mut result = SortedSet::default();
    for (member, score) in combine(db, &request, operation)?.iter() {
        result.insert(member, stored_score(score));
    }
    reply.len(result.len());
    if result.is_empty() {
        db.delete(args[1]);
    } else {
        db.store(args[1], Value::SortedSet(result));
    }
    Ok(())
}

pub(crate) fn zunion(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Operation::Union, "zunion")
}

pub(crate) fn zinter(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Operation::Intersection, "zinter")
}

pub(crate) fn zdiff(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    show(db, args, reply, Operation::Difference, "zdiff")
}

pub(crate) fn zunionstore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    keep(db, args, reply, Operation::Union, "zunionstore")
}

pub(crate) fn zinterstore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    keep(db, args, reply, Operation::Intersection, "zinterstore")
}

pub(crate) fn zdiffstore(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    keep(db, args, reply, Operation::Difference, "zdiffstore")
}

pub(crate) fn zintercard(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let (keys, options) = keys_of(db, &args[1..], "zintercard")?;
    let limit = cardinality_limit(options)?;
    let request =
        Request { keys, weights: Vec::new(), aggregate: Aggregate::Sum, with_scores: false };
    reply.len(combine(db, &request, Operation::Intersection)?.len().min(limit));
    Ok(())
}
