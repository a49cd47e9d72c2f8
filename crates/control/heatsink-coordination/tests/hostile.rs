//! What somebody else writes where the store is: other types are replaced, and with a secret
//! nothing is believed that no member has sealed.

mod support;

use std::time::Duration;

use heatsink_coordination::{Channel, Expects, Notice, Secret, Settings, Store};
use heatsink_testkit::RedisServer;
use support::{applied, body, contents, is_connected, listen, next, settings, skip_to, store_at};

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: [&str; 8] =
    ["state", "registry", "expiry", "blocked", "members", "presence", "roster", "acks"];

fn name(settings: &Settings, part: &str) -> String {
    format!("heatsink:{{{}}}:{part}", settings.namespace())
}

async fn use_everything(store: &Store) {
    applied(store.put(b"k", body("1")).await.expect("a put"));
    store.remove(b"other", Expects::Any, Some(MINUTE)).await.expect("a block");
    assert_eq!(store.heartbeat("a", b"", MINUTE).await.expect("a heartbeat").len(), 1);
    store.acknowledge("topic", "a", MINUTE).await.expect("an acknowledgement");
    assert_eq!(store.acknowledged("topic").await.expect("a list"), ["a"]);
    store.sweep().await.expect("a sweep");
    let snapshot = store.snapshot().await.expect("a snapshot");
    assert_eq!((snapshot.records.len(), snapshot.blocked.len()), (1, 1), "{snapshot:?}");
}

/// Nobody has to repair anything by hand, whatever was written there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_another_type_are_replaced() {
    let server = RedisServer::start();
    let settings = settings();
    let store = store_at(&server.url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    use_everything(&store).await;
    for part in KEYS {
        let key = name(&settings, part);
        for damage in [
            &["SET", key.as_str(), "x"][..],
            &["RPUSH", key.as_str(), "x"],
            &["SADD", key.as_str(), "x"],
        ] {
            server.client().command(&["DEL", &key]);
            server.client().command(damage);
            use_everything(&store).await;
        }
    }
    server.client().command(&["SET", &name(&settings, "presence"), "x"]);
    store.leave("a").await.expect("a farewell");
    for (key, field) in [("state", "version"), ("state", "count"), ("roster", "version")] {
        for garbage in ["x", "-1", "99999999999999999999", ""] {
            server.client().command(&["HSET", &name(&settings, key), field, garbage]);
            use_everything(&store).await;
        }
    }
    // The subscription goes on as well.
    server.client().command(&["SET", &name(&settings, "state"), "x"]);
    skip_to(&mut subscription, is_connected).await;
    let version = applied(store.put(b"k", body("2")).await.expect("a put"));
    skip_to(&mut subscription, |notice| {
        matches!(notice, Notice::Change { version: told, .. } if *told == version).then_some(())
    })
    .await;
}

/// A message that nobody understands is not a reason to begin again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_channels_is_ignored_and_counted() {
    let server = RedisServer::start();
    let settings = settings();
    let store = store_at(&server.url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    for garbage in ["", "x", "P 1 2 3", "X 1 2 1 k"] {
        server.client().command(&["PUBLISH", &name(&settings, "changes"), garbage]);
    }
    let version = applied(store.put(b"k", body("1")).await.expect("a put"));
    let told = next(&mut subscription).await;
    assert!(matches!(told, Notice::Change { version: told, .. } if told == version), "{told:?}");
    assert_eq!(store.ignored(), 4);
}

