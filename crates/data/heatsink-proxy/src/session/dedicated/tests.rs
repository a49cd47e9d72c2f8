use heatsink_resp::command::CommandTable;

use super::*;

/// Sends requests (words) and takes the server's frames; says what is left to wait for.
struct Script {
    dedicated: Dedicated,
    table: CommandTable,
}

impl Script {
    fn new(protocol: Protocol) -> Self {
        Self {
            dedicated: Dedicated::new(0, NodeId::FIRST, protocol),
            table: CommandTable::default(),
        }
    }

    fn send(&mut self, request: &str) {
        let args: Vec<_> = request.split(' ').collect();
        let role = self.table.lookup(args[0].as_bytes(), None).map(|c| c.role);
        self.dedicated.sent(Dedicated::expect(role, args.len()));
    }

    fn get(&mut self, frame: &str) {
        let pass = self.dedicated.on_frame(0, frame.as_bytes(), true, true);
        assert_ne!(pass, Pass::Drop, "{frame:?}");
    }
}

fn confirmation(mark: char, kind: &str, channel: &str, total: usize) -> String {
    format!(
        "{mark}3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:{total}\r\n",
        kind.len(),
        channel.len()
    )
}

#[test]
fn a_transaction_ends_with_exec_or_discard() {
    for (last, reply) in [
        ("EXEC", "*1\r\n+OK\r\n"),
        ("EXEC", "*-1\r\n"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("DISCARD", "+OK\r\n"),
    ] {
        let mut script = Script::new(Protocol::Resp2);
        script.send("WATCH a");
        script.send("MULTI");
        script.send("SET a 1");
        script.send(last);
        script.get("+OK\r\n");
        assert_eq!(script.dedicated.transaction, Transaction::Watching);
        script.get("+OK\r\n");
        script.get("+QUEUED\r\n");
        assert_eq!(script.dedicated.transaction, Transaction::Queueing);
        assert!(!script.dedicated.is_releasable());
        script.get(reply);
        assert!(script.dedicated.is_releasable(), "{last} {reply}");
    }
}

#[test]
fn a_refused_exec_does_not_end_a_watch() {
    let mut script = Script::new(Protocol::Resp2);
    script.send("WATCH a");
    script.send("EXEC");
    script.get("+OK\r\n");
    script.get("-ERR EXEC without MULTI\r\n");
    assert!(!script.dedicated.is_releasable());
    script.send("UNWATCH");
    script.get("+OK\r\n");
    assert!(script.dedicated.is_releasable());
}

#[test]
fn subscriptions_are_counted_and_messages_answer_nothing() {
    for (protocol, mark) in [(Protocol::Resp2, '*'), (Protocol::Resp3, '>')] {
        let mut script = Script::new(protocol);
        script.send("SUBSCRIBE a b");
        script.send("PSUBSCRIBE p*");
        script.send("SSUBSCRIBE s");
        script.get(&confirmation(mark, "subscribe", "a", 1));
        script.get(&confirmation(mark, "message", "a", 9).replace(":9", "$1\r\nx"));
        script.get(&confirmation(mark, "subscribe", "b", 2));
        script.get(&confirmation(mark, "psubscribe", "p*", 3));
        script.get(&confirmation(mark, "ssubscribe", "s", 1));
        assert!(script.dedicated.expected.is_empty());
        script.send("UNSUBSCRIBE");
        script.send("PUNSUBSCRIBE");
        script.send("SUNSUBSCRIBE s");
        script.get(&confirmation(mark, "unsubscribe", "a", 2));
        script.get(&confirmation(mark, "unsubscribe", "b", 1));
        script.get(&confirmation(mark, "punsubscribe", "p*", 0));
        assert!(!script.dedicated.is_releasable());
        script.get(&confirmation(mark, "sunsubscribe", "s", 0));
        assert!(script.dedicated.is_releasable());
    }
}

#[test]
fn unsubscribing_from_nothing_is_confirmed_once() {
    let mut script = Script::new(Protocol::Resp2);
    script.send("UNSUBSCRIBE");
    script.get("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n");
    assert!(script.dedicated.is_releasable());
}

#[test]
fn a_reply_that_looks_like_a_message_is_one_only_for_subscribers() {
    let mut script = Script::new(Protocol::Resp2);
    script.send("LRANGE l 0 -1");
    script.get("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert!(script.dedicated.is_releasable());
}

#[test]
fn after_an_unknown_command_that_succeeds_the_connection_is_the_clients() {
    let mut script = Script::new(Protocol::Resp2);
    script.send("NOSUCH x");
    script.get("-ERR unknown command 'NOSUCH', with args beginning with: 'x' \r\n");
    assert!(script.dedicated.is_releasable());
    script.send("NOSUCH x");
    script.get("+OK\r\n");
    assert!(script.dedicated.strayed && !script.dedicated.is_releasable());
}

#[test]
fn a_reply_that_comes_in_pieces_is_answered_with_the_last() {
    let mut script = Script::new(Protocol::Resp2);
    script.send("GET a");
    script.dedicated.on_frame(0, b"$100000\r\nxxx", true, false);
    assert!(!script.dedicated.is_drained() && !script.dedicated.is_releasable());
    script.dedicated.on_frame(0, b"xxx", false, false);
    assert!(!script.dedicated.is_releasable());
    script.dedicated.on_frame(0, b"xxx\r\n", false, true);
    assert!(script.dedicated.is_releasable());
}

#[test]
fn a_confirmation_too_long_to_hold_keeps_the_connection() {
    let mut script = Script::new(Protocol::Resp2);
    script.send("SUBSCRIBE long");
    script.dedicated.on_frame(0, b"*3\r\n$9\r\nsubscribe\r\n$100000\r\nxxx", true, false);
    script.dedicated.on_frame(0, b"xxx\r\n:1\r\n", false, true);
    assert!(
        script.dedicated.is_drained()
            && script.dedicated.pinned
            && !script.dedicated.is_releasable()
    );
}

#[test]
fn our_own_requests_are_not_shown() {
    let mut dedicated = Dedicated::new(0, NodeId::FIRST, Protocol::Resp2);
    dedicated.expected.push_back(Expected::Unasked);
    dedicated.expected.push_back(Expected::Blocking);
    assert!(dedicated.is_blocking());
    assert_eq!(dedicated.on_frame(0, b"+PONG\r\n", true, true), Pass::Drop);
    assert_eq!(dedicated.on_frame(0, b":1\r\n", true, true), Pass::ToClient);
    assert!(dedicated.is_releasable());
}

#[test]
fn a_wait_speaks_of_nothing_if_its_connection_has_written_nothing() {
    let mut dedicated = Dedicated::new(0, NodeId::FIRST, Protocol::Resp2);
    dedicated.expected.extend([Expected::Writing, Expected::Blocking]);
    assert!(dedicated.begins_blocking());
    let refusal = b"-NOPERM No permissions to access a key\r\n";
    assert_eq!(dedicated.on_frame(0, refusal, true, true), Pass::Drop);
    assert_eq!(dedicated.on_frame(0, b":1\r\n", true, true), Pass::ToClient);
    assert_eq!(dedicated.rewritten.take().as_deref(), Some(&refusal[..]));
    // The next one is none of it.
    dedicated.expected.extend([Expected::Writing, Expected::Blocking]);
    assert_eq!(dedicated.on_frame(0, b"+OK\r\n", true, true), Pass::Drop);
    assert_eq!(dedicated.on_frame(0, b":1\r\n", true, true), Pass::ToClient);
    assert_eq!(dedicated.rewritten, None);
}

#[test]
fn whoever_stops_tracking_keeps_no_connection() {
    let mut dedicated = Dedicated::new(0, NodeId::FIRST, Protocol::Resp3);
    let say = |dedicated: &mut Dedicated, redirect, reply: &str| {
        dedicated.expected.push_back(Expected::Tracking { redirect });
        dedicated.on_frame(0, reply.as_bytes(), true, true);
    };
    say(&mut dedicated, Some(0), "-ERR no\r\n");
    assert!(dedicated.is_releasable());
    say(&mut dedicated, Some(0), "+OK\r\n");
    assert!(!dedicated.is_releasable());
    say(&mut dedicated, None, "-ERR no\r\n");
    assert!(!dedicated.is_releasable());
    // What is queued may be discarded.
    dedicated.transaction = Transaction::Queueing;
    say(&mut dedicated, None, "+QUEUED\r\n");
    dedicated.transaction = Transaction::None;
    assert!(!dedicated.is_releasable());
    say(&mut dedicated, None, "+OK\r\n");
    assert!(dedicated.is_releasable());
}

#[test]
fn what_follows_a_multi_that_is_not_confirmed_yet_will_be_queued() {
    let mut script = Script::new(Protocol::Resp2);
    let mut foreseen = Vec::new();
    for request in ["GET a", "MULTI", "GET a", "EXEC", "GET a", "MULTI", "DISCARD", "GET a"] {
        foreseen.push(script.dedicated.will_queue());
        script.send(request);
    }
    assert_eq!(foreseen, [false, false, true, true, false, false, true, false]);
    for reply in ["$-1\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n$-1\r\n", "$-1\r\n"] {
        script.get(reply);
    }
    script.get("-ERR refused\r\n");
    script.get("-ERR DISCARD without MULTI\r\n");
    script.get("$-1\r\n");
    // What was foreseen and did not come about is forgotten.
    script.send("MULTI");
    script.get("-ERR refused\r\n");
    assert!(!script.dedicated.will_queue());
    script.send("GET a");
    assert!(!script.dedicated.will_queue());
}

#[test]
fn each_exec_that_succeeds_gives_what_its_own_transaction_has_named() {
    let mut script = Script::new(Protocol::Resp2);
    let named = || Some(Box::<QueuedKeys>::default());
    for (keys, reply) in [
        (named(), "*1\r\n+OK\r\n"),
        (None, "-ERR EXEC without MULTI\r\n"),
        (named(), "*-1\r\n"),
        (named(), "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        (named(), "*1\r\n:1\r\n"),
    ] {
        script.send("EXEC");
        assert!(script.dedicated.unmarked);
        *script.dedicated.executing.back_mut().expect("a place for it") = keys;
        let before = script.dedicated.executed.len();
        script.get(reply);
        let counts = usize::from(reply.starts_with("*1"));
        assert_eq!(script.dedicated.executed.len(), before + counts, "{reply}");
    }
    assert!(script.dedicated.executing.is_empty());
}

#[test]
fn a_monitor_that_is_refused_leaves_nothing_behind() {
    let mut script = Script::new(Protocol::Resp2);
    script.dedicated.sent(Expected::Monitor);
    assert!(!script.dedicated.is_releasable());
    script.get("-NOPERM this user has no permissions to run the 'monitor' command\r\n");
    assert!(script.dedicated.is_releasable());
}

#[test]
fn what_a_monitor_shows_answers_no_request() {
    let line = |from: &str, words: &str| format!("+1700000000.000001 [0 {from}] {words}\r\n");
    let mut script = Script::new(Protocol::Resp2);
    let sockets = Arc::new(Sockets::default());
    sockets.opened("127.0.0.1:5000".parse().unwrap(), monitor::Kind::Cache);
    script.dedicated.sockets = Some(sockets);
    script.dedicated.sent(Expected::Monitor);
    script.send("ECHO x");
    script.get("+OK\r\n");
    script.get(&line("127.0.0.1:4999", "\"PING\""));
    let dedicated = line("127.0.0.1:5000", "\"PING\"");
    assert_eq!(script.dedicated.on_frame(0, dedicated.as_bytes(), true, true), Pass::Drop);
    assert!(!script.dedicated.is_drained());
    script.get("$1\r\nx\r\n");
    assert!(script.dedicated.is_drained() && !script.dedicated.is_releasable());
}
