//! The rules of combining, one by one.

use std::time::Duration;

use super::{Added, Answer, BatchId, BatchLimits, Batches, Change, Shape};
use crate::identity::LoginId;

const LOGIN: LoginId = LoginId(1);

struct Rig {
    batches: Batches<u32>,
    now: Duration,
}

fn at_ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Rig {
    fn new() -> Self {
        let limits =
            BatchLimits { batch_members: 5, members: 20, value_bytes: 10, max_wait: at_ms(100) };
        Self { batches: Batches::new(limits), now: Duration::ZERO }
    }

    /// Adds a command of a connection that is the waiter, too.
    fn add(&mut self, waiter: u32, command: &str) -> Added<u32> {
        let args: Vec<&str> = command.split(' ').collect();
        let change = Change::parse(&args).expect("a command that can be combined");
        self.batches.add(self.now, LOGIN, u64::from(waiter), &change, waiter)
    }

    fn send(&mut self, waiter: u32, command: &str) -> BatchId {
        match self.add(waiter, command) {
            Added::Ready(ready) => self.batches.depart(ready).unwrap(),
            other => panic!("{command}: {other:?}"),
        }
    }

    fn wait(&mut self, waiter: u32, command: &str) {
        assert!(matches!(self.add(waiter, command), Added::Waiting { .. }), "{command}");
    }

    /// The words of what is sent for a batch.
    fn sent(&self, batch: BatchId) -> String {
        let mut bytes = Vec::new();
        assert!(self.batches.request(batch, &mut bytes));
        let text = String::from_utf8(bytes).unwrap();
        text.split("\r\n").skip(2).step_by(2).collect::<Vec<_>>().join(" ")
    }

    fn integer(&mut self, batch: BatchId, result: i64) -> (Vec<(u32, i64)>, Option<BatchId>) {
        let mut replies = Vec::new();
        let next = self.batches.answered(batch, Answer::Integer(result), &mut replies);
        let next = next.and_then(|ready| self.batches.depart(ready));
        let number = |answer| match answer {
            Answer::Integer(number) => number,
            Answer::Ok => panic!("not a number"),
        };
        (replies.into_iter().map(|(waiter, answer)| (waiter, number(answer))).collect(), next)
    }

    fn refused(&mut self, batch: BatchId) -> (Vec<u32>, Option<BatchId>) {
        let mut waiters = Vec::new();
        let next = self.batches.refused(batch, &mut waiters);
        let next = next.and_then(|ready| self.batches.depart(ready));
        (waiters, next)
    }
}

#[test]
fn what_arrives_while_one_is_out_goes_out_as_one() {
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    assert_eq!(rig.sent(first), "INCR k");
    rig.wait(2, "INCR k");
    rig.wait(3, "INCRBY k 10");
    rig.wait(2, "incr k");
    let (replies, second) = rig.integer(first, 1);
    assert_eq!(replies, [(1, 1)]);
    let second = second.unwrap();
    assert_eq!(rig.sent(second), "INCRBY k 12");
    assert_eq!(rig.batches.describe(second), Some((LOGIN, &b"k"[..], 3)));
    // 100 before, by a foreign writer: the replies are the sums on the way.
    let (replies, next) = rig.integer(second, 112);
    assert_eq!((replies, next), (vec![(2, 101), (3, 111), (2, 112)], None));
    assert!(rig.batches.is_empty());
    assert_eq!(rig.batches.combined(), 2);
}

#[test]
fn other_keys_fields_logins_and_families_do_not_wait() {
    let mut rig = Rig::new();
    for (waiter, command) in [
        "INCR k",
        "INCR l",
        "HINCRBY k f 1",
        "HINCRBY k g 1",
        "HINCRBY k  1",
        "SET k 1",
        "ZINCRBY k 1 f",
        "INCRBYFLOAT k 1",
    ]
    .iter()
    .enumerate()
    {
        rig.send(waiter as u32, command);
    }
    let change = Change::parse(&["INCR", "k"]).unwrap();
    assert!(matches!(rig.batches.add(rig.now, LoginId(2), 9, &change, 9), Added::Ready(_)));
}

#[test]
fn a_field_of_a_hash() {
    let mut rig = Rig::new();
    let first = rig.send(1, "HINCRBY k f 5");
    rig.wait(2, "HINCRBY k f 2");
    rig.wait(3, "HINCRBY k f 3");
    let second = rig.integer(first, 5).1.unwrap();
    assert_eq!(rig.sent(second), "HINCRBY k f 5");
    assert_eq!(rig.integer(second, 10).0, [(2, 7), (3, 10)]);
}

