//! The interleavings that are drawn in this room's modules, on a worker without sockets.
//!
//! What these tests arrange by hand, [`crate::simulation`] meets by chance.

use std::sync::Arc;
use std::time::Duration;

use heatsink_split::Layout;
use heatsink_split::layout::Kind;

use crate::hot_keys::{HotKeys, Treatment};
use crate::runtime::scripted::Rig;
use crate::splits::Splitting;

const ABSENT: &str = "$-1\r\n";

fn value(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A worker for which `k` is hot, and the connection on which the server tells of changes is there.
fn rig(treatment: Treatment) -> Rig {
    let mut rig = Rig::new();
    rig.directly(0, "SET k 1");
    rig.make_hot(&[("k", treatment)]);
    rig.idle_turn();
    let reader = rig.client();
    rig.ask(reader, "GET k");
    if treatment.local_cache {
        assert_eq!(rig.ask(reader, "GET k"), value("1"));
    }
    rig
}

fn executed(rig: &Rig, command: &str) -> usize {
    rig.servers[0].executed.iter().filter(|one| *one == command).count()
}

/// See the head of `reads`.
#[test]
fn a_client_sees_its_own_write_before_word_of_it_has_come() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    assert_eq!(rig.ask(client, "GET k"), value("1"));
    let (shared, tracked) = (rig.shared(), rig.tracked());
    // 2. - 4. Word of the change waits on T.
    rig.send(client, &["APPEND k 2"]);
    rig.serve(shared);
    assert_eq!(rig.replies(client), [":2\r\n"]);
    // 5.
    rig.send(client, &["GET k"]);
    rig.turns();
    assert!(rig.replies(client).is_empty(), "not from the cache");
    rig.serve(tracked);
    assert_eq!(rig.replies(client), [value("12")]);
}

/// The same where the write and the read come in one piece.
#[test]
fn a_read_behind_an_own_write_of_the_same_pipeline_is_not_of_the_cache() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    rig.send(client, &["GET k", "SET k 2", "GET k", "DEL k", "GET k"]);
    rig.settle();
    let (one, two, ok) = (value("1"), value("2"), "+OK\r\n".to_owned());
    assert_eq!(rig.replies(client), [one, ok, two, ":1\r\n".to_owned(), ABSENT.to_owned()]);
}

/// Another client may be served the old value until word has come, and not once it has.
#[test]
fn word_of_a_change_ends_what_is_cached_before_anything_that_came_with_it_is_served() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    rig.directly(0, "SET k 2");
    // Both come with one turn of the worker.
    rig.send(client, &["GET k"]);
    let tracked = rig.tracked();
    rig.deliver(0, tracked);
    rig.settle();
    assert_eq!(rig.replies(client), [value("2")]);
}

/// ```text
/// 1. a read is executed; its reply is on its way     2. somebody writes; word is behind the reply
/// 3. the reply comes, then word of the write, then the time to live
/// ```
#[test]
fn what_was_overwritten_while_it_was_read_is_not_kept() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    rig.directly(0, "SET k 2");
    rig.settle();
    let tracked = rig.tracked();
    rig.send(client, &["GET k"]);
    let waiting = rig.waiting(tracked);
    assert_eq!(waiting, ["CLIENT CACHING YES", "GET k", "PTTL k"]);
    assert!(rig.execute(0, tracked) && rig.execute(0, tracked));
    rig.directly(0, "SET k 3");
    assert!(rig.execute(0, tracked));
    rig.deliver(0, tracked);
    rig.turns();
    assert_eq!(rig.replies(client), [value("2")]);
    assert_eq!(rig.ask(client, "GET k"), value("3"));
}

/// Nothing is served that was read along a connection which is lost.
#[test]
fn nothing_is_served_from_a_connection_that_is_lost() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    let tracked = rig.tracked();
    rig.directly(0, "SET k 2");
    // Word of it is lost with the connection.
    rig.cut(0, tracked);
    assert_eq!(rig.ask(client, "GET k"), value("2"));
}

