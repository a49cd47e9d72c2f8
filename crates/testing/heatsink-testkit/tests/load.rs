//! A load keeps its rate and tells what went wrong.

use std::time::{Duration, Instant};

use heatsink_testkit::{Load, RedisServer, Reply, eventually};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_load_is_as_fast_as_it_is_told_to_be() {
    let server = RedisServer::start();
    let begun = Instant::now();
    let load = Load::start(server.addr(), &["PING"], 500, Reply::Simple("PONG".into()));
    eventually(PATIENCE, || load.tally().answered >= 200);
    let tally = load.tally();
    assert!(tally.answered <= 2 + (begun.elapsed().as_secs_f64() * 500.0) as u64, "{tally:?}");
    assert_eq!((tally.failed, tally.failures.len()), (0, 0));
    assert!(tally.slowest > Duration::ZERO);
}

#[test]
fn a_wrong_reply_and_a_lost_server_are_failures_unless_they_were_announced() {
    let mut server = RedisServer::start();
    let load = Load::start(server.addr(), &["GET", "k"], 1000, Reply::Null);
    eventually(PATIENCE, || load.tally().answered > 0);
    server.client().command(&["SET", "k", "v"]);
    let wrong = |why: &String| why.contains("the reply was");
    eventually(PATIENCE, || load.tally().failures.iter().any(wrong));
    load.interrupt();
    server.restart();
    load.reset();
    load.redirect(server.addr());
    eventually(PATIENCE, || load.tally().answered > 10);
    assert_eq!(load.tally().failed, 0);
    server.kill();
    eventually(PATIENCE, || load.tally().failed > 0);
}
