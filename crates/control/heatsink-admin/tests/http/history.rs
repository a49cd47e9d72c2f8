//! Samples and decisions, over the wire.

use std::time::Duration;

use heatsink_admin::control::Change;
use heatsink_admin::{Privacy, Settings};
use heatsink_control::entry::Mitigation;
use serde_json::{Value, json};

use crate::events::Stream;
use crate::rig::{Rig, hot, load};

fn quick() -> Settings {
    Settings { sample_interval: Duration::from_millis(10), ..Settings::default() }
}

/// The next sample of a stream.
fn sample(stream: &mut Stream) -> Value {
    loop {
        let (name, id, data) = stream.event();
        if name == "sample" {
            assert_eq!(id, None, "only changes are counted");
            return data["sample"].clone();
        }
    }
}

#[test]
fn samples_are_sent_to_those_who_ask() {
    let rig = Rig::start(quick());
    *rig.fake.rate.lock().unwrap() = Some(500.0);
    let mut stream = Stream::open_at(&rig, "/events?samples=true");
    assert_eq!(stream.event().0, "hello");
    let first = sample(&mut stream);
    assert_eq!(first["fleet"]["requests_per_second"], 1000.0, "two members");
    assert_eq!(first["fleet"]["hottest_node_share"], 0.75);
    assert_eq!(
        first["nodes"][0],
        json!({"node": "n1:1", "commands_per_second": 30.0, "share": 0.75})
    );
    assert_eq!(first["proxies"].as_array().unwrap().len(), 2);
    assert_eq!(first["keys"][0]["frequency"], 48211.0, "hottest first");
    assert_eq!(first["keys"][0]["hit_ratio"], 0.75);
    // What was saved is counted on both sides, over the whole fleet, and each member has its own.
    assert_eq!(first["fleet"]["served_per_second"], 100.0);
    assert_eq!(first["fleet"]["saved_per_second"], 60.0);
    let own = |field: &str| [0, 1].map(|place: usize| first["proxies"][place][field].as_f64());
    assert_eq!(own("served_per_second"), [Some(40.0), Some(60.0)]);
    assert_eq!(own("saved_per_second"), [Some(15.0), Some(45.0)]);
    assert_eq!(own("hottest_node_share"), [Some(1.0), Some(10.0 / 15.0)]);

    // What changes is in a later one.
    rig.fake.hot.lock().unwrap().clear();
    let empty = (0..1000).map(|_| sample(&mut stream)).find(|one| one["keys"] == json!([]));
    assert!(empty.is_some());
    // Writes that are combined are no hits, whatever is said of them.
    let mut combined = hot(b"count:views", 9000.0);
    combined.entry.mitigation = Mitigation::Coalesce;
    rig.fake.hot.lock().unwrap().push(combined);
    let one = (0..1000).map(|_| sample(&mut stream)).find(|one| one["keys"] != json!([]));
    assert_eq!(one.unwrap()["keys"][0]["hit_ratio"], Value::Null);

    let mut plain = Stream::open_at(&rig, "/events?samples=false");
    plain.event();
    sample(&mut stream);
    sample(&mut stream);
    rig.fake.tell(1, Change::Removed { key: b"a".to_vec(), reason: String::new() });
    assert_eq!(plain.event().0, "removed", "no samples for those who did not ask");
    rig.get("/events?samples=maybe").problem(400, "bad-request");
}

