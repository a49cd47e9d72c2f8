//! Policies: which relaxation a key may get, by patterns on its name.
//!
//! Called by: the aggregator before a decision, the agent of a proxy before it reports or
//! mitigates, and people who ask what holds for a key.
//! Bound: one glob match for each rule, at most [`MAX_RULES`] rules.
//! Invariant: the first rule that matches decides alone; nothing is inherited from later
//! ones. A key without a rule is `coherent`.

use std::fmt;
use std::str::FromStr;

use heatsink_resp::glob;
use serde::{Deserialize, Serialize};

use crate::entry::{Mitigation, UnknownName};
use crate::words;

/// Rules that a set of policies may have.
pub const MAX_RULES: usize = 1024;

/// The prefix of all keys that Heatsink keeps on servers for itself: the registry, the index of splits,
/// shards, copies, locks and permits.
const OWN: &[u8] = b"heatsink:{";

/// Whether a key is Heatsink's own. No mitigation ever acts on such a key: the keys that a fleet needs to
/// move a value back must not be moved themselves.
pub fn is_own(key: &[u8]) -> bool {
    key.starts_with(OWN)
}

/// The strongest relaxation a key may get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing is done, and the key is not counted.
    Off,
    /// Nothing is done; what would have been done is reported.
    Observe,
    /// Only mitigations that no client can notice.
    Exact,
    /// Reads may be older than a write elsewhere by the invalidation delay.
    #[default]
    Coherent,
    /// Reads may be as old as is configured.
    Relaxed,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Off, Self::Observe, Self::Exact, Self::Coherent, Self::Relaxed];

    /// The name that users see and write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Exact => "exact",
            Self::Coherent => "coherent",
            Self::Relaxed => "relaxed",
        }
    }

    /// Whether keys of this mode are counted and reported.
    pub fn counts(self) -> bool {
        self != Self::Off
    }

    /// Whether a mitigation may be in force on a key of this mode. An operator's promotion must keep to it,
    /// too: the mode is what clients were promised.
    pub fn allows(self, mitigation: Mitigation) -> bool {
        match self {
            Self::Off | Self::Observe => false,
            Self::Exact => mitigation == Mitigation::Coalesce,
            Self::Coherent | Self::Relaxed => true,
        }
    }

    /// What it means, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Off => "the key is not counted and nothing is done about it",
            Self::Observe => "the key is counted, and what would be done is only reported",
            Self::Exact => "only mitigations that no client can notice: coalesce",
            Self::Coherent => {
                "local cache with invalidation, coalescing, copies, replica reads and splitting"
            }
            Self::Relaxed => "as coherent, and reads may be stale within the configured bound",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or(UnknownName)
    }
}

/// What a rule sets beside the mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Reads of these keys may go to replicas.
    pub replica_reads: bool,
    /// All clients of these keys go through Heatsink, so copies and splits, which move data
    /// to other physical keys, may be automatic.
    pub whole_traffic: bool,
    /// Requests/s over the whole fleet that make such a key hot, instead of the general
    /// `hot_threshold`.
    pub hot_threshold: Option<u32>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Glob on the raw key, as in Redis.
    pub pattern: Vec<u8>,
    /// What the keys may get.
    pub mode: Mode,
    /// What else is set.
    pub rights: Rights,
}

/// All rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    rules: Vec<Rule>,
    lowest_threshold: Option<u32>,
    /// The mode of keys that no rule matches.
    last_resort: Mode,
}

/// What holds for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective<'a> {
    /// What the key may get.
    pub mode: Mode,
    /// What else is set.
    pub rights: Rights,
    /// The rule that decided: its place, from 0, and its pattern; `None` is the last resort.
    pub rule: Option<(usize, &'a [u8])>,
    /// The key is one of Heatsink's own: it is counted, and nothing is done about it.
    pub own: bool,
}

impl Policies {
    /// Policies with these rules; those beyond [`MAX_RULES`] are an error.
    pub fn new(rules: Vec<Rule>) -> Result<Self, TooManyRules> {
        if rules.len() > MAX_RULES {
            return Err(TooManyRules { rules: rules.len() });
        }
        let lowest_threshold = rules.iter().filter_map(|rule| rule.rights.hot_threshold).min();
        Ok(Self { rules, lowest_threshold, last_resort: Mode::default() })
    }