#[test]
fn a_batch_has_one_sign_and_there_is_one_for_each() {
    // With both signs in one batch: 9223372036854775807 + 1 - 1 fits, + 1 alone does not.
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCR k");
    rig.wait(3, "DECR k");
    rig.wait(4, "INCR k");
    rig.wait(5, "DECRBY k 4");
    rig.wait(6, "INCRBY k 0");
    let second = rig.integer(first, 1).1.unwrap();
    assert_eq!(rig.sent(second), "INCRBY k 2");
    let (replies, third) = rig.integer(second, 3);
    assert_eq!(replies, [(2, 2), (4, 3), (6, 3)]);
    let third = third.unwrap();
    assert_eq!(rig.sent(third), "INCRBY k -5");
    assert_eq!(rig.integer(third, -2).0, [(3, 2), (5, -2)]);
}

#[test]
fn writes_of_one_connection_keep_their_order() {
    // 1. filling: [+1 of 2] [-1 of 3]   2. 3 increments: not into the first batch
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCR k");
    rig.wait(3, "DECR k");
    rig.wait(3, "INCR k");
    let second = rig.integer(first, 1).1.unwrap();
    assert_eq!(rig.sent(second), "INCR k");
    let third = rig.integer(second, 2).1.unwrap();
    assert_eq!(rig.sent(third), "DECR k");
    let fourth = rig.integer(third, 1).1.unwrap();
    assert_eq!(rig.sent(fourth), "INCR k");
    assert_eq!(rig.integer(fourth, 2), (vec![(3, 2)], None));
}

#[test]
fn a_sum_beyond_64_bits_starts_the_next_batch() {
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCRBY k 9223372036854775807");
    rig.wait(3, "INCR k");
    rig.wait(4, "DECRBY k 9223372036854775807");
    rig.wait(5, "DECR k");
    rig.wait(6, "DECR k");
    let second = rig.integer(first, 1).1.unwrap();
    assert_eq!(rig.sent(second), "INCRBY k 9223372036854775807");
    let third = rig.refused(second);
    assert_eq!(third.0, [2], "a lone one gets the error itself");
    let third = third.1.unwrap();
    assert_eq!(rig.sent(third), "INCR k");
    let fourth = rig.integer(third, 2).1.unwrap();
    assert_eq!(rig.sent(fourth), "INCRBY k -9223372036854775808");
    let (replies, fifth) = rig.integer(fourth, 2 + i64::MIN);
    assert_eq!(replies, [(4, 2 - i64::MAX), (5, 2 + i64::MIN)]);
    assert_eq!(rig.sent(fifth.unwrap()), "DECR k");
}

#[test]
fn what_the_server_refuses_goes_one_by_one_before_all_others() {
    // 1. the value is 9223372036854775805   2. +1, +2, +1 go out as +4: refused as a whole
    // 3. +1 fits, +2 does not, +1 does
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCR k");
    rig.wait(3, "INCRBY k 2");
    rig.wait(4, "INCR k");
    let second = rig.integer(first, i64::MAX - 2).1.unwrap();
    rig.wait(5, "INCR k");
    let (errors, single) = rig.refused(second);
    assert!(errors.is_empty());
    let single = single.unwrap();
    assert_eq!(rig.sent(single), "INCR k");
    rig.wait(6, "DECR k");
    let (replies, single) = rig.integer(single, i64::MAX - 1);
    assert_eq!(replies, [(2, i64::MAX - 1)]);
    let single = single.unwrap();
    assert_eq!(rig.sent(single), "INCRBY k 2");
    let (errors, single) = rig.refused(single);
    assert_eq!(errors, [3]);
    let (replies, others) = rig.integer(single.unwrap(), i64::MAX);
    assert_eq!(replies, [(4, i64::MAX)]);
    assert_eq!(rig.sent(others.unwrap()), "INCR k");
    assert_eq!(rig.batches.len(), 2);
}

#[test]
fn an_unknown_outcome_is_told_to_all_and_never_sent_again() {
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCR k");
    rig.wait(3, "INCR k");
    let second = rig.integer(first, 1).1.unwrap();
    rig.wait(4, "INCR k");
    let mut waiters = Vec::new();
    let third = rig.batches.lost(second, &mut waiters).unwrap();
    let third = rig.batches.depart(third).unwrap();
    assert_eq!(waiters, [2, 3]);
    // A reply that comes late concerns nobody.
    assert_eq!(rig.integer(second, 3), (vec![], None));
    assert_eq!(rig.sent(third), "INCR k");
    assert_eq!(rig.integer(third, 4), (vec![(4, 4)], None));
}