/// Nor from one that is silent: the server may have said something that did not come.
#[test]
fn nothing_is_served_from_a_connection_that_is_silent() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    rig.directly(0, "SET k 2");
    let shared = rig.shared();
    for _ in 0..20 {
        // The server answers on the shared connection only.
        rig.advance(Duration::from_millis(50));
        rig.serve(shared);
    }
    assert_eq!(rig.ask(client, "GET k"), value("2"));
}

/// See `notice_pause_in_turn`: what others have written meanwhile was acknowledged long ago.
#[test]
fn nothing_is_served_from_the_cache_behind_a_pause_in_the_middle_of_a_turn() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    assert_eq!(rig.ask(client, "GET k"), value("1"));
    // Word of it has not come when the turn begins.
    rig.directly(0, "SET k 2");
    rig.send(client, &["GET k"]);
    rig.turn_with_pause(Duration::from_secs(3));
    rig.settle();
    assert_eq!(rig.replies(client), [value("2")]);
}

/// Nobody joins a read whose bytes have left: it may be executed already.
///
/// ```text
/// 1. A: GET k leaves, and is executed      2. C: SET k 2, acknowledged
/// 3. B: GET k                              4. A's reply comes: not for B
/// ```
#[test]
fn a_read_does_not_join_one_that_has_left() {
    let mut rig = Rig::new();
    rig.directly(0, "SET k 1");
    rig.make_hot(&[("k", Treatment::EXACT)]);
    rig.idle_turn();
    let (one, other) = (rig.client(), rig.client());
    let shared = rig.shared();
    rig.send(one, &["GET k"]);
    assert_eq!(rig.waiting(shared), ["GET k"]);
    assert!(rig.execute(0, shared));
    rig.directly(0, "SET k 2");
    rig.send(other, &["GET k"]);
    rig.turns();
    rig.deliver(0, shared);
    rig.settle();
    assert_eq!(rig.replies(one), [value("1")]);
    assert_eq!(rig.replies(other), [value("2")]);
}

/// Reads that come while one is out wait for the next, all for the same.
#[test]
fn reads_that_wait_for_the_next_share_it() {
    let mut rig = Rig::new();
    rig.directly(0, "SET k 1");
    rig.make_hot(&[("k", Treatment::EXACT)]);
    rig.idle_turn();
    let readers: Vec<usize> = (0..50).map(|_| rig.client()).collect();
    for reader in &readers {
        rig.send(*reader, &["GET k"]);
        rig.turns();
    }
    rig.settle();
    for reader in readers {
        assert_eq!(rig.replies(reader), [value("1")]);
    }
    assert_eq!(executed(&rig, "GET k"), 2);
}

/// See `would_overtake_read` in the module `reads`.
#[test]
fn a_read_does_not_overtake_another_of_its_client_and_key() {
    let mut rig = Rig::new();
    rig.directly(0, "SET k 1");
    rig.make_hot(&[("k", Treatment::EXACT)]);
    rig.idle_turn();
    let (one, client) = (rig.client(), rig.client());
    let shared = rig.shared();
    rig.send(one, &["GET k"]);
    assert_eq!(rig.waiting(shared), ["GET k"]);
    rig.send(client, &["GET k", "STRLEN k"]);
    rig.turns();
    // 2. Somebody writes, and all that has left by then is executed.
    rig.directly(0, "SET k 22");
    rig.serve(shared);
    rig.directly(0, "SET k 333");
    rig.settle();
    let replies = rig.replies(client);
    let (read, length) = (&replies[0], &replies[1]);
    let seen = [value("22"), value("333")].iter().position(|value| value == read);
    let told = [":2\r\n", ":3\r\n"].iter().position(|length_of| length_of == length);
    assert!(seen <= told && seen.is_some(), "{replies:?}");
}

/// Increments that come while one is out go as one, and each caller is told its own number.
#[test]
fn increments_that_wait_go_as_one() {
    let mut rig = Rig::new();
    rig.make_hot(&[("n", Treatment::EXACT)]);
    rig.idle_turn();
    let shared = rig.shared();
    let callers: Vec<usize> = (0..20).map(|_| rig.client()).collect();
    for caller in &callers {
        rig.send(*caller, &["INCR n"]);
        rig.turns();
    }
    assert_eq!(rig.waiting(shared).len(), 1);
    rig.settle();
    for (at, caller) in callers.iter().enumerate() {
        assert_eq!(rig.replies(*caller), [format!(":{}\r\n", at + 1)]);
    }
    assert!(rig.servers[0].executed.len() < 10, "{:?}", rig.servers[0].executed);
}

