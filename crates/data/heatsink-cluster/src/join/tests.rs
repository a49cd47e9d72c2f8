use heatsink_resp::command::CommandTable;
use heatsink_resp::reply::{ReplyScan, Status};
use proptest::prelude::*;

use super::*;

fn of(how: &Join, parts: &[&str]) -> String {
    String::from_utf8(join(how, parts)).unwrap()
}

#[test]
fn what_the_command_table_says() {
    let table = CommandTable::default();
    let how = |request: &str| {
        let mut words = request.split(' ').map(str::as_bytes);
        Join::for_command(table.lookup(words.next().unwrap(), words.next()).unwrap())
    };
    for (request, expected) in [
        ("DBSIZE", Join::Sum),
        ("DEL", Join::Sum),
        ("KEYS", Join::Concat),
        ("SLOWLOG GET", Join::Concat),
        ("RANDOMKEY", Join::RandomKey),
        ("INFO", Join::Info),
        ("FLUSHALL", Join::AllSucceeded),
        ("SCRIPT LOAD", Join::AllSucceeded),
        ("CONFIG RESETSTAT", Join::AllSucceeded),
        ("SCRIPT EXISTS", Join::And),
        ("SCRIPT KILL", Join::OneSucceeded),
        ("FUNCTION STATS", Join::First),
        ("MEMORY DOCTOR", Join::First),
        ("WAIT", Join::Min),
        ("PUBSUB CHANNELS", Join::Union),
        ("PUBSUB NUMSUB", Join::Sum),
        ("GET", Join::First),
    ] {
        assert_eq!(how(request), expected, "{request}");
    }
    let policy = |name: &str, second: Option<&[u8]>| {
        request_policy(table.lookup(name.as_bytes(), second).unwrap())
    };
    assert_eq!(policy("PUBSUB", Some(b"NUMPAT")), RequestPolicy::AllShards);
    assert_eq!(policy("MSETNX", None), RequestPolicy::Default);
    assert_eq!(policy("DBSIZE", None), RequestPolicy::AllShards);
}

#[test]
fn numbers_alone_and_in_arrays() {
    for (how, alone, array) in [
        (Join::Sum, ":3\r\n", "*3\r\n:1\r\n:1\r\n:5\r\n"),
        (Join::Min, ":0\r\n", "*3\r\n:0\r\n:0\r\n:2\r\n"),
        (Join::Max, ":3\r\n", "*3\r\n:1\r\n:1\r\n:3\r\n"),
        (Join::And, ":0\r\n", "*3\r\n:0\r\n:0\r\n:1\r\n"),
        (Join::Or, ":1\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n"),
    ] {
        assert_eq!(of(&how, &[":3\r\n", ":0\r\n"]), alone, "{how:?}");
        let parts = ["*3\r\n:1\r\n:0\r\n:2\r\n", "*3\r\n:0\r\n:1\r\n:3\r\n"];
        assert_eq!(of(&how, &parts), array, "{how:?}");
    }
    assert_eq!(of(&Join::And, &["*2\r\n#t\r\n#f\r\n", "*2\r\n#t\r\n#t\r\n"]), "*2\r\n:1\r\n:0\r\n");
    let max = format!(":{}\r\n", i64::MAX);
    assert_eq!(of(&Join::Sum, &[&max, ":1\r\n"]), max);
    // What PUBSUB NUMSUB answers.
    let parts = ["*2\r\n$1\r\na\r\n:1\r\n", "*2\r\n$1\r\na\r\n:2\r\n"];
    assert_eq!(of(&Join::Sum, &parts), "*2\r\n$1\r\na\r\n:3\r\n");
}

