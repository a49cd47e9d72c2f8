//! What a reply means for the request that it answers.

use std::io;
use std::time::Duration;

use super::{Connection, Sent};
use crate::memory::Question;
use crate::recorder::Outcome;
use crate::round::{Round, counter_place, ordinal};
use crate::verdict::Kind;
use crate::workload::{Action, KeyId};

/// A reply, as far as this program asks for any.
enum Reply<'a> {
    Ok,
    Nil,
    Bulk(&'a [u8]),
    Integer(i64),
    Error(&'a [u8]),
    Other,
}

impl<'a> Reply<'a> {
    fn read(frame: &'a [u8]) -> Self {
        let Some((kind, rest)) = frame.split_first() else { return Self::Other };
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else { return Self::Other };
        let line = &rest[..end];
        match kind {
            b'+' => Self::Ok,
            b'-' => Self::Error(line),
            b'_' => Self::Nil,
            b':' => number(line).map_or(Self::Other, Self::Integer),
            b'$' if line == b"-1" => Self::Nil,
            b'$' => rest.get(end + 2..rest.len() - 2).map_or(Self::Other, Self::Bulk),
            _ => Self::Other,
        }
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Connection {
    /// Takes the next reply.
    pub(super) fn on_reply(
        &mut self,
        frame: &[u8],
        round: &Round<'_>,
        now: Duration,
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        let reply = Reply::read(frame);
        if self.greeting_left > 0 {
            self.greeting_left -= 1;
            return match reply {
                Reply::Error(text) => Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    String::from_utf8_lossy(text).into_owned(),
                )),
                _ => Ok(()),
            };
        }
        let Some(sent) = self.sent.pop_front() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply to no request"));
        };
        outcome.answered += 1;
        let measured = round.measures(sent.due);
        if let Reply::Error(text) = reply {
            outcome.errors.add(|| String::from_utf8_lossy(text).into_owned());
            if measured {
                outcome.record_error(round.part(sent.due));
            }
            return Ok(());
        }
        self.judge(&sent, &reply, round, now, outcome);
        if measured {
            outcome.record(round.part(sent.due), now.saturating_sub(sent.due));
            match sent.operation.action {
                Action::Read => outcome.reads += 1,
                Action::Write => outcome.writes += 1,
                Action::Count => outcome.increments += 1,
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        sent: &Sent,
        reply: &Reply<'_>,
        round: &Round<'_>,
        now: Duration,
        outcome: &mut Outcome,
    ) {
        let key = sent.operation.key;
        let name = || key.name(round.prefix);
        let shown = || name().escape_ascii().to_string();
        match (sent.operation.action, reply, round.value_place(key)) {
            (Action::Write, Reply::Ok, Some(at)) => {
                round.ledger.acknowledge(at, sent.floor);
                self.memory.remember(at, sent.version, sent.floor);
            }
            (Action::Read, Reply::Nil, Some(_)) if key == KeyId::Expiring => {
                outcome.misses += 1;
                // One at a time: a client that computes does not compute twice.
                if self.recomputed_at.is_none() {
                    self.recomputed_at = Some(now + round.options.recompute);
                }
            }
            (Action::Read, Reply::Nil, _) => outcome.mismatches.add(Kind::Missing, shown),
            (Action::Read, Reply::Bulk(value), Some(at)) => {
                let name = name();
                let question = Question { at, key: &name, superseded: sent.superseded };
                let mismatches = &mut outcome.mismatches;
                let stale = self.memory.judge_value(question, value, round.ledger, mismatches);
                outcome.stale_reads += u64::from(stale);
            }
            (Action::Read, Reply::Bulk(text), None) => {
                self.judge_counter(key, number(text), false, round, outcome);
            }
            (Action::Count, Reply::Integer(value), None) => {
                if key == KeyId::Stock {
                    let sold = *value >= 0;
                    *(if sold { &mut outcome.sold } else { &mut outcome.sold_out }) += 1;
                }
                self.judge_counter(key, Some(*value), true, round, outcome);
            }
            _ => {
                outcome
                    .mismatches
                    .add(Kind::Corrupted, || format!("{}: unexpected reply", shown()));
            }
        }
    }

    fn judge_counter(
        &mut self,
        key: KeyId,
        value: Option<i64>,
        increment: bool,
        round: &Round<'_>,
        outcome: &mut Outcome,
    ) {
        let ordinal = value.and_then(|value| ordinal(key, value, round.options));
        match (counter_place(key, round.options), ordinal) {
            (Some(at), Some(ordinal)) => {
                let mismatches = &mut outcome.mismatches;
                self.memory.judge_counter(at, ordinal, increment, round.ledger, mismatches);
            }
            _ => outcome.mismatches.add(Kind::Corrupted, || format!("a counter of {value:?}")),
        }
    }
}