#[test]
fn of_sets_the_last_goes_out_and_all_are_acknowledged() {
    let mut rig = Rig::new();
    let first = rig.send(1, "SET k a");
    rig.wait(2, "SET k b");
    rig.wait(3, "SET k c");
    let mut replies = Vec::new();
    let second = rig.batches.answered(first, Answer::Ok, &mut replies).unwrap();
    let second = rig.batches.depart(second).unwrap();
    assert_eq!(rig.sent(second), "SET k c");
    assert_eq!(rig.batches.answered(second, Answer::Ok, &mut replies), None);
    assert_eq!(replies, [(1, Answer::Ok), (2, Answer::Ok), (3, Answer::Ok)]);
}

#[test]
fn refused_sets_all_get_the_error() {
    let mut rig = Rig::new();
    let first = rig.send(1, "SET k a");
    rig.wait(2, "SET k b");
    rig.wait(3, "SET k c");
    let (errors, second) = rig.refused(first);
    assert_eq!(errors, [1]);
    assert_eq!(rig.refused(second.unwrap()), (vec![2, 3], None));
}

#[test]
fn what_was_not_sent_in_time_is_not_sent() {
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCRBY k 10");
    rig.now = at_ms(50);
    rig.wait(3, "INCR k");
    rig.wait(4, "INCR k");
    assert_eq!(rig.batches.next_deadline(), Some(at_ms(100)));
    let mut late = Vec::new();
    rig.batches.expired(at_ms(100), &mut late);
    assert_eq!(late, [2], "the one that is out is not given up here");
    let second = rig.integer(first, 1).1.unwrap();
    assert_eq!(rig.sent(second), "INCRBY k 2");
    assert_eq!(rig.integer(second, 3), (vec![(3, 2), (4, 3)], None));
    assert!(rig.batches.is_empty());
}

/// ```text
/// 1. SET a is out, SET b waits      2. the longest wait is lowered      3. SET c joins b
/// 4. c is given up before b         5. b's batch leaves, with c's value
/// ```
#[test]
fn what_was_given_up_is_not_sent_for_another_when_the_longest_wait_is_lowered() {
    let mut rig = Rig::new();
    let first = rig.send(1, "SET k a");
    rig.wait(2, "SET k b");
    rig.batches.set_limits(BatchLimits { max_wait: at_ms(20), ..BatchLimits::default() });
    rig.now = at_ms(10);
    rig.wait(3, "SET k c");
    let mut late = Vec::new();
    rig.batches.expired(at_ms(19), &mut late);
    assert!(late.is_empty());
    assert_eq!(rig.batches.next_deadline(), Some(at_ms(20)));
    rig.batches.expired(at_ms(20), &mut late);
    assert_eq!(late, [2], "the new bound is for those who wait, too");
    rig.batches.expired(at_ms(30), &mut late);
    assert_eq!(late, [2, 3]);
    let mut replies = Vec::new();
    let next = rig.batches.answered(first, Answer::Ok, &mut replies);
    assert_eq!((replies, next), (vec![(1, Answer::Ok)], None), "nothing is left to be sent");
}

#[test]
fn who_leaves_is_not_answered_but_counted() {
    let mut rig = Rig::new();
    let first = rig.send(1, "INCR k");
    rig.wait(2, "INCR k");
    rig.wait(3, "INCR k");
    assert_eq!(rig.batches.leave(|waiter| *waiter < 3), 2);
    let (replies, second) = rig.integer(first, 1);
    assert!(replies.is_empty());
    assert_eq!(rig.sent(second.unwrap()), "INCRBY k 2");
    assert_eq!(rig.integer(second.unwrap(), 3), (vec![(3, 3)], None));
}

#[test]
fn limits_on_batches_members_and_values() {
    let mut rig = Rig::new();
    let first = rig.send(0, "INCR k");
    for waiter in 1..20 {
        rig.wait(waiter, "INCR k");
    }
    assert_eq!(rig.add(20, "INCR k"), Added::Refused(20));
    assert_eq!(rig.add(20, "SET k 12345678901"), Added::Refused(20));
    let second = rig.integer(first, 1).1.unwrap();
    assert_eq!(rig.sent(second), "INCRBY k 5");
    assert_eq!(rig.add(20, "SET k 12345678901"), Added::Refused(20), "too long a value");
    rig.wait(20, "INCR k");
}