    /// The same with another mode for keys that no rule matches.
    #[must_use]
    pub fn with_last_resort(self, mode: Mode) -> Self {
        Self { last_resort: mode, ..self }
    }

    /// What holds for a key.
    pub fn of(&self, key: &[u8]) -> Effective<'_> {
        let found =
            self.rules.iter().enumerate().find(|(_, rule)| glob::matches(&rule.pattern, key));
        Effective { own: is_own(key), ..found.map_or_else(|| self.otherwise(), Self::by_rule) }
    }

    /// What each rule gives, in order, and behind them what holds where none matches.
    pub fn all(&self) -> impl Iterator<Item = Effective<'_>> {
        let otherwise = std::iter::once_with(|| self.otherwise());
        self.rules.iter().enumerate().map(Self::by_rule).chain(otherwise)
    }

    fn by_rule((place, rule): (usize, &Rule)) -> Effective<'_> {
        Effective {
            mode: rule.mode,
            rights: rule.rights,
            rule: Some((place, rule.pattern.as_slice())),
            own: false,
        }
    }

    fn otherwise(&self) -> Effective<'_> {
        Effective { mode: self.last_resort, rights: Rights::default(), rule: None, own: false }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The lowest threshold that a rule sets.
    pub fn lowest_threshold(&self) -> Option<u32> {
        self.lowest_threshold
    }
}

impl Effective<'_> {
    /// Whether a mitigation may be in force on the key.
    pub fn allows(&self, mitigation: Mitigation) -> bool {
        !self.own && self.mode.allows(mitigation)
    }

    /// The pattern of the rule, as text; `default` if no rule matched.
    pub fn pattern(&self) -> String {
        self.rule.map_or_else(|| "default".to_owned(), |(_, pattern)| words::key_text(pattern))
    }

    /// The rights that a proxy on its own may use: without those that move data or need other servers.
    #[must_use]
    pub fn local_only(self) -> Self {
        Self {
            rights: Rights { replica_reads: false, whole_traffic: false, ..self.rights },
            ..self
        }
    }

    /// Why the key has this mode and what that means, in words.
    pub fn explain(&self) -> String {
        if self.own {
            return "a key of Heatsink itself; it is counted, and nothing is done about it".into();
        }
        let mode = self.mode;
        let mut text = match self.rule {
            Some((place, _)) => {
                format!("mode {mode} by rule {} (\"{}\")", place + 1, self.pattern())
            }
            None => format!("mode {mode}: no rule matches, so the default applies"),
        };
        text.push_str("; ");
        text.push_str(mode.meaning());
        if matches!(mode, Mode::Coherent | Mode::Relaxed) {
            text.push_str(if self.rights.whole_traffic {
                "; copies and splits may be automatic"
            } else {
                "; copies and splits only after a manual promote"
            });
            text.push_str(if self.rights.replica_reads {
                "; reads may go to replicas"
            } else {
                "; reads stay on primaries"
            });
        }
        if let Some(threshold) = self.rights.hot_threshold {
            text.push_str("; hot from ");
            text.push_str(&words::whole(f64::from(threshold)));
            text.push_str(" req/s");
        }
        text
    }
}

/// The error of too many rules: each key is matched against all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRules {
    /// How many there are.
    pub rules: usize,
}

impl fmt::Display for TooManyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} policy rules; at most {MAX_RULES} are possible", self.rules)
    }
}

impl std::error::Error for TooManyRules {}

#[cfg(test)]
mod tests {
    use super::{MAX_RULES, Mode, Policies, Rights, Rule};
    use crate::entry::Mitigation;

    fn rule(pattern: &str, mode: Mode) -> Rule {
        Rule { pattern: pattern.into(), mode, rights: Rights::default() }
    }

