use super::*;
use crate::value::Value;

fn keys(table: &CommandTable, request: &str) -> Vec<String> {
    let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    let command = table.lookup(args[0], args.get(1).copied()).expect(request);
    let mut keys = Vec::new();
    command.for_each_key(
        args.len(),
        |i| args[i],
        |i| {
            keys.push(String::from_utf8(args[i].to_vec()).unwrap());
        },
    );
    keys
}

#[test]
fn keys_of_every_shape() {
    let table = CommandTable::default();
    for (request, expected) in [
        ("GET a", "a"),
        ("get", ""),
        ("MSET a 1 b 2", "a b"),
        ("MGET a b c", "a b c"),
        ("BLPOP a b 0", "a b"),
        ("EVAL script 2 a b x", "a b"),
        ("EVAL script 0 x", ""),
        ("EVAL script 5 a", "a"),
        ("EVAL script -1 a", ""),
        ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
        ("XREAD COUNT 2 STREAMS a b 0 0", "a b"),
        ("XREAD COUNT 2", ""),
        ("OBJECT ENCODING a", "a"),
        ("MEMORY USAGE a SAMPLES 5", "a"),
        ("MIGRATE h 1  0 10 KEYS a b", "a b"),
        ("GEORADIUS a 1 1 1 m STORE d", "a d"),
        ("RENAME a b", "a b"),
        ("PING", ""),
        ("LCS a b LEN", "a b"),
        ("SPUBLISH a message", "a"),
        ("SSUBSCRIBE a b", "a b"),
        ("SUNSUBSCRIBE", ""),
        ("PUBLISH a message", ""),
    ] {
        let found = keys(&table, request).join(" ");
        assert_eq!(found.trim(), expected.trim(), "{request}");
    }
}

#[test]
fn roles_and_access() {
    let table = CommandTable::default();
    let role = |name: &str, second: Option<&str>| {
        table.lookup(name.as_bytes(), second.map(str::as_bytes)).map(|c| c.role)
    };
    assert_eq!(role("GeT", None), Some(Role::Plain));
    assert_eq!(role("blmove", None), Some(Role::Blocking));
    assert_eq!(role("XREAD", None), Some(Role::BlockingOption));
    assert_eq!(role("script", Some("KILL")), Some(Role::Urgent));
    assert_eq!(role("script", Some("load")), Some(Role::Plain));
    assert_eq!(role("CLIENT", Some("ID")), Some(Role::Client));
    assert_eq!(role("CLIENT", Some("nonsense")), Some(Role::Client));
    assert_eq!(role("nosuch", None), None);
    assert_eq!(role(&"x".repeat(65), None), None);
    assert_eq!(table.lookup(b"EVAL", None).unwrap().access, Access::Write);
    assert_eq!(table.lookup(b"HGETALL", None).unwrap().access, Access::Read);
    assert_eq!(table.lookup(b"incr", None).unwrap().access, Access::Write);
}

#[test]
fn a_module_command_is_learned() {
    let mut table = CommandTable::default();
    let reply = b"*1\r\n*6\r\n$8\r\nJSON.GET\r\n:-2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    let command = table.lookup(b"json.get", None).unwrap();
    assert_eq!((command.access, command.role), (Access::Read, Role::Plain));
    assert_eq!(keys(&table, "JSON.GET doc ."), ["doc"]);
}

