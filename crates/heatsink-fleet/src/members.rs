//! What members say of themselves with each heartbeat, and what is made of it.

use heatsink_control::member::Member;
use serde::{Deserialize, Serialize};

use crate::Role;

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Card {
    pub(crate) role: String,
    pub(crate) address: Option<String>,
    pub(crate) version: String,
    pub(crate) registry_version: Option<u64>,
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) degraded: bool,
}

/// A member that is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Present {
    pub(crate) id: String,
    pub(crate) card: Card,
}

impl Present {
    /// One that says what nobody understands is there all the same.
    pub(crate) fn of(member: heatsink_coordination::Member) -> Self {
        let card = serde_json::from_slice(&member.body).unwrap_or_default();
        Self { id: member.id, card }
    }

    pub(crate) fn member(&self) -> Member {
        let is = |role: Role| self.card.role == role.name();
        Member {
            id: self.id.clone(),
            proxy: is(Role::All) || is(Role::Proxy),
            aggregator: is(Role::All) || is(Role::Aggregator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_of_a_newer_version_is_understood_as_far_as_it_goes() {
        let body = br#"{"role":"proxy","version":"9","colour":"red"}"#.to_vec();
        let present = Present::of(heatsink_coordination::Member { id: "a".to_owned(), body });
        assert_eq!(present.card.version, "9");
        assert_eq!((present.member().proxy, present.member().aggregator), (true, false));
        let body = b"\xff".to_vec();
        let present = Present::of(heatsink_coordination::Member { id: "b".to_owned(), body });
        assert_eq!((present.member().proxy, present.member().aggregator), (false, false));
    }
}
