//! The command table: any name may be asked for, and any server may describe its commands.

use std::sync::OnceLock;

use heatsink_resp::command::{Command, CommandTable};
use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::value::Value;

/// Checks every property of the command table on `data`: a server's `COMMAND` reply, if it
/// starts with one, and behind it the lines of a request, one argument a line.
pub fn check(data: &[u8]) {
    static BUILT_IN: OnceLock<CommandTable> = OnceLock::new();
    let built_in = BUILT_IN.get_or_init(CommandTable::default);
    let (described, rest) = match ReplyScan::default().advance(data) {
        Ok(Status::Complete(len)) => (Value::decode(&data[..len]).ok(), &data[len..]),
        Ok(Status::Incomplete) | Err(_) => (None, data),
    };
    let args: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    check_request(built_in, &args);
    let Some(described) = described.filter(|reply| !reply.array().is_empty()) else { return };
    let mut table = built_in.clone();
    let learned = table.learn(&described);
    assert!(learned <= described.array().len());
    assert!(table.len() >= built_in.len(), "learning forgets nothing");
    check_request(&table, &args);
    check_described(&table, &described, &args);
}

/// Asks for the command of `args` and for its keys.
fn check_request(table: &CommandTable, args: &[&[u8]]) {
    let second = args.get(1).copied();
    let found = table.lookup(args[0], second);
    for cased in [<[u8]>::to_ascii_uppercase, <[u8]>::to_ascii_lowercase] {
        let second = second.map(cased);
        assert_eq!(found, table.lookup(&cased(args[0]), second.as_deref()));
    }
    let Some(command) = found else { return };
    let (container, subcommand) = match command.name.split_once('|') {
        Some((container, subcommand)) => (container, Some(subcommand)),
        None => (&*command.name, None),
    };
    assert!(args[0].eq_ignore_ascii_case(container.as_bytes()), "{}", command.name);
    if let Some(subcommand) = subcommand {
        let second = second.expect("a subcommand is found by its name");
        assert!(second.eq_ignore_ascii_case(subcommand.as_bytes()), "{}", command.name);
    }
    check_keys(command, args);
}

/// Each run of keys lies behind the command's name, within the request, and moves on.
fn check_keys(command: &Command, args: &[&[u8]]) {
    for count in [args.len(), args.len().min(2), 1] {
        let mut calls = 0;
        command.for_each_key(
            count,
            |at| args[..count][at],
            |at| {
                assert!((1..count).contains(&at), "{at} of {count}: {command:?}");
                calls += 1;
            },
        );
        assert!(calls <= command.keys.len() * count, "{calls} keys of {count}: {command:?}");
    }
}

/// Asks for every command that was described, with the arguments of the request.
fn check_described(table: &CommandTable, described: &Value, args: &[&[u8]]) {
    for entry in described.array() {
        let Some(name) = entry.array().first().and_then(Value::text) else { continue };
        let mut named = args.to_vec();
        named[0] = name;
        check_request(table, &named);
        for subcommand in entry.array().get(9).map_or(&[][..], Value::array) {
            let Some(full) = subcommand.array().first().and_then(Value::text) else { continue };
            let bar = full.iter().position(|byte| *byte == b'|');
            named.truncate(1);
            named.push(&full[bar.map_or(0, |bar| bar + 1)..]);
            named.extend(args);
            check_request(table, &named);
        }
    }
}
