//! Combined writes on a real server: the replies and errors are those that the same commands
//! get one by one, in the order in which they were answered.

use std::time::Duration;

use heatsink_cache::combine::{Added, Answer, BatchLimits, Batches, Change, PoolId, integer};
use heatsink_cache::identity::LoginId;
use heatsink_testkit::{RawClient, RedisServer, Reply};

const TEXTS: &[&str] = &[
    "0",
    "-0",
    "+0",
    "00",
    "1",
    "-1",
    "+1",
    "01",
    "-01",
    " 1",
    "1 ",
    "1\n",
    "",
    "-",
    "+",
    "--1",
    "1.0",
    "1e2",
    "0x10",
    "abc",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "99999999999999999999999999",
    "922337203685477580",
    "9223372036854775806",
    "000000000000000000001",
];

#[test]
fn numbers_are_read_as_the_server_reads_them() {
    let server = RedisServer::start();
    let mut client = server.client();
    for text in TEXTS {
        for command in [["INCRBY", "k", text].as_slice(), &["HINCRBY", "h", "f", text]] {
            client.command(&["DEL", "k", "h"]);
            let accepted = matches!(client.command(command), Reply::Integer(_));
            assert_eq!(integer(text.as_bytes()).is_some(), accepted, "{command:?}");
        }
        // What can be combined is never what the server refuses.
        if Change::parse(&["DECRBY", "k", text]).is_some() {
            client.command(&["DEL", "k"]);
            let reply = client.command(&["DECRBY", "k", text]);
            assert!(matches!(reply, Reply::Integer(_)), "{text:?}: {reply:?}");
        }
    }
}

type Told = (usize, Reply);

/// Executes a batch and all that follow it; what each waiter is told, in order.
fn run(client: &mut RawClient, batches: &mut Batches<usize>, first: PoolId) -> Vec<Told> {
    let mut told = Vec::new();
    let mut next = Some(first);
    while let Some(batch) = next.and_then(|pool| batches.depart(pool)) {
        let mut request = Vec::new();
        assert!(batches.request(batch, &mut request));
        client.send_raw(&request);
        let reply = client.read_reply();
        let (mut replies, mut failed) = (Vec::new(), Vec::new());
        next = match reply {
            Reply::Integer(number) => {
                batches.answered(batch, Answer::Integer(number), &mut replies)
            }
            Reply::Simple(_) => batches.answered(batch, Answer::Ok, &mut replies),
            _ => batches.refused(batch, &mut failed),
        };
        told.extend(replies.into_iter().map(|(waiter, answer)| match answer {
            Answer::Integer(number) => (waiter, Reply::Integer(number)),
            Answer::Ok => (waiter, Reply::ok()),
        }));
        told.extend(failed.into_iter().map(|waiter| (waiter, reply.clone())));
    }
    told
}

#[test]
fn replies_are_those_of_the_commands_one_by_one() {
    let server = RedisServer::start();
    let (mut combined, mut single) = (server.client(), server.client());
    let mut random = 1_u64;
    let mut draw = move |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (random >> 33) as usize % bound
    };
    let starts = ["0", "9223372036854775800", "-9223372036854775800", "text"];
    let deltas = ["1", "3", "-2", "0", "9223372036854775807", "-9223372036854775808", "7"];
    let (mut errors, mut spared) = (0, 0);
    for round in 0..400 {
        let start = starts[round % starts.len()];
        for key in ["k", "l"] {
            let string = format!("{key}:s");
            let hash = format!("{key}:h");
            combined.command(&["SET", string.as_str(), start]);
            combined.command(&["HSET", hash.as_str(), "f", start]);
        }
        let in_hash = round % 3 == 0;
        let commands: Vec<Vec<String>> = (0..30)
            .map(|_| {
                let delta = deltas[draw(deltas.len())];
                let words = match draw(5) {
                    _ if in_hash => vec!["HINCRBY", "K:h", "f", delta],
                    0 | 1 => vec!["INCR", "K:s"],
                    2 => vec!["DECR", "K:s"],
                    _ => vec!["INCRBY", "K:s", delta],
                };
                words.into_iter().map(str::to_owned).collect()
            })
            .collect();
        let on = |key: &str, command: &[String]| -> Vec<String> {
            command.iter().map(|word| word.replace('K', key)).collect()
        };
        let mut batches = Batches::new(BatchLimits::default());
        let mut first = None;
        for (waiter, command) in commands.iter().enumerate() {
            let words = on("k", command);
            let change = Change::parse(&words).expect("it can be combined");
            let connection = waiter as u64 % 10;
            match batches.add(Duration::ZERO, LoginId(0), connection, &change, waiter) {
                Added::Ready(pool) => first = Some(pool),
                Added::Waiting { .. } => {}
                Added::Refused(_) => panic!("there is room"),
            }
        }
        let told = run(&mut combined, &mut batches, first.expect("the first is sent"));
        assert_eq!(told.len(), commands.len());
        for (waiter, reply) in told {
            let alone = single.command(&on("l", &commands[waiter]));
            assert_eq!(reply, alone, "{:?} in round {round}", commands[waiter]);
            errors += usize::from(matches!(alone, Reply::Error(_)));
        }
        spared += batches.combined();
    }
    assert!(errors > 500 && spared > 1000, "{errors} errors, {spared} spared");
}

#[test]
fn of_sets_the_last_stays() {
    let server = RedisServer::start();
    let mut client = server.client();
    let mut batches = Batches::new(BatchLimits::default());
    let mut first = None;
    for waiter in 0..10 {
        let value = waiter.to_string();
        let words = ["SET", "k", &value];
        let change = Change::parse(&words).unwrap();
        if let Added::Ready(pool) =
            batches.add(Duration::ZERO, LoginId(0), waiter, &change, waiter as usize)
        {
            first = Some(pool);
        }
    }
    let told = run(&mut client, &mut batches, first.unwrap());
    assert_eq!(told, (0..10).map(|waiter| (waiter, Reply::ok())).collect::<Vec<_>>());
    assert_eq!(client.command(&["GET", "k"]), Reply::bulk("9"));
    assert_eq!(batches.combined(), 9);
}
