//! What is decided about every kind of command in every state of a client, as one table.

use std::fmt::Write;

use heatsink_resp::command::{CommandTable, Subscription, SubscriptionKind};
use heatsink_resp::encode;
use heatsink_upstream::Protocol;

use super::*;
use crate::downstream::request::spans;
use crate::session::dedicated::Confirmations;
use crate::upstream::nodes::NodeId;

/// One command of each kind, and those that are decided about by more than their kind.
const COMMANDS: [&str; 31] = [
    "GET k",
    "SET k v",
    "MGET k l",
    "PING",
    "EVAL s 0",
    "KEYS *",
    "BLPOP k 0",
    "XREAD STREAMS k 0",
    "XREAD BLOCK 0 STREAMS k 0",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH k",
    "UNWATCH",
    "SUBSCRIBE c",
    "PUBLISH c m",
    "SCRIPT KILL",
    "WAIT 1 0",
    "MONITOR",
    "AUTH p",
    "HELLO",
    "HELLO 3 AUTH u p",
    "SELECT 1",
    "RESET",
    "QUIT",
    "CLIENT ID",
    "CLIENT REPLY OFF",
    "NOSUCH k",
    "POST /",
    "GET heatsink:{x}:y",
    "PUBLISH heatsink:{x}:y m",
];

/// A client that has just come, to one server.
fn fresh() -> Situation<'static> {
    Situation {
        dedicated: None,
        lost: Lost::Nothing,
        is_drained: true,
        awaits_hot: false,
        is_bulky: false,
        is_known: true,
        is_within: false,
        in_transaction: false,
        is_clustered: false,
        checks_logins: false,
    }
}

fn dedicated(change: impl FnOnce(&mut Dedicated)) -> Dedicated {
    let mut dedicated = Dedicated::new(0, NodeId::FIRST, Protocol::Resp2);
    change(&mut dedicated);
    dedicated
}