#[test]
fn how_many_arguments_a_command_takes_is_the_server_s_to_say() {
    let mut table = CommandTable::default();
    let refused = |table: &CommandTable, name: &str, counts: &[usize]| {
        let command = table.lookup(name.as_bytes(), None).unwrap();
        counts.iter().copied().filter(|count| command.refuses_count(*count)).collect::<Vec<_>>()
    };
    assert_eq!(refused(&table, "get", &[1, 2, 3]), []);
    let reply = b"*3\r\n*6\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n\
        *6\r\n$4\r\nsadd\r\n:-3\r\n*1\r\n+write\r\n:1\r\n:1\r\n:1\r\n\
        *6\r\n$3\r\nodd\r\n:-9223372036854775808\r\n*0\r\n:1\r\n:1\r\n:1\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 3);
    assert_eq!(refused(&table, "get", &[1, 2, 3]), [1, 3]);
    assert_eq!(refused(&table, "sadd", &[1, 2, 3, 4, 100]), [1, 2]);
    assert_eq!(refused(&table, "odd", &[1, 2]), [1, 2]);
    assert_eq!(refused(&table, "append", &[1, 2, 3]), []);
}

#[test]
fn a_server_without_key_specs_tells_keys_the_older_way() {
    let mut table = CommandTable::default();
    let reply = b"*1\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n\
        *0\r\n*0\r\n*0\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    assert_eq!(keys(&table, "GET a"), ["a"]);
}

#[test]
fn learning_keeps_what_only_the_built_in_table_knows() {
    let mut table = CommandTable::default();
    // As a Redis 6 describes EVAL: keys movable, neither read nor write.
    let reply =
        b"*1\r\n*6\r\n$4\r\neval\r\n:-3\r\n*2\r\n+noscript\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    assert_eq!(keys(&table, "EVAL s 1 a"), ["a"]);
    assert_eq!(table.lookup(b"eval", None).unwrap().access, Access::Write);
    // As a Redis 6 describes BLPOP: nothing says that it blocks.
    let reply =
        b"*1\r\n*6\r\n$5\r\nblpop\r\n:-3\r\n*2\r\n+write\r\n+noscript\r\n:1\r\n:-2\r\n:1\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    assert_eq!(table.lookup(b"blpop", None).unwrap().role, Role::Blocking);
    // Nonsense is passed over.
    assert_eq!(table.learn(&Value::decode(b"*2\r\n:1\r\n*1\r\n:2\r\n").unwrap()), 0);
}

#[test]
fn a_subcommand_is_not_found_by_both_names_in_one() {
    let table = CommandTable::default();
    assert_eq!(&*table.lookup(b"SCRIPT", Some(b"kill")).unwrap().name, "script|kill");
    for name in ["client|kill", "SCRIPT|KILL", "script|debug", "object|encoding"] {
        assert_eq!(table.lookup(name.as_bytes(), None), None, "{name}");
        assert_eq!(table.lookup(name.as_bytes(), Some(b"kill")), None, "{name}");
    }
}

#[test]
fn keys_are_never_the_name_nor_in_front_of_the_first() {
    let mut table = CommandTable::default();
    // As a module could describe itself: keys from argument 2 to argument 1.
    let reply = b"*1\r\n*6\r\n$3\r\nfoo\r\n:-2\r\n*0\r\n:2\r\n:1\r\n:1\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    assert!(keys(&table, "foo a b c").is_empty());
    // One that begins at argument 0.
    let reply = b"*1\r\n*9\r\n$3\r\nbar\r\n:-2\r\n*0\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*1\r\n\
        %2\r\n+begin_search\r\n%2\r\n+type\r\n+index\r\n+spec\r\n%1\r\n+index\r\n:0\r\n\
        +find_keys\r\n%2\r\n+type\r\n+range\r\n+spec\r\n\
        %3\r\n+lastkey\r\n:-1\r\n+keystep\r\n:1\r\n+limit\r\n:0\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    assert!(keys(&table, "bar a b").is_empty());
}

