//! A primary that hands over while requests on hot keys are out.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use heatsink_conformance::Heatsink;
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{SentinelRig, encode, eventually};

use crate::served::SOON;

/// ```text
/// 1. a client has requests out; the sentinels name another primary
/// 2. its next request touches a hot key, and has to wait for the answers to those
/// 3. whatever was remembered of it before it waited would never come back, and the key would
///    count as being written for ever
/// ```
#[test]
fn a_failover_leaves_nothing_behind_that_is_waited_for() {
    let mut rig = SentinelRig::builder().replicas(1).start();
    let heatsink = Heatsink::before_url(&rig.url(), |config| config.workers = 1);
    let treatment = Treatment::COHERENT;
    heatsink.heat(&["k"], treatment);
    let mut client = heatsink.client();
    let (stop, stopped) = mpsc::channel::<()>();
    let sender = thread::spawn(move || {
        let words = [encode(&["SET", "other", "1"]), encode(&["INCR", "k"]), encode(&["GET", "k"])];
        let burst = words.concat().repeat(20);
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            client.send_raw(&burst);
            for _ in 0..60 {
                client.read_frame();
            }
        }
        client
    });
    for _ in 0..3 {
        rig.hand_over();
        rig.wait_until_ok();
    }
    drop(stop);
    let mut client = sender.join().expect("every request is answered");
    // Reads are answered again, also from the cache.
    eventually(SOON, || {
        let first = client.command(&["GET", "k"]);
        !first.is_error() && client.command(&["GET", "k"]) == first
    });
}
