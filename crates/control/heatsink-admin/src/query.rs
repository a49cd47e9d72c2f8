//! Parameters of a query, as bytes: keys need not be UTF-8, which the usual extractors demand.
//!
//! Called by: the routes that take parameters.
//! Bound: the length of the request line. Encoded as by forms: `+` is a space.
//! Invariant: a parameter that the route does not know, or that comes twice, is an error that
//! names the known ones, never ignored: a filter with a typing error must not list everything.

use percent_encoding::percent_decode;

use crate::problem::Problem;

/// The parameters of one request.
#[derive(Debug)]
pub(crate) struct Query(Vec<(&'static str, Vec<u8>)>);

impl Query {
    /// Reads `raw`, in which only `known` names may occur.
    pub(crate) fn parse(raw: Option<&str>, known: &[&'static str]) -> Result<Self, Problem> {
        let mut found: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for pair in raw.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name);
            let Some(&name) = known.iter().find(|known| known.as_bytes() == name) else {
                return Err(Problem::bad_request(format!(
                    "Unknown parameter; this address takes {}.",
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )));
            };
            if found.iter().any(|(other, _)| *other == name) {
                return Err(Problem::bad_request(format!("{name} is given more than once.")));
            }
            found.push((name, decoded(value)));
        }
        Ok(Self(found))
    }

    /// The bytes of a parameter.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_slice())
    }

    /// A parameter that must be text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        self.bytes(name)
            .map(|value| {
                str::from_utf8(value)
                    .map_err(|_| Problem::bad_request(format!("{name} must be UTF-8.")))
            })
            .transpose()
    }
}

fn decoded(part: &str) -> Vec<u8> {
    let spaced: Vec<u8> = part.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_through_and_mistakes_do_not() {
        let query = Query::parse(Some("key=%ff%2b+&limit=3"), &["key", "limit"]).unwrap();
        assert_eq!(query.bytes("key"), Some(&b"\xff+ "[..]));
        assert_eq!(query.text("limit").unwrap(), Some("3"));
        assert!(query.text("key").is_err());
        assert!(Query::parse(Some("kez=1"), &["key"]).is_err());
        assert!(Query::parse(Some("key=1&key=2"), &["key"]).is_err());
        assert_eq!(Query::parse(None, &["key"]).unwrap().bytes("key"), None);
    }
}