#[test]
fn scores_are_combined_behind_a_look_at_the_value() {
    let mut rig = Rig::new();
    let first = rig.send(1, "ZINCRBY z 1 m");
    assert_eq!(rig.sent(first), "ZINCRBY z 1 m");
    assert_eq!(rig.batches.shape(first), Some(Shape::AsIs), "a lone one may find anything");
    rig.wait(2, "ZINCRBY z 2 m");
    rig.wait(3, "ZINCRBY z 3 m");
    let mut waiters = Vec::new();
    let second = rig.batches.relayed(first, &mut waiters).unwrap();
    assert_eq!(waiters, [1]);
    let second = rig.batches.depart(second).unwrap();
    let sent = rig.sent(second);
    assert!(sent.starts_with("EVAL ") && sent.ends_with(" 1 z 5 m"), "{sent}");
    assert_eq!(rig.batches.shape(second), Some(Shape::Score));
    assert_eq!(rig.integer(second, 6).0, [(2, 3), (3, 6)]);
    let other = rig.send(4, "INCRBYFLOAT n 1");
    rig.wait(5, "INCRBYFLOAT n 1");
    rig.wait(6, "INCRBYFLOAT n 1");
    let both = rig.batches.relayed(other, &mut waiters).unwrap();
    let both = rig.batches.depart(both).unwrap();
    assert!(rig.sent(both).ends_with(" 1 n 2"));
    assert_eq!(rig.batches.shape(both), Some(Shape::Text));
}

#[test]
fn where_a_look_is_refused_those_who_wait_go_alone_too() {
    // 1. the score is 0.5   2. a batch is refused; 4 and 5 have come meanwhile
    // 3. all go one by one, in the order in which they came
    let mut rig = Rig::new();
    let first = rig.send(1, "ZINCRBY z 1 m");
    rig.wait(2, "ZINCRBY z 2 m");
    rig.wait(3, "ZINCRBY z 3 m");
    let mut waiters = Vec::new();
    let second = rig.batches.relayed(first, &mut waiters).unwrap();
    let second = rig.batches.depart(second).unwrap();
    rig.wait(4, "ZINCRBY z -4 m");
    rig.wait(5, "ZINCRBY z 5 m");
    let (errors, mut next) = rig.refused(second);
    assert!(errors.is_empty());
    for (waiter, by) in [(2, "2"), (3, "3"), (4, "-4"), (5, "5")] {
        let single = next.expect("one more");
        assert_eq!(rig.sent(single), format!("ZINCRBY z {by} m"));
        waiters.clear();
        let pool = rig.batches.relayed(single, &mut waiters);
        assert_eq!(waiters, [waiter]);
        next = pool.and_then(|pool| rig.batches.depart(pool));
    }
    assert_eq!(next, None);
    assert!(rig.batches.is_empty());
}

#[test]
fn a_batch_of_scores_ends_where_doubles_do() {
    let mut rig = Rig::new();
    let first = rig.send(1, "ZINCRBY z 1 m");
    rig.wait(2, "ZINCRBY z 999999999999999 m");
    rig.wait(3, "ZINCRBY z 1 m");
    rig.wait(4, "ZINCRBY z 1 m");
    let mut waiters = Vec::new();
    let second = rig.batches.relayed(first, &mut waiters).unwrap();
    let second = rig.batches.depart(second).unwrap();
    assert!(rig.sent(second).ends_with(" 1 z 1000000000000000 m"));
    let third = rig.integer(second, 1_000_000_000_000_001).1.unwrap();
    assert_eq!(rig.sent(third), "ZINCRBY z 1 m");
}

#[test]
fn many_who_write_the_same_are_held_for_company() {
    let limits = BatchLimits::default();
    let mut rig = Rig { batches: Batches::new(limits), now: Duration::ZERO };
    let mut batch = rig.send(0, "INCR k");
    let mut held = 0;
    for round in 0..20_u32 {
        (0..5).for_each(|client| rig.wait(1 + (round * 5 + client) % 60, "INCR k"));
        let mut replies = Vec::new();
        let next = rig.batches.answered(batch, Answer::Integer(1), &mut replies).unwrap();
        if let Some(mut hold) = rig.batches.hold(rig.now, next, replies.len()) {
            held += 1;
            assert!(!rig.batches.is_over(rig.now, next, &mut hold), "the same turn");
            (0..20).for_each(|client| rig.wait(100 + (round * 20 + client) % 100, "INCR k"));
            assert!(rig.batches.is_over(rig.now, next, &mut hold), "enough have come");
        }
        batch = rig.batches.depart(next).unwrap();
    }
    assert!((1..=8).contains(&held), "{held}: not before they are known to be many");
    // All have their answers for a moment; they are many still.
    let mut replies = Vec::new();
    assert_eq!(rig.batches.answered(batch, Answer::Integer(1), &mut replies), None);
    let first = rig.send(1, "INCR k");
    (2..10).for_each(|client| rig.wait(client, "INCR k"));
    replies.clear();
    let next = rig.batches.answered(first, Answer::Integer(1), &mut replies).unwrap();
    assert_eq!(rig.batches.hold(rig.now, next, 1), None, "that one went alone");
    assert!(rig.batches.hold(rig.now, next, 8).is_some());
}