#[test]
fn members_that_say_nothing_of_their_load_are_not_nought() {
    let rig = Rig::start(quick());
    let mut stream = Stream::open_at(&rig, "/events?samples=true");
    stream.event();
    // A member of an older version beside one of this.
    *rig.fake.loads.lock().unwrap() = [None, Some(load(40.0, 30.0, 0.0))];
    let fleet = |stream: &mut Stream, saved: &Value| {
        let found = (0..1000)
            .map(|_| sample(stream))
            .find(|one| one["fleet"]["saved_per_second"] == *saved);
        found.unwrap_or_else(|| panic!("never {saved}"))
    };
    let one = fleet(&mut stream, &json!(10.0));
    assert_eq!(one["fleet"]["served_per_second"], 40.0, "of those that are known");
    assert_eq!(one["proxies"][1]["saved_per_second"], Value::Null);
    assert_eq!(one["nodes"].as_array().unwrap().len(), 2);
    *rig.fake.loads.lock().unwrap() = [None, None];
    let none = fleet(&mut stream, &Value::Null);
    assert_eq!(none["fleet"]["hottest_node_share"], Value::Null);
    assert_eq!(none["nodes"], json!([]));
    // One that sends more than it takes saves nothing, and the others' is less by it.
    *rig.fake.loads.lock().unwrap() = [Some(load(100.0, 10.0, 0.0)), Some(load(10.0, 30.0, 0.0))];
    let fanned = fleet(&mut stream, &json!(70.0));
    assert_eq!(fanned["proxies"][0]["saved_per_second"], 0.0);
}

#[test]
fn the_last_minutes_are_there_for_those_who_come_later() {
    let rig = Rig::start(quick());
    let mut stream = Stream::open_at(&rig, "/events?samples=true");
    for _ in 0..5 {
        sample(&mut stream);
    }
    let history = rig.get("/history").json();
    assert_eq!(history["interval_ms"], 10);
    let samples = history["samples"].as_array().unwrap();
    assert!(samples.len() >= 5);
    assert!(samples.is_sorted_by_key(|one| one["at"].as_str().unwrap()));
    assert_eq!(samples[0]["requests_per_second"], Value::Null, "nobody said");
    assert_eq!(history["nodes"][1]["share"], 0.25);
    let keys = history["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| key["requests_per_second"].as_array().unwrap().len() >= 5));

    let two = rig.get("/history?samples=2").json();
    assert_eq!(two["samples"].as_array().unwrap().len(), 2);
    for wrong in ["0", "301", "-1", "x", ""] {
        rig.get(&format!("/history?samples={wrong}")).problem(400, "bad-request");
    }
}

#[test]
fn a_key_has_a_past_with_reasons() {
    let rig = Rig::start(quick());
    let mut stream = Stream::open_at(&rig, "/events?samples=true");
    stream.event();
    rig.fake.tell(1, Change::HotKey(Box::new(hot(b"user:9999", 5000.0))));
    rig.fake.tell(2, Change::Removed { key: b"gone".to_vec(), reason: "retired".into() });
    // Events are recorded before the sample that follows them.
    sample(&mut stream);
    sample(&mut stream);
    sample(&mut stream);
    let past = rig.get("/hotkeys/user:9999/history").json();
    assert_eq!(past["key"], "user:9999");
    assert_eq!(past["decisions"][0]["status"], "active");
    assert_eq!(past["decisions"][0]["mitigation_type"], "local_cache");
    assert!(past["decisions"][0]["reason"].as_str().unwrap().contains("threshold"));
    let samples = past["samples"].as_array().unwrap();
    assert_eq!(samples[0]["requests_per_second"], 48211.0);
    assert_eq!(samples[0]["hit_ratio"], 0.75);
    // One that has left the registry is remembered.
    let gone = rig.get("/hotkeys/gone/history").json();
    assert_eq!(gone["decisions"], json!([{"at": "2026-01-01T00:00:00.000Z", "reason": "retired"}]));
    rig.get("/hotkeys/never/history").problem(404, "unknown-key");
    let binary = rig.get("/hotkeys/%FF%00%2Fbin/history").json();
    assert_eq!(binary["key_base64"], "/wAvYmlu");
}

#[test]
fn hidden_keys_are_hidden_in_the_past_too() {
    let rig = Rig::start(Settings { privacy: Privacy::Hash, ..quick() });
    let mut stream = Stream::open_at(&rig, "/events?samples=true");
    stream.event();
    let mut told = hot(b"user:9999", 5000.0);
    told.entry.reason = "user:9999 is hot".into();
    rig.fake.tell(1, Change::HotKey(Box::new(told)));
    sample(&mut stream);
    sample(&mut stream);
    let text = sample(&mut stream).to_string()
        + &rig.get("/history").text()
        + &rig.get("/hotkeys/user:9999/history").text();
    assert!(text.contains("is hot") && !text.contains("user:9999"), "{text}");
}
