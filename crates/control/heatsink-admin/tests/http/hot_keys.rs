//! The list and one key: shape, pages, filters, keys of any bytes, changes.

use heatsink_admin::Settings;
use serde_json::{Value, json};

use crate::rig::{Rig, hot};

#[test]
fn a_list_item_is_as_the_contract_says() {
    let rig = Rig::start(Settings::default());
    let reply = rig.get("/hotkeys?limit=1");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let page = reply.json();
    assert_eq!(
        page["items"],
        json!([{
            "key": "user:9999", "key_hash": "a166206943c6d459", "frequency": 48211.0,
            "reads_per_second": 48190.0, "writes_per_second": 21.0,
            "mitigation_type": "local_cache", "split_factor": 1, "ttl_seconds": 60,
            "status": "active", "origin": "auto", "detected_at": "2026-01-01T00:00:00.120Z",
            "reason": "48 211 req/s over 2 proxies, threshold 5 000; 99.9 % reads",
        }])
    );
    assert_eq!(page["total"], 3);
}

#[test]
fn pages_join_to_the_whole() {
    let rig = Rig::start(Settings::default());
    *rig.fake.hot.lock().unwrap() =
        (0..250_u32).map(|n| hot(format!("k{n}").as_bytes(), f64::from(n % 40))).collect();
    let (mut seen, mut path) = (Vec::new(), "/hotkeys".to_owned());
    loop {
        let page = rig.get(&path).json();
        assert_eq!(page["total"], 250);
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|item| item["key"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => {
                assert_eq!(items.len(), 100);
                path = format!("/hotkeys?cursor={cursor}");
            }
            None => break,
        }
    }
    assert_eq!(seen.len(), 250);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 250);
}

