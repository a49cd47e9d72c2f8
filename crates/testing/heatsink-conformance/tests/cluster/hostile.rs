//! Replies that are not what they look like, and clients that have not said who they are.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::Auth;
use heatsink_testkit::{LUA_NOW_MS, RawClient, RedisCluster, Reply, eventually, key_slot};
use heatsink_users::{Users, hash};

use crate::open::{OPEN, before_open};

/// For an answer that nothing has to be waited for.
const PROMPT: Duration = Duration::from_secs(1);
/// For one that comes after everything allowed has been tried.
const BOUNDED: Duration = Duration::from_secs(4);
/// How long a slow script takes.
const SLOW: Duration = Duration::from_millis(150);
/// How often a request may be executed that says itself that it was not.
const MAX_EXECUTIONS: i64 = 20;

/// What is said instead of leading a client to another node.
const UNSERVED: &str = "CLUSTERDOWN Hash slot not served";

/// Demands a password.
static CLOSED: LazyLock<RedisCluster> = LazyLock::new(|| {
    RedisCluster::builder().replicas_per_primary(0).password("cluster-secret").start()
});

/// A place outside of the cluster where nobody may come.
struct Trap(TcpListener);

impl Trap {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        Self(listener)
    }

    fn addr(&self) -> String {
        self.0.local_addr().expect("an address").to_string()
    }

    #[track_caller]
    fn check_untouched(&self) {
        match self.0.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => panic!("somebody came: {other:?}"),
        }
    }
}

/// Counts up and fails with `error`.
fn script(error: &str) -> String {
    format!("redis.call('INCR', KEYS[1]) return redis.error_reply('{error}')")
}

/// The same, but the first time it takes long enough for the client to leave meanwhile.
fn slow_script(error: &str) -> String {
    format!(
        "{LUA_NOW_MS} \
         if redis.call('INCR', KEYS[1]) == 1 then \
             local start = now() repeat until now() > start + {} \
         end \
         return redis.error_reply('{error}')",
        SLOW.as_millis()
    )
}

/// The client gets the error that its script made up, unless that cannot be told from the
/// node's own, and nobody goes where it leads.
#[track_caller]
fn tempt(client: &mut RawClient, key: &str) {
    let trap = Trap::new();
    client.set_timeout(BOUNDED);
    for slot in [key_slot(key), (key_slot(key) + 1) % 16384, 0] {
        for kind in ["MOVED", "ASK"] {
            let error = format!("{kind} {slot} {}", trap.addr());
            let reply = client.command(&["EVAL", &script(&error), "1", key]);
            let told = if slot == key_slot(key) { UNSERVED } else { &error };
            assert_eq!(reply, Reply::Error(told.into()), "{error}");
            trap.check_untouched();
        }
    }
    // Whatever would have been begun has had a way to the cluster and back.
    assert!(client.command(&["GET", key]).text().parse::<i64>().is_ok());
    assert!(client.command(&["DBSIZE"]).integer() > 0);
    trap.check_untouched();
}

#[test]
fn a_script_does_not_lead_out_of_the_cluster() {
    let retry = Duration::from_millis(200);
    let heatsink = before_open(|config| config.live.timeouts.cluster_retry = retry);
    tempt(&mut heatsink.client(), &OPEN.key_on(0, "lured"));
    let mut watching = heatsink.client();
    let key = OPEN.key_on(1, "lured");
    assert_eq!(watching.command(&["WATCH", &key]), Reply::ok());
    tempt(&mut watching, &key);
}

#[test]
fn a_script_does_not_get_the_credentials_of_the_cluster() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!("[[user]]\nname = \"app\"\nhash = \"{}\"\n", hash(b"app-pw"));
    std::fs::write(file.path(), text).expect("a written file");
    let users = Users::load(file.path()).expect("a valid file");
    let url = CLOSED.seed_url().replace("://", "://:cluster-secret@");
    let heatsink = Heatsink::before_url(&url, |config| {
        config.auth = Auth::Service(users);
        config.live.timeouts.cluster_retry = Duration::from_millis(200);
    });
    let mut client = heatsink.client();
    assert_eq!(client.command(&["AUTH", "app", "app-pw"]), Reply::ok());
    tempt(&mut client, &CLOSED.key_on(0, "lured"));
}

#[test]
fn what_a_script_makes_up_is_an_answer() {
    let heatsink = before_open(|_| {});
    for (n, error) in ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN"].iter().enumerate() {
        let error = format!("{error} made up");
        for way in ["shared", "watching", "listening"] {
            let key = OPEN.key_on(n % 3, &format!("{way}:{error}"));
            let mut client = heatsink.client();
            // Some of these have a connection of their own.
            let first: &[&[&str]] = match way {
                "watching" => &[&["WATCH", &key]],
                "listening" => &[&["HELLO", "3"], &["SUBSCRIBE", "made up"]],
                _ => &[],
            };
            for command in first {
                assert!(!client.command(command).is_error(), "{command:?}");
            }
            let begun = Instant::now();
            let reply = client.command(&["EVAL", &script(&error), "1", &key]);
            assert!(begun.elapsed() < PROMPT, "{way}: {error}: {:?}", begun.elapsed());
            assert_eq!(reply, Reply::Error(error.clone()), "{way}");
            assert_eq!(client.command(&["GET", &key]), Reply::bulk("1"), "{way}: {error}");
        }
    }
}