fn sealed(settings: &Settings, secret: &str) -> Settings {
    let mut settings = settings.clone();
    settings.secret = Some(Secret::new(secret).expect("long enough"));
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_member_has_sealed_is_not_believed() {
    let server = RedisServer::start();
    let plain = settings();
    let settings = sealed(&plain, "what only the fleet knows");
    let (one, other) =
        (store_at(&server.url(), settings.clone()), store_at(&server.url(), settings.clone()));
    let forger = store_at(&server.url(), plain.clone());
    let stranger = store_at(&server.url(), sealed(&plain, "what somebody else knows"));
    let mut subscription = listen(&one, &[Channel::Reports]).await;
    for forged in [&forger, &stranger] {
        applied(forged.put(b"victim", body("forged")).await.expect("a put"));
        forged.publish(Channel::Reports, b"forged".to_vec()).await.expect("a message");
        forged.heartbeat("forged", b"card", MINUTE).await.expect("a heartbeat");
        forged.acknowledge("topic", "forged", MINUTE).await.expect("an acknowledgement");
    }
    let change = b"P 99999999999999 1 6 victim1 1 0 forged";
    server.client().command(&[b"PUBLISH", name(&plain, "changes").as_bytes(), change]);
    // What members say is heard, and nothing else.
    let not_forged = |told: &Notice| {
        let body = match told {
            Notice::Change { record: Some(record), .. } => &record.body,
            Notice::Report(body) => body,
            // A change that is not heard makes members look again.
            _ => return None,
        };
        assert_ne!(body, b"forged", "{told:?}");
        Some(told.clone())
    };
    // One that comes close behind a forged one may be no more than a reason to look again, too.
    let mut told = None;
    for _ in 0..20 {
        let version = applied(other.put(b"k", body("1")).await.expect("a put"));
        let next = skip_to(&mut subscription, not_forged);
        if let Ok(next) = tokio::time::timeout(Duration::from_millis(500), next).await {
            told = Some((version, next));
            break;
        }
    }
    let (version, told) = told.expect("a change that is heard");
    assert!(matches!(told, Notice::Change { version: told, .. } if told == version), "{told:?}");
    other.publish(Channel::Reports, b"seen".to_vec()).await.expect("a message");
    let told = skip_to(&mut subscription, not_forged).await;
    assert_eq!(told, Notice::Report(b"seen".to_vec()));
    let snapshot = one.snapshot().await.expect("a snapshot");
    assert_eq!(contents(&snapshot).into_keys().collect::<Vec<_>>(), [b"k"]);
    other.heartbeat("member", b"card", MINUTE).await.expect("a heartbeat");
    let members = one.heartbeat("me", b"card", MINUTE).await.expect("a heartbeat");
    let mut ids: Vec<_> = members.iter().map(|member| member.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["me", "member"]);
    assert!(members.iter().all(|member| member.body == b"card"));
    other.acknowledge("topic", "member", MINUTE).await.expect("an acknowledgement");
    assert_eq!(one.acknowledged("topic").await.expect("a list"), ["member"]);
    // Two cards and two acknowledgements; of messages, as many as came while it listened.
    assert!(one.ignored() >= 4, "{}", one.ignored());
    // A sealed body is of no use under another key.
    let registry = name(&plain, "registry");
    let mut direct = server.client();
    let body = direct.command(&["HGET", &registry, "k"]);
    direct.command(&[b"HSET", registry.as_bytes(), b"victim", body.bytes().expect("a record")]);
    let snapshot = one.snapshot().await.expect("a snapshot");
    assert_eq!(contents(&snapshot).into_keys().collect::<Vec<_>>(), [b"k"]);
}

/// A removal is not sealed: it makes members look, and what is there still stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_is_a_reason_to_look() {
    let server = RedisServer::start();
    let settings = sealed(&settings(), "what only the fleet knows");
    let store = store_at(&server.url(), settings.clone());
    let mut subscription = listen(&store, &[]).await;
    let version = applied(store.put(b"k", body("1")).await.expect("a put"));
    next(&mut subscription).await;
    let forged = format!("R {version} 1 1 k");
    server.client().command(&["PUBLISH", &name(&settings, "changes"), &forged]);
    assert_eq!(next(&mut subscription).await, Notice::Removals);
    assert_eq!(store.snapshot().await.expect("a snapshot").records.len(), 1);
    store.remove(b"k", Expects::Any, None).await.expect("a removal");
    assert_eq!(next(&mut subscription).await, Notice::Removals);
    assert!(store.snapshot().await.expect("a snapshot").records.is_empty());
}
