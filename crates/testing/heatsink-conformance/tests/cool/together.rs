//! Pipelines that write a hot key and read it go as one piece.

use std::thread;

use heatsink_conformance::Rig;
use heatsink_proxy::hot_keys::Treatment;
use heatsink_testkit::{Reply, encode};

use crate::interleavings::BOTH;

const THREADS: usize = 8;
const ROUNDS: usize = 100;

fn rig(treatment: Treatment) -> Rig {
    let rig = Rig::new(1);
    rig.heatsink().heat(&["k"], treatment);
    rig
}

/// ```text
/// 1. A: SET k a, GET k      B: SET k b, GET k
/// 2. both SETs are carried out, then both GETs: A or B is told what the other wrote
/// ```
#[test]
fn nobody_comes_between_a_write_and_the_read_behind_it() {
    for treatment in BOTH {
        let rig = rig(treatment);
        let addr = rig.addr();
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                thread::spawn(move || {
                    let mut client = heatsink_testkit::RawClient::connect(addr);
                    let mut others = 0;
                    for round in 0..ROUNDS {
                        let value = |part| format!("{number}.{round}.{part}");
                        let part = |part| {
                            [encode(&["SET", "k", &value(part)]), encode(&["GET", "k"])].concat()
                        };
                        client.send_raw(&[part(0), part(1)].concat());
                        for part in 0..2 {
                            assert_eq!(client.read_reply(), Reply::ok());
                            others += usize::from(client.read_reply() != Reply::bulk(value(part)));
                        }
                    }
                    others
                })
            })
            .collect();
        let others: usize = threads.into_iter().map(|thread| thread.join().expect("served")).sum();
        assert_eq!(others, 0, "of {} reads, {treatment:?}", THREADS * ROUNDS * 2);
    }
}

/// Of what reads on and on, behind a write, the server is spared as ever.
#[test]
fn what_is_read_again_and_again_behind_a_write_is_read_once() {
    for treatment in BOTH {
        let rig = rig(treatment);
        let mut client = rig.client();
        let before = rig.server().calls("get");
        let reads = encode(&["GET", "k"]).repeat(500);
        client.send_raw(&[encode(&["SET", "k", "v"]), reads].concat());
        assert_eq!(client.read_reply(), Reply::ok());
        for _ in 0..500 {
            assert_eq!(client.read_reply(), Reply::bulk("v"));
        }
        let asked = rig.server().calls("get") - before;
        assert!(asked <= 40, "{asked} reads reached the server, {treatment:?}");
    }
}
