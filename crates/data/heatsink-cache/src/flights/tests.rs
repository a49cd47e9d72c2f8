//! The rules of joining, one by one.

use std::time::Duration;

use super::{FlightId, FlightLimits, Flights, Joined};
use crate::identity::{LoginId, Protocol, Reader};

const READER: Reader = Reader { login: LoginId(1), protocol: Protocol::Resp2 };

fn at_ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn flights() -> Flights<u32> {
    Flights::new(FlightLimits { max_wait: at_ms(100), ..FlightLimits::default() })
}

fn join(flights: &mut Flights<u32>, waiter: u32) -> Joined<u32> {
    flights.join(Duration::ZERO, READER, b"k", b"GET k", waiter)
}

fn send(flights: &mut Flights<u32>, waiter: u32) -> FlightId {
    match join(flights, waiter) {
        Joined::Send(flight) => flight,
        other => panic!("{other:?}"),
    }
}

fn answered(flights: &mut Flights<u32>, flight: FlightId) -> (Vec<u32>, Option<FlightId>) {
    let mut waiters = Vec::new();
    let next = flights.answered(flight, &mut waiters);
    (waiters, next)
}

#[test]
fn a_flight_that_has_not_left_is_joined() {
    let mut flights = flights();
    let flight = send(&mut flights, 1);
    assert_eq!(join(&mut flights, 2), Joined::Waiting(flight));
    flights.sent(flight);
    assert_eq!(answered(&mut flights, flight), (vec![1, 2], None));
    assert!(flights.is_empty());
    assert_eq!(flights.joined(), 1);
}

#[test]
fn a_flight_that_has_left_is_not() {
    // 1. read 1 leaves   2. a write is executed and answered   3. read 2 arrives
    // 4. read 1 is answered with what was before the write: not for read 2
    let mut flights = flights();
    let first = send(&mut flights, 1);
    flights.sent(first);
    assert!(matches!(join(&mut flights, 2), Joined::Next(flight) if flight != first));
    assert!(matches!(join(&mut flights, 3), Joined::Waiting(flight) if flight != first));
    let (waiters, next) = answered(&mut flights, first);
    assert_eq!(waiters, [1]);
    let second = next.expect("the flight behind is sent now");
    assert_eq!(flights.request(second), Some((READER, &b"k"[..], &b"GET k"[..])));
    // Handed to the caller, but not on its way yet.
    assert_eq!(join(&mut flights, 4), Joined::Waiting(second));
    flights.sent(second);
    assert_eq!(answered(&mut flights, second), (vec![2, 3, 4], None));
}

#[test]
fn at_most_one_is_out_and_one_fills() {
    let mut flights = flights();
    let first = send(&mut flights, 0);
    flights.sent(first);
    assert!(matches!(join(&mut flights, 1), Joined::Next(_)));
    for waiter in 2..100 {
        assert!(matches!(join(&mut flights, waiter), Joined::Waiting(_)));
    }
    assert_eq!(flights.len(), 2);
    // All but the two that these are sent for.
    assert_eq!(flights.joined(), 98);
}

#[test]
fn other_readers_and_other_commands_fly_alone() {
    let mut flights = flights();
    let first = send(&mut flights, 1);
    let resp3 = Reader { protocol: Protocol::Resp3, ..READER };
    let other = Reader { login: LoginId(2), ..READER };
    for (reader, command) in [(resp3, "GET k"), (other, "GET k"), (READER, "STRLEN k")] {
        let joined = flights.join(Duration::ZERO, reader, b"k", command.as_bytes(), 2);
        assert!(matches!(joined, Joined::Send(flight) if flight != first), "{command}");
    }
}

#[test]
fn an_error_goes_to_all_and_the_next_flight_goes_on() {
    let mut flights = flights();
    let first = send(&mut flights, 1);
    assert_eq!(join(&mut flights, 2), Joined::Waiting(first));
    flights.sent(first);
    join(&mut flights, 3);
    let mut waiters = Vec::new();
    let next = flights.failed(first, &mut waiters);
    assert_eq!(waiters, [1, 2]);
    assert_eq!(answered(&mut flights, next.unwrap()).0, [3]);
}

#[test]
fn an_answer_to_a_flight_that_ended_concerns_nobody() {
    let mut flights = flights();
    let first = send(&mut flights, 1);
    flights.sent(first);
    assert_eq!(answered(&mut flights, first).0, [1]);
    let second = send(&mut flights, 2); // in the same place
    assert_eq!(answered(&mut flights, first), (vec![], None));
    flights.sent(first);
    assert_eq!(join(&mut flights, 3), Joined::Waiting(second));
    assert_eq!(flights.request(first), None);
}

