//! Layers become one: of what was typed, the strongest source of each key wins.
//!
//! Called by: the commands, with the layers from strongest to weakest.
//! Invariant: `Settings` holds exactly one setting per key of the table, in its order, and
//! every value has passed the check of its kind.

use super::keys::{Default, KEYS, Key, POLICY_KEYS};
use super::raw::{Mistake, Place, RawConfig, RawPolicy, RawSetting, RawValue};
use super::value::Value;

/// All that is in effect.
#[derive(Debug)]
pub(crate) struct Settings {
    /// One per key of the table.
    pub(crate) all: Vec<Setting>,
    /// Rules, first match first: the settings of each.
    pub(crate) policies: Vec<Vec<Setting>>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// The key.
    pub(crate) key: &'static Key,
    /// The value.
    pub(crate) value: Value,
    /// Who gave it.
    pub(crate) place: Place,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

/// Merges `layers`, the strongest first. Every value of every layer is checked.
pub(crate) fn merge(layers: Vec<RawConfig>) -> Result<Settings, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut given: Vec<Setting> = Vec::new();
    let mut policies = Vec::new();
    for layer in layers {
        // Mistakes of one layer are in its own order; those of the file, by line.
        let mut found = layer.mistakes;
        for raw in layer.settings {
            match check(raw) {
                Ok(setting) if given.iter().any(|stronger| stronger.key == setting.key) => {}
                Ok(setting) => given.push(setting),
                Err(mistake) => found.push(mistake),
            }
        }
        for raw in layer.policies {
            policies.push(policy(raw, &mut found));
        }
        found.sort();
        mistakes.append(&mut found);
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(Settings { all: KEYS.iter().map(|key| effective(key, &given)).collect(), policies })
}

fn check(raw: RawSetting) -> Result<Setting, Mistake> {
    match raw.key.kind.parse(&raw.value) {
        Ok(value) => Ok(Setting { key: raw.key, value, place: raw.place }),
        Err(text) => Err(Mistake::of(raw.key, raw.place, &text)),
    }
}

fn policy(raw: RawPolicy, mistakes: &mut Vec<Mistake>) -> Vec<Setting> {
    for key in POLICY_KEYS.iter().filter(|key| matches!(key.default, Default::Required)) {
        if !raw.settings.iter().any(|setting| setting.key == key) {
            let text = format!("policy: {:?} is missing", key.leaf());
            mistakes.push(Mistake::at(raw.place.clone(), text));
        }
    }
    let mut settings = Vec::new();
    for setting in raw.settings {
        match check(setting) {
            Ok(setting) => settings.push(setting),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    settings
}

fn effective(key: &'static Key, given: &[Setting]) -> Setting {
    if let Some(setting) = given.iter().find(|setting| setting.key == key) {
        return setting.clone();
    }
    let value = match key.default {
        Default::Text(text) => match key.kind.parse(&RawValue::Untyped(text.to_owned())) {
            Ok(value) => value,
            Err(text) => unreachable!("default of {}: {text}", key.path),
        },
        Default::SameAs(path) => match super::keys::find(path) {
            Some(other) => effective(other, given).value,
            None => unreachable!("default of {}: no key {path}", key.path),
        },
        Default::Required => unreachable!("only keys of a policy are required"),
    };
    Setting { key, value, place: Place::Default }
}

impl Settings {
    /// The setting of the key at `path`, which is in the table.
    pub(crate) fn get(&self, path: &str) -> &Setting {
        match self.all.iter().find(|setting| setting.key.path == path) {
            Some(setting) => setting,
            None => unreachable!("no key {path} in the table"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{keys, toml_file};
    use super::*;

    fn layer(place: &Place, settings: &[(&str, &str)]) -> RawConfig {
        let setting = |(path, text): &(&str, &str)| RawSetting {
            key: keys::find(path).expect("in the table"),
            value: RawValue::Untyped((*text).to_owned()),
            place: place.clone(),
        };
        RawConfig { settings: settings.iter().map(setting).collect(), ..RawConfig::default() }
    }

    fn flags(settings: &[(&str, &str)]) -> RawConfig {
        layer(&Place::Flag("flag".to_owned()), settings)
    }

    fn variables(settings: &[(&str, &str)]) -> RawConfig {
        layer(&Place::Variable("VARIABLE".to_owned()), settings)
    }

    #[test]
    fn the_first_layer_wins_key_by_key() {
        let file = toml_file::read("h.toml", b"workers = 3\nlog = \"info\"\nrole = \"proxy\"\n");
        let settings = merge(vec![
            flags(&[("workers", "1")]),
            variables(&[("workers", "2"), ("log", "debug")]),
            file,
        ])
        .expect("valid");
        let shown = |path| {
            let setting = settings.get(path);
            format!("{} from {}", setting.value, setting.place)
        };
        assert_eq!(shown("workers"), "1 from --flag");
        assert_eq!(shown("log"), "\"debug\" from VARIABLE");
        assert_eq!(shown("role"), "\"proxy\" from h.toml:3");
        assert_eq!(shown("listen"), "\"127.0.0.1:6380\" from default");
    }

    #[test]
    fn the_coordination_store_is_the_upstream_unless_given() {
        let upstream = "redis://a:1";
        let settings = merge(vec![flags(&[("upstream", upstream)])]).expect("valid");
        assert_eq!(settings.get("coordination.url").value, settings.get("upstream").value);
        assert_eq!(settings.get("coordination.url").place, Place::Default);
    }

    #[test]
    fn overridden_values_are_checked_as_well() {
        let file = toml_file::read("h.toml", b"workers = 999\n");
        let mistakes = merge(vec![flags(&[("workers", "1")]), file]).expect_err("invalid");
        let [mistake] = mistakes.as_slice() else { panic!("{mistakes:?}") };
        assert_eq!(
            mistake.to_string(),
            "h.toml:1: workers: 999 is not a whole number from 0 to 256"
        );
    }

    #[test]
    fn mistakes_of_all_layers_are_reported_and_name_their_source() {
        let file =
            toml_file::read("h.toml", b"[[policy]]\nmode = \"strict\"\n[limits]\nmax_args = -1\n");
        let mistakes: Vec<String> =
            merge(vec![flags(&[("workers", "x")]), variables(&[("log", "loud")]), file])
                .expect_err("invalid")
                .iter()
                .map(ToString::to_string)
                .collect();
        assert_eq!(
            mistakes,
            [
                "--flag: \"x\" is not a whole number from 0 to 256",
                "VARIABLE: \"loud\" is neither a level (off, error, warn, info, debug, trace) nor \
                 directives such as \"warn,heatsink_proxy=debug\"",
                "h.toml:1: policy: \"match\" is missing",
                "h.toml:2: policy.mode: \"strict\" is not one of off, observe, exact, coherent, \
                 relaxed",
                "h.toml:4: limits.max_args: -1 is not a whole number from 3 to 2147483647",
            ]
        );
    }
}