fn subscriber() -> Dedicated {
    dedicated(|dedicated| {
        let subscription = Subscription { subscribe: true, kind: SubscriptionKind::Channel };
        let left = Confirmations::Exactly(1);
        dedicated.expected.push_back(Expected::Subscription { subscription, left });
        dedicated.on_frame(0, b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", true, true);
        assert!(dedicated.is_subscriber());
    })
}

fn code(decision: Decision) -> String {
    match decision {
        Decision::Dedicated(expected) => {
            let expected = format!("{expected:?}");
            let kind = expected.split([' ', '{', '(']).next().unwrap_or_default();
            format!("own:{kind}")
        }
        Decision::Lost(step) => format!("lost:{step:?}"),
        other => format!("{other:?}"),
    }
}

fn row(client: &Situation<'_>, line: &str, is_hot: bool) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = Vec::new();
    encode::command(&mut bytes, &words);
    let args = spans(&bytes).expect("a request");
    let request = Request { bytes: &bytes, args: &args };
    let table = CommandTable::default();
    let command = table.lookup(request.name(), request.arg(1));
    code(decide(client, command, request, |command| is_hot && !command.keys.is_empty()))
}

fn table() -> String {
    let own = dedicated(|_| {});
    let watching = dedicated(|dedicated| dedicated.transaction = Transaction::Watching);
    let queueing = dedicated(|dedicated| dedicated.transaction = Transaction::Queueing);
    let subscriber = subscriber();
    let strayed = dedicated(|dedicated| dedicated.strayed = true);
    let busy = Situation { is_drained: false, ..fresh() };
    let on = |dedicated| Situation { dedicated: Some(dedicated), ..fresh() };
    let lost = |lost| Situation { lost, ..fresh() };
    let states: [(&str, bool, Situation<'_>); 21] = [
        ("no state", false, fresh()),
        ("no state; its keys are hot", true, fresh()),
        ("something is unanswered", false, busy),
        ("waits for hot keys", false, Situation { awaits_hot: true, ..busy }),
        ("waits for hot keys; so are its keys", true, Situation { awaits_hot: true, ..busy }),
        ("reads slowly", false, Situation { is_bulky: true, ..fresh() }),
        (
            "moves data for this process; its keys are hot",
            true,
            Situation { is_within: true, ..fresh() },
        ),
        (
            "not known yet; logins are checked here",
            false,
            Situation { is_known: false, checks_logins: true, ..fresh() },
        ),
        (
            "logins are checked here; it has a connection of its own",
            false,
            Situation { checks_logins: true, ..on(&own) },
        ),
        ("has a connection of its own", false, on(&own)),
        (
            "has one, and something is unanswered",
            false,
            Situation { is_drained: false, ..on(&own) },
        ),
        ("watches keys", false, on(&watching)),
        ("in a transaction", false, on(&queueing)),
        ("subscribed", false, on(&subscriber)),
        ("strayed", false, on(&strayed)),
        ("has lost a watch", false, lost(Lost::Watch)),
        ("has lost a transaction", false, lost(Lost::Transaction)),
        ("watched keys that have moved", false, lost(Lost::Moved)),
        ("before a cluster", false, Situation { is_clustered: true, ..fresh() }),
        (
            "before a cluster, watches keys",
            false,
            Situation { is_clustered: true, ..on(&watching) },
        ),
        (
            "before a cluster, in a transaction",
            false,
            Situation { is_clustered: true, in_transaction: true, ..fresh() },
        ),
    ];
    let mut table = String::new();
    for (name, is_hot, state) in states {
        // In the order in which they are first met.
        let mut decisions: Vec<(String, Vec<&str>)> = Vec::new();
        for line in COMMANDS {
            let decision = row(&state, line, is_hot);
            match decisions.iter_mut().find(|(one, _)| *one == decision) {
                Some((_, lines)) => lines.push(line),
                None => decisions.push((decision, vec![line])),
            }
        }
        let _ = writeln!(table, "{name}");
        for (decision, lines) in decisions {
            let _ = writeln!(table, "    {decision:<16} {}", lines.join(" | "));
        }
    }
    table
}

#[test]
fn every_kind_of_command_in_every_state_is_decided_as_the_table_says() {
    let expected = include_str!("table.txt");
    let actual = table();
    let differs = actual.lines().zip(expected.lines()).position(|(one, other)| one != other);
    if let Some(at) = differs.or((actual.len() != expected.len()).then_some(0)) {
        let line = |text: &str| text.lines().nth(at).unwrap_or_default().to_owned();
        let (is, was) = (line(&actual), line(expected));
        panic!("line {}: {is:?}, not {was:?}; the whole table is now:\n{actual}", at + 1);
    }
}

/// A large request would hold up those behind it on a shared connection.
#[test]
fn a_large_request_goes_along_a_connection_of_its_own() {
    let value = "v".repeat(BIG_REQUEST_BYTES);
    let line = format!("SET k {value}");
    assert_eq!(row(&fresh(), &line, false), "own:Plain");
    assert_eq!(row(&fresh(), &line, true), "Mitigate");
    assert_eq!(row(&Situation { is_clustered: true, ..fresh() }, &line, false), "Pass");
}

#[test]
fn a_long_channel_is_refused() {
    let line = format!("SUBSCRIBE {}", "c".repeat(MAX_CHANNEL_BYTES + 1));
    assert_eq!(row(&fresh(), &line, false), "LongChannel");
}

/// One look at the hot keys at most, and none where the answer does not matter.
#[test]
fn a_request_is_looked_up_among_hot_keys_once_at_most() {
    let mut bytes = Vec::new();
    encode::command(&mut bytes, &["GET", "k"]);
    let args = spans(&bytes).expect("a request");
    let request = Request { bytes: &bytes, args: &args };
    let table = CommandTable::default();
    let command = table.lookup(request.name(), None);
    let own = dedicated(|_| {});
    for (client, looks) in [
        (fresh(), 1),
        (Situation { is_within: true, ..fresh() }, 0),
        (Situation { dedicated: Some(&own), ..fresh() }, 0),
        (Situation { awaits_hot: true, dedicated: Some(&own), ..fresh() }, 1),
    ] {
        let mut looked = 0;
        decide(&client, command, request, |_| {
            looked += 1;
            false
        });
        assert_eq!(looked, looks, "{client:?}");
    }
}
