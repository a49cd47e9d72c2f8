//! A worker lets things gather if many clients wait, and only then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_testkit::{RawClient, Reply, encode, eventually};

use crate::load::StopOnDrop;

const SOON: Duration = Duration::from_secs(20);
/// More than wait anywhere before a worker lets things gather.
const MANY: usize = 60;

fn rig() -> ClusterRig {
    Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(1).start()
}

/// How often things gathered, with everything so far; `key` is on a node that answers.
fn pauses(rig: &ClusterRig, key: &str) -> u64 {
    let handle = rig.heatsink.proxy().handle();
    let told = handle.requests_total();
    assert_eq!(rig.client().command(&["GET", key]), Reply::Null);
    eventually(SOON, || handle.requests_total() > told);
    handle.pauses_total()
}

#[test]
fn things_gather_while_many_wait() {
    let rig = rig();
    let keys: Vec<String> =
        rig.cluster.primaries().iter().map(|node| rig.cluster.key_on(*node, "many")).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut clients: Vec<RawClient> = (0..MANY).map(|_| rig.client()).collect();
                while !stop.load(Ordering::Acquire) {
                    for (client, key) in clients.iter_mut().zip(keys.iter().cycle()) {
                        client.send(&["GET", key]);
                    }
                    for client in &mut clients {
                        assert_eq!(client.read_reply(), Reply::Null);
                    }
                }
            });
        }
        eventually(SOON, || rig.heatsink.proxy().handle().pauses_total() > 0);
        drop(stopping);
    });
}

#[test]
fn nobody_waits_for_others_if_they_are_few() {
    let rig = rig();
    let key = rig.cluster.key_on(rig.cluster.primaries()[0], "few");
    let mut client = rig.client();
    for _ in 0..500 {
        assert_eq!(client.command(&["GET", &key]), Reply::Null);
    }
    // However much one asks for at once.
    let pipeline = encode(&["GET", &key]).repeat(MANY);
    for _ in 0..100 {
        client.send_raw(&pipeline);
        for _ in 0..MANY {
            assert_eq!(client.read_reply(), Reply::Null);
        }
    }
    assert_eq!(pauses(&rig, &key), 0);
}

#[test]
fn nobody_waits_because_of_a_server_that_says_nothing() {
    let mut rig = rig();
    let primaries = rig.cluster.primaries();
    let silent = rig.cluster.key_on(primaries[0], "silent");
    let lively = rig.cluster.key_on(primaries[1], "lively");
    let mut waiting: Vec<RawClient> = (0..MANY).map(|_| rig.client()).collect();
    let mut client = rig.client();
    for each in &mut waiting {
        assert_eq!(each.command(&["GET", &silent]), Reply::Null);
    }
    rig.cluster.pause(primaries[0]);
    for each in &mut waiting {
        each.send(&["GET", &silent]);
    }
    // By now it has been silent for long enough.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(20) {
        assert_eq!(client.command(&["GET", &lively]), Reply::Null);
    }
    let before = pauses(&rig, &lively);
    for _ in 0..500 {
        assert_eq!(client.command(&["GET", &lively]), Reply::Null);
    }
    assert_eq!(pauses(&rig, &lively), before);
    rig.cluster.resume(primaries[0]);
    for each in &mut waiting {
        assert_eq!(each.read_reply(), Reply::Null);
    }
}