#[test]
fn a_script_that_sends_itself_in_circles_ends() {
    let heatsink = before_open(|_| {});
    for way in ["shared", "own", "gone"] {
        let key = OPEN.key_on(2, &format!("circle:{way}"));
        let error = format!("MOVED {} {}", key_slot(&key), OPEN.node(2).addr());
        let (mut client, mut direct) = (heatsink.client(), OPEN.node(2).client());
        let executions = |direct: &mut RawClient| match direct.command(&["GET", &key]) {
            Reply::Null => 0,
            count => count.text().parse::<i64>().expect("a number"),
        };
        if way == "own" {
            assert_eq!(client.command(&["WATCH", &key]), Reply::ok());
        }
        if way == "gone" {
            // With a connection to the node that is there already, so that it is sent at once.
            assert_eq!(client.command(&["GET", &key]), Reply::Null);
            client.send(&["EVAL", &slow_script(&error), "1", &key]);
            // It is executed, or the way there and back has been gone twice.
            assert_eq!(client.try_read_frame(SLOW / 3).expect("open"), None);
            drop(client);
            eventually(BOUNDED, || heatsink.proxy().client_count() == 0);
            eventually(BOUNDED, || executions(&mut direct) > 0);
        } else {
            client.set_timeout(BOUNDED);
            let reply = client.command(&["EVAL", &script(&error), "1", &key]);
            assert_eq!(reply, Reply::Error(UNSERVED.into()), "{way}");
        }
        let count = executions(&mut direct);
        assert!((1..=MAX_EXECUTIONS).contains(&count), "{way}: executed {count} times");
        // A request that came after it is answered, so it has come to an end.
        assert_eq!(
            heatsink.client().command(&["STRLEN", &key]),
            Reply::Integer(count.to_string().len() as i64)
        );
        assert_eq!(executions(&mut direct), count, "{way}");
    }
}

/// Counts its runs where it is executed: of `keys`, one for each node, only that one's is to be
/// had there.
fn keyless_script(keys: &[String], error: &str) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("'{key}'")).collect();
    format!(
        "for _, key in ipairs({{ {} }}) do redis.pcall('INCR', key) end \
         return redis.error_reply('{error}')",
        keys.join(", ")
    )
}

#[test]
fn a_script_without_keys_is_executed_once() {
    let heatsink = before_open(|_| {});
    let mut errors: Vec<String> = (0..3)
        .flat_map(|node| {
            ["MOVED", "ASK"].map(|kind| format!("{kind} 1 {}", OPEN.node(node).addr()))
        })
        .collect();
    errors.push("TRYAGAIN Multiple keys request during rehashing of slot".into());
    errors.push("CLUSTERDOWN Hash slot not served".into());
    for (n, error) in errors.iter().enumerate() {
        for way in ["shared", "watching"] {
            let keys: Vec<String> =
                (0..3).map(|node| OPEN.key_on(node, &format!("keyless:{way}:{n}"))).collect();
            let mut client = heatsink.client();
            client.set_timeout(BOUNDED);
            if way == "watching" {
                assert_eq!(client.command(&["WATCH", &keys[n % 3]]), Reply::ok());
            }
            let reply = client.command(&["EVAL", &keyless_script(&keys, error), "0"]);
            assert_eq!(reply, Reply::Error(error.clone()), "{way}");
            let runs =
                (0..3).map(|node| match OPEN.node(node).client().command(&["GET", &keys[node]]) {
                    Reply::Null => 0,
                    count => count.text().parse::<i64>().expect("a number"),
                });
            assert_eq!(runs.sum::<i64>(), 1, "{way}: {error}");
        }
    }
}

#[test]
fn who_has_not_logged_in_is_told_so_at_once() {
    let commands = [
        &["PING"][..],
        &["DBSIZE"],
        &["SCAN", "0"],
        &["CLIENT", "PAUSE", "1"],
        &["GET", "a"],
        &["MGET", "a", "b", "c"],
        &["KEYS", "*"],
        &["BLPOP", "a", "0"],
        &["WAIT", "1", "0"],
    ];
    let told = |client: &mut RawClient, command: &[&str]| {
        client.set_timeout(BOUNDED);
        let begun = Instant::now();
        let reply = client.command(command);
        assert!(reply.is_error() && reply.error().starts_with("NOAUTH"), "{command:?}: {reply}");
        assert!(begun.elapsed() < PROMPT, "{command:?}: {:?}", begun.elapsed());
    };
    for command in commands {
        // As the first of all clients.
        let heatsink = Heatsink::before_url(&CLOSED.seed_url(), |_| {});
        told(&mut heatsink.client(), command);
    }
    let heatsink = Heatsink::before_url(&CLOSED.seed_url(), |_| {});
    let mut client = heatsink.client();
    for command in commands {
        told(&mut client, command);
        told(&mut heatsink.client(), command);
    }
    assert_eq!(client.command(&["AUTH", "cluster-secret"]), Reply::ok());
    assert_eq!(client.command(&["PING"]).text(), "PONG");
    assert!(!client.command(&["DBSIZE"]).is_error());
    told(&mut heatsink.client(), &["DBSIZE"]);
}
