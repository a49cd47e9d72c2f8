//! Who may ask, over the wire.

use std::net::TcpListener;
use std::sync::Arc;

use heatsink_admin::{Server, Settings, StartError, Token};

use crate::rig::Rig;

fn with_token() -> Rig {
    Rig::start(Settings { token: Token::new("s3cret"), ..Settings::default() })
}

#[test]
fn without_the_token_only_health_and_the_page_are_open() {
    let rig = with_token();
    for path in [
        "/hotkeys",
        "/hotkeys/user:9999",
        "/hotkeys/user:9999/stats",
        "/hotkeys/user:9999/history",
        "/history",
        "/proxies",
        "/policy?key=a",
        "/policies",
        "/metrics",
        "/openapi.json",
        "/events",
        "/events?samples=true",
        "/nowhere",
    ] {
        let reply = rig.get(path);
        let detail = reply.problem(401, "unauthorized");
        assert!(detail.contains("Authorization: Bearer"), "{detail}");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"));
        rig.send("GET", path, &["Authorization: Bearer s3creT"], b"").problem(401, "unauthorized");
    }
    rig.send("DELETE", "/hotkeys/user:9999", &[], b"").problem(401, "unauthorized");
    rig.promote("a", r#"{"mitigation_type":"split"}"#).problem(401, "unauthorized");
    assert_eq!(rig.fake.hot.lock().unwrap().len(), 3, "nothing was changed");
    for path in ["/healthz", "/readyz", "/", "/app.js", "/app.css", "/icon.svg"] {
        let reply = rig.get(path);
        assert_eq!(reply.status, 200);
        assert!(!reply.text().contains("user:9999"));
    }
}

#[test]
fn with_the_token_everything_is_from_any_host() {
    let rig = with_token();
    let headers = ["Authorization: Bearer s3cret", "Host: heat.example", "Origin: http://x"];
    assert_eq!(rig.send("GET", "/hotkeys", &headers, b"").status, 200);
    assert_eq!(rig.send("DELETE", "/hotkeys/user:9999", &headers, b"").status, 200);
}

#[test]
fn a_foreign_page_cannot_use_the_browser_of_somebody_on_this_machine() {
    let rig = Rig::start(Settings::default());
    let own_origin = format!("Origin: http://{}", rig.address);
    let own_host = format!("Host: {}", rig.address);
    assert_eq!(rig.send("GET", "/hotkeys", &[&own_host, &own_origin], b"").status, 200);
    // Rebinding: the page's own name leads here.
    let rebound = ["Host: evil.example:9600", "Origin: http://evil.example:9600"];
    rig.send("GET", "/hotkeys", &rebound, b"").problem(403, "foreign-origin");
    rig.send("GET", "/metrics", &rebound[..1], b"").problem(403, "foreign-origin");
    // A form or script that posts from its own origin.
    let body = br#"{"mitigation_type":"split"}"#;
    for origin in ["Origin: http://evil.example", "Origin: null", "Origin: http://localhost:3000"] {
        let headers = [origin, "Content-Type: text/plain"];
        let reply = rig.send("POST", "/hotkeys/a/promote", &headers, body);
        reply.problem(403, "foreign-origin");
    }
    assert_eq!(rig.fake.hot.lock().unwrap().len(), 3, "nothing was changed");
    let no_host = rig.raw(b"GET /hotkeys HTTP/1.1\r\nConnection: close\r\n\r\n");
    no_host.problem(400, "bad-request");
    let allowed = Settings { allowed_hosts: vec!["ops.example".into()], ..Settings::default() };
    let rig = Rig::start(allowed);
    assert_eq!(rig.send("GET", "/hotkeys", &["Host: ops.example"], b"").status, 200);
}

#[test]
fn no_server_is_open_to_other_machines_without_a_token() {
    let fake = Arc::clone(&Rig::start(Settings::default()).fake);
    let listen = || TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = Server::new(listen(), Settings::default(), Arc::clone(&fake) as Arc<_>);
    let Err(error @ StartError::TokenNeeded(_)) = refused else { panic!("must not start") };
    assert!(error.to_string().contains("token") && error.to_string().contains("127.0.0.1"));
    let settings = Settings { token: Token::new("s3cret"), ..Settings::default() };
    assert!(Server::new(listen(), settings, fake).is_ok());
}