#[test]
fn waits_are_bounded_and_the_flight_goes_on() {
    let mut flights = flights();
    let first = send(&mut flights, 1);
    assert!(matches!(flights.join(at_ms(50), READER, b"k", b"GET k", 2), Joined::Waiting(_)));
    flights.sent(first);
    assert!(matches!(flights.join(at_ms(60), READER, b"k", b"GET k", 3), Joined::Next(_)));
    assert_eq!(flights.next_deadline(), Some(at_ms(100)));
    let mut late = Vec::new();
    flights.expired(at_ms(99), &mut late);
    assert!(late.is_empty());
    flights.expired(at_ms(100), &mut late);
    assert_eq!(late, [1]);
    flights.expired(at_ms(160), &mut late);
    late.sort_unstable();
    assert_eq!(late, [1, 2, 3]);
    assert_eq!(flights.next_deadline(), None);
    // Nobody waits in the flight behind: it is not sent.
    assert_eq!(answered(&mut flights, first), (vec![], None));
    assert!(flights.is_empty());
}

#[test]
fn who_can_be_answered_otherwise_waits_no_longer() {
    let mut flights = flights();
    let first = send(&mut flights, 1);
    for (ms, waiter) in [(10, 2), (20, 3), (30, 4)] {
        let joined = flights.join(at_ms(ms), READER, b"k", b"GET k", waiter);
        assert_eq!(joined, Joined::Waiting(first));
    }
    let mut told = Vec::new();
    flights.take_waiting(at_ms(20), |_, _, waiter| *waiter != 2, |_, _, waiter| told.push(waiter));
    assert_eq!(told, [1, 3], "2 has no answer, 4 has not waited long enough");
    assert_eq!(answered(&mut flights, first), (vec![2, 4], None));
}

#[test]
fn a_bumped_epoch_detaches() {
    // 1. read 1 out, read 2 fills   2. a write of the key is sent   3. read 3 arrives: it
    // waits for neither
    let mut flights = flights();
    let first = send(&mut flights, 1);
    flights.sent(first);
    join(&mut flights, 2);
    let mut to_send = Vec::new();
    flights.detach(b"other", &mut to_send);
    assert!(to_send.is_empty());
    flights.detach(b"k", &mut to_send);
    let [second] = *to_send else { panic!("{to_send:?}") };
    let third = send(&mut flights, 3);
    assert_eq!(answered(&mut flights, second), (vec![2], None));
    assert_eq!(answered(&mut flights, first), (vec![1], None));
    assert_eq!(answered(&mut flights, third), (vec![3], None));
    assert!(flights.is_empty());
}

#[test]
fn who_leaves_harms_nobody() {
    let mut flights = flights();
    let first = send(&mut flights, 1);
    join(&mut flights, 2);
    flights.sent(first);
    join(&mut flights, 1);
    assert_eq!(flights.leave(|waiter| *waiter == 1), 2);
    assert_eq!(answered(&mut flights, first), (vec![2], None));
    assert!(flights.is_empty());
}

#[test]
fn limits_refuse_and_give_the_waiter_back() {
    let limits = FlightLimits { flights: 2, waiters: 2, ..FlightLimits::default() };
    let mut flights = Flights::new(limits);
    let first = send(&mut flights, 1);
    join(&mut flights, 2);
    assert_eq!(join(&mut flights, 3), Joined::Refused(3));
    flights.sent(first);
    assert!(matches!(join(&mut flights, 4), Joined::Next(_)));
    assert_eq!(flights.join(Duration::ZERO, READER, b"l", b"GET l", 5), Joined::Refused(5));
    let next = answered(&mut flights, first).1;
    assert_eq!(answered(&mut flights, next.unwrap()).0, [4]);
    assert!(matches!(flights.join(Duration::ZERO, READER, b"l", b"GET l", 6), Joined::Send(_)));
}

#[test]
fn a_peak_leaves_nothing_behind_and_old_ids_stay_dead() {
    let mut flights = flights();
    let mut ids = Vec::new();
    for number in 0..1000_u32 {
        let command = format!("GET {number}");
        match flights.join(Duration::ZERO, READER, b"k", command.as_bytes(), number) {
            Joined::Send(flight) => ids.push(flight),
            other => panic!("{other:?}"),
        }
    }
    for (number, &flight) in ids.iter().enumerate() {
        assert_eq!(answered(&mut flights, flight), (vec![number as u32], None));
    }
    assert!(flights.is_empty());
    assert_eq!(flights.slots.len(), super::KEPT_FLIGHTS);
    let fresh = send(&mut flights, 1);
    assert!(ids.iter().all(|&old| old != fresh && flights.request(old).is_none()));
    assert_eq!(answered(&mut flights, fresh).0, [1]);
}
