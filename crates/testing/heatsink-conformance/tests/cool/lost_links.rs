//! Links that are lost, or fall silent, at the worst moment: each test draws its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{Rig, Way};
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{RawClient, Reply, eventually};

use crate::interleavings::{Arranged, BOTH, assert_waits};
use crate::served::SOON;

/// What the server tells of a change of `k`.
const PUSH: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";

/// ```text
/// 1. the key is cached                      2. somebody writes it: the server tells
/// 3. A's read is executed: new              4. word of the change arrives
/// 5. the link is lost before A's reply
/// ```
#[test]
fn a_link_that_is_lost_between_word_of_a_change_and_a_reply() {
    let rig = Arranged::new(Treatment::COHERENT);
    for round in 0..5 {
        let value = format!("new{round}");
        rig.warm();
        rig.relay.set(Way::HoldTracked);
        rig.server.client().command(&["SET", "k", &value]);
        rig.relay.wait_held(PUSH);
        let mut first = rig.read(20);
        rig.relay.wait_held(value.as_bytes());
        rig.relay.set(Way::CutTrackedBehind(PUSH.to_vec()));
        let told = first.read_reply();
        assert!(told.is_error() || told == Reply::bulk(&value), "{told}");
        rig.relay.set(Way::Open);
        // What was cached is gone, and what comes is new.
        let mut client = rig.client();
        eventually(SOON, || {
            let reply = client.command(&["GET", "k"]);
            assert!(reply.is_error() || reply == Reply::bulk(&value), "{reply}");
            !reply.is_error()
        });
    }
}

/// ```text
/// 1. the key is cached           2. the server's side of every link falls silent
/// 3. somebody writes the key: word of it is lost, and no link is closed
/// 4. the old value is served, for at most a second
/// ```
#[test]
fn a_half_open_link_is_noticed_within_a_second() {
    let mut longest = Duration::ZERO;
    for phase_ms in [0_u64, 50, 100, 150, 190] {
        let rig = Arranged::new(Treatment::COHERENT);
        let mut client = rig.client();
        client.command(&["GET", "k"]);
        thread::sleep(Duration::from_millis(phase_ms));
        rig.relay.set(Way::SwallowReplies);
        // What is under way in the relay has passed.
        thread::sleep(Duration::from_millis(5));
        rig.server.client().command(&["SET", "k", "new"]);
        let written = Instant::now();
        let (mut served, mut last) = (0, Duration::ZERO);
        while written.elapsed() < Duration::from_millis(1600) {
            // By then the old value has to be out, however late this thread hears of it.
            let asked = written.elapsed();
            client.send(&["GET", "k"]);
            let frame = client.try_read_frame(Duration::from_secs(3)).expect("a connection");
            if frame.as_deref() != Some(b"$3\r\nold\r\n") {
                break;
            }
            served += 1;
            last = asked;
        }
        assert!(served > 0, "nothing was cached");
        longest = longest.max(last);
        rig.relay.set(Way::Open);
        let mut client = rig.client();
        eventually(SOON, || client.command(&["GET", "k"]) == Reply::bulk("new"));
    }
    println!("what was overwritten was served for {longest:?} at most");
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
}

/// ```text
/// 1. many reads are out along one link       2. it is lost, and with it their replies
/// 3. somebody writes meanwhile               4. there is a new link, and reads wait for it
/// ```
#[test]
fn reads_that_were_out_or_queued_when_the_link_was_lost_are_answered() {
    for treatment in BOTH {
        let rig = Arranged::new(treatment);
        for round in 0..3 {
            let value = format!("new{round}");
            rig.relay.set(Way::HoldReplies);
            let mut out: Vec<RawClient> = (10..30).map(|last| rig.read(last)).collect();
            // Of each, the next one waits.
            out.extend((10..30).map(|last| rig.read(last)));
            for client in &mut out[..2] {
                assert_waits(client);
            }
            rig.server.client().command(&["SET", "k", &value]);
            let mut after: Vec<RawClient> = (10..30).map(|last| rig.read(last)).collect();
            rig.relay.set(Way::CutHeld);
            for client in &mut out {
                client.read_reply();
            }
            for client in &mut after {
                let reply = client.read_reply();
                assert!(reply.is_error() || reply == Reply::bulk(&value), "{reply}");
            }
            rig.relay.set(Way::Open);
            eventually(SOON, || rig.read(20).read_reply() == Reply::bulk(&value));
            assert_eq!(rig.read(21).read_reply(), Reply::bulk(&value));
        }
    }
}

/// A server that stands still for longer than the link of the cache may be silent, and than
/// `coalesce.max_wait_ms`, but not for as long as `timeouts.silence_ms`: a plain client sees a delay,
/// and so does everybody who reads or writes hot keys, out or waiting for those that are.
#[test]
fn a_server_that_stands_still_for_a_moment_fails_no_request() {
    for treatment in [Treatment::EXACT, Treatment::COHERENT, Treatment::RELAXED] {
        let mut rig = Rig::new(2);
        let keys = [b"k".to_vec(), b"n".to_vec()];
        rig.heatsink().heat(&keys, treatment);
        // Both are written all the time: reads are out when it stops.
        rig.client().command(&["SET", "n", "0"]);
        let stop = Arc::<AtomicBool>::default();
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (mut client, stop) = (rig.client(), Arc::clone(&stop));
                thread::spawn(move || {
                    let commands: [&[&str]; 4] =
                        [&["GET", "n"], &["INCR", "n"], &["STRLEN", "k"], &["SET", "k", "x"]];
                    let mut added = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let reply = client.command(commands[number % commands.len()]);
                        assert!(!reply.is_error(), "{reply}");
                        added += i64::from(number % commands.len() == 1);
                        // Others have something to do as well.
                        thread::sleep(Duration::from_millis(1));
                    }
                    added
                })
            })
            .collect();
        for pause_ms in [900, 1700] {
            thread::sleep(Duration::from_millis(100));
            rig.server_mut().pause();
            thread::sleep(Duration::from_millis(pause_ms));
            rig.server_mut().resume();
        }
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        let added = clients.into_iter().map(|client| client.join().expect("no error")).sum();
        assert_eq!(rig.client().command(&["INCRBY", "n", "0"]), Reply::Integer(added));
    }
}
