//! Commands that touch hot keys which they do not name, or name among their options: whoever sends
//! them sees what they did, and they see what was sent before them.

use heatsink_conformance::Rig;
use heatsink_testkit::{RawClient, RedisServer, encode};

use crate::interleavings::BOTH;

const HOT: [&str; 4] = ["list", "near", "w_1", "w_2"];

const PUSH: &str = "return redis.call('rpush', 'list', ARGV[1])";
const READ: &str = "return redis.call('get', 'w_1')";
const LIBRARY: &str = "#!lua name=lib\nredis.register_function('push', \
    function(_, args) return redis.call('rpush', 'list', args[1]) end)";

/// Sent in one piece each; `N` is the number of the round.
const PIPELINES: [&[&[&str]]; 13] = [
    &[
        &["RPUSH", "source", "N"],
        &["SORT", "source", "STORE", "list"],
        &["LRANGE", "list", "0", "-1"],
    ],
    &[&["SORT", "source", "STORE", "none", "DESC", "store", "list"], &["LINDEX", "list", "0"]],
    &[&["EVAL", PUSH, "0", "N"], &["LLEN", "list"], &["LINDEX", "list", "-1"]],
    &[&["FCALL", "push", "0", "N"], &["LRANGE", "list", "-2", "-1"]],
    &[&["MULTI"], &["EVAL", PUSH, "0", "N"], &["EXEC"], &["LINDEX", "list", "-1"]],
    &[&["MULTI"], &["SORT", "source", "STORE", "list"], &["EXEC"], &["LLEN", "list"]],
    &[
        &["GEOADD", "places", "0", "N", "N"],
        &["GEORADIUS", "places", "0", "0", "999999", "km", "STORE", "x", "STOREDIST", "near"],
        &["ZCARD", "near"],
    ],
    &[&["INCR", "w_1"], &["SORT", "ids", "BY", "w_*", "GET", "w_*", "GET", "#"]],
    &[&["INCRBY", "w_2", "3"], &["SORT_RO", "ids", "BY", "nosort", "GET", "w_*"]],
    &[&["INCR", "w_1"], &["EVAL", READ, "0"], &["EVAL_RO", READ, "0"]],
    &[&["INCR", "w_1"], &["MULTI"], &["SORT", "ids", "GET", "w_*"], &["EXEC"]],
    &[
        &["SCAN", "0", "MATCH", "nothing", "COUNT", "1000", "TYPE", "string"],
        &["INCR", "w_1"],
        &["GET", "w_1"],
    ],
    &[&["MULTI"], &["FLUSHDB"], &["EXEC"], &["GET", "w_1"], &["LLEN", "list"]],
];

fn fill(client: &mut RawClient) {
    client.command(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
    client.command(&["RPUSH", "ids", "1", "2"]);
    client.command(&["MSET", "w_1", "10", "w_2", "20"]);
}

#[test]
fn a_pipeline_sees_what_it_does_to_keys_that_it_does_not_name() {
    for treatment in BOTH {
        let (rig, plain) = (Rig::new(1), RedisServer::builder().start());
        rig.heatsink().heat(&HOT, treatment);
        let (mut client, mut wanted) = (rig.client(), plain.client());
        let mut reader = rig.client();
        for round in 1..30 {
            let number = round.to_string();
            fill(&mut client);
            fill(&mut wanted);
            for pipeline in PIPELINES {
                // What is cached, and may be served too long.
                for read in [&["LRANGE", "list", "0", "-1"][..], &["GET", "w_1"], &["GET", "w_2"]] {
                    reader.command(read);
                    reader.command(read);
                }
                let of_round =
                    |word: &&str| if *word == "N" { number.clone() } else { (*word).into() };
                let words = |command: &&[&str]| command.iter().map(of_round).collect::<Vec<_>>();
                let commands: Vec<Vec<String>> = pipeline.iter().map(words).collect();
                let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
                client.send_raw(&bytes);
                for command in commands {
                    let (got, plain) = (client.read_reply(), wanted.command(&command));
                    assert_eq!(got, plain, "{command:?} of {pipeline:?}, {treatment:?}");
                }
            }
        }
    }
}
