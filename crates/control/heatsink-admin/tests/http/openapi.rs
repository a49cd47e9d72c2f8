//! The document drives the API: every operation in it is called with a request made from its
//! parameters, and every answer, good or bad, must be one that it declares.

use std::collections::BTreeSet;

use heatsink_admin::control::{ControlError, Readiness};
use heatsink_admin::key_name::encode;
use heatsink_admin::{Limits, Privacy, Settings, Token};
use serde_json::{Value, json};

use crate::rig::{Reply, Rig};
use crate::schema::{check, resolve};

/// An operation of the document.
struct Operation {
    method: String,
    path: String,
    node: Value,
}

fn document() -> Value {
    let rig = Rig::start(Settings::default());
    let reply = rig.get("/openapi.json");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    reply.json()
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, node) in item.as_object().unwrap() {
            all.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                node: node.clone(),
            });
        }
    }
    all
}

/// A value that a parameter may have.
fn example(parameter: &Value) -> Option<String> {
    let schema = &parameter["schema"];
    let value = [
        &parameter["example"],
        &schema["example"],
        &schema["default"],
        &schema["items"]["enum"][0],
        &schema["enum"][0],
    ]
    .into_iter()
    .find(|value| !value.is_null())?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

impl Operation {
    /// Calls it with all parameters that have an example and, if it takes one, a body.
    fn call(&self, document: &Value, rig: &Rig, headers: &[&str]) -> Reply {
        let (mut path, mut query) = (self.path.clone(), Vec::new());
        for parameter in self.node["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            assert!(!parameter["description"].as_str().unwrap_or("").is_empty(), "{name}");
            if let Some(example) = parameter.get("example") {
                check(document, &parameter["schema"], example, name).unwrap();
            }
            match (parameter["in"].as_str().unwrap(), example(parameter)) {
                ("path", Some(value)) => {
                    assert_eq!(parameter["required"], true);
                    path = path.replace(&format!("{{{name}}}"), &encode(value.as_bytes()));
                }
                ("query", Some(value)) => {
                    query.push(format!("{name}={}", encode(value.as_bytes())));
                }
                ("query", None) => assert_ne!(parameter["required"], true, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(!path.contains('{'), "every part of {path} is described");
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let body = self.body(document);
        if self.path == "/events" {
            return open_stream(rig, headers);
        }
        rig.send(&self.method, &path, headers, body.as_bytes())
    }

    fn body(&self, document: &Value) -> String {
        let Some(body) = self.node.get("requestBody") else { return String::new() };
        assert_eq!(body["required"], true);
        let schema = &body["content"]["application/json"]["schema"];
        let example = &resolve(document, &schema["$ref"])["example"];
        check(document, schema, example, "example").unwrap();
        example.to_string()
    }

    /// Checks that the answer is declared, and that its body is as declared.
    #[track_caller]
    fn conforms(&self, document: &Value, reply: &Reply) {
        let name = format!("{} {} {}", self.method, self.path, reply.status);
        let declared = self.node["responses"]
            .get(reply.status.to_string())
            .unwrap_or_else(|| panic!("{name} is not declared: {reply:?}"));
        for (header, _) in declared["headers"].as_object().into_iter().flatten() {
            assert!(reply.header(&header.to_lowercase()).is_some(), "{name} lacks {header}");
        }
        let media = reply.header("content-type").unwrap();
        let content = declared["content"].as_object().unwrap();
        let (_, declared) = content
            .iter()
            .find(|(declared, _)| {
                media == declared.as_str() || media.starts_with(&format!("{declared};"))
            })
            .unwrap_or_else(|| panic!("{name}: {media} is not declared"));
        let body = if media.contains("json") {
            reply.json()
        } else {
            Value::String(String::from_utf8_lossy(&reply.body).into_owned())
        };
        check(document, &declared["schema"], &body, &name).unwrap();
    }
}

/// The answer to a request for events: of a stream its head alone, since it has no end.
fn open_stream(rig: &Rig, headers: &[&str]) -> Reply {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut lines = vec!["GET /events HTTP/1.1", "Connection: close"];
    if headers.iter().all(|header| !header.starts_with("Host:")) {
        lines.push("Host: localhost");
    }
    lines.extend_from_slice(headers);
    let head = lines.join("\r\n") + "\r\n\r\n";
    let mut stream = rig.connect();
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut answer).unwrap(), 0);
    }
    let mut bytes = answer.into_bytes();
    if !bytes.starts_with(b"HTTP/1.1 200") {
        std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
    }
    Reply::parse(&bytes)
}

#[test]
fn every_operation_does_what_the_document_says() {
    let document = document();
    for operation in operations(&document) {
        let rig = Rig::start(Settings::default());
        let reply = operation.call(&document, &rig, &[]);
        assert_eq!(reply.status, 200, "{} {}: {reply:?}", operation.method, operation.path);
        operation.conforms(&document, &reply);
    }
}

#[test]
fn every_operation_fails_as_the_document_says() {
    let document = document();
    let why = || "Because.".to_owned();
    for operation in operations(&document) {
        let rig = Rig::start(Settings { token: Token::new("t"), ..Settings::default() });
        let is_open = operation.node["security"] == json!([{}]);
        let reply = operation.call(&document, &rig, &[]);
        assert_eq!(reply.status, if is_open { 200 } else { 401 }, "{}", operation.path);
        operation.conforms(&document, &reply);

        let rig = Rig::start(Settings::default());
        for (headers, status) in
            [(&["Host: evil.example"][..], 403), (&["Host: localhost", "Host: localhost"], 400)]
        {
            let reply = operation.call(&document, &rig, headers);
            assert_eq!(reply.status, if is_open { 200 } else { status }, "{}", operation.path);
            operation.conforms(&document, &reply);
        }
        *rig.fake.readiness.lock().unwrap() = Readiness::default();
        for error in [
            ControlError::UnknownKey,
            ControlError::NotAllowed { why: why() },
            ControlError::OwnKey,
            ControlError::Invalid { why: why() },
            ControlError::Conflict { why: why() },
            ControlError::Full,
            ControlError::StoreUnavailable { why: why() },
        ] {
            // A removal is never refused for what it asks for, nor for want of room.
            let fits = !matches!(error, ControlError::Invalid { .. } | ControlError::Full);
            if operation.method == "DELETE" && !fits {
                continue;
            }
            *rig.fake.fails_with.lock().unwrap() = Some(error);
            operation.conforms(&document, &operation.call(&document, &rig, &[]));
        }
        rig.fake.hot.lock().unwrap().clear();
        *rig.fake.fails_with.lock().unwrap() = None;
        operation.conforms(&document, &operation.call(&document, &rig, &[]));

        let limits = Limits { requests_per_second: 1, burst: 1, ..Limits::default() };
        let rig = Rig::start(Settings { limits, privacy: Privacy::Hash, ..Settings::default() });
        for _ in 0..3 {
            operation.conforms(&document, &operation.call(&document, &rig, &[]));
        }
    }
}

#[test]
fn hidden_and_binary_keys_are_as_described_too() {
    let document = document();
    let list = operations(&document).into_iter().find(|one| one.path == "/hotkeys").unwrap();
    for privacy in [Privacy::Plain, Privacy::Hash] {
        let rig = Rig::start(Settings { privacy, ..Settings::default() });
        {
            let mut all = rig.fake.hot.lock().unwrap();
            all[0].entry.dry_run = true;
            all[1].entry.ttl_seconds = None;
            all[2].entry.frequency = f64::NAN;
        }
        let reply = rig.get("/hotkeys");
        assert_eq!(reply.json()["items"].as_array().unwrap().len(), 3);
        list.conforms(&document, &reply);
    }
}

#[test]
fn the_document_and_the_routes_are_the_same() {
    let document = document();
    let described: BTreeSet<(String, String)> =
        operations(&document).into_iter().map(|one| (one.method, one.path)).collect();
    let expected = [
        ("GET", "/"),
        ("GET", "/hotkeys"),
        ("GET", "/hotkeys/{key}"),
        ("DELETE", "/hotkeys/{key}"),
        ("POST", "/hotkeys/{key}/promote"),
        ("GET", "/hotkeys/{key}/stats"),
        ("GET", "/hotkeys/{key}/history"),
        ("GET", "/history"),
        ("GET", "/app.js"),
        ("GET", "/app.css"),
        ("GET", "/icon.svg"),
        ("GET", "/proxies"),
        ("GET", "/policy"),
        ("GET", "/policies"),
        ("GET", "/metrics"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/events"),
        ("GET", "/openapi.json"),
    ];
    let expected: BTreeSet<(String, String)> =
        expected.iter().map(|(method, path)| ((*method).into(), (*path).into())).collect();
    assert_eq!(described, expected);
    // What a route allows beyond the document would show in Allow.
    let rig = Rig::start(Settings::default());
    for (_, path) in &described {
        let reply = rig.send("TRACE", &path.replace("{key}", "k"), &[], b"");
        let allow: BTreeSet<String> =
            reply.header("allow").unwrap().split(',').map(str::to_owned).collect();
        let mut methods: BTreeSet<String> = described
            .iter()
            .filter(|(_, other)| other == path)
            .map(|(method, _)| method.clone())
            .collect();
        if methods.contains("GET") {
            methods.insert("HEAD".into());
        }
        assert_eq!(allow, methods, "{path}");
    }
}

#[test]
fn the_document_is_whole() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    let mut ids = BTreeSet::new();
    for operation in operations(&document) {
        let node = &operation.node;
        assert!(ids.insert(node["operationId"].as_str().unwrap().to_owned()));
        assert!(!node["summary"].as_str().unwrap_or("").is_empty(), "{}", operation.path);
        let is_open = match operation.path.as_str() {
            "/" | "/app.js" | "/app.css" | "/icon.svg" => true,
            path => ["/healthz", "/readyz"].contains(&path),
        };
        let security = if is_open { json!([{}]) } else { json!([{"token": []}, {}]) };
        assert_eq!(node["security"], security, "{}", operation.path);
    }
    references(&document, &document);
    // Every property says what it is.
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (property, inner) in schema["properties"].as_object().into_iter().flatten() {
            let described = inner.get("description").is_some()
                || inner.get("oneOf").is_some()
                || inner.get("$ref").is_some();
            assert!(described, "{name}.{property}: {inner}");
        }
    }
}

/// Follows every reference.
fn references(document: &Value, node: &Value) {
    match node {
        Value::Object(members) => {
            for (name, member) in members {
                if name == "$ref" {
                    resolve(document, member);
                }
                references(document, member);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(document, item)),
        _ => {}
    }
}
