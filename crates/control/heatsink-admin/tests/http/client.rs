//! The client of the command line against a real server.

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use heatsink_admin::client::{Client, ClientError};
use heatsink_admin::control::{Change, Promotion};
use heatsink_admin::{Settings, Token};
use heatsink_control::entry::Mitigation;
use serde_json::json;

use crate::rig::{Rig, hot};

fn client(rig: &Rig) -> Client {
    Client::new(&format!("http://{}", rig.address), None).unwrap()
}

#[test]
fn every_verb_on_a_key_of_any_bytes() {
    let rig = Rig::start(Settings::default());
    let client = client(&rig);
    let key = b"\xff/ ?#%\n";
    let promotion =
        Promotion { mitigation: Mitigation::Split, split_factor: Some(4), ttl_seconds: Some(9) };
    let promoted = client.promote(key, promotion).unwrap();
    assert_eq!((promoted.split_factor, promoted.ttl_seconds), (4, Some(9)));
    assert_eq!(client.show(key).unwrap(), promoted);
    assert_eq!(client.stats(key).unwrap()["key_hash"], promoted.key_hash);
    assert_eq!(client.policy(key).unwrap()["mode"], "coherent");
    assert_eq!(client.policies().unwrap()["items"][1]["mode"], "exact");
    assert_eq!(client.proxies().unwrap()["items"][0]["id"], "a");
    assert_eq!(client.demote(key).unwrap()["blocked_seconds"], 300);
    let Err(ClientError::Refused { status: 404, title, detail }) = client.demote(key) else {
        panic!("it is gone already");
    };
    assert!(title.contains("registry") && detail.contains("promote"));
}

#[test]
fn a_list_is_joined_of_all_pages() {
    let rig = Rig::start(Settings::default());
    *rig.fake.hot.lock().unwrap() =
        (0..2500_u32).map(|n| hot(format!("k{n}").as_bytes(), f64::from(n))).collect();
    let all = client(&rig).list(&[]).unwrap();
    assert_eq!(all.len(), 2500);
    assert_eq!(all[0].key, "k2499");
    assert_eq!(client(&rig).list(&[("match", "k249?"), ("status", "active")]).unwrap().len(), 10);
}

#[test]
fn figures_readiness_and_events() {
    let rig = Rig::start(Settings::default());
    let client = client(&rig);
    assert!(client.metrics().unwrap().contains("heatsink_build_info"));
    assert_eq!(client.readiness().unwrap()["degraded"], false);
    rig.fake.readiness.lock().unwrap().ready = false;
    let refused = client.readiness();
    assert!(matches!(refused, Err(ClientError::Refused { status: 503, .. })), "{refused:?}");
    let mut events = client.events().unwrap();
    assert_eq!(events.next(), Some(json!({})), "it listens");
    rig.fake.tell(1, Change::HotKey(Box::new(hot(b"user:1", 5000.0))));
    assert_eq!(events.next().unwrap()["hotkey"]["key"], "user:1");
    drop(rig);
    assert_eq!(events.next(), None, "the server has stopped");
}

#[test]
fn the_token_is_sent() {
    let rig = Rig::start(Settings { token: Token::new("s3cret"), ..Settings::default() });
    let url = format!("{}/", rig.address);
    assert_eq!(Client::new(&url, Some("s3cret")).unwrap().list(&[]).unwrap().len(), 3);
    let refused = Client::new(&url, None).unwrap().list(&[]).unwrap_err();
    assert!(refused.to_string().contains("Bearer TOKEN"), "{refused}");
    let refused = Client::new(&url, None).unwrap().events().unwrap_err();
    assert!(refused.to_string().contains("Bearer TOKEN"), "{refused}");
}

#[test]
fn a_clear_message_when_nothing_or_something_else_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(&url, None).unwrap();
    // Something that does not speak HTTP.
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"-ERR unknown command 'GET'\r\n").unwrap();
        listener
    });
    let error = client.list(&[]).unwrap_err();
    assert!(matches!(error, ClientError::Foreign { .. } | ClientError::Broken { .. }), "{error}");
    // Something that never answers.
    let listener = other.join().unwrap();
    let hasty = client.clone().with_timeout(Duration::from_millis(50));
    assert!(matches!(hasty.list(&[]), Err(ClientError::Broken { .. })));
    // Nothing.
    drop(listener);
    let error = client.list(&[]).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }));
    let message = error.to_string();
    assert!(message.contains("127.0.0.1:") && message.contains("is Heatsink running"), "{message}");
}
