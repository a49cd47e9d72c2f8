//! With `privacy = "hash"` no raw key leaves, whatever is asked.

use heatsink_admin::control::ControlError;
use heatsink_admin::key_name::key_hash;
use heatsink_admin::{Privacy, Settings};

use crate::rig::{Reply, Rig, hot};

/// The parts of the fake's keys that must never be seen, in any form.
const SECRETS: &[&str] =
    &["user:9999", "user%3A9999", "cart:7", "cart%3A7", "/bin", "%2Fbin", "L2Jpb", "wAvYmlu"];

#[track_caller]
fn clean(reply: &Reply) {
    let text = format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body));
    for secret in SECRETS {
        assert!(!text.to_lowercase().contains(&secret.to_lowercase()), "{secret} in {text}");
    }
}

#[test]
fn no_answer_holds_a_raw_key() {
    let rig = Rig::start(Settings { privacy: Privacy::Hash, ..Settings::default() });
    rig.fake.hot.lock().unwrap()[0].entry.reason = "user:9999 is hot".into();
    let hash = "hash:a166206943c6d459";
    for path in [
        "/",
        "/hotkeys",
        "/hotkeys?sort=key&limit=1",
        "/hotkeys?prefix=user%3A9999",
        "/hotkeys?match=user:9999",
        "/hotkeys?user:9999=1",
        "/hotkeys?status=user:9999",
        "/hotkeys/user:9999",
        "/hotkeys/user:9999/stats",
        "/hotkeys/cart:7",
        "/hotkeys/cart:7/stats",
        "/hotkeys/user:9999/unknown",
        "/user:9999",
        "/hotkeys/%FF%00%2Fbin",
        "/proxies",
        "/policy?key=user:9999",
        "/policies",
        "/policy?keys=user:9999",
        "/metrics",
        "/readyz",
        "/openapi.json",
        "/hotkeys/hash:a166206943c6d459",
    ] {
        let reply = rig.get(path);
        // The document's examples are not keys of anybody.
        if path != "/openapi.json" {
            clean(&reply);
        }
    }
    let list = rig.get("/hotkeys").json();
    assert_eq!(list["items"][0]["key"], hash);
    assert_eq!(list["items"][0]["reason"], format!("{hash} is hot"));
    assert!(list["items"][2].get("key_base64").is_none());
    assert!(rig.get("/metrics").text().contains(hash));
    assert_eq!(rig.get("/policy?key=user:9999").json()["key"], hash);
    clean(&rig.promote("user:9999", r#"{"mitigation_type":"coalesce"}"#));
    clean(&rig.promote("user:9999", "user"));
    clean(&rig.send("PUT", "/hotkeys/user:9999", &[], b""));
    let why = "The key user:9999 is forbidden.".to_owned();
    *rig.fake.fails_with.lock().unwrap() = Some(ControlError::NotAllowed { why });
    let refused = rig.send("DELETE", "/hotkeys/user:9999", &[], b"");
    clean(&refused);
    assert!(refused.problem(403, "not-allowed").contains(hash));
    *rig.fake.fails_with.lock().unwrap() = None;
    clean(&rig.send("DELETE", &format!("/hotkeys/{hash}"), &[], b""));
    clean(&rig.send("DELETE", "/hotkeys/user:9999", &[], b""));
    assert_eq!(rig.fake.hot.lock().unwrap().len(), 2);
}

#[test]
fn hidden_keys_are_addressed_by_hash_or_by_those_who_know_them() {
    let rig = Rig::start(Settings { privacy: Privacy::Hash, ..Settings::default() });
    for item in rig.get("/hotkeys").json()["items"].as_array().unwrap() {
        let key = item["key"].as_str().unwrap();
        assert_eq!(rig.get(&format!("/hotkeys/{key}")).json(), *item);
        assert_eq!(rig.get(&format!("/hotkeys/{key}/stats")).status, 200);
    }
    assert_eq!(rig.get("/hotkeys/user:9999").status, 200);
    rig.fake.hot.lock().unwrap().push(hot(b"balance:1", 1.0));
    let by_hash = format!("/policy?key=hash:{}", key_hash(b"balance:1"));
    assert_eq!(rig.get(&by_hash).json()["mode"], "exact");
    assert_eq!(rig.get("/policy?key=hash:0000000000000000").json()["mode"], "coherent");
    rig.get("/hotkeys/hash:0000000000000000").problem(404, "unknown-key");
}

#[test]
fn a_rule_for_one_key_is_hidden_like_the_key() {
    let rig = Rig::start(Settings { privacy: Privacy::Hash, ..Settings::default() });
    let policy = rig.get("/policy?key=balance:1").json();
    assert_eq!(policy["rule"]["match"], "balance:*", "a pattern is no key");
    assert!(policy["key"].as_str().unwrap().starts_with("hash:"));
    let exact = rig.get("/policy?key=balance:total").json();
    assert_eq!(exact["rule"]["match"], exact["key"]);
    assert!(!exact.to_string().contains("total"));
    let all = rig.get("/policies").json();
    assert_eq!(all["items"][0]["rule"]["match"], exact["key"]);
    assert!(all.to_string().contains("balance:*") && !all.to_string().contains("total"), "{all}");
}