#[test]
fn elements_of_all() {
    for (parts, expected) in [
        (["*1\r\n$1\r\na\r\n", "*2\r\n:1\r\n*0\r\n"], "*3\r\n$1\r\na\r\n:1\r\n*0\r\n"),
        (["~1\r\n+a\r\n", "~1\r\n+b\r\n"], "~2\r\n+a\r\n+b\r\n"),
        (["%1\r\n+a\r\n:1\r\n", "%1\r\n+b\r\n:2\r\n"], "%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n"),
        (["*-1\r\n", "*1\r\n:1\r\n"], "*1\r\n:1\r\n"),
        (["~0\r\n", "~0\r\n"], "~0\r\n"),
        (["+OK\r\n", "+OK\r\n"], "+OK\r\n"),
    ] {
        assert_eq!(of(&Join::Concat, &parts), expected);
    }
    let parts = ["*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n"];
    assert_eq!(of(&Join::Union, &parts), "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
}

#[test]
fn an_error_is_the_reply_unless_one_success_will_do() {
    let parts = ["+OK\r\n", "-ERR a\r\n", "-ERR b\r\n"];
    let keys = Join::ByKey { keys: vec![vec![0], vec![1], vec![2]], total: 3 };
    for how in [Join::AllSucceeded, Join::Sum, Join::Concat, Join::First, Join::Info, keys] {
        assert_eq!(of(&how, &parts), "-ERR a\r\n", "{how:?}");
    }
    assert_eq!(of(&Join::Concat, &["*0\r\n", "!5\r\nERR x\r\n"]), "!5\r\nERR x\r\n");
    assert_eq!(of(&Join::OneSucceeded, &["-ERR a\r\n", "+OK\r\n"]), "+OK\r\n");
    assert_eq!(of(&Join::OneSucceeded, &["-ERR a\r\n", "-ERR b\r\n"]), "-ERR a\r\n");
    assert_eq!(of(&Join::AllSucceeded, &["+OK\r\n", "+PONG\r\n"]), "+OK\r\n");
}

#[test]
fn the_newest_of_all() {
    let entry = |id: u32, time: u32| format!("*3\r\n:{id}\r\n:{time}\r\n*1\r\n$3\r\nGET\r\n");
    let first = format!("*2\r\n{}{}", entry(8, 30), entry(7, 10));
    let second = format!("*2\r\n{}{}", entry(2, 20), entry(1, 10));
    let parts = [&*first, &*second, "*0\r\n"];
    assert_eq!(of(&Join::Newest(1), &parts), format!("*1\r\n{}", entry(8, 30)));
    let all = [entry(8, 30), entry(2, 20), entry(7, 10), entry(1, 10)].concat();
    assert_eq!(of(&Join::Newest(usize::MAX), &parts), format!("*4\r\n{all}"));
    assert_eq!(of(&Join::Newest(0), &parts), "*0\r\n");
}

#[test]
fn any_key_but_none() {
    let parts = ["$-1\r\n", "$1\r\na\r\n", "_\r\n", "$1\r\nb\r\n"];
    let mut seen: Vec<String> = (0..200).map(|_| of(&Join::RandomKey, &parts)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["$1\r\na\r\n", "$1\r\nb\r\n"]);
    assert_eq!(of(&Join::RandomKey, &["_\r\n", "_\r\n"]), "_\r\n");
}

#[test]
fn replies_that_do_not_fit_together_are_an_error() {
    let unjoinable = String::from_utf8(UNJOINABLE.to_vec()).unwrap();
    let by_key = |keys: &[&[u32]], total| Join::ByKey {
        keys: keys.iter().map(|keys| keys.to_vec()).collect(),
        total,
    };
    for (how, parts) in [
        (Join::Sum, &[":1\r\n", "+OK\r\n"][..]),
        (Join::Sum, &["*1\r\n:1\r\n", "*2\r\n:1\r\n:2\r\n"]),
        (Join::Sum, &["*1\r\n:1\r\n", "*1\r\n+x\r\n"]),
        (Join::Concat, &["*1\r\n:1\r\n", "%1\r\n:1\r\n:2\r\n"]),
        (Join::Info, &["$0\r\n\r\n", ":1\r\n"]),
        (Join::Union, &["+OK\r\n", "*0\r\n"]),
        (by_key(&[&[0], &[1]], 2), &["*1\r\n:1\r\n", "*2\r\n:1\r\n:2\r\n"]),
        (by_key(&[&[0], &[0]], 2), &["*1\r\n:1\r\n", "*1\r\n:1\r\n"]),
        (by_key(&[&[0], &[2]], 2), &["*1\r\n:1\r\n", "*1\r\n:1\r\n"]),
        (by_key(&[&[0], &[1]], 2), &["*1\r\n:1\r\n"]),
        (Join::First, &[]),
    ] {
        assert_eq!(of(&how, parts), unjoinable, "{how:?}");
    }
}

fn any_join() -> impl Strategy<Value = Join> {
    let keys = prop::collection::vec(prop::collection::vec(0u32..4, 0..3), 0..3);
    prop_oneof![
        keys.prop_map(|keys| Join::ByKey { keys, total: 3 }),
        prop::sample::select(vec![
            Join::Sum,
            Join::And,
            Join::Concat,
            Join::Union,
            Join::RandomKey,
            Join::Newest(2),
            Join::Info,
            Join::OneSucceeded,
        ]),
    ]
}

fn any_reply() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| format!(":{number}\r\n")),
        "[a-z:=,.\r\n# 0-9]{0,12}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
        Just("_\r\n".to_owned()),
        Just("$-1\r\n".to_owned()),
        Just("*-1\r\n".to_owned()),
        Just("#t\r\n".to_owned()),
        Just("-ERR x\r\n".to_owned()),
    ];
    leaf.prop_recursive(2, 16, 4, |element| {
        (prop::sample::select(vec!['*', '~', '%']), prop::collection::vec(element, 0..4)).prop_map(
            |(kind, mut elements)| {
                if kind == '%' {
                    elements.truncate(elements.len() / 2 * 2);
                }
                let count = if kind == '%' { elements.len() / 2 } else { elements.len() };
                format!("{kind}{count}\r\n{}", elements.concat())
            },
        )
    })
}

proptest! {
    #[test]
    fn the_result_is_one_whole_frame(
        how in any_join(),
        parts in prop::collection::vec(any_reply(), 0..4),
    ) {
        let joined = join(&how, &parts);
        let scanned = ReplyScan::default().advance(&joined);
        prop_assert_eq!(scanned, Ok(Status::Complete(joined.len())), "{}", joined.escape_ascii());
    }

    #[test]
    fn bytes_that_are_no_reply_are_survived(how in any_join(), parts: Vec<Vec<u8>>) {
        join(&how, &parts);
    }
}
