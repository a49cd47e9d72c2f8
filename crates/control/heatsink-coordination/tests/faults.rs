//! What happens when the server goes away, stands still, forgets or refuses.

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heatsink_coordination::{
    Blocked, Channel, Expects, Notice, Put, PutOutcome, Store, StoreError,
};
use heatsink_testkit::{RedisServer, Reply};
use support::{
    applied, body, contents, eventually, expecting, is_connected, is_lost, listen, next, settings,
    skip_to, store_at,
};

/// A call may take its 500 ms and what a busy machine adds.
const CALL_LIMIT: Duration = Duration::from_millis(800);
const LOST_LIMIT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_data_is_a_new_incarnation() {
    let mut server = RedisServer::start();
    let store = store_at(&server.url(), settings());
    let mut subscription = listen(&store, &[]).await;
    let old = applied(store.put(b"k", body("1")).await.unwrap());
    let before = store.snapshot().await.unwrap();
    server.kill();
    let why = skip_to(&mut subscription, is_lost).await;
    assert!(why.contains(&server.addr().to_string()), "{why}");
    let error = store.snapshot().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    server.start_again();
    skip_to(&mut subscription, is_connected).await;
    // The first call finds the server again by itself.
    let after = store.snapshot().await.unwrap();
    assert_ne!(after.incarnation, before.incarnation);
    assert!(after.records.is_empty());
    assert!(after.version > before.version);
    // An epoch of before means nothing now, even for a key that is there again.
    let new = applied(store.put(b"k", expecting(Expects::ABSENT, "2")).await.unwrap());
    let stale = store.put(b"k", expecting(Expects::Epoch(old), "old")).await.unwrap();
    assert_eq!(stale, PutOutcome::Stale { epoch: new });
    let told = next(&mut subscription).await;
    assert!(matches!(told, Notice::Change { version, .. } if version == new), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_data_goes_on() {
    let mut server =
        RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always").start();
    let store = store_at(&server.url(), settings());
    let mut subscription = listen(&store, &[]).await;
    let epoch = applied(store.put(b"k", body("1")).await.unwrap());
    let before = store.snapshot().await.unwrap();
    server.restart();
    skip_to(&mut subscription, is_lost).await;
    skip_to(&mut subscription, is_connected).await;
    let after = store.snapshot().await.unwrap();
    assert_eq!((&after.incarnation, after.version), (&before.incarnation, before.version));
    assert_eq!(contents(&after), contents(&before));
    let next_version =
        applied(store.put(b"k", expecting(Expects::Epoch(epoch), "2")).await.unwrap());
    assert_eq!(next_version, epoch + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_noticed_and_holds_nobody_up() {
    let mut server = RedisServer::start();
    let store = store_at(&server.url(), settings());
    let mut subscription = listen(&store, &[]).await;
    store.put(b"k", body("1")).await.unwrap();
    server.pause();
    let paused = Instant::now();
    let calls = async {
        while paused.elapsed() < 3 * LOST_LIMIT / 2 {
            let start = Instant::now();
            let error = store.put(b"k", body("2")).await.unwrap_err();
            assert!(start.elapsed() < CALL_LIMIT, "{:?}: {error}", start.elapsed());
            let expected =
                matches!(error, StoreError::Timeout { .. } | StoreError::Unreachable { .. });
            assert!(expected, "{error:?}");
        }
    };
    let noticed = async {
        skip_to(&mut subscription, is_lost).await;
        assert!(paused.elapsed() < LOST_LIMIT, "{:?}", paused.elapsed());
    };
    tokio::join!(calls, noticed);
    server.resume();
    skip_to(&mut subscription, is_connected).await;
    let version = eventually(async || store.put(b"k", body("3")).await.map(applied)).await;
    skip_to(&mut subscription, |notice| {
        matches!(notice, Notice::Change { version: told, .. } if *told == version).then_some(())
    })
    .await;
    assert_eq!(
        contents(&store.snapshot().await.unwrap()),
        BTreeMap::from([(b"k".to_vec(), (version, b"3".to_vec()))])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_said_at_once_and_mended_later() {
    let mut server = RedisServer::start();
    server.stop();
    let store = store_at(&server.url(), settings());
    let mut subscription = store.subscribe(&[]);
    let first = next(&mut subscription).await;
    assert!(is_lost(&first).is_some(), "{first:?}");
    let start = Instant::now();
    let error = store.heartbeat("a", b"", Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&server.addr().to_string()), "{error}");
    assert!(start.elapsed() < CALL_LIMIT, "{:?}", start.elapsed());
    server.start_again();
    let second = next(&mut subscription).await;
    assert!(is_connected(&second).is_some(), "{second:?}");
    store.heartbeat("a", b"", Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_vanishes_from_a_running_server_is_noticed() {
    let server = RedisServer::start();
    let settings = settings();
    let store = store_at(&server.url(), settings.clone());
    let part = |name: &str| format!("heatsink:{{{}}}:{name}", settings.namespace());
    let mut subscription = listen(&store, &[]).await;
    let losses = [
        vec!["FLUSHALL".to_owned()],
        vec!["DEL".to_owned(), part("registry")],
        vec!["DEL".to_owned(), part("expiry")],
        vec!["DEL".to_owned(), part("state")],
    ];
    for loss in losses {
        applied(store.put(b"a", body("1")).await.unwrap());
        applied(store.put(b"b", body("1")).await.unwrap());
        let before = store.snapshot().await.unwrap();
        server.client().command(&loss);
        let why = skip_to(&mut subscription, is_lost).await;
        assert!(why.contains("lost its data"), "{loss:?}: {why}");
        skip_to(&mut subscription, is_connected).await;
        let after = store.snapshot().await.unwrap();
        assert_ne!(after.incarnation, before.incarnation, "{loss:?}");
        assert!(after.version > before.version, "{loss:?}");
        assert!(after.records.is_empty(), "{loss:?}: {after:?}");
    }
    // Half of the presence is as good as none.
    store.heartbeat("a", b"", Duration::from_secs(60)).await.unwrap();
    server.client().command(&["DEL", &part("presence")]);
    let members = store.heartbeat("b", b"", Duration::from_secs(60)).await.unwrap();
    assert_eq!(members.len(), 1, "{members:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_not_heard_is_noticed() {
    let server = RedisServer::start();
    let settings = settings();
    let store = store_at(&server.url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    // As if the message of a change had been lost on its way.
    let state = format!("heatsink:{{{}}}:state", settings.namespace());
    server.client().command(&["HINCRBY", &state, "version", "1"]);
    let why = skip_to(&mut subscription, is_lost).await;
    assert!(why.contains("not heard"), "{why}");
    skip_to(&mut subscription, is_connected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_are_made_again() {
    let server = RedisServer::start();
    let store = store_at(&server.url(), settings());
    let mut subscription = listen(&store, &[Channel::Watch]).await;
    for round in 0..5 {
        store.put(b"k", body("1")).await.unwrap();
        for kind in ["pubsub", "normal"] {
            server.client().command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
        server.client().command(&["SCRIPT", "FLUSH"]);
        skip_to(&mut subscription, is_lost).await;
        skip_to(&mut subscription, is_connected).await;
        // Not even one call fails: the end of the connection was noticed by itself.
        store.snapshot().await.unwrap();
        let version = applied(store.put(b"k", body("2")).await.unwrap());
        let told = next(&mut subscription).await;
        assert!(
            matches!(told, Notice::Change { version: told, .. } if told == version),
            "round {round}: {told:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_flight_when_the_server_dies_fails_and_is_not_sent_again() {
    let mut server = RedisServer::start();
    let mut settings = settings();
    settings.request_timeout = Duration::from_secs(5);
    let store = store_at(&server.url(), settings);
    store.put(b"k", body("1")).await.unwrap();
    server.pause();
    let (put, snapshot) = (store.clone(), store.clone());
    let put = tokio::spawn(async move { put.put(b"k", body("2")).await });
    let snapshot = tokio::spawn(async move { snapshot.snapshot().await });
    tokio::task::yield_now().await;
    // Both are out once the kernel has them for the server that does not read.
    let port = server.port();
    eventually(async || if unread_bytes(port) > 0 { Ok(()) } else { Err("nothing sent") }).await;
    server.restart();
    let error = put.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    // A question can be asked again, and is.
    assert!(snapshot.await.unwrap().unwrap().records.is_empty());
}

/// Bytes that wait in the kernel for a server on this port.
fn unread_bytes(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
    let local = format!(":{port:04X}");
    let queues = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(1)?.ends_with(&local);
        let unread = fields.get(4)?.split_once(':')?.1;
        is_ours.then(|| u64::from_str_radix(unread, 16).unwrap_or(0))
    });
    queues.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_too_slow_for_the_changes_starts_again() {
    let server = RedisServer::start();
    let mut settings = settings();
    settings.queue_length = 8;
    let store = store_at(&server.url(), settings);
    let mut subscription = listen(&store, &[Channel::Reports]).await;
    for _ in 0..20 {
        store.publish(Channel::Reports, vec![0]).await.unwrap();
    }
    let mut last = 0;
    for turn in 0..40_u32 {
        last = applied(store.put(&turn.to_be_bytes(), body("1")).await.unwrap());
    }
    let mut told = Vec::new();
    let why = skip_to(&mut subscription, |notice| {
        told.push(notice.clone());
        is_lost(notice)
    })
    .await;
    assert!(why.contains("faster"), "{why}");
    assert!(told.len() <= 9, "{told:?}");
    assert!(subscription.messages_dropped() > 0);
    skip_to(&mut subscription, is_connected).await;
    assert_eq!(store.snapshot().await.unwrap().records.len(), 40);
    store.put(b"more", body("1")).await.unwrap();
    // What the snapshot holds already may be told again.
    let told = skip_to(&mut subscription, |notice| match notice {
        Notice::Change { version, .. } if *version <= last => None,
        other => Some(other.clone()),
    })
    .await;
    assert!(matches!(told, Notice::Change { version, .. } if version == last + 1), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_leaves_no_connection() {
    let server = RedisServer::start();
    let connections = |server: &RedisServer| server.info_u64("clients", "connected_clients");
    let before = connections(&server);
    let settings = settings();
    let subscriptions = {
        let store = store_at(&server.url(), settings.clone());
        let first = listen(&store, &[]).await;
        let second = listen(&store, &[]).await;
        store.put(b"k", body("1")).await.unwrap();
        assert_eq!(connections(&server), before + 3);
        (first, second)
    };
    drop(subscriptions);
    eventually(async || match connections(&server) {
        count if count == before => Ok(()),
        count => Err(count),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_said_in_the_words_of_the_server() {
    let server = RedisServer::builder().arg("requirepass", "right").start();
    let at = |login: &str| format!("redis://{login}{}", server.addr());
    store_at(&at(":right@"), settings()).snapshot().await.unwrap();
    for (login, words) in [(":wrong@", "WRONGPASS"), ("nobody:right@", "WRONGPASS"), ("", "NOAUTH")]
    {
        let store = store_at(&at(login), settings());
        let error = store.snapshot().await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Refused { words: said } if said.contains(words)),
            "{error:?}"
        );
        let mut subscription = store.subscribe(&[]);
        let why = skip_to(&mut subscription, is_lost).await;
        assert!(why.contains(words), "{why}");
        assert!(!format!("{error} {why} {store:?}").contains("right"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice() {
    let documented = documented_rights();
    let server = RedisServer::builder()
        .line("user admin on >admin ~* &* +@all")
        .line(format!("user heat on >sink resetchannels -@all {documented}"))
        .line("user default off")
        .admin("admin", "admin")
        .start();
    let store = store_at(&format!("redis://heat:sink@{}", server.addr()), settings());
    let mut subscription = listen(&store, &[Channel::Reports, Channel::Watch]).await;
    use_everything(&store).await;
    store.publish(Channel::Reports, b"r".to_vec()).await.unwrap();
    skip_to(&mut subscription, |notice| (*notice == Notice::Report(b"r".to_vec())).then_some(()))
        .await;
    let log = server.admin_client().command(&["ACL", "LOG"]);
    assert_eq!(log, Reply::Array(Vec::new()), "{log}");
    // They do not suffice for anything else.
    let mut other = server.client();
    other.command(&["AUTH", "heat", "sink"]);
    assert!(other.command(&["HGETALL", "users"]).is_error());
}

/// The rules for a user in the crate's documentation, for one server.
fn documented_rights() -> String {
    let text = include_str!("../src/lib.rs").replace("\n//!", "");
    let start = text.find("+@connection").expect("the rules begin");
    let end = start + text[start..].find('`').expect("the rules end");
    text[start..end].to_owned()
}

async fn use_everything(store: &Store) {
    let minute = Duration::from_secs(60);
    let put = Put { ttl: Some(Duration::from_millis(1)), respects_block: true, ..body("1") };
    let epoch = applied(store.put(b"k", body("1")).await.unwrap());
    store.renew(b"k", epoch, minute).await.unwrap();
    store.remove(b"k", Expects::Any, Some(minute)).await.unwrap();
    store.put(b"k", put.clone()).await.unwrap();
    store.put(b"k", body("1")).await.unwrap();
    store.put(b"short", put).await.unwrap();
    eventually(async || match store.sweep().await.unwrap() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    store.snapshot().await.unwrap();
    store.heartbeat("short", b"", Duration::from_millis(1)).await.unwrap();
    eventually(async || match store.heartbeat("a", b"", minute).await.unwrap().len() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    store.leave("a").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_said() {
    let server = RedisServer::builder()
        .line("user admin on >admin ~* &* +@all")
        .line("user heat on >sink resetchannels ~heatsink:* +@all")
        .line("user default off")
        .admin("admin", "admin")
        .start();
    let store = store_at(&format!("redis://heat:sink@{}", server.addr()), settings());
    let mut subscription = store.subscribe(&[]);
    let why = skip_to(&mut subscription, is_lost).await;
    assert!(why.contains("NOPERM"), "{why}");
    let error = store.publish(Channel::Watch, Vec::new()).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { words } if words.contains("NOPERM")),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_are_stores_of_their_own() {
    let server = RedisServer::start();
    let settings = settings();
    let zero = store_at(&format!("{}/0", server.url()), settings.clone());
    let three = store_at(&format!("{}/3", server.url()), settings);
    let mut subscription = listen(&three, &[Channel::Watch]).await;
    zero.put(b"k", body("zero")).await.unwrap();
    zero.publish(Channel::Watch, b"zero".to_vec()).await.unwrap();
    let version = applied(three.put(b"k", body("three")).await.unwrap());
    let told = next(&mut subscription).await;
    assert!(matches!(told, Notice::Change { version: told, .. } if told == version), "{told:?}");
    assert_eq!(three.snapshot().await.unwrap().records.len(), 1);
}

/// A copy of the registry as the control plane would keep it.
#[derive(Default)]
struct Copy {
    version: u64,
    records: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    is_connected: bool,
}

impl Copy {
    /// Follows a notice. Between `Connected` and `Lost` a gap must not happen.
    async fn follow(&mut self, notice: Notice, store: &Store) {
        match notice {
            Notice::Connected { .. } => {
                let snapshot = eventually(async || store.snapshot().await).await;
                self.version = snapshot.version;
                self.records = contents(&snapshot);
                self.is_connected = true;
            }
            Notice::Lost { .. } => self.is_connected = false,
            Notice::Change { version, key, record } if version > self.version => {
                assert!(self.is_connected, "told while it was lost");
                assert_eq!(version, self.version + 1, "a change is missing");
                self.version = version;
                match record {
                    Some(record) => self.records.insert(key, (record.epoch, record.body)),
                    None => self.records.remove(&key),
                };
            }
            _ => {}
        }
    }
}

/// Puts until it is acknowledged, as the only writer of the key; returns the epoch. A call that
/// failed may have been carried out, or may be yet: with the epoch it expects that is at most
/// once, and to be told of one's own record means that it was.
async fn put_once(store: &Store, key: &[u8], epoch: u64, text: &[u8]) -> u64 {
    let deadline = Instant::now() + support::PATIENCE;
    let mut is_first = true;
    loop {
        match store.put(key, expecting(Expects::Epoch(epoch), text)).await {
            Ok(PutOutcome::Applied { version }) => return version,
            Ok(PutOutcome::Stale { epoch }) if !is_first => return epoch,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(Instant::now() < deadline, "still {error}"),
        }
        is_first = false;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_follows_the_notices_converges_through_all_of_it() {
    const WRITERS: u32 = 3;
    let mut server =
        RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always").start();
    let mut settings = settings();
    settings.queue_length = 16;
    let store = store_at(&server.url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    let mut copy = Copy::default();
    copy.follow(Notice::Connected { server: String::new() }, &store).await;

    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, stopped) = (store_at(&server.url(), settings.clone()), stopped.clone());
            tokio::spawn(async move {
                let key = writer.to_be_bytes().to_vec();
                let mut last = (0, Vec::new());
                for turn in 0_u32.. {
                    let text = turn.to_string().into_bytes();
                    last = (put_once(&store, &key, last.0, &text).await, text);
                    if *stopped.borrow() {
                        break;
                    }
                }
                (key, last)
            })
        })
        .collect();

    let faults = tokio::task::spawn_blocking(move || {
        for round in 0..9 {
            match round % 3 {
                0 => server.restart(),
                1 => {
                    for kind in ["pubsub", "normal"] {
                        server.client().command(&["CLIENT", "KILL", "TYPE", kind]);
                    }
                }
                _ => {
                    server.pause();
                    let silence = Instant::now();
                    heatsink_testkit::eventually(LOST_LIMIT, || {
                        silence.elapsed() > Duration::from_millis(150)
                    });
                    server.resume();
                }
            }
            // Some work is done in between.
            let before = server.info_u64("stats", "total_commands_processed");
            heatsink_testkit::eventually(support::PATIENCE, || {
                server.info_u64("stats", "total_commands_processed") > before + 200
            });
        }
        server
    });
    let mut faults = std::pin::pin!(faults);
    let server = loop {
        tokio::select! {
            notice = next(&mut subscription) => copy.follow(notice, &store).await,
            server = &mut faults => break server.expect("the faults were made"),
        }
    };
    stop.send_replace(true);
    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        let (key, last) = writer.await.expect("the writer goes on");
        acknowledged.insert(key, last);
    }
    let end = eventually(async || store.snapshot().await).await;
    while !(copy.is_connected && copy.version == end.version) {
        copy.follow(next(&mut subscription).await, &store).await;
    }
    assert_eq!(copy.records, contents(&end));
    assert_eq!(copy.records, acknowledged, "what was acknowledged last is there");
    drop(server);
}

/// What a server refuses has not happened: here the script may write, but not tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_told_is_not_done() {
    let documented = documented_rights().replace("&heatsink:*", "");
    let server = RedisServer::builder()
        .line("user admin on >admin ~* &* +@all")
        .line(format!("user mute on >mute resetchannels -@all {documented}"))
        .line("user default off")
        .admin("admin", "admin")
        .start();
    let settings = settings();
    let admin = store_at(&format!("redis://admin:admin@{}", server.addr()), settings.clone());
    let mute = store_at(&format!("redis://mute:mute@{}", server.addr()), settings);
    let minute = Duration::from_secs(60);
    applied(admin.put(b"kept", body("1")).await.unwrap());
    admin.remove(b"blocked", Expects::Any, Some(minute)).await.unwrap();
    let mut subscription = listen(&admin, &[]).await;
    let before = admin.snapshot().await.unwrap();
    let refusals = [
        mute.put(b"new", body("1")).await.unwrap_err(),
        mute.put(b"kept", body("2")).await.unwrap_err(),
        mute.put(b"blocked", body("1")).await.unwrap_err(),
        mute.remove(b"kept", Expects::Any, Some(minute)).await.unwrap_err(),
        mute.remove(b"absent", Expects::Any, Some(minute)).await.unwrap_err(),
    ];
    for error in refusals {
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    }
    let after = admin.snapshot().await.unwrap();
    assert_eq!((after.version, contents(&after)), (before.version, contents(&before)));
    let keys = |blocked: &[Blocked]| -> Vec<Vec<u8>> {
        blocked.iter().map(|blocked| blocked.key.clone()).collect()
    };
    assert_eq!(keys(&after.blocked), keys(&before.blocked));
    // Others have missed nothing.
    let version = applied(admin.put(b"next", body("1")).await.unwrap());
    assert_eq!(version, before.version + 1);
    let told = next(&mut subscription).await;
    assert!(matches!(told, Notice::Change { version: told, .. } if told == version), "{told:?}");
}

/// A server that is full says so before anybody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_finds_no_memory_is_not_told() {
    let server = RedisServer::start();
    let store = store_at(&server.url(), settings());
    let mut subscription = listen(&store, &[]).await;
    let before = store.snapshot().await.unwrap().version;
    let mut client = server.client();
    client.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    client.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.put(b"k", body("1")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { words } if words.contains("OOM")), "{error:?}");
    let error = store.heartbeat("a", b"", Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    client.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(store.snapshot().await.unwrap().version, before);
    let version = applied(store.put(b"k", body("1")).await.unwrap());
    let told = next(&mut subscription).await;
    assert!(matches!(told, Notice::Change { version: told, .. } if told == version), "{told:?}");
}

/// Somebody has written over a record: it counts as none, the others are still there, and the
/// error of a key of another type says nothing of what it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_left_out() {
    let server = RedisServer::start();
    let settings = settings();
    let registry = format!("heatsink:{{{}}}:registry", settings.namespace());
    let store = store_at(&server.url(), settings);
    applied(store.put(b"good", body("1")).await.unwrap());
    applied(store.put(b"bad", body("1")).await.unwrap());
    server.client().command(&["HSET", &registry, "bad", "my secret"]);
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(contents(&snapshot).into_keys().collect::<Vec<_>>(), [b"good"]);
    applied(store.put(b"bad", expecting(Expects::ABSENT, "2")).await.unwrap());
    assert_eq!(store.snapshot().await.unwrap().records.len(), 2);
}

/// A large fleet: most heartbeats bring nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_in_a_large_fleet_is_small() {
    const MEMBERS: usize = 200;
    const BEATS: u64 = 20;
    let server = RedisServer::start();
    let settings = settings();
    let minute = Duration::from_secs(60);
    let card = vec![b'c'; 150];
    let others = store_at(&server.url(), settings.clone());
    for number in 1..MEMBERS {
        others.heartbeat(&format!("member-{number:03}"), &card, minute).await.unwrap();
    }
    let store = store_at(&server.url(), settings);
    let sent = || server.info_u64("stats", "total_net_output_bytes");
    let start = sent();
    assert_eq!(store.heartbeat("me", &card, minute).await.unwrap().len(), MEMBERS);
    let first = sent() - start;
    let start = sent();
    for _ in 0..BEATS {
        assert_eq!(store.heartbeat("me", &card, minute).await.unwrap().len(), MEMBERS);
    }
    // What the question itself costs is in it, too.
    let each = (sent() - start) / BEATS;
    println!("the first heartbeat brings {first} bytes, each of the next {each}");
    assert!(first > 30_000 && each < 1000, "{first}, {each}");
}
