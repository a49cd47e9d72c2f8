//! Each thing that a client can do wrong, and each thing that can go wrong behind it.

use heatsink_admin::control::ControlError;
use heatsink_admin::{Limits, Settings};
use std::time::Duration;

use crate::rig::Rig;

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let rig = Rig::start(Settings::default());
    for (method, path, allowed) in [
        ("POST", "/hotkeys", &["GET", "HEAD"][..]),
        ("PUT", "/hotkeys/k", &["GET", "HEAD", "DELETE"]),
        ("GET", "/hotkeys/k/promote", &["POST"]),
        ("DELETE", "/hotkeys/k/stats", &["GET", "HEAD"]),
        ("OPTIONS", "/metrics", &["GET", "HEAD"]),
        ("POST", "/", &["GET", "HEAD"]),
        ("PATCH", "/healthz", &["GET", "HEAD"]),
    ] {
        let reply = rig.send(method, path, &[], b"");
        reply.problem(405, "wrong-method");
        let mut allow: Vec<&str> = reply.header("allow").unwrap().split(',').collect();
        allow.sort_unstable();
        let mut allowed = allowed.to_vec();
        allowed.sort_unstable();
        assert_eq!(allow, allowed, "{method} {path}");
    }
}

#[test]
fn an_unknown_address_is_a_problem() {
    let rig = Rig::start(Settings::default());
    for path in ["/hotkey", "/hotkeys/", "/hotkeys/a/b", "/..", "/hotkeys/a/stats/"] {
        let detail = rig.get(path).problem(404, "unknown-route");
        assert!(detail.contains("/openapi.json"));
    }
}

#[test]
fn an_unknown_key_is_named_with_what_to_do() {
    let rig = Rig::start(Settings::default());
    for reply in [
        rig.get("/hotkeys/nobody"),
        rig.get("/hotkeys/nobody/stats"),
        rig.send("DELETE", "/hotkeys/nobody", &[], b""),
    ] {
        let detail = reply.problem(404, "unknown-key");
        assert!(detail.contains("\"nobody\"") && detail.contains("promote"), "{detail}");
    }
    rig.get("/hotkeys//stats").problem(404, "unknown-key");
}

#[test]
fn a_bad_body_is_told_where() {
    let rig = Rig::start(Settings::default());
    for (body, said) in [
        ("", "line 1 column 0"),
        ("{", "line 1 column 1"),
        ("{\n  \"mitigation_type\": split}", "line 2 column"),
        ("[]", "line 1 column"),
        ("{}", "mitigation_type"),
        (r#"{"mitigation_type":7}"#, "line 1 column"),
        (r#"{"mitigation_type":"split","split_facktor":8}"#, "split_facktor"),
        (r#"{"mitigation_type":"split","split_factor":-1}"#, "column"),
        (r#"{"mitigation_type":"split","ttl_seconds":1.5}"#, "column"),
        (r#"{"mitigation_type":"split"} x"#, "trailing"),
    ] {
        let detail = rig.promote("k", body).problem(400, "bad-request");
        assert!(detail.contains(said), "{body}: {detail}");
    }
    let binary = rig.send("POST", "/hotkeys/k/promote", &[], b"\xff\xfe");
    binary.problem(400, "bad-request");
    assert!(rig.get("/policy").problem(400, "bad-request").contains("key="));
}

#[test]
fn an_unknown_mitigation_is_told_the_known_ones() {
    let rig = Rig::start(Settings::default());
    let detail =
        rig.promote("k", r#"{"mitigation_type":"magic"}"#).problem(422, "unknown-mitigation");
    for known in ["local_cache", "coalesce", "split", "copies", "replica_reads"] {
        assert!(detail.contains(known), "{detail}");
    }
    for body in [
        r#"{"mitigation_type":"split","split_factor":1}"#,
        r#"{"mitigation_type":"split","split_factor":1025}"#,
        r#"{"mitigation_type":"coalesce","split_factor":2}"#,
        r#"{"mitigation_type":"split","ttl_seconds":0}"#,
        r#"{"mitigation_type":"split","ttl_seconds":315360001}"#,
    ] {
        rig.promote("k", body).problem(422, "invalid");
    }
    assert_eq!(rig.promote("k", r#"{"mitigation_type":"coalesce","split_factor":1}"#).status, 200);
}

#[test]
fn what_the_control_plane_refuses_has_its_status() {
    let rig = Rig::start(Settings::default());
    let why = || "Because of this.".to_owned();
    for (error, status, kind) in [
        (ControlError::NotAllowed { why: why() }, 403, "not-allowed"),
        (ControlError::OwnKey, 403, "own-key"),
        (ControlError::Invalid { why: why() }, 422, "invalid"),
        (ControlError::Conflict { why: why() }, 409, "conflict"),
        (ControlError::Full, 507, "registry-full"),
        (ControlError::StoreUnavailable { why: why() }, 503, "store-unavailable"),
        (ControlError::UnknownKey, 404, "unknown-key"),
    ] {
        let says_why =
            !matches!(error, ControlError::OwnKey | ControlError::Full | ControlError::UnknownKey);
        *rig.fake.fails_with.lock().unwrap() = Some(error);
        let reply = rig.promote("k", r#"{"mitigation_type":"split"}"#);
        assert_eq!(reply.problem(status, kind).starts_with("Because of this."), says_why);
        assert_eq!(reply.header("retry-after").is_some(), status == 503);
        rig.send("DELETE", "/hotkeys/user:9999", &[], b"").problem(status, kind);
    }
}

#[test]
fn a_store_that_never_answers_is_not_waited_for() {
    let limits = Limits { request_timeout: Duration::from_millis(50), ..Limits::default() };
    let rig = Rig::start(Settings { limits, ..Settings::default() });
    let _told = rig.fake.hang();
    let detail = rig.promote("k", r#"{"mitigation_type":"split"}"#).problem(503, "timeout");
    assert!(detail.contains("not known"), "{detail}");
    assert_eq!(rig.get("/hotkeys").status, 200);
}