#[test]
fn policies_of_every_kind() {
    use {RequestPolicy as To, ResponsePolicy as Of};
    let table = CommandTable::default();
    let policies = |name: &str, second: Option<&str>| {
        let command = table.lookup(name.as_bytes(), second.map(str::as_bytes)).unwrap();
        (command.request_policy, command.response_policy)
    };
    assert_eq!(policies("GET", None), (To::Default, Of::Default));
    assert_eq!(policies("MGET", None), (To::MultiShard, Of::Default));
    assert_eq!(policies("MSET", None), (To::MultiShard, Of::AllSucceeded));
    assert_eq!(policies("DEL", None), (To::MultiShard, Of::Sum));
    assert_eq!(policies("SCAN", None), (To::Special, Of::Default));
    assert_eq!(policies("KEYS", None), (To::AllShards, Of::Default));
    assert_eq!(policies("WAIT", None), (To::AllShards, Of::Min));
    assert_eq!(policies("INFO", None), (To::AllShards, Of::Special));
    assert_eq!(policies("CONFIG", Some("SET")), (To::AllNodes, Of::AllSucceeded));
    assert_eq!(policies("SCRIPT", Some("EXISTS")), (To::AllShards, Of::LogicalAnd));
    assert_eq!(policies("SCRIPT", Some("KILL")), (To::AllShards, Of::OneSucceeded));
}

#[test]
fn policies_are_learned_where_the_server_tells_them() {
    let mut table = CommandTable::default();
    // As a Redis 6 describes them, without tips.
    let reply = b"*1\r\n*7\r\n$6\r\ndbsize\r\n:1\r\n*1\r\n+readonly\r\n:0\r\n:0\r\n:0\r\n*0\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    let dbsize = table.lookup(b"dbsize", None).unwrap();
    assert_eq!(dbsize.request_policy, RequestPolicy::AllShards);
    assert_eq!(dbsize.response_policy, ResponsePolicy::Sum);
    // As a module of a Redis 7 may; what is no policy is passed over, and so is a new one.
    let reply = b"*2\r\n*8\r\n$3\r\nfoo\r\n:1\r\n*0\r\n:0\r\n:0\r\n:0\r\n*0\r\n*3\r\n\
        $23\r\nnondeterministic_output\r\n+request_policy:all_nodes\r\n\
        +response_policy:agg_logical_or\r\n\
        *8\r\n$6\r\ndbsize\r\n:1\r\n*0\r\n:0\r\n:0\r\n:0\r\n*0\r\n*2\r\n\
        +request_policy:nobody\r\n:1\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 2);
    let foo = table.lookup(b"foo", None).unwrap();
    assert_eq!(foo.request_policy, RequestPolicy::AllNodes);
    assert_eq!(foo.response_policy, ResponsePolicy::LogicalOr);
    let dbsize = table.lookup(b"dbsize", None).unwrap();
    assert_eq!(dbsize.request_policy, RequestPolicy::Default);
    assert_eq!(dbsize.response_policy, ResponsePolicy::Default);
}

#[test]
fn the_only_key_has_a_place() {
    let table = CommandTable::default();
    let place = |name: &str, second: Option<&str>| {
        table.lookup(name.as_bytes(), second.map(str::as_bytes)).unwrap().single_key_index()
    };
    assert_eq!(place("GET", None), Some(1));
    assert_eq!(place("OBJECT", Some("ENCODING")), Some(2));
    assert_eq!(place("SPUBLISH", None), Some(1));
    for (name, second) in [
        ("MGET", None),
        ("RENAME", None),
        ("EVAL", None),
        ("XREAD", None),
        ("PING", None),
        ("OBJECT", Some("HELP")),
        ("SSUBSCRIBE", None),
    ] {
        assert_eq!(place(name, second), None, "{name}");
    }
}

#[test]
fn a_number_of_keys_counts_up_to_where_it_stops_being_one() {
    let table = CommandTable::default();
    assert_eq!(keys(&table, "EVAL script 1x a b"), ["a"]);
    assert_eq!(keys(&table, "EVAL script +2 a b c"), ["a", "b"]);
    for none in ["EVAL script x a", "EVAL script -1 a", "EVAL script 0 a"] {
        assert!(keys(&table, none).is_empty(), "{none}");
    }
    assert_eq!(keys(&table, "EVAL script 99999999999999999999999 a b"), ["a", "b"]);
}
