//! A small checker of JSON against the schemas of the document. It knows the keywords that the
//! document uses and panics on any other, so that nothing is passed over unchecked.

use serde_json::Value;

/// What is wrong with `value`, if anything.
pub(crate) fn check(
    document: &Value,
    schema: &Value,
    value: &Value,
    at: &str,
) -> Result<(), String> {
    let schema = schema.as_object().unwrap_or_else(|| panic!("{at}: no schema: {schema}"));
    let fail = |what: String| Err(format!("{at}: {what}: {value}"));
    for (keyword, rule) in schema {
        match keyword.as_str() {
            "description" | "example" | "examples" | "default" | "title" => {}
            "$ref" => check(document, resolve(document, rule), value, at)?,
            "type" => {
                let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                if !types.iter().any(|kind| is_of_type(value, kind.as_str().unwrap())) {
                    return fail(format!("is not of type {rule}"));
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    return fail(format!("is none of {rule}"));
                }
            }
            "format" => match (rule.as_str().unwrap(), value) {
                ("date-time", Value::String(text)) => {
                    let shape: String =
                        text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
                    if shape != "0000-00-00T00:00:00.000Z" {
                        return fail("is no timestamp".into());
                    }
                }
                ("int32" | "int64" | "double" | "date-time", _) => {}
                (other, _) => panic!("{at}: unknown format {other}"),
            },
            "pattern" => {
                assert_eq!(rule, "^[0-9a-f]{16}$", "{at}: unknown pattern");
                let text = value.as_str().unwrap_or_default();
                if text.len() != 16 || !text.bytes().all(|b| b"0123456789abcdef".contains(&b)) {
                    return fail("does not match".into());
                }
            }
            "minimum" | "maximum" => {
                if let (Some(number), Some(bound)) = (value.as_f64(), rule.as_f64())
                    && (keyword == "minimum" && number < bound
                        || keyword == "maximum" && number > bound)
                {
                    return fail(format!("is beyond its {keyword} {bound}"));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                        return fail(format!("lacks {name}"));
                    }
                }
            }
            "properties" => {
                for (name, inner) in value.as_object().into_iter().flatten() {
                    match rule.get(name) {
                        Some(rule) => check(document, rule, inner, &format!("{at}.{name}"))?,
                        // Stricter than JSON Schema: what is not described must not be there.
                        None => return fail(format!("has {name}, which is not described")),
                    }
                }
            }
            "additionalProperties" => {
                for (name, inner) in value.as_object().into_iter().flatten() {
                    let known =
                        schema.get("properties").is_some_and(|known| known.get(name).is_some());
                    if rule == &Value::Bool(false) && !known {
                        return fail(format!("may not have {name}"));
                    } else if rule.is_object() && !known {
                        check(document, rule, inner, &format!("{at}.{name}"))?;
                    }
                }
            }
            "propertyNames" => {
                for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
                    check(document, rule, &Value::String(name.clone()), at)?;
                }
            }
            "items" => {
                for (n, inner) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, rule, inner, &format!("{at}[{n}]"))?;
                }
            }
            "oneOf" => {
                let fits = rule.as_array().unwrap().iter();
                let fits = fits.filter(|rule| check(document, rule, value, at).is_ok()).count();
                if fits != 1 {
                    return fail(format!("fits {fits} of {rule}"));
                }
            }
            other => panic!("{at}: unknown keyword {other}"),
        }
    }
    Ok(())
}

/// What a reference stands for.
pub(crate) fn resolve<'a>(document: &'a Value, reference: &Value) -> &'a Value {
    let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
    document.pointer(pointer).unwrap_or_else(|| panic!("dangling {reference}"))
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    use serde_json::json;
    let document = json!({"s": {"type": "object", "required": ["a"], "properties": {
        "a": {"type": ["integer", "null"], "minimum": 2},
        "b": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
    }}});
    let schema = json!({"$ref": "#/s"});
    let ok = |value: Value| check(&document, &schema, &value, "").is_ok();
    assert!(ok(json!({"a": 2})) && ok(json!({"a": null, "b": ["x", "x"]})));
    for wrong in [
        json!({}),
        json!({"a": 1}),
        json!({"a": "2"}),
        json!({"a": 2, "b": ["y"]}),
        json!([]),
        json!({"a": 2, "b": "x"}),
        json!({"a": 2, "c": 1}),
        json!({"a": 2.5}),
    ] {
        assert!(!ok(wrong.clone()), "{wrong}");
    }
}