    #[test]
    fn the_first_match_decides_alone() {
        let mut first = rule("balance:*", Mode::Exact);
        first.rights.hot_threshold = Some(500);
        let policies =
            Policies::new(vec![first, rule("balance:vip", Mode::Off), rule("*", Mode::Relaxed)])
                .expect("few rules");
        let balance = policies.of(b"balance:vip");
        assert_eq!(balance.mode, Mode::Exact);
        assert_eq!(balance.rule, Some((0, b"balance:*".as_slice())));
        assert_eq!(balance.rights.hot_threshold, Some(500));
        assert_eq!(policies.of(b"x\xff").mode, Mode::Relaxed);
        assert_eq!(policies.lowest_threshold(), Some(500));
    }

    #[test]
    fn all_of_them_are_the_rules_in_order_and_the_last_resort() {
        let policies = Policies::new(vec![rule("b:*", Mode::Exact), rule("a", Mode::Off)])
            .expect("few rules")
            .with_last_resort(Mode::Observe);
        let all: Vec<_> = policies.all().map(|one| (one.mode, one.rule)).collect();
        assert_eq!(
            all,
            [
                (Mode::Exact, Some((0, b"b:*".as_slice()))),
                (Mode::Off, Some((1, b"a".as_slice()))),
                (Mode::Observe, None),
            ]
        );
        assert_eq!(policies.of(b"b:1"), policies.all().next().expect("the first"));
        assert_eq!(policies.of(b"c"), policies.all().last().expect("the last"));
    }

    #[test]
    fn without_a_rule_a_key_is_coherent() {
        let policies = Policies::default();
        let effective = policies.of(b"anything");
        assert_eq!((effective.mode, effective.rule), (Mode::Coherent, None));
        assert_eq!(effective.pattern(), "default");
        let text = effective.explain();
        assert!(text.starts_with("mode coherent: no rule matches"), "{text}");
        assert!(text.contains("only after a manual promote"), "{text}");
    }

    #[test]
    fn the_explanation_names_rule_and_rights() {
        let mut counters = rule("count:\u{c3}*", Mode::Relaxed);
        counters.rights =
            Rights { replica_reads: true, whole_traffic: true, hot_threshold: Some(20_000) };
        let policies = Policies::new(vec![rule("a", Mode::Off), counters]).expect("few rules");
        let text = policies.of("count:\u{c3}1".as_bytes()).explain();
        assert!(text.starts_with("mode relaxed by rule 2 (\"count:"), "{text}");
        assert!(text.ends_with("reads may go to replicas; hot from 20 000 req/s"), "{text}");
        assert_eq!(policies.of(b"a").explain().matches("copies").count(), 0);
    }

    #[test]
    fn modes_allow_what_was_promised() {
        let allowed = |mode: Mode| {
            Mitigation::ALL.iter().copied().filter(|one| mode.allows(*one)).collect::<Vec<_>>()
        };
        assert!(allowed(Mode::Off).is_empty());
        assert!(allowed(Mode::Observe).is_empty());
        assert_eq!(allowed(Mode::Exact), [Mitigation::Coalesce]);
        assert_eq!(allowed(Mode::Coherent), Mitigation::ALL);
        assert_eq!(allowed(Mode::Relaxed), Mitigation::ALL);
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
    }

    #[test]
    fn no_rule_allows_anything_on_heatsinks_own_keys() {
        let rules = vec![rule("heatsink:*", Mode::Relaxed)];
        let policies = Policies::new(rules).expect("few rules");
        let own = policies.of(b"heatsink:{default}:registry");
        assert!(own.mode.counts() && Mitigation::ALL.iter().all(|one| !own.allows(*one)));
        assert!(own.explain().starts_with("a key of Heatsink itself"), "{}", own.explain());
        let other = policies.of(b"heatsink:load:1");
        assert!(Mitigation::ALL.iter().all(|one| other.allows(*one)));
    }

    #[test]
    fn the_number_of_rules_is_bounded() {
        assert!(Policies::new(vec![Rule::default(); MAX_RULES]).is_ok());
        let error = Policies::new(vec![Rule::default(); MAX_RULES + 1]).expect_err("too many");
        assert_eq!(error.to_string(), "1025 policy rules; at most 1024 are possible");
    }
}
