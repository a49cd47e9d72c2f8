//! The environment: `HEATSINK_LISTEN` and the other variables.
//!
//! Called by: `sources`, with the variables of the process.
//! Invariant: an empty variable counts as not given, so that a wrapper can clear one.

use std::ffi::OsString;
use std::path::PathBuf;

use super::keys::{KEYS, Key};
use super::nearest::nearest;
use super::raw::{Mistake, Place, RawConfig, RawSetting, RawValue};

/// Names the configuration file; the one variable that is not a key of the file.
const FILE_VARIABLE: &str = "HEATSINK_CONFIG";

/// What the environment says.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// Variables that are keys.
    pub(crate) raw: RawConfig,
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
    /// Variables that are probably misspelt. Not an error: orchestrators set variables named
    /// after a service, such as `HEATSINK_SERVICE_HOST`.
    pub(crate) doubts: Vec<String>,
}

impl Environment {
    /// Reads `variables`, of which other programs' are passed over.
    pub(crate) fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        let names: Vec<String> = KEYS.iter().map(Key::variable).collect();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with("HEATSINK_")) else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            if name == FILE_VARIABLE {
                environment.file = Some(value.into());
                continue;
            }
            let Some(index) = names.iter().position(|known| known == name) else {
                environment.doubt(name, &names);
                continue;
            };
            let place = Place::Variable(name.to_owned());
            if let Ok(text) = value.into_string() {
                let value = RawValue::Untyped(text);
                environment.raw.settings.push(RawSetting { key: &KEYS[index], value, place });
            } else {
                let mistake = Mistake::at(place, "the value is not UTF-8".to_owned());
                environment.raw.mistakes.push(mistake);
            }
        }
        environment
    }

    fn doubt(&mut self, name: &str, known: &[String]) {
        // Compared without the prefix, whose letters would always be right.
        let rest = |name: &str| name["HEATSINK_".len()..].to_owned();
        let rests: Vec<String> = known.iter().map(|name| rest(name)).collect();
        let near = nearest(&rest(name), rests.iter().map(String::as_str));
        if let Some(near) = near {
            self.doubts.push(format!("unknown variable {name}; did you mean HEATSINK_{near}?"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Environment {
        Environment::read(
            variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))),
        )
    }

    #[test]
    fn known_variables_are_read_and_others_are_left_alone() {
        let environment = read(&[
            ("HEATSINK_LIMITS_MAX_CLIENTS", "7"),
            ("HEATSINK_CONFIG", "h.toml"),
            ("HEATSINK_LISTEN", ""),
            ("HEATSINK_SERVICE_HOST", "10.0.0.1"),
            ("HEATSINK_PORT_6380_TCP", "tcp://10.0.0.1:6380"),
            ("LISTEN", "nonsense"),
        ]);
        let [setting] = environment.raw.settings.as_slice() else {
            panic!("{environment:?}");
        };
        assert_eq!(setting.key.path, "limits.max_clients");
        assert_eq!(setting.value, RawValue::Untyped("7".to_owned()));
        assert_eq!(environment.file, Some(PathBuf::from("h.toml")));
        assert!(environment.doubts.is_empty(), "{environment:?}");
    }

    #[test]
    fn a_misspelt_variable_is_doubted() {
        let environment = read(&[("HEATSINK_LISEN", "127.0.0.1:1")]);
        assert_eq!(
            environment.doubts,
            ["unknown variable HEATSINK_LISEN; did you mean HEATSINK_LISTEN?"]
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_value_that_is_no_text_is_a_mistake() {
        use std::os::unix::ffi::OsStringExt;
        let value = OsString::from_vec(vec![0xff]);
        let environment = Environment::read(std::iter::once(("HEATSINK_LOG".into(), value)));
        assert_eq!(environment.raw.mistakes[0].to_string(), "HEATSINK_LOG: the value is not UTF-8");
    }
}