/// Whether a batch was executed is not known when its connection is lost: nobody sends it again.
#[test]
fn a_batch_whose_connection_is_lost_is_not_sent_again() {
    let mut rig = Rig::new();
    rig.make_hot(&[("n", Treatment::EXACT)]);
    rig.idle_turn();
    let shared = rig.shared();
    let callers: Vec<usize> = (0..3).map(|_| rig.client()).collect();
    for caller in &callers {
        rig.send(*caller, &["INCR n"]);
    }
    rig.turns();
    assert!(rig.execute(0, shared));
    rig.cut(0, shared);
    rig.settle();
    let told: Vec<String> = callers.iter().flat_map(|caller| rig.replies(*caller)).collect();
    assert_eq!(told.len(), 3);
    let is_unknown =
        |reply: &&String| reply.contains("it is unknown whether the command was executed");
    let unknown = told.iter().filter(is_unknown).count();
    assert!(unknown > 0, "{told:?}");
    let count: i64 = rig.directly(0, "GET n").split("\r\n").nth(1).unwrap().parse().unwrap();
    assert!(count <= 3, "{count} increments of 3: {told:?}");
}

/// A refusal of one member is nobody else's.
#[test]
fn a_batch_that_the_server_refuses_is_answered_one_by_one() {
    let mut rig = Rig::new();
    rig.directly(0, "SET n 9223372036854775806");
    rig.make_hot(&[("n", Treatment::EXACT)]);
    rig.idle_turn();
    let callers: Vec<usize> = (0..3).map(|_| rig.client()).collect();
    let first = rig.client();
    rig.send(first, &["GET n"]);
    for caller in &callers {
        rig.send(*caller, &["INCR n"]);
    }
    rig.settle();
    let told: Vec<String> = callers.iter().flat_map(|caller| rig.replies(*caller)).collect();
    assert_eq!(told[0], ":9223372036854775807\r\n");
    assert!(told[1..].iter().all(|reply| reply.contains("overflow")), "{told:?}");
}

/// See `change_hot_keys` in the module `hot`.
///
/// ```text
/// 1. C: INCR n waits behind another's      2. n cools down
/// 3. C: GET n, as usual, would be executed first
/// ```
#[test]
fn what_is_sent_after_a_key_cooled_down_does_not_overtake_what_waits() {
    let mut rig = Rig::new();
    rig.make_hot(&[("n", Treatment::EXACT)]);
    rig.idle_turn();
    let (one, client) = (rig.client(), rig.client());
    rig.send(one, &["INCR n"]);
    rig.turns();
    rig.send(client, &["INCR n"]);
    rig.turns();
    rig.make_hot(&[]);
    rig.idle_turn();
    rig.send(client, &["GET n"]);
    rig.settle();
    assert_eq!(rig.replies(client), [":2\r\n".to_owned(), value("2")]);
}

/// A client that waited for others' read has gone: the others are told, and nobody else is.
#[test]
fn a_client_that_left_takes_nothing_from_those_who_wait_with_it() {
    let mut rig = Rig::new();
    rig.directly(0, "SET k 1");
    rig.make_hot(&[("k", Treatment::EXACT)]);
    rig.idle_turn();
    let (leaver, other) = (rig.client(), rig.client());
    rig.send(leaver, &["GET k"]);
    rig.turns();
    rig.send(other, &["GET k"]);
    rig.turns();
    rig.replace_client(leaver);
    rig.settle();
    assert_eq!(rig.replies(other), [value("1")]);
    assert!(rig.replies(leaver).is_empty(), "it asked nothing");
    assert_eq!(rig.ask(leaver, "PING"), "+PONG\r\n");
}