#[test]
fn filters_and_mistakes_in_them() {
    let rig = Rig::start(Settings::default());
    let keys = |query: &str| {
        let page = rig.get(&format!("/hotkeys?{query}")).json();
        let items = page["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys("prefix=cart%3A7%2F"), ["cart:7/a b"]);
    assert_eq!(keys("prefix=%ff%00"), ["%FF%00%2Fbin"]);
    assert_eq!(keys("match=*9999"), ["user:9999"]);
    assert_eq!(keys("status=cooling"), [""; 0]);
    assert_eq!(keys("sort=key").len(), 3);
    assert!(rig.get("/hotkeys?status=warm").problem(400, "bad-request").contains("cooling"));
    assert!(rig.get("/hotkeys?stauts=active").problem(400, "bad-request").contains("status"));
    assert!(rig.get("/hotkeys?limit=0").problem(400, "bad-request").contains("1000"));
    rig.get("/hotkeys?cursor=nonsense").problem(400, "bad-request");
}

#[test]
fn keys_of_any_bytes_are_addressed() {
    let rig = Rig::start(Settings::default());
    for (address, key) in [
        ("user:9999", "user:9999"),
        ("user%3A9999", "user:9999"),
        ("cart:7%2Fa%20b", "cart:7/a b"),
        ("%ff%00%2fbin", "%FF%00%2Fbin"),
        ("hash:a166206943c6d459", "user:9999"),
        ("hash%3AA166206943C6D459", "user:9999"),
    ] {
        let reply = rig.get(&format!("/hotkeys/{address}"));
        assert_eq!(reply.status, 200, "{address}");
        assert_eq!(reply.json()["key"], key);
        assert_eq!(rig.get(&format!("/hotkeys/{address}/stats")).json()["key"], key);
    }
    let binary = rig.get("/hotkeys/%FF%00%2Fbin").json();
    assert_eq!(binary["key_base64"], "/wAvYmlu");
    assert_eq!(binary["guard"], "tracking");
    // A plus sign in a path is a plus sign.
    rig.get("/hotkeys/cart:7%2Fa+b").problem(404, "unknown-key");
}

#[test]
fn a_promotion_takes_any_bytes_and_shows_in_the_list() {
    let rig = Rig::start(Settings::default());
    let body = r#"{"mitigation_type":"split","split_factor":8,"ttl_seconds":600}"#;
    let reply = rig.promote("%80%2F..%2F%3F%23", body);
    assert_eq!(reply.status, 200);
    let promoted = reply.json();
    assert_eq!(promoted["key_base64"], "gC8uLi8/Iw==");
    assert_eq!(promoted["mitigation_type"], "split");
    assert_eq!(promoted["split_factor"], 8);
    assert_eq!(promoted["ttl_seconds"], 600);
    assert_eq!(promoted["origin"], "manual");
    assert!(rig.fake.hot.lock().unwrap().iter().any(|hot| hot.key == b"\x80/../?#"));
    let least = rig.promote("a", r#"{"mitigation_type":"coalesce"}"#).json();
    assert!(least["ttl_seconds"].is_null());
    // By hash, which needs a registered key.
    let by_hash = rig.promote("hash:ca978112ca1bbdca", r#"{"mitigation_type":"copies"}"#);
    assert_eq!(by_hash.json()["key"], "a");
    rig.promote("hash:0000000000000000", r#"{"mitigation_type":"copies"}"#)
        .problem(404, "unknown-key");
}

#[test]
fn a_removal_says_for_how_long_it_holds() {
    let rig = Rig::start(Settings::default());
    let reply = rig.send("DELETE", "/hotkeys/user:9999", &[], b"");
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json(),
        json!({"key": "user:9999", "key_hash": "a166206943c6d459", "blocked_seconds": 300})
    );
    assert_eq!(rig.get("/hotkeys").json()["total"], 2);
    rig.send("DELETE", "/hotkeys/user:9999", &[], b"").problem(404, "unknown-key");
}

#[test]
fn stats_fleet_and_policy() {
    let rig = Rig::start(Settings::default());
    let stats = rig.get("/hotkeys/user:9999/stats").json();
    assert_eq!(stats["hit_ratio"], 0.75);
    assert!(stats["local_cache_hit_ratio"].is_null() && stats.get("key_base64").is_none());
    let shard = |index: u32, field: &str, content: i64| {
        let name = format!("heatsink:{{a}}:1:{index}");
        json!({
            "index": index, "name": name, "node": "10.0.0.1:6379", field: content,
            "writes_total": 10
        })
    };
    let shards = [shard(0, "count", 3), shard(1, "value", -775), shard(2, "bytes", 12)];
    assert_eq!(stats["shards"].as_array().unwrap()[..3], shards);
    let unseen = json!({
        "index": 3, "name": "heatsink:{a}:1:3", "node": "10.0.0.2:6379", "writes_total": 90
    });
    assert_eq!(stats["shards"][3], unseen, "what nobody has looked into is left out");
    let nodes = json!([
        {"node": "10.0.0.1:6379", "shards": 3, "writes_total": 30, "write_share": 0.25},
        {"node": "10.0.0.2:6379", "shards": 1, "writes_total": 90, "write_share": 0.75}
    ]);
    assert_eq!(stats["nodes"], nodes);
    let proxies = rig.get("/proxies").json();
    assert_eq!(proxies["items"][0]["id"], "a");
    assert_eq!(proxies["items"][1]["last_seen_at"], "2026-01-01T00:00:00.000Z");
    let policy = rig.get("/policy?key=balance%3A1").json();
    assert_eq!(policy["mode"], "exact");
    assert_eq!(policy["rule"], json!({"number": 2, "match": "balance:*"}));
    assert!(rig.get("/policy?key=%ff").json()["rule"].is_null());
    let policies = rig.get("/policies").json();
    let rules: Vec<_> =
        policies["items"].as_array().unwrap().iter().map(|one| &one["rule"]).collect();
    let first = json!({"number": 1, "match": "balance:total"});
    assert_eq!(rules, [&first, &policy["rule"], &Value::Null], "in order, the default last");
    for field in ["mode", "allowed_mitigations", "settings"] {
        assert_eq!(policies["items"][1][field], policy[field], "as for a key");
    }
    assert_eq!(rig.get("/policy?key=").json()["key"], "");
}

#[test]
fn health_and_readiness() {
    let rig = Rig::start(Settings::default());
    assert_eq!(rig.get("/healthz").json(), json!({"status": "ok"}));
    assert_eq!(rig.get("/readyz").json()["ready"], true);
    {
        let mut readiness = rig.fake.readiness.lock().unwrap();
        readiness.degraded = true;
        readiness.reasons = vec!["The store cannot be reached.".into()];
    }
    let degraded = rig.get("/readyz");
    assert_eq!(degraded.status, 200, "a degraded proxy still serves");
    assert_eq!(degraded.json()["reasons"][0], "The store cannot be reached.");
    rig.fake.readiness.lock().unwrap().ready = false;
    let detail = rig.get("/readyz").problem(503, "not-ready");
    assert_eq!(detail, "The store cannot be reached.");
}