/// On a dedicated connection, too, a request that waits for a value which is moved is given its own time:
/// what its client sent before may have waited long ago.
#[test]
fn who_has_waited_before_waits_again_on_a_dedicated_connection() {
    let mut rig = Rig::new();
    let client = rig.client();
    assert_eq!(rig.ask(client, "WATCH other"), "+OK\r\n");
    let layout = Arc::new(Layout::new("1-a", Kind::Counter, false, &["0", "1"]));
    let freezing = Splitting::Freezing { layout, permit: (*b"permit").into() };
    for number in 1..=2 {
        let frozen = HotKeys::default().with_splits([(b"k".to_vec(), freezing.clone())]);
        rig.shared.publish_hot_keys(frozen);
        rig.idle_turn();
        rig.send(client, &["INCR k"]);
        rig.settle();
        assert!(rig.replies(client).is_empty(), "it waits");
        rig.shared.publish_hot_keys(HotKeys::default());
        rig.idle_turn();
        rig.settle();
        assert_eq!(rig.replies(client), [format!(":{number}\r\n")]);
        rig.advance(Duration::from_secs(10));
    }
}

/// See `session::switch`.
#[test]
fn no_password_is_sent_behind_requests_that_are_not_answered() {
    let mut rig = Rig::new();
    let (one, other) = (rig.client(), rig.client());
    for login in ["AUTH default any", "HELLO 2 AUTH default any"] {
        rig.ask(one, login);
        // Of whoever is logged in like this, the server has not answered a request yet.
        rig.send(one, &["GET k"]);
        rig.send(other, &[login]);
        rig.turns();
        let says = |request: &Vec<u8>, word: &[u8]| {
            request.windows(word.len()).any(|window| window == word)
        };
        let mut queues = rig.servers[0].connections.iter().map(|one| &one.requests);
        let asked = queues.find(|queue| queue.iter().any(|request| says(request, b"AUTH")));
        let asked = asked.unwrap_or_else(|| panic!("{login}: nobody was asked"));
        assert!(!asked.iter().any(|request| says(request, b"GET")), "{login}: behind others");
        rig.settle();
        assert_eq!(rig.replies(one), ["$-1\r\n"]);
        assert_eq!(rig.replies(other).len(), 1);
        // Nothing is under way: the connection that is there will do.
        let connections = rig.servers[0].connections.len();
        rig.ask(other, login);
        assert_eq!(rig.servers[0].connections.len(), connections, "{login}");
    }
}

/// A transaction reads the server's value, and the cache is not asked between `MULTI` and `EXEC`.
#[test]
fn a_transaction_goes_past_the_cache() {
    let mut rig = rig(Treatment::COHERENT);
    let client = rig.client();
    rig.send(client, &["MULTI", "SET k 5", "GET k", "EXEC", "GET k"]);
    rig.settle();
    let replies = rig.replies(client);
    assert_eq!(replies[3], "*2\r\n+OK\r\n$1\r\n5\r\n");
    assert_eq!(replies[4], value("5"));
}

/// The telnet form takes the same way as the usual one: it does not overtake what waits.
#[test]
fn a_request_in_the_telnet_form_stays_behind_what_its_client_asked_before() {
    let mut rig = Rig::new();
    rig.make_hot(&[("k", Treatment::EXACT)]);
    rig.idle_turn();
    let (other, client) = (rig.client(), rig.client());
    rig.send(other, &["SET k 1"]);
    rig.turns();
    rig.send(client, &["SET k 2"]);
    rig.send_bytes(client, b"GET k\r\n");
    rig.settle();
    assert_eq!(rig.replies(client), ["+OK\r\n".to_owned(), value("2")]);
}

/// What needs the answers to what came before it waits for those of its own pipeline.
#[test]
fn a_reset_is_answered_behind_its_own_pipeline() {
    let mut rig = Rig::new();
    let client = rig.client();
    let shared = rig.shared();
    rig.send(client, &["SET k 1", "GET k", "RESET", "PING"]);
    assert_eq!(rig.waiting(shared), ["SET k 1", "GET k"]);
    assert!(rig.replies(client).is_empty());
    rig.settle();
    let (ok, one) = ("+OK\r\n".to_owned(), value("1"));
    assert_eq!(rig.replies(client), [ok, one, "+RESET\r\n".to_owned(), "+PONG\r\n".to_owned()]);
}
